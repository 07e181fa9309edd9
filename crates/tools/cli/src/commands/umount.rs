//! `forebay umount`: drains an accelerated directory, ends its mount, and waits until its agent has ended.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use agent::control::Request;
use types::Shown;

use crate::args::UmountArgs;
use crate::commands::{check, mount};
use crate::count::files;
use crate::exit::{self, Failure, say};
use crate::holders;
use crate::limits::{LISTED_MAX, POLL, UNMOUNT_TRIES};
use crate::link::{self, Link, Target};
use crate::{log, mounts, place, relaying, shell};

/// Ends it. 69 while somebody uses it, 75 when data cannot be drained.
pub fn run(args: &UmountArgs) -> Result<u8, Failure> {
    let (target, inside) = link::target(&args.dir, None)?;
    if !inside.as_os_str().is_empty() {
        let message = format!("{} lies inside the accelerated directory {}", args.dir.shown(), target.dir.shown());
        return Err(Failure::new(exit::USAGE, message).remedy(format!("forebay umount {}", shell::word(&target.dir))));
    }
    // Nothing of ours may keep it busy.
    let _ = std::env::set_current_dir("/");
    match link::connect(target.clone()) {
        Ok(link) => with_agent(args, link),
        Err(failure) if failure.code == exit::UNAVAILABLE => without_agent(args, &target),
        Err(failure) => Err(failure),
    }
}

fn with_agent(args: &UmountArgs, mut link: Link) -> Result<u8, Failure> {
    mounted_elsewhere(&link)?;
    // Where the server has the names, it drains by itself.
    let drains = link.ask(&Request::Ping, |_| {})?["names"] != relaying::NAMES;
    let stuck = if drains { link.drain(Path::new(""))? } else { Vec::new() };
    if !stuck.is_empty() {
        link.list(&stuck);
        // What is in use is the commonest reason, and the one that the caller can do something about.
        busy(&link.dir).filter(|_| !args.force).map_or(Ok(()), Err)?;
        if !args.force {
            say!("forebay: still mounted; with --force it ends and this data stays in {}", link.burst_buffer.shown());
            return Ok(exit::UNDRAINED);
        }
    }
    match unmount(&link.dir) {
        Err(failure) if args.force && failure.code == exit::UNAVAILABLE => {
            say!("{}", Failure { remedy: "they lose what they hold there".to_string(), ..failure });
            link.ask(&Request::Shutdown { force: true }, |_| {})?;
        }
        other => other?,
    }
    let buffer = link.burst_buffer.clone();
    let held = link.wait_for_end()?;
    left_over(&buffer, held.as_ref())
}

/// What is mounted in another namespace is not ended by what happens in this one: its agent would be waited for in vain.
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

/// The agent is gone: what it held is in the burst buffer.
fn without_agent(args: &UmountArgs, target: &Target) -> Result<u8, Failure> {
    say!("forebay: the agent of {} is gone", target.dir.shown());
    match unmount(&target.dir) {
        // Nobody can do anything with a mount that nobody serves; its users get errors until they close it.
        Err(_) if args.force => fuse_protocol::mount::unmount(&target.dir, true)
            .map_err(|e| Failure::io(format_args!("end the mount of {}", target.dir.shown()), &e))?,
        other => other?,
    }
    let buffer = &target.burst_buffer;
    // One at a server has no more than its log here.
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

/// Tells what the burst buffer still holds once no agent has it. `held`: itself, if it is not found by its path.
fn left_over(buffer: &Path, held: Option<&OwnedFd>) -> Result<u8, Failure> {
    let dirty = check::undrained(&held.map_or_else(|| buffer.to_path_buf(), link::held_path))?;
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

/// A failure that names who uses the mount, if anybody is found.
fn busy(dir: &Path) -> Option<Failure> {
    let seen = mounts::all().unwrap_or_default();
    let device = &mounts::ours_over(&seen, dir)?.device;
    let held = holders::of(device);
    if held.is_empty() {
        return None;
    }
    let mut lines: Vec<String> = held.iter().take(LISTED_MAX).map(|holder| format!("  {holder}")).collect();
    if held.len() > LISTED_MAX {
        lines.push(format!("  and {} more", held.len() - LISTED_MAX));
    }
    let message = format!("{} is in use by\n{}", dir.shown(), lines.join("\n"));
    Some(
        Failure::new(exit::UNAVAILABLE, message)
            .remedy("end these processes, or let them leave the directory, and try again"),
    )
}
