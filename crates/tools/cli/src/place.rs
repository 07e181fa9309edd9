//! Which burst buffer serves which directory, and what can be wrong with the pair.
//!
//! One directory uses the burst buffer's directory itself. With several (`--dir` more than once) each uses the
//! subdirectory `NAME-HASH`: the directory's last component and a hash of its path, so that the order of the options
//! does not matter. Once a burst buffer has such subdirectories, single directories get theirs too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::exit::{self, Failure, reason};
use crate::guest::Place;
use crate::limits::DIRS_MAX;
use crate::mounts;

/// Name of the file that shows that a directory is a burst buffer of ours.
pub const MARKER: &str = "superblock";

const ELSEWHERE: &str = "name a directory elsewhere, on a fast local device";

/// Checks the directories and the burst buffer, and pairs them.
pub fn places(dirs: &[PathBuf], burst_buffer: &Path) -> Result<Vec<Place>, Failure> {
    if dirs.len() > DIRS_MAX {
        return Err(Failure::new(exit::USAGE, format!("{} directories are too many: {DIRS_MAX} at most", dirs.len())));
    }
    let seen = mounts::all().map_err(|e| Failure::io("read the mounts", &e))?;
    let buffer = canonical_burst_buffer(burst_buffer)?;
    if let Some(mount) = mounts::ours_over(&seen, &buffer) {
        let message = format!(
            "the burst buffer {} lies in {}, which is accelerated itself",
            buffer.display(),
            mount.point.display()
        );
        return Err(Failure::new(exit::USAGE, message).remedy(ELSEWHERE));
    }
    let mut canonical: Vec<PathBuf> = Vec::new();
    for dir in dirs {
        let dir = canonical_dir(dir, &seen)?;
        check_pair(&dir, &buffer)?;
        if let Some(other) = canonical.iter().find(|other| other.starts_with(&dir) || dir.starts_with(other)) {
            let message = format!("{} and {} overlap", dir.display(), other.display());
            return Err(Failure::new(exit::USAGE, message).remedy("name only the upper one"));
        }
        canonical.push(dir);
    }
    let split = split(&buffer, canonical.len())?;
    let place = |dir: PathBuf| {
        let own = if split { buffer.join(subdirectory(&dir)) } else { buffer.clone() };
        if split {
            make(&own)?;
        }
        Ok(Place { dir, burst_buffer: own })
    };
    canonical.into_iter().map(place).collect()
}

/// The burst buffers in a directory: itself, its subdirectories, or none.
pub fn formatted(buffer: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    if buffer.join(MARKER).exists() {
        found.push(buffer.to_path_buf());
    }
    let entries = fs::read_dir(buffer).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.join(MARKER).exists()).collect();
    below.sort();
    found.extend(below);
    found
}

/// Whether each directory gets a subdirectory.
fn split(buffer: &Path, dirs: usize) -> Result<bool, Failure> {
    let found = formatted(buffer);
    let whole = found.iter().any(|path| path == buffer);
    if dirs > 1 && whole {
        let message = format!("the burst buffer {} already serves one directory as a whole", buffer.display());
        return Err(Failure::new(exit::UNAVAILABLE, message)
            .remedy("name another directory of the same device as burst buffer for several --dir"));
    }
    Ok(dirs > 1 || (!found.is_empty() && !whole))
}

/// `NAME-HASH` of a directory.
fn subdirectory(dir: &Path) -> String {
    // FNV-1a: stable for ever, unlike the standard library's hasher.
    let bytes = dir.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{name}-{hash:016x}")
}

fn make(dir: &Path) -> Result<(), Failure> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failure::new(exit::CANT_CREATE, format!("cannot create {}: {}", dir.display(), reason(&e))))
        }
        _ => Ok(()),
    }
}

/// The burst buffer: must exist, since a missing one is more often a device that is not mounted than a wish for a new
/// directory on the system disk.
fn canonical_burst_buffer(path: &Path) -> Result<PathBuf, Failure> {
    let wrong = |e: &io::Error| Failure::io(format_args!("use the burst buffer {}", path.display()), e);
    let canonical = fs::canonicalize(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Failure::new(exit::NO_INPUT, format!("there is no burst buffer {}", path.display()))
            .remedy(format!("mount its device, or make the directory: mkdir -p {}", path.display())),
        _ => wrong(&e),
    })?;
    if !canonical.is_dir() {
        return Err(Failure::new(exit::NO_INPUT, format!("the burst buffer {} is no directory", path.display())));
    }
    // Not access(2): it knows nothing of what makes a file system refuse root.
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(&canonical, flags, rustix::fs::Mode::RUSR) {
        Ok(_) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOSPC) => {
            Ok(canonical)
        }
        Err(error) => {
            let error = io::Error::from(error);
            let message = format!("cannot write in the burst buffer {}: {}", path.display(), reason(&error));
            let code =
                if error.kind() == io::ErrorKind::PermissionDenied { exit::NO_PERMISSION } else { exit::CANT_CREATE };
            Err(Failure::new(code, message).remedy("name a directory that you can write in, on a fast local device"))
        }
    }
}

