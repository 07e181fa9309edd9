//! The connection of this process to the agent, made when the first file is opened that may have a window.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::os::fd::{AsRawFd, BorrowedFd};

use window::attach::{Command, Control, LIBRARY_MARK};
use window::client::{Announcement, Registration, control};
use window::environment::{Wish, wish};

use crate::limits::{OWN_DESCRIPTORS_FROM, RETRY_AFTER_WRITES, SOCKET_PATH_MAX};
use crate::signals::{AbortOnPanic, Blocked, KeptErrno, Uncancelled};
use crate::{asynchronous, descriptors};

/// By which `forebay` knows the library.
#[used]
static MARK: [u8; LIBRARY_MARK.len()] = {
    let mut bytes = [0; LIBRARY_MARK.len()];
    bytes.copy_from_slice(LIBRARY_MARK.as_bytes());
    bytes
};

/// Where the agent listens, as the environment said when the library was loaded.
struct SocketPath(UnsafeCell<[u8; SOCKET_PATH_MAX]>);
// SAFETY: written by `configure` alone, before PATH_BYTES is stored.
unsafe impl Sync for SocketPath {}
static PATH: SocketPath = SocketPath(UnsafeCell::new([0; SOCKET_PATH_MAX]));
/// 0: no windows.
static PATH_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Wanted size of a window; 0: as the policy says.
static WINDOW_BYTES: AtomicU64 = AtomicU64::new(0);

static REGISTRATION: AtomicPtr<Registration> = AtomicPtr::new(core::ptr::null_mut());
/// The process that registered.
static OWNER: AtomicU64 = AtomicU64::new(0);
/// This process asks for no windows any more.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// A thread talks to the agent; no other waits for it, nor does its own signal handler.
static TALKING: AtomicBool = AtomicBool::new(false);

/// Reads the environment. Called by the loader.
pub fn configure() {
    let value = |name: &core::ffi::CStr| {
        // SAFETY: a C string; the environment does not change while libraries are loaded.
        let found = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: what getenv finds is a C string, used before anybody changes it.
        (!found.is_null()).then(|| unsafe { core::ffi::CStr::from_ptr(found) }.to_bytes())
    };
    let size = value(c"FOREBAY_WINDOW").unwrap_or_default();
    let Some(path) = value(c"FOREBAY_WINDOW_SOCKET").filter(|path| (1..=SOCKET_PATH_MAX).contains(&path.len())) else {
        return;
    };
    let bytes = match wish(size) {
        Some(Wish::Off) => return,
        Some(Wish::Bytes(bytes)) => bytes,
        // `forebay run` has refused what is none.
        Some(Wish::Policy) | None => 0,
    };
    if asynchronous::has_liburing() {
        return;
    }
    WINDOW_BYTES.store(bytes, Relaxed);
    // SAFETY: nobody reads it before PATH_BYTES is stored.
    unsafe { (&mut *PATH.0.get())[..path.len()].copy_from_slice(path) };
    PATH_BYTES.store(path.len(), Release);
}

/// Whether the environment named an agent.
pub fn is_offered() -> bool {
    PATH_BYTES.load(Relaxed) != 0
}

/// Whether this process, not a child that shares its memory, is the one that registered.
fn is_owner() -> bool {
    OWNER.load(Relaxed) == rustix::process::getpid().as_raw_nonzero().get() as u64
}

fn registration() -> Option<&'static Registration> {
    // SAFETY: stored once, never freed.
    unsafe { REGISTRATION.load(Acquire).as_ref() }
}

/// Runs `act` unless somebody talks to the agent already.
fn talk<T>(act: impl FnOnce() -> Option<T>) -> Option<T> {
    let _errno = KeptErrno::here();
    let _blocked = Blocked::all();
    let _uncancelled = Uncancelled::here();
    if TALKING.swap(true, AcqRel) {
        return None;
    }
    let panics = AbortOnPanic::armed();
    let result = act();
    panics.disarm();
    TALKING.store(false, Release);
    result
}

/// Announces an open that is about to be made, `mildly` if it reads as well; `None` where there are no windows.
pub fn announce(mildly: bool) -> Option<Announcement<'static>> {
    if !is_offered() || GIVEN_UP.load(Acquire) {
        return None;
    }
    let registration = registration().or_else(register)?;
    let _errno = KeptErrno::here();
    (is_owner() && registration.is_here()).then(|| {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        if mildly { registration.announce_mildly(thread) } else { registration.announce(thread) }
    })
}

