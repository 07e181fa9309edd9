//! Server's state of one attached kernel, and what the kernel's messages do. There are no names and no credentials.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use agent::locks::{LockRequest, LockTable, LockTicket, owner};
use concurrency::{Condvar, Instant, Mutex};
use data_store::WriteWhere;
use fuse_protocol::view::WriteView;
use fuse_protocol::{Envelope, Given, LockChange, Opcode};
use relay_server::RecoveryRecords;
use types::RangeLock;

use crate::disk::{Disk, Machine, OpenOnDisk, identity};
use crate::messages::{answer, flock_of_release, interrupted, opened};
use crate::oracle::Claimed;

/// How long a node waits for events.
const LISTEN: Duration = Duration::from_millis(500);
/// One server process.
pub struct Process {
    pub number: u64,
    pub machine: Arc<Machine>,
    pub disk: Disk,
    pub locks: Arc<LockTable>,
    pub records: Arc<RecoveryRecords>,
    pub boot_verifier: u64,
    pub clients: AtomicU64,
}

impl Process {
    /// Notes a grant, if the process lives.
    fn grants(&self, lock: Claimed) -> bool {
        self.machine.step(self.number, || self.machine.oracle.granted(lock)).is_some()
    }
}

/// Answers that a kernel gets later.
#[derive(Default)]
pub struct Events {
    pub waiting: VecDeque<Vec<u8>>,
    /// Number of the last event before these.
    pub passed: u64,
}

/// Request that waits for a lock.
pub struct Waits {
    file: u8,
    ticket: Option<LockTicket>,
}

/// Server's state of one attached kernel.
pub struct Attached {
    pub process: Arc<Process>,
    pub node: u64,
    pub client: u64,
    /// Whether the kernel may send requests: everything that it had was claimed.
    pub open: AtomicBool,
    pub opens: Mutex<BTreeMap<u64, Arc<OpenOnDisk>>>,
    pub waits: Arc<Mutex<BTreeMap<u64, Waits>>>,
    pub events: Arc<(Mutex<Events>, Condvar)>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.opens.lock().clear();
        self.process.locks.release_client(self.client);
    }
}

impl Attached {
    pub fn reclaim(&self, file: u64, handle: u64) -> io::Result<()> {
        if handle != 0 && !self.opens.lock().contains_key(&handle) {
            let open = self.process.disk.open_file(file as u8)?;
            self.opens.lock().insert(handle, Arc::new(open));
        }
        Ok(())
    }

    /// Runs a message of the kernel. Returns the answer; empty: later, or none.
    pub fn run(&self, head: &[u8]) -> Vec<u8> {
        let Some(envelope) = Envelope::of(head) else { return answer(libc::EPROTO, 0, &[]) };
        let unique = envelope.unique;
        let done = |result: io::Result<Vec<u8>>| match result {
            Ok(body) => answer(0, unique, &body),
            Err(error) => answer(error.raw_os_error().unwrap_or(libc::EIO), unique, &[]),
        };
        let file = self.opens.lock().get(&envelope.first).cloned();
        match (envelope.opcode, file) {
            (Some(Opcode::Open), _) => done(self.open(envelope.node as u8, unique)),
            (Some(Opcode::Write), Some(file)) => done(self.write(&file, head)),
            (Some(Opcode::Fsync), Some(file)) => done(file.sync_all().map(|()| Vec::new())),
            (Some(Opcode::Flush), Some(file)) => {
                let number = LockChange::of(&envelope, head).map_or(0, |change| change.owner);
                let owner = owner(self.client, number);
                self.process.locks.close_descriptor(&identity(file.file), owner, envelope.first);
                done(Ok(Vec::new()))
            }
            (Some(Opcode::Release), _) => {
                self.release(envelope.first, flock_of_release(head));
                done(Ok(Vec::new()))
            }
            (Some(opcode @ (Opcode::Setlk | Opcode::Setlkw)), Some(file)) => {
                let Some(lock) = LockChange::of(&envelope, head) else { return answer(libc::EPROTO, unique, &[]) };
                self.lock((file.file, unique), &lock, opcode == Opcode::Setlkw)
            }
            (Some(Opcode::Interrupt), _) => self.interrupt(unique, head),
            (Some(Opcode::BatchForget | Opcode::Forget), _) => Vec::new(),
            _ => answer(libc::ESTALE, unique, &[]),
        }
    }

