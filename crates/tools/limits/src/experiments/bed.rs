//! A test bed: a store and a burst buffer, each a slowfs over memory, and Forebay between them; or only memory and
//! networks.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, fstat, getxattr, stat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use slowfs::model::Use;

use super::place::{Place, wait};
use super::{beside, warn};
use crate::bounds::PATIENCE;
use crate::failure::{Failure, failed};

/// Size of the tmpfs of one side of a bed. The largest experiment writes 4 GiB.
const ROOM: &str = "size=5G";
/// MiB of memory touched in advance: about the size of a bed's files and windows at one time.
const TOUCHED_MIB: u64 = 1536;
/// Pause between two checks whether a file system is mounted.
const POLL: Duration = Duration::from_millis(5);

/// Prefix of a bed's directory in the directory for temporary files.
const NAME: &str = "forebay-bed-";

/// A directory with the mounts of one experiment. Everything is removed when the bed is dropped, or by the next bed if
/// the process was killed.
pub struct Bed {
    directory: PathBuf,
    /// Descriptor of the directory, locked while the bed is used.
    _lock: fs::File,
    mounted: Vec<PathBuf>,
    servers: Vec<Child>,
}

/// A mounted slowfs: the mount point and the lower directory.
#[derive(Debug, Clone)]
pub struct Slow {
    pub shown: PathBuf,
    pub lower: PathBuf,
}

impl Bed {
    pub fn new() -> Result<Bed, Failure> {
        let all = std::env::temp_dir();
        remove_abandoned(&all);
        let name = format!("{NAME}{}", std::process::id());
        for number in 0..1000 {
            let directory = all.join(&name).with_extension(number.to_string());
            match fs::create_dir(&directory) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed("cannot make a directory for the bed", error)),
            }
            // Another bed that starts now may have taken the directory for abandoned.
            if let Some(lock) = locked(&directory) {
                return Ok(Bed { directory, _lock: lock, mounted: Vec::new(), servers: Vec::new() });
            }
        }
        Err(Failure::unavailable(format!("{} exists a thousand times", all.join(name).display())))
    }

    pub fn memory(&mut self, name: &str) -> Result<PathBuf, Failure> {
        self.tmpfs(name, ROOM)
    }

    /// Mounts a tmpfs of huge pages, if the kernel supports that, from memory that has been touched before.
    ///
    /// A virtual machine gets memory from its host at the first touch, ten times slower than a later write. That time
    /// is not to be measured.
    pub fn huge_memory(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.tmpfs(name, &format!("{ROOM},huge=always")).or_else(|_| self.tmpfs(name, ROOM))?;
        touch(&path.join("touched"))
            .map_err(|error| failed(format_args!("cannot write to {}", path.display()), error))?;
        Ok(path)
    }

    fn tmpfs(&mut self, name: &str, options: &str) -> Result<PathBuf, Failure> {
        let path = self.directory.join(name);
        fs::create_dir_all(&path).map_err(|error| failed(format_args!("cannot create {}", path.display()), error))?;
        let options = std::ffi::CString::new(options).unwrap_or_default();
        mount("forebay-bed", &path, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))
            .map_err(|error| failed("mounting a tmpfs", error))?;
        self.mounted.push(path.clone());
        Ok(path)
    }

    /// Creates a network namespace, kept alive by a file.
    pub fn network(&mut self, path: &Path) -> Result<Place, Failure> {
        fs::write(path, "").map_err(|error| failed(format_args!("cannot create {}", path.display()), error))?;
        let made = Command::new("unshare").arg(format!("--net={}", path.display())).arg("true").status();
        let made = made.map_err(|error| failed("unshare (util-linux)", error))?;
        if !made.success() {
            return Err(failed("unshare could not create a network namespace", made));
        }
        self.mounted.push(path.to_path_buf());
        Ok(Place::Switch(path.to_path_buf()))
    }

    /// Starts a process that ends with the bed, and returns the process id.
    pub fn start(&mut self, command: &mut Command) -> Result<u32, Failure> {
        let child = command
            .spawn()
            .map_err(|error| failed(format_args!("cannot start {}", command.get_program().display()), error))?;
        let number = child.id();
        self.servers.push(child);
        Ok(number)
    }

    pub fn slow(&mut self, name: &str, options: &[String]) -> Result<Slow, Failure> {
        let slow = Slow { shown: self.directory.join(name), lower: self.memory(&format!("{name}.lower"))? };
        fs::create_dir(&slow.shown)
            .map_err(|error| failed(format_args!("cannot create {}", slow.shown.display()), error))?;
        let mut command = Command::new(beside("slowfs")?);
        command.arg(&slow.lower).arg(&slow.shown).args(options).arg("--foreground").stdin(Stdio::null());
        self.servers.push(command.spawn().map_err(|error| failed("starting slowfs", error))?);
        let deadline = Instant::now() + PATIENCE;
        while uses(&slow.shown).is_none() {
            let ended = self.servers.last_mut().and_then(|server| server.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(Failure::input(format!(
                    "slowfs ended before it had mounted ({status}); its options were {options:?}"
                )));
            }
            if Instant::now() > deadline {
                return Err(Failure::unavailable(format!(
                    "slowfs did not mount {} within {} s",
                    slow.shown.display(),
                    PATIENCE.as_secs()
                )));
            }
            thread::sleep(POLL);
        }
        self.mounted.push(slow.shown.clone());
        Ok(slow)
    }

    /// Starts `forebay serve` in a place, without a secret and without staging out by itself. What it says is in `log`.
    pub fn serve(&mut self, place: &Place, [store, buffer, log]: [&Path; 3], listen: &str) -> Result<(), Failure> {
        let file = fs::File::create(log).map_err(|error| failed("a server's log", error))?;
        let also = file.try_clone().map_err(|error| failed("a server's log", error))?;
        let mut server = place.command(beside("forebay")?);
        server.arg("serve").arg(store).arg("--burst-buffer").arg(buffer);
        server.args(["--anonymous", "--policy", "stage_out=manual", "--listen", listen]);
        self.start(server.stdout(file).stderr(also)).map(drop)
    }

    /// Mounts Forebay over a directory of the store. Data is staged out only on command.
    pub fn accelerate(&self, directory: &Path, buffer: &Path) -> Result<(), Failure> {
        let words = ["mount", "--policy", "stage_out=manual", "--burst-buffer"].map(std::ffi::OsStr::new);
        forebay(words.iter().copied().chain([buffer.as_os_str(), directory.as_os_str()]))
    }

    /// Stages out everything, then unmounts Forebay.
    pub fn drain(&self, directory: &Path) -> Result<(), Failure> {
        forebay(["drain".as_ref(), "--wait".as_ref(), directory.as_os_str()])?;
        forebay(["umount".as_ref(), directory.as_os_str()])
    }
}

