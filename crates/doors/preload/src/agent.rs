//! Connection of this process to the agent. Made at the first open of a file that may have a window; a forked child
//! makes its own.

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
use crate::{allocator, descriptors, environment, liburing};

/// Mark by which `forebay` recognises the library.
#[used]
static MARK: [u8; LIBRARY_MARK.len()] = {
    let mut bytes = [0; LIBRARY_MARK.len()];
    bytes.copy_from_slice(LIBRARY_MARK.as_bytes());
    bytes
};

/// Path of the agent's socket, from the environment when the library was loaded.
struct SocketPath(UnsafeCell<[u8; SOCKET_PATH_MAX]>);
// SAFETY: written only by `configure`, before PATH_BYTES is stored.
unsafe impl Sync for SocketPath {}
static PATH: SocketPath = SocketPath(UnsafeCell::new([0; SOCKET_PATH_MAX]));
/// Length of the path. 0: this process asks for no windows, because no agent was named or none answered.
static PATH_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Whether an agent was named in the environment, even if it is not used here. Other processes may then have windows.
static NAMED: AtomicBool = AtomicBool::new(false);
/// Wanted size of a window in bytes; 0: as the policy says.
static WINDOW_BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether this process, or one that it was forked from, has registered.
static HAS_REGISTERED: AtomicBool = AtomicBool::new(false);
/// Whether this process and its children ask for no more windows.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// Whether this process may make no system calls of the library, because a filter may end it for them.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// Reads the environment. Called by the loader.
pub fn configure() {
    let size = environment::value(c"FOREBAY_WINDOW").unwrap_or_default();
    let Some(path) =
        environment::value(c"FOREBAY_WINDOW_SOCKET").filter(|path| (1..=SOCKET_PATH_MAX).contains(&path.len()))
    else {
        return;
    };
    let bytes = match wish(size) {
        Some(Wish::Off) => return end_inherited(),
        Some(Wish::Bytes(bytes)) => bytes,
        // An invalid value was refused by `forebay run` already.
        Some(Wish::Policy) | None => 0,
    };
    let wiped = own::wipe_on_fork(&OWN) && allocator::wipe_on_fork() && descriptors::wipe_on_fork();
    if !wiped || liburing::has_liburing() {
        return end_inherited();
    }
    WINDOW_BYTES.store(bytes, Relaxed);
    // SAFETY: not read before PATH_BYTES is stored.
    unsafe { (&mut *PATH.0.get())[..path.len()].copy_from_slice(path) };
    PATH_BYTES.store(path.len(), Release);
    NAMED.store(true, Release);
}

/// Returns whether this process may ask an agent for windows.
pub fn is_offered() -> bool {
    PATH_BYTES.load(Relaxed) != 0
}

/// Returns whether the file of a descriptor may have a window, here or in another process. False if no agent was named
/// when the program began.
pub fn may_be_windowed(fd: c_int) -> bool {
    fd >= 0 && NAMED.load(Relaxed) && !is_filtered() && may_be_accelerated(fd)
}

/// Returns whether this process filters its system calls, so that the library may make none.
pub fn is_filtered() -> bool {
    FILTERED.load(Acquire)
}

/// Returns whether this process asks the agent for anything.
fn asks() -> bool {
    is_offered() && !GIVEN_UP.load(Acquire)
}

/// Returns whether this process is the one that registered, and not a child that shares its memory.
pub fn is_owner() -> bool {
    OWN.owner.load(Relaxed) == rustix::process::getpid().as_raw_nonzero().get() as u64
}

fn registration() -> Option<&'static Registration> {
    // SAFETY: never freed once stored.
    unsafe { OWN.registration.load(Acquire).as_ref() }
}

/// Runs `act`, or returns `None` if another thread talks to the agent already.
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

/// Announces an open that is about to be made, `mildly` if it also reads. Returns `None` if there are no windows.
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

/// Returns the registration, made if there is none. Must be called within [`talk`].
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
        PATH_BYTES.store(0, Relaxed); // no agent, or one of another version: no second attempt
        return None;
    };
    OWN.owner.store(rustix::process::getpid().as_raw_nonzero().get() as u64, Relaxed);
    let registration: &'static Registration = Box::leak(Box::new(registration));
    OWN.registration.store(core::ptr::from_ref(registration).cast_mut(), Release);
    Some(registration)
}

/// Returns the registration if this process has not given up and the agent answers at the moment. `None` in a child
/// that shares our memory, or with another descriptor table, where the socket's number might mean something else. Must
/// be called within [`talk`].
fn answering() -> Option<&'static Registration> {
    let is_ours = || asks() && (registration().is_none() || is_owner());
    let found = is_ours().then(registered).flatten()?;
    (is_ours() && found.is_here() && found.is_answered()).then_some(found)
}

/// Returns whether the descriptor is a regular file of a FUSE file system. Asks no FUSE server, which may have stopped,
/// and no network.
fn may_be_accelerated(fd: c_int) -> bool {
    use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
    let _errno = KeptErrno::here();
    // SAFETY: the program's descriptor, in a call on it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        .is_ok_and(|found| found.stx_dev_major == 0 && FileType::from_raw_mode(found.stx_mode.into()).is_file())
        && might_answer(file)
}

/// Sends the agent a command about an open file. Returns false if the file is not an agent's, or if the agent was not
/// told: it hangs, another thread talks to it, or this process has given up.
#[cold]
pub fn tell(fd: c_int, said: &Control) -> bool {
    let told = || {
        // SAFETY: the program's descriptor, in a call on it.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        answering().and_then(|_| control(file, said).ok())
    };
    fd >= 0 && asks() && may_be_accelerated(fd) && talk(told).is_some()
}

