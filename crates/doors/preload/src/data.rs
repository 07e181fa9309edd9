//! Writes to known descriptors: appended to the file's window if there is one, otherwise passed to the kernel.

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

enum Outcome {
    Done,
    /// Nothing happened: the call goes to the kernel unchanged.
    Kernel,
    /// The file position was already moved from the given one. The bytes go to the kernel, as long as the descriptor
    /// still means that file.
    KernelAt(off_t, Held),
}

/// Hold on an open file. Must not live across a cancellation point.
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

pub unsafe fn write(original: Write, fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: as the caller promises of its buffer.
    match unsafe { one(fd, bytes, length, None) } {
        Outcome::Done => length as ssize_t,
        // SAFETY: the call is forwarded unchanged.
        Outcome::Kernel => unsafe { original(fd, bytes, length) },
        Outcome::KernelAt(at, held) => {
            // SAFETY: the caller's buffer, at the position taken for it.
            let done =
                at_kernel(fd, length, held, || unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, length, at) });
            // SAFETY: the call is forwarded unchanged.
            done.unwrap_or_else(|| unsafe { original(fd, bytes, length) })
        }
    }
}

pub unsafe fn pwrite(original: PositionedWrite, fd: c_int, bytes: *const c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: as the caller promises of its buffer.
    match unsafe { one(fd, bytes, length, Some(at)) } {
        Outcome::Done => length as ssize_t,
        // SAFETY: the call is forwarded unchanged.
        _ => unsafe { original(fd, bytes, length, at) },
    }
}

pub unsafe fn writev(original: VectorWrite, fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the caller promises of its buffers.
    match unsafe { many(fd, parts, count, None) } {
        (Outcome::Done, length) => length as ssize_t,
        // SAFETY: the call is forwarded unchanged.
        (Outcome::Kernel, _) => unsafe { original(fd, parts, count) },
        (Outcome::KernelAt(at, held), length) => {
            // SAFETY: the caller's buffers, at the position taken for them.
            let done =
                at_kernel(fd, length, held, || unsafe { libc::syscall(libc::SYS_pwritev, fd, parts, count, at, 0) });
            // SAFETY: the call is forwarded unchanged.
            done.unwrap_or_else(|| unsafe { original(fd, parts, count) })
        }
    }
}

pub unsafe fn pwritev(
    original: PositionedVectorWrite,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: as the caller promises of its buffers.
    match unsafe { many(fd, parts, count, Some(at)) } {
        (Outcome::Done, length) => length as ssize_t,
        // SAFETY: the call is forwarded unchanged.
        _ => unsafe { original(fd, parts, count, at) },
    }
}

/// Replacement of `pwritev2`. With flags, or at the file position, the call goes to the kernel, which appends at the
/// end that it knows.
pub unsafe fn pwritev2(
    original: FlaggedVectorWrite,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    if flags == 0 && at >= 0 {
        // SAFETY: as the caller promises of its buffers.
        if let (Outcome::Done, length) = unsafe { many(fd, parts, count, Some(at)) } {
            return length as ssize_t;
        }
    }
    if flags & libc::RWF_APPEND != 0 {
        // If records could not be applied, the write itself fails.
        let _ = agent::give_back(fd);
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(fd, parts, count, at, flags) }
}

/// Writes by the kernel where the position was moved from by `length`. Returns `None` if the call must go unchanged.
/// That is the case if the descriptor means another file by now (nobody has the former one), or if the file is now in
/// append mode.
#[cold]
fn at_kernel(fd: c_int, length: size_t, held: Held, write: impl FnOnce() -> i64) -> Option<ssize_t> {
    // No signal handler may change the descriptor's meaning between the check and the write.
    let _blocked = Blocked::all();
    (!held.0.is_replaced() && !taken_back(fd, length)).then(|| move_position(fd, length, write()))
}

/// Moves the position back by `length` if the file is now in append mode; returns whether it did. A duplicate set the
/// mode, which ended the window. In other modes the position stays, because another thread may have taken the next one
/// already.
#[cold]
fn taken_back(fd: c_int, length: size_t) -> bool {
    // SAFETY: the program's descriptor, in a call on it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let appends = fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    appends && seek(file, SeekFrom::Current(-(length as i64))).is_ok()
}

/// Moves the position back after a signal handler gave the descriptor a new meaning just before or after the position
/// was moved from `start`. Moves only if the position is exactly where that move left it.
#[cold]
fn give_position_back(fd: c_int, start: off_t, length: size_t) {
    // SAFETY: the program's descriptor, in a call on it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    if seek(file, SeekFrom::Current(0)).is_ok_and(|now| now == start as u64 + length as u64) {
        let _ = seek(file, SeekFrom::Current(-(length as i64)));
    }
}

/// Moves the position back by the bytes that a write of `length` did not write. Returns `done`, the result of the
/// write.
#[cold]
fn move_position(fd: c_int, length: size_t, done: i64) -> ssize_t {
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
        return Outcome::Kernel; // which answers each of these
    }
    // SAFETY: the caller's buffer; an unmapped one ends the program, as any access to it would.
    let bytes = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    by_window(fd, &[IoSlice::new(bytes)], length, at)
}

/// Tries to write all parts by the window. Returns the outcome and the length of all parts in bytes.
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
    // SAFETY: an IoSlice has the layout of an iovec, and these live through the call.
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
    // Asking may have taken long. From here on, a thread that replaces this descriptor waits for this call.
    if !descriptors::leads_to(fd, open) {
        return Outcome::Kernel;
    }
    let Some(window) = open.window() else { return Outcome::Kernel };
    if length as u64 > window.payload_max() {
        return Outcome::Kernel;
    }
    let mut taken = None;
    let appended = unfinished::while_it_lasts(open, || match at {
        // A negative offset becomes one larger than any valid one.
        Some(at) => window.append_parts(at as u64, parts),
        // A long write, or one that waits for room, takes its position last. A handler that leaves it by a jump then
        // leaves the position unchanged.
        None => window.append_where(parts, || {
            taken = take_position(open, fd, length);
            taken.map(|start| start as u64)
        }),
    });
    let Err(refused) = appended else { return Outcome::Done };
    if !matches!(refused, AppendRefused::Size | AppendRefused::Nowhere) && descriptors::leads_to(fd, open) {
        // The window has ended. Another may be given later.
        descriptors::adopt(fd, RETRY_AFTER_WRITES);
    }
    taken.map_or(Outcome::Kernel, |start| Outcome::KernelAt(start, held))
}

/// Moves the position of the open file by `length`. Returns the former position, or `None` if the descriptor means
/// another file by now, or none.
fn take_position(open: &OpenEntry, fd: c_int, length: size_t) -> Option<off_t> {
    if open.is_replaced() {
        return None;
    }
    let Some(start) = advance(fd, length) else {
        // The descriptor has no position: it means a socket or a pipe by now.
        descriptors::forget(fd);
        return None;
    };
    if open.is_replaced() {
        give_position_back(fd, start, length);
        return None;
    }
    Some(start)
}

/// Moves the file position by `length` and returns the former one. The position stays the kernel's, shared with all
/// descriptors of the open file. Moving it makes no request to the agent.
fn advance(fd: c_int, length: size_t) -> Option<off_t> {
    // SAFETY: the program's descriptor, in a call on it.
    let end = seek(unsafe { BorrowedFd::borrow_raw(fd) }, SeekFrom::Current(length as i64)).ok()?;
    Some(end as off_t - length as off_t)
}
