//! Locks are kept at the server: they exclude the programs of all nodes that have their names from it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use testkit::{ProcessGuard, in_private_namespace, wait_for, wait_until};

use crate::cluster::{BOUND, Cluster};
use crate::ledger::EndOfAll;

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

#[test] // S48
fn locks_exclude_between_nodes_and_go_over_when_they_are_released() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
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

/// A program that waits for a lock on the file.
fn waits_for_lock(dir: &Path) -> ProcessGuard {
    let (locked, began) = (dir.join("locked"), dir.join("began"));
    let script = format!("exec 3<>{}; echo >{}; exec flock 3", locked.display(), began.display());
    let waiter = ProcessGuard::spawn(std::process::Command::new("sh").args(["-c", &script]));
    let waits = |pid: u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        comm == "flock\n" && (stat.contains(") S ") || stat.contains(") D "))
    };
    wait_until("it waits", BOUND, || began.exists() && waits(waiter.pid()));
    waiter
}

#[test]
fn who_waits_for_a_lock_can_be_killed_in_the_grace_period_of_the_next_server_and_then_has_none() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let held = open(&one);
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let mut waiter = waits_for_lock(&two);
        // The grace period lasts while this node is awaited.
        cluster.signal_agent(1, Signal::STOP);
        cluster.kill_server();
        cluster.start_server();
        let began = Instant::now();
        fs::metadata(two.join("began")).unwrap();
        waiter.signal(Signal::KILL);
        waiter.wait(BOUND);
        assert!(began.elapsed().as_secs() < 8, "after the grace period: {:?}", began.elapsed());
        cluster.signal_agent(1, Signal::CONT);
        flock(&held, FlockOperation::Unlock).unwrap();
        let third = open(&two);
        wait_until("it is free", BOUND, || flock(&third, FlockOperation::NonBlockingLockExclusive).is_ok());
        drop((held, third));
        cluster.end_server();
    });
}

#[test] // S48
fn a_signal_ends_the_wait_for_a_lock_of_another_node() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let held = open(&one);
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let mut waiter = waits_for_lock(&two);
        waiter.signal(Signal::TERM);
        waiter.wait(BOUND);
        flock(&held, FlockOperation::Unlock).unwrap();
        flock(open(&two), FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(held);
        cluster.end_server();
    });
}

#[test] // S48
fn the_locks_of_a_node_that_is_killed_are_released() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
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

#[test] // S49
fn locks_outlive_a_server_that_is_killed_and_so_do_the_waits_for_them() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let (first, beside, second) = (open(&one), open(&one), open(&two));
        flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(range(&first, libc::F_WRLCK));
        let third = open(&two);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| flock(&third, FlockOperation::LockExclusive));
            for round in 0..3_u8 {
                if round == 2 {
                    cluster.end_server()
                } else {
                    cluster.kill_server()
                }
                cluster.start_server();
                first.write_all_at(&[round], u64::from(round)).unwrap();
                assert_eq!(flock(&second, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::AGAIN));
                assert!(!range(&second, libc::F_RDLCK));
                assert!(!waiter.is_finished());
            }
            beside.write_all_at(&[3], 3).unwrap();
            assert!(range(&first, libc::F_UNLCK) && range(&second, libc::F_WRLCK));
            flock(&first, FlockOperation::Unlock).unwrap();
            waiter.join().unwrap().unwrap();
        });
        drop((first, beside, second, third));
        assert_eq!(fs::read(two.join("locked")).unwrap(), [0, 1, 2, 3]);
        cluster.end_server();
    });
}

