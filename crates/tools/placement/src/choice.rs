//! Places: which burst buffer serves which directory, and checks of the pair.
//!
//! The first directory that uses a burst buffer uses its directory itself. Others, and all of a `run` with several,
//! have a subdirectory `NAME-HASH` each: the directory's last component and a hash of its identity and path. A
//! directory finds its data again by the identity in the superblocks, even after its path has changed.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use file_cache::store_of;
use global_store::posix::PosixStore;
use rustix::fs::{Mode, OFlags};
use types::{Shown, word};

use crate::dead;
use crate::failure::{self, Failure, reason};
use crate::limits::DIRS_MAX;
use crate::mounts::{self, Mount};
use crate::neighbours;
use crate::place::{Place, formatted, subdirectory};
use crate::replaced;
use crate::served;

const ELSEWHERE: &str = "name a directory elsewhere, on a fast local device";

/// Checks the directories and the burst buffer, and pairs them.
pub fn places(dirs: &[PathBuf], burst_buffer: &Path) -> Result<Vec<Place>, Failure> {
    if dirs.len() > DIRS_MAX {
        return Err(Failure::new(
            failure::USAGE,
            format!("{} directories are too many: {DIRS_MAX} at most", dirs.len()),
        ));
    }
    let seen = mounts::all().map_err(|e| Failure::io("read the mounts", &e))?;
    let buffer = canonical_burst_buffer(burst_buffer)?;
    if let Some(mount) = mounts::ours_over(&seen, &buffer) {
        let message =
            format!("the burst buffer {} lies in {}, which is accelerated itself", buffer.shown(), mount.point.shown());
        return Err(Failure::new(failure::USAGE, message).remedy(ELSEWHERE));
    }
    let mut canonical: Vec<PathBuf> = Vec::new();
    for dir in dirs {
        let dir = canonical_dir(dir, &seen)?;
        check_pair(&dir, &buffer)?;
        if let Some(other) = canonical.iter().find(|other| other.starts_with(&dir) || dir.starts_with(other)) {
            let message = format!("{} and {} overlap", dir.shown(), other.shown());
            return Err(Failure::new(failure::USAGE, message).remedy("name only the upper one"));
        }
        canonical.push(dir);
    }
    let known = known(&buffer);
    let single = canonical.len() == 1;
    let former = |served: &Path, dir: &Path, identity: &str| former(served, dir, identity, &seen);
    let place = |dir: PathBuf| Ok(Place { burst_buffer: own(&dir, &buffer, &known, single, &former)?, dir });
    canonical.into_iter().map(place).collect()
}

/// A burst buffer that exists, the store and the directory that it says it serves.
struct Known {
    path: PathBuf,
    store: Option<String>,
    dir: Option<PathBuf>,
}

fn known(buffer: &Path) -> Vec<Known> {
    let read = |path: PathBuf| Known { store: store_of(&path), dir: served::directory_of(&path), path };
    formatted(buffer).into_iter().map(read).collect()
}

/// Returns the burst buffer of a directory: the one with its data, or a new one.
fn own(
    dir: &Path,
    buffer: &Path,
    known: &[Known],
    single: bool,
    former: &dyn Fn(&Path, &Path, &str) -> Former,
) -> Result<PathBuf, Failure> {
    let identity = identity_of(dir).map_err(|e| Failure::io(format_args!("use {}", dir.shown()), &e))?;
    // The roots of two file systems may have the same identity: then the noted path tells them apart.
    let matches = |known: &&Known| known.store.as_ref() == Some(&identity);
    let is = |wanted: Former| {
        let (dir, identity) = (&dir, &identity);
        move |known: &&Known| {
            known.dir.as_deref().map_or(Former::Same, |served| former(served, dir, identity)) == wanted
        }
    };
    let noted = known.iter().filter(matches).find(|known| known.dir.as_deref() == Some(dir));
    let by_identity = noted.or_else(|| known.iter().filter(matches).find(is(Former::Same)));
    if by_identity.is_none()
        && let Some(Known { path, dir: Some(served), .. }) = known.iter().filter(matches).find(is(Former::Unknown))
    {
        let (dir, path, served) = (dir.shown(), path.shown(), served.shown());
        let message =
            format!("{path} holds data of {served}, which is not there: {dir} may be the same file system or another");
        return Err(Failure::new(failure::UNAVAILABLE, message).remedy(format!(
            "if it is the same mount it at {served} again; if not mount that one there first, or name another burst buffer"
        )));
    }
    // A damaged place that may be this directory's, or one of a former directory here: opening it reports what to do.
    let doubtful = |known: &&Known| match (&known.store, &known.dir) {
        (None, None) => true,
        (_, served) => served.as_deref() == Some(dir),
    };
    if let Some(known) = by_identity {
        return Ok(known.path.clone());
    }
    if let Some(known) = known.iter().find(doubtful) {
        // Made anew at the same path. A place in use is reported when it is opened.
        if replaced::is_of_former(&known.path, dir) && !is_in_use(&known.path) {
            replaced::take_anew(&known.path, dir)?;
        }
        return Ok(known.path.clone());
    }
    if single && known.is_empty() {
        return Ok(buffer.to_path_buf());
    }
    let path = buffer.join(subdirectory(dir, &identity));
    if !path.exists() {
        neighbours::make_room_for(&path);
    }
    make(&path)?;
    Ok(path)
}

