//! `forebay mount`: accelerates a directory for the whole node, by an agent in the background.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use data_store::Stuck;
use types::Shown;

use crate::args::MountArgs;
use crate::channel::{self, Channel, Message};
use crate::claim::{self, Claim};
use crate::commands::mount_names;
use crate::drain::{self, Requests};
use crate::exit::{self, Failure, out, reason, say};
use crate::guest::{self, Place};
use crate::holders;
use crate::limits::{FORCED_END, POLL};
use crate::lower::{self, Submounts};
use crate::mounts;
use crate::server::NamesAt;
use crate::serving::{self, How, Serving};
use crate::signals::Signals;
use crate::{apart, dead, heap, log, open_files, privilege};

/// Mounts the directory. Returns when it works, or with `--foreground` when the mount has ended.
pub fn run(args: &MountArgs) -> Result<u8, Failure> {
    let buffer = args.server.directory(&args.burst_buffer)?;
    let server = args.server.get()?;
    if !privilege::has_admin() {
        return Err(Failure::new(exit::NO_PERMISSION, "mounting for the whole node needs root").remedy(
            "as an ordinary user accelerate one command, or one shell: forebay run --burst-buffer BB --dir DIR -- bash",
        ));
    }
    if args.server.names == NamesAt::Server {
        return mount_names::run(args, &buffer);
    }
    dead::detach(&args.dir, &buffer)?;
    let (places, claim) = claim::places(std::slice::from_ref(&args.dir), &buffer)?;
    let place = &places[0];
    let windows = args.window.place([&*place.dir].into_iter(), false)?;
    let how = How { rules: args.rules.set(), exclusive: args.exclusive, windows, server, ..How::default() };
    in_background(args.foreground, &place.burst_buffer, |started| agent(place, claim, &how, started))
}

/// Runs `work` in the background, unless `foreground`. Returns when `work` reports that it has started. Messages then
/// go to the log of `directory`.
pub fn in_background(
    foreground: bool,
    directory: &Path,
    work: impl FnOnce(Option<&Channel>) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    if foreground {
        return work(None);
    }
    let (ours, theirs) = channel::pair().map_err(|e| Failure::io("make a socket", &e))?;
    // SAFETY: no other thread runs yet, so the child may do all that this process may.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::io("start a process", &io::Error::last_os_error())),
        0 => {
            drop(ours);
            background(work, &theirs)
        }
        _ => {
            drop(theirs);
            match ours.receive() {
                Ok(Some(Message::Go)) => Ok(0),
                Ok(Some(Message::Failed(failure))) => Err(failure),
                _ => Err(Failure::new(exit::SOFTWARE, "the agent ended while it started")
                    .remedy(format!("see {}", log::of(directory).shown()))),
            }
        }
    }
}

/// Runs `work` in a grandchild, in a process group of its own: what the terminal sends does not reach it. The session stays that of
/// the caller, often a script that goes on with the programs. Sessions are scheduling groups (`sched_autogroup_enabled`), and the
/// reader gives way to its caller only within one (`fuse-protocol`, `follow.rs`).
fn background(work: impl FnOnce(Option<&Channel>) -> Result<u8, Failure>, channel: &Channel) -> ! {
    let detached = rustix::process::setpgid(None, None).map_err(io::Error::from);
    // SAFETY: still no other thread.
    let code = match detached.map(|_| unsafe { libc::fork() }) {
        Ok(0) => match work(Some(channel)) {
            Ok(code) => code,
            Err(failure) => {
                // If the caller has already gone after a successful start, the log has the error.
                tracing::error!("{}", failure.message);
                let code = failure.code;
                let _ = channel.send(&Message::Failed(failure));
                code
            }
        },
        _ => 0,
    };
    std::process::exit(code.into())
}

fn agent(place: &Place, claim: Option<Claim>, how: &How, started: Option<&Channel>) -> Result<u8, Failure> {
    heap::keep_small();
    let signals = Signals::block();
    let _ = open_files::raise();
    let _ = std::env::set_current_dir("/");
    log::start(&place.burst_buffer);
    privilege::keep_within_quotas();
    let dir = place.dir.clone();
    let busy = move |e: io::Error| Failure::io(format_args!("use {}", dir.shown()), &e);
    let (dir, failed) = (place.dir.clone(), busy.clone());
    let below = signals.unless_asked_to_end(move || lower::open(&dir).map_err(failed))?;
    let (submounts, mut lost) = Submounts::take(&place.dir).map_err(busy)?;
    let (ours, served) = (place.clone(), how.clone());
    let prepared = signals.unless_asked_to_end(move || serving::prepare(&ours, below, &served))?;
    drop(claim);
    stay_below(place);
    let device = guest::open_device()?;
    guest::mount_over(place, &device)?;
    let mounted = Mounted(&place.dir);
    let notes: Vec<_> = prepared.lock_note().into_iter().chain(prepared.tree_notes()).collect();
    let serving = prepared.serve(device)?;
    notes.iter().for_each(|note| tell(started, note));
    lost.extend(submounts.put());
    for mount in lost {
        tell(started, &format!("a file system mounted inside is hidden: {mount}"));
    }
    // The first request through the mount: either it works, or the caller gets the error.
    apart::look_into(&place.dir).map_err(|e| Failure::io(format_args!("look into {}", place.dir.shown()), &e))?;
    tracing::info!("serving {}", place.dir.shown());
    if let Some(windows) = &how.windows {
        out!("{}", windows.exports());
    }
    say_started(started)?;
    serve(place, serving, mounted, &signals)
}

