//! An agent that maps memory which a program holds too must outlive what the program does to the file.
//!
//! A program that truncates its ring makes the kernel answer the agent's next access with SIGBUS. The handler here puts
//! zeroes in the place of a guarded mapping and marks it broken: the ring then holds no record, which harms nobody but the
//! file of that program. Every other SIGBUS ends the process as ever.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::GUARDED_MAX;

struct Region {
    start: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicUsize,
}

#[allow(clippy::declare_interior_mutable_const, reason = "the initial value of each element")]
const NONE: Region = Region { start: AtomicUsize::new(0), len: AtomicUsize::new(0), broken: AtomicUsize::new(0) };
static REGIONS: [Region; GUARDED_MAX] = [NONE; GUARDED_MAX];
static INSTALLED: Once = Once::new();

/// A guarded region of this process's memory; the guard ends with it.
#[derive(Debug)]
pub(super) struct Guard(usize);

impl Guard {
    /// Guards `len` bytes at `start`, a mapping; `None` when too many are guarded.
    pub fn new(start: usize, len: usize) -> Option<Guard> {
        INSTALLED.call_once(install);
        let free = |region: &&Region| region.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let at = REGIONS.iter().position(|region| free(&region))?;
        REGIONS[at].broken.store(0, Ordering::Relaxed);
        REGIONS[at].len.store(len, Ordering::Release);
        REGIONS[at].start.store(start, Ordering::Release);
        Some(Guard(at))
    }

    /// Whether its file was found shorter than the mapping.
    pub fn is_broken(&self) -> bool {
        REGIONS[self.0].broken.load(Ordering::Acquire) != 0
    }

    /// It was, by a look at the file.
    pub fn note_broken(&self) {
        REGIONS[self.0].broken.store(1, Ordering::Release);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        REGIONS[self.0].len.store(0, Ordering::Release);
        REGIONS[self.0].start.store(0, Ordering::Release);
    }
}

fn install() {
    // SAFETY: all fields of a sigaction may be zero; the handler makes only calls that are allowed in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a siginfo of a SIGBUS, which has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for region in &REGIONS {
        let (start, len) = (region.start.load(Ordering::Acquire), region.len.load(Ordering::Acquire));
        if len == 0 || !(start..start + len).contains(&address) {
            continue;
        }
        region.broken.store(1, Ordering::Release);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: replaces a mapping that a `Mapping` owns by one of the same size; nobody holds a reference into it, all
        // access is by atomics, copies and the kernel.
        let placed = unsafe { libc::mmap(start as *mut libc::c_void, len, access, flags, -1, 0) };
        if placed != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: back to the default; the access is made again and ends the process.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}
