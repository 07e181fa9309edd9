//! The programs that registered, and what their threads announce.
//!
//! A process is known by a descriptor of it, not by its number: the kernel gives that to another one as soon as this one is over,
//! while who inherited its socket may still hold it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use concurrency::RwLock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use window::attach::page;
use window::{Mapping, Memory, WindowMedium};

/// A registered process.
pub(super) struct Process {
    pub pid: u32,
    itself: OwnedFd,
    page: Mapping,
}

impl Process {
    /// Makes its page, which nobody can shrink.
    pub fn new(pid: u32, itself: OwnedFd) -> io::Result<(Process, OwnedFd)> {
        let memory = memfd_create("forebay-opens", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, page::BYTES as u64)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = Mapping::of(File::from(memory.try_clone()?), WindowMedium::Volatile)?;
        page.word(0).store(page::identification(), Ordering::Release);
        Ok((Process { pid, itself, page }, memory))
    }

    /// Whether it has not ended: then its number is its own, and was at any time before.
    pub fn lives(&self) -> bool {
        let mut ended = [PollFd::new(&self.itself, PollFlags::IN)];
        matches!(poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// The slot of a thread, and whether it announced mildly.
    fn slot_of(&self, thread: u32) -> Option<(usize, bool)> {
        let thread = u64::from(thread);
        let words = (0..page::SLOTS).map(|slot| (slot, self.page.word(page::thread_at(slot)).load(Ordering::Acquire)));
        words.into_iter().find(|(_, word)| word & !page::MILD == thread).map(|(slot, word)| (slot, word != thread))
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Processes {
    all: RwLock<Vec<Arc<Process>>>,
    count: AtomicUsize,
}

/// An open that was announced.
pub struct Announced {
    process: Arc<Process>,
    slot: usize,
    mild: bool,
}

impl Announced {
    /// Whether a window must take nothing from who reads the file.
    pub fn is_mild(&self) -> bool {
        self.mild
    }

    /// Tells the thread that what it opened may have a window.
    pub fn grant(&self) {
        self.process.page.word(page::answer_at(self.slot)).store(page::WINDOWED, Ordering::Release);
    }
}

impl Processes {
    pub fn add(&self, process: Process) -> Arc<Process> {
        let process = Arc::new(process);
        let mut all = self.all.write();
        all.push(Arc::clone(&process));
        self.count.store(all.len(), Ordering::Release);
        process
    }

    pub fn remove(&self, process: &Arc<Process>) {
        let mut all = self.all.write();
        all.retain(|known| !Arc::ptr_eq(known, process));
        self.count.store(all.len(), Ordering::Release);
    }

    /// The announcement of a thread. A process can announce its own threads only.
    pub fn announced(&self, thread: u32) -> Option<Announced> {
        // 0: in a process namespace that we do not see.
        if thread == 0 || self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let claims: Vec<_> = self
            .all
            .read()
            .iter()
            .filter_map(|process| Some((Arc::clone(process), process.slot_of(thread)?)))
            .collect();
        if claims.is_empty() {
            return None;
        }
        let owner = process_id(thread)?;
        let claim = claims.into_iter().find(|(process, _)| process.pid == owner && process.lives());
        claim.map(|(process, (slot, mild))| Announced { process, slot, mild })
    }

    /// The registered process of a thread.
    pub fn process_of(&self, thread: u32) -> Option<u32> {
        let owner = process_id(thread)?;
        self.all.read().iter().any(|process| process.pid == owner && process.lives()).then_some(owner)
    }
}

/// The process that a thread belongs to.
fn process_id(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}
