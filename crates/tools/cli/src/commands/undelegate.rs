//! `forebay undelegate`: ends the delegation of a directory whose holder does not come back.

use std::fs::File;
use std::io;
use std::path::Path;

use placement::lock::lock;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use trees::Holder;
use types::Shown;

use crate::args::UndelegateArgs;
use crate::exit::{self, Failure, out};
use crate::limits::HIDDEN_MOUNTS_MAX;
use crate::{delegated, link, mounts, place, shell};

/// Knowledge of a holder, as far as this node has it.
enum Evidence {
    /// A process serves the directory now.
    Serves,
    /// Nobody serves its burst buffer, where so many names wait.
    Waits(u64),
    /// The holder's burst buffer is here, and nothing waits in it.
    NothingWaits,
    /// The holder's burst buffer is not here.
    Unknown,
}

/// Ends a delegation. Returns 69 if the holder serves it, or if that is not known; 75 if names wait here.
pub fn run(args: &UndelegateArgs) -> Result<u8, Failure> {
    let failed = |e: &io::Error| Failure::io(format_args!("use {}", args.dir.shown()), e);
    let lexical = link::way(&args.dir, &link::targets(None)?)?;
    let directory = open_below(&lexical).map_err(|e| failed(&e))?;
    let Some(holder) = Holder::of(&directory).map_err(|e| failed(&e))? else {
        return Err(Failure::new(exit::NO_INPUT, format!("{} is not delegated", args.dir.shown())));
    };
    let evidence = evidence(&holder);
    may_end(&holder, &evidence, &lexical, args.force)?;
    // Nobody else sees them, but they keep their directories from being removed.
    holder.remove_unfinished(&lexical).map_err(|e| failed(&e))?;
    Holder::end(&directory).map_err(|e| failed(&e))?;
    out!("{} is not delegated any more; its holder was {}", args.dir.shown(), named(&holder));
    if !matches!(evidence, Evidence::NothingWaits) {
        let waited = waited(&holder);
        out!(
            "  what only that burst buffer had is lost, unless it comes back: then forebay recover tells what waits{waited}"
        );
    }
    Ok(0)
}

fn named(holder: &Holder) -> String {
    let buffer = holder.burst_buffer().unwrap_or(&holder.tree);
    format!("host {}, burst buffer {}", holder.host.shown(), buffer.shown())
}

/// Tells how many names waited, if the holder has noted that.
fn waited(holder: &Holder) -> String {
    holder
        .waiting
        .map_or_else(String::new, |names| format!("; when that was last noted, {}", delegated::names_wait(names)))
}

fn evidence(holder: &Holder) -> Evidence {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let here = holder.burst_buffer().filter(|buffer| host.trim() == holder.host && place::is_formatted(buffer));
    let Some(buffer) = here else { return Evidence::Unknown };
    if lock(buffer).is_err() {
        return Evidence::Serves;
    }
    match delegated::left(buffer) {
        Ok(left) => match left.iter().find(|tree| tree.directory == holder.tree) {
            Some(tree) => Evidence::Waits(tree.waiting),
            None => Evidence::NothingWaits,
        },
        Err(_) => Evidence::Unknown,
    }
}

/// Fails if the delegation should not end, or not without `force`.
fn may_end(holder: &Holder, evidence: &Evidence, dir: &Path, force: bool) -> Result<(), Failure> {
    let (named, word) = (named(holder), shell::word(dir));
    let dir = dir.shown();
    let nevertheless =
        format!("to end it nevertheless, and lose what only that burst buffer has: forebay undelegate {word} --force");
    let refused = |code, why: String, remedy: String| Err(Failure::new(code, why).remedy(remedy));
    match evidence {
        Evidence::NothingWaits => Ok(()),
        Evidence::Serves => refused(
            exit::UNAVAILABLE,
            format!("{dir} is delegated to an agent that works here: {named}"),
            "a drain there gives it back: forebay drain --wait".to_owned(),
        ),
        _ if force => Ok(()),
        Evidence::Waits(names) => {
            let buffer = shell::word(holder.burst_buffer().unwrap_or(&holder.tree));
            refused(
                exit::UNDRAINED,
                format!("{dir} is delegated, and nobody serves it: {named}; {} there", delegated::names_wait(*names)),
                format!("to bring them: forebay recover {buffer}\n  {nevertheless}"),
            )
        }
        Evidence::Unknown => refused(
            exit::UNAVAILABLE,
            format!(
                "{dir} is delegated: {named}; whether that comes back, and what waits there, is not known here{}",
                waited(holder)
            ),
            nevertheless,
        ),
    }
}

/// Opens a directory as the global store has it, below our mounts.
fn open_below(dir: &Path) -> io::Result<File> {
    for _ in 0..HIDDEN_MOUNTS_MAX {
        let seen = mounts::all()?;
        let Some(ours) = mounts::covering(&seen, dir).filter(|mount| mount.is_ours()) else { break };
        // The mount stays for all others.
        // SAFETY: this process has one thread; descriptor tables are not unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        rustix::mount::unmount(&ours.point, UnmountFlags::DETACH)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?.into())
}
