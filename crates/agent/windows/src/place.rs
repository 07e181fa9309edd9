//! Directory of the rings, and the agent's own record of them. Nothing in a ring is trusted that is not recorded here.
//!
//! ```text
//! DIR/SESSION/            0711, random name: one run of one agent
//!     socket              where programs register
//!     files/              0700
//!         7/              one file that has, or had, windows
//!             file        the file's identity and path
//!             sequence    the sequence counter, shared with programs
//!             drained     the applied mark: how much of the sequence is in the burst buffer
//!             0, 0.grant  a ring, and what was granted with it
//!             cut         a truncation made while records could not be applied
//!             removed     a program of this node removes, or has removed, the last name
//! DIR/SESSION.damaged-7-RANDOM/  one that could not be replayed, kept for administrators
//! ```

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

pub(crate) use durable::sync_directory as sync;
use durable::{Durability, replace};
use serde::{Deserialize, Serialize};
use types::{Identity, Shown};
use window::layout::RingId;

/// Version of these records. Raised with the layout of rings too, so that another version's records stay for that
/// version. 2: a damaged applied mark is detected. 3: records contain the time of the write.
const FORMAT: u32 = 3;

/// Record of the file to which a directory's windows belong.
#[derive(Debug, Serialize, Deserialize)]
struct FileRecord {
    format: u32,
    identity: Vec<u8>,
    hint: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingRecord {
    format: u32,
    pub id: (u64, u64),
    pub capacity: u64,
}

impl RingRecord {
    pub fn new(id: RingId, capacity: u64) -> RingRecord {
        RingRecord { format: FORMAT, id: (id.0 as u64, (id.0 >> 64) as u64), capacity }
    }

    pub fn ring(&self) -> RingId {
        RingId(u128::from(self.id.0) | u128::from(self.id.1) << 64)
    }
}

/// Bytes that a replay did not write because others had written there since.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldBack {
    pub bytes: u64,
    /// Descriptions of the bytes, a sentence each.
    pub lost: Vec<String>,
}

/// Record of a truncation, done or planned, while records cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CutRecord {
    format: u32,
    /// Bytes of records beyond this offset are dropped: the least length since.
    pub keep: u64,
    /// Last length set. A replay sets it first, because the agent may have been killed before the truncation.
    pub len: u64,
}

impl CutRecord {
    /// Returns the record of a truncation to `len` after `before`.
    pub fn after(before: Option<CutRecord>, len: u64) -> CutRecord {
        CutRecord { format: FORMAT, keep: before.map_or(len, |before| before.keep.min(len)), len }
    }
}

#[derive(Debug)]
pub(crate) struct FilePlace {
    path: PathBuf,
    /// Whether the directory survives a crash of the machine, so that its records must too.
    durable: bool,
}

impl FilePlace {
    pub fn of(path: PathBuf, durable: bool) -> FilePlace {
        FilePlace { path, durable }
    }

    pub fn make(files: &Path, number: u64, durable: bool, identity: &Identity, hint: &Path) -> io::Result<FilePlace> {
        let place = FilePlace::of(files.join(number.to_string()), durable);
        make(&place.path, 0o700)?;
        let record = FileRecord { format: FORMAT, identity: identity.as_bytes().to_vec(), hint: hint.to_owned() };
        put(&place.path.join("file"), &serde_json::to_vec(&record)?, durable)?;
        Ok(place)
    }

    /// Returns a second handle of the directory, for use without the rings.
    pub fn beside(&self) -> FilePlace {
        FilePlace::of(self.path.clone(), self.durable)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no agent made this: it is no directory, has no number as its name (such as a copy), or has no record of
    /// its file and contains a name that no agent makes. Errors: those of reading the directory.
    pub fn is_foreign(&self) -> io::Result<bool> {
        let name = self.path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let numbered = name.parse::<u64>().is_ok_and(|number| number.to_string() == name);
        if !numbered || !fs::symlink_metadata(&self.path)?.is_dir() {
            return Ok(true);
        }
        let mut strange = false;
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if name == "file" {
                return Ok(false);
            }
            strange |= !is_made_here(Path::new(&name));
        }
        Ok(strange)
    }

