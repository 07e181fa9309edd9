//! Bytes between local files and the global store, holes as holes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use data_store::OpenHow;
use delegation::{Contents, DataPlace, NodeNumber};
use global_store::{Access, StoreFile};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use types::{ByteRange, Step};

use super::directory::{LocalDirectory, LocalFile, UNWRITTEN, times_with};
use super::limits::{COPY_BYTES, WITHOUT_HOLES_BYTES};
use super::node::Place;
use super::packs::Source;
use super::{Shared, TreeHandle};

/// The bytes of a tree's files for the global store.
pub(super) struct LocalContents(pub Arc<Shared>);

impl Contents for LocalContents {
    fn write(&self, node: NodeNumber, _: DataPlace, into: &dyn StoreFile) -> io::Result<()> {
        let how = OpenHow { read: true, ..OpenHow::default() };
        let handle = TreeHandle::open(&self.0, node, &how, &|| false)?;
        // A write that is not noted yet may be missing in the copy.
        handle.open.using.lock().copied = true;
        match handle.open.source(self.0.place())? {
            Source::Local(fd) => copy_out(&fd, into),
            Source::Packed(packed) => write_out(&packed.bytes()?, into),
        }
    }
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_full(fd: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(&fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Writes all of `data`.
pub(super) fn write_full(fd: impl AsFd, data: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(&fd, &data[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the first data at or after `from`, which ends before `end`; `None` if only a hole follows.
fn next_data(fd: impl AsFd, from: u64, end: u64) -> io::Result<Option<ByteRange>> {
    let start = match rustix::fs::seek(&fd, SeekFrom::Data(from)) {
        Ok(start) if start < end => start,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stop = match rustix::fs::seek(&fd, SeekFrom::Hole(start)) {
        Ok(stop) => stop.min(end),
        Err(Errno::NXIO) => end,
        Err(error) => return Err(error.into()),
    };
    Ok(Some(ByteRange::new(start, stop)))
}

/// Splits a range into pieces that are copied at once.
fn pieces(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let starts = (range.start..range.end).step_by(COPY_BYTES as usize);
    starts.map(move |start| ByteRange::new(start, range.end.min(start + COPY_BYTES)))
}

/// Copies a whole local file to the global store. Whatever the store's file has elsewhere is punched or cut off.
fn copy_out(fd: &OwnedFd, into: &dyn StoreFile) -> io::Result<()> {
    let size = rustix::fs::fstat(fd)?.st_size as u64;
    let before = into.attributes()?.fingerprint.size;
    let (mut buffer, mut at) = (Vec::new(), 0);
    while at < size {
        let data = next_data(fd, at, size)?.unwrap_or(ByteRange::new(size, size));
        let hole = ByteRange::new(at, data.start).intersection(&ByteRange::new(0, before));
        if !hole.is_empty() {
            into.punch(hole).step("punch a hole in the global store")?;
        }
        for piece in pieces(data) {
            buffer.resize(piece.len() as usize, 0);
            let read = read_full(fd, &mut buffer, piece.start).step("read the local file")?;
            into.write_at(&buffer[..read], piece.start)?;
        }
        at = data.end;
    }
    if into.attributes()?.fingerprint.size != size {
        into.set_len(size)?;
    }
    Ok(())
}

/// Writes the whole content of a file of the global store.
fn write_out(bytes: &[u8], into: &dyn StoreFile) -> io::Result<()> {
    if !bytes.is_empty() {
        into.write_at(bytes, 0)?;
    }
    if into.attributes()?.fingerprint.size != bytes.len() as u64 {
        into.set_len(bytes.len() as u64)?;
    }
    Ok(())
}

/// Ends a copy into a local file, durably: the log's record may become durable at any time, and what was copied may be gone then.
/// Calls `copied` before the sync.
pub(super) fn end_copy(directory: &LocalDirectory, fd: &OwnedFd, copied: impl FnOnce()) -> io::Result<()> {
    rustix::fs::futimens(fd, &times_with(UNWRITTEN))?;
    copied();
    rustix::fs::fdatasync(fd).map_err(io::Error::from).step("sync the local file")?;
    directory.sync_names()
}

/// Copies a file that only the global store has into a new local one, of which the log knows nothing yet. Returns that one, durable.
pub(super) fn copy_in(
    Place { tree, directory }: Place<'_>,
    node: NodeNumber,
    size: u64,
    interrupted: &dyn Fn() -> bool,
) -> io::Result<LocalFile> {
    let inode = tree.inode(node).ok_or(Errno::NOENT)?;
    let from = tree.anchor(&inode)?.open(Access::Read).step("open the file in the global store")?;
    let file = directory.take()?;
    let copied = directory.open_file(file.number).and_then(|fd| {
        copy_from(&*from, &fd, size, interrupted)?;
        end_copy(directory, &fd, || {})
    });
    if let Err(error) = copied {
        directory.remove(file.number);
        return Err(error);
    }
    Ok(file)
}

fn copy_from(from: &dyn StoreFile, into: &OwnedFd, size: u64, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
    rustix::fs::ftruncate(into, size)?;
    let (mut buffer, mut at) = (Vec::new(), 0);
    // The question for holes costs as much as reading a small file.
    let is_whole = size <= WITHOUT_HOLES_BYTES;
    while at < size {
        let next = if is_whole { Some(ByteRange::new(at, size)) } else { from.next_data(at)? };
        let Some(data) = next.filter(|data| data.start < size) else { break };
        for piece in pieces(ByteRange::new(data.start.max(at), data.end.min(size))) {
            if interrupted() {
                return Err(Errno::INTR.into());
            }
            buffer.resize(piece.len() as usize, 0);
            let read = from.read_at(&mut buffer, piece.start).step("read the file in the global store")?;
            write_full(into, &buffer[..read], piece.start).step("write the local file")?;
        }
        at = data.end.max(at + 1);
    }
    Ok(())
}
