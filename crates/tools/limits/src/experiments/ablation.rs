//! Comparison of the window's detector with the paper's algorithm as printed and as corrected.
//!
//! The program `ablation` replays traces in simulated time, so that the figures depend on the detectors and not on the
//! machine.

use std::process::{Command, Stdio};

use super::book::Ablation;
use super::{Row, Run, beside};
use crate::failure::Failure;
use crate::units::format_share;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Score {
    /// Share of the pattern's own requests that found all their bytes.
    hits: f64,
    /// Time until the program had read everything, microseconds.
    time_us: f64,
    /// Bytes fetched for each byte read.
    fetched: f64,
}

pub fn run(run: &Run<'_>, wanted: &Ablation, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let failed = |what: String| Failure::unavailable(format!("ablation: {what}"));
    let mut command = Command::new(beside("ablation")?);
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let scores = read(&said).filter(|scores| output.status.success() && !scores.is_empty());
    let scores = scores.ok_or_else(|| failed(format!("its result is not understood ({})", output.status)))?;
    tell("the store: 2 ms a request, 1 GB/s; the program thinks for 100 us after each read; 16 MiB are kept");
    Ok(scores.iter().map(|(trace, scores)| row(run, wanted, trace, *scores)).collect())
}

/// Parses the results of each trace: printed, corrected, the detector.
fn read(said: &str) -> Option<Vec<(&str, [Score; 3])>> {
    let mut scores = Vec::new();
    let mut lines = said.lines();
    while let Some(first) = lines.next() {
        let trace = first.split('\t').next()?;
        let score = |line: &str, policy: &str| {
            let parts: Vec<&str> = line.split('\t').collect();
            let number = |place: usize| parts.get(place)?.parse::<f64>().ok();
            let of_this = parts[0] == trace && *parts.get(1)? == policy;
            of_this.then_some(Score { hits: number(2)?, time_us: number(5)?, fetched: number(6)? })
        };
        let printed = score(first, "printed")?;
        scores.push((trace, [printed, score(lines.next()?, "corrected")?, score(lines.next()?, "detector")?]));
    }
    Some(scores)
}

fn row(run: &Run<'_>, wanted: &Ablation, trace: &str, [printed, corrected, ours]: [Score; 3]) -> Row {
    let what = format!(
        "printed {}, corrected {}; fetched {:.2} times what was read, against {:.2} and {:.2}",
        format_share(printed.hits),
        format_share(corrected.hits),
        ours.fetched,
        printed.fetched,
        corrected.fetched
    );
    // Random accesses cannot be predicted. Chance hits cost many times the bytes, so here the time counts.
    if trace == "random" {
        let sooner = printed.time_us.min(corrected.time_us) / ours.time_us;
        return Row::new(run, "random, speed over the better of both", sooner, "x").judged(Some(1.0), None, what);
    }
    let noisy = if trace.starts_with("noisy") { wanted.noisy } else { 0.0 };
    let bar = printed.hits.max(corrected.hits).max(noisy);
    Row::new(run, format!("{trace}, hits"), ours.hits, "x").judged(Some(bar), None, what)
}

#[cfg(test)]
mod tests {
    use super::super::book::{Book, Experiment};
    use super::*;

    const SAID: &str = "stride 8\tprinted\t0.5000\t0.5\t0.9\t2109000\t1.00\nstride 8\tcorrected\t0.5030\t0.5\t1.0\t2094000\t1.06\n\
                        stride 8\tdetector\t0.9990\t0.9\t1.0\t203000\t1.09\n";

    #[test]
    fn the_detector_is_judged_by_the_better_of_the_others_and_noise_by_its_own_bar() {
        let ablation = Ablation { noisy: 0.9 };
        let experiment = Experiment::Ablation(ablation.clone());
        let book = Book { id: "E".to_string(), title: String::new(), experiment };
        let run = Run { book: &book, quick: true };
        let scores = read(SAID).unwrap();
        let [(trace, scores)] = scores[..] else { panic!("one trace") };
        let found = row(&run, &ablation, trace, scores);
        assert_eq!((found.value, found.bar, found.is_kept()), (0.999, Some(0.503), true));
        let poor = [scores[0], scores[1], Score { hits: 0.8, ..scores[2] }];
        assert!(
            row(&run, &ablation, "stride 8", poor).is_kept() && !row(&run, &ablation, "noisy stride", poor).is_kept()
        );
        let slow = [scores[0], scores[1], Score { time_us: 3e6, ..scores[2] }];
        assert!(row(&run, &ablation, "random", scores).is_kept() && !row(&run, &ablation, "random", slow).is_kept());
    }

    #[test]
    fn other_words_are_not_understood() {
        for said in [&SAID[..100], &SAID.replace("printed", "detector"), &SAID.replacen("stride 8", "other", 2), "x"] {
            assert_eq!(read(said), None, "{said}");
        }
    }
}
