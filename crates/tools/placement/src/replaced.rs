//! Places whose directory was removed and made anew at the same path (`rm -rf job; mkdir job`). The new directory is
//! another one, and the contents of the place belong to the former.
//!
//! If nothing in the place waits for its stage-out, the place is emptied and taken for the new directory. A crash
//! after any step leaves a place that is emptied again. Replicas go first, so that the remaining records are clean
//! ones without a replica; the page that names the owner goes last. Rules stay, since they belong to the path (S34),
//! and so do files that `resolve` saved.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use catalogue::{Catalogue, FjallCatalogue};
use durable::sync_directory;
use file_cache::store_of;
use global_store::posix::PosixStore;
use indicatif::HumanBytes;
use types::{Shown, Version, word};

use crate::count::files;
use crate::failure::{self, Failure};
use crate::lock::lock;
use crate::{place, served};

/// Parts of a place that are removed, in this order.
const EMPTIED: [&str; 8] =
    ["sums", "replicas", "departed", "lockers", "catalogue", "superblock.new", place::MARKER, "directory"];

/// Data of a former directory that is not in the global store.
struct Waiting {
    /// Versions of replicas, with the former names of their files.
    files: Vec<(Version, PathBuf)>,
    bytes: u64,
}

/// Returns whether a place belongs to a former directory at the path of `dir`.
pub fn is_of_former(place: &Path, dir: &Path) -> bool {
    let identity = || {
        let root = fs::File::open(dir)?;
        PosixStore::id_of(root.as_fd())
    };
    served::directory_of(place).as_deref() == Some(dir)
        && store_of(place).is_some_and(|store| identity().is_ok_and(|identity| identity != store))
}

/// Empties a place of a former directory. Errors: something waits in it, which the failure names.
pub fn take_anew(place: &Path, dir: &Path) -> Result<(), Failure> {
    let _lock = lock(place)?;
    let waiting = waiting(place)?;
    if waiting.files.is_empty() {
        return empty(place);
    }
    let [place, named] = [word(place), word(dir)];
    let count = waiting.files.len() as u64;
    let (are, their) = if count == 1 { ("was", "its") } else { ("were", "their") };
    let message = format!(
        "{} ({}) {are} not in the global store when {} was removed and made anew; {their} data is in {place}",
        files(count),
        HumanBytes(waiting.bytes),
        dir.shown()
    );
    Err(Failure::new(failure::UNAVAILABLE, message).remedy(format!(
        "to save it there and begin anew: forebay resolve {named} --keep both --burst-buffer {place}; \
         to give it up: --keep global"
    )))
}

/// Empties a place of a former directory. With `saving`, data that is not in the global store is saved first, and `saved` is called
/// with the path of each saved file.
pub fn give_up(place: &Path, saving: bool, saved: &mut dyn FnMut(&Path)) -> Result<(), Failure> {
    let _lock = lock(place)?;
    let failed = |e| Failure::io(format_args!("save what is in {}", place.shown()), &e);
    if saving {
        save(place, &waiting(place)?).map_err(failed)?.iter().for_each(|path| saved(path));
    }
    empty(place)
}

/// Links dirty replicas among the saved files, and syncs them.
fn save(place: &Path, waiting: &Waiting) -> io::Result<Vec<PathBuf>> {
    let saved = place.join("saved");
    let mut paths = Vec::new();
    for (version, hint) in &waiting.files {
        let replica = replica(place, *version);
        match fs::File::open(&replica) {
            Ok(data) => data.sync_all()?,
            // A record whose replica is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        let name = hint.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
        let name = &name[..name.floor_char_boundary(file_cache::limits::SAVED_NAME_BYTES)];
        paths.push(file_cache::save_as(&replica, &saved, &format!("{name}.{version}"))?);
    }
    [&saved, place].iter().try_for_each(|dir| sync_directory(dir))?;
    Ok(paths)
}

fn replica(place: &Path, version: Version) -> PathBuf {
    place.join(format!("replicas/{:02x}/{version}", version.0 & 0xff))
}

/// Returns the dirty files, by the records and by the replicas' own attributes.
fn waiting(place: &Path) -> Result<Waiting, Failure> {
    let unsure = |what: String| {
        Failure::new(failure::UNAVAILABLE, format!("whether {} holds unsaved data is not known: {what}", place.shown()))
            .remedy(format!("see: forebay check {}", word(place)))
    };
    if let Some(windows) = agent::windows_left(place).map_err(|e| unsure(e.to_string()))?.first() {
        return Err(unsure(format!("a killed agent left windows in {}", windows.shown())));
    }
    let mut waiting = Waiting { files: Vec::new(), bytes: 0 };
    if place.join("catalogue/db").exists() {
        let catalogue = FjallCatalogue::open(place.join("catalogue")).map_err(|e| unsure(e.to_string()))?;
        let listed = catalogue.unclean(&mut |_, record| {
            // Files that were being removed need no owner: their directory is gone as well.
            if !record.removing {
                waiting.files.push((record.version, record.hint));
            }
        });
        listed.map_err(|e| unsure(e.to_string()))?;
    }
    let known: HashSet<Version> = waiting.files.iter().map(|(version, _)| *version).collect();
    let branded = file_cache::with_identity_attribute(place).map_err(|e| unsure(e.to_string()))?;
    waiting
        .files
        .extend(branded.into_iter().filter(|version| !known.contains(version)).map(|one| (one, PathBuf::new())));
    let size =
        |(version, _): &(Version, PathBuf)| fs::metadata(replica(place, *version)).map_or(0, |found| found.len());
    waiting.bytes = waiting.files.iter().map(size).sum();
    Ok(waiting)
}

fn empty(place: &Path) -> Result<(), Failure> {
    empty_some(place, EMPTIED.len()).map_err(|e| Failure::io(format_args!("empty {}", place.shown()), &e))
}

fn empty_some(place: &Path, steps: usize) -> io::Result<()> {
    for name in &EMPTIED[..steps] {
        let path = place.join(name);
        let gone = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(error) => Err(error),
        };
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Synced, so that the order holds on the medium as well.
        sync_directory(place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crash after any step leaves a place that is taken anew all the same.
    #[test] // S59
    fn a_place_that_was_emptied_in_part_is_emptied_again() {
        for steps in 0..EMPTIED.len() {
            let tree = tempfile::tempdir().unwrap();
            let [dir, place] = ["dir", "place"].map(|name| tree.path().join(name));
            [&dir, &place].iter().for_each(|path| fs::create_dir(path).unwrap());
            drop(FjallCatalogue::open(place.join("catalogue")).unwrap());
            ["sums/00", "replicas/00", "saved"].iter().for_each(|name| fs::create_dir_all(place.join(name)).unwrap());
            fs::write(place.join("directory"), dir.as_os_str().as_encoded_bytes()).unwrap();
            fs::write(place.join(place::MARKER), r#"{"store_id": "former"}"#).unwrap();
            fs::write(place.join("policies.toml"), "").unwrap();
            empty_some(&place, steps).unwrap();
            if steps < EMPTIED.len() - 1 {
                assert!(is_of_former(&place, &dir), "{steps}");
            }
            take_anew(&place, &dir).unwrap();
            let mut left: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["forebay.lock", "policies.toml", "saved"], "{steps}");
        }
    }
}