fn is_in_use(place: &Path) -> bool {
    matches!(file_cache::lock(place), Err(file_cache::OpenError::InUse { .. }))
}

/// Relation between the directory that a place served and a directory with the same identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Former {
    /// One and the same directory, at this path or a former one.
    Same,
    /// Another directory.
    Another,
    /// The relation cannot be determined.
    Unknown,
}

/// Determines that relation. A directory that is accelerated now is not touched, since its agent may hang.
fn former(served: &Path, dir: &Path, identity: &str, seen: &[Mount]) -> Former {
    let below: Vec<Mount> = seen.iter().filter(|mount| !mount.is_ours()).cloned().collect();
    if mounts::ours_over(seen, served).is_some() {
        let device = |path: &Path| mounts::covering(&below, path).map(|mount| mount.device.clone());
        return if device(served) == device(dir) { Former::Same } else { Former::Another };
    }
    let place = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    if place(served) == place(dir) {
        return Former::Same;
    }
    if identity_of(served).is_ok_and(|served| served == identity) {
        return Former::Another;
    }
    // It was moved. Exception: all file systems of a kind have this identity at their root, and the former one may
    // only be unmounted.
    let whole = |mount: &Mount| mount.point == dir && mount.root == Path::new("/");
    if mounts::covering(&below, dir).is_some_and(whole) { Former::Unknown } else { Former::Same }
}

/// Returns the identity in the superblock of a directory's burst buffer.
fn identity_of(dir: &Path) -> io::Result<String> {
    let root = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    PosixStore::id_of(root.as_fd())
}

fn make(dir: &Path) -> Result<(), Failure> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failure::new(failure::CANT_CREATE, format!("cannot create {}: {}", dir.shown(), reason(&e))))
        }
        _ => Ok(()),
    }
}

/// Returns the canonical path of the burst buffer. It must exist: a missing one is more often an unmounted device
/// than a wish for a new directory on the system disk.
fn canonical_burst_buffer(path: &Path) -> Result<PathBuf, Failure> {
    let wrong = |e: &io::Error| Failure::io(format_args!("use the burst buffer {}", path.shown()), e);
    let canonical = fs::canonicalize(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(failure::NO_INPUT, format!("there is no burst buffer {}", path.shown()))
                .remedy(format!("mount its device, or make the directory: mkdir -p {}", word(path)))
        }
        _ => wrong(&e),
    })?;
    if !canonical.is_dir() {
        return Err(Failure::new(failure::NO_INPUT, format!("the burst buffer {} is no directory", path.shown())));
    }
    // access(2) does not suffice: some file systems refuse even root.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(&canonical, flags, Mode::RUSR) {
        Ok(_) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOSPC) => {
            Ok(canonical)
        }
        Err(error) => {
            let error = io::Error::from(error);
            let message = format!("cannot write in the burst buffer {}: {}", path.shown(), reason(&error));
            let code = if error.kind() == io::ErrorKind::PermissionDenied {
                failure::NO_PERMISSION
            } else {
                failure::CANT_CREATE
            };
            Err(Failure::new(code, message).remedy("name a directory that you can write in, on a fast local device"))
        }
    }
}

/// Returns the canonical path of a directory that can be accelerated. Nothing behind a mount of ours is touched on the way to it.
///
/// Errors: the directory is missing, is no directory, is `/`, or lies in a mount of ours.
pub fn canonical_dir(dir: &Path, seen: &[Mount]) -> Result<PathBuf, Failure> {
    let lexical = std::path::absolute(dir).map_err(|e| Failure::io("find the working directory", &e))?;
    mounts::walk(&lexical, |at| ours(at, seen))?;
    let canonical = fs::canonicalize(dir).map_err(|e| Failure::io(format_args!("use {}", dir.shown()), &e))?;
    if !canonical.is_dir() {
        return Err(Failure::new(failure::NO_INPUT, format!("{} is no directory", dir.shown())));
    }
    if canonical == Path::new("/") {
        return Err(Failure::new(failure::USAGE, "/ cannot be accelerated").remedy("name the directory with the data"));
    }
    Ok(canonical)
}

