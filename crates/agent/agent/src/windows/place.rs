//! The directory of the rings, and the agent's own record of them: nothing in a ring is believed that is not written here.
//!
//! ```text
//! DIR/SESSION/            0711, random name: one run of one agent
//!     socket              where programs register
//!     files/              0700
//!         7/              one file that has, or had, windows
//!             file        whose it is
//!             sequence    the counter, shared with programs
//!             drained     how much of it is in the burst buffer
//!             0, 0.grant  a ring, and what was granted with it
//!             cut         a truncation that came while the rings could not be drained
//!             removed     a program of this node removes, or has removed, the last name
//! DIR/SESSION.damaged-7-RANDOM/  one that could not be replayed, kept for people
//! ```

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

pub(super) use durable::sync_directory as sync;
use durable::{Durability, replace};
use serde::{Deserialize, Serialize};
use types::{Identity, Shown};
use window::layout::RingId;

/// Raised with the layout of rings too, so that what another version left stays for it. 2: a mark of the drained can be told
/// from what was written over it. 3: records say when they were written.
const FORMAT: u32 = 3;

/// Whose windows a directory holds.
#[derive(Debug, Serialize, Deserialize)]
struct FileRecord {
    format: u32,
    identity: Vec<u8>,
    hint: PathBuf,
}

/// What was granted with a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingRecord {
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

/// What is not brought to where others have written since.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeldBack {
    pub bytes: u64,
    /// Which, a sentence each.
    pub lost: Vec<String>,
}

/// A file was cut, or is to be, while what is in its rings cannot be brought to the burst buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CutRecord {
    format: u32,
    /// What its rings hold behind this byte never comes: the shortest of all lengths since.
    pub keep: u64,
    /// The length that it got last. Who replays sees to that first: whether it had it when the agent was killed is not known.
    pub len: u64,
}

impl CutRecord {
    /// Cut to `len` after `before`.
    pub fn after(before: Option<CutRecord>, len: u64) -> CutRecord {
        CutRecord { format: FORMAT, keep: before.map_or(len, |before| before.keep.min(len)), len }
    }
}

/// The directory of one file's rings.
#[derive(Debug)]
pub(super) struct FilePlace {
    path: PathBuf,
    /// What lies here survives a crash of the machine, and so must what is said of it.
    durable: bool,
}

impl FilePlace {
    /// One that is there.
    pub fn of(path: PathBuf, durable: bool) -> FilePlace {
        FilePlace { path, durable }
    }

    /// A new one in the directory `files`.
    pub fn make(files: &Path, number: u64, durable: bool, identity: &Identity, hint: &Path) -> io::Result<FilePlace> {
        let place = FilePlace::of(files.join(number.to_string()), durable);
        make(&place.path, 0o700)?;
        let record = FileRecord { format: FORMAT, identity: identity.as_bytes().to_vec(), hint: hint.to_owned() };
        put(&place.path.join("file"), &serde_json::to_vec(&record)?, durable)?;
        Ok(place)
    }

    /// The same, for who has no part in the rings.
    pub fn beside(&self) -> FilePlace {
        FilePlace::of(self.path.clone(), self.durable)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is nothing that an agent made: no directory, one that is not named as an agent names them, as a copy is, or one
    /// without a record of whose it is in which something lies that no agent makes. Errors: those of looking.
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

    /// Whose it is; `None` if that was never written, or went first: then nothing was granted, or nothing is left. Errors: as
    /// [`is_damage`] tells them apart, and `Unsupported` for a place of another version.
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

    /// Since when there may have been rings: ns since 1970; 0 where nobody knows.
    pub fn granted_ns(&self) -> u64 {
        let made = fs::metadata(self.path.join("file")).and_then(|meta| meta.modified());
        let since = made.ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    /// Where the sequence counter is.
    pub fn sequence(&self) -> PathBuf {
        self.path.join("sequence")
    }

    /// Where the mark of the drained is.
    pub fn drained(&self) -> PathBuf {
        self.path.join("drained")
    }

    /// Where a ring is.
    pub fn ring(&self, number: usize) -> PathBuf {
        self.path.join(number.to_string())
    }

    fn cut_path(&self) -> PathBuf {
        self.path.join("cut")
    }

    /// The truncation that what is in the rings must respect.
    pub fn cut(&self) -> io::Result<Option<CutRecord>> {
        get(&self.cut_path())
    }

    /// Writes one down, before it is made; `None`: it was not made after all.
    pub fn set_cut(&self, cut: Option<&CutRecord>) -> io::Result<()> {
        match cut {
            Some(cut) => put(&self.cut_path(), &serde_json::to_vec(cut)?, self.durable),
            None => fs::remove_file(self.cut_path()).and_then(|()| self.sync()),
        }
    }

    fn removed_path(&self) -> PathBuf {
        self.path.join("removed")
    }

    /// Whether a program of this node removed the file: what its rings hold goes with it, and is not lost.
    pub fn was_removed(&self) -> bool {
        self.removed_path().exists()
    }

    /// Writes down that the last name is about to be removed; or that it was not after all. Nothing to do where the rings are
    /// over.
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

    /// What a replay has held back of its rings, which are to be kept for people then.
    pub fn held_back(&self) -> io::Result<Option<HeldBack>> {
        get(&self.held_back_path())
    }

    /// Writes it down, before the rings are marked as drained.
    pub fn set_held_back(&self, held: &HeldBack) -> io::Result<()> {
        put(&self.held_back_path(), &serde_json::to_vec(held)?, self.durable)
    }

    fn grant_path(&self, number: usize) -> PathBuf {
        self.path.join(format!("{number}.grant"))
    }

    /// Writes down what is granted with a ring: before the program gets it.
    pub fn grant(&self, number: usize, record: &RingRecord) -> io::Result<()> {
        put(&self.grant_path(number), &serde_json::to_vec(record)?, self.durable)
    }

    /// What was removed here does not come back with a crash.
    fn sync(&self) -> io::Result<()> {
        if self.durable { sync(&self.path) } else { Ok(()) }
    }

    /// The rings that were granted; in the place of a record that is damaged what is wrong with it.
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

    /// Whether a ring may hold something, as far as one can tell.
    pub fn may_hold(&self) -> bool {
        self.grants().map_or(true, |grants| !grants.is_empty())
    }

    /// A ring is drained: its grant goes first, so that a ring without one was over.
    pub fn remove_ring(&self, number: usize) {
        for path in [self.grant_path(number), self.ring(number)] {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.shown(), "a drained ring stays");
            }
        }
        if let Err(error) = self.sync() {
            tracing::warn!(%error, path = %self.path.shown(), "a drained ring may come back with a crash of the machine");
        }
    }

    /// All rings are drained.
    pub fn remove(&self) {
        // The owner first: without it nothing else is looked at.
        let _ = fs::remove_file(self.path.join("file"));
        let _ = self.sync();
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.shown(), "the directory of drained windows stays");
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

/// Writes a file that is there whole or not at all. `ELOOP`: somebody has put a link in its way.
pub(super) fn put(path: &Path, bytes: &[u8], durably: bool) -> io::Result<()> {
    replace(path, bytes, if durably { Durability::SyncedName } else { Durability::Volatile }, 0o600)
}

fn get<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<Option<T>> {
    let record = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)),
    };
    record.map(Some).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.shown())))
}

/// Whether what was read is not what was written, and never will be; else it may be read another time.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Makes a directory.
pub(super) fn make(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    // Whatever the umask said.
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
