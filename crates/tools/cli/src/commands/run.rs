//! `forebay run`: runs one command with directories accelerated for it and its descendants only.
//!
//! This process stays outside and is the agent. Its child ([`Guest`]) enters a private namespace and becomes the
//! command. After the command's end, processes that it left behind with open files are waited for. Then everything
//! dirty is staged out, and a report is printed.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data_store::{Status, StatusScope};
use rustix::process::{Pid, Signal as OsSignal, kill_process};
use types::Shown;

use crate::args::RunArgs;
use crate::claim::{self, Claim};
use crate::commands::run_names;
use crate::drain::{self, Requests};
use crate::exit::{self, Failure, say};
use crate::guest::{Guest, Place, Plan};
use crate::mounts::{self, Mount};
use crate::report::{self, Directory, Report};
use crate::server::NamesAt;
use crate::serving::{self, How, Serving};
use crate::signals::Signals;
use crate::supervise::{Lingered, Supervised};
use crate::{heap, limits, log, lower, open_files, preload, privilege};

/// Runs the command. Returns the command's exit status, or 75 if data could not be drained.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    if args.server.names == NamesAt::Server {
        return run_names::run(args);
    }
    let buffer = args.server.directory(&args.burst_buffer)?;
    let server = args.server.get()?;
    let (places, claim) = claim::places(&args.dirs(), &buffer)?;
    let here = Here::new(args)?;
    let mut below = Vec::new();
    for place in &places {
        below.push(lower::open(&place.dir).map_err(|e| Failure::io(format_args!("use {}", place.dir.shown()), &e))?);
    }
    let dirs = places.iter().map(|place| &*place.dir);
    let windows = args.window.of_command(dirs, !args.no_preload, args.quiet)?;
    if let Some(windows) = &windows {
        windows.tell_programs();
        if !args.no_preload {
            preload::load(windows.dir(), args.quiet);
        }
    }
    let signals = Signals::block();
    let log = if let [only] = &*places { &only.burst_buffer } else { &buffer };
    let guest = here.begin(args, &places, &signals, log)?;
    let how = How { rules: args.rules.set(), delegates: true, windows, server, ..How::default() };
    if !args.quiet && how.server.is_none() && !privilege::administrates_machine() {
        say!("forebay: without root all data goes through the agent, which is slower (no passthrough)");
    }
    let child = guest.pid;
    let started = start(child, &signals, move || bring_up(guest, &places, claim, below, how))?;
    if !args.quiet {
        started.notes.iter().for_each(|note| say!("forebay: {note}"));
    }
    let ended = || started.servings.iter().all(Serving::has_ended);
    let outcome = supervise(args, started.pid, &started.mounts, &ended, &signals);
    finish(args, here.report, started.servings, outcome, &signals)
}

/// Working directory and report path of the caller.
pub struct Here {
    cwd: PathBuf,
    pub report: Option<PathBuf>,
}

impl Here {
    /// Finds both. Called before this process leaves its working directory.
    pub fn new(args: &RunArgs) -> Result<Here, Failure> {
        let cwd = std::env::current_dir().map_err(|e| Failure::io("find the working directory", &e))?;
        let report = args.report.as_ref().map(|file| cwd.join(file));
        // Checked now, not after the hours that the command may take.
        report.as_deref().map_or(Ok(()), report::can_write)?;
        Ok(Here { cwd, report })
    }

    /// Starts the child that is to become the command, and makes this process its agent. `log`: place whose log is
    /// used.
    pub fn begin(&self, args: &RunArgs, places: &[Place], signals: &Signals, log: &Path) -> Result<Guest, Failure> {
        let open_files = open_files::raise();
        let (command, cwd, quiet) = (&args.command, &*self.cwd, args.quiet);
        let plan = Plan { places, command, cwd, signals, open_files: &open_files, quiet };
        // Before any thread starts. The child ends by itself if this process does.
        let guest = Guest::start(&plan)?;
        heap::keep_small();
        // Nothing of this process may lie below the mount or keep the directory in use.
        let _ = std::env::set_current_dir("/");
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        log::start(log);
        privilege::keep_within_quotas();
        Ok(guest)
    }
}

struct Started {
    servings: Vec<Serving>,
    mounts: Vec<Mount>,
    pid: Pid,
    notes: Vec<String>,
}

