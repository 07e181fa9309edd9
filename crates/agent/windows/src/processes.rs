//! Registered programs, and the announcements of their threads.
//!
//! A process is known by a process descriptor, not by its process id. The kernel reuses the id as soon as the process
//! ends, while a process that inherited its socket may still hold that.

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

pub(crate) struct Process {
    pub pid: u32,
    itself: OwnedFd,
    page: Mapping,
}

impl Process {
    /// Creates the process's page, which cannot be shrunk.
    pub fn new(pid: u32, itself: OwnedFd) -> io::Result<(Process, OwnedFd)> {
        let memory = memfd_create("forebay-opens", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, page::BYTES as u64)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = Mapping::of(File::from(memory.try_clone()?), WindowMedium::Volatile)?;
        page.word(0).store(page::identification(), Ordering::Release);
        Ok((Process { pid, itself, page }, memory))
    }

    /// Whether the process has not ended. If so, its process id was its own at all earlier times.
    pub fn lives(&self) -> bool {
        let mut ended = [PollFd::new(&self.itself, PollFlags::IN)];
        matches!(poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// Returns the slot of a thread, and whether the thread announced mildly.
    fn slot_of(&self, thread: u32) -> Option<(usize, bool)> {
        let thread = u64::from(thread);
        let words = (0..page::SLOTS).map(|slot| (slot, self.page.word(page::thread_at(slot)).load(Ordering::Acquire)));
        words.into_iter().find(|(_, word)| word & !page::MILD == thread).map(|(slot, word)| (slot, word != thread))
    }
}

#[derive(Default)]
pub(crate) struct Processes {
    all: RwLock<Vec<Arc<Process>>>,
    count: AtomicUsize,
}

/// An announced open.
pub struct Announced {
    process: Arc<Process>,
    slot: usize,
    mild: bool,
}

impl Announced {
    /// Whether a window is wanted only if reads through the open file lose nothing by it.
    pub fn is_mild(&self) -> bool {
        self.mild
    }

    /// Tells the thread that the opened file may have a window.
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

    /// Returns the announcement of a thread. A process can announce only its own threads.
    pub fn announced(&self, thread: u32) -> Option<Announced> {
        // 0: the thread is in a process namespace that is not visible from here.
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
        // A process has the id of its first thread.
        let is_first = claims.iter().any(|(process, _)| process.pid == thread && process.lives());
        let owner = if is_first { thread } else { process_id(thread)? };
        let claim = claims.into_iter().find(|(process, _)| process.pid == owner && process.lives());
        claim.map(|(process, (slot, mild))| Announced { process, slot, mild })
    }

    pub fn process_of(&self, thread: u32) -> Option<u32> {
        let owner = process_id(thread)?;
        self.all.read().iter().any(|process| process.pid == owner && process.lives()).then_some(owner)
    }
}

fn process_id(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}
