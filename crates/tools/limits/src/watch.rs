//! Stage 4: activity of processors, devices and interfaces while a real program runs, and the use of its time.

mod attribution;
mod profile;
mod show;
mod tiers;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::{Deserialize, Serialize};

pub use attribution::{Busy, Shares};
pub use profile::Profile;
pub use show::render;
pub use tiers::Tiers;

use crate::bounds::{WATCH_ASK, WATCH_SAMPLES_MAX};
use crate::clock::{cpu_ns, now_ns};
use crate::counters::Counters;
use crate::failure::Failure;

/// Results of `watch`. All except `program_cpu_s` concern the complete machine, including other programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watch {
    pub command: Vec<String>,
    /// Exit status, or 128 plus the signal's number.
    pub status: u8,
    /// Run time in seconds.
    pub seconds: f64,
    pub processors: u64,
    /// Processor time in seconds of the program and of the children that it waited for.
    pub program_cpu_s: f64,
    /// Processor time of watching, as a share of one processor.
    pub watcher_share: f64,
    /// Growth of the counters over the whole run.
    pub total: Counters,
    pub samples: Vec<Counters>,
    pub shares: Shares,
    /// Utilisation of each resource, the highest first.
    pub busy: Vec<Busy>,
    #[serde(default)]
    pub profile: Profile,
    #[serde(default)]
    pub tiers: Tiers,
    pub findings: Vec<String>,
}

/// Runs a program and watches it until it ends.
pub fn watch(command: &[OsString], interval: Duration) -> Result<Watch, Failure> {
    let (first, words) =
        command.split_first().ok_or_else(|| Failure::usage("which program? watch -- PROGRAM WORDS"))?;
    let mut tiers = Tiers::default();
    tiers.ask();
    let (cpu, before, children) = (cpu_ns(), Counters::now(), children_ticks());
    let mut child = Command::new(first).args(words).spawn().map_err(|error| Failure {
        // The status that shells use.
        code: if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 },
        message: format!("cannot run {}: {error}", first.display()),
    })?;
    let mut looker = profile::Looker::new(child.id());
    let (sender, ended) = channel();
    let process = Pid::from_child(&child);
    // A separate thread waits, so that the end is noticed at once, however long the interval. That thread leaves the
    // program's status to be collected here. The program's processor time is thus counted when no status command's is.
    thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        sender.send(retry_on_intr(|| waitid(WaitId::Pid(process), options)).map(|_| ()))
    });
    let Followed { samples, last, asking } = follow(&ended, interval, &before, &mut looker, &mut tiers)?;
    let status = child.wait().map_err(waiting)?;
    let total = last.since(&before);
    // Subtract the status commands, which are children too.
    let ticks = children_ticks().saturating_sub(children).saturating_sub(asking);
    tiers.ask();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let own_ns = (cpu_ns() - cpu) as f64 + asking as f64 / per_second * 1e9;
    let mut watch = Watch {
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        status: code(status),
        seconds: total.seconds(),
        processors: thread::available_parallelism().map_or(1, |count| count.get() as u64),
        program_cpu_s: ticks as f64 / per_second,
        watcher_share: own_ns / (now_ns() - before.at_ns).max(1) as f64,
        shares: Shares::of(&total.cpu),
        busy: attribution::busy(&total),
        total,
        samples,
        profile: looker.profile,
        tiers,
        findings: Vec::new(),
    };
    watch.findings = attribution::findings(&watch);
    watch.findings.extend(crate::counters::missing());
    Ok(watch)
}

fn waiting(error: std::io::Error) -> Failure {
    Failure::unavailable(format!("waiting for the program: {error}"))
}

/// Counters collected until a program ended.
struct Followed {
    samples: Vec<Counters>,
    last: Counters,
    /// Processor time of the status commands, in ticks.
    asking: u64,
}

fn follow(
    ended: &Receiver<rustix::io::Result<()>>,
    interval: Duration,
    begin: &Counters,
    looker: &mut profile::Looker,
    tiers: &mut Tiers,
) -> Result<Followed, Failure> {
    let (mut samples, mut last, mut step) = (Vec::new(), begin.clone(), interval);
    let (mut sampled, mut asked, mut asking) = (Instant::now(), Instant::now(), 0);
    loop {
        let left = step.saturating_sub(sampled.elapsed());
        let outcome = ended.recv_timeout(left.min(looker.pause));
        let is_over = !matches!(outcome, Err(RecvTimeoutError::Timeout));
        if !is_over {
            looker.look(tiers, cpu_ns);
            if asked.elapsed() >= WATCH_ASK {
                let before = children_ticks();
                tiers.ask();
                asking += children_ticks().saturating_sub(before);
                asked = Instant::now();
            }
        }
        if is_over || sampled.elapsed() >= step {
            let now = Counters::now();
            samples.push(now.since(&last));
            (last, sampled) = (now, Instant::now());
        }
        match outcome {
            Ok(outcome) => {
                outcome.map_err(|error| waiting(error.into()))?;
                return Ok(Followed { samples, last, asking });
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::defect("nobody waits for the program")),
        }
        if samples.len() >= WATCH_SAMPLES_MAX {
            samples = halved(samples);
            step *= 2;
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Merges pairs of intervals, so that a run of any length keeps a bounded number.
fn halved(samples: Vec<Counters>) -> Vec<Counters> {
    let mut merged: Vec<Counters> = Vec::new();
    for (number, sample) in samples.into_iter().enumerate() {
        match merged.last_mut().filter(|_| number % 2 == 1) {
            Some(last) => last.add(&sample),
            None => merged.push(sample),
        }
    }
    merged
}

/// Returns the processor time of the children that were waited for, in ticks.
fn children_ticks() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain spaces; the fields after it are numbered from 3.
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    [16, 17].iter().filter_map(|field| fields.get(field - 3)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_programs_end_and_processor_time_are_told() {
        let seen = watch(
            &words(&["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 7"]),
            Duration::from_millis(20),
        );
        let seen = seen.unwrap();
        assert_eq!(seen.status, 7);
        assert!(seen.program_cpu_s > 0.0, "{}", seen.program_cpu_s);
        assert!(!seen.samples.is_empty() && seen.seconds > 0.0);
        let sum: u64 = seen.samples.iter().map(|sample| sample.at_ns).sum();
        assert_eq!(sum, seen.total.at_ns);
    }

    #[test]
    fn a_signal_is_a_status_as_shells_say_it_and_a_missing_program_is_named() {
        assert_eq!(watch(&words(&["sh", "-c", "kill -TERM $$"]), Duration::from_secs(60)).unwrap().status, 143);
        let failure = watch(&words(&["/nonexistent/program"]), Duration::from_secs(1)).unwrap_err();
        assert_eq!(failure.code, 127);
        assert!(failure.message.contains("/nonexistent/program"));
    }

    #[test]
    fn halving_keeps_every_byte() {
        let sample = |at_ns| Counters { at_ns, ..Counters::default() };
        let merged = halved((1..=5).map(sample).collect());
        assert_eq!(merged.iter().map(|sample| sample.at_ns).collect::<Vec<_>>(), [3, 7, 5]);
    }
}
