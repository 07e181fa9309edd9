//! Writes to descriptors of ours: appended to the file's window if it has one, else the kernel's.

use core::ffi::{c_int, c_void};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use libc::{iovec, off_t, size_t, ssize_t};
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, seek};
use window::ring::AppendRefused;

use crate::agent;
use crate::descriptors::{self, OpenEntry};
use crate::limits::{ADDRESS_MIN, PARTS_MAX, RETRY_AFTER_WRITES};
use crate::original::test_cancel;
use crate::signals::{AbortOnPanic, Blocked};
use crate::unfinished;

type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type PositionedWrite = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, off_t) -> ssize_t;
type VectorWrite = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
type PositionedVectorWrite = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type FlaggedVectorWrite = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;

/// What became of a write.
enum Outcome {
    /// Acknowledged.
    Done,
    /// Nothing happened: the call goes to the kernel as it is.
    Kernel,
    /// The file position was moved for it already, from here; the bytes go to the kernel, as long as the number means that file.
    KernelAt(off_t, Held),
}

/// An open file that is held as long as this lives. Not over a call at which a thread may be cancelled.
struct Held(&'static OpenEntry);

impl Held {
    fn of(fd: c_int) -> Option<Held> {
        descriptors::hold(fd).map(Held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// `write`.
pub unsafe fn write(original: Write, fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: as the caller says of its buffer.
    match unsafe { one(fd, bytes, length, None) } {
        Outcome::Done => length as ssize_t,
        // SAFETY: the call as it came.
        Outcome::Kernel => unsafe { original(fd, bytes, length) },
        Outcome::KernelAt(at, held) => {
            // SAFETY: the call as it came, at the position taken for it.
            let done =
                at_kernel(fd, length, held, || unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, length, at) });
            // SAFETY: the call as it came.
            done.unwrap_or_else(|| unsafe { original(fd, bytes, length) })
        }
    }
}

/// `pwrite`.
pub unsafe fn pwrite(original: PositionedWrite, fd: c_int, bytes: *const c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: as the caller says of its buffer.
    match unsafe { one(fd, bytes, length, Some(at)) } {
        Outcome::Done => length as ssize_t,
        // SAFETY: the call as it came.
        _ => unsafe { original(fd, bytes, length, at) },
    }
}

/// `writev`.
pub unsafe fn writev(original: VectorWrite, fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the caller says of its buffers.
    match unsafe { many(fd, parts, count, None) } {
        (Outcome::Done, length) => length as ssize_t,
        // SAFETY: the call as it came.
        (Outcome::Kernel, _) => unsafe { original(fd, parts, count) },
        (Outcome::KernelAt(at, held), length) => {
            // SAFETY: the call as it came, at the position taken for it.
            let done =
                at_kernel(fd, length, held, || unsafe { libc::syscall(libc::SYS_pwritev, fd, parts, count, at, 0) });
            // SAFETY: the call as it came.
            done.unwrap_or_else(|| unsafe { original(fd, parts, count) })
        }
    }
}

/// `pwritev`.
pub unsafe fn pwritev(
    original: PositionedVectorWrite,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: as the caller says of its buffers.
    match unsafe { many(fd, parts, count, Some(at)) } {
        (Outcome::Done, length) => length as ssize_t,
        // SAFETY: the call as it came.
        _ => unsafe { original(fd, parts, count, at) },
    }
}

/// `pwritev2`: with flags, or at the file position, it is the kernel's, which appends at the end that it knows of.
pub unsafe fn pwritev2(
    original: FlaggedVectorWrite,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    if flags == 0 && at >= 0 {
        // SAFETY: as the caller says of its buffers.
        if let (Outcome::Done, length) = unsafe { many(fd, parts, count, Some(at)) } {
            return length as ssize_t;
        }
    }
    if flags & libc::RWF_APPEND != 0 {
        // What could not be drained fails the write itself.
        let _ = agent::give_back(fd);
    }
    // SAFETY: the call as it came.
    unsafe { original(fd, parts, count, at, flags) }
}

/// Writes where the position was moved from by `length`. `None`: the call is to go as it came, for its number means another file by now,
/// and nobody has the one that it meant, or what is written goes to the end.
#[cold]
fn at_kernel(fd: c_int, length: size_t, held: Held, write: impl FnOnce() -> i64) -> Option<ssize_t> {
    // No handler has the number mean something else between the question and the write.
    let _blocked = Blocked::all();
    (!held.0.is_replaced() && !taken_back(fd, length)).then(|| settle(fd, length, write()))
}

/// Moves the position back by `length` if what is written goes to the end by now, and not where a position says: a duplicate
/// asked for that, which ended the window. Else another thread may have taken the next position already.
#[cold]
fn taken_back(fd: c_int, length: size_t) -> bool {
    // SAFETY: the program's descriptor, in a call on it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let appends = fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    appends && seek(file, SeekFrom::Current(-(length as i64))).is_ok()
}

/// A handler had the number mean another file just before or just after the position was moved from `start`. If it is that file's that was
/// moved, it is where that left it.
#[cold]
fn give_position_back(fd: c_int, start: off_t, length: size_t) {
    // SAFETY: the program's descriptor, in a call on it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    if seek(file, SeekFrom::Current(0)).is_ok_and(|now| now == start as u64 + length as u64) {
        let _ = seek(file, SeekFrom::Current(-(length as i64)));
    }
}

/// A write for which the position was moved by `length` has moved `done` bytes.
#[cold]
fn settle(fd: c_int, length: size_t, done: i64) -> ssize_t {
    let missing = length as i64 - done.max(0);
    if missing > 0 {
        // SAFETY: the program's descriptor, in a call on it.
        let _ = seek(unsafe { BorrowedFd::borrow_raw(fd) }, SeekFrom::Current(-missing));
    }
    done as ssize_t
}

unsafe fn one(fd: c_int, bytes: *const c_void, length: size_t, at: Option<off_t>) -> Outcome {
    test_cancel();
    if length == 0 || length > isize::MAX as size_t || (bytes as usize) < ADDRESS_MIN || (bytes as isize) < 0 {
        return Outcome::Kernel; // which has an answer to each
    }
    // SAFETY: the caller's buffer; one that is not there ends the program, as any store into it would.
    let bytes = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    by_window(fd, &[IoSlice::new(bytes)], length, at)
}

/// The outcome, and the length of all parts.
unsafe fn many(fd: c_int, parts: *const iovec, count: c_int, at: Option<off_t>) -> (Outcome, size_t) {
    test_cancel();
    let sound = |address: usize| (ADDRESS_MIN..=isize::MAX as usize).contains(&address);
    if !(1..=PARTS_MAX as c_int).contains(&count) || !sound(parts as usize) {
        return (Outcome::Kernel, 0);
    }
    // SAFETY: the caller's array of `count` parts.
    let vector = unsafe { core::slice::from_raw_parts(parts, count as usize) };
    let mut length = 0usize;
    for part in vector {
        length = length.saturating_add(part.iov_len);
        if length > isize::MAX as usize || !sound(part.iov_base as usize) {
            return (Outcome::Kernel, 0);
        }
    }
    if length == 0 {
        return (Outcome::Kernel, 0);
    }
    // SAFETY: an IoSlice has the bytes of an iovec, and these live through the call.
    let slices = unsafe { core::slice::from_raw_parts(parts.cast::<IoSlice<'_>>(), count as usize) };
    (by_window(fd, slices, length, at), length)
}

fn by_window(fd: c_int, parts: &[IoSlice<'_>], length: size_t, at: Option<off_t>) -> Outcome {
    let Some(held) = Held::of(fd) else { return Outcome::Kernel };
    let panics = AbortOnPanic::armed();
    let outcome = by_window_of(held, fd, parts, length, at);
    panics.disarm();
    outcome
}

fn by_window_of(held: Held, fd: c_int, parts: &[IoSlice<'_>], length: size_t, at: Option<off_t>) -> Outcome {
    let open = held.0;
    open.count(length, || agent::attach(fd));
    // Asking may have taken long. From here on whoever has the number mean something else waits for this call.
    if !descriptors::leads_to(fd, open) {
        return Outcome::Kernel;
    }
    let Some(window) = open.window() else { return Outcome::Kernel };
    if length as u64 > window.payload_max() {
        return Outcome::Kernel;
    }
    let mut taken = None;
    let appended = unfinished::while_it_lasts(open, || match at {
        // A negative one is larger than any that there is.
        Some(at) => window.append_parts(at as u64, parts),
        // A long write, and one that waits for room, has its position last: a handler that leaves it by a jump leaves that where it was.
        None => window.append_where(parts, || {
            taken = take_position(open, fd, length);
            taken.map(|start| start as u64)
        }),
    });
    let Err(refused) = appended else { return Outcome::Done };
    if !matches!(refused, AppendRefused::Size | AppendRefused::Nowhere) && descriptors::leads_to(fd, open) {
        // Over. Another may be had later.
        descriptors::adopt(fd, RETRY_AFTER_WRITES);
    }
    taken.map_or(Outcome::Kernel, |start| Outcome::KernelAt(start, held))
}

/// Moves the position of the open file by `length`; where it was. `None`: the number means another file by now, or none.
fn take_position(open: &OpenEntry, fd: c_int, length: size_t) -> Option<off_t> {
    if open.is_replaced() {
        return None;
    }
    let Some(start) = advance(fd, length) else {
        // No position: the number means something else by now, a socket or a pipe.
        descriptors::forget(fd);
        return None;
    };
    if open.is_replaced() {
        give_position_back(fd, start, length);
        return None;
    }
    Some(start)
}

/// Moves the file position by `length`; where it was. The position is the kernel's, shared as ever with whoever has the open
/// file too, and moving it makes no request.
fn advance(fd: c_int, length: size_t) -> Option<off_t> {
    // SAFETY: the program's descriptor, in a call on it.
    let end = seek(unsafe { BorrowedFd::borrow_raw(fd) }, SeekFrom::Current(length as i64)).ok()?;
    Some(end as off_t - length as off_t)
}
