//! Locks between processes, over a real mount.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::channel;

use testkit::{PATIENCE, in_private_namespace};

use crate::stand::{PASSTHROUGH, Stand};
use crate::who::{as_process, own_descriptors};

fn open(stand: &Stand, name: &str) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(stand.path(name)).unwrap()
}

fn fcntl(fd: RawFd, command: i32, kind: i32, start: i64, len: i64) -> Result<libc::flock, i32> {
    // SAFETY: all bytes zero is a valid value of this plain structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, start, len);
    // SAFETY: the structure lives through the call.
    match unsafe { libc::fcntl(fd, command, &mut lock) } {
        0 => Ok(lock),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

#[test] // S12
fn ranges_exclude_other_processes_and_end_with_any_close() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let file = open(&stand, "file");
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 10, 10).unwrap();
        as_process(|| {
            let other = open(&stand, "file");
            assert_eq!(fcntl(other.as_raw_fd(), libc::F_SETLK, libc::F_RDLCK, 15, 1).unwrap_err(), libc::EAGAIN);
            fcntl(other.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap();
            let held = fcntl(other.as_raw_fd(), libc::F_GETLK, libc::F_WRLCK, 0, 0).unwrap();
            assert_eq!((held.l_type as i32, held.l_start, held.l_len), (libc::F_WRLCK, 10, 10));
            assert_eq!(held.l_pid as u32, std::process::id());
        });
        // The other process has ended, and its locks with it.
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap();
        // Closing any other descriptor of the file ends all locks of this process.
        drop(open(&stand, "file"));
        as_process(|| {
            let other = open(&stand, "file");
            fcntl(other.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
        });
    });
}

#[test]
fn a_waiting_process_gets_the_lock_when_it_is_released() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let file = open(&stand, "file");
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
        let (started, wait_started) = channel();
        let (granted, wait_granted) = channel();
        std::thread::scope(|scope| {
            let stand = &stand;
            scope.spawn(move || {
                own_descriptors();
                let other = open(stand, "file");
                started.send(()).unwrap();
                fcntl(other.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK, 0, 0).unwrap();
                granted.send(()).unwrap();
            });
            wait_started.recv_timeout(PATIENCE).unwrap();
            assert!(wait_granted.try_recv().is_err());
            fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK, 0, 0).unwrap();
            wait_granted.recv_timeout(PATIENCE).unwrap();
        });
    });
}

#[test] // S12
fn a_circle_of_waiting_processes_is_refused() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let file = open(&stand, "file");
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 1).unwrap();
        let (holding, wait_holding) = channel();
        std::thread::scope(|scope| {
            let stand = &stand;
            let other = scope.spawn(move || {
                own_descriptors();
                let other = open(stand, "file");
                fcntl(other.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 1, 1).unwrap();
                holding.send(()).unwrap();
                // The second of the two is refused; its end lets the other go on.
                fcntl(other.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK, 0, 1).map(|_| ())
            });
            wait_holding.recv_timeout(PATIENCE).unwrap();
            let ours = fcntl(file.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK, 1, 1).map(|_| ());
            if ours.is_err() {
                fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK, 0, 0).unwrap();
            }
            let theirs = other.join().unwrap();
            let refused = [ours, theirs].iter().filter(|outcome| **outcome == Err(libc::EDEADLK)).count();
            assert_eq!(refused, 1);
        });
    });
}

#[test] // S12
fn a_signal_ends_the_wait_for_a_lock() {
    extern "C" fn ignore(_: i32) {}
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        // SAFETY: a handler that does nothing, installed without SA_RESTART so that calls are interrupted.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        }
        let file = open(&stand, "file");
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
        let (started, wait_started) = channel();
        std::thread::scope(|scope| {
            let stand = &stand;
            let waiter = scope.spawn(move || {
                own_descriptors();
                let other = open(stand, "file");
                // SAFETY: gettid has no arguments and no effect.
                started.send(unsafe { libc::gettid() }).unwrap();
                fcntl(other.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK, 0, 0).unwrap_err()
            });
            let thread = wait_started.recv_timeout(PATIENCE).unwrap();
            // Repeated, since the first signal may arrive before the wait.
            testkit::wait_until("the interrupted wait", PATIENCE, || {
                // SAFETY: a signal with a handler, to a thread of this process that is not joined yet.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
                waiter.is_finished()
            });
            assert_eq!(waiter.join().unwrap(), libc::EINTR);
        });
        // The interrupted thread holds no lock.
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK, 0, 0).unwrap();
        as_process(|| fcntl(open(&stand, "file").as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 0).map(|_| ())).unwrap();
    });
}

#[test]
fn locks_of_open_file_descriptions_end_with_them() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let (first, second) = (open(&stand, "file"), open(&stand, "file"));
        fcntl(first.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
        assert_eq!(fcntl(second.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap_err(), libc::EAGAIN);
        // Closing another descriptor of the file does not end the lock, unlike a POSIX lock.
        drop(open(&stand, "file"));
        assert_eq!(fcntl(second.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap_err(), libc::EAGAIN);
        drop(first);
        testkit::wait_until("the release", PATIENCE, || {
            fcntl(second.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).is_ok()
        });
    });
}

#[test]
fn flocks_are_the_open_files_and_shared_by_its_duplicates() {
    in_private_namespace(|| {
        use rustix::fs::{FlockOperation, flock};
        let stand = Stand::new(PASSTHROUGH);
        let (first, second) = (open(&stand, "file"), open(&stand, "file"));
        flock(&first, FlockOperation::LockExclusive).unwrap();
        assert!(flock(&second, FlockOperation::NonBlockingLockShared).is_err());
        let duplicate = first.try_clone().unwrap();
        drop(first);
        assert!(flock(&second, FlockOperation::NonBlockingLockShared).is_err());
        flock(&duplicate, FlockOperation::NonBlockingLockShared).unwrap();
        flock(&second, FlockOperation::NonBlockingLockShared).unwrap();
        drop(duplicate);
        testkit::wait_until("the release", PATIENCE, || {
            flock(&second, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
    });
}

#[test] // S12
fn a_lock_by_one_name_excludes_by_another() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let file = open(&stand, "file");
        std::fs::hard_link(stand.path("file"), stand.path("other")).unwrap();
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
        as_process(|| {
            let other = open(&stand, "other");
            assert_eq!(fcntl(other.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap_err(), libc::EAGAIN);
        });
    });
}

#[test]
fn the_lock_of_a_process_is_its_own_though_the_open_file_is_shared() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let file = open(&stand, "file");
        fcntl(file.as_raw_fd(), libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap();
        let shared = file.as_raw_fd();
        as_process(|| {
            // The same open file description, inherited as by fork, but another lock owner.
            assert_eq!(fcntl(shared, libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap_err(), libc::EAGAIN);
            fcntl(shared, libc::F_SETLK, libc::F_WRLCK, 20, 10).unwrap();
        });
        // The thread's descriptors, and with them its locks, are closed a moment after the join.
        testkit::wait_until("its end", PATIENCE, || fcntl(shared, libc::F_SETLK, libc::F_WRLCK, 20, 10).is_ok());
        as_process(|| {
            let other = open(&stand, "file");
            assert_eq!(fcntl(other.as_raw_fd(), libc::F_SETLK, libc::F_RDLCK, 5, 1).unwrap_err(), libc::EAGAIN);
        });
    });
}
