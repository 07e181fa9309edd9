//! By what a program that reads a replica in a mapping learns that it is about to become shorter, or has become so.
//!
//! The agent keeps one page ([`Cuts`]) that programs map for reading ([`Watch`]). For each of [`PAIRS`] groups of replicas it counts the
//! cuts that were begun and those that are over. Whoever takes the size of a replica notes before how many were begun, with none under
//! way, and believes what he copied out of a mapping as long as that number stays: a cut is counted before it happens, and the
//! number is looked at after the copy.
//!
//! The page also says whether the agent lives, for the next one on the same burst buffer counts elsewhere: its *tenure* word is a robust
//! futex of a thread of the agent, which the kernel itself marks when that thread ends, before anything that the process had
//! locked is free.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::mapping::{Mapping, Medium};
use crate::memory::Memory;
pub use crate::standing::Standing;
use crate::standing::Words;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, SeqCst};

/// Bytes of the page.
const BYTES: usize = 4096;
/// Byte of the word that names the agent.
const NAME_AT: usize = 0;
/// Byte of the thread's id, 0 when there is none, and the kernel's mark when it ended.
const TENURE_AT: usize = 8;
/// Byte of the first pair.
const PAIRS_AT: usize = 64;
/// Groups of replicas. One that is cut disturbs those who read another of its group, no more.
pub const PAIRS: usize = (BYTES - PAIRS_AT) / 16;

/// The group of a replica, by its number.
pub fn pair_of(version: u64) -> usize {
    (version % PAIRS as u64) as usize
}

#[inline(always)]
fn begun_at(pair: usize) -> usize {
    PAIRS_AT + pair * 16
}

#[inline(always)]
fn words<'a>(pair: usize, word: impl Fn(usize) -> &'a AtomicU64) -> Words<'a> {
    Words { begun: word(begun_at(pair)), over: word(begun_at(pair) + 8), tenure: word(TENURE_AT) }
}

/// The agent's side.
#[derive(Debug)]
pub struct Cuts {
    page: Mapping,
}

impl Cuts {
    /// A page named `name`, which nobody else can write. Errors: those of making memory; `EINVAL` before Linux 5.1.
    pub fn new(name: u64) -> io::Result<Cuts> {
        let memory = memfd_create("forebay-cuts", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, BYTES as u64)?;
        let page = Mapping::of(File::from(memory), Medium::Volatile)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&page, seals)?;
        page.word(NAME_AT).store(name, SeqCst);
        Ok(Cuts { page })
    }

    /// Its name.
    pub fn name(&self) -> u64 {
        self.page.word(NAME_AT).load(Acquire)
    }

    /// Before a replica of a group becomes shorter, or what lies in it a hole.
    pub fn begin(&self, pair: usize) {
        self.words(pair).begin();
    }

    /// After it, before whoever asked for it is answered.
    pub fn end(&self, pair: usize) {
        self.words(pair).end();
    }

    fn words(&self, pair: usize) -> Words<'_> {
        words(pair, |at| self.page.word(at))
    }

    /// The page, for programs.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.page.as_fd()
    }
}

/// The kernel's list of what a thread holds: one entry, in the words that `set_robust_list(2)` describes.
#[repr(C)]
struct Robust {
    list: *mut Robust,
    /// From an entry to its word.
    offset: isize,
    pending: *mut Robust,
    /// The entry: where the next one is, which is the list again.
    next: *mut Robust,
}

/// The calling thread stands for the agent until this is dropped, or the thread ends in whatever way. It stays with the thread.
pub struct Tenure {
    of: Arc<Cuts>,
    list: NonNull<Robust>,
    before: *mut Robust,
}

impl Tenure {
    /// From now on. Errors: those of the calls for robust futexes.
    pub fn begin(of: &Arc<Cuts>) -> io::Result<Tenure> {
        let word = of.page.word(TENURE_AT).as_ptr() as isize;
        let list = Box::into_raw(Box::new(Robust {
            list: std::ptr::null_mut(),
            offset: 0,
            pending: std::ptr::null_mut(),
            next: std::ptr::null_mut(),
        }));
        // SAFETY: allocated above, and nobody else's.
        unsafe {
            let entry = (&raw mut (*list).next).cast::<Robust>();
            (*list).list = entry;
            (*list).offset = word - entry as isize;
            (*list).next = list;
        }
        let mut before: *mut Robust = std::ptr::null_mut();
        let mut bytes = 0_usize;
        // SAFETY: the kernel writes an address and a length into variables of that size.
        let got = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut before, &raw mut bytes) };
        // SAFETY: the list lives until this thread has another one, for longer than the call.
        if got < 0 || unsafe { libc::syscall(libc::SYS_set_robust_list, list, HEAD_BYTES) } < 0 {
            let error = io::Error::last_os_error();
            // SAFETY: allocated above, and the kernel did not take it.
            drop(unsafe { Box::from_raw(list) });
            return Err(error);
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        of.page.word(TENURE_AT).store(thread, SeqCst);
        // SAFETY: what a box gave is not null.
        let list = unsafe { NonNull::new_unchecked(list) };
        Ok(Tenure { of: Arc::clone(of), list, before })
    }
}

