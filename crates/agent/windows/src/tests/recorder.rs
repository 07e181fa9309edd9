//! A test replica that records the order of events, and rings without an agent, with the program's side of them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use types::HasErrno;

use data_store::{AcknowledgedBytes, Removed, WindowFile, WindowTarget};
use parking_lot::Mutex;
use testkit::Random;
use types::{Gathered, Identity, Timestamp};
use window::drained::Drained;
use window::ring::Writer;
use window::sequence::Sequence;
use window::{Mapping, WindowMedium};

use crate::budget::WindowBudget;
use crate::counters::WindowCounters;
use crate::drain::{Drain, Granted};
use crate::session::AgentRun;

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
    fn arrives(bytes: &dyn Gathered) -> Option<Vec<u8>> {
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
                    Err(error) if error.errno() == Some(libc::EFAULT) => break,
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

impl Recorder {
    fn write_copied(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if *self.gone.lock() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.events.lock().push(Event::Copied(self.mark()));
        self.replica.write_all_at(data, offset)
    }

    /// Writes as the kernel does to a replica. Returns whether all was written.
    fn write_straight(&self, data: &dyn Gathered, offset: u64) -> bool {
        if let Some(before) = self.before.lock().as_mut() {
            before();
        }
        let tried = self.fails.lock().as_mut().map_or(0, |random| random.below(8));
        let written = tried != 1 && data.write(self.replica.as_fd(), offset);
        if written {
            self.events.lock().push(Event::Written(self.mark()));
        }
        written && tried != 2 && !*self.gone.lock()
    }

    /// Writes as a server does what it receives. Returns whether all was written.
    fn write_received(&self, data: &dyn Gathered, offset: u64) -> io::Result<bool> {
        let fails = self.fails.lock().as_mut().is_some_and(|random| random.below(8) == 1);
        let Some(data) = Recorder::arrives(data).filter(|_| !fails) else { return Ok(false) };
        self.replica.write_all_at(&data, offset)?;
        self.events.lock().push(Event::Written(self.mark()));
        Ok(true)
    }
}

/// A recorder as the target of a file's windows.
struct Recorded(Arc<Recorder>);

impl WindowTarget for Recorded {
    fn write(&self, parts: &[(u64, AcknowledgedBytes<'_>)], at: Timestamp) -> io::Result<Option<u64>> {
        let (boot_verifier, remote) = (*self.0.crashes.lock(), *self.0.remote.lock());
        self.0.dated.lock().push(at);
        for (offset, bytes) in parts {
            let written = match bytes {
                AcknowledgedBytes::Copied(data) => self.0.write_copied(data, *offset).map(|()| true)?,
                AcknowledgedBytes::Gathered(data) if remote => self.0.write_received(*data, *offset)?,
                AcknowledgedBytes::Gathered(data) => self.0.write_straight(*data, *offset),
            };
            if !written {
                return Ok(None);
            }
        }
        Ok(Some(boot_verifier))
    }
    fn sync(&self) -> io::Result<u64> {
        let mut crashes = self.0.crashes.lock();
        *crashes = crashes.saturating_sub(1);
        if *self.0.full.lock() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.0.events.lock().push(Event::Synced(self.0.mark()));
        Ok(*crashes)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn removed(&self) -> Removed {
        Removed::No
    }
    fn report_loss(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Most bytes of one part of a batch.
pub(super) const PART_BYTES: u64 = 256 << 10;

impl Recorder {
    /// Returns the recorder as the file to which windows are applied.
    pub fn file(self: &Arc<Recorder>, is_remote: bool) -> WindowFile {
        *self.remote.lock() = is_remote;
        let target = Box::new(Recorded(Arc::clone(self)));
        WindowFile { target, part_bytes: PART_BYTES, is_remote, write_back: None }
    }
}

pub(super) type Program = Writer<Arc<Mapping>, Arc<Mapping>>;

/// Creates the rings of a file on a medium, and their replica.
pub(super) fn drain_on(tree: &Path, medium: WindowMedium) -> (Drain, Arc<Recorder>) {
    drain_to(tree, medium, false)
}

/// Creates the rings of a file on a medium, and their replica, which may be at a server.
pub(super) fn drain_to(tree: &Path, medium: WindowMedium, is_remote: bool) -> (Drain, Arc<Recorder>) {
    let (session, _) = AgentRun::begin(&tree.join("w"), "one", tree, Some(medium)).unwrap();
    let place = session.add(1, &Identity::new(vec![1]).unwrap(), Path::new("file")).unwrap();
    let recorder = Recorder::new(&tree.join("replica"), place.drained());
    let counters = Arc::new(WindowCounters::default());
    let file = recorder.file(is_remote);
    let drain = Drain::new(place, medium, "file".into(), file, Default::default(), &counters).unwrap();
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
