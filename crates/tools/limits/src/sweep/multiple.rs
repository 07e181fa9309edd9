//! Checks whether some cell has a multiple of the number of processors. With any other number, some processors get more
//! processes than others, and the slowest process ends the phase for all.

use super::{Options, Sweep, distinct};
use crate::counters::Counters;

/// Returns the hosts' numbers of processors according to their counters, without duplicates.
pub fn of<'a>(hosts: impl IntoIterator<Item = &'a Counters>) -> Vec<u64> {
    distinct(hosts.into_iter().map(|counters| counters.processors).filter(|count| *count > 0))
}

/// Returns the advice for a sweep in which no cell was a multiple.
pub fn hint(sweep: &Sweep) -> Option<String> {
    missed(&sweep.options, &distinct(sweep.runs.iter().flat_map(|run| run.processors.iter().copied())))
}

/// Returns the advice before the sweep runs, for hosts with these numbers of processors.
pub fn missed(options: &Options, counts: &[u64]) -> Option<String> {
    // A single cell was chosen on purpose.
    if options.groups.len() * options.processes.len() < 2 {
        return None;
    }
    // Without hosts all groups run on this machine.
    let together: Vec<u64> = if options.hosts.is_empty() { options.groups.clone() } else { vec![1] };
    let on_one = || together.iter().flat_map(|m| options.processes.iter().map(move |n| m * n));
    let count = counts.iter().copied().find(|count| !on_one().any(|processes| processes.is_multiple_of(*count)))?;
    Some(format!(
        "no cell has a multiple of the {count} processors of a node, so that some carry more than others: add -N {count} or {}",
        2 * count
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_without_a_multiple_of_the_processors_is_told_which_n_is_one() {
        let mut options = Options::one("/t");
        options.processes = vec![1, 2, 4];
        let said = missed(&options, &[6]).unwrap();
        assert!(said.contains("a multiple of the 6 processors") && said.ends_with("add -N 6 or 12"), "{said}");
        assert_eq!(missed(&options, &[2]), None);
        // Three groups of two on one machine are six processes there; on separate hosts they are two each.
        options.groups = vec![1, 3];
        assert_eq!(missed(&options, &[6]), None);
        options.hosts = vec!["a".into(), "b".into(), "c".into()];
        assert!(missed(&options, &[2, 6]).unwrap().contains("the 6 processors"));
        assert_eq!(missed(&options, &[]), None);
        (options.groups, options.processes) = (vec![1], vec![1]);
        assert_eq!(missed(&options, &[6]), None);
    }
}
