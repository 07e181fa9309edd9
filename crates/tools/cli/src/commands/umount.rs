//! `forebay umount`: drains an accelerated directory, unmounts it, and waits until its agent has ended.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use agent::control::ControlRequest;
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;
use types::Shown;

use crate::args::UmountArgs;
use crate::commands::mount;
use crate::count::files;
use crate::exit::{self, Failure, say};
use crate::holders;
use crate::limits::{FORCED_DRAIN, FORCED_WAIT, POLL, UNMOUNT_TRIES};
use crate::link::{self, Link, Target};
use crate::{findings, log, mounts, place, relaying, shell};

/// Unmounts the directory. Returns 69 while it is in use, 75 if data cannot be drained.
pub fn run(args: &UmountArgs) -> Result<u8, Failure> {
    let (target, inside) = match link::target(&args.dir, None) {
        Err(failure) if args.force && failure.code == exit::UNAVAILABLE => return mute(args, failure),
        found => found?,
    };
    if !inside.as_os_str().is_empty() {
        let message = format!("{} lies inside the accelerated directory {}", args.dir.shown(), target.dir.shown());
        return Err(Failure::new(exit::USAGE, message).remedy(format!("forebay umount {}", shell::word(&target.dir))));
    }
    // This process must not keep the directory in use.
    let _ = std::env::set_current_dir("/");
    match link::connect(target.clone()) {
        Ok(link) if args.force => forced(link),
        Ok(link) => with_agent(link),
        Err(failure) if failure.code == exit::UNAVAILABLE => without_agent(args, &target),
        Err(failure) => Err(failure),
    }
}

/// Unmounts within seconds, whatever the agent waits for. An agent that does not answer or end is left without its
/// mount.
fn forced(link: Link) -> Result<u8, Failure> {
    mounted_elsewhere(&link)?;
    let (dir, burst_buffer) = (link.dir.clone(), link.burst_buffer.clone());
    match end_forced(link) {
        Err(failure) if failure.code == exit::UNAVAILABLE => {
            say!("{failure}");
            abort(&dir)?;
            left_behind(&burst_buffer)
        }
        ended => ended,
    }
}

fn end_forced(mut link: Link) -> Result<u8, Failure> {
    if link.ask(&ControlRequest::Ping, |_| {})?["names"] != relaying::NAMES {
        match link.drain(Path::new(""), Some(FORCED_DRAIN)) {
            Ok(stuck) if stuck.is_empty() => {}
            Ok(stuck) => link.list(&stuck),
            Err(failure) => say!("{failure}"),
        }
    }
    if let Some(failure) = busy(&link.dir) {
        say!("{}", Failure { remedy: "they lose what they hold there".to_string(), ..failure });
    }
    // The agent unmounts by itself. If the mount were gone already, it would drain without a time limit.
    link.ask(&ControlRequest::Shutdown { force: true }, |_| {})?;
    let (dir, buffer, agent) = (link.dir.shown().to_string(), link.burst_buffer.clone(), link.agent());
    let held = link.wait_for_end(Some(FORCED_WAIT)).map_err(|_| {
        let process = agent.map(|pid| format!(", process {pid},")).unwrap_or_default();
        Failure::new(exit::UNAVAILABLE, format!("the agent of {dir}{process} has not ended yet"))
            .remedy("it waits for calls that have not come back, and is gone when they do")
    })?;
    left_over(&buffer, held.as_ref())
}

/// Unmounts without an agent that does not answer, such as a stopped one.
fn mute(args: &UmountArgs, failure: Failure) -> Result<u8, Failure> {
    let lexical = std::path::absolute(&args.dir).map_err(|e| Failure::io("find the working directory", &e))?;
    let Some(target) = link::targets(None)?.into_iter().find(|target| target.dir == lexical) else {
        return Err(failure);
    };
    say!("{failure}");
    abort(&target.dir)?;
    left_behind(&target.burst_buffer)
}

/// Reports what the burst buffer still holds, while its agent may still have it.
fn left_behind(buffer: &Path) -> Result<u8, Failure> {
    match left_over(buffer, None) {
        Err(failure) if failure.code == exit::UNAVAILABLE => {
            let (dir, word) = (buffer.shown(), shell::word(buffer));
            say!(
                "forebay: what is not in the global store stays in {dir}; when its agent has ended: forebay recover {word}"
            );
            Ok(exit::UNDRAINED)
        }
        told => told,
    }
}

/// Ends the mount of an agent that does not end it, if it still exists. Callers that wait for an answer there get an
/// error.
fn abort(dir: &Path) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::io(format_args!("end the mount of {}", dir.shown()), &e);
    let seen = mounts::all().map_err(failed)?;
    let Some(ours) = mounts::covering(&seen, dir).filter(|mount| mount.is_ours() && mount.point == dir) else {
        return Ok(());
    };
    // By a descriptor: the agent may unmount it meanwhile, and the mount below is not ours.
    let place = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let place = place.map_err(|e| failed(e.into()))?;
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    if holders::mount_of(&link) != Some(ours.id) {
        return Ok(());
    }
    // Fails with "in use", but the connection has ended all the same.
    let _ = rustix::mount::unmount(&link, UnmountFlags::FORCE);
    match rustix::mount::unmount(&link, UnmountFlags::DETACH) {
        // The mount has gone meanwhile.
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(error) => Err(failed(error.into())),
    }
}

