//! `forebay run`: one command with directories accelerated, for it and its descendants alone.
//!
//! This process stays outside and is the agent. Its child ([`Guest`]) enters a private namespace and becomes the
//! command. When the command has ended, whoever it left behind with open files is waited for, everything dirty is
//! staged out, and a report says what happened.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use file_cache::Status;
use rustix::process::{Pid, Signal as OsSignal, kill_process};

use crate::args::RunArgs;
use crate::claim::{self, Claim};
use crate::drain::{self, Requests};
use crate::exit::{self, Failure, say};
use crate::guest::{Guest, Place, Plan};
use crate::mounts::{self, Mount};
use crate::report::{Directory, Report};
use crate::serving::{self, How, Serving};
use crate::signals::Signals;
use crate::supervise::{Lingered, Supervised};
use crate::{heap, log, lower, open_files, preload, privilege};

/// Between two looks at signals while the agent starts: the start itself takes a few milliseconds.
const START_LOOK: Duration = Duration::from_millis(5);

/// Runs it. The exit status is the command's, or 75 when data could not be drained.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let buffer = args.server.directory(&args.burst_buffer)?;
    let server = args.server.get()?;
    let (places, claim) = claim::places(&args.dirs(), &buffer)?;
    let cwd = std::env::current_dir().map_err(|e| Failure::io("find the working directory", &e))?;
    let report = args.report.as_ref().map(|file| cwd.join(file));
    let mut below = Vec::new();
    for place in &places {
        below.push(lower::open(&place.dir).map_err(|e| Failure::io(format_args!("use {}", place.dir.display()), &e))?);
    }
    let windows = args.window.place()?;
    if let Some(windows) = &windows {
        windows.tell_programs();
        if !args.no_preload {
            preload::load(args.quiet);
        }
    }
    let signals = Signals::block();
    let open_files = open_files::raise();
    let command = &args.command;
    let plan =
        Plan { places: &places, command, cwd: &cwd, signals: &signals, open_files: &open_files, quiet: args.quiet };
    // Before any thread starts. It ends by itself if we do.
    let guest = Guest::start(&plan)?;
    heap::keep_small();
    // Nothing of this process may lie below the mount or keep the directory busy.
    let _ = std::env::set_current_dir("/");
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    log::start(if let [only] = &*places { &only.burst_buffer } else { &buffer });
    let how = How { rules: args.rules.set(), windows, server, ..How::default() };
    if !args.quiet && how.server.is_none() && !privilege::administrates_machine() {
        say!("forebay: without root all data goes through the agent, which is slower (no passthrough)");
    }
    let started = start(guest, places, claim, below, how, &signals)?;
    let outcome = supervise(args, &started, &signals);
    finish(args, report, started.servings, outcome, &signals)
}

/// The command runs.
struct Started {
    servings: Vec<Serving>,
    /// Ours, as the command sees them.
    mounts: Vec<Mount>,
    pid: Pid,
}

/// Brings the agent up in a thread, so that a signal can end it at any moment: then the child dies with this process,
/// and the mounts with the child.
fn start(
    guest: Guest,
    places: Vec<Place>,
    claim: Option<Claim>,
    below: Vec<OwnedFd>,
    how: How,
    signals: &Signals,
) -> Result<Started, Failure> {
    let (sender, receiver) = mpsc::channel();
    let child = guest.pid;
    std::thread::spawn(move || {
        // Nobody listens any more when this process is about to end.
        let _ = sender.send(bring_up(guest, &places, claim, below, how));
    });
    loop {
        match receiver.recv_timeout(START_LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(exit::SOFTWARE, "the agent could not start"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(signal) = signals.next(Duration::ZERO).filter(|signal| signal.asks_to_end()) {
            let _ = kill_process(child, OsSignal::KILL);
            return Err(Failure::silent((128 + signal.number) as u8));
        }
    }
}

fn bring_up(
    guest: Guest,
    places: &[Place],
    claim: Option<Claim>,
    below: Vec<OwnedFd>,
    how: How,
) -> Result<Started, Failure> {
    let mut servings = Vec::new();
    for (place, below) in places.iter().zip(below) {
        // The mount first: if it is not possible, the burst buffer stays untouched.
        let device = guest.device()?;
        servings.push(serving::prepare(place, below, &how)?.serve(device)?);
    }
    drop(claim);
    let ours = |mount: &Mount| mount.is_ours() && places.iter().any(|place| place.dir == mount.point);
    let mounts =
        mounts::seen_by(guest.pid.as_raw_nonzero().get()).unwrap_or_default().into_iter().filter(ours).collect();
    let pid = guest.release()?;
    Ok(Started { servings, mounts, pid })
}

/// What the command did, before the drain.
struct Outcome {
    status: u8,
    took: Duration,
    lingered: Lingered,
}

fn supervise(args: &RunArgs, started: &Started, signals: &Signals) -> Outcome {
    let start = Instant::now();
    let mut command = Supervised::new(started.pid, signals);
    let status = command.wait();
    let took = start.elapsed();
    let ended = || started.servings.iter().all(Serving::has_ended);
    let lingered = command.linger(&started.mounts, args.linger, args.quiet, &ended);
    Outcome { status, took, lingered }
}

/// What was done for the command; where a server did it, for others too, how reads fared on this node.
fn counters(serving: &Serving, all: bool) -> std::io::Result<Status> {
    match (serving.cache.server(), all) {
        (Some(_), _) => {
            let reads = serving.cache.reads().unwrap_or_default();
            let (read_hits, read_late, read_misses) = (reads.hits, reads.late, reads.misses);
            Ok(Status { read_hits, read_late, read_misses, ..Status::default() })
        }
        (None, true) => serving.cache.status(),
        // To count the replicas is to read all records.
        (None, false) => serving.cache.activity(),
    }
}

fn finish(
    args: &RunArgs,
    file: Option<PathBuf>,
    servings: Vec<Serving>,
    outcome: Outcome,
    signals: &Signals,
) -> Result<u8, Failure> {
    let mut directories = Vec::new();
    let mut drained = Duration::ZERO;
    let mut undrained = false;
    let requests = if outcome.lingered.asked { Requests::one(signals, false) } else { Requests::none(signals) };
    for serving in servings {
        let place = serving.place.clone();
        undrained |= !serving.drain_windows(&requests);
        let (stuck, took) = drain::drain(&serving.cache, &requests, args.quiet);
        drained += took;
        if !stuck.is_empty() {
            undrained = true;
            drain::list(&stuck, &place.dir, &place.burst_buffer);
        }
        let counters = counters(&serving, file.is_some()).unwrap_or_default();
        let windows = serving.windows();
        let directory = Directory::new(&place.dir, &place.burst_buffer, counters, &stuck, outcome.took);
        directories.push(Directory { windows, ..directory });
        serving.stop();
    }
    let report = Report {
        command_status: outcome.status,
        command_s: outcome.took.as_secs_f64(),
        linger_s: outcome.lingered.took.as_secs_f64(),
        left_behind: Report::left(&outcome.lingered.left),
        drain_s: drained.as_secs_f64(),
        directories,
    };
    if !args.quiet {
        report.tell();
    }
    let written = file.map_or(Ok(()), |file| report.write(&file));
    if undrained {
        return Ok(exit::UNDRAINED);
    }
    written.map(|()| outcome.status)
}
