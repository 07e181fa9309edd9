//! Allocator for the library's own small values. Independent of the program's `malloc`, because a call may come from a
//! signal handler that interrupted `malloc`.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use crate::limits::ARENA_BYTES;
use crate::signals::Blocked;

/// Number of size classes. Sizes are rounded up to 32 << class; a larger block is mapped by itself.
const CLASSES: usize = 12;
const SMALLEST: usize = 32;

struct State {
    /// Lists of freed blocks, by class. Each block holds the address of the next.
    free: [*mut u8; CLASSES],
    arena: *mut u8,
    left: usize,
}

/// Allocator of blocks whose sizes are powers of two, from arenas that are never given back. Wiped in a forked child,
/// because a thread that the child does not have may have held the lock. The child takes arenas of its own; the
/// parent's blocks stay where they are.
#[repr(C, align(4096))]
pub struct Allocator {
    locked: AtomicBool,
    state: UnsafeCell<State>,
}

// SAFETY: the state is only used under the lock.
unsafe impl Sync for Allocator {}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator {
    locked: AtomicBool::new(false),
    state: UnsafeCell::new(State { free: [null_mut(); CLASSES], arena: null_mut(), left: 0 }),
};

/// Makes the kernel wipe the allocator in a forked child. Returns false if the kernel cannot.
pub fn wipe_on_fork() -> bool {
    crate::own::wipe_on_fork(&ALLOCATOR)
}

fn class_of(layout: Layout) -> usize {
    let size = layout.size().max(layout.align()).max(SMALLEST).next_power_of_two();
    (size / SMALLEST).trailing_zeros() as usize
}

fn map(bytes: usize) -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a new mapping at an address of the kernel's choice.
    match unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) } {
        Ok(at) => at.cast(),
        Err(_) => null_mut(),
    }
}

impl Allocator {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A signal handler of this thread must not find the lock taken.
        let _blocked = Blocked::all();
        while self.locked.swap(true, Acquire) {
            spin_loop();
        }
        // SAFETY: under the lock.
        let result = act(unsafe { &mut *self.state.get() });
        self.locked.store(false, Release);
        result
    }
}

impl State {
    fn take(&mut self, class: usize) -> *mut u8 {
        let block = self.free[class];
        if !block.is_null() {
            // SAFETY: a freed block of at least 32 bytes holds the address of the next.
            self.free[class] = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        let size = SMALLEST << class;
        // Blocks lie at multiples of their size, because arenas begin at pages.
        let skip = self.arena.align_offset(size.min(4096));
        if self.arena.is_null() || self.left < size + skip {
            self.arena = map(ARENA_BYTES.max(size));
            self.left = if self.arena.is_null() { 0 } else { ARENA_BYTES.max(size) };
            if self.arena.is_null() {
                return null_mut();
            }
            return self.cut(size);
        }
        self.arena = self.arena.wrapping_add(skip);
        self.left -= skip;
        self.cut(size)
    }

    fn cut(&mut self, size: usize) -> *mut u8 {
        let block = self.arena;
        self.arena = self.arena.wrapping_add(size);
        self.left -= size;
        block
    }
}

// SAFETY: blocks are as large and as aligned as their class, disjoint, and stay until freed.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class_of(layout);
        if layout.align() > 4096 {
            return null_mut();
        }
        if class >= CLASSES { map(layout.size()) } else { self.with(|state| state.take(class)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let class = class_of(layout);
        if class >= CLASSES {
            // SAFETY: mapped by `alloc` with this length.
            let _ = unsafe { rustix::mm::munmap(block.cast(), layout.size()) };
            return;
        }
        self.with(|state| {
            // SAFETY: the block is free and has room for an address.
            unsafe { block.cast::<*mut u8>().write(state.free[class]) };
            state.free[class] = block;
        });
    }
}
