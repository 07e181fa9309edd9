//! Further information in the runs of a phase's best cell.

use super::statistics::median;
use super::{Run, Sweep};
use crate::units::format_share;
use crate::workload::{Kind, is_here};

const PROCESSORS_FULL: f64 = 0.9;

/// Returns sentences about the runs of a phase's best cell: full processors of this machine, and wrong file sizes.
pub fn words(sweep: &Sweep, kind: Kind, cell: (u64, u64)) -> Vec<String> {
    let of_cell = |run: &&Run| run.kind == kind && (run.groups, run.processes) == cell && run.rejected.is_none();
    let runs: Vec<&Run> = sweep.runs.iter().filter(of_cell).collect();
    let busy = median(&runs.iter().map(|run| run.cpu_share).collect::<Vec<_>>());
    let mut words = Vec::new();
    if busy >= PROCESSORS_FULL && sweep.options.hosts.iter().all(|host| is_here(host)) {
        let busy = format_share(busy);
        words.push(format!(
            "this machine's processors were {busy} busy there: they bind, and the storage may give more"
        ));
    }
    let (odd, all) = runs.iter().fold((0, 0), |sum, run| (sum.0 + run.odd, sum.1 + run.operations));
    if odd > 0 {
        words
            .push(format!("{odd} of {all} files showed another size than was written: attributes lag behind the data"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Options, analyse};
    use crate::workload::{Pattern, Preset};

    #[test]
    fn full_processors_and_sizes_that_lag_behind_are_told_of_the_best_cell() {
        let read = |cpu: f64, odd: u64| {
            let run = |rate: f64| {
                serde_json::json!({
                    "groups": 1, "processes": 1, "repetition": 0, "kind": "stat", "amount": 50, "operations": 50,
                    "seconds": 1.0, "rate": rate, "group_rates": [rate], "process_rates": [rate, rate], "latency_ns": [1, 1, 1],
                    "cpu_share": cpu, "resident": null, "device_bytes": null, "network_bytes": [0, 0], "exhausted": false,
                    "odd": odd, "rejected": null,
                })
            };
            let runs = [run(50.0), run(51.0), run(49.0)];
            let runs: Vec<Run> = runs.into_iter().map(|run| serde_json::from_value(run).unwrap()).collect();
            let pattern = Pattern::preset(Preset::MdtestHard);
            let mut sweep = Sweep::new(Options { pattern, repeat: 3, ..Options::one("/") });
            sweep.runs = runs;
            analyse(&sweep)[0].words.join("\n")
        };
        let words = read(0.95, 2);
        assert!(words.contains("this machine's processors were 95.0 % busy there: they bind"), "{words}");
        assert!(words.contains("6 of 150 files showed another size than was written"), "{words}");
        let words = read(0.5, 0);
        assert!(!words.contains("they bind") && !words.contains("another size"), "{words}");
    }
}