fn ours(dir: &Path, seen: &[Mount]) -> Result<(), Failure> {
    let Some(mount) = mounts::ours_over(seen, dir) else { return Ok(()) };
    if dead::is_dead(mount) {
        let message = format!("{}: the agent of {} has ended without unmounting", dir.shown(), mount.point.shown());
        let remedy = format!("end that mount: forebay umount {}", word(&mount.point));
        return Err(Failure::new(failure::UNAVAILABLE, message).remedy(remedy));
    }
    let message = if mount.point == dir {
        format!("{} is already accelerated, with the burst buffer {}", dir.shown(), mount.source.shown())
    } else {
        format!("{} lies in {}, which is already accelerated", dir.shown(), mount.point.shown())
    };
    let remedy = format!("run the command as it is, or end that mount first: forebay umount {}", word(&mount.point));
    Err(Failure::new(failure::UNAVAILABLE, message).remedy(remedy))
}

fn check_pair(dir: &Path, buffer: &Path) -> Result<(), Failure> {
    let message = if dir == buffer {
        format!("{} cannot be its own burst buffer", dir.shown())
    } else if buffer.starts_with(dir) {
        format!("the burst buffer {} lies inside {}, which is to be accelerated", buffer.shown(), dir.shown())
    } else if dir.starts_with(buffer) {
        format!("{} lies inside its burst buffer {}", dir.shown(), buffer.shown())
    } else {
        return Ok(());
    };
    Err(Failure::new(failure::USAGE, message).remedy(ELSEWHERE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::MARKER;

    fn dirs() -> (tempfile::TempDir, PathBuf, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let [a, b, buffer] = ["a", "b", "bb"].map(|name| base.join(name));
        [&a, &b, &buffer].iter().for_each(|dir| fs::create_dir(dir).unwrap());
        (root, a, b, buffer)
    }

    /// Formats a place as an agent that served the directory leaves it.
    fn format(place: &Place) {
        let store = identity_of(&place.dir).unwrap();
        fs::write(place.burst_buffer.join(MARKER), serde_json::json!({ "store_id": store }).to_string()).unwrap();
        fs::write(place.burst_buffer.join("directory"), place.dir.as_os_str().as_encoded_bytes()).unwrap();
    }

    #[test]
    fn the_first_directory_uses_the_burst_buffer_itself_and_others_a_subdirectory_each() {
        let (_root, a, b, buffer) = dirs();
        let one = places(std::slice::from_ref(&a), &buffer).unwrap();
        assert_eq!(one[0].burst_buffer, buffer);
        format(&one[0]);
        let two = places(&[b.clone(), a], &buffer).unwrap();
        assert_eq!(two[1].burst_buffer, buffer, "its data may be there");
        assert_eq!(two[0].burst_buffer.parent(), Some(&*buffer));
        format(&two[0]);
        assert_eq!(places(&[b], &buffer).unwrap()[0].burst_buffer, two[0].burst_buffer);
        assert_eq!(formatted(&buffer), [buffer, two[0].burst_buffer.clone()]);
    }

    #[test]
    fn several_directories_have_a_subdirectory_each_and_find_it_again_alone_and_elsewhere() {
        let (_root, a, b, buffer) = dirs();
        let two = places(&[a.clone(), b.clone()], &buffer).unwrap();
        let swapped = places(&[b.clone(), a.clone()], &buffer).unwrap();
        assert_eq!(two[0].burst_buffer, swapped[1].burst_buffer);
        assert_ne!(two[0].burst_buffer, two[1].burst_buffer);
        two.iter().for_each(format);
        assert_eq!(places(&[a], &buffer).unwrap()[0].burst_buffer, two[0].burst_buffer);
        let moved = b.with_file_name("moved");
        fs::rename(&b, &moved).unwrap();
        assert_eq!(places(&[moved], &buffer).unwrap()[0].burst_buffer, two[1].burst_buffer);
    }

    #[test]
    fn directories_with_one_identity_are_told_apart_by_the_note() {
        let (_root, a, b, buffer) = dirs();
        let place = Place { dir: a.clone(), burst_buffer: buffer.clone() };
        format(&place);
        let known = known(&buffer);
        let own = |dir: &Path| {
            // As if both were roots of file systems of one kind.
            let known = Known {
                store: Some(PosixStore::id_of(fs::File::open(dir).unwrap().as_fd()).unwrap()),
                ..copy(&known[0])
            };
            let former = |served: &Path, dir: &Path, identity: &str| match former(served, dir, identity, &[]) {
                // The expected relations.
                Former::Same if served.exists() && served != dir => Former::Another,
                other => other,
            };
            own(dir, &buffer, &[known], true, &former).unwrap()
        };
        assert_eq!(own(&a), buffer);
        assert_ne!(own(&b), buffer, "the other one is still there");
        fs::remove_dir(&a).unwrap();
        assert_eq!(own(&b), buffer, "it was moved");
    }

    #[test] // S18
    fn a_file_system_that_may_be_another_at_its_root_is_not_taken_for_the_one_that_is_not_mounted() {
        let (_root, a, b, _) = dirs();
        let identity = identity_of(&b).unwrap();
        let whole = |root: &str| Mount {
            id: 2,
            parent: 1,
            device: "8:1".to_string(),
            root: PathBuf::from(root),
            point: b.clone(),
            kind: "ext4".to_string(),
            source: PathBuf::from("/dev/x"),
        };
        for gone in [false, true] {
            assert_eq!(former(&a, &b, &identity, &[]), Former::Same, "a directory that was moved");
            assert_eq!(former(&a, &b, &identity, &[whole("/part")]), Former::Same, "a part of a file system");
            assert_eq!(former(&a, &b, &identity, &[whole("/")]), Former::Unknown);
            assert_eq!(former(&b, &b, &identity, &[whole("/")]), Former::Same);
            if !gone {
                fs::remove_dir(&a).unwrap();
            }
        }
    }

    #[test]
    fn a_place_whose_directory_cannot_be_told_is_neither_taken_nor_passed_by() {
        let (_root, a, b, buffer) = dirs();
        let store = identity_of(&b).unwrap();
        let known = [Known { path: buffer.clone(), store: Some(store), dir: Some(a) }];
        let failure = own(&b, &buffer, &known, true, &|_, _, _| Former::Unknown).unwrap_err();
        assert_eq!(failure.code, failure::UNAVAILABLE);
        assert!(fs::read_dir(&buffer).unwrap().next().is_none());
    }

    fn copy(known: &Known) -> Known {
        Known { path: known.path.clone(), store: known.store.clone(), dir: known.dir.clone() }
    }

    #[test] // S18
    fn a_burst_buffer_that_may_be_the_directorys_own_is_never_passed_by() {
        let (_root, a, b, buffer) = dirs();
        let place = Place { dir: a.clone(), burst_buffer: buffer.clone() };
        format(&place);
        fs::write(buffer.join(MARKER), "damaged").unwrap();
        assert_eq!(places(std::slice::from_ref(&a), &buffer).unwrap()[0].burst_buffer, buffer);
        assert_ne!(places(std::slice::from_ref(&b), &buffer).unwrap()[0].burst_buffer, buffer);
        fs::remove_file(buffer.join("directory")).unwrap();
        assert_eq!(places(&[b], &buffer).unwrap()[0].burst_buffer, buffer);
        format(&place);
        fs::rename(&a, a.with_file_name("gone")).unwrap();
        fs::create_dir(&a).unwrap();
        assert_eq!(places(&[a], &buffer).unwrap()[0].burst_buffer, buffer, "the former directory's data is there");
    }

    #[test]
    fn pairs_that_contain_each_other_are_refused() {
        let (root, a, _, buffer) = dirs();
        let inner = a.join("inner");
        fs::create_dir(&inner).unwrap();
        let code = |dir: &Path, buffer: &Path| places(&[dir.to_path_buf()], buffer).unwrap_err().code;
        assert_eq!(code(&a, &a), failure::USAGE);
        assert_eq!(code(&a, &inner), failure::USAGE);
        assert_eq!(code(&inner, &a), failure::USAGE);
        assert_eq!(code(Path::new("/"), &buffer), failure::USAGE);
        assert_eq!(places(&[a.clone(), inner], &buffer).unwrap_err().code, failure::USAGE);
        assert_eq!(code(&root.path().join("none"), &buffer), failure::NO_INPUT);
        assert_eq!(code(&a, &root.path().join("none")), failure::NO_INPUT);
    }
}