/// Reports a successful start to the waiting caller, and closes the terminal.
pub fn say_started(started: Option<&Channel>) -> Result<(), Failure> {
    let Some(channel) = started else { return Ok(()) };
    close_terminal();
    // Fails if the caller of the mount was interrupted; then the mount must not stay.
    channel.send(&Message::Go).map_err(|_| Failure::silent(exit::UNAVAILABLE))
}

/// Names the processes that will not notice the mount until they enter the directory again.
fn stay_below(place: &Place) {
    let inside = holders::inside(&place.dir);
    if inside.is_empty() {
        return;
    }
    say!("forebay: these processes are inside {} and stay unaccelerated until they enter it anew:", place.dir.shown());
    say!("{}", holders::listed(&inside));
}

pub fn tell(started: Option<&Channel>, text: &str) {
    say!("forebay: {text}");
    if started.is_some() {
        tracing::warn!("{text}");
    }
}

/// Serves until unmounted, or asked to end; then drains and unmounts. The second request ends it even if files are in
/// use or not drained.
fn serve(place: &Place, serving: Serving, mounted: Mounted<'_>, signals: &Signals) -> Result<u8, Failure> {
    let mut told = false;
    while !serving.has_ended() {
        let signalled = signals.next(POLL).is_some_and(|signal| signal.asks_to_end());
        if !signalled && !serving.asked.is_asked() {
            continue;
        }
        note(&format!("{}: asked to end, draining; once more leaves what is not drained", place.dir.shown()));
        let requests = Requests::one(signals, true);
        let requests = if serving.asked.is_forced() { requests.with_patience(FORCED_END) } else { requests };
        let (stuck, _) = drain::drain(&serving.cache, &requests, false);
        match unmount(&place.dir) {
            Err(error) if told || serving.asked.is_forced() || drain::was_interrupted(&stuck) => {
                tracing::warn!("ended although {}: {}", place.dir.shown(), reason(&error));
                let _ = fuse_protocol::mount::unmount(&place.dir, true);
            }
            Err(error) => {
                told = true;
                note(&format!("{}: {}; once more ends it nevertheless", place.dir.shown(), reason(&error)));
                continue;
            }
            Ok(()) => {}
        }
        std::mem::forget(mounted);
        let interrupted = drain::was_interrupted(&stuck);
        return finish(place, serving, signals, interrupted.then_some(stuck));
    }
    std::mem::forget(mounted);
    finish(place, serving, signals, None)
}

/// Drains everything written until now, and releases the burst buffer. `left`: what remains undrained if the caller
/// has interrupted the drain.
fn finish(place: &Place, serving: Serving, signals: &Signals, left: Option<Vec<Stuck>>) -> Result<u8, Failure> {
    let requests = if left.is_some() { Requests::over(signals) } else { Requests::one(signals, true) };
    let requests = if serving.asked.is_forced() { requests.with_patience(FORCED_END) } else { requests };
    let windows_drained = serving.drain_windows(&requests);
    let stuck = left.unwrap_or_else(|| drain::drain(&serving.cache, &requests, false).0);
    if stuck.is_empty() && windows_drained {
        serving.stop();
        tracing::info!("ended; everything is in the global store");
        return Ok(0);
    }
    drain::list(&stuck, &place.dir, &place.burst_buffer);
    stuck.iter().for_each(|one| tracing::error!("not drained: {}: {}", one.path_hint.shown(), one.reason));
    serving.stop();
    Ok(exit::UNDRAINED)
}

/// Writes a line to the terminal, if there is one, and to the log.
pub fn note(text: &str) {
    say!("forebay: {text}");
    tracing::info!("{text}");
}

/// Mount that is undone when dropped, if the start fails.
pub struct Mounted<'a>(pub &'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Nobody can be using a mount that never answered.
        let _ = fuse_protocol::mount::unmount(self.0, true);
    }
}

/// Unmounts our mount at `dir` with the file systems on top of it. Errors: `EBUSY` while it is in use.
pub fn unmount(dir: &Path) -> io::Result<()> {
    let seen = mounts::all()?;
    let ours = seen.iter().rev().find(|mount| mount.is_ours() && mount.point == dir);
    let Some(ours) = ours else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    let mut inside = mounts::below(&seen, dir, Some(ours.id));
    inside.reverse();
    for point in inside {
        // A clone of a file system that stays mounted below: detaching it loses nothing, even while it is in use.
        fuse_protocol::mount::unmount(&point, true)?;
    }
    fuse_protocol::mount::unmount(dir, false)
}

/// Closes the terminal: an agent that held it would keep pipes of scripts open.
fn close_terminal() {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else { return };
    for fd in 0..=2 {
        // SAFETY: dup2 of an open descriptor over the standard ones, which nobody else owns.
        unsafe { libc::dup2(null.as_raw_fd(), fd) };
    }
}