#[cold]
fn register() -> Option<&'static Registration> {
    talk(|| {
        if let Some(registration) = registration() {
            return Some(registration);
        }
        let length = PATH_BYTES.load(Acquire);
        // SAFETY: written before the length was stored, and never again.
        let path = unsafe { &(&*PATH.0.get())[..length] };
        let connected = Registration::connect_from(path, OWN_DESCRIPTORS_FROM).ok();
        let Some(registration) = connected.filter(|_| descriptors::wipe_on_fork()) else {
            PATH_BYTES.store(0, Relaxed); // no agent, or one of another version: no second try
            return None;
        };
        OWNER.store(rustix::process::getpid().as_raw_nonzero().get() as u64, Relaxed);
        let registration: &'static Registration = Box::leak(Box::new(registration));
        REGISTRATION.store(core::ptr::from_ref(registration).cast_mut(), Release);
        Some(registration)
    })
}

/// The program closes descriptors `first` to `last`: if ours is among them there are no windows any more.
pub fn closes(first: u32, last: u32) {
    let Some(registration) = registration() else { return };
    let own = registration.socket().as_raw_fd() as u32;
    if (first..=last).contains(&own) && is_owner() {
        PATH_BYTES.store(0, Relaxed);
        REGISTRATION.store(core::ptr::null_mut(), Release);
        descriptors::forget_range(0, u32::MAX);
    }
}

/// Asks for the window of an open file and remembers the answer.
#[cold]
pub fn attach(fd: c_int, open: &descriptors::Open) {
    let answer = talk(|| {
        let registration = registration()
            .filter(|registration| registration.is_here() && !size_is_limited() && !GIVEN_UP.load(Acquire))?;
        // SAFETY: the program's descriptor, which a call of its own is using.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        Some(registration.attach(file, WINDOW_BYTES.load(Relaxed)))
    });
    match answer {
        Some(Ok(window)) => open.give(Some(window), 0),
        Some(Err(error)) if error.raw_os_error() != Some(libc::EAGAIN) => {
            open.give(None, u32::MAX);
            descriptors::forget(fd);
        }
        _ => open.give(None, RETRY_AFTER_WRITES),
    }
}

/// Whether the kernel would have to refuse writes past a size.
fn size_is_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Ends the window of a descriptor, drained, and leaves it to the kernel: others are about to see its file in ways that
/// reach no agent. Errors as [`end`] has them.
#[cold]
pub fn give_back(fd: c_int) -> Result<(), c_int> {
    if descriptors::forget(fd) { end(fd) } else { Ok(()) }
}

/// Has the agent drain and end whatever window the open file has, and permit none. An errno: the window has ended, and what it
/// acknowledged is not where the kernel looks.
pub fn end(fd: c_int) -> Result<(), c_int> {
    let _errno = KeptErrno::here();
    // SAFETY: the program's descriptor, which a call of its own is using.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let ask = |command| control(file, &Control::new(command, 0));
    let ended = loop {
        match ask(Command::Off).map_err(|error| error.raw_os_error().unwrap_or(libc::EPROTO)) {
            Err(libc::EINTR) => {}
            ended => break ended,
        }
    };
    if ended.is_err() && ask(Command::Get).is_err() {
        return Ok(()); // no file of an agent's, or the agent has gone, which the call itself will tell
    }
    // What was appended the kernel does not know of; by the size that it is told now it appends and copies.
    let _ = rustix::fs::fstat(file);
    ended.map(drop)
}

/// All of them, and for good: what is read and written from now on may be seen by nobody here. Also before [`configure`].
pub fn give_up() {
    // A child that shares the memory of its parent has nothing to give back, and leaves that its own.
    if GIVEN_UP.load(Relaxed) || (registration().is_some() && !is_owner()) {
        return;
    }
    if !GIVEN_UP.swap(true, AcqRel) && is_offered() {
        give_back_all();
    }
}

/// All of them, because the program limits the size of files.
pub fn give_back_all() {
    for fd in 3..crate::limits::DESCRIPTORS_MAX as c_int {
        // What is not drained fails the writes that follow.
        let _ = give_back(fd);
    }
}
