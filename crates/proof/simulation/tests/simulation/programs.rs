//! Programs: some write through an agent, some through a node's kernel and under locks. Each knows what it was told, and
//! asks whether that is true.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use concurrency::{Instant, below};
use config::Policy;
use data_store::{DataStore, OpenData, OpenHow, SyncScope, WriteWhere};
use fuse_protocol::{Envelope, Parked, Raw};
use relay::Relay;
use remote::RemoteStore;
use types::LockKind;

use crate::disk::{BYTES, Machine, OnlyIdentity, Place, identity};
use crate::messages;
use crate::oracle::Claimed;

/// Slots that one program writes in a file.
const SLOTS: usize = 2;
/// Steps of a program with one open file.
const STEPS: usize = 7;
/// Simulated time after which a program that waits for a lock gets a signal.
const SIGNAL: Duration = Duration::from_secs(8);
/// Simulated time after which a request hangs.
const HANGS: Duration = Duration::from_secs(600);

/// One program.
pub struct Program {
    pub number: u64,
    /// The client through which it reaches the server.
    pub client: u64,
    pub files: u8,
    pub machine: Arc<Machine>,
}

/// Writes of one open file that were acknowledged and not synced.
struct Untold<'a> {
    program: &'a Program,
    file: u8,
    writes: Vec<(Place, u64)>,
}

impl Program {
    fn thinks(&self) {
        if below(2) == 0 {
            concurrency::sleep(Duration::from_millis(below(200) as u64));
        }
    }

    fn violated(&self, what: String) {
        self.machine.oracle.violated(format!("program {}: {what}", self.number));
    }

    fn counts(&self, what: &'static str) {
        self.machine.oracle.counts(what);
    }

    /// Whether something that was not synced may be lost. It also counts as lost if it is not known which boot of the
    /// machine has acknowledged it.
    fn may_have_lost(&self) -> bool {
        self.machine.crashes() > 0 || !self.machine.oracle.knows_all_servers(self.client)
    }

    /// The next write: its place and its content, which is higher than that of the one before.
    fn next_write(&self, written: &mut u64) -> (Place, u64) {
        *written += 1;
        let slot = (self.number * SLOTS as u64 + below(SLOTS) as u64) * BYTES;
        (if below(3) == 0 { Place::End } else { Place::Slot(slot) }, self.number << 32 | *written)
    }
}

impl Untold<'_> {
    fn acknowledged(&mut self, place: Place, id: u64) {
        self.program.counts("write");
        self.writes.push((place, id));
    }

    /// A sync was answered.
    fn synced(&mut self, result: Result<(), i32>) {
        match result {
            Ok(()) => {
                self.program.counts("sync");
                for (place, id) in &self.writes {
                    if !self.program.machine.is_durable(self.file, *place, *id) {
                        self.program
                            .violated(format!("{id:x} at {place:?} of {} is lost, and the sync was done", self.file));
                    }
                }
            }
            Err(libc::EIO) if !self.program.may_have_lost() => {
                self.program.violated(format!("a loss in {} was told, and no machine has crashed", self.file));
            }
            Err(libc::EIO) => self.program.counts("loss told"),
            // The file was not to be had again, and the program was told that.
            Err(libc::ESTALE) => self.program.counts("file lost"),
            Err(errno) => self.program.violated(format!("a sync failed with {errno}")),
        }
        self.writes.clear();
    }
}

fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A program whose data goes through an agent.
pub fn run_over_agent(program: &Program, store: &RemoteStore, opens: usize) {
    let policy = Policy { io_timeout: Duration::from_secs(5), ..Policy::default() };
    let mut written = 0;
    for _ in 0..opens {
        let file = below(program.files.into()) as u8;
        let how = OpenHow { read: true, write: true, policy: Arc::new(policy.clone()), ..OpenHow::default() };
        let handle = match store.open(Arc::new(OnlyIdentity(identity(file))), how, &|| false) {
            Ok(handle) => handle,
            Err(error) => {
                program.violated(format!("an open failed: {error}"));
                continue;
            }
        };
        program.counts("open");
        let mut untold = Untold { program, file, writes: Vec::new() };
        for _ in 0..below(STEPS / 2) {
            program.thinks();
            step_over_agent(program, &*handle, &mut untold, &mut written);
        }
        untold.synced(handle.sync(SyncScope::All).map(drop).map_err(errno));
        // Of this file, something that others have written may be lost.
        match handle.flush().map_err(errno) {
            Err(libc::EIO) if program.may_have_lost() => program.counts("loss told"),
            Err(errno) => program.violated(format!("a close failed with {errno}")),
            Ok(()) => {}
        }
    }
}

fn step_over_agent(program: &Program, handle: &dyn OpenData, untold: &mut Untold<'_>, written: &mut u64) {
    if below(5) == 0 {
        untold.synced(handle.sync(SyncScope::All).map(drop).map_err(errno));
        return;
    }
    if handle.sync(SyncScope::LossOnly).is_err() {
        program.counts("write refused");
        return;
    }
    let (place, id) = program.next_write(written);
    let at = match place {
        Place::Slot(offset) => WriteWhere::At(offset),
        Place::End => WriteWhere::End,
    };
    match handle.write_at(&id.to_le_bytes(), at) {
        Ok(_) => untold.acknowledged(place, id),
        Err(error) => program.violated(format!("a write failed: {error}")),
    }
}

/// A kernel's numbers, and its node.
pub struct Kernel {
    pub relay: Arc<Relay>,
    pub node: u64,
    pub uniques: AtomicU64,
}

impl Kernel {
    fn unique(&self) -> u64 {
        self.uniques.fetch_add(2, Ordering::Relaxed)
    }

