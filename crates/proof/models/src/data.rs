//! A data store in memory.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::Mutex;
use config::{Atime, Policy};
use data_store::{
    ChangeObserver, CommandOutcome, DataStore, DataVersion, DrainProgress, Extensions, FileChange, FileState, Foresee,
    InPlace, InPlaceAs, LocalIndex, NewTime, OpenData, OpenHow, Overlay, Passthrough, Residency, SeekFor, Status,
    StatusScope, StoreCommand, StoreObserver, StoreStatus, Stuck, SyncScope, WriteResult, WriteWhere,
};
use global_store::{Access, Anchor, now_of_files};
use types::{ByteRange, Fingerprint, Identity, Timestamp};

/// A data store that keeps each opened file in memory until it is drained.
#[derive(Default, Clone)]
pub struct MemoryDataStore(Arc<Shared>);

#[derive(Default)]
struct Shared {
    files: Mutex<HashMap<Identity, Arc<MemoryFile>>>,
    staged_count: AtomicU64,
    changes: Mutex<Option<ChangeObserver>>,
}

struct MemoryFile {
    anchor: Arc<dyn Anchor>,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    dirty: bool,
    unlinked: bool,
    handles: u32,
    mtime: Timestamp,
}

struct MemoryHandle {
    store: MemoryDataStore,
    file: Arc<MemoryFile>,
    write: bool,
    mark: u64,
}

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

impl MemoryDataStore {
    fn file(&self, anchor: &Arc<dyn Anchor>, truncate: bool) -> io::Result<Arc<MemoryFile>> {
        let mut files = self.0.files.lock();
        if let Some(file) = files.get(anchor.identity()) {
            return Ok(Arc::clone(file));
        }
        let mut content = Content::default();
        if !truncate {
            let found = anchor.attributes()?.fingerprint;
            content.bytes = vec![0; found.size as usize];
            content.mtime = found.mtime;
            let read = anchor.open(Access::Read)?.read_at(&mut content.bytes, 0)?;
            content.bytes.truncate(read);
        }
        let file = Arc::new(MemoryFile { anchor: Arc::clone(anchor), content: Mutex::new(content) });
        files.insert(anchor.identity().clone(), Arc::clone(&file));
        Ok(file)
    }

    fn known(&self, identity: &Identity) -> Option<Arc<MemoryFile>> {
        self.0.files.lock().get(identity).cloned()
    }

    /// Changes a file's content, and tells the observer.
    fn change<T>(&self, file: &MemoryFile, mark: u64, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let done = {
            let mut content = file.content.lock();
            (content.dirty, content.mtime) = (true, now_of_files());
            act(&mut content.bytes)
        };
        if let Some(tell) = self.0.changes.lock().as_ref() {
            tell(file.anchor.identity(), ByteRange::new(0, u64::MAX), mark);
        }
        done
    }

