//! Repair of the end of fjall's journal after a machine crash.
//!
//! The disk may have kept any of the pages written since the last sync and lost others. fjall cuts off an incomplete
//! end. But it refuses to open a journal in which a page is missing *inside* a batch, and it trusts the lengths found
//! there. So the newest journal is checked first; older ones were synced before the next began. Everything from the
//! first incomplete batch on is set aside, and fjall sees a clean end.
//!
//! A batch is: tag 1, item count (4), sequence number (8); items; tag 3, XXH3-64 of the items' bytes (8), magic. An
//! item is: tag 2, kind (1), compression (1), keyspace (8), key length (2), value length (4), stored length (4), key,
//! value; or tag 4, keyspace (8). All little endian.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// Name of the file that keeps the unreadable end of a journal.
pub(super) const TORN_END: &str = "torn-end";

/// Bytes of an item beside its key and value, approximately.
pub(super) const ITEM_BYTES: usize = 21;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const MAGIC: &[u8] = b"FJL\x03";

/// Truncates the newest journal of `database` at its first invalid batch and keeps the rest in a file in `aside`.
/// Returns the bytes of all journals that an opening must read again.
pub(super) fn set_torn_end_aside(database: &Path, aside: &Path) -> io::Result<u64> {
    let mut journals = journals(database)?;
    let Some((_, path)) = journals.pop() else { return Ok(0) };
    let older = journals.iter().map(|(_, path)| Ok(fs::metadata(path)?.len())).sum::<io::Result<u64>>()?;
    let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
    let whole = whole_bytes(&file)?;
    let end = last_byte(&mut file, whole)?;
    if end <= whole {
        // Only reserved space that was never used.
        return Ok(older + whole);
    }
    file.seek(SeekFrom::Start(whole))?;
    let mut kept = File::create(aside.join(TORN_END))?;
    io::copy(&mut (&file).take(end - whole), &mut kept)?;
    kept.sync_all()?;
    file.set_len(whole)?;
    file.sync_all()?;
    Ok(older + whole)
}

/// Replaces all journals by an empty one. All their content must be in tables, and nobody may have the database open. A
/// crash leaves the old journals, the new one or both. Old journals do no harm, because fjall skips what is in tables.
pub(super) fn renew(database: &Path) -> io::Result<()> {
    let journals = journals(database)?;
    let Some((number, _)) = journals.last() else { return Ok(()) };
    let directory = File::open(database)?;
    File::create_new(database.join(format!("{}.jnl", number + 1)))?.sync_all()?;
    directory.sync_all()?;
    journals.iter().try_for_each(|(_, path)| fs::remove_file(path))?;
    // No old journal may come back once the new one holds later changes.
    directory.sync_all()
}

/// Returns the offset one past the last non-zero byte at or after `from`.
fn last_byte(file: &mut File, from: u64) -> io::Result<u64> {
    let mut chunk = vec![0; 1 << 16];
    let (mut at, mut end) = (from, from);
    loop {
        // The reserved space is a hole. On a file system that cannot report holes it is read.
        match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = data,
            Err(rustix::io::Errno::NXIO) => return Ok(end),
            Err(_) => drop(file.seek(SeekFrom::Start(at))?),
        }
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(end);
        }
        if let Some(last) = chunk[..count].iter().rposition(|&byte| byte != 0) {
            end = at + last as u64 + 1;
        }
        at += count as u64;
    }
}

/// Returns number and path of all journals, the newest last.
pub(super) fn journals(database: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(database)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl"));
        if let Some(number) = name.and_then(|name| name.parse::<u64>().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns how many bytes from the start are complete batches.
fn whole_bytes(file: &File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let mut journal = Journal { reader: BufReader::with_capacity(1 << 16, file), at: 0, len, buffer: Vec::new() };
    loop {
        let start = journal.at;
        match journal.batch() {
            Ok(true) => {}
            Ok(false) => return Ok(start),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(start),
            Err(error) => return Err(error),
        }
    }
}

struct Journal<'a> {
    reader: BufReader<&'a File>,
    at: u64,
    len: u64,
    buffer: Vec<u8>,
}

impl Journal<'_> {
    /// Reads `count` more bytes into the buffer and returns them.
    fn more(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.at + count as u64 > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let start = self.buffer.len();
        self.buffer.resize(start + count, 0);
        self.reader.read_exact(&mut self.buffer[start..])?;
        self.at += count as u64;
        Ok(&self.buffer[start..])
    }

    /// Reads a batch and returns whether it is complete.
    fn batch(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        let head = self.more(13)?;
        if head[0] != START {
            return Ok(false);
        }
        let items = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        let mut sum = Xxh3::new();
        for _ in 0..items {
            self.buffer.clear();
            if !self.item()? {
                return Ok(false);
            }
            sum.update(&self.buffer);
        }
        self.buffer.clear();
        let end = self.more(9 + MAGIC.len())?;
        Ok(end[0] == END && end[1..9] == sum.digest().to_le_bytes() && &end[9..] == MAGIC)
    }

    fn item(&mut self) -> io::Result<bool> {
        match self.more(1)? {
            [ITEM] => {
                let head = self.more(20)?;
                // Kinds: value, tombstone, weak tombstone, indirection. Compression: none, lz4.
                let plausible = head[0] <= 4 && head[1] <= 1;
                let key = u16::from_le_bytes([head[10], head[11]]);
                let stored = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
                if plausible {
                    self.more(key as usize)?;
                    self.more(stored as usize)?;
                }
                Ok(plausible)
            }
            [CLEAR] => self.more(8).map(|_| true),
            _ => Ok(false),
        }
    }
}
