//! Probe: a tiny file system with one file, mounted in a private namespace, to prove that FUSE and passthrough work
//! here.
//!
//! The backing file contains `kernel`; the file system itself answers `agent`. So the result of a read shows who
//! served it.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuse_protocol::{
    Attr, AttrReply, Entry, Errno, Filesystem, Handle, InitReply, KernelConfig, NodeId, Notifier, OpenReply, Request,
    Session, ThreadCounts, fopen, init_flags, mount,
};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::exit::{self, Failure, out};

const FROM_KERNEL: &[u8] = b"kernel";
const FROM_AGENT: &[u8] = b"agent!";
const FILE: NodeId = 2;

struct OneFile {
    backing: OwnedFd,
    notifier: OnceLock<Notifier>,
    refused: OnceLock<io::Error>,
    minor: OnceLock<u32>,
}

impl OneFile {
    fn attr(node: NodeId) -> Attr {
        let mode = if node == FILE { libc::S_IFREG | 0o644 } else { libc::S_IFDIR | 0o755 };
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Attr { ino: node, size: FROM_AGENT.len() as u64, mode, nlink: 1, uid, gid, blksize: 4096, ..Attr::default() }
    }
}

impl Filesystem for OneFile {
    fn init(&self, kernel: &KernelConfig) -> Result<InitReply, Errno> {
        let _ = self.minor.set(kernel.minor);
        Ok(InitReply { flags: init_flags::PASSTHROUGH, max_stack_depth: 1, ..InitReply::default() })
    }

    fn lookup(&self, _: &Request, _: NodeId, _: &std::ffi::OsStr) -> Result<Entry, Errno> {
        let valid = Duration::from_secs(1);
        Ok(Entry { node: FILE, attr: OneFile::attr(FILE), entry_valid: valid, attr_valid: valid })
    }

    fn getattr(&self, _: &Request, node: NodeId, _: Option<Handle>) -> Result<AttrReply, Errno> {
        Ok(AttrReply { attr: OneFile::attr(node), valid: Duration::from_secs(1) })
    }

    fn open(&self, _: &Request, _: NodeId, _: i32, _: bool) -> Result<OpenReply, Errno> {
        let notifier = self.notifier.get().ok_or(Errno::EIO)?;
        match notifier.backing_open(self.backing.as_fd()) {
            Ok(id) => Ok(OpenReply { handle: 1, flags: 0, backing: Some(id) }),
            Err(error) => {
                let _ = self.refused.set(error);
                Ok(OpenReply { handle: 1, flags: fopen::DIRECT_IO, backing: None })
            }
        }
    }

    fn read(&self, _: &Request, _: NodeId, _: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let rest = FROM_AGENT.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// Runs the probe `name` (`fuse`), with the backing file in `FOREBAY_PROBE_DIR`. Prints `KEY VALUE` lines.
pub fn run(name: &str) -> Result<u8, Failure> {
    if name != "fuse" {
        return Err(Failure::new(exit::USAGE, format!("there is no probe `{name}`")));
    }
    let dir = std::env::var_os("FOREBAY_PROBE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    isolate().map_err(|e| Failure::io("make a private namespace", &e))?;
    out!("namespace yes");
    let backing = backing(&dir).map_err(|e| Failure::io("make a file to serve", &e))?;
    let device = crate::guest::open_device()?;
    let options = mount::MountOptions {
        source: "forebay-probe".to_string(),
        subtype: "forebay-probe".to_string(),
        allow_other: false,
        default_permissions: true,
        read_only: false,
        flags: MountFlags::NOSUID | MountFlags::NODEV,
        max_read: 0,
    };
    let point = private_point().map_err(|e| Failure::io("mount a tmpfs", &e))?;
    mount::mount(&point, device.as_fd(), &options).map_err(|e| Failure::io("mount", &e))?;
    out!("mount yes");
    serve(backing, device, &point)
}

fn serve(backing: OwnedFd, device: OwnedFd, point: &Path) -> Result<u8, Failure> {
    let fs = OneFile { backing, notifier: OnceLock::new(), refused: OnceLock::new(), minor: OnceLock::new() };
    let fs = Arc::new(fs);
    let session = Arc::new(Session::new(Arc::clone(&fs), device, ThreadCounts::default()));
    let _ = fs.notifier.set(session.notifier());
    let serving = Arc::clone(&session);
    let thread = std::thread::spawn(move || serving.run());
    let read = fs::read(point.join("file"));
    if let Some(minor) = fs.minor.get() {
        out!("protocol 7.{minor}");
    }
    match read {
        Ok(bytes) if bytes == FROM_KERNEL => out!("passthrough yes"),
        Ok(_) => {
            let why = fs.refused.get().map_or_else(|| "the kernel did not use it".to_string(), exit::reason);
            out!("passthrough {why}");
        }
        Err(error) => out!("read {}", exit::reason(&error)),
    }
    let _ = mount::unmount(point, true);
    let _ = thread.join();
    Ok(0)
}

/// Enters a mount namespace of its own, in a user namespace if necessary.
fn isolate() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: this process has one thread; descriptor tables are not unshared.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
        // SAFETY: as above.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWUSER) }?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Creates a directory on a tmpfs that only this namespace sees.
fn private_point() -> io::Result<PathBuf> {
    let base = std::env::temp_dir();
    rustix::mount::mount("none", &base, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
    let point = base.join("forebay-probe");
    fs::create_dir(&point)?;
    Ok(point)
}

/// Creates a nameless file in `dir` that contains `kernel`. Returns an `O_PATH` descriptor.
fn backing(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(FROM_KERNEL)?;
    Ok(file.into())
}
