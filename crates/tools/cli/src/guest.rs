//! The command of `run`: a child in a private mount namespace, with our file systems over its directories.
//!
//! The child is forked before this process starts threads. It mounts, hands each FUSE device to this process, waits
//! until they are served, puts submounts back on top, returns to its working directory - now through the mount - and
//! executes the command. If this process dies before that, so does the child.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fuse_protocol::mount;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use types::Shown;

use crate::channel::{self, Channel, Message};
use crate::exit::{self, Failure, reason, say};
use crate::lower::Submounts;
use crate::open_files::Before;
use crate::signals::Signals;

pub use placement::place::Place;

pub struct Plan<'a> {
    /// Directories to mount over, with their burst buffers.
    pub places: &'a [Place],
    /// Program and arguments, at least one.
    pub command: &'a [OsString],
    pub cwd: &'a Path,
    pub signals: &'a Signals,
    pub open_files: &'a Before,
    pub quiet: bool,
}

/// Child process, until it executes the command.
#[derive(Debug)]
pub struct Guest {
    /// Process id of the child, which the command keeps.
    pub pid: Pid,
    channel: Channel,
}

impl Guest {
    /// Forks the child, which hands over the devices and then waits.
    pub fn start(plan: &Plan<'_>) -> Result<Guest, Failure> {
        let (ours, theirs) = channel::pair().map_err(|e| Failure::io("make a socket", &e))?;
        let parent = rustix::process::getpid();
        // SAFETY: no other thread runs yet, so the child may do all that this process may.
        match unsafe { libc::fork() } {
            -1 => Err(Failure::io("start a process", &io::Error::last_os_error())),
            0 => {
                drop(ours);
                let Err(failure) = become_command(plan, &theirs, parent);
                let _ = theirs.send(&Message::Failed(failure));
                // SAFETY: ends the child at once, without running what the parent registered for its own exit.
                unsafe { libc::_exit(exit::SOFTWARE.into()) }
            }
            // SAFETY: a positive result of fork is a process id.
            pid => Ok(Guest { pid: unsafe { Pid::from_raw_unchecked(pid) }, channel: ours }),
        }
    }

    /// Receives the next device, in the order of the plan's places.
    pub fn device(&self) -> Result<OwnedFd, Failure> {
        match self.channel.receive() {
            Ok(Some(Message::Descriptor(fd))) => Ok(fd),
            Ok(Some(Message::Failed(failure))) => Err(failure),
            _ => Err(Failure::new(exit::SOFTWARE, "the process that was to run the command ended")),
        }
    }

    /// Lets the child continue once every device is served. Returns when the command runs.
    pub fn release(self) -> Result<Pid, Failure> {
        // A dead child shows in the answer.
        let _ = self.channel.send(&Message::Go);
        match self.channel.receive() {
            Ok(Some(Message::Failed(failure))) => Err(failure),
            // Closed by exec - or by the child's death, which waiting for it will tell.
            _ => Ok(self.pid),
        }
    }
}

fn become_command(plan: &Plan<'_>, channel: &Channel, parent: Pid) -> Result<Infallible, Failure> {
    die_with(parent)?;
    isolate()?;
    let mut submounts = Vec::new();
    for place in plan.places {
        let (taken, lost) = Submounts::take(&place.dir).map_err(|e| Failure::io("read the mounts", &e))?;
        hidden(&lost, plan.quiet);
        submounts.push(taken);
        mount_one(place, channel)?;
    }
    match channel.receive() {
        Ok(Some(Message::Go)) => {}
        _ => return Err(Failure::silent(exit::SOFTWARE)),
    }
    submounts.into_iter().for_each(|taken| hidden(&taken.put(), plan.quiet));
    std::env::set_current_dir(plan.cwd).map_err(|e| Failure::io(format_args!("return to {}", plan.cwd.shown()), &e))?;
    rustix::process::set_parent_process_death_signal(None).map_err(|e| Failure::io("start a process", &e.into()))?;
    plan.open_files.restore();
    plan.signals.restore();
    Err(execute(plan.command))
}