#[test] // S49
fn a_node_that_does_not_come_in_the_grace_period_has_lost_its_locks_and_is_told() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let (first, beside, second) = (open(&one), open(&one), open(&two));
        flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
        cluster.signal_agent(1, Signal::STOP);
        cluster.kill_server();
        cluster.start_server();
        let outcome = std::thread::scope(|scope| {
            let other = scope.spawn(|| flock(&second, FlockOperation::NonBlockingLockExclusive));
            // In the grace period: the next begins one.
            wait_until("it has come", BOUND, || fs::metadata(two.join("locked")).is_ok());
            cluster.kill_server();
            cluster.start_server();
            cluster.signal_agent(1, Signal::CONT);
            other.join().unwrap()
        });
        assert_eq!(outcome, Err(rustix::io::Errno::AGAIN), "it waits for those who may have it, and asks them");
        first.write_all_at(b"still mine", 0).unwrap();

        cluster.signal_agent(1, Signal::STOP);
        cluster.kill_server();
        cluster.start_server();
        let began = Instant::now();
        flock(&second, FlockOperation::LockExclusive).unwrap();
        assert!(began.elapsed().as_secs() >= 5, "not before the time is over: {:?}", began.elapsed());
        cluster.signal_agent(1, Signal::CONT);
        for lost in [&first, &beside] {
            assert_eq!(lost.write_at(b"lost", 0).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        }
        // The next server does not have it either.
        cluster.kill_server();
        cluster.start_server();
        second.write_all_at(b"taken over", 0).unwrap();
        drop((first, beside));
        let again = open(&one);
        assert!(flock(&again, FlockOperation::NonBlockingLockShared).is_err());
        drop((again, second));
        assert_eq!(fs::read(two.join("locked")).unwrap(), b"taken over");
        cluster.end_server();
    });
}

/// Counts in a file under a lock until `end`; how often.
fn count(dir: &Path, end: &AtomicBool, counted: &AtomicU64) {
    let file = open(dir);
    while !end.load(Ordering::SeqCst) {
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let mut number = [0; 8];
        let _ = file.read_at(&mut number, 0).unwrap();
        file.write_all_at(&(u64::from_le_bytes(number) + 1).to_le_bytes(), 0).unwrap();
        flock(&file, FlockOperation::Unlock).unwrap();
        counted.fetch_add(1, Ordering::SeqCst);
    }
}

#[test] // S49
fn what_is_done_under_locks_while_the_server_is_killed_again_and_again_is_done_one_after_the_other() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let (end, counted) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
        let total = || counted.iter().map(|count| count.load(Ordering::SeqCst)).sum::<u64>();
        std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            let (end, counted) = (&end, &counted);
            for (dir, counted) in [&one, &two, &one].into_iter().zip(counted) {
                scope.spawn(move || count(dir, end, counted));
            }
            for _ in 0..5 {
                let before = total();
                wait_until("they count on", BOUND, || total() > before + 20);
                cluster.kill_server();
                cluster.start_server();
            }
        });
        let found = fs::read(two.join("locked")).unwrap();
        assert_eq!(u64::from_le_bytes(found.try_into().unwrap()), total());
        cluster.end_server();
    });
}

#[test] // S48
fn a_lock_that_was_granted_to_a_program_that_was_killed_meanwhile_is_released() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let held = open(&one);
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        // Its parent has the file open as well, so that no close releases anything.
        let script = format!("exec 3<>{}; flock 3 & echo $! >{}; sleep 1000", two.join("locked").display(), "pid");
        let mut command = std::process::Command::new("sh");
        let _parent = ProcessGuard::spawn(command.args(["-c", &script]).current_dir(cluster.tree.path("")));
        let pid = wait_for("the waiter", BOUND, || {
            fs::read_to_string(cluster.tree.path("pid"))
                .ok()?
                .trim()
                .parse()
                .ok()
                .and_then(rustix::process::Pid::from_raw)
        });
        let stat = || fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        wait_until("it waits", BOUND, || stat().contains("(flock) S ") || stat().contains("(flock) D "));
        cluster.plug(2, false);
        flock(&held, FlockOperation::Unlock).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        wait_until("it is dead", BOUND, || stat().is_empty() || stat().contains(") Z "));
        cluster.plug(2, true);
        wait_until("what it was granted is free", BOUND, || {
            flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        drop(held);
    });
}
