//! The first page of a burst buffer, and its writing if there may be no room.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::errors::is_full;
use crate::limits::START_ROOM_BYTES;
use crate::settings::OpenError;

const MAGIC: &str = "forebay burst buffer";
const FORMAT: u32 = 1;
/// Smallest size of the file in bytes.
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) magic: String,
    pub(super) format: u32,
    pub(super) store_id: String,
    pub(super) boot_id: String,
    /// Name of the agent in marks: an agent that starts again must recognise its own. Empty in earlier pages.
    #[serde(default)]
    pub(super) agent_id: String,
    /// Bound of the versions given out: those below may be in use.
    pub(super) reserved: u64,
    /// Bound of suspect versions: replicas below it were made before the machine last started without an orderly end.
    pub(super) trusted_from: u64,
    /// Whether the last agent ended in order and everything was written to the medium.
    pub(super) settled: bool,
    /// Whether replicas may hold unsaved data that the catalogue does not know of, and no search has ended yet.
    #[serde(default)]
    pub(super) unsearched: bool,
}

pub(super) fn new_page(store_id: &str, boot: &str) -> Page {
    Page {
        magic: MAGIC.to_owned(),
        format: FORMAT,
        store_id: store_id.to_owned(),
        boot_id: boot.to_owned(),
        agent_id: String::new(),
        reserved: 1,
        trusted_from: 0,
        settled: true,
        unsearched: false,
    }
}

pub(super) fn read_page(path: &Path, bytes: &[u8], store_id: &str) -> Result<Page, OpenError> {
    let root = path.parent().unwrap_or(path).to_owned();
    // The format is parsed alone first: another version's page may have other fields.
    let fields: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    if fields["magic"] != MAGIC {
        return Err(OpenError::Superblock { path: root, what: "is damaged" });
    }
    let found = fields["format"].to_string();
    let page = match serde_json::from_value::<Page>(fields) {
        Ok(page) if page.magic == MAGIC && page.format == FORMAT => page,
        _ => return Err(OpenError::Format { path: root, found, known: FORMAT }),
    };
    if page.store_id != store_id {
        return Err(OpenError::OtherStore { path: root, found: page.store_id, wanted: store_id.to_owned() });
    }
    Ok(page)
}

/// Writes the page, so that a crash leaves the new or the former one. The spare page `superblock.new` is overwritten,
/// and then both are exchanged. Where file systems write in place this takes no room, except for the first page and
/// the first spare.
pub(super) fn write_page(path: &Path, page: &Page) -> io::Result<()> {
    let spare = path.with_extension("new");
    let mut bytes = serde_json::to_vec_pretty(page).map_err(io::Error::other)?;
    // Extra line breaks mean nothing, and keep the blocks of the spare page allocated.
    bytes.resize(bytes.len().max(PAGE_BYTES), b'\n');
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = file.open(&spare)?;
    file.write_all_at(&bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    match renameat_with(CWD, &spare, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        // There is no page yet, or the file system cannot exchange files (NFS).
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => std::fs::rename(&spare, path)?,
        Err(error) => return Err(error.into()),
    }
    durable::sync_directory(path.parent().unwrap_or(path))
}

/// Writes the page of a start. Programs may have filled everything, and only a start can stage that out. So it uses
/// the room that was kept for it, until it [keeps](keep_room) that again.
pub(super) fn start_page(root: &Path, path: &Path, page: &Page) -> io::Result<()> {
    let write = || match write_page(path, page) {
        // An exceeded quota shows only now.
        Err(error) if is_full(&error) && std::fs::remove_file(room(root)).is_ok() => write_page(path, page),
        written => written,
    };
    write()?;
    // Makes a spare, so that the next page, or the one after that, has one.
    if path.with_extension("new").exists() { Ok(()) } else { write() }
}

fn room(root: &Path) -> PathBuf {
    root.join("room")
}

/// Releases the room that was kept for a start, if there is little else. The lock is held.
pub(super) fn release_room(root: &Path) {
    if rustix::fs::statvfs(root).is_ok_and(|now| now.f_bavail.saturating_mul(now.f_frsize) < START_ROOM_BYTES) {
        let _ = std::fs::remove_file(room(root));
    }
}

/// Keeps room for the next start: as much as there is, down to a sixteenth of the wanted size, and no more than a
/// quarter of the `free` bytes. The rest is for commits of work that frees more.
pub(super) fn keep_room(root: &Path, free: u64) -> io::Result<()> {
    let path = room(root);
    let kept = std::fs::metadata(&path).map_or(0, |found| found.len());
    let fits = |bytes: &u64| *bytes <= kept || free / 4 >= *bytes;
    let Some(bytes) = (0..=4).map(|share| START_ROOM_BYTES >> share).find(fits).filter(|bytes| *bytes > kept) else {
        return Ok(());
    };
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    Ok(rustix::fs::fallocate(&file.open(path)?, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}
