//! Larger stdio buffers. The C library calls the kernel once per 8 KiB of a stream, whatever `st_blksize` of the file
//! says.
//!
//! With `FOREBAY_STDIO_BUFFER`, a stream that `fopen` opens only for writing has a buffer of that size. Streams that
//! are read keep the C library's, which fills the whole buffer again after each `fseek`. The buffer belongs to this
//! library until `fclose` has returned.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use window::environment::{Wish, wish};

use crate::limits::{STREAM_BUFFER_BYTES, STREAMS_MAX};
use crate::signals::KeptErrno;
use crate::{agent, environment};

/// Stream and its buffer; stream 0 marks a free slot.
struct Slot {
    stream: AtomicUsize,
    buffer: AtomicUsize,
}

static SLOTS: [Slot; STREAMS_MAX] =
    [const { Slot { stream: AtomicUsize::new(0), buffer: AtomicUsize::new(0) } }; STREAMS_MAX];
/// Size of a buffer in bytes; 0: the C library's own.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Sets the buffer size of streams opened from now on, from the environment. A size outside [`STREAM_BUFFER_BYTES`] is
/// ignored, and so is any size if this process may not ask for windows. Called by the loader, after
/// [`agent::configure`].
pub fn configure() {
    if agent::is_offered()
        && let Some(Wish::Bytes(bytes)) = environment::value(c"FOREBAY_STDIO_BUFFER").and_then(wish)
        && STREAM_BUFFER_BYTES.contains(&bytes)
    {
        BYTES.store(bytes as usize, Relaxed);
    }
}

/// Gives a stream that was just opened a larger buffer, if it is written only and a slot is free.
pub fn opened(stream: *mut c_void, mode: *const c_char) {
    let bytes = BYTES.load(Relaxed);
    // SAFETY: the mode of the open, a C string that the C library has read.
    if bytes == 0 || !writes_alone(unsafe { CStr::from_ptr(mode) }) {
        return;
    }
    let _errno = KeptErrno::here();
    // SAFETY: the stream that was just opened.
    if !agent::may_be_windowed(unsafe { libc::fileno(stream.cast()) }) {
        return;
    }
    let claims = |slot: &&Slot| slot.stream.compare_exchange(0, stream as usize, AcqRel, Relaxed).is_ok();
    // The slot may be left from a stream at this address that was closed without `fclose`.
    let Some(slot) = of(stream).or_else(|| SLOTS.iter().find(claims)) else { return };
    if slot.buffer.load(Acquire) == 0 {
        slot.buffer.store(map(bytes), Release);
    }
    let buffer = slot.buffer.load(Acquire) as *mut c_char;
    // SAFETY: nobody has used the stream, and the memory is there until it is closed.
    if buffer.is_null() || unsafe { libc::setvbuf(stream.cast(), buffer, libc::_IOFBF, bytes) } != 0 {
        give_back(slot, bytes);
    }
}

pub unsafe fn fclose(original: unsafe extern "C-unwind" fn(*mut c_void) -> c_int, stream: *mut c_void) -> c_int {
    let bytes = BYTES.load(Relaxed);
    let slot = if bytes == 0 || stream.is_null() { None } else { of(stream) };
    let Some(slot) = slot else {
        // SAFETY: the call is forwarded unchanged.
        return unsafe { original(stream) };
    };
    // Free the slot first: once the stream is freed, a new one may get its address.
    let buffer = slot.buffer.swap(0, AcqRel);
    slot.stream.store(0, Release);
    // SAFETY: the call is forwarded unchanged.
    let result = unsafe { original(stream) };
    let _errno = KeptErrno::here();
    if !agent::is_filtered() {
        unmap(buffer, bytes);
    }
    result
}

fn of(stream: *mut c_void) -> Option<&'static Slot> {
    SLOTS.iter().find(|slot| slot.stream.load(Acquire) == stream as usize)
}

fn give_back(slot: &Slot, bytes: usize) {
    unmap(slot.buffer.swap(0, AcqRel), bytes);
    slot.stream.store(0, Release);
}

/// Returns whether the mode is `w` or `a` without `+`.
fn writes_alone(mode: &CStr) -> bool {
    let flags = mode.to_bytes().split(|byte| *byte == b',').next().unwrap_or_default();
    matches!(flags, [b'w' | b'a', rest @ ..] if !rest.contains(&b'+'))
}

/// Maps memory, of which only touched pages cost. Returns 0 on failure.
fn map(bytes: usize) -> usize {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let mapped = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    mapped.map_or(0, |at| at as usize)
}

fn unmap(buffer: usize, bytes: usize) {
    if buffer != 0 {
        // SAFETY: a mapping of `map`, whose stream is closed or never used it. On failure it stays mapped.
        let _ = unsafe { rustix::mm::munmap(buffer as *mut c_void, bytes) };
    }
}
