//! The `slowfs` program on a real mount: as fast as configured, no faster, and otherwise the lower directory.

mod calibrated;
mod tree;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::{PATIENCE, ProcessGuard, TempTree, in_private_namespace, in_private_namespace_within, wait_until};

/// A directory shown through `slowfs`.
struct Slow {
    lower: PathBuf,
    shown: PathBuf,
    server: ProcessGuard,
    _tree: TempTree,
}

impl Slow {
    fn new(arguments: &[&str]) -> Slow {
        let tree = TempTree::new();
        let (lower, shown) = (tree.mount_tmpfs("lower", 256 << 20), tree.dir("shown"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_slowfs"));
        command.arg(&lower).arg(&shown).arg("--foreground").args(arguments);
        let server = ProcessGuard::spawn(&mut command);
        wait_until("it is mounted", PATIENCE, || is_mounted(&shown));
        Slow { lower, shown, server, _tree: tree }
    }

    fn end(mut self) {
        unmount(&self.shown);
        assert!(self.server.wait(PATIENCE).success());
    }
}

fn is_mounted(dir: &Path) -> bool {
    fuse_protocol::mount::is_mounted(dir).unwrap()
}

fn unmount(dir: &Path) {
    fuse_protocol::mount::unmount(dir, false).unwrap();
}

#[test]
fn a_large_write_takes_as_long_as_promised_and_arrives_whole() {
    in_private_namespace(|| {
        let slow = Slow::new(&["--bandwidth", "128MiB/s", "--latency", "1ms"]);
        let data: Vec<u8> = (0..64 << 20).map(|at: u32| (at / 5) as u8).collect();
        let promised = Duration::from_millis(500);
        // On a busy machine one try may be slower than configured, but never faster.
        wait_until("a try is within a tenth of the promise", PATIENCE, || {
            let begun = Instant::now();
            let mut file = File::create(slow.shown.join("file")).unwrap();
            file.write_all(&data).unwrap();
            file.sync_all().unwrap();
            let took = begun.elapsed();
            assert!(took >= promised.mul_f64(0.9), "{took:?}");
            took <= promised.mul_f64(1.1)
        });
        assert!(fs::read(slow.lower.join("file")).unwrap() == data);
        slow.end();
    });
}

#[test]
fn reads_share_the_bandwidth_and_get_the_content() {
    in_private_namespace(|| {
        let slow = Slow::new(&["--bandwidth", "64MiB/s"]);
        let data: Vec<u8> = (0..16 << 20).map(|at: u32| (at / 3) as u8).collect();
        fs::write(slow.lower.join("a"), &data).unwrap();
        fs::write(slow.lower.join("b"), &data).unwrap();
        let read = |name: &str| {
            let mut back = Vec::new();
            File::open(slow.shown.join(name)).unwrap().read_to_end(&mut back).unwrap();
            assert!(back == data);
        };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| read("a"));
            scope.spawn(|| read("b"));
        });
        assert!(begun.elapsed() >= Duration::from_millis(450), "{:?}", begun.elapsed());
        slow.end();
    });
}

#[test]
fn every_operation_takes_the_latency_and_they_run_side_by_side() {
    in_private_namespace(|| {
        let slow = Slow::new(&["--latency", "10ms"]);
        let begun = Instant::now();
        for number in 0..30 {
            assert!(!slow.shown.join(format!("missing {number}")).exists());
        }
        assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
        wait_until("thirty take less than their sum", PATIENCE, || thirty_at_once(&slow) < Duration::from_millis(250));
        slow.end();
    });
}

fn thirty_at_once(slow: &Slow) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..30 {
            scope.spawn(move || assert!(!slow.shown.join(format!("missing {number}")).exists()));
        }
    });
    begun.elapsed()
}

#[test]
fn random_operations_do_the_same_as_on_a_plain_directory() {
    in_private_namespace(|| {
        let slow = Slow::new(&[]);
        let plain = TempTree::new();
        let plain = plain.mount_tmpfs("plain", 64 << 20);
        // Each thread works in its own tree; the daemon serves all of them at once.
        std::thread::scope(|scope| {
            for seed in 1..=4 {
                let dirs = [&slow.shown, &plain].map(|dir| dir.join(format!("tree {seed}")));
                dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
                scope.spawn(move || tree::same_operations(&dirs, seed, 1500));
            }
        });
        let through = tree::snapshot(&slow.shown);
        assert!(through.len() > 20);
        assert_eq!(through, tree::snapshot(&plain));
        assert_eq!(through, tree::snapshot(&slow.lower));
        slow.end();
    });
}

#[test]
fn threads_on_one_tree_leave_the_same_above_and_below() {
    in_private_namespace(|| {
        let slow = Slow::new(&["--latency", "50us", "--jitter", "200us", "--seed", "7"]);
        std::thread::scope(|scope| {
            for seed in 1..=8 {
                let shown = &slow.shown;
                scope.spawn(move || tree::any_operations(shown, seed, 600));
            }
        });
        let through = tree::snapshot(&slow.shown);
        assert!(through.len() > 3);
        assert_eq!(through, tree::snapshot(&slow.lower));
        slow.end();
    });
}

