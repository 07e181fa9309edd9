//! Mounting, serving, and the way out: unmounted by somebody, or a signal that makes us unmount.

use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use fuse_protocol::{Session, SessionEnd, ThreadCounts, mount};

use crate::command::Command;
use crate::limits::{READERS, TABLE_SLOTS, THREADS};
use crate::lower;
use crate::shape::Shape;
use crate::slow_fs::SlowFs;

/// Set for the process in the background: says so, and lets go of the terminal once mounted.
const BACKGROUND: &str = "SLOWFS_BACKGROUND";
const MOUNTED: &str = "mounted";

/// Starts a process in the background and returns once it has mounted, or failed to.
pub fn start(command: &Command) -> io::Result<()> {
    let myself = std::env::current_exe()?;
    let mut background = std::process::Command::new(myself);
    background.arg("--foreground").args(std::env::args_os().skip(1)).env(BACKGROUND, "1");
    // Its own group: an interrupt at the terminal is not meant for it.
    background.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut background = background.spawn()?;
    let mut line = String::new();
    if let Some(output) = background.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim_end() == MOUNTED {
        return Ok(());
    }
    let status = background.wait()?;
    // It has said why on the error output that we share.
    Err(io::Error::other(format!("cannot show {} ({status})", command.lower.display())))
}

/// Mounts and serves until unmounted.
pub fn serve(command: &Command) -> io::Result<()> {
    // Modes arrive with the caller's mask applied.
    rustix::process::umask(rustix::fs::Mode::empty());
    raise_open_files()?;
    let step = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| io::Error::other(format!("{what} {}: {error}", path.display()))
    };
    command.check().map_err(io::Error::other)?;
    let mountpoint = command.mountpoint.canonicalize().map_err(step("find", &command.mountpoint))?;
    let root = lower::root(&command.lower).map_err(step("open", &command.lower))?;
    let options = options(command, root.as_fd()).map_err(step("look at", &command.lower))?;
    let fs = SlowFs::new(root, Shape::new(command.spec(), &command.fault, command.client), command.trust)
        .map_err(|errno| step("look at", &command.lower)(io::Error::from_raw_os_error(errno.0)))?;
    let device = mount::device().map_err(step("open", Path::new("/dev/fuse")))?;
    // Before any thread starts, so that all of them inherit the mask.
    let signals = block_signals()?;
    mount::mount(&mountpoint, device.as_fd(), &options).map_err(step("mount", &mountpoint))?;
    let session = Session::new(Arc::new(fs), device, ThreadCounts { readers: READERS, max: THREADS, wait: true });
    unmount_on_signal(signals, mountpoint.clone())?;
    if std::env::var_os(BACKGROUND).is_some() {
        say_mounted_and_let_go()?;
    }
    match session.run()? {
        SessionEnd::Unmounted => Ok(()),
        SessionEnd::Aborted => {
            // Somebody may have done that already.
            let _ = mount::unmount(&mountpoint, true);
            Err(io::Error::other("the connection was aborted"))
        }
    }
}

fn options(command: &Command, root: std::os::fd::BorrowedFd<'_>) -> io::Result<mount::MountOptions> {
    Ok(mount::MountOptions {
        source: command.lower.display().to_string(),
        subtype: if command.shared { "slowfs-shared" } else { "slowfs" }.into(),
        allow_other: rustix::process::geteuid().is_root(),
        default_permissions: true,
        read_only: rustix::fs::fstatvfs(root)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
        flags: mount::flags_of(root)?.0,
        max_read: 0,
    })
}

/// Each file that the kernel knows costs a descriptor: take as many as are allowed.
fn raise_open_files() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    // Before there are threads: with them each growth of the table takes some 10 ms, which would be no property of the store.
    let any = std::fs::File::open("/dev/null")?;
    let last = limit.current.map_or(TABLE_SLOTS, |most| most.min(TABLE_SLOTS)).saturating_sub(1);
    let _ = rustix::io::fcntl_dupfd_cloexec(&any, last as i32);
    Ok(())
}

fn say_mounted_and_let_go() -> io::Result<()> {
    println!("{MOUNTED}");
    let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    std::env::set_current_dir("/")
}

/// Blocks the signals that end a process, for [`unmount_on_signal`] to take.
fn block_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: an all-zero `sigset_t` is a value, and `sigemptyset` makes it the empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is ours for the length of the calls, which only fill and read it.
    let error = unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
    };
    if error == 0 { Ok(set) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// A thread that waits for a signal and then unmounts, lazily if the mount is in use.
fn unmount_on_signal(signals: libc::sigset_t, mountpoint: PathBuf) -> io::Result<()> {
    let wait = move || {
        loop {
            let mut signal = 0;
            // SAFETY: both pointers are to locals that outlive the call.
            if unsafe { libc::sigwait(&signals, &mut signal) } != 0 {
                return;
            }
            if mount::unmount(&mountpoint, false).is_err()
                && let Err(error) = mount::unmount(&mountpoint, true)
            {
                eprintln!("slowfs: unmount {}: {error}", mountpoint.display());
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
