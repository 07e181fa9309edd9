//! A test replica that records the order of events, and rings without an agent, with the program's side of them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use file_cache::{Backdating, SeekFor, WriteResult};
use parking_lot::Mutex;
use testkit::Random;
use types::{Identity, Timestamp, Version};
use window::drained::Drained;
use window::ring::Writer;
use window::sequence::Sequence;
use window::{Gather, Mapping, WindowMedium};

use super::super::budget::WindowBudget;
use super::super::counters::WindowCounters;
use super::super::drain::{Drain, Granted};
use super::super::session::AgentRun;
use crate::burst_buffer::{DataVersion, OpenData};

/// An event at the replica, with the position of the applied mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Bytes written straight from rings.
    Written(u64),
    /// Bytes written from a copy.
    Copied(u64),
    Synced(u64),
}

/// A replica with simulated faults.
pub(super) struct Recorder {
    mark: std::path::PathBuf,
    pub replica: File,
    pub events: Mutex<Vec<Event>>,
    /// Whether syncs fail.
    pub full: Mutex<bool>,
    /// Whether writes fail after any part of them was written.
    pub gone: Mutex<bool>,
    /// Time of the last write in each batch.
    pub dated: Mutex<Vec<Timestamp>>,
    /// Number of times that the machine will crash before a sync.
    pub crashes: Mutex<u64>,
    /// Source of random failures of writes straight from rings, after any part was written.
    pub fails: Mutex<Option<Random>>,
    /// Callback before each write straight from rings.
    pub before: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// Whether the replica is behind a socket.
    pub remote: Mutex<bool>,
}

impl Recorder {
    /// Creates an empty replica at that path.
    pub fn new(replica: &Path, mark: std::path::PathBuf) -> Arc<Recorder> {
        let replica = File::options().read(true).write(true).create_new(true).open(replica).unwrap();
        let (events, full, fails, before) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        let (gone, dated, crashes) = (Mutex::default(), Mutex::default(), Mutex::default());
        let remote = Mutex::default();
        Arc::new(Recorder { mark, replica, events, full, gone, dated, crashes, fails, before, remote })
    }

    /// Sends bytes through a socket and returns them; `None` if not all arrived.
    fn arrives(bytes: &Gather<'_>) -> Option<Vec<u8>> {
        let (here, mut there) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let reads = scope.spawn(move || {
                let mut got = Vec::new();
                there.read_to_end(&mut got).map(|_| got).unwrap()
            });
            let mut done = 0;
            while done < bytes.bytes() {
                match bytes.send(here.as_fd(), done) {
                    Ok(sent) => done += sent,
                    Err(error) if error.raw_os_error() == Some(libc::EFAULT) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            drop(here);
            Some(reads.join().unwrap()).filter(|got| got.len() == bytes.bytes())
        })
    }

    fn mark(&self) -> u64 {
        let mark = Mapping::open(&self.mark, WindowMedium::Volatile);
        mark.map_or(0, |mark| Drained::left_behind(mark).progress().unwrap().below)
    }
}

impl OpenData for Arc<Recorder> {
    fn data(&self) -> DataVersion {
        DataVersion::There(Default::default())
    }
    fn version(&self) -> Option<Version> {
        None
    }
    fn backing(&self) -> Option<Arc<OwnedFd>> {
        None
    }
    fn use_passthrough(&self) -> bool {
        false
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }
    fn write_at(&self, data: &[u8], offset: u64, _: bool) -> io::Result<WriteResult> {
        Ok(WriteResult { offset, written: data.len() })
    }
    fn write_acknowledged(&self, data: &[u8], offset: u64, _: Timestamp) -> io::Result<()> {
        if *self.gone.lock() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.events.lock().push(Event::Copied(self.mark()));
        self.replica.write_all_at(data, offset)
    }
    fn backdating(&self) -> Option<Backdating> {
        Some(Backdating::default())
    }
    fn backdate(&self, _: &Backdating, at: Timestamp) -> io::Result<()> {
        self.dated.lock().push(at);
        Ok(())
    }
    fn write_straight(&self, write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        if let Some(before) = self.before.lock().as_mut() {
            before();
        }
        let tried = self.fails.lock().as_mut().map_or(0, |random| random.below(8));
        let written = tried != 1 && write(self.replica.as_fd());
        if written {
            self.events.lock().push(Event::Written(self.mark()));
        }
        written && tried != 2 && !*self.gone.lock()
    }
    fn is_remote(&self) -> bool {
        *self.remote.lock()
    }
    fn write_gathered(&self, parts: &[(u64, Gather<'_>)], at: Timestamp) -> io::Result<bool> {
        self.dated.lock().push(at);
        for (offset, bytes) in parts {
            let fails = self.fails.lock().as_mut().is_some_and(|random| random.below(8) == 1);
            let Some(bytes) = Recorder::arrives(bytes).filter(|_| !fails) else { return Ok(false) };
            self.replica.write_all_at(&bytes, *offset)?;
            self.events.lock().push(Event::Written(self.mark()));
        }
        Ok(true)
    }
    fn is_unshared(&self) -> bool {
        true
    }
    fn is_last_of_removed(&self) -> bool {
        false
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn fallocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn seek(&self, offset: u64, _: SeekFor) -> io::Result<u64> {
        Ok(offset)
    }
    fn boot_verifier(&self) -> u64 {
        *self.crashes.lock()
    }
    fn sync(&self, _: bool) -> io::Result<()> {
        let mut crashes = self.crashes.lock();
        *crashes = crashes.saturating_sub(1);
        if *self.full.lock() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.events.lock().push(Event::Synced(self.mark()));
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) type Program = Writer<Arc<Mapping>, Arc<Mapping>>;

/// Creates the rings of a file on a medium, and their replica.
pub(super) fn drain_on(tree: &Path, medium: WindowMedium) -> (Drain, Arc<Recorder>) {
    let (session, _) = AgentRun::begin(&tree.join("w"), "one", tree, Some(medium)).unwrap();
    let place = session.add(1, &Identity::new(vec![1]).unwrap(), Path::new("file")).unwrap();
    let recorder = Recorder::new(&tree.join("replica"), place.drained());
    let counters = Arc::new(WindowCounters::default());
    let handle = Box::new(Arc::clone(&recorder));
    let drain = Drain::new(place, medium, "file".into(), handle, Default::default(), &counters).unwrap();
    (drain, recorder)
}

/// Creates a ring, and returns the program's side of it.
pub(super) fn ring(drain: &mut Drain, open: u64, bytes: u64) -> Program {
    let granted = drain.add(open, WindowBudget::new(4 * bytes).take(bytes).unwrap()).unwrap();
    program(granted)
}

/// Returns the program's side of a granted ring.
pub(super) fn program(granted: Granted) -> Program {
    Writer::new(granted.ring, granted.id, granted.capacity, Sequence::new(granted.sequence)).unwrap()
}