#[test]
fn inode_numbers_times_and_birth_are_those_below() {
    in_private_namespace(|| {
        use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
        let slow = Slow::new(&[]);
        fs::create_dir(slow.shown.join("dir")).unwrap();
        fs::write(slow.shown.join("dir/file"), b"bytes").unwrap();
        for name in ["", "dir", "dir/file"] {
            let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            let stat = |dir: &PathBuf| statx(CWD, dir.join(name), AtFlags::empty(), mask).unwrap();
            let (above, below) = (stat(&slow.shown), stat(&slow.lower));
            assert_eq!(above.stx_ino, below.stx_ino);
            assert_eq!(above.stx_mtime.tv_nsec, below.stx_mtime.tv_nsec);
            assert!(below.stx_mask & StatxFlags::BTIME.bits() != 0);
            assert_eq!(
                (above.stx_btime.tv_sec, above.stx_btime.tv_nsec),
                (below.stx_btime.tv_sec, below.stx_btime.tv_nsec)
            );
        }
        slow.end();
    });
}

#[test]
fn what_a_user_creates_is_theirs_and_what_is_not_allowed_is_refused() {
    in_private_namespace(|| {
        let slow = Slow::new(&[]);
        fs::set_permissions(&slow.shown, fs::Permissions::from_mode(0o1777)).unwrap();
        let as_user = |script: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=1234", "--regid=1235", "--clear-groups", "sh", "-c", script]);
            command.current_dir(&slow.shown).stderr(Stdio::null());
            ProcessGuard::spawn(&mut command).wait(PATIENCE).success()
        };
        assert!(as_user("umask 027; echo x > file; mkdir dir; ln -s file link; mkfifo fifo; touch dir/in"));
        for (name, mode) in [("file", 0o640), ("dir", 0o750), ("fifo", 0o640), ("dir/in", 0o640), ("link", 0o777)] {
            let stat = fs::symlink_metadata(slow.lower.join(name)).unwrap();
            assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (1234, 1235, mode), "{name}");
        }
        fs::create_dir(slow.shown.join("private")).unwrap();
        fs::set_permissions(slow.shown.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(slow.shown.join("theirs"), b"x").unwrap();
        assert!(!as_user("ls private") && !as_user("echo y > theirs") && !as_user("rm -f theirs"));
        // A write by another user clears the set-id bits.
        let tool = slow.shown.join("tool");
        fs::write(&tool, b"x").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o6777)).unwrap();
        assert!(as_user("echo y >> tool"));
        assert_eq!(fs::metadata(slow.lower.join("tool")).unwrap().mode() & 0o7777, 0o777);
        // Below a set-group-id directory new files get the directory's group.
        fs::create_dir(slow.shown.join("shared")).unwrap();
        std::os::unix::fs::chown(slow.shown.join("shared"), None, Some(77)).unwrap();
        fs::set_permissions(slow.shown.join("shared"), fs::Permissions::from_mode(0o2777)).unwrap();
        assert!(as_user("touch shared/file"));
        let stat = fs::metadata(slow.lower.join("shared/file")).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (1234, 77));
        slow.end();
    });
}

#[test]
fn data_and_holes_fallocate_and_locks_work() {
    in_private_namespace(|| {
        use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
        let slow = Slow::new(&[]);
        let file = File::options().create_new(true).read(true).write(true).open(slow.shown.join("sparse")).unwrap();
        file.write_all_at(b"end", 1 << 20).unwrap();
        assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
        fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2 << 20);
        file.lock().unwrap();
        let other = File::open(slow.shown.join("sparse")).unwrap();
        assert!(other.try_lock().is_err());
        drop((file, other));
        slow.end();
    });
}

#[test]
fn sigterm_unmounts() {
    in_private_namespace(|| {
        let mut slow = Slow::new(&[]);
        // The mount is in use but is removed from the tree all the same.
        let open = File::create(slow.shown.join("file")).unwrap();
        slow.server.signal(rustix::process::Signal::TERM);
        wait_until("it is unmounted", PATIENCE, || !is_mounted(&slow.shown));
        drop(open);
        assert!(slow.server.wait(PATIENCE).success());
    });
}

#[test]
fn in_the_background_it_returns_once_mounted_also_over_the_directory_itself() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let dir = tree.dir("dir");
        tree.file("dir/file", "content");
        let slowfs = || Command::new(env!("CARGO_BIN_EXE_slowfs"));
        let status = slowfs().arg(&dir).arg(&dir).args(["--latency", "1ms"]).status().unwrap();
        assert!(status.success() && is_mounted(&dir));
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"content");
        unmount(&dir);
        let failed = slowfs().arg(dir.join("missing")).arg(&dir).output().unwrap();
        assert!(!failed.status.success());
        let said = String::from_utf8(failed.stderr).unwrap();
        assert!(said.contains("missing: No such file"), "{said}");
    });
}
