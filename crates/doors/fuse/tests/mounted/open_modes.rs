//! Opens and mappings in every order, and a file that changes below while it is open.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use testkit::{PATIENCE, in_private_namespace, wait_until};

use crate::stand::{DIRECT, PASSTHROUGH, Stand};

/// Shared mapping of a file's first page. Unmapped when dropped.
struct Mapping(*mut u8);

impl Mapping {
    fn new(file: &File, writable: bool) -> Mapping {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapping(at.cast())
    }

    fn get(&self) -> u8 {
        // SAFETY: the page is mapped readable while this lives, and the file has a byte there.
        unsafe { self.0.read_volatile() }
    }

    fn set(&self, byte: u8) {
        // SAFETY: as above; only called on writable mappings.
        unsafe { self.0.write_volatile(byte) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}

fn first_byte(path: &std::path::Path) -> u8 {
    fs::read(path).unwrap()[0]
}

#[test] // S9
fn every_order_of_opens_and_mappings_works() {
    in_private_namespace(|| {
        for how in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(how);
            let path = stand.path("file");
            fs::write(&path, [1; 4096]).unwrap();
            let read = || File::open(&path).unwrap();
            let write = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
            for first_writes in [false, true] {
                for second_writes in [false, true] {
                    for (maps, closes) in [(false, false), (true, false), (true, true)] {
                        let first = if first_writes { write() } else { read() };
                        let mapping = maps.then(|| Mapping::new(&first, first_writes));
                        let first = (!closes).then_some(first);
                        let second = if second_writes { write() } else { read() };
                        let other = Mapping::new(&second, second_writes);
                        if let (Some(mapping), true) = (&mapping, first_writes) {
                            mapping.set(mapping.get().wrapping_add(1));
                            assert_eq!(other.get(), mapping.get());
                        }
                        let mut byte = [0];
                        second.read_exact_at(&mut byte, 0).unwrap();
                        drop((first, mapping));
                        assert_eq!(byte[0], other.get());
                    }
                }
            }
        }
    });
}

#[test] // S24
fn a_changed_file_is_new_for_new_opens_and_old_for_old_ones() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let path = stand.path("file");
        fs::write(stand.below("file"), [1; 8192]).unwrap();
        let old = File::open(&path).unwrap();
        let mapping = Mapping::new(&old, false);
        let mut byte = [0];
        old.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!((byte[0], mapping.get()), (1, 1));
        let inode = old.metadata().unwrap().ino();
        fs::write(stand.below("file"), [2; 4096]).unwrap();
        wait_until("the new version", PATIENCE, || first_byte(&path) == 2);
        old.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!((byte[0], mapping.get()), (1, 1));
        let new = File::open(&path).unwrap();
        assert_eq!(new.metadata().unwrap().ino(), inode);
        assert_eq!(new.metadata().unwrap().len(), 4096);
        wait_until("attributes of the old version", PATIENCE, || old.metadata().unwrap().len() == 8192);
    });
}

#[test] // S12
fn a_lock_on_the_old_version_excludes_on_the_new_one() {
    in_private_namespace(|| {
        use rustix::fs::{FlockOperation, flock};
        let stand = Stand::new(PASSTHROUGH);
        let path = stand.path("file");
        fs::write(stand.below("file"), [1; 8192]).unwrap();
        let old = File::open(&path).unwrap();
        flock(&old, FlockOperation::LockExclusive).unwrap();
        fs::write(stand.below("file"), [2; 4096]).unwrap();
        wait_until("the new version", PATIENCE, || first_byte(&path) == 2);
        let new = File::open(&path).unwrap();
        assert!(flock(&new, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(old);
        wait_until("the release", PATIENCE, || flock(&new, FlockOperation::NonBlockingLockExclusive).is_ok());
    });
}

#[test] // S24
fn every_name_of_a_changed_file_leads_to_the_new_version() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::write(stand.below("one"), [1; 8192]).unwrap();
        fs::hard_link(stand.below("one"), stand.below("two")).unwrap();
        let old = File::open(stand.path("one")).unwrap();
        assert_eq!(first_byte(&stand.path("two")), 1);
        fs::write(stand.below("one"), [2; 4096]).unwrap();
        wait_until("the new version", PATIENCE, || first_byte(&stand.path("one")) == 2);
        assert_eq!(first_byte(&stand.path("two")), 2);
        let mut byte = [0];
        old.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte[0], 1);
    });
}

#[test]
fn a_file_replaced_by_rename_stays_with_who_has_it_open() {
    in_private_namespace(|| {
        for how in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(how);
            fs::write(stand.path("file"), b"old").unwrap();
            let old = OpenOptions::new().read(true).write(true).open(stand.path("file")).unwrap();
            fs::write(stand.path("new"), b"new").unwrap();
            fs::rename(stand.path("new"), stand.path("file")).unwrap();
            old.write_all_at(b"OLD", 0).unwrap();
            let mut text = [0; 3];
            old.read_exact_at(&mut text, 0).unwrap();
            assert_eq!(&text, b"OLD");
            assert_eq!(fs::read(stand.path("file")).unwrap(), b"new");
        }
    });
}

#[test] // S9
fn a_reopened_descriptor_is_the_same_file() {
    in_private_namespace(|| {
        for how in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(how);
            fs::write(stand.path("file"), b"content").unwrap();
            let file = File::open(stand.path("file")).unwrap();
            fs::remove_file(stand.path("file")).unwrap();
            let again = File::open(crate::stand::proc_path(&file)).unwrap();
            assert_eq!(again.metadata().unwrap().ino(), file.metadata().unwrap().ino());
            let mut text = [0; 7];
            again.read_exact_at(&mut text, 0).unwrap();
            assert_eq!(&text, b"content");
        }
    });
}

#[test] // S13
fn the_kernel_reads_and_writes_a_complete_file_while_the_agent_stands_still() {
    in_private_namespace(|| {
        if !PASSTHROUGH.is_served() {
            return;
        }
        let stand = Stand::new(PASSTHROUGH);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(stand.path("file")).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        let mapping = Mapping::new(&file, true);
        stand.pause();
        let mut byte = [0];
        for round in 2..100 {
            file.write_all_at(&[round; 4096], 0).unwrap();
            file.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!((byte[0], mapping.get()), (round, round));
        }
        mapping.set(200);
        file.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte[0], 200);
        stand.resume();
    });
}

#[test] // S11
fn a_write_goes_where_the_descriptor_says_now_and_not_when_it_was_opened() {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    in_private_namespace(|| {
        for how in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(how);
            let open =
                || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(stand.path("log"));
            let mut log = open().unwrap();
            log.write_all(b"one two").unwrap();
            log.rewind().unwrap();
            fcntl_setfl(&log, fcntl_getfl(&log).unwrap() | OFlags::APPEND).unwrap();
            log.write_all(b" three").unwrap();
            assert_eq!(fs::read(stand.path("log")).unwrap(), b"one two three", "{how:?}");
            let log = OpenOptions::new().append(true).open(stand.path("log")).unwrap();
            fcntl_setfl(&log, fcntl_getfl(&log).unwrap() - OFlags::APPEND).unwrap();
            log.write_all_at(b"ONE", 0).unwrap();
            // Exception: under passthrough the kernel writes by the flags of the open.
            let now: &[u8] = if how.passthrough && how.is_served() { b"one two threeONE" } else { b"ONE two three" };
            assert_eq!(fs::read(stand.path("log")).unwrap(), now, "{how:?}");
        }
    });
}
