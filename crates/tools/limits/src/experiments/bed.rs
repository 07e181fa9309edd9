//! A bed: a store and a burst buffer, each a slowfs over memory, and Forebay between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::getxattr;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use slowfs::model::Use;

use super::{beside, warn};
use crate::bounds::PATIENCE;
use crate::failure::Failure;

/// Memory that one side of a bed may take: a tmpfs of that size.
const ROOM: &str = "size=2G";
/// Between two looks whether something is mounted.
const POLL: Duration = Duration::from_millis(5);

/// A directory that holds the mounts of one experiment; all of it goes when it is dropped.
pub struct Bed {
    directory: PathBuf,
    mounted: Vec<PathBuf>,
    servers: Vec<Child>,
}

/// A slowfs: where it shows its files, and where they are.
#[derive(Debug, Clone)]
pub struct Slow {
    pub shown: PathBuf,
    pub lower: PathBuf,
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::unavailable(format!("{what}: {error}"))
}

impl Bed {
    pub fn new() -> Result<Bed, Failure> {
        let directory = std::env::temp_dir().join(format!("forebay-bed-{}", std::process::id()));
        for number in 0..1000 {
            let directory = directory.with_extension(number.to_string());
            match fs::create_dir(&directory) {
                Ok(()) => return Ok(Bed { directory, mounted: Vec::new(), servers: Vec::new() }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("cannot make a directory for the bed", error)),
            }
        }
        Err(Failure::unavailable(format!("{} exists a thousand times", directory.display())))
    }

    /// Starts a slowfs over memory.
    pub fn slow(&mut self, name: &str, options: &[String]) -> Result<Slow, Failure> {
        let slow = Slow { shown: self.directory.join(name), lower: self.directory.join(format!("{name}.lower")) };
        for directory in [&slow.shown, &slow.lower] {
            fs::create_dir(directory).map_err(|error| failed("the bed", error))?;
        }
        let room = std::ffi::CString::new(ROOM).unwrap_or_default();
        mount("forebay-bed", &slow.lower, "tmpfs", MountFlags::empty(), Some(room.as_c_str()))
            .map_err(|error| failed("mounting a tmpfs", error))?;
        self.mounted.push(slow.lower.clone());
        let mut command = Command::new(beside("slowfs")?);
        command.arg(&slow.lower).arg(&slow.shown).args(options).arg("--foreground").stdin(Stdio::null());
        self.servers.push(command.spawn().map_err(|error| failed("starting slowfs", error))?);
        let deadline = Instant::now() + PATIENCE;
        while uses(&slow.shown).is_none() {
            let ended = self.servers.last_mut().and_then(|server| server.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(Failure::input(format!("slowfs does not take {options:?} ({status})")));
            }
            if Instant::now() > deadline {
                return Err(Failure::unavailable("slowfs did not mount in time"));
            }
            thread::sleep(POLL);
        }
        self.mounted.push(slow.shown.clone());
        Ok(slow)
    }

    /// Accelerates a directory of the store; staged out only when told to.
    pub fn accelerate(&self, directory: &Path, buffer: &Path) -> Result<(), Failure> {
        let words = ["mount", "--policy", "stage_out=manual", "--burst-buffer"].map(std::ffi::OsStr::new);
        forebay(words.iter().copied().chain([buffer.as_os_str(), directory.as_os_str()]))
    }

    /// Stages out everything, and ends the acceleration.
    pub fn drain(&self, directory: &Path) -> Result<(), Failure> {
        forebay(["drain".as_ref(), "--wait".as_ref(), directory.as_os_str()])?;
        forebay(["umount".as_ref(), directory.as_os_str()])
    }
}

fn forebay<'a>(words: impl IntoIterator<Item = &'a std::ffi::OsStr>) -> Result<(), Failure> {
    let mut command = Command::new(beside("forebay")?);
    let output = command.args(words).stdin(Stdio::null()).output().map_err(|error| failed("forebay", error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::unavailable(format!("forebay: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

impl Drop for Bed {
    fn drop(&mut self) {
        for path in self.mounted.iter().rev() {
            // Whatever uses it still: it is this namespace's alone, and ends with it.
            if let Err(error) = unmount(path, UnmountFlags::DETACH) {
                warn(&format!("unmount {}: {error}", path.display()));
            }
        }
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What the parts of a slowfs have done; none if that is no slowfs.
pub fn uses(shown: &Path) -> Option<Vec<Use>> {
    let mut text = vec![0; 1 << 16];
    let length = getxattr(shown, "user.slowfs.statistics", &mut text[..]).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).lines().filter_map(Use::parse).collect())
}