/// Starts the agent in a thread, so that a signal can end the start at any moment. The child then dies with this
/// process, and the mounts with the child.
pub fn start<T: Send + 'static>(
    child: Pid,
    signals: &Signals,
    bring_up: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    signals.unless_asked_to_end(bring_up).inspect_err(|_| {
        // Fails if the child has ended already.
        let _ = kill_process(child, OsSignal::KILL);
    })
}

fn bring_up(
    guest: Guest,
    places: &[Place],
    claim: Option<Claim>,
    below: Vec<OwnedFd>,
    how: How,
) -> Result<Started, Failure> {
    let (mut servings, mut notes) = (Vec::new(), Vec::new());
    for (place, below) in places.iter().zip(below) {
        // The mount comes first: if it is not possible, the burst buffer stays untouched.
        let device = guest.device()?;
        let prepared = serving::prepare(place, below, &how)?;
        notes.extend(prepared.lock_note());
        notes.extend(prepared.tree_notes());
        servings.push(prepared.serve(device)?);
    }
    drop(claim);
    let mounts = mounts_of(guest.pid, places);
    let pid = guest.release()?;
    Ok(Started { servings, mounts, pid, notes })
}

pub fn mounts_of(command: Pid, places: &[Place]) -> Vec<Mount> {
    let ours = |mount: &Mount| mount.is_ours() && places.iter().any(|place| place.dir == mount.point);
    mounts::seen_by(command.as_raw_nonzero().get()).unwrap_or_default().into_iter().filter(ours).collect()
}

pub struct Outcome {
    status: u8,
    pub took: Duration,
    lingered: Lingered,
}

/// Waits for the command's end, and for the processes that it left behind with open files.
pub fn supervise(args: &RunArgs, pid: Pid, mounts: &[Mount], ended: &dyn Fn() -> bool, signals: &Signals) -> Outcome {
    let start = Instant::now();
    let mut command = Supervised::new(pid, signals);
    let status = command.wait();
    let took = start.elapsed();
    let lingered = command.linger(mounts, args.linger, args.quiet, ended);
    Outcome { status, took, lingered }
}

impl Outcome {
    /// Returns the requests to end that arrived after the command's end and are still to be obeyed.
    pub fn requests<'a>(&self, signals: &'a Signals) -> Requests<'a> {
        if self.lingered.asked { Requests::one(signals, false) } else { Requests::none(signals) }
    }

    /// Prints and writes the report, and returns the exit status. `drained`: the duration of the drain, and whether
    /// everything is in the global store.
    pub fn report(
        &self,
        args: &RunArgs,
        file: Option<PathBuf>,
        (drained, all): (Duration, bool),
        directories: Vec<Directory>,
    ) -> Result<u8, Failure> {
        let report = Report {
            command_status: self.status,
            command_s: self.took.as_secs_f64(),
            linger_s: self.lingered.took.as_secs_f64(),
            left_behind: self.lingered.left.iter().map(ToString::to_string).collect(),
            drain_s: drained.as_secs_f64(),
            directories,
        };
        if !args.quiet {
            report.tell();
        }
        let written = file.map_or(Ok(()), |file| report.write(&file));
        if !all {
            return Ok(exit::UNDRAINED);
        }
        written.map(|()| self.status)
    }
}

/// Returns the counters of the command's data. At a server, which also works for others, these are only the reads of
/// this node.
fn counters(serving: &Serving, all: bool) -> std::io::Result<Status> {
    // Counting the replicas would read all records.
    let of_here = if all { StatusScope::All } else { StatusScope::Activity };
    serving.cache.status(if serving.cache.is_shared() { StatusScope::Node } else { of_here }).counters
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
    let requests = outcome.requests(signals);
    for serving in &servings {
        let place = serving.place.clone();
        undrained |= !serving.drain_windows(&requests);
        let (stuck, took) = drain::drain(&serving.cache, &requests, args.quiet);
        drained += took;
        if !stuck.is_empty() {
            undrained = true;
            drain::list(&stuck, &place.dir, &place.burst_buffer);
        }
        let counters = counters(serving, file.is_some()).unwrap_or_default();
        let windows = serving.windows();
        let directory = Directory::new(&place.dir, &place.burst_buffer, counters, &stuck, outcome.took);
        let names = (serving.name_changes)();
        let undelegated = (!serving.delegates && names >= limits::NAMES_TOLD).then_some(names);
        directories.push(Directory { windows, undelegated, ..directory });
    }
    let ended = outcome.report(args, file, (drained, !undrained), directories);
    // The report comes first: stopping may wait for a store again.
    servings.into_iter().for_each(Serving::stop);
    ended
}