fn hidden(lost: &[String], quiet: bool) {
    for mount in lost.iter().filter(|_| !quiet) {
        say!("forebay: a file system mounted inside is hidden from the command: {mount}");
    }
}

fn die_with(parent: Pid) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| Failure::io("start a process", &e.into()))?;
    // It may have died before the request was in force.
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Failure::silent(exit::SOFTWARE)) }
}

/// Enters a mount namespace of our own, as an ordinary user within a user namespace with the same ids.
fn isolate() -> Result<(), Failure> {
    let (uid, gid) = (geteuid(), getegid());
    // SAFETY: the child has one thread; descriptor tables are not unshared.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
        // SAFETY: as above.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWUSER) }.map_err(|e| {
            Failure::new(exit::NO_PERMISSION, format!("cannot make a private namespace: {}", reason(&e.into())))
                .remedy("ask for user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone), or run as root; `forebay doctor` tells more")
        })?;
        let map = |file: &str, line: String| {
            std::fs::write(file, line).map_err(|e| Failure::io(format_args!("write {file}"), &e))
        };
        map("/proc/self/setgroups", "deny".to_string())?;
        map("/proc/self/uid_map", format!("{0} {0} 1", uid.as_raw()))?;
        map("/proc/self/gid_map", format!("{0} {0} 1", gid.as_raw()))?;
    }
    // Ours do not get out; later mounts of the system, such as automounts, still come in.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|e| Failure::io("make the mounts private", &e.into()))
}

fn mount_one(place: &Place, channel: &Channel) -> Result<(), Failure> {
    let device = open_device()?;
    mount_over(place, &device)?;
    // Sent and closed: while this process held it, the death of the agent would not end the connection.
    channel.send(&Message::Descriptor(device)).map_err(|_| Failure::silent(exit::SOFTWARE))
}

pub fn open_device() -> Result<OwnedFd, Failure> {
    mount::device().map_err(|e| {
        let remedy = match e.kind() {
            io::ErrorKind::PermissionDenied => "it should be readable and writable for everybody: chmod 666 /dev/fuse",
            _ => "load the kernel module: modprobe fuse; in a container add --device /dev/fuse",
        };
        let code = if e.kind() == io::ErrorKind::PermissionDenied { exit::NO_PERMISSION } else { exit::UNAVAILABLE };
        Failure::new(code, format!("cannot open /dev/fuse: {}", reason(&e))).remedy(remedy)
    })
}

/// Mounts over the place's directory, with the mount flags of the file system below.
pub fn mount_over(place: &Place, device: &OwnedFd) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::io(format_args!("mount over {}", place.dir.shown()), &e);
    let below = rustix::fs::open(&place.dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let (flags, read_only) =
        below.map_err(Into::into).and_then(|below| mount::flags_of(below.as_fd())).map_err(failed)?;
    let options = mount::MountOptions {
        source: place.burst_buffer.to_string_lossy().into_owned(),
        subtype: "forebay".to_string(),
        allow_other: true,
        default_permissions: true,
        read_only,
        flags,
        max_read: 0,
    };
    mount::mount(&place.dir, device.as_fd(), &options).map_err(failed)
}

/// Executes the command in place of this process. Returns only on failure, with the reason.
fn execute(command: &[OsString]) -> Failure {
    let name = command[0].to_string_lossy().into_owned();
    let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_bytes())).collect();
    let Ok(words) = words else { return Failure::new(exit::USAGE, "the command has a NUL byte in it") };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: the array holds pointers to C strings that live, and ends with a null.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(exit::NOT_FOUND, format!("{name}: command not found")),
        _ => Failure::new(exit::NOT_EXECUTABLE, format!("{name}: {}", reason(&error))),
    }
}
