//! The pack of one tree: a segment store with the content of its small files, made with the first of them.
//!
//! An object has the number of the local file that it was copied from. So whoever finds one of both knows the other.

use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use concurrency::RwLock;
use durable::sync_directory;
use rustix::io::Errno;
use segments::{CompactionStep, Object, ObjectKey, SegmentError, SegmentSettings, SegmentStore};
use types::{Step, reported};

use super::directory::name_of;
use super::limits::{COMPACTED_AT_ONCE, PACK_SEGMENT_BYTES};

/// The pack of one tree, which may not be there yet.
pub(crate) struct Packs {
    path: PathBuf,
    state: RwLock<State>,
    /// Objects that are about to be removed.
    pub(super) dropping: AtomicU64,
    /// Whether objects were removed since the pack was tidied.
    pub(super) has_dead: AtomicBool,
}

enum State {
    /// Nothing was packed yet.
    None,
    Open(Arc<SegmentStore>),
    /// The tree is not used any more.
    Closed,
}

fn key(number: u64) -> ObjectKey {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    ObjectKey(key)
}

fn number_of(key: &ObjectKey) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| key.0[at]))
}

fn told(error: SegmentError) -> io::Error {
    reported(error.errno(), &error.to_string())
}

fn open(path: &Path) -> io::Result<Arc<SegmentStore>> {
    let settings = SegmentSettings { segment_bytes: PACK_SEGMENT_BYTES, ..SegmentSettings::default() };
    let store = SegmentStore::open(path, settings).map_err(told)?;
    // What else is damaged was never acknowledged, or a node misses it.
    for segment in &store.opening().unreadable {
        tracing::error!(segment = %segment.display(), "a segment with small files cannot be read");
    }
    Ok(Arc::new(store))
}

impl Packs {
    /// Opens the pack in a directory, if it is there.
    pub fn open(path: PathBuf) -> io::Result<Packs> {
        let state = if path.try_exists()? { State::Open(open(&path)?) } else { State::None };
        Ok(Packs { path, state: RwLock::new(state), dropping: AtomicU64::new(0), has_dead: AtomicBool::new(false) })
    }

    fn store(&self) -> Option<Arc<SegmentStore>> {
        match &*self.state.read() {
            State::Open(store) => Some(Arc::clone(store)),
            State::None | State::Closed => None,
        }
    }

    fn store_or_new(&self) -> io::Result<Arc<SegmentStore>> {
        if let Some(store) = self.store() {
            return Ok(store);
        }
        let mut state = self.state.write();
        match &*state {
            State::Open(store) => return Ok(Arc::clone(store)),
            State::Closed => return Err(Errno::STALE.into()),
            State::None => {}
        }
        let store = open(&self.path)?;
        // The store makes names in its directory durable, and not its own.
        self.path.parent().map_or(Ok(()), sync_directory).step("sync the directory of a delegated tree")?;
        *state = State::Open(Arc::clone(&store));
        Ok(store)
    }

    /// Puts the first `size` bytes of a local file. They survive the death of the agent then.
    pub fn put(&self, number: u64, file: BorrowedFd<'_>, size: u64) -> io::Result<()> {
        self.store_or_new()?.put_file(key(number), file, size).map_err(told)
    }

    /// Finds an object.
    pub fn find(&self, number: u64) -> Option<PackedFile> {
        let object = self.store()?.get(&key(number))?;
        Some(PackedFile { number, object })
    }

    /// Returns the content of an object. Errors: `EIO` if it is not there, or not as it was put.
    pub fn bytes(&self, number: u64) -> io::Result<Vec<u8>> {
        self.find(number).ok_or(Errno::IO)?.bytes()
    }

    /// Removes an object of which nobody will ask any more.
    pub fn remove(&self, number: u64) {
        self.store().iter().for_each(|store| _ = store.remove(&key(number)));
        self.has_dead.store(true, Ordering::Release);
    }

    /// Removes all objects but these. Returns how many.
    pub fn retain(&self, numbers: &HashSet<u64>) -> usize {
        let mut removed = 0;
        if let Some(store) = self.store() {
            store.retain(|key| {
                let stays = numbers.contains(&number_of(key));
                removed += usize::from(!stays);
                stays
            });
        }
        removed
    }

    /// Saves all objects in a directory as files that are named by their numbers, as local files are.
    pub fn save_all(&self, to: &Path) -> io::Result<()> {
        let (Some(store), mut keys) = (self.store(), Vec::new()) else { return Ok(()) };
        store.retain(|key| {
            keys.push(*key);
            true
        });
        for number in keys.iter().map(number_of) {
            std::fs::write(to.join(name_of(number)), self.bytes(number)?)?;
        }
        rustix::fs::syncfs(std::fs::File::open(to)?)?;
        Ok(())
    }

    /// Makes all objects survive a crash of the machine.
    pub fn sync(&self) -> io::Result<()> {
        self.store().map_or(Ok(()), |store| store.sync().map_err(told))
    }

    /// Number of objects that have the data of a node.
    pub fn len(&self) -> u64 {
        let objects = self.store().map_or(0, |store| store.usage().objects);
        objects.saturating_sub(self.dropping.load(Ordering::Relaxed))
    }

    /// Gives back the room that dead objects take, up to a bound. Returns whether more is to be done.
    pub fn compact(&self) -> io::Result<bool> {
        let Some(store) = self.store() else { return Ok(false) };
        for _ in 0..COMPACTED_AT_ONCE {
            match store.compact_step().map_err(told)? {
                CompactionStep::Nothing => return Ok(false),
                CompactionStep::Rewritten { damaged, .. } | CompactionStep::NotSealed { damaged } => {
                    for object in damaged {
                        let (reason, path) = (object.reason, object.path.display());
                        tracing::error!(number = number_of(&object.key), %path, reason, "a packed file is damaged");
                    }
                }
                CompactionStep::Sealed { .. } => {}
            }
        }
        Ok(true)
    }

    /// Gives back room that was reserved for more objects, and leaves all ready for a fast opening.
    pub fn trim(&self) -> io::Result<()> {
        self.store().map_or(Ok(()), |store| store.close().map_err(told))
    }

    /// Ends the use of the pack.
    pub fn close(&self) {
        *self.state.write() = State::Closed;
    }
}

/// Place from which an open file is read.
pub(super) enum Source {
    /// The local file.
    Local(Arc<OwnedFd>),
    /// The pack.
    Packed(PackedFile),
}

/// Content of one file in a pack. It can be read as long as this lives.
#[derive(Clone)]
pub(crate) struct PackedFile {
    pub number: u64,
    object: Object,
}

impl PackedFile {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.object.len()
    }

    /// Reads bytes from `offset` on, fewer only at the end.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.object.read_at(buffer, offset).map_err(told)
    }

    /// Returns all bytes. Errors: also `EIO` if they are not those that were put.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        self.object.read_verified().map_err(told)
    }
}
