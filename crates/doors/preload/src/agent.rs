//! The connection of this process to the agent, made when the first file is opened that may have a window; a forked child makes
//! one of its own.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::thread::futex;
use window::attach::{Command, Control, LIBRARY_MARK, state};
use window::client::{Announcement, Registration, Window, control, might_answer};
use window::environment::{Wish, wish};

use crate::limits::{DESCRIPTORS_MAX, DIRECTORY_BYTES, OWN_DESCRIPTORS_FROM, RETRY_AFTER_WRITES, SOCKET_PATH_MAX};
use crate::own::{self, DONE, OWN};
use crate::signals::{AbortOnPanic, Blocked, KeptErrno, Uncancelled};
use crate::{allocator, asynchronous, descriptors, lifetime, stdio};

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
/// 0: this process asks for no windows: no agent was named, or none answered.
static PATH_BYTES: AtomicUsize = AtomicUsize::new(0);
/// An agent was named, whatever became of it here: others may have windows in it.
static NAMED: AtomicBool = AtomicBool::new(false);
/// Wanted size of a window; 0: as the policy says.
static WINDOW_BYTES: AtomicU64 = AtomicU64::new(0);

/// A process registered, this one or one that it is a fork of.
static HAS_REGISTERED: AtomicBool = AtomicBool::new(false);
/// This process asks for no windows any more, nor do its children.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// And makes no system call of ours: it may be ended for one.
static FILTERED: AtomicBool = AtomicBool::new(false);

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
        Some(Wish::Off) => return end_inherited(),
        Some(Wish::Bytes(bytes)) => bytes,
        // `forebay run` has refused what is none.
        Some(Wish::Policy) | None => 0,
    };
    let wiped = own::wipe_on_fork(&OWN) && allocator::wipe_on_fork() && descriptors::wipe_on_fork();
    if !wiped || asynchronous::has_liburing() {
        return end_inherited();
    }
    if let Some(Wish::Bytes(bytes)) = value(c"FOREBAY_STDIO_BUFFER").and_then(wish) {
        stdio::configure(bytes);
    }
    WINDOW_BYTES.store(bytes, Relaxed);
    // SAFETY: nobody reads it before PATH_BYTES is stored.
    unsafe { (&mut *PATH.0.get())[..path.len()].copy_from_slice(path) };
    PATH_BYTES.store(path.len(), Release);
    NAMED.store(true, Release);
}

/// Whether this process may ask an agent for windows.
pub fn is_offered() -> bool {
    PATH_BYTES.load(Relaxed) != 0
}

/// Whether a descriptor may have a window of somebody's: an agent was named when the program began.
pub fn may_be_windowed(fd: c_int) -> bool {
    fd >= 0 && NAMED.load(Relaxed) && !is_filtered() && may_be_accelerated(fd)
}

/// Whether this process filters its system calls: none of ours may be among them.
pub fn is_filtered() -> bool {
    FILTERED.load(Acquire)
}

/// Whether this process asks the agent for anything.
fn asks() -> bool {
    is_offered() && !GIVEN_UP.load(Acquire)
}

/// Whether this process, not a child that shares its memory, is the one that registered.
pub fn is_owner() -> bool {
    OWN.owner.load(Relaxed) == rustix::process::getpid().as_raw_nonzero().get() as u64
}

fn registration() -> Option<&'static Registration> {
    // SAFETY: never freed once it was stored.
    unsafe { OWN.registration.load(Acquire).as_ref() }
}

/// Runs `act` unless somebody talks to the agent already.
fn talk<T>(act: impl FnOnce() -> Option<T>) -> Option<T> {
    let _errno = KeptErrno::here();
    let _blocked = Blocked::all();
    let _uncancelled = Uncancelled::here();
    if OWN.talking.swap(true, AcqRel) {
        return None;
    }
    let panics = AbortOnPanic::armed();
    let result = act();
    panics.disarm();
    OWN.talking.store(false, Release);
    result
}

