//! Mounting, serving, and unmounting: by another process or after a signal.

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

/// Environment variable set for the process in the background, which prints a line and leaves the terminal once
/// mounted.
const BACKGROUND: &str = "SLOWFS_BACKGROUND";
const MOUNTED: &str = "mounted";

/// Starts a process in the background, and returns once it has mounted or failed.
pub fn start(command: &Command) -> io::Result<()> {
    let myself = std::env::current_exe()?;
    let mut background = std::process::Command::new(myself);
    background.arg("--foreground").args(std::env::args_os().skip(1)).env(BACKGROUND, "1");
    // The process gets its own group, so that Ctrl-C at the terminal does not reach it.
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
    // The process has printed the reason on the shared standard error.
    Err(io::Error::other(format!("cannot show {} ({status})", command.lower.display())))
}

pub fn serve(command: &Command) -> io::Result<()> {
    // Modes arrive with the caller's umask already applied.
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
    // Before any thread starts, so that all of them inherit the signal mask.
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
            // The mount may already be gone.
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

/// Raises the descriptor limit to the maximum, because each file that the kernel has looked up needs one.
fn raise_open_files() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    // Before threads start: with threads each growth of the table takes about 10 ms, which is not a property of the
    // store.
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

/// Blocks SIGTERM and SIGINT, for [`unmount_on_signal`] to wait for.
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

/// Starts a thread that waits for a signal and then unmounts, lazily if the mount is in use.
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
                eprintln!("slowfs: could not unmount {}: {error}; it stays mounted", mountpoint.display());
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