fn with_agent(mut link: Link) -> Result<u8, Failure> {
    mounted_elsewhere(&link)?;
    // If the server has the names, it drains by itself.
    let drains = link.ask(&ControlRequest::Ping, |_| {})?["names"] != relaying::NAMES;
    let stuck = if drains { link.drain(Path::new(""), None)? } else { Vec::new() };
    if !stuck.is_empty() {
        link.list(&stuck);
        // Open files are the commonest reason, and the caller can do something about them.
        busy(&link.dir).map_or(Ok(()), Err)?;
        say!("forebay: still mounted; with --force it ends and this data stays in {}", link.burst_buffer.shown());
        return Ok(exit::UNDRAINED);
    }
    unmount(&link.dir)?;
    let buffer = link.burst_buffer.clone();
    let held = link.wait_for_end(None)?;
    left_over(&buffer, held.as_ref())
}

/// Fails if the agent lives in another mount namespace. Unmounting here would not end its mount there, and the wait
/// for its end would be in vain.
fn mounted_elsewhere(link: &Link) -> Result<(), Failure> {
    let Some(pid) = link.agent() else { return Ok(()) };
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    match (namespace(&pid.to_string()), namespace("self")) {
        (Some(agents), Some(own)) if agents != own => {
            let message = format!("{} was accelerated by process {pid} from another mount namespace", link.dir.shown());
            Err(Failure::new(exit::UNAVAILABLE, message).remedy(format!(
                "that of `forebay run` ends with its command; that of `forebay mount` is ended there: \
                 nsenter --mount --target {pid} forebay umount {}",
                shell::word(&link.dir)
            )))
        }
        _ => Ok(()),
    }
}

/// Unmounts after the agent has ended. Its data is in the burst buffer.
fn without_agent(args: &UmountArgs, target: &Target) -> Result<u8, Failure> {
    say!("forebay: the agent of {} is gone", target.dir.shown());
    match unmount(&target.dir) {
        // An unserved mount is useless; its users get errors until they close their files.
        Err(_) if args.force => fuse_protocol::mount::unmount(&target.dir, true)
            .map_err(|e| Failure::io(format_args!("end the mount of {}", target.dir.shown()), &e))?,
        other => other?,
    }
    let buffer = &target.burst_buffer;
    // The place of a relay at a server contains only a log.
    if !place::is_formatted(buffer) && !log::of(buffer).exists() {
        let message = format!(
            "the burst buffer {} is not there: nobody knows whether all of it is in the global store",
            buffer.shown()
        );
        return Err(Failure::new(exit::UNDRAINED, message)
            .remedy(format!("mount it there again, and then: forebay recover {}", shell::word(buffer))));
    }
    left_over(buffer, None)
}

/// Reports what the burst buffer still holds after its agent has ended. `held`: the burst buffer itself, if it is not
/// found by its path.
fn left_over(buffer: &Path, held: Option<&OwnedFd>) -> Result<u8, Failure> {
    let dirty = findings::undrained(&held.map_or_else(|| buffer.to_path_buf(), link::held_path))?;
    if dirty == 0 {
        return Ok(0);
    }
    if held.is_some() {
        say!("forebay: {} is not mounted where it was: mount it again first", buffer.shown());
    }
    let (are, them) = if dirty == 1 { ("is", "it") } else { ("are", "them") };
    say!("forebay: {} in {} {are} not in the global store; to stage {them} out:", files(dirty), buffer.shown());
    say!("  forebay recover {}", shell::word(buffer));
    Ok(exit::UNDRAINED)
}

fn unmount(dir: &Path) -> Result<(), Failure> {
    for _ in 0..UNMOUNT_TRIES {
        match mount::unmount(dir) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(POLL),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Failure::new(exit::NO_PERMISSION, "ending a mount needs root"));
            }
            other => {
                return other.map_err(|e| Failure::io(format_args!("end the mount of {}", dir.shown()), &e));
            }
        }
    }
    Err(busy(dir).unwrap_or_else(|| Failure::new(exit::UNAVAILABLE, format!("{} is in use", dir.shown()))))
}

/// Returns a failure that names the users of the mount, if any are found.
fn busy(dir: &Path) -> Option<Failure> {
    let seen = mounts::all().unwrap_or_default();
    let device = &mounts::ours_over(&seen, dir)?.device;
    let held = holders::of(device);
    if held.is_empty() {
        return None;
    }
    let message = format!("{} is in use by\n{}", dir.shown(), holders::listed(&held));
    Some(
        Failure::new(exit::UNAVAILABLE, message)
            .remedy("end these processes, or let them leave the directory, and try again"),
    )
}