    /// Makes a request and waits for its answer; an error is an errno.
    fn ask(&self, program: &Program, message: &[u8]) -> Result<(), i32> {
        let envelope = Envelope::of(message).unwrap();
        let (parked, answered, interrupt) = Parked::detached(envelope.unique);
        self.relay.request(&envelope, message, parked);
        let (began, mut signalled, mut pause) = (Instant::now(), false, Duration::from_millis(1));
        loop {
            if let Ok(answer) = answered.try_recv() {
                return answer.map_err(|errno| errno.0);
            }
            concurrency::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
            if !signalled && began.elapsed() > SIGNAL {
                signalled = true;
                interrupt();
                self.relay.interrupt(envelope.unique);
            }
            if began.elapsed() > HANGS {
                program.violated(format!("{:?} hangs", envelope.opcode));
                return Err(libc::EIO);
            }
        }
    }
}

/// A program's open file on a node.
struct Opened<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    file: u8,
    handle: u64,
    untold: Untold<'a>,
    /// Whether the server does not have the file open any more.
    is_stale: bool,
}

/// A program whose files are on a node without the global store.
pub fn run_over_relay(program: &Program, kernel: &Kernel, opens: usize) {
    let mut written = 0;
    for _ in 0..opens {
        let (file, unique) = (below(program.files.into()) as u8, kernel.unique());
        match kernel.ask(program, &messages::open(unique, file.into())) {
            Ok(()) => program.counts("open"),
            Err(libc::EINTR) => continue,
            Err(errno) => {
                program.violated(format!("an open failed with {errno}"));
                continue;
            }
        }
        let handle = kernel.node << 32 | unique;
        let untold = Untold { program, file, writes: Vec::new() };
        let mut opened = Opened { program, kernel, file, handle, untold, is_stale: false };
        for _ in 0..below(STEPS) {
            program.thinks();
            match below(4) {
                0 => opened.locks(&mut written),
                1 => opened.syncs(),
                _ => opened.writes(None, &mut written),
            }
        }
        opened.syncs();
        opened.closes();
    }
}

impl Opened<'_> {
    fn fails(&mut self, what: &str, errno: i32, allowed: &[i32]) {
        self.is_stale |= errno == libc::ESTALE;
        if errno != libc::ESTALE && !allowed.contains(&errno) {
            self.program.violated(format!("{what} failed with {errno}"));
        }
    }

    fn writes(&mut self, under: Option<(&Claimed, u64)>, written: &mut u64) {
        let (place, id) = self.program.next_write(written);
        let offset = match place {
            Place::Slot(offset) => Some(offset),
            Place::End => None,
        };
        let message = messages::write(self.kernel.unique(), self.file.into(), self.handle, offset, id);
        match self.kernel.ask(self.program, &message) {
            Ok(()) => {
                self.untold.acknowledged(place, id);
                under.iter().for_each(|(lock, since)| {
                    self.program.counts("write under lock");
                    self.program.machine.oracle.wrote_under(lock, *since, id);
                });
            }
            // An append that may have been done, or a loss.
            Err(errno) => self.fails("a write", errno, &[libc::EIO, libc::EINTR]),
        }
    }

    fn syncs(&mut self) {
        let message = messages::fsync(self.kernel.unique(), self.file.into(), self.handle);
        let result = self.kernel.ask(self.program, &message);
        if result == Err(libc::EINTR) {
            return;
        }
        self.is_stale |= result == Err(libc::ESTALE);
        self.untold.synced(result);
    }

    /// Takes a lock, writes under it, and releases it.
    fn locks(&mut self, written: &mut u64) {
        let flock = self.file % 2 == 1;
        let kind = if below(3) == 0 { LockKind::Shared } else { LockKind::Exclusive };
        let range = if flock || below(2) == 0 { (0, i64::MAX as u64) } else { (below(3) as u64 * 10, 25) };
        let opcode = if below(2) == 0 { messages::SETLK } else { messages::SETLKW };
        let owner = self.program.number;
        let lock = |opcode, kind| {
            let of = (opcode, self.kernel.unique(), self.file.into());
            messages::lock(of, (self.handle, owner), kind, range, flock)
        };
        let (take, release) = (lock(opcode, Some(kind)), lock(messages::SETLK, None));
        match self.kernel.ask(self.program, &take) {
            Ok(()) => {
                let claimed = Claimed::new((self.file, self.kernel.node, owner), flock, kind, range);
                let since = self.program.machine.oracle.grant_of(&claimed);
                self.program.counts("lock");
                for _ in 0..below(4) {
                    self.program.thinks();
                    self.writes(Some((&claimed, since)), written);
                }
                if let Err(errno) = self.kernel.ask(self.program, &release) {
                    self.fails("an unlock", errno, &[libc::EINTR]);
                }
            }
            Err(errno) => self.fails("a lock", errno, &[libc::EAGAIN, libc::EINTR, libc::EDEADLK]),
        }
    }

    fn closes(mut self) {
        let (kernel, file) = (self.kernel, self.file.into());
        let flush = messages::flush(kernel.unique(), file, self.handle, self.program.number);
        if let Err(errno) = kernel.ask(self.program, &flush) {
            self.fails("a close", errno, &[libc::EIO, libc::ETIMEDOUT, libc::EINTR]);
        }
        let release = messages::release(kernel.unique(), file, self.handle, self.program.number);
        if let Err(errno) = kernel.ask(self.program, &release) {
            self.fails("a release", errno, &[]);
        }
        if self.is_stale {
            self.program.counts("stale");
        }
    }
}