    fn open(&self, file: u8, unique: u64) -> io::Result<Vec<u8>> {
        let handle = self.node << 32 | unique;
        let open = self.process.disk.open_file(file)?;
        self.opens.lock().insert(handle, Arc::new(open));
        Ok(opened(handle))
    }

    fn write(&self, file: &OpenOnDisk, head: &[u8]) -> io::Result<Vec<u8>> {
        let write = WriteView::parse(head).ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))?;
        let place = if write.how().append { WriteWhere::End } else { WriteWhere::At(write.offset()) };
        file.write(write.data(), place).map(|_| [8_u32.to_ne_bytes(), [0; 4]].concat())
    }

    fn release(&self, handle: u64, flock: Option<u64>) {
        let Some(open) = self.opens.lock().remove(&handle) else { return };
        let file = identity(open.file);
        flock.into_iter().for_each(|number| self.process.locks.unlock_flock(&file, owner(self.client, number)));
        self.process.locks.release_handle(&file, handle);
    }

    fn lock(&self, (file, unique): (u8, u64), lock: &LockChange, waits: bool) -> Vec<u8> {
        let (table, owner, at) = (&self.process.locks, owner(self.client, lock.owner), identity(file));
        let (start, end) = lock.range;
        let Some(kind) = lock.kind else {
            if lock.flock {
                table.unlock_flock(&at, owner)
            } else {
                table.unlock(&at, owner, start, end)
            }
            return answer(0, unique, &[]);
        };
        let range = RangeLock { start, end, kind, owner, pid: lock.pid, handle: lock.handle };
        let request = LockRequest { range, flock: lock.flock };
        let claimed = Claimed::new((file, self.node, lock.owner), lock.flock, kind, lock.range);
        if !waits {
            return match table.try_lock(&at, request) {
                Ok(()) if self.process.grants(claimed) => answer(0, unique, &[]),
                Ok(()) => answer(libc::EIO, unique, &[]),
                Err(errno) => answer(errno.raw_os_error(), unique, &[]),
            };
        }
        let early = Arc::new(Mutex::new((true, None)));
        self.waits.lock().insert(unique, Waits { file, ticket: None });
        let (process, all, events, cell) =
            (Arc::clone(&self.process), Arc::clone(&self.waits), Arc::clone(&self.events), Arc::clone(&early));
        let grant = move |outcome: Result<(), rustix::io::Errno>| {
            let outcome = match outcome {
                Ok(()) if process.grants(claimed) => answer(0, unique, &[]),
                Ok(()) => answer(libc::EIO, unique, &[]),
                Err(errno) => answer(errno.raw_os_error(), unique, &[]),
            };
            all.lock().remove(&unique);
            let mut cell = cell.lock();
            if cell.0 {
                cell.1 = Some(outcome);
            } else {
                events.0.lock().waiting.push_back(outcome);
                events.1.notify_all();
            }
        };
        let ticket = table.lock(&at, request, Box::new(grant));
        if let Some(waits) = self.waits.lock().get_mut(&unique) {
            waits.ticket = ticket;
        }
        let mut early = early.lock();
        early.0 = false;
        early.1.take().unwrap_or_default()
    }

    fn interrupt(&self, unique: u64, head: &[u8]) -> Vec<u8> {
        let whom = interrupted(head).unwrap_or(0);
        let known = self.waits.lock().get(&whom).map(|waits| (waits.file, waits.ticket));
        match known {
            Some((file, Some(ticket))) => {
                self.process.locks.cancel(&identity(file), ticket);
                answer(0, unique, &[])
            }
            Some(_) | None => answer(libc::EAGAIN, unique, &[]),
        }
    }

    pub fn collect(&self, after: u64, out: &mut Vec<u8>) -> u64 {
        let until = Instant::now() + LISTEN;
        let (events, came) = &*self.events;
        let mut events = events.lock();
        while events.passed < after && events.waiting.pop_front().is_some() {
            events.passed += 1;
        }
        while events.waiting.is_empty() && !came.wait_until(&mut events, until).timed_out() {}
        events.waiting.iter().for_each(|event| out.extend_from_slice(event));
        events.passed + events.waiting.len() as u64
    }

    pub fn take_back(&self, given: &Given) {
        given.opened.iter().for_each(|(_, handle)| self.release(*handle, None));
    }
}
