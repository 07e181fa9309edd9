//! The protocol against the real kernel: a file system in memory, served by a child process and used by the test.

mod memory_fs;

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fuse_protocol::{SessionEnd, ThreadCounts, mount};
use memory_fs::{BLOCKED, COUNTS, PANIC, PASSTHROUGH};
use testkit::{PATIENCE, ProcessGuard, TempTree, in_private_namespace, wait_until};

/// Variables for [`server_process`]: mount point, maximum of threads, lower file.
const SERVE: [&str; 3] = ["MEMORY_FS_DIR", "MEMORY_FS_THREADS", "MEMORY_FS_LOWER"];

/// Serving process of the tests. Does nothing unless [`Mounted`] started it.
#[test]
fn server_process() {
    let Some(dir) = std::env::var_os(SERVE[0]) else { return };
    let max = std::env::var(SERVE[1]).unwrap().parse().unwrap();
    let lower = std::env::var_os(SERVE[2]).unwrap().into();
    assert_eq!(
        memory_fs::serve(Path::new(&dir), lower, ThreadCounts { max, ..ThreadCounts::default() }),
        SessionEnd::Unmounted
    );
}

/// Mounted file system and the process that serves it.
struct Mounted {
    dir: PathBuf,
    lower: PathBuf,
    server: ProcessGuard,
    _tree: TempTree,
}

impl Mounted {
    fn new(threads: usize) -> Mounted {
        let tree = TempTree::new();
        let (dir, lower) = (tree.dir("mount"), tree.file("lower", b"the lower file"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["server_process", "--exact", "--nocapture"]).stdout(Stdio::null());
        command.env(SERVE[0], &dir).env(SERVE[1], threads.to_string()).env(SERVE[2], &lower);
        let server = ProcessGuard::spawn(&mut command);
        wait_until("it is mounted", PATIENCE, || mount::is_mounted(&dir).unwrap());
        Mounted { dir, lower, server, _tree: tree }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn count(&self, name: &str) -> u64 {
        let counts = std::fs::read_to_string(self.path(COUNTS)).unwrap();
        counts.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    }

    /// Unmounts and checks that the session ended by itself and without an error.
    fn end(mut self) {
        mount::unmount(&self.dir, false).unwrap();
        assert!(self.server.wait(PATIENCE).success());
    }

    /// Returns a function that reads the kernel's count of unanswered requests. Asks only the kernel, not the file
    /// system.
    fn waiting(&self) -> impl Fn() -> u64 + use<> {
        let connections = Path::new("/sys/fs/fuse/connections");
        // Ends with the private namespace. If mounted already, this is refused and not needed.
        _ = rustix::mount::mount("none", connections, "fusectl", rustix::mount::MountFlags::empty(), c"");
        let device = std::fs::metadata(&self.dir).unwrap().dev();
        let count = connections.join(rustix::fs::minor(device).to_string()).join("waiting");
        move || std::fs::read_to_string(&count).unwrap().trim().parse().unwrap()
    }

    /// Starts processes that read the blocking file.
    fn blocked_readers(&self, number: u64) -> Vec<ProcessGuard> {
        let read = || {
            let mut command = Command::new("cat");
            ProcessGuard::spawn(command.arg(self.path(BLOCKED)).stdout(Stdio::null()).stderr(Stdio::null()))
        };
        (0..number).map(|_| read()).collect()
    }
}

#[test]
fn files_are_created_written_read_listed_renamed_and_removed() {
    in_private_namespace(|| {
        let mounted = Mounted::new(64);
        let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 7) as u8).collect();
        let mut file = File::options().create_new(true).read(true).write(true).open(mounted.path("a")).unwrap();
        file.write_all(&data).unwrap();
        file.rewind().unwrap();
        let mut back = Vec::new();
        file.read_to_end(&mut back).unwrap();
        assert!(back == data);
        drop(file);
        std::fs::rename(mounted.path("a"), mounted.path("b")).unwrap();
        assert_eq!(std::fs::metadata(mounted.path("a")).unwrap_err().kind(), ErrorKind::NotFound);
        let file = File::options().write(true).open(mounted.path("b")).unwrap();
        file.set_len(10).unwrap();
        assert_eq!(std::fs::read(mounted.path("b")).unwrap(), data[..10]);
        rustix::fs::setxattr(mounted.path("b"), "user.a", b"value", rustix::fs::XattrFlags::empty()).unwrap();
        let mut small = [0; 2];
        let range = rustix::fs::getxattr(mounted.path("b"), "user.a", &mut small).unwrap_err();
        assert_eq!(range, rustix::io::Errno::RANGE);
        let mut value = [0; 16];
        assert_eq!(rustix::fs::getxattr(mounted.path("b"), "user.a", &mut value), Ok(5));
        drop(file);
        // More entries than one buffer holds.
        for number in 0..300 {
            File::create(mounted.path(&format!("a file with a rather long name, so that few fit: {number:04}")))
                .unwrap();
        }
        let names: Vec<_> = std::fs::read_dir(&mounted.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 305);
        std::fs::remove_file(mounted.path("b")).unwrap();
        mounted.end();
    });
}