/// Announces an open that is about to be made, `mildly` if it reads as well; `None` where there are no windows.
pub fn announce(mildly: bool) -> Option<Announcement<'static>> {
    if !asks() {
        return None;
    }
    let registration = registration().or_else(register)?;
    let _errno = KeptErrno::here();
    is_owner().then(|| {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        if mildly { registration.announce_mildly(thread) } else { registration.announce(thread) }
    })
}

#[cold]
fn register() -> Option<&'static Registration> {
    talk(registered)
}

/// The registration, made if there is none. Within [`talk`].
fn registered() -> Option<&'static Registration> {
    if let Some(registration) = registration() {
        return Some(registration);
    }
    let length = PATH_BYTES.load(Acquire);
    // SAFETY: written before the length was stored, and never again.
    let path = unsafe { &(&*PATH.0.get())[..length] };
    if HAS_REGISTERED.swap(true, Relaxed) {
        descriptors::abandon_inherited();
    }
    let Ok(registration) = Registration::connect_from(path, OWN_DESCRIPTORS_FROM) else {
        PATH_BYTES.store(0, Relaxed); // no agent, or one of another version: no second try
        return None;
    };
    OWN.owner.store(rustix::process::getpid().as_raw_nonzero().get() as u64, Relaxed);
    let registration: &'static Registration = Box::leak(Box::new(registration));
    OWN.registration.store(core::ptr::from_ref(registration).cast_mut(), Release);
    Some(registration)
}

/// The registration of a process that has not given up, whose agent answers just now. What is asked over the socket of another table
/// of descriptors, or by a child that shares our memory, might be something else's. Within [`talk`].
fn answering() -> Option<&'static Registration> {
    let is_ours = || asks() && (registration().is_none() || is_owner());
    let found = is_ours().then(registered).flatten()?;
    (is_ours() && found.is_here() && found.is_answered()).then_some(found)
}

/// A regular file of a FUSE file system. Asks nobody behind one, who may have stopped, and no network.
fn may_be_accelerated(fd: c_int) -> bool {
    use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
    let _errno = KeptErrno::here();
    // SAFETY: the program's descriptor, in a call on it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        .is_ok_and(|found| found.stx_dev_major == 0 && FileType::from_raw_mode(found.stx_mode.into()).is_file())
        && might_answer(file)
}

/// Tells the agent something of an open file. False: it is no agent's, or nobody was told, for the agent hangs, another thread asks it
/// something just now, or this process asks for nothing any more.
#[cold]
pub fn tell(fd: c_int, said: &Control) -> bool {
    let told = || {
        // SAFETY: the program's descriptor, in a call on it.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        answering().and_then(|_| control(file, said).ok())
    };
    fd >= 0 && asks() && may_be_accelerated(fd) && talk(told).is_some()
}

/// Has the agent make all that was written to its files durable, if a descriptor is of one. An errno: some of it may not be.
#[cold]
pub fn sync_all(fd: c_int) -> Result<(), c_int> {
    if !may_be_windowed(fd) {
        return Ok(());
    }
    let _errno = KeptErrno::here();
    // SAFETY: the program's descriptor, in a call on it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    loop {
        match control(file, &Control::new(Command::SyncAll, 0)).map_err(|error| error.raw_os_error()) {
            Ok(_) => return Ok(()),
            Err(Some(libc::EINTR)) => {}
            // No file of an agent's, or not of one that knows the question.
            Err(None | Some(libc::ENOTTY | libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP)) => return Ok(()),
            Err(Some(errno)) => return Err(errno),
        }
    }
}

/// The program closes descriptors `first` to `last`: if ours is among them all windows are given back, and there are none any
/// more.
pub fn closes(first: u32, last: u32) {
    let Some(registration) = registration() else { return };
    let own = registration.socket().as_raw_fd() as u32;
    if (first..=last).contains(&own) && is_owner() {
        PATH_BYTES.store(0, Relaxed);
        OWN.registration.store(core::ptr::null_mut(), Release);
        give_back_all();
    }
}

