//! A directory in memory that crashes and fails on demand.
//!
//! A crash keeps what was synced. Of the rest it keeps some sectors, some lengths and some names, as a seed decides.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::io::Errno;
use testkit::Random;

use crate::medium::{SegmentDirectory, SegmentFile};

const SECTOR: usize = 512;

/// Operations that a failure may be planted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Allocate,
    Write,
    Truncate,
    Sync,
    SyncNames,
    Remove,
    Read,
}

/// A failure that is planted.
struct Planted {
    error: Errno,
    operations: Vec<Operation>,
    /// Operations that pass before it.
    pass: u64,
    /// Operations that fail then.
    fail: u64,
}

/// A look at the directory as a crash within an operation would leave it.
#[derive(Default)]
struct Look {
    /// Operations before it; `None` if nobody wants one.
    pass: Option<u64>,
    random: u64,
    taken: Option<SimulatedMedium>,
}

#[derive(Default)]
struct Faults {
    planted: Mutex<Option<Planted>>,
    /// Whether the planted failure was met.
    met: Mutex<bool>,
}

impl Faults {
    fn check(&self, operation: Operation) -> io::Result<()> {
        let mut planted = self.planted.lock();
        let Some(fault) = planted.as_mut().filter(|fault| fault.operations.contains(&operation)) else { return Ok(()) };
        if fault.pass > 0 {
            fault.pass -= 1;
            return Ok(());
        }
        let error = fault.error;
        fault.fail -= 1;
        if fault.fail == 0 {
            *planted = None;
        }
        *self.met.lock() = true;
        Err(error.into())
    }
}

type Names = BTreeMap<String, Arc<SimulatedFile>>;

struct Directory {
    now: Mutex<Names>,
    durable: Mutex<Names>,
    faults: Faults,
    look: Mutex<Look>,
    allocates: bool,
}

#[derive(Clone)]
pub struct SimulatedMedium(Arc<Directory>);

struct SimulatedFile {
    content: Mutex<Content>,
    directory: Weak<Directory>,
}

#[derive(Default, Clone)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that differ, perhaps.
    dirty: BTreeSet<usize>,
}

impl SimulatedMedium {
    pub fn new() -> SimulatedMedium {
        SimulatedMedium::of(Names::new(), true)
    }

    /// Returns a directory of a file system that cannot allocate blocks.
    pub fn without_allocation() -> SimulatedMedium {
        SimulatedMedium::of(Names::new(), false)
    }

    fn of(names: Names, allocates: bool) -> SimulatedMedium {
        let (now, durable) = (Mutex::new(names.clone()), Mutex::new(names));
        let (faults, look) = Default::default();
        SimulatedMedium(Arc::new(Directory { now, durable, faults, look, allocates }))
    }

    /// Makes operations fail: after `pass` of these, the next `fail`.
    pub fn plant(&self, error: Errno, operations: &[Operation], pass: u64, fail: u64) {
        *self.0.faults.planted.lock() = Some(Planted { error, operations: operations.to_vec(), pass, fail });
        *self.0.faults.met.lock() = false;
    }

    /// Ends the failures. Returns whether one was met.
    pub fn heal(&self) -> bool {
        *self.0.faults.planted.lock() = None;
        *self.0.faults.met.lock()
    }

    /// Returns the directory as the medium has it after a crash of the machine.
    pub fn crash(&self, random: &mut Random) -> SimulatedMedium {
        let (now, durable) = (self.0.now.lock(), self.0.durable.lock());
        let all: BTreeSet<&String> = now.keys().chain(durable.keys()).collect();
        let copy = SimulatedMedium::of(Names::new(), self.0.allocates);
        let mut names = Names::new();
        for name in all {
            let file = match (now.get(name), durable.get(name)) {
                (Some(file), Some(_)) => file,
                // A creation or a removal that was not synced.
                (Some(file), None) | (None, Some(file)) if random.below(2) == 0 => file,
                _ => continue,
            };
            let bytes = file.content.lock().crash(random);
            names.insert(name.clone(), SimulatedFile::of(bytes, &copy.0));
        }
        (*copy.0.now.lock(), *copy.0.durable.lock()) = (names.clone(), names);
        drop((now, durable));
        copy
    }

    /// Wants a look at the directory as a crash after so many more operations would leave it.
    pub fn look_after(&self, operations: u64, random: u64) {
        *self.0.look.lock() = Look { pass: Some(operations), random, taken: None };
    }

    pub fn is_looked_for(&self) -> bool {
        self.0.look.lock().pass.is_some()
    }

    /// Returns what that look has seen, if it was taken.
    pub fn look(&self) -> Option<SimulatedMedium> {
        self.0.look.lock().taken.take()
    }

    /// Returns the directory as a crash leaves it that loses all that was not synced.
    pub fn worst_crash(&self) -> SimulatedMedium {
        let copy = SimulatedMedium::of(Names::new(), self.0.allocates);
        for (name, file) in self.0.durable.lock().iter() {
            copy.set(name, file.content.lock().durable.clone());
        }
        copy
    }

    /// Returns a copy of the directory as it is now, as the death of the process leaves it, all of it durable.
    pub fn copy(&self) -> SimulatedMedium {
        let copy = SimulatedMedium::of(Names::new(), self.0.allocates);
        for (name, file) in self.0.now.lock().iter() {
            copy.set(name, file.content.lock().now.clone());
        }
        copy
    }

