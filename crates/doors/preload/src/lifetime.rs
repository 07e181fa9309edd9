//! Calls that open, duplicate, close or share descriptors.

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{off_t, size_t, ssize_t};
use window::client::Announcement;

use crate::agent;
use crate::descriptors;
use crate::sharing;
use crate::stdio;

/// Open flags for which no window is wanted: appending, synchronous writes, direct I/O, or no regular file.
const NOT_FOR_WINDOWS: c_int = libc::O_APPEND | libc::O_DSYNC | libc::O_DIRECT | libc::O_PATH | libc::O_DIRECTORY;

/// Announces an open for writing to the agent; to be called before it. An open that also reads existing data is
/// announced mildly. The reason is that a file with a window is read through the agent, and other files by the kernel
/// alone.
pub fn before_open(flags: c_int) -> Option<Announcement<'static>> {
    let access = flags & libc::O_ACCMODE;
    let reads = access == libc::O_RDWR;
    if !(reads || access == libc::O_WRONLY) || flags & NOT_FOR_WINDOWS != 0 || !agent::is_offered() {
        return None;
    }
    agent::announce(reads && flags & libc::O_TRUNC == 0)
}

/// Records the descriptor of an announced open; to be called after it.
pub fn after_open(announced: Option<Announcement<'static>>, fd: c_int) {
    if !descriptors::is_foreign(fd) {
        descriptors::closes(fd as c_uint, fd as c_uint); // the former file was closed unnoticed
    }
    if announced.is_some_and(Announcement::windowed) && fd > 2 {
        descriptors::adopt(fd, descriptors::FRESH);
    }
}

pub unsafe fn close(original: unsafe extern "C-unwind" fn(c_int) -> c_int, fd: c_int) -> c_int {
    closes(fd);
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(fd) }
}

/// Replacement of `syncfs`. The kernel does not pass that call on to a FUSE file system like ours.
pub unsafe fn syncfs(original: unsafe extern "C-unwind" fn(c_int) -> c_int, fd: c_int) -> c_int {
    if let Err(errno) = agent::sync_all(fd) {
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = errno };
        return -1;
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(fd) }
}

/// Takes a descriptor out of the tables. To be called before the descriptor is closed or replaced.
pub fn closes(fd: c_int) {
    agent::closes(fd as c_uint, fd as c_uint);
    descriptors::closes(fd as c_uint, fd as c_uint);
}

/// Takes the descriptors `first` to `last` out of the tables, before they are closed or replaced.
pub fn closes_range(first: c_uint, last: c_uint) {
    agent::closes(first, last);
    descriptors::closes(first, last);
}

pub unsafe fn close_range(
    original: unsafe extern "C-unwind" fn(c_uint, c_uint, c_int) -> c_int,
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    sharing::before_close_range(flags);
    if first <= last && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        closes_range(first, last);
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(first, last, flags) }
}

pub unsafe fn closefrom(original: unsafe extern "C-unwind" fn(c_int), first: c_int) {
    closes_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(first) }
}

/// Replacement of `dup2`. The duplicate is left to the kernel; the former file of the new number is closed.
pub unsafe fn dup2(original: unsafe extern "C-unwind" fn(c_int, c_int) -> c_int, from: c_int, to: c_int) -> c_int {
    replaces(from, to);
    // SAFETY: the call is forwarded unchanged.
    let result = unsafe { original(from, to) };
    replaced(from, to, result)
}

pub unsafe fn dup3(
    original: unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int,
    from: c_int,
    to: c_int,
    flags: c_int,
) -> c_int {
    replaces(from, to);
    // SAFETY: the call is forwarded unchanged.
    let result = unsafe { original(from, to, flags) };
    replaced(from, to, result)
}

/// Prepares for a new meaning of `to`: calls in progress no longer move a file position by this number.
fn replaces(from: c_int, to: c_int) {
    if from != to {
        descriptors::closes_at_once(to);
    }
}

fn replaced(from: c_int, to: c_int, result: c_int) -> c_int {
    if result >= 0 && from != to {
        closes(to);
    }
    result
}

/// Fails the call with `errno`, because the kernel would show bytes from before an acknowledged write.
#[cold]
fn fails<T>(errno: c_int, result: T) -> T {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// Replacement of `fcntl`. New flags may send writes elsewhere.
pub unsafe fn fcntl(
    original: unsafe extern "C-unwind" fn(c_int, c_int, usize) -> c_int,
    fd: c_int,
    command: c_int,
    argument: usize,
) -> c_int {
    let elsewhere = (libc::O_APPEND | libc::O_DIRECT) as usize;
    if command == libc::F_SETFL && (argument & elsewhere != 0 || !descriptors::is_foreign(fd)) {
        // If records could not be applied, the writes that follow fail.
        let _ = agent::look_past(fd);
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(fd, command, argument) }
}

/// Replacement of `fdopen`. Gives the window back, because stdio closes the descriptor inside the C library.
pub unsafe fn fdopen(
    original: unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut c_void,
    fd: c_int,
    mode: *const c_char,
) -> *mut c_void {
    // If records could not be applied, the writes that follow fail.
    let _ = agent::give_back(fd);
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(fd, mode) }
}