/// What the kernel reads of [`Robust`].
const HEAD_BYTES: usize = 3 * size_of::<usize>();

impl Drop for Tenure {
    fn drop(&mut self) {
        self.of.page.word(TENURE_AT).store(0, SeqCst);
        // SAFETY: the thread's own former list, which its C library keeps as long as the thread.
        unsafe { libc::syscall(libc::SYS_set_robust_list, self.before, HEAD_BYTES) };
        // SAFETY: made by `begin`; the kernel has the other list again.
        drop(unsafe { Box::from_raw(self.list.as_ptr()) });
    }
}

/// The program's side: the page, mapped for reading. It stays mapped.
#[derive(Debug)]
pub struct Watch {
    base: NonNull<AtomicU64>,
}

// SAFETY: a mapping that lives as long as the value, read by atomics alone.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

impl Watch {
    /// Maps a page that the agent handed over. Errors: those of mmap; `EPROTO`: it is none.
    pub fn of(memory: OwnedFd) -> io::Result<Watch> {
        if rustix::fs::fstat(&memory)?.st_size != BYTES as i64 {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ, MapFlags::SHARED, &memory, 0)? };
        Ok(Watch { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)? })
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < BYTES && at.is_multiple_of(8));
        // SAFETY: inside the page, which no seal lets shrink, and aligned; it is only ever loaded from.
        unsafe { self.base.add(at / 8).as_ref() }
    }

    /// The name of the agent's page.
    pub fn name(&self) -> u64 {
        self.word(NAME_AT).load(Acquire)
    }

    /// What is the case before `take` takes the size of a replica of the group, and that size. `None`: there is none to be had, one is being
    /// cut just now, or the agent has gone.
    pub fn stand_before<T>(&self, pair: usize, take: impl FnOnce() -> Option<T>) -> Option<(Standing, T)> {
        if pair >= PAIRS {
            return None;
        }
        self.words(pair).stand_before(pair, take)
    }

    #[cfg(test)]
    fn stand(&self, pair: usize) -> Option<Standing> {
        self.stand_before(pair, || Some(())).map(|(standing, ())| standing)
    }

    /// Whether nothing of the group was cut since, nor is being cut.
    #[inline]
    pub fn stands(&self, standing: Standing) -> bool {
        self.words(standing.pair).stands(standing)
    }

    /// Whether what `copy` copied out of a mapping, all of it as it says, was in the replica: as [`Watch::stands`] says afterwards.
    #[inline]
    pub fn believes(&self, standing: Standing, copy: impl FnOnce() -> bool) -> bool {
        self.words(standing.pair).believes(standing, copy)
    }

    #[inline(always)]
    fn words(&self, pair: usize) -> Words<'_> {
        words(pair, |at| self.word(at))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with this length.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn both() -> (Arc<Cuts>, Watch) {
        let cuts = Arc::new(Cuts::new(77).unwrap());
        let watch = Watch::of(cuts.memory().try_clone_to_owned().unwrap()).unwrap();
        (cuts, watch)
    }

    #[test]
    fn who_took_a_size_learns_of_every_cut_since() {
        let (cuts, watch) = both();
        assert_eq!((watch.name(), watch.stand(3)), (77, None), "nobody stands for the agent");
        let tenure = Tenure::begin(&cuts).unwrap();
        let standing = watch.stand(3).unwrap();
        cuts.begin(4);
        assert!(watch.stands(standing), "another group");
        cuts.begin(3);
        assert!(!watch.stands(standing) && watch.stand(3).is_none(), "under way");
        cuts.end(3);
        assert!(!watch.stands(standing));
        let standing = watch.stand(3).unwrap();
        assert!(watch.stands(standing) && watch.stand(PAIRS).is_none());
        drop(tenure);
        assert!(!watch.stands(standing), "the agent has gone");
    }

    #[test]
    fn the_kernel_says_that_the_agents_thread_has_ended() {
        let (cuts, watch) = both();
        let standing = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    std::mem::forget(Tenure::begin(&cuts).unwrap());
                    watch.stand(0).unwrap()
                })
                .join()
                .unwrap()
        });
        assert!(!watch.stands(standing) && watch.stand(0).is_none());
    }

    #[test]
    fn programs_cannot_write_the_page() {
        let (cuts, _) = both();
        assert!(rustix::io::pwrite(cuts.memory(), b"x", 0).is_err());
        assert!(Mapping::handed(cuts.memory().try_clone_to_owned().unwrap(), Medium::Volatile).is_err());
        let again = format!("/proc/self/fd/{}", cuts.memory().as_raw_fd());
        let again = File::options().read(true).write(true).open(again).unwrap();
        assert!(Mapping::of(again, Medium::Volatile).is_err());
    }
}
