//! The server's machine: files in memory, of which a crash loses what was not synced. A process that has died reaches
//! them no more, whatever its threads still do.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Mutex, below};
use config::{Atime, Policy};
use data_store::{
    CommandOutcome, DataStore, DataVersion, DrainProgress, Extensions, FileChange, FileState, Foresee, InPlace,
    InPlaceAs, LocalIndex, NewTime, OpenData, OpenHow, Overlay, Passthrough, SeekFor, Status, StatusScope,
    StoreCommand, StoreObserver, StoreStatus, Stuck, SyncScope, WriteResult, WriteWhere,
};
use global_store::{Access, Anchor, StoreAttributes, StoreFile};
use types::{ByteRange, Fingerprint, Identity, Timestamp};

use crate::oracle::Oracle;

/// Bytes of a write: its number.
pub const BYTES: u64 = 8;
/// Most time of one operation, microseconds: mostly, and of one in so many.
const WORK_US: usize = 500;
const WORK_LONG_US: usize = 100_000;
const LONG: usize = 10;

fn works() {
    concurrency::sleep(Duration::from_micros(below(if below(LONG) == 0 { WORK_LONG_US } else { WORK_US }) as u64));
}

fn fails<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

/// Where a write went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A place of its program's own, in which later writes have higher numbers.
    Slot(u64),
    End,
}

#[derive(Default, Clone)]
struct Bytes {
    slots: BTreeMap<u64, u64>,
    appended: Vec<u64>,
}

impl Bytes {
    fn has(&self, place: Place, id: u64) -> bool {
        match place {
            Place::Slot(offset) => self.slots.get(&offset).is_some_and(|there| *there >= id),
            Place::End => self.appended.contains(&id),
        }
    }
}

#[derive(Default)]
struct Content {
    now: Bytes,
    durable: Bytes,
}

#[derive(Default)]
struct State {
    /// Process that runs; 0: none.
    process: u64,
    contents: BTreeMap<u8, Content>,
    /// Open files of each process.
    open: BTreeMap<u64, usize>,
    crashes: usize,
}

/// The machine.
pub struct Machine {
    state: Mutex<State>,
    /// Held during a change of the client recovery records, which a death does not interrupt.
    records: Mutex<()>,
    pub oracle: Arc<Oracle>,
}

impl Machine {
    pub fn new(oracle: Arc<Oracle>) -> Arc<Machine> {
        Arc::new(Machine { state: Mutex::default(), records: Mutex::default(), oracle })
    }

    /// Runs something as one step of a process. `None`: the process has died.
    pub fn step<T>(&self, process: u64, run: impl FnOnce() -> T) -> Option<T> {
        let state = self.state.lock();
        (state.process == process).then(run)
    }

    /// Changes the client recovery records. `None`: the process has died.
    pub fn records<T>(&self, process: u64, change: impl FnOnce() -> T) -> Option<T> {
        let _records = self.records.lock();
        let lives = self.state.lock().process == process;
        lives.then(change)
    }

    /// Ends the process. `crashes`: the machine goes down with it, and what was not synced is lost or not.
    pub fn dies(&self, crashes: bool) {
        let _records = self.records.lock();
        let mut state = self.state.lock();
        state.process = 0;
        if !crashes {
            return;
        }
        state.crashes += 1;
        for content in state.contents.values_mut() {
            let Content { now, durable } = content;
            // Slots that were not synced survive one by one, and appends up to one of them.
            for (offset, id) in &now.slots {
                if below(3) == 0 {
                    durable.slots.insert(*offset, *id);
                }
            }
            let kept = durable.appended.len() + below(now.appended.len() - durable.appended.len() + 1);
            durable.appended = now.appended[..kept].to_vec();
            *now = durable.clone();
        }
    }

    /// Begins a process.
    pub fn starts(&self, process: u64) {
        self.state.lock().process = process;
    }

    pub fn crashes(&self) -> usize {
        self.state.lock().crashes
    }

    /// Whether a write is on the medium, or a later one in its place.
    pub fn is_durable(&self, file: u8, place: Place, id: u64) -> bool {
        self.state.lock().contents.get(&file).is_some_and(|content| content.durable.has(place, id))
    }

    /// Number of files that are open in the living process.
    pub fn open_files(&self) -> usize {
        let state = self.state.lock();
        state.open.get(&state.process).copied().unwrap_or(0)
    }
}

/// The files as one process sees them.
#[derive(Clone)]
pub struct Disk {
    machine: Arc<Machine>,
    process: u64,
    versions: Arc<BTreeMap<u8, Arc<u8>>>,
}

impl Disk {
    pub fn new(machine: &Arc<Machine>, process: u64, files: u8) -> Disk {
        let versions = Arc::new((0..files).map(|file| (file, Arc::new(file))).collect());
        Disk { machine: Arc::clone(machine), process, versions }
    }

    fn step<T>(&self, run: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let mut state = self.machine.state.lock();
        if state.process == self.process { Ok(run(&mut state)) } else { fails(libc::EIO) }
    }

    /// Opens a file.
    pub fn open_file(&self, file: u8) -> io::Result<OpenOnDisk> {
        works();
        self.step(|state| *state.open.entry(self.process).or_default() += 1)?;
        Ok(OpenOnDisk { disk: self.clone(), file })
    }
}

/// A file open in one process.
pub struct OpenOnDisk {
    disk: Disk,
    pub file: u8,
}