    /// Returns the names and the content of all files.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.0.now.lock().iter().map(|(name, file)| (name.clone(), file.content.lock().now.clone())).collect()
    }

    /// Replaces the content of a file, or makes it.
    pub fn set(&self, name: &str, bytes: Vec<u8>) {
        let file = SimulatedFile::of(bytes, &self.0);
        self.0.now.lock().insert(name.to_owned(), file.clone());
        self.0.durable.lock().insert(name.to_owned(), file);
    }
}

impl SimulatedFile {
    fn of(bytes: Vec<u8>, directory: &Arc<Directory>) -> Arc<SimulatedFile> {
        let content = Mutex::new(Content { durable: bytes.clone(), now: bytes, dirty: BTreeSet::new() });
        Arc::new(SimulatedFile { content, directory: Arc::downgrade(directory) })
    }
}

impl SimulatedFile {
    /// Begins an operation. A file outlives its directory in handles alone, which nothing fails.
    fn check(&self, operation: Operation) -> io::Result<()> {
        self.directory.upgrade().map_or(Ok(()), |directory| directory.check(operation))
    }
}

impl Directory {
    /// Begins an operation: takes a look if one is wanted, and fails if that is planted.
    fn check(self: &Arc<Self>, operation: Operation) -> io::Result<()> {
        let mut look = self.look.lock();
        if operation != Operation::Read
            && let Some(pass) = &mut look.pass
        {
            if *pass == 0 {
                look.pass = None;
                look.taken = Some(SimulatedMedium(self.clone()).crash(&mut Random(look.random)));
            } else {
                *pass -= 1;
            }
        }
        drop(look);
        self.faults.check(operation)
    }
}

impl Content {
    /// Bytes on the medium after a crash.
    fn crash(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let len = if random.below(2) == 0 { self.now.len() } else { self.durable.len() };
        bytes.resize(len, 0);
        // Some crashes lose all that was not synced, some nothing, and most something.
        let kept = random.below(5);
        for sector in &self.dirty {
            if random.below(4) < kept {
                let (start, end) = (sector * SECTOR, ((sector + 1) * SECTOR).min(len).min(self.now.len()));
                if start < end {
                    bytes[start..end].copy_from_slice(&self.now[start..end]);
                }
            }
        }
        bytes
    }

    fn write(&mut self, bytes: &[u8], at: usize) {
        if bytes.is_empty() {
            return;
        }
        self.resize(self.now.len().max(at + bytes.len()));
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        self.dirty.extend(at / SECTOR..=(at + bytes.len() - 1) / SECTOR);
    }

    fn resize(&mut self, len: usize) {
        let former = self.now.len();
        self.now.resize(len, 0);
        let (low, high) = (former.min(len), former.max(len));
        self.dirty.extend(low / SECTOR..high.div_ceil(SECTOR));
    }
}

impl SegmentDirectory for SimulatedMedium {
    fn path(&self) -> &Path {
        Path::new("simulated")
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.now.lock().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        self.0.check(Operation::Create)?;
        let mut now = self.0.now.lock();
        if now.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        let file = SimulatedFile::of(Vec::new(), &self.0);
        now.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        let file = self.0.now.lock().get(name).cloned();
        file.map(|file| file as Arc<dyn SegmentFile>).ok_or(Errno::NOENT.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.check(Operation::Remove)?;
        self.0.now.lock().remove(name).map(drop).ok_or(Errno::NOENT.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut now = self.0.now.lock();
        let file = now.remove(from).ok_or(Errno::NOENT)?;
        now.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.check(Operation::SyncNames)?;
        *self.0.durable.lock() = self.0.now.lock().clone();
        Ok(())
    }
}

impl SegmentFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check(Operation::Read)?;
        let content = self.content.lock();
        let from = content.now.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(buffer.len());
        buffer[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, head: &[u8], body: &[u8], offset: u64) -> io::Result<()> {
        let checked = self.check(Operation::Write);
        let bytes = [head, body].concat();
        // A write that fails has written a part.
        let count = if checked.is_ok() { bytes.len() } else { bytes.len() * 3 / 4 };
        self.content.lock().write(&bytes[..count], offset as usize);
        checked
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        if self.directory.upgrade().is_some_and(|directory| !directory.allocates) {
            return Ok(false);
        }
        self.check(Operation::Allocate)?;
        let mut content = self.content.lock();
        let len = content.now.len().max(bytes as usize);
        content.resize(len);
        Ok(true)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.check(Operation::Truncate)?;
        self.content.lock().resize(bytes as usize);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().now.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let checked = self.check(Operation::Sync);
        let mut content = self.content.lock();
        // As the kernel does, a sync that fails takes the pages for clean all the same.
        let dirty = std::mem::take(&mut content.dirty);
        if checked.is_ok() {
            let Content { now, durable, .. } = &mut *content;
            durable.resize(now.len(), 0);
            for sector in dirty {
                let (start, end) = (sector * SECTOR, ((sector + 1) * SECTOR).min(now.len()));
                if start < end {
                    durable[start..end].copy_from_slice(&now[start..end]);
                }
            }
        }
        checked
    }
}
