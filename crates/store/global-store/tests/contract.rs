//! Properties of every global store, tested on the POSIX and the memory store, and random operations that compare the
//! two.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use global_store::posix::{PosixStore, StoreOptions};
use global_store::{Access, Anchor, GlobalStore, StoreFile};
use models::global::MemoryStore;
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;
use types::{ByteRange, Timestamp};

/// A store and the means to use it as another program would.
trait Bed {
    fn store(&self) -> &dyn GlobalStore;
    fn create(&self, path: &str, data: &[u8]) -> Arc<dyn Anchor>;
    fn rename(&self, from: &str, to: &str);
    fn link(&self, from: &str, to: &str);
    fn unlink(&self, path: &str);
    fn read(&self, path: &str) -> Vec<u8>;
}

struct Posix {
    directory: TempDir,
    store: PosixStore,
}

impl Posix {
    fn new() -> Posix {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        let root = OwnedFd::from(File::open(directory.path()).unwrap());
        Posix { directory, store: PosixStore::new(root, StoreOptions::default()).unwrap() }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join(path)
    }
}

impl Bed for Posix {
    fn store(&self) -> &dyn GlobalStore {
        &self.store
    }

    fn create(&self, path: &str, data: &[u8]) -> Arc<dyn Anchor> {
        fs::write(self.path(path), data).unwrap();
        let fd = rustix::fs::open(self.path(path), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        self.store.anchor(fd, None).unwrap()
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn link(&self, from: &str, to: &str) {
        fs::hard_link(self.path(from), self.path(to)).unwrap();
    }

    fn unlink(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap()
    }
}

impl Bed for MemoryStore {
    fn store(&self) -> &dyn GlobalStore {
        self
    }

    fn create(&self, path: &str, data: &[u8]) -> Arc<dyn Anchor> {
        self.put(path, data);
        self.anchor(path).unwrap()
    }

    fn rename(&self, from: &str, to: &str) {
        MemoryStore::rename(self, from, to).unwrap();
    }

    fn link(&self, from: &str, to: &str) {
        MemoryStore::link(self, from, to).unwrap();
    }

    fn unlink(&self, path: &str) {
        MemoryStore::unlink(self, path).unwrap();
    }

    fn read(&self, path: &str) -> Vec<u8> {
        MemoryStore::read(self, path).unwrap()
    }
}

/// Runs a test on both stores.
fn on_both(fact: impl Fn(&dyn Bed)) {
    fact(&Posix::new());
    fact(&MemoryStore::new());
}

fn read_all(file: &dyn StoreFile) -> Vec<u8> {
    let size = file.attributes().unwrap().fingerprint.size;
    let mut bytes = vec![0; size as usize + 10];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn what_is_written_is_read_and_lands_in_the_named_file() {
    on_both(|bed| {
        let anchor = bed.create("d/a", b"hello");
        let file = anchor.open(Access::Write).unwrap();
        file.write_at(b"world", 3).unwrap();
        file.sync().unwrap();
        assert_eq!(read_all(&*anchor.open(Access::Read).unwrap()), b"helworld");
        assert_eq!(bed.read("d/a"), b"helworld");
        anchor.sync_name().unwrap();
        bed.store().sync().unwrap();
    });
}

#[test]
fn a_file_opened_for_reading_refuses_writes() {
    on_both(|bed| {
        let file = bed.create("a", b"hello").open(Access::Read).unwrap();
        assert_eq!(file.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(file.set_len(0).is_err() && file.punch(ByteRange::new(0, 5)).is_err());
        assert_eq!(bed.read("a"), b"hello");
    });
}

#[test] // S2
fn identity_stays_through_rename_and_is_never_that_of_a_replacement() {
    on_both(|bed| {
        let anchor = bed.create("a", b"1");
        let (old, hint) = (anchor.identity().clone(), Path::new("a"));
        bed.rename("a", "d/b");
        assert_eq!(anchor.path_hint(), Path::new("d/b"));
        let found = bed.store().locate(&old, hint, true).unwrap().unwrap();
        assert_eq!(found.identity(), &old);
        assert_eq!(read_all(&*found.open(Access::Read).unwrap()), b"1");
        let other = bed.create("a", b"2");
        assert_ne!(other.identity(), &old);
        let found = bed.store().locate(&old, hint, true).unwrap().unwrap();
        assert_eq!(read_all(&*found.open(Access::Read).unwrap()), b"1");
    });
}

#[test]
fn an_unlinked_file_is_readable_by_its_anchor_but_not_found() {
    on_both(|bed| {
        let anchor = bed.create("d/a", b"1");
        bed.unlink("d/a");
        assert_eq!(anchor.attributes().unwrap().links, 0);
        assert_eq!(anchor.path_hint(), Path::new(""));
        assert_eq!(read_all(&*anchor.open(Access::Read).unwrap()), b"1");
        anchor.sync_name().unwrap();
        for hint in ["d/a", "d", "", "x/y/z", "d/a/b"] {
            assert!(bed.store().locate(anchor.identity(), Path::new(hint), true).unwrap().is_none());
        }
    });
}

#[test]
fn a_file_with_a_second_name_is_found_when_the_first_goes() {
    on_both(|bed| {
        let anchor = bed.create("a", b"1");
        bed.link("a", "d/b");
        bed.unlink("a");
        assert_eq!(anchor.attributes().unwrap().links, 1);
        assert!(bed.store().locate(anchor.identity(), Path::new("a"), true).unwrap().is_some());
        anchor.sync_name().unwrap();
    });
}

#[test]
fn the_mark_is_set_read_and_removed_and_moves_ctime_only() {
    on_both(|bed| {
        let anchor = bed.create("a", b"1");
        let before = anchor.attributes().unwrap().fingerprint;
        assert_eq!(anchor.mark().unwrap(), None);
        anchor.set_mark(None).unwrap();
        // The kernel's clock for files may stand still for a tick.
        while anchor.attributes().unwrap().fingerprint.ctime == before.ctime {
            anchor.set_mark(Some(b"node 7, epoch 3")).unwrap();
        }
        assert_eq!(anchor.mark().unwrap().unwrap(), b"node 7, epoch 3");
        assert!(anchor.attributes().unwrap().fingerprint.same_content(&before));
        anchor.set_mark(None).unwrap();
        assert_eq!(anchor.mark().unwrap(), None);
    });
}

#[test]
fn mtime_is_set_to_the_nanosecond() {
    on_both(|bed| {
        let anchor = bed.create("a", b"1");
        let mtime = Timestamp { seconds: 1_234_567_890, nanos: 123_456_789 };
        anchor.open(Access::Write).unwrap().set_mtime(mtime).unwrap();
        assert_eq!(anchor.attributes().unwrap().fingerprint.mtime, mtime);
    });
}

#[test]
fn a_hole_reads_as_zeros_and_is_not_data() {
    on_both(|bed| {
        let file = bed.create("a", b"").open(Access::Write).unwrap();
        assert_eq!(file.next_data(0).unwrap(), None);
        file.set_len(4 << 20).unwrap();
        assert_eq!(file.next_data(0).unwrap(), None);
        file.write_at(&[7; 1 << 20], 1 << 20).unwrap();
        assert_eq!(file.next_data(0).unwrap(), Some(ByteRange::new(1 << 20, 2 << 20)));
        assert_eq!(file.next_data(3 << 19).unwrap(), Some(ByteRange::new(3 << 19, 2 << 20)));
        assert_eq!(file.next_data(2 << 20).unwrap(), None);
        file.punch(ByteRange::new(1 << 20, u64::MAX / 2)).unwrap();
        assert_eq!(file.next_data(0).unwrap(), None);
        file.punch(ByteRange::new(8 << 20, 9 << 20)).unwrap();
        assert_eq!(file.attributes().unwrap().fingerprint.size, 4 << 20);
        assert_eq!(read_all(&*file), vec![0; 4 << 20]);
        assert_eq!(file.read_at(&mut [0; 8], 5 << 20).unwrap(), 0);
    });
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Returns an offset, often at a block boundary.
    fn offset(&mut self) -> u64 {
        if self.below(2) == 0 { self.below(16) * 4096 } else { self.below(1 << 16) }
    }
}

/// Checks that every byte outside data ranges is zero. Ranges must be in order, not empty, and end within the file.
fn data_covers_everything(file: &dyn StoreFile, bytes: &[u8]) {
    let mut at = 0;
    while let Some(data) = file.next_data(at).unwrap() {
        assert!(!data.is_empty() && data.start >= at && data.end <= bytes.len() as u64, "{data:?} from {at}");
        assert!(bytes[at as usize..data.start as usize].iter().all(|&byte| byte == 0));
        at = data.end;
    }
    assert!(bytes.get(at as usize..).unwrap_or_default().iter().all(|&byte| byte == 0));
}

#[test]
fn random_operations_leave_the_same_bytes_in_both_stores() {
    for seed in 1..=20 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (posix, memory) = (Posix::new(), MemoryStore::new());
        let beds: [&dyn Bed; 2] = [&posix, &memory];
        let files = beds.map(|bed| bed.create("a", b"start").open(Access::Write).unwrap());
        for step in 0..200 {
            let (start, end) = (random.offset(), random.offset());
            let range = ByteRange::new(start.min(end), start.max(end));
            match random.below(5) {
                0 | 1 => {
                    let data = vec![random.below(255) as u8 + 1; range.len() as usize];
                    files.iter().for_each(|file| file.write_at(&data, range.start).unwrap());
                }
                2 => files.iter().for_each(|file| file.set_len(start).unwrap()),
                3 => files.iter().for_each(|file| file.punch(range).unwrap()),
                _ => {
                    let read = files.each_ref().map(|file| {
                        let mut bytes = vec![1; range.len() as usize];
                        let count = file.read_at(&mut bytes, range.start).unwrap();
                        bytes.truncate(count);
                        bytes
                    });
                    assert_eq!(read[0], read[1], "seed {seed} step {step}");
                }
            }
            let [posix, memory] = files.each_ref().map(|file| read_all(&**file));
            assert!(posix == memory, "seed {seed} step {step}");
            files.iter().for_each(|file| data_covers_everything(&**file, &posix));
        }
        assert_eq!(beds[0].read("a"), beds[1].read("a"));
    }
}
