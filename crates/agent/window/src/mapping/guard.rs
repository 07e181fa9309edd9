//! Guard of mappings against truncation. An agent maps memory that a program also holds, and must survive the program's
//! changes to the file.
//!
//! If a program truncates its ring, the kernel answers the agent's next access with SIGBUS. The handler here replaces a
//! guarded mapping by zeroes and marks it broken. The ring then holds no record, which harms only that program's file.
//! Any other SIGBUS ends the process as usual.

use std::sync::Once;

use crate::limits::GUARDED_MAX;
use crate::region::Region;

static REGIONS: [Region; GUARDED_MAX] = [const { Region::new() }; GUARDED_MAX];
static INSTALLED: Once = Once::new();

/// Guarded region of this process's memory, until dropped.
#[derive(Debug)]
pub(super) struct Guard(usize);

impl Guard {
    /// Guards `len` bytes at `start`, which must be a mapping. Returns `None` if too many are guarded.
    pub fn new(start: usize, len: usize) -> Option<Guard> {
        INSTALLED.call_once(install);
        REGIONS.iter().position(|region| region.take(start, len)).map(Guard)
    }

    /// Returns whether the file was found shorter than the mapping.
    pub fn is_broken(&self) -> bool {
        REGIONS[self.0].is_broken()
    }

    /// Notes that the file was found shorter by a look at its size.
    pub fn note_broken(&self) {
        REGIONS[self.0].note_broken();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        REGIONS[self.0].free();
    }
}

fn install() {
    // SAFETY: all fields of a sigaction may be zero; the handler makes only calls that are allowed in a signal handler.
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
        let Some((start, len)) = region.around(address) else { continue };
        region.note_broken();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: replaces a mapping that a `Mapping` owns by one of equal size. Nobody holds a reference into it: all
        // access is by atomics, copies and the kernel.
        let placed = unsafe { libc::mmap(start as *mut libc::c_void, len, access, flags, -1, 0) };
        if placed != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: back to the default; the access is repeated and ends the process.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}
