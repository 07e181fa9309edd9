//! The first page of a burst buffer, and how it is written where there may be no room.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::limits::START_ROOM_BYTES;
use crate::settings::OpenError;

const MAGIC: &str = "forebay burst buffer";
const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) magic: String,
    pub(super) format: u32,
    pub(super) store_id: String,
    pub(super) boot_id: String,
    /// Who we are in marks: an agent that starts again must know its own. Empty in pages of before.
    #[serde(default)]
    pub(super) agent_id: String,
    /// Versions below it may have been given out.
    pub(super) reserved: u64,
    /// Replicas with versions below it were made before the machine last started without warning.
    pub(super) trusted_from: u64,
    /// The last agent ended in order and everything was written to the medium.
    pub(super) settled: bool,
    /// Replicas may hold unsaved data that the catalogue does not know of, and nobody has looked to the end yet.
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
    // The format is read by itself first: another version's page may have other fields.
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

pub(super) fn write_page(path: &Path, page: &Page) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(&fresh)?;
    file.write_all(&serde_json::to_vec_pretty(page).map_err(io::Error::other)?)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Writes the page of a start. What programs wrote may have filled everything, and only a start can bring it out: then it has the
/// room that was kept for it.
pub(super) fn start_page(root: &Path, path: &Path, page: &Page) -> io::Result<()> {
    let room = root.join("room");
    let low = rustix::fs::statvfs(root).is_ok_and(|now| now.f_bavail.saturating_mul(now.f_frsize) < START_ROOM_BYTES);
    if low {
        let _ = std::fs::remove_file(&room);
    }
    match write_page(path, page) {
        // A quota shows only now.
        Err(error) if is_full(&error) && std::fs::remove_file(&room).is_ok() => return write_page(path, page),
        written => written?,
    }
    if !low && let Err(error) = keep_room(&room) {
        tracing::debug!(%error, "no room is kept for a start");
    }
    Ok(())
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn keep_room(room: &Path) -> io::Result<()> {
    if std::fs::metadata(room).is_ok_and(|meta| meta.len() == START_ROOM_BYTES) {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(room)?;
    let made = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, START_ROOM_BYTES);
    if made.is_err() {
        std::fs::remove_file(room)?;
    }
    Ok(made?)
}
