//! Whether a batch job has one node, as far as its environment tells.

use std::collections::BTreeSet;
use std::env::var;

/// Variables with the number of a job's nodes: Slurm, Flux, OpenPBS on some sites, Fujitsu's.
const COUNTS: [&str; 5] = ["SLURM_JOB_NUM_NODES", "SLURM_NNODES", "FLUX_JOB_NNODES", "PBS_NUM_NODES", "PJM_NODE"];
/// Variables with a file that names a node in each line: PBS, LSF, OAR, Grid Engine.
const FILES: [&str; 4] = ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "OAR_NODEFILE", "PE_HOSTFILE"];

/// Whether the environment says that this process belongs to a job of one node.
pub fn is_job_of_one_node() -> bool {
    tells_one_node(&|name| var(name).ok(), &|path| std::fs::read_to_string(path).ok())
}

fn tells_one_node(variable: &dyn Fn(&str) -> Option<String>, file: &dyn Fn(&str) -> Option<String>) -> bool {
    let counts = COUNTS.iter().filter_map(|name| variable(name)?.trim().parse::<u64>().ok());
    let listed = FILES.iter().filter_map(|name| file(&variable(name)?)).map(|text| nodes_of(&text));
    let all: Vec<u64> = counts.chain(listed).collect();
    !all.is_empty() && all.iter().all(|nodes| *nodes == 1)
}

/// Number of nodes in a list: the first word of each line, once each.
fn nodes_of(text: &str) -> u64 {
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tells(variables: &[(&str, &str)]) -> bool {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        let file = |path: &str| match path {
            "/one" => Some("a\na\na\n".to_string()),
            "/two" => Some("a 4 all.q\nb 4 all.q\n".to_string()),
            _ => None,
        };
        tells_one_node(&variable, &file)
    }

    #[test]
    fn one_node_is_believed_if_everything_says_so() {
        assert!(tells(&[("SLURM_JOB_NUM_NODES", "1")]) && tells(&[("PBS_NODEFILE", "/one")]));
        assert!(!tells(&[]) && !tells(&[("SLURM_JOB_NUM_NODES", "2")]) && !tells(&[("PE_HOSTFILE", "/two")]));
        assert!(!tells(&[("SLURM_NNODES", "1"), ("PBS_NODEFILE", "/two")]) && !tells(&[("PBS_NODEFILE", "/gone")]));
    }
}