/// Makes the agent sync all data written to its files, if the descriptor is one of them. Errors: an errno if some data
/// may not be durable.
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
            // Not an agent's file, or an agent that does not know the command.
            Err(None | Some(libc::ENOTTY | libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP)) => return Ok(()),
            Err(Some(errno)) => return Err(errno),
        }
    }
}

/// Notes that the program closes descriptors `first` to `last`. If the library's own is among them, all windows are
/// given back and no more are asked for.
pub fn closes(first: u32, last: u32) {
    let Some(registration) = registration() else { return };
    let own = registration.socket().as_raw_fd() as u32;
    if (first..=last).contains(&own) && is_owner() {
        PATH_BYTES.store(0, Relaxed);
        OWN.registration.store(core::ptr::null_mut(), Release);
        give_back_all();
    }
}

/// Asks for the window of an open file. Returns the window, if any, and the number of writes before asking again.
#[cold]
pub fn attach(fd: c_int) -> (Option<Window>, u32) {
    let answer = talk(|| {
        let registration = (!size_is_limited()).then(answering).flatten()?;
        // SAFETY: the program's descriptor, in use by a call of the program.
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

/// Returns whether a limit on file size is set, past which the kernel refuses writes.
fn size_is_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Ends the window of a descriptor after its records are applied, and leaves the descriptor to the kernel. To be called
/// before the file is accessed in ways that do not reach the agent. Errors: as of [`end`].
#[cold]
pub fn give_back(fd: c_int) -> Result<(), c_int> {
    if descriptors::forget(fd) { end(fd) } else { Ok(()) }
}

/// Makes the agent apply the records of any window of the open file, end the window, and allow no new one. Errors: an
/// errno if the window has ended but its acknowledged data is not visible to the kernel.
pub fn end(fd: c_int) -> Result<(), c_int> {
    let _errno = KeptErrno::here();
    // SAFETY: the program's descriptor, in use by a call of the program.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let ask = |command| control(file, &Control { state: state::ENDS, ..Control::new(command, 0) });
    let ended = loop {
        match ask(Command::Off).map_err(|error| error.raw_os_error().unwrap_or(libc::EPROTO)) {
            Err(libc::EINTR) => {}
            ended => break ended,
        }
    };
    if ended.is_err() && ask(Command::Get).is_err() {
        return Ok(()); // not an agent's file, or the agent has gone, as the call itself will report
    }
    // The kernel does not know of appended data. By the size that it is told now, it appends and copies.
    let _ = rustix::fs::fstat(file);
    ended.map(drop)
}

/// Ends windows of a file that the kernel is about to access without asking the agent. Also to be called before flags
/// change that all duplicates of the descriptor share. An unknown descriptor may be a duplicate or inherited: its file
/// is then written through a window under another number, or by another process. Errors: an errno if acknowledged data
/// is not visible to the kernel.
pub fn look_past(fd: c_int) -> Result<(), c_int> {
    if !descriptors::is_foreign(fd) {
        give_back(fd)
    } else if may_be_windowed(fd) {
        end(fd)
    } else {
        Ok(())
    }
}

/// Gives all windows back for good, because later reads and writes may be invisible to this library. This includes
/// windows of other processes that share our open files. Concurrent callers wait until it is done. May be called before
/// [`configure`].
pub fn give_up() {
    // A child that shares its parent's memory has nothing to give back and leaves the parent's windows alone.
    if OWN.giving_up.load(Acquire) == DONE || (registration().is_some() && !is_owner()) {
        return;
    }
    GIVEN_UP.store(true, Release);
    if NAMED.load(Relaxed) {
        give_up_once();
    }
}

/// Gives all windows back, and makes no system calls afterwards. To be called before the program installs a system call
/// filter, which may end it for calls of the library.
#[cold]
pub fn give_up_calls() {
    give_up();
    // Not in a child that shares its parent's memory, which has given nothing up.
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
            // The wake fails only for an address that is not mapped.
            let _ = futex::wake(&OWN.giving_up, futex::Flags::PRIVATE, i32::MAX as u32);
        }
        // A signal handler of this very thread, which cannot wait.
        Err(by) if by == here => end_all(),
        Err(by) => {
            while OWN.giving_up.load(Acquire) == by {
                // Woken, interrupted, or done already.
                let _ = futex::wait(&OWN.giving_up, futex::Flags::PRIVATE, by, None);
            }
        }
    }
}

/// Ends the windows of all open descriptors, whoever appends to them.
fn end_all() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    for fd in 0..most.min(DESCRIPTORS_MAX as u64) as c_int {
        // If records could not be applied, the writes that follow fail.
        let _ = look_past(fd);
    }
}

/// Ends the windows of all inherited descriptors, for good, in a program that is to have none. Later accesses that
/// bypass the agent would not be seen. Called by the loader while there is one thread, so that the descriptor taken for
/// a moment disturbs nobody.
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
            // If records could not be applied, the writes that follow fail.
            let _ = end(fd);
        }
    }
}

/// Gives all windows back, because the program limits the size of files or closes the library's socket.
pub fn give_back_all() {
    for fd in 3..DESCRIPTORS_MAX as c_int {
        // If records could not be applied, the writes that follow fail.
        let _ = give_back(fd);
    }
}
