//! The record in a burst buffer by which a tree finds its directory in the global store.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use durable::{Durability, replace};
use serde::{Deserialize, Serialize};
use types::{Identity, Step, reported};

/// Name of the record in the directory of a tree.
const FILE: &str = "tree.json";

#[derive(Serialize, Deserialize)]
struct Written {
    identity: String,
    path: Vec<u8>,
    mark: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leased: bool,
}

/// The directory of a tree in the global store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRecord {
    /// Identity of the directory.
    pub identity: Identity,
    /// Path below the accelerated directory, as last known.
    pub path: PathBuf,
    /// Value of the directory's mark.
    pub mark: String,
    /// Whether the directory existed before, so that its names are to be read.
    pub leased: bool,
}

impl TreeRecord {
    /// Writes the record of the tree in `directory`.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let path = self.path.as_os_str().as_bytes().to_vec();
        let (identity, mark) = (self.identity.to_string(), self.mark.clone());
        let written = Written { identity, path, mark, leased: self.leased };
        replace(&directory.join(FILE), &serde_json::to_vec(&written)?, Durability::Synced, 0o600)
            .step("write the record of a delegated tree")
    }

    /// Reads the record of the tree in `directory`; `None` if a crash came before it was written.
    pub fn read(directory: &Path) -> io::Result<Option<TreeRecord>> {
        let bytes = match std::fs::read(directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.step("read the record of a delegated tree")?,
        };
        let broken = || reported(libc::EUCLEAN, "the record of a delegated tree is damaged");
        let written: Written = serde_json::from_slice(&bytes).map_err(|_| broken())?;
        let identity = Identity::from_hex(&written.identity).ok_or_else(broken)?;
        let path = PathBuf::from(OsString::from_vec(written.path));
        Ok(Some(TreeRecord { identity, path, mark: written.mark, leased: written.leased }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_damage_is_told() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(TreeRecord::read(place.path()).unwrap(), None);
        let path = PathBuf::from(OsString::from_vec(b"a/\xff".to_vec()));
        let record =
            TreeRecord { identity: Identity::new([1, 2, 3]).unwrap(), path, mark: "here".into(), leased: true };
        record.write(place.path()).unwrap();
        assert_eq!(TreeRecord::read(place.path()).unwrap(), Some(record));
        std::fs::write(place.path().join(FILE), b"{").unwrap();
        assert!(TreeRecord::read(place.path()).is_err());
    }
}
