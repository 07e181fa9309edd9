//! Cost of one request through FUSE, with a file system that does nothing.
//!
//! The mount lives in a process with a private mount namespace (`unshare`, util-linux). However that process ends,
//! nothing stays mounted, and no other process ever sees the mount.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuse_protocol::{
    Attr, AttrReply, Entry, Errno, Filesystem, Handle, InitReply, KernelConfig, NodeId, OpenReply, Request, Session,
    ThreadCounts, fopen, mount,
};
use rustix::mount::MountFlags;

use super::{Component, Measurement, Unit, printed};
use crate::failure::Failure;
use crate::workload::{Histogram, Launcher};

const ROOT: NodeId = 1;
const FILE: NodeId = 2;
const NAME: &str = "file";
/// Size of the file, which contains zeros: that of the largest read.
const SIZE: usize = 1 << 20;
/// Modes: `S_IFDIR` and `S_IFREG`, with permissions for all.
const DIRECTORY_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_644;

/// File system with one file of zeros, which is never cached.
struct Nothing;

fn attributes(node: NodeId) -> Attr {
    let (mode, nlink, size) = if node == ROOT { (DIRECTORY_MODE, 2, 0) } else { (FILE_MODE, 1, SIZE as u64) };
    Attr { ino: node, size, blocks: size / 512, mode, nlink, blksize: 4096, ..Attr::default() }
}

impl Filesystem for Nothing {
    fn init(&self, _: &KernelConfig) -> Result<InitReply, Errno> {
        Ok(InitReply { max_write: SIZE as u32, ..InitReply::default() })
    }

    fn lookup(&self, _: &Request, _: NodeId, name: &OsStr) -> Result<Entry, Errno> {
        if name != NAME {
            return Err(Errno::ENOENT);
        }
        let (entry_valid, attr_valid) = (Duration::from_secs(3600), Duration::ZERO);
        Ok(Entry { node: FILE, attr: attributes(FILE), entry_valid, attr_valid })
    }

    fn getattr(&self, _: &Request, node: NodeId, _: Option<Handle>) -> Result<AttrReply, Errno> {
        Ok(AttrReply { attr: attributes(node), valid: Duration::ZERO })
    }

    fn open(&self, _: &Request, _: NodeId, _: i32, _: bool) -> Result<OpenReply, Errno> {
        Ok(OpenReply { flags: fopen::DIRECT_IO, ..OpenReply::default() })
    }

    fn read(&self, _: &Request, _: NodeId, _: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let length = buffer.len().min((SIZE as u64).saturating_sub(offset) as usize);
        buffer[..length].fill(0);
        Ok(length)
    }
}

/// Measures in a child process. Errors: the reason why that is impossible here.
pub fn measure(launcher: &Launcher, time: Duration) -> Result<Vec<Measurement>, String> {
    if !Path::new("/dev/fuse").exists() {
        return Err("there is no /dev/fuse".to_string());
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(launcher.program()).args(launcher.words());
    command.arg("--crossing").arg(time.as_nanos().to_string()).stdin(Stdio::null());
    printed(&command.output().map_err(|error| format!("unshare: {error}"))?)
}

/// Runs the child process: mounts, measures, unmounts. The process must be alone in its mount namespace.
pub fn serve(time: Duration) -> Result<Vec<Measurement>, Failure> {
    let failed = |step: &str, error: io::Error| Failure::unavailable(format!("{step}: {error}"));
    let own = std::env::temp_dir().join(format!("forebay-limits-crossing.{}", std::process::id()));
    fs::create_dir(&own).map_err(|error| failed("cannot make a directory", error))?;
    let outcome = crossed(&own, time);
    let _ = mount::unmount(&own, true);
    let _ = fs::remove_dir(&own);
    outcome.map_err(|error| failed("a FUSE mount", error))
}

fn crossed(directory: &Path, time: Duration) -> io::Result<Vec<Measurement>> {
    let device = mount::device()?;
    let options = mount::MountOptions {
        source: "forebay-limits".to_string(),
        subtype: "forebay-limits".to_string(),
        allow_other: false,
        default_permissions: false,
        read_only: false,
        flags: MountFlags::empty(),
        max_read: 0,
    };
    mount::mount(directory, device.as_fd(), &options)?;
    let session = Session::new(Arc::new(Nothing), device, ThreadCounts::default());
    let serving = thread::spawn(move || session.run());
    let outcome = requests(directory, time);
    mount::unmount(directory, true)?;
    let _ = serving.join();
    outcome
}

fn requests(directory: &Path, time: Duration) -> io::Result<Vec<Measurement>> {
    let file = File::open(directory.join(NAME))?;
    let mut room = vec![0u8; SIZE];
    let mut found = vec![median("FUSE request, attributes", time, || file.metadata().map(|_| ()))?];
    for (size, name) in [(4096, "FUSE request, read 4 KiB"), (SIZE, "FUSE request, read 1 MiB")] {
        found.push(median(name, time, || file.read_exact_at(&mut room[..size], 0))?);
    }
    Ok(found)
}

fn median(what: &str, time: Duration, request: impl FnMut() -> io::Result<()>) -> io::Result<Measurement> {
    Ok(Measurement::new(Component::Crossing, what, Histogram::median_of(time, request)?, Unit::Nanoseconds))
}