/// Replacement of `fopen`. stdio opens the file inside the C library, and its buffer may be too small.
pub unsafe fn fopen(
    original: unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut c_void,
    path: *const c_char,
    mode: *const c_char,
) -> *mut c_void {
    // SAFETY: the call is forwarded unchanged.
    let stream = unsafe { original(path, mode) };
    if !stream.is_null() && agent::is_offered() {
        // SAFETY: the stream just opened.
        closes(unsafe { libc::fileno(stream.cast()) });
        stdio::opened(stream, mode);
    }
    stream
}

/// Replacement of `mmap`, which the kernel does not report to the agent.
#[allow(clippy::too_many_arguments)] // mmap's own, and the original
pub unsafe fn mmap(
    original: unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void,
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0
        && let Err(errno) = agent::look_past(fd)
    {
        return fails(errno, libc::MAP_FAILED);
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(at, length, protection, flags, fd, offset) }
}

pub unsafe fn sendfile(
    original: unsafe extern "C-unwind" fn(c_int, c_int, *mut off_t, size_t) -> ssize_t,
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    length: size_t,
) -> ssize_t {
    if let Err(errno) = give_back_both(from, to) {
        return fails(errno, -1);
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(to, from, offset, length) }
}

#[allow(clippy::too_many_arguments)] // the calls' own, and the original
pub unsafe fn splice(
    original: unsafe extern "C-unwind" fn(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t,
    from: c_int,
    at: *mut off_t,
    to: c_int,
    there: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if let Err(errno) = give_back_both(from, to) {
        return fails(errno, -1);
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(from, at, to, there, length, flags) }
}

/// Gives windows back before the kernel moves bytes between two descriptors by itself. The kernel reads from its own
/// page cache, up to the file size that it knows.
fn give_back_both(from: c_int, to: c_int) -> Result<(), c_int> {
    agent::look_past(from)?;
    agent::give_back(to)
}

/// Replacement of `sendmsg`. Windows of descriptors that are passed are given back.
pub unsafe fn sendmsg(
    original: unsafe extern "C-unwind" fn(c_int, *const c_void, c_int) -> ssize_t,
    socket: c_int,
    message: *const c_void,
    flags: c_int,
) -> ssize_t {
    if agent::is_offered() && !message.is_null() {
        // SAFETY: the caller's message.
        unsafe { give_back_passed(message.cast()) };
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(socket, message, flags) }
}

pub unsafe fn sendmmsg(
    original: unsafe extern "C-unwind" fn(c_int, *mut c_void, c_uint, c_int) -> c_int,
    socket: c_int,
    messages: *mut c_void,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if agent::is_offered() && !messages.is_null() {
        for number in 0..count.min(1024) as usize {
            // SAFETY: the caller's array of `count` messages.
            unsafe { give_back_passed(&raw const (*messages.cast::<libc::mmsghdr>().add(number)).msg_hdr) };
        }
    }
    // SAFETY: the call is forwarded unchanged.
    unsafe { original(socket, messages, count, flags) }
}

unsafe fn give_back_passed(message: *const libc::msghdr) {
    // SAFETY: the caller's message, whose control data is as long as it says; the macros stay inside.
    unsafe {
        if (*message).msg_control.is_null() {
            return;
        }
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds = libc::CMSG_DATA(header).cast::<c_int>();
                for number in 0..bytes / size_of::<c_int>() {
                    // On an error the receiver still reads through the agent.
                    let _ = agent::give_back(fds.add(number).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// Replacement of `setrlimit`. The kernel refuses writes past the maximum file size; a window would accept them.
pub unsafe fn setrlimit(
    original: unsafe extern "C-unwind" fn(c_int, *const c_void) -> c_int,
    resource: c_int,
    limit: *const c_void,
) -> c_int {
    // SAFETY: the call is forwarded unchanged.
    let result = unsafe { original(resource, limit) };
    limited(resource, result)
}

pub unsafe fn prlimit(
    original: unsafe extern "C-unwind" fn(c_int, c_int, *const c_void, *mut c_void) -> c_int,
    process: c_int,
    resource: c_int,
    limit: *const c_void,
    before: *mut c_void,
) -> c_int {
    // SAFETY: the call is forwarded unchanged.
    let result = unsafe { original(process, resource, limit, before) };
    limited(resource, result)
}

fn limited(resource: c_int, result: c_int) -> c_int {
    if resource as c_uint == libc::RLIMIT_FSIZE as c_uint && agent::is_offered() {
        agent::give_back_all();
    }
    result
}
