//! Cost of an append besides the copy: no allocation and no system call.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use types::{ByteRange, Epoch};
use window::layout::{HEADER_BYTES, RingId};
use window::ring::{RingGrant, RingReader, Writer};
use window::sequence::{Sequence, WORD_BYTES};
use window::{Mapping, Memory, WindowMedium};

const CAPACITY: u64 = 4 << 20;
const APPENDS: u64 = 200;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a plain thread-local word.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `block` and `layout` is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Makes a writer of a fresh ring, warmed up.
fn writer(dir: &std::path::Path, medium: WindowMedium) -> Writer<Mapping, Mapping> {
    let grant = RingGrant {
        ring: RingId(0x1357_9bdf_0246_8ace << 40),
        capacity: CAPACITY,
        epochs: Epoch(0)..=Epoch(0),
        writable: ByteRange::new(0, u64::MAX),
    };
    let ring = Mapping::create(&dir.join("ring"), HEADER_BYTES + CAPACITY as usize, medium).unwrap();
    drop(RingReader::create(ring, grant.clone()).unwrap());
    let ring = Mapping::open(&dir.join("ring"), medium).unwrap();
    let sequence = Mapping::create(&dir.join("sequence"), WORD_BYTES, medium).unwrap();
    let writer = Writer::new(ring, grant.ring, CAPACITY, Sequence::new(sequence)).unwrap();
    writer.append(0, &[1; 9000], &mut || false).unwrap();
    writer
}

#[test]
fn an_append_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let writer = writer(dir.path(), WindowMedium::Emulated);
    let bytes = [7; 8192];
    let before = ALLOCATIONS.with(Cell::get);
    for number in 0..APPENDS {
        writer.append(number * 8192, &bytes, &mut || false).unwrap();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
}

/// Appends in a thread that the kernel ends at its first system call.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn without_system_calls() {
    let Ok(dir) = std::env::var("WINDOW_TEST_DIRECTORY") else { return };
    let dir: &std::path::Path = dir.as_ref();
    let writer = writer(dir, WindowMedium::Volatile);
    let done = Mapping::open(&dir.join("done"), WindowMedium::Volatile).unwrap();
    // SAFETY: takes no pointers; it forbids this thread every call but read, write, exit and sigreturn.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) }, 0);
    for number in 0..APPENDS {
        if writer.append(number * 8192, &[7; 8192], &mut || false).is_ok() {
            done.word(0).fetch_add(1, SeqCst);
        }
    }
}

#[test]
fn an_append_makes_no_system_call() {
    let dir = tempfile::tempdir().unwrap();
    let done = Mapping::create(&dir.path().join("done"), WORD_BYTES, WindowMedium::Volatile).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "without_system_calls", "--ignored"])
        .env("WINDOW_TEST_DIRECTORY", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The filter ends only the offending thread, so the process must be ended from here.
    let end = Instant::now() + Duration::from_secs(30);
    while done.word(0).load(SeqCst) < APPENDS && Instant::now() < end {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(done.word(0).load(SeqCst), APPENDS);
}