pub fn wait_for_server(name: &str, log: &Path) -> Result<(), Failure> {
    let said = || fs::read_to_string(log).unwrap_or_default();
    wait(&format!("{name} does not serve"), said, || said().contains("serving"))
}

/// Writes and removes a file, so that the next allocations get memory that was touched before.
fn touch(path: &Path) -> std::io::Result<()> {
    let (mut file, zeroes) = (fs::File::create(path)?, vec![0; 1 << 20]);
    for _ in 0..TOUCHED_MIB {
        file.write_all(&zeroes)?;
    }
    fs::remove_file(path)
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
            // Even if still in use: the mount belongs to this namespace alone and ends with it.
            if let Err(error) = unmount(path, UnmountFlags::DETACH) {
                warn(&format!("unmount {}: {error}", path.display()));
            }
        }
        // Kill all of them before waiting for any, because one may wait for another.
        for server in &mut self.servers {
            let _ = server.kill();
        }
        for server in &mut self.servers {
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Locks a bed's directory. Returns `None` if the lock is taken or the directory is gone.
fn locked(directory: &Path) -> Option<fs::File> {
    let file = fs::File::open(directory).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (held, named) = (fstat(&file).ok()?, stat(directory).ok()?);
    ((held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)).then_some(file)
}

/// Removes the directories of beds whose process has ended. Their mounts ended with its namespace, so only empty
/// directories are left; anything else stays.
fn remove_abandoned(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let is_bed = entry.file_name().as_encoded_bytes().starts_with(NAME.as_bytes());
        if !is_bed || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let directory = entry.path();
        let Some(_lock) = locked(&directory) else { continue };
        for inside in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(inside.path());
        }
        let _ = fs::remove_dir(&directory);
    }
}

/// Returns the statistics of a slowfs mount; `None` if the directory is not one.
pub fn uses(shown: &Path) -> Option<Vec<Use>> {
    let mut text = vec![0; 1 << 16];
    let length = getxattr(shown, "user.slowfs.statistics", &mut text[..]).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).lines().filter_map(Use::parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_experiment_left_goes_with_the_next_and_what_is_used_or_holds_files_stays() {
        let all = tempfile::tempdir().unwrap();
        let bed = |name: &str| {
            let path = all.path().join(format!("{NAME}{name}"));
            fs::create_dir_all(path.join("store.lower")).unwrap();
            path
        };
        let (left, used, full) = (bed("1.0"), bed("1.1"), bed("7.0"));
        let other = all.path().join("forebay-other");
        fs::create_dir(&other).unwrap();
        let lock = locked(&used).unwrap();
        fs::write(full.join("store.lower/file"), "x").unwrap();
        remove_abandoned(all.path());
        assert!(!left.exists() && used.join("store.lower").exists() && full.join("store.lower/file").exists());
        assert!(other.exists());
        drop(lock);
        remove_abandoned(all.path());
        assert!(!used.exists());
    }
}