#[test]
fn statx_tells_the_time_of_birth() {
    in_private_namespace(|| {
        use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
        if !testkit::kernel_has((6, 6), "a time of birth") {
            return;
        }
        let mounted = Mounted::new(64);
        File::create(mounted.path("born")).unwrap();
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = statx(CWD, mounted.path("born"), AtFlags::empty(), mask).unwrap();
        assert!(stat.stx_mask & StatxFlags::BTIME.bits() != 0);
        assert_eq!((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec, stat.stx_size), (-3, 7, 0));
        mounted.end();
    });
}

#[test]
fn unmounting_ends_the_session() {
    in_private_namespace(|| Mounted::new(64).end());
}

#[test]
fn blocked_handlers_stop_nobody_and_an_interrupt_ends_each() {
    in_private_namespace(|| {
        let mounted = Mounted::new(64);
        let mut readers = mounted.blocked_readers(40);
        wait_until("all handlers block", PATIENCE, || mounted.count("blocked") == 40);
        std::fs::write(mounted.path("meanwhile"), b"works").unwrap();
        assert_eq!(std::fs::read(mounted.path("meanwhile")).unwrap(), b"works");
        for reader in &mut readers {
            reader.signal(rustix::process::Signal::TERM);
            assert!(!reader.wait(PATIENCE).success());
        }
        assert_eq!(mounted.count("blocked"), 0);
        mounted.end();
    });
}

#[test]
fn interrupts_get_through_when_every_thread_is_blocked_and_requests_wait() {
    in_private_namespace(|| {
        let mounted = Mounted::new(4);
        let waiting = mounted.waiting();
        let mut readers = mounted.blocked_readers(20);
        // Three handlers block; the fourth thread reads on and queues the requests.
        wait_until("all wait", PATIENCE, || waiting() == 20);
        for reader in readers.iter_mut().rev() {
            reader.signal(rustix::process::Signal::TERM);
            assert!(!reader.wait(PATIENCE).success());
        }
        assert_eq!(mounted.count("blocked"), 0);
        mounted.end();
    });
}

#[test]
fn an_unlock_gets_through_past_200_waiting_lockers() {
    in_private_namespace(|| {
        // Far fewer threads than waiters: a waiter for a lock holds no thread.
        let mounted = Mounted::new(8);
        let holder = File::create(mounted.path("locked")).unwrap();
        holder.lock().unwrap();
        let lock_and_go = || {
            let file = File::open(mounted.path("locked")).unwrap();
            file.lock().unwrap();
            file.unlock().unwrap();
        };
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..200).map(|_| scope.spawn(lock_and_go)).collect();
            wait_until("all wait", PATIENCE, || mounted.count("lock_waiters") == 200);
            holder.unlock().unwrap();
            wait_until("all had it", PATIENCE, || waiters.iter().all(|waiter| waiter.is_finished()));
        });
        drop(holder);
        mounted.end();
    });
}

#[test]
fn a_handler_that_panics_answers_eio_and_the_session_lives() {
    in_private_namespace(|| {
        let mounted = Mounted::new(64);
        for _ in 0..3 {
            let error = std::fs::read(mounted.path(PANIC)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
        }
        std::fs::write(mounted.path("after"), b"works").unwrap();
        assert_eq!(std::fs::read(mounted.path("after")).unwrap(), b"works");
        mounted.end();
    });
}

#[test] // S13
fn passthrough_reads_and_writes_make_no_request() {
    in_private_namespace(|| {
        if !testkit::kernel_has((6, 9), "passthrough") {
            return;
        }
        let mounted = Mounted::new(64);
        let file = File::options().read(true).write(true).open(mounted.path(PASSTHROUGH)).unwrap();
        let mut head = [0; 9];
        file.read_exact_at(&mut head, 0).unwrap();
        assert_eq!(&head, b"the lower");
        file.write_all_at(b"our", 0).unwrap();
        assert_eq!(std::fs::read(&mounted.lower).unwrap(), b"our lower file");
        rustix::fs::fstat(file.as_fd()).unwrap();
        drop(file);
        assert_eq!((mounted.count("reads"), mounted.count("writes")), (0, 0));
        mounted.end();
    });
}
