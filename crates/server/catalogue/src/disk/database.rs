//! Opening and creating the files of a catalogue.
//!
//! ```text
//! LOCK      locked while the catalogue is open
//! FORMAT    "forebay catalogue 1"; written last at creation
//! db/       fjall's database
//! torn-end  unreadable end of the journal after the last crash that left one; `.searched` once its loss was made good
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use concurrency::Instant;
use durable::{Durability, replace, sync_directory};
use fjall::compaction::Leveled;
use fjall::config::{CompressionPolicy, PartitioningPolicy, PinningPolicy};
use fjall::{Keyspace, KeyspaceCreateOptions};

use super::journal;
use super::room::Room;
use crate::Error;
use crate::limits::{
    CACHE_BYTES, JOURNAL_BYTES_MAX, LOCK_POLL, LOCK_WAIT_MAX, MEMTABLE_BYTES, OPEN_TABLES_MAX, TABLE_BYTES,
    UNCLEAN_MEMTABLE_BYTES, WORKERS,
};

/// Version of the files in the directory, other than fjall's own.
const FORMAT: u32 = 1;
const FORMAT_PREFIX: &str = "forebay catalogue ";

/// Open database. Cheap to clone.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) records: Keyspace,
    pub(super) unclean: Keyspace,
    pub(super) db: fjall::Database,
    /// Bytes that an opening would read again: those found in journals and, approximately, those written since.
    pub(super) replay: Arc<AtomicU64>,
    /// Reserve of journal blocks for commits.
    pub(super) room: Arc<Room>,
    /// Lock of the directory, released last.
    _lock: Arc<File>,
}

impl Database {
    pub(super) fn open(dir: &Path) -> Result<Database, Error> {
        let fail = |reason: String| Error::Open { path: dir.to_path_buf(), reason };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir).map_err(|error| fail(error.to_string()))?;
        let lock = lock(dir).map_err(fail)?;
        let format = read_format(dir)?;
        let path = dir.join("db");
        let exists = path.try_exists().map_err(|error| fail(error.to_string()))?;
        if format.is_some() && !exists {
            return Err(fail("its database is gone".into()));
        }
        if !exists {
            create(dir).map_err(|error| fail(error.to_string()))?;
        }
        let replay = journal::set_torn_end_aside(&path, dir)
            .map_err(|error| fail(format!("cannot check its journal: {error}")))?;
        let (db, records, unclean) = open_fjall(&path).map_err(|error| fail(error.to_string()))?;
        let replay = Arc::new(AtomicU64::new(replay));
        let room = Arc::new(Room::new(&path));
        let database = Database { records, unclean, db, replay, room, _lock: lock.into() };
        if format.is_none() {
            // An interrupted creation leaves no records; a database with records is not ours.
            if !database.records.is_empty().map_err(|error| fail(error.to_string()))? {
                return Err(Error::Format { path: dir.to_path_buf(), found: "none".into(), known: FORMAT });
            }
            write_format(dir).map_err(|error| fail(error.to_string()))?;
        }
        Ok(database)
    }
}

/// Takes the lock of the directory; tries for up to [`LOCK_WAIT_MAX`]. A process that ends gives up its burst buffer a
/// moment before it has closed its catalogue.
fn lock(dir: &Path) -> Result<File, String> {
    let path = dir.join("LOCK");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(|e| e.to_string())?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_WAIT_MAX => concurrency::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => return Err("another process has it open".into()),
            Err(TryLockError::Error(error)) => return Err(error.to_string()),
        }
    }
}

fn read_format(dir: &Path) -> Result<Option<()>, Error> {
    let path = dir.join("FORMAT");
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::Open { path, reason: error.to_string() }),
    };
    let text = String::from_utf8_lossy(&bytes);
    let found = text.trim_end().strip_prefix(FORMAT_PREFIX).unwrap_or("unreadable");
    if found == FORMAT.to_string() {
        return Ok(Some(()));
    }
    let found = found.chars().take(32).collect();
    Err(Error::Format { path: dir.to_path_buf(), found, known: FORMAT })
}

fn write_format(dir: &Path) -> io::Result<()> {
    replace(&dir.join("FORMAT"), format!("{FORMAT_PREFIX}{FORMAT}\n").as_bytes(), Durability::SyncedName, 0o644)
}

/// Creates the database under another name and renames it: an interrupted creation must not look like a database.
fn create(dir: &Path) -> io::Result<()> {
    let new = dir.join("db.new");
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    drop(open_fjall(&new).map_err(io::Error::other)?);
    let directory = File::open(dir)?;
    rustix::fs::syncfs(&directory)?;
    fs::rename(&new, dir.join("db"))?;
    directory.sync_all()?;
    // Sync the directory's own name.
    match dir.canonicalize()?.parent() {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

fn open_fjall(path: &Path) -> fjall::Result<(fjall::Database, Keyspace, Keyspace)> {
    let db = fjall::Database::builder(path)
        .cache_size(CACHE_BYTES)
        .max_cached_files(Some(OPEN_TABLES_MAX))
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .worker_threads(WORKERS)
        .manual_journal_persist(true)
        .open()?;
    let options = |memtable| {
        KeyspaceCreateOptions::default()
            .max_memtable_size(memtable)
            .manual_journal_persist(true)
            // Pinned blocks live outside the cache and grow with the number of records.
            .filter_block_pinning_policy(PinningPolicy::all(false))
            .index_block_pinning_policy(PinningPolicy::all(false))
            // Partitions of a block's size: a lookup must not read the whole filter and index of a table.
            .filter_block_partitioning_policy(PartitioningPolicy::all(true))
            .index_block_partitioning_policy(PartitioningPolicy::all(true))
            .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES)))
            // Records are small and mostly numbers.
            .data_block_compression_policy(CompressionPolicy::all(fjall::CompressionType::Lz4))
    };
    let records = db.keyspace("records", || options(MEMTABLE_BYTES))?;
    let unclean = db.keyspace("unclean", || options(UNCLEAN_MEMTABLE_BYTES))?;
    Ok((db, records, unclean))
}
