//! Time of last access, as programs see it and as it arrives below (policy `atime`).

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use testkit::{PATIENCE, in_private_namespace, wait_until};

use crate::stand::{CACHED, DIRECT, How, PASSTHROUGH, Stand};

/// Ways of reading a file's first byte: a call, and a mapping.
const READS: [fn(&File); 2] = [read, map];

fn read(file: &File) {
    file.read_at(&mut [0], 0).unwrap();
}

fn map(file: &File) {
    // SAFETY: a new private mapping of the first page of an open file, read in its first byte and unmapped once.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        std::hint::black_box(at.cast::<u8>().read_volatile());
        libc::munmap(at, 4096);
    }
}

fn atime(path: &Path) -> (i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.atime(), found.atime_nsec())
}

fn at(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

fn ago(hours: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(hours * 3600)
}

/// Sets both times of a file, below or as programs see it.
fn set(path: &Path, accessed: SystemTime, modified: SystemTime) {
    let times = fs::FileTimes::new().set_accessed(accessed).set_modified(modified);
    OpenOptions::new().write(true).open(path).unwrap().set_times(times).unwrap();
}

#[test] // S36
fn every_way_to_read_is_told_at_once_and_is_below_once_the_file_is_closed() {
    in_private_namespace(|| {
        let ways =
            [PASSTHROUGH, DIRECT, CACHED].into_iter().flat_map(|way| [("atime=relative", way), ("atime=strict", way)]);
        for (rule, way) in ways {
            let stand = Stand::new(How { rule: Some(rule), ..way });
            for (number, reads) in READS.into_iter().enumerate() {
                // One file is small; the other is staged in by ranges while it is read.
                for len in [10, 3 << 20] {
                    let name = format!("{number}-{len}");
                    let label = format!("{rule} {way:?} {name}");
                    fs::write(stand.below(&name), vec![1; len]).unwrap();
                    let modified = ago(24);
                    set(&stand.below(&name), ago(48), modified);
                    let before = atime(&stand.below(&name));
                    let file = File::open(stand.path(&name)).unwrap();
                    assert_eq!(atime(&stand.path(&name)), before, "{label}: opened");
                    // The kernel's clock for files lags by some milliseconds.
                    let start = at(ago(0)) - 1;
                    reads(&file);
                    let told = atime(&stand.path(&name));
                    assert!((start..=at(ago(0))).contains(&told.0), "{label}: {told:?}");
                    drop(file);
                    wait_until("the time below", PATIENCE, || atime(&stand.below(&name)).0 >= start);
                    assert_eq!(atime(&stand.path(&name)), atime(&stand.below(&name)), "{label}");
                    assert_eq!(fs::metadata(stand.below(&name)).unwrap().mtime(), at(modified), "{label}");
                }
            }
        }
    });
}

/// Reads repeatedly until the file's time of last access has moved, or `for_ms` have passed. Returns whether it
/// moved.
fn moves(file: &File, path: &Path, for_ms: u64) -> bool {
    let (before, start) = (atime(path), SystemTime::now());
    while start.elapsed().is_ok_and(|passed| passed < Duration::from_millis(for_ms)) {
        read(file);
        if atime(path) != before {
            return true;
        }
    }
    false
}

#[test] // S36
fn strict_tells_every_read_and_relative_the_first_after_a_change() {
    in_private_namespace(|| {
        // In other modes the kernel reads from its page cache, and the agent is not told.
        for way in [PASSTHROUGH, DIRECT].into_iter().filter(How::is_served) {
            let strict = Stand::new(How { rule: Some("atime=strict"), ..way });
            fs::write(strict.path("file"), "data").unwrap();
            let file = File::open(strict.path("file")).unwrap();
            assert!((0..3).all(|_| moves(&file, &strict.path("file"), PATIENCE.as_millis() as u64)), "{way:?}");
            drop(file);

            let stand = Stand::new(How { rule: Some("atime=relative"), ..way });
            let path = stand.path("file");
            fs::write(&path, "data").unwrap();
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let patience = PATIENCE.as_millis() as u64;
            assert!(moves(&file, &path, patience), "{way:?}: never read since it was written");
            assert!(!moves(&file, &path, 30), "{way:?}: read since it was written");
            file.write_at(b"DATA", 0).unwrap();
            assert!(moves(&file, &path, patience), "{way:?}: written again");
            assert!(!moves(&file, &path, 30), "{way:?}");
            let accessed = ago(48);
            set(&path, accessed, ago(72));
            assert_eq!(atime(&path).0, at(accessed), "{way:?}: what is set is told");
            assert!(moves(&file, &path, patience), "{way:?}: not read for a day");
        }
    });
}

#[test] // S36
fn a_time_of_last_access_that_is_set_stays_and_opens_without_it_leave_it() {
    in_private_namespace(|| {
        for way in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(How { rule: Some("atime=strict"), ..way });
            let path = stand.path("file");
            fs::write(stand.below("file"), "data").unwrap();
            let file = File::open(&path).unwrap();
            assert!(moves(&file, &path, PATIENCE.as_millis() as u64));
            let accessed = ago(48);
            set(&path, accessed, ago(24));
            let set = atime(&path);
            assert_eq!((set.0, atime(&stand.below("file"))), (at(accessed), set));
            drop(file);
            let quiet = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(&path).unwrap();
            READS.into_iter().for_each(|reads| reads(&quiet));
            assert!(!moves(&quiet, &path, 30) && atime(&path) == set, "{way:?}");
        }
    });
}

#[test] // S36
fn no_read_moves_anything_by_default() {
    in_private_namespace(|| {
        for way in [PASSTHROUGH, DIRECT, How { rule: Some("cache=through"), ..PASSTHROUGH }] {
            let stand = Stand::new(way);
            fs::write(stand.below("file"), vec![1; 3 << 20]).unwrap();
            set(&stand.below("file"), ago(48), ago(24));
            let before = atime(&stand.below("file"));
            for writes in [false, true, false] {
                let file = OpenOptions::new().read(true).write(writes).open(stand.path("file")).unwrap();
                READS.into_iter().for_each(|reads| reads(&file));
                assert!(!moves(&file, &stand.path("file"), 10), "{way:?}");
            }
            assert_eq!(atime(&stand.below("file")), before, "{way:?}");
        }
    });
}