    /// Returns the file to which the directory belongs. `None` if this was never recorded or was removed first: then no
    /// ring was granted, or none is left. Errors: damage, as [`is_damage`] tells; `Unsupported` for another version.
    pub fn owner(&self) -> io::Result<Option<(Identity, PathBuf)>> {
        let path = self.path.join("file");
        let Some(record) = get::<FileRecord>(&path)? else { return Ok(None) };
        if record.format != FORMAT {
            let why = format!("{}: of another version ({}; {FORMAT} is known)", path.shown(), record.format);
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let identity = Identity::new(record.identity)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.shown())))?;
        Ok(Some((identity, record.hint)))
    }

    /// Returns the time from which on there may have been rings: ns since 1970; 0 if unknown.
    pub fn granted_ns(&self) -> u64 {
        let made = fs::metadata(self.path.join("file")).and_then(|meta| meta.modified());
        let since = made.ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    pub fn sequence(&self) -> PathBuf {
        self.path.join("sequence")
    }

    pub fn drained(&self) -> PathBuf {
        self.path.join("drained")
    }

    pub fn ring(&self, number: usize) -> PathBuf {
        self.path.join(number.to_string())
    }

    fn cut_path(&self) -> PathBuf {
        self.path.join("cut")
    }

    /// Returns the truncation that pending records must respect.
    pub fn cut(&self) -> io::Result<Option<CutRecord>> {
        get(&self.cut_path())
    }

    /// Records a truncation before it is made; `None`: it was not made after all.
    pub fn set_cut(&self, cut: Option<&CutRecord>) -> io::Result<()> {
        match cut {
            Some(cut) => put(&self.cut_path(), &serde_json::to_vec(cut)?, self.durable),
            None => fs::remove_file(self.cut_path()).and_then(|()| self.sync()),
        }
    }

    fn removed_path(&self) -> PathBuf {
        self.path.join("removed")
    }

    /// Whether a program of this node removed the file. Then its pending records are dropped with it and do not count
    /// as lost.
    pub fn was_removed(&self) -> bool {
        self.removed_path().exists()
    }

    /// Records that the last name is about to be removed, or that it was not removed after all. Does nothing if the
    /// rings are over.
    pub fn set_removed(&self, removed: bool) -> io::Result<()> {
        let done = match removed {
            true => put(&self.removed_path(), &[], self.durable),
            false => fs::remove_file(self.removed_path()).and_then(|()| self.sync()),
        };
        done.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    fn held_back_path(&self) -> PathBuf {
        self.path.join("held")
    }

    /// Returns the bytes that a replay held back. If there are any, the rings must be kept for administrators.
    pub fn held_back(&self) -> io::Result<Option<HeldBack>> {
        get(&self.held_back_path())
    }

    /// Records bytes held back, before the rings are marked as applied.
    pub fn set_held_back(&self, held: &HeldBack) -> io::Result<()> {
        put(&self.held_back_path(), &serde_json::to_vec(held)?, self.durable)
    }

    fn grant_path(&self, number: usize) -> PathBuf {
        self.path.join(format!("{number}.grant"))
    }

    /// Records the grant of a ring. Call this before the program gets the ring.
    pub fn grant(&self, number: usize, record: &RingRecord) -> io::Result<()> {
        put(&self.grant_path(number), &serde_json::to_vec(record)?, self.durable)
    }

    fn sync(&self) -> io::Result<()> {
        if self.durable { sync(&self.path) } else { Ok(()) }
    }

    /// Returns the granted rings. For a damaged record, returns a description of the damage.
    pub fn grants(&self) -> io::Result<Vec<(usize, Result<RingRecord, String>)>> {
        let mut grants = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".grant")).and_then(|n| n.parse().ok());
            let Some(number) = number else { continue };
            match get::<RingRecord>(&self.grant_path(number)) {
                Ok(record) => grants.extend(record.map(|record| (number, Ok(record)))),
                Err(error) if is_damage(&error) => grants.push((number, Err(error.to_string()))),
                Err(error) => return Err(error),
            }
        }
        grants.sort_by_key(|(number, _)| *number);
        Ok(grants)
    }

    /// Whether a ring may hold pending records. True if unknown.
    pub fn may_hold(&self) -> bool {
        self.grants().map_or(true, |grants| !grants.is_empty())
    }

    /// Removes a ring whose records are applied. The grant is removed first, so that a ring without a grant is known to
    /// be over.
    pub fn remove_ring(&self, number: usize) {
        for path in [self.grant_path(number), self.ring(number)] {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(
                    %error,
                    path = %path.shown(),
                    "could not delete a window file, which is no longer needed; harmless"
                );
            }
        }
        if let Err(error) = self.sync() {
            tracing::warn!(
                %error,
                path = %self.path.shown(),
                "could not sync the removal of a window file; after a crash it may come back"
            );
        }
    }

    /// Removes the directory after all records were applied.
    pub fn remove(&self) {
        // The file record is removed first: without it nothing else is read.
        let _ = fs::remove_file(self.path.join("file"));
        let _ = self.sync();
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(
                %error,
                path = %self.path.shown(),
                "could not delete a directory of windows, which is no longer needed; harmless"
            );
        }
    }
}

/// Whether an agent makes such a name in the directory of a file.
fn is_made_here(name: &Path) -> bool {
    // A crash leaves the temporary file of a replacement. Those of grants had no `.grant` in their names before.
    let name = if name.extension() == Some(OsStr::new("new")) { &name.with_extension("") } else { name };
    let stem = name.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let known =
        ["file", "sequence", "drained", "cut", "removed", "held"].contains(&stem) || stem.parse::<usize>().is_ok();
    known && name.extension().is_none_or(|extension| extension == "grant")
}

/// Writes a file atomically. `ELOOP`: another user has put a symbolic link in the way.
pub(crate) fn put(path: &Path, bytes: &[u8], durably: bool) -> io::Result<()> {
    replace(path, bytes, if durably { Durability::SyncedName } else { Durability::Volatile }, 0o600)
}

fn get<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<Option<T>> {
    let record = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)),
    };
    record.map(Some).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.shown())))
}

/// Whether an error means lasting damage. Other errors may be gone at the next read.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Creates a directory with exactly this mode.
pub(crate) fn make(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    // The mode is set again because the umask may have masked it.
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S38
    fn nothing_is_written_where_a_link_leads_that_somebody_put_in_the_way() {
        let tree = tempfile::tempdir().unwrap();
        let (path, other) = (tree.path().join("windows"), tree.path().join("other"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, path.with_extension("new")).unwrap();
        assert!(put(&path, b"one", false).is_err() && !path.exists());
        assert_eq!(fs::read(&other).unwrap(), b"kept");
    }
}
