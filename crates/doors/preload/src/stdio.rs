//! Buffers of streams: the C library calls the kernel for each 8 KiB of one, whatever the file says that it likes (`st_blksize`).
//!
//! With `FOREBAY_STDIO_BUFFER` what `fopen` opens to be written alone has a buffer of that size. Not what is read: after each `fseek` the C library
//! fills the whole buffer again. The buffer is ours until `fclose` has returned.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::agent;
use crate::limits::{STREAM_BUFFER_BYTES, STREAMS_MAX};
use crate::signals::KeptErrno;

/// A stream, 0 if there is none, and its buffer.
struct Slot {
    stream: AtomicUsize,
    buffer: AtomicUsize,
}

static SLOTS: [Slot; STREAMS_MAX] =
    [const { Slot { stream: AtomicUsize::new(0), buffer: AtomicUsize::new(0) } }; STREAMS_MAX];
/// Bytes of a buffer; 0: the C library's own.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Streams that are opened from now on have buffers of so many bytes, if that is a sound number. Called by the loader.
pub fn configure(bytes: u64) {
    if STREAM_BUFFER_BYTES.contains(&bytes) {
        BYTES.store(bytes as usize, Relaxed);
    }
}

/// A stream was opened. A larger buffer, if it is to have one, and there is room for it.
pub fn opened(stream: *mut c_void, mode: *const c_char) {
    let bytes = BYTES.load(Relaxed);
    // SAFETY: the mode with which it was opened, which the C library has read.
    if bytes == 0 || !writes_alone(unsafe { CStr::from_ptr(mode) }) {
        return;
    }
    let _errno = KeptErrno::here();
    // SAFETY: the stream that was just opened.
    if !agent::may_be_windowed(unsafe { libc::fileno(stream.cast()) }) {
        return;
    }
    let claims = |slot: &&Slot| slot.stream.compare_exchange(0, stream as usize, AcqRel, Relaxed).is_ok();
    // One that was closed behind our back may have been there.
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

/// `fclose`
pub unsafe fn fclose(original: unsafe extern "C-unwind" fn(*mut c_void) -> c_int, stream: *mut c_void) -> c_int {
    let bytes = BYTES.load(Relaxed);
    let slot = if bytes == 0 || stream.is_null() { None } else { of(stream) };
    let Some(slot) = slot else {
        // SAFETY: the call as it came.
        return unsafe { original(stream) };
    };
    // Whoever opens a stream once this one is freed may be given its address.
    let buffer = slot.buffer.swap(0, AcqRel);
    slot.stream.store(0, Release);
    // SAFETY: the call as it came.
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

/// `w` or `a`, and not `+`.
fn writes_alone(mode: &CStr) -> bool {
    let flags = mode.to_bytes().split(|byte| *byte == b',').next().unwrap_or_default();
    matches!(flags, [b'w' | b'a', rest @ ..] if !rest.contains(&b'+'))
}

/// Memory of its own, of which only what is used takes any; 0 if there is none.
fn map(bytes: usize) -> usize {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a new mapping, wherever the kernel likes.
    let mapped = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    mapped.map_or(0, |at| at as usize)
}

fn unmap(buffer: usize, bytes: usize) {
    if buffer != 0 {
        // SAFETY: a mapping of `map`, whose stream is closed or never used it. What fails stays mapped.
        let _ = unsafe { rustix::mm::munmap(buffer as *mut c_void, bytes) };
    }
}