    fn stage_out(&self, file: &MemoryFile) -> io::Result<()> {
        let mut content = file.content.lock();
        if content.dirty && !content.unlinked {
            let global = file.anchor.open(Access::Write)?;
            global.set_len(content.bytes.len() as u64)?;
            global.write_at(&content.bytes, 0)?;
            global.set_mtime(content.mtime)?;
        }
        content.dirty = false;
        self.0.staged_count.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

impl DataStore for MemoryDataStore {
    fn open(&self, anchor: Arc<dyn Anchor>, how: OpenHow, _: &dyn Fn() -> bool) -> io::Result<Box<dyn OpenData>> {
        let file = self.file(&anchor, how.truncate || how.created)?;
        if how.truncate {
            self.change(&file, how.mark, Vec::clear);
        }
        file.content.lock().handles += 1;
        let write = how.write || how.truncate;
        Ok(Box::new(MemoryHandle { store: self.clone(), file, write, mark: how.mark }))
    }

    fn set_len(&self, anchor: &Arc<dyn Anchor>, len: u64, _: &Arc<Policy>, _: &dyn Fn() -> bool) -> io::Result<()> {
        let file = self.file(anchor, len == 0)?;
        self.change(&file, 0, |bytes| bytes.resize(len as usize, 0));
        Ok(())
    }

    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        [_, mtime]: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        apply()?;
        if let (Some(file), Some(mtime)) = (self.known(anchor.identity()), mtime) {
            file.content.lock().mtime = match mtime {
                NewTime::At(time) => time,
                NewTime::Now => now_of_files(),
            };
        }
        Ok(())
    }

    fn attributes(&self, identity: &Identity, _: Option<&Fingerprint>) -> io::Result<Option<Overlay>> {
        let Some(file) = self.known(identity) else { return Ok(None) };
        let content = file.content.lock();
        let (size, mtime) = (content.bytes.len() as u64, content.mtime);
        let overlay = Overlay { ahead: true, size, blocks: size.div_ceil(512), mtime, ctime: mtime, below: None };
        Ok(content.dirty.then_some(overlay))
    }

    fn staged_count(&self) -> u64 {
        self.0.staged_count.load(Ordering::Acquire)
    }

    fn note(&self, identity: &Identity, change: FileChange<'_>) {
        if let (FileChange::Unlinked, Some(file)) = (change, self.known(identity)) {
            file.content.lock().unlinked = true;
        }
    }

    fn state(&self, identity: &Identity) -> FileState {
        let Some(file) = self.known(identity) else { return FileState { dirty: false, ..FileState::default() } };
        let dirty = file.content.lock().dirty;
        let residency = if dirty { Residency::Dirty } else { Residency::Clean };
        FileState { residency, dirty, ..FileState::default() }
    }

    fn command(&self, command: StoreCommand<'_>) -> io::Result<CommandOutcome> {
        match command {
            StoreCommand::StageIn(anchor, _) => _ = self.file(anchor, false)?,
            StoreCommand::Evict(identity) => {
                if self.known(identity).is_some_and(|file| file.content.lock().handles > 0) {
                    return errno(libc::EBUSY);
                }
                if self.state(identity).dirty {
                    return errno(libc::EINVAL);
                }
                self.0.files.lock().remove(identity);
            }
            StoreCommand::SyncAll => {
                if !self.drain(None, &mut |_| {}, &|| false).is_empty() {
                    return errno(libc::EIO);
                }
            }
            StoreCommand::Shutdown | StoreCommand::ForgetClient(_) | StoreCommand::GiveBack(_) => {}
            _ => return errno(libc::EOPNOTSUPP),
        }
        Ok(CommandOutcome::Done)
    }

    fn drain(&self, identity: Option<&Identity>, _: &mut dyn FnMut(DrainProgress), _: &dyn Fn() -> bool) -> Vec<Stuck> {
        let files: Vec<_> = match identity {
            Some(identity) => self.known(identity).into_iter().collect(),
            None => self.0.files.lock().values().cloned().collect(),
        };
        let stuck = |(file, error): (Arc<MemoryFile>, io::Error)| Stuck {
            path_hint: file.anchor.path_hint(),
            identity: file.anchor.identity().clone(),
            state: Residency::Dirty,
            orphaned: false,
            reason: error.to_string(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            replica: "memory".into(),
        };
        files
            .into_iter()
            .filter_map(|file| Some((Arc::clone(&file), self.stage_out(&file).err()?)))
            .map(stuck)
            .collect()
    }

    fn status(&self, _: StatusScope) -> StoreStatus {
        let files = self.0.files.lock();
        let dirty = files.values().filter(|file| file.content.lock().dirty).count() as u64;
        StoreStatus { counters: Ok(Status { files: files.len() as u64, dirty, ..Status::default() }), server: None }
    }

    fn notes_reads(&self, atime: Atime) -> Result<(), String> {
        if atime == Atime::No { Ok(()) } else { Err("no reads are noted in memory".into()) }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { index: Some(self), ..Extensions::default() }
    }
}

impl LocalIndex for MemoryDataStore {
    fn may_know(&self, start: &[u8]) -> bool {
        self.0.files.lock().keys().any(|identity| identity.as_bytes().starts_with(start))
    }

    fn accessed(&self, _: &Identity, below: Timestamp) -> Timestamp {
        below
    }

    fn anchor_of_open(&self, identity: &Identity) -> Option<Arc<dyn Anchor>> {
        self.known(identity).filter(|file| file.content.lock().handles > 0).map(|file| Arc::clone(&file.anchor))
    }

    fn observe(&self, observer: StoreObserver) {
        if let StoreObserver::Changes(tell) = observer {
            self.0.changes.lock().get_or_insert(tell);
        }
    }
}

impl MemoryHandle {
    fn change<T>(&self, act: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        if self.write { Ok(self.store.change(&self.file, self.mark, act)) } else { errno(libc::EBADF) }
    }
}

impl OpenData for MemoryHandle {
    fn data(&self) -> DataVersion {
        let content = Arc::clone(&self.file) as Arc<dyn Any + Send + Sync>;
        DataVersion { content, is_current: true, replica: None, steady: None }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.file.content.lock();
        let rest = content.bytes.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn read_in_place(&self, _: ByteRange, _: InPlaceAs) -> Option<InPlace> {
        None
    }

    fn read_ahead(&self, _: ByteRange, wanted: Option<u64>, _: Foresee<'_>) -> bool {
        wanted.is_none()
    }

    fn write_at(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult> {
        self.change(|bytes| {
            let offset = match place {
                WriteWhere::At(offset) | WriteWhere::Backdated(offset, _) => offset as usize,
                WriteWhere::End | WriteWhere::EndAgain(_) => bytes.len(),
            };
            bytes.resize(bytes.len().max(offset + data.len()), 0);
            bytes[offset..offset + data.len()].copy_from_slice(data);
            WriteResult { written: data.len(), offset: offset as u64 }
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|bytes| bytes.resize(len as usize, 0))
    }

    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        match mode {
            0 => self.change(|bytes| bytes.resize(bytes.len().max((offset + len) as usize), 0)),
            _ => errno(libc::EOPNOTSUPP),
        }
    }

    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        let size = self.file.content.lock().bytes.len() as u64;
        match what {
            SeekFor::End => Ok(size),
            _ if offset >= size => errno(libc::ENXIO),
            SeekFor::Data => Ok(offset),
            SeekFor::Hole => Ok(size),
        }
    }

    fn sync(&self, scope: SyncScope) -> io::Result<bool> {
        match scope {
            SyncScope::IfKept => return Ok(false),
            SyncScope::LossOnly => {}
            _ => self.store.stage_out(&self.file)?,
        }
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        None
    }
}

impl Drop for MemoryHandle {
    fn drop(&mut self) {
        let mut content = self.file.content.lock();
        content.handles -= 1;
        if content.unlinked && content.handles == 0 {
            drop(content);
            self.store.0.files.lock().remove(self.file.anchor.identity());
        }
    }
}