impl OpenOnDisk {
    pub fn write(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult> {
        let Some(id) = data.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return fails(libc::EINVAL);
        };
        works();
        let oracle = &self.disk.machine.oracle;
        let offset = self.disk.step(|state| {
            let Bytes { slots, appended } = &mut state.contents.entry(self.file).or_default().now;
            let offset = match place {
                WriteWhere::At(offset) | WriteWhere::Backdated(offset, _) => {
                    let former = slots.insert(offset, id).filter(|former| *former > id);
                    if let Some(former) = former {
                        oracle.violated(format!("{id:x} was written over {former:x}, which is later"));
                    }
                    offset
                }
                WriteWhere::EndAgain(_) if appended.contains(&id) => appended.len() as u64 * BYTES,
                WriteWhere::End | WriteWhere::EndAgain(_) => {
                    if appended.contains(&id) {
                        oracle.violated(format!("{id:x} was appended twice"));
                    }
                    appended.push(id);
                    appended.len() as u64 * BYTES
                }
            };
            oracle.executed(id);
            offset
        })?;
        Ok(WriteResult { written: data.len(), offset })
    }

    pub fn sync_all(&self) -> io::Result<()> {
        works();
        self.disk.step(|state| {
            let content = state.contents.entry(self.file).or_default();
            content.durable = content.now.clone();
        })
    }
}

impl Drop for OpenOnDisk {
    fn drop(&mut self) {
        let process = self.disk.process;
        if let Some(open) = self.disk.machine.state.lock().open.get_mut(&process) {
            *open -= 1;
        }
    }
}

impl OpenData for OpenOnDisk {
    fn data(&self) -> DataVersion {
        let content = Arc::clone(&self.disk.versions[&self.file]);
        DataVersion { content, is_current: true, replica: None, steady: None }
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn read_in_place(&self, _: ByteRange, _: InPlaceAs) -> Option<InPlace> {
        None
    }

    fn read_ahead(&self, _: ByteRange, wanted: Option<u64>, _: Foresee<'_>) -> bool {
        wanted.is_none()
    }

    fn write_at(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult> {
        self.write(data, place)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        fails(libc::EOPNOTSUPP)
    }

    fn fallocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
        fails(libc::EOPNOTSUPP)
    }

    fn seek(&self, _: u64, _: SeekFor) -> io::Result<u64> {
        let appended = |state: &mut State| state.contents.entry(self.file).or_default().now.appended.len();
        Ok(self.disk.step(appended)? as u64 * BYTES)
    }

    fn sync(&self, _: SyncScope) -> io::Result<bool> {
        self.sync_all().map(|()| true)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        None
    }
}

impl DataStore for Disk {
    fn open(&self, anchor: Arc<dyn Anchor>, _: OpenHow, _: &dyn Fn() -> bool) -> io::Result<Box<dyn OpenData>> {
        Ok(Box::new(self.open_file(anchor.identity().as_bytes()[0])?))
    }

    fn set_len(&self, _: &Arc<dyn Anchor>, _: u64, _: &Arc<Policy>, _: &dyn Fn() -> bool) -> io::Result<()> {
        fails(libc::EOPNOTSUPP)
    }

    fn set_times(
        &self,
        _: &Arc<dyn Anchor>,
        _: [Option<NewTime>; 2],
        _: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        fails(libc::EOPNOTSUPP)
    }

    fn attributes(&self, _: &Identity, _: Option<&Fingerprint>) -> io::Result<Option<Overlay>> {
        Ok(None)
    }

    fn staged_count(&self) -> u64 {
        0
    }

    fn note(&self, _: &Identity, _: FileChange<'_>) {}

    fn state(&self, _: &Identity) -> FileState {
        FileState { dirty: false, ..FileState::default() }
    }

    fn command(&self, _: StoreCommand<'_>) -> io::Result<CommandOutcome> {
        Ok(CommandOutcome::Done)
    }

    fn drain(&self, _: Option<&Identity>, _: &mut dyn FnMut(DrainProgress), _: &dyn Fn() -> bool) -> Vec<Stuck> {
        Vec::new()
    }

    fn status(&self, _: StatusScope) -> StoreStatus {
        StoreStatus { counters: Ok(Status::default()), server: None }
    }

    fn notes_reads(&self, _: Atime) -> Result<(), String> {
        Ok(())
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { index: Some(self), ..Extensions::default() }
    }
}

impl LocalIndex for Disk {
    fn may_know(&self, _: &[u8]) -> bool {
        true
    }

    fn accessed(&self, _: &Identity, below: Timestamp) -> Timestamp {
        below
    }

    fn anchor_of_open(&self, identity: &Identity) -> Option<Arc<dyn Anchor>> {
        Some(Arc::new(OnlyIdentity(identity.clone())))
    }

    fn observe(&self, _: StoreObserver) {}
}

/// A file of which only the identity is known.
pub struct OnlyIdentity(pub Identity);

impl Anchor for OnlyIdentity {
    fn identity(&self) -> &Identity {
        &self.0
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        fails(libc::EOPNOTSUPP)
    }

    fn open(&self, _: Access) -> io::Result<Box<dyn StoreFile>> {
        fails(libc::EOPNOTSUPP)
    }

    fn path_hint(&self) -> PathBuf {
        PathBuf::new()
    }

    fn set_atime(&self, _: Timestamp) -> io::Result<()> {
        fails(libc::EOPNOTSUPP)
    }

    fn sync_name(&self) -> io::Result<()> {
        fails(libc::EOPNOTSUPP)
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn set_mark(&self, _: Option<&[u8]>) -> io::Result<()> {
        fails(libc::EOPNOTSUPP)
    }
}

/// Returns the identity of a file.
pub fn identity(file: u8) -> Identity {
    Identity::new(vec![file]).unwrap_or_else(|_| panic!("an identity of one byte"))
}