fn canonical_dir(dir: &Path, seen: &[mounts::Mount]) -> Result<PathBuf, Failure> {
    let lexical = std::path::absolute(dir).map_err(|e| Failure::io("find the working directory", &e))?;
    ours(&lexical, seen)?;
    let canonical = fs::canonicalize(dir).map_err(|e| Failure::io(format_args!("use {}", dir.display()), &e))?;
    ours(&canonical, seen)?;
    if !canonical.is_dir() {
        return Err(Failure::new(exit::NO_INPUT, format!("{} is no directory", dir.display())));
    }
    if canonical == Path::new("/") {
        return Err(Failure::new(exit::USAGE, "/ cannot be accelerated").remedy("name the directory with the data"));
    }
    Ok(canonical)
}

fn ours(dir: &Path, seen: &[mounts::Mount]) -> Result<(), Failure> {
    let Some(mount) = mounts::ours_over(seen, dir) else { return Ok(()) };
    let message = if mount.point == dir {
        format!("{} is already accelerated, with the burst buffer {}", dir.display(), mount.source.display())
    } else {
        format!("{} lies in {}, which is already accelerated", dir.display(), mount.point.display())
    };
    let remedy = format!("run the command as it is, or end that mount first: forebay umount {}", mount.point.display());
    Err(Failure::new(exit::UNAVAILABLE, message).remedy(remedy))
}

fn check_pair(dir: &Path, buffer: &Path) -> Result<(), Failure> {
    let message = if dir == buffer {
        format!("{} cannot be its own burst buffer", dir.display())
    } else if buffer.starts_with(dir) {
        format!("the burst buffer {} lies inside {}, which is to be accelerated", buffer.display(), dir.display())
    } else if dir.starts_with(buffer) {
        format!("{} lies inside its burst buffer {}", dir.display(), buffer.display())
    } else {
        return Ok(());
    };
    Err(Failure::new(exit::USAGE, message).remedy(ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> (tempfile::TempDir, PathBuf, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let [a, b, buffer] = ["a", "b", "bb"].map(|name| base.join(name));
        [&a, &b, &buffer].iter().for_each(|dir| fs::create_dir(dir).unwrap());
        (root, a, b, buffer)
    }

    #[test]
    fn one_directory_uses_the_burst_buffer_itself_and_several_a_subdirectory_each() {
        let (_root, a, b, buffer) = dirs();
        let one = places(std::slice::from_ref(&a), &buffer).unwrap();
        assert_eq!(one[0].burst_buffer, buffer);
        let two = places(&[a.clone(), b.clone()], &buffer).unwrap();
        let swapped = places(&[b, a.clone()], &buffer).unwrap();
        assert_eq!(two[0].burst_buffer, swapped[1].burst_buffer);
        assert_ne!(two[0].burst_buffer, two[1].burst_buffer);
        fs::write(two[1].burst_buffer.join(MARKER), "").unwrap();
        let again = places(&[a], &buffer).unwrap();
        assert_eq!(again[0].burst_buffer, two[0].burst_buffer, "its data may be there");
    }

    #[test]
    fn a_burst_buffer_that_serves_one_directory_is_not_split() {
        let (_root, a, b, buffer) = dirs();
        fs::write(buffer.join(MARKER), "").unwrap();
        assert_eq!(places(&[a.clone(), b], &buffer).unwrap_err().code, exit::UNAVAILABLE);
        assert_eq!(formatted(&buffer), std::slice::from_ref(&buffer));
        assert!(places(&[a], &buffer).is_ok());
    }

    #[test]
    fn pairs_that_contain_each_other_are_refused() {
        let (root, a, _, buffer) = dirs();
        let inner = a.join("inner");
        fs::create_dir(&inner).unwrap();
        let code = |dir: &Path, buffer: &Path| places(&[dir.to_path_buf()], buffer).unwrap_err().code;
        assert_eq!(code(&a, &a), exit::USAGE);
        assert_eq!(code(&a, &inner), exit::USAGE);
        assert_eq!(code(&inner, &a), exit::USAGE);
        assert_eq!(code(Path::new("/"), &buffer), exit::USAGE);
        assert_eq!(places(&[a.clone(), inner], &buffer).unwrap_err().code, exit::USAGE);
        assert_eq!(code(&root.path().join("none"), &buffer), exit::NO_INPUT);
        assert_eq!(code(&a, &root.path().join("none")), exit::NO_INPUT);
    }
}