/// Asks for the window of an open file: what came of it, and the writes until it may be asked for again.
#[cold]
pub fn attach(fd: c_int) -> (Option<Window>, u32) {
    let answer = talk(|| {
        let registration = (!size_is_limited()).then(answering).flatten()?;
        // SAFETY: the program's descriptor, which a call of its own is using.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        Some(registration.attach(file, WINDOW_BYTES.load(Relaxed)))
    });
    match answer {
        Some(Ok(window)) => (Some(window), 0),
        Some(Err(error)) if error.raw_os_error() != Some(libc::EAGAIN) => {
            descriptors::forget(fd);
            (None, u32::MAX)
        }
        _ => (None, RETRY_AFTER_WRITES),
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
    let ask = |command| control(file, &Control { state: state::ENDS, ..Control::new(command, 0) });
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

/// All of them, and for good: what is read and written from now on may be seen by nobody here. Also what others that share an
/// open file of ours have appended. Whoever calls meanwhile waits until that is done. Also before [`configure`].
pub fn give_up() {
    // A child that shares the memory of its parent has nothing to give back, and leaves that its own.
    if OWN.giving_up.load(Acquire) == DONE || (registration().is_some() && !is_owner()) {
        return;
    }
    GIVEN_UP.store(true, Release);
    if NAMED.load(Relaxed) {
        give_up_once();
    }
}

/// The same before the program says which system calls it may make: a filter that ends it for others knows nothing of ours.
#[cold]
pub fn give_up_calls() {
    give_up();
    // Not where that left a parent its own.
    FILTERED.store(GIVEN_UP.load(Acquire), Release);
}

#[cold]
fn give_up_once() {
    let _errno = KeptErrno::here();
    let _uncancelled = Uncancelled::here();
    let here = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    match OWN.giving_up.compare_exchange(0, here, AcqRel, Acquire) {
        Ok(_) => {
            end_all();
            OWN.giving_up.store(DONE, Release);
            // It fails only for an address that is not mapped.
            let _ = futex::wake(&OWN.giving_up, futex::Flags::PRIVATE, i32::MAX as u32);
        }
        // A handler of our own signals, which cannot wait.
        Err(by) if by == here => end_all(),
        Err(by) => {
            while OWN.giving_up.load(Acquire) == by {
                // Woken, interrupted, or it was done just now.
                let _ = futex::wait(&OWN.giving_up, futex::Flags::PRIVATE, by, None);
            }
        }
    }
}

/// The windows of all that this process has open, whoever appends to them.
fn end_all() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    for fd in 0..most.min(DESCRIPTORS_MAX as u64) as c_int {
        // What is not drained fails the writes that follow.
        let _ = lifetime::look_past(fd);
    }
}

/// The same in a program that is to have none: those of who started it, for good, because nobody sees it look past them. Called by the
/// loader, when there is one thread: the descriptor that it takes for a moment is in nobody's way.
#[cold]
fn end_inherited() {
    use rustix::fs::{Mode, OFlags, RawDir, open};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = open(c"/proc/self/fd", flags, Mode::empty()) else { return };
    let mut room = [core::mem::MaybeUninit::uninit(); DIRECTORY_BYTES];
    let mut entries = RawDir::new(&dir, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        let number = core::str::from_utf8(entry.file_name().to_bytes()).ok().and_then(|name| name.parse().ok());
        if let Some(fd) = number.filter(|fd| may_be_accelerated(*fd)) {
            // As above.
            let _ = end(fd);
        }
    }
}

/// All of them, because the program limits the size of files, or what it opens next would not be announced.
pub fn give_back_all() {
    for fd in 3..DESCRIPTORS_MAX as c_int {
        // What is not drained fails the writes that follow.
        let _ = give_back(fd);
    }
}
