//! Locks are kept at the server: they exclude the programs of all nodes that have their names from it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use testkit::{ProcessGuard, in_private_namespace, wait_until};

use crate::cluster::{BOUND, Cluster};

fn open(dir: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(dir.join("locked")).unwrap()
}

/// Tries to lock the first byte for writing, as this process.
fn range(file: &File, kind: i32) -> bool {
    // SAFETY: flock is plain data, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_len) = (kind as i16, 1);
    // SAFETY: an open descriptor and a structure that lives through the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 }
}

#[test]
fn locks_exclude_between_nodes_and_go_over_when_they_are_released() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount_names(1, &[]), cluster.mount_names(2, &[]));
        let (first, second) = (open(&one), open(&two));
        flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(flock(&second, FlockOperation::NonBlockingLockExclusive).is_err());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| flock(&second, FlockOperation::LockExclusive));
            fs::write(two.join("other"), "nothing else waits for a lock that is waited for").unwrap();
            assert!(!waiter.is_finished());
            flock(&first, FlockOperation::Unlock).unwrap();
            waiter.join().unwrap().unwrap();
        });
        assert!(flock(&first, FlockOperation::NonBlockingLockShared).is_err());
        drop(second);
        wait_until("the close is heard", BOUND, || flock(&first, FlockOperation::NonBlockingLockShared).is_ok());
        // One process, and two kernels that each know it by some number.
        let second = open(&two);
        assert!(range(&first, libc::F_WRLCK) && !range(&second, libc::F_WRLCK));
        assert!(range(&first, libc::F_UNLCK) && range(&second, libc::F_WRLCK));
        assert!(!range(&first, libc::F_RDLCK));
        drop((first, second));
        cluster.end_server();
    });
}

#[test]
fn a_signal_ends_the_wait_for_a_lock_of_another_node() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount_names(1, &[]), cluster.mount_names(2, &[]));
        let held = open(&one);
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let script =
            format!("exec 3<>{}; echo >{}; exec flock 3", two.join("locked").display(), two.join("began").display());
        let mut waiter = ProcessGuard::spawn(std::process::Command::new("sh").args(["-c", &script]));
        let waits = |pid: u32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            comm == "flock\n" && (stat.contains(") S ") || stat.contains(") D "))
        };
        wait_until("it waits", BOUND, || two.join("began").exists() && waits(waiter.pid()));
        waiter.signal(Signal::TERM);
        waiter.wait(BOUND);
        flock(&held, FlockOperation::Unlock).unwrap();
        flock(open(&two), FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(held);
        cluster.end_server();
    });
}

#[test]
fn the_locks_of_a_node_that_is_killed_are_released() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount_names(1, &[]), cluster.mount_names(2, &[]));
        let (first, second) = (open(&one), open(&two));
        flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(range(&first, libc::F_WRLCK));
        let killed = Instant::now();
        cluster.kill_agent(1);
        flock(&second, FlockOperation::LockExclusive).unwrap();
        assert!(range(&second, libc::F_WRLCK));
        assert!(killed.elapsed().as_secs() >= 9, "not before it is known to be gone: {:?}", killed.elapsed());
        drop((first, second));
        cluster.unmount(1);
        cluster.end_server();
    });
}
