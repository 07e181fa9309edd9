//! A burst buffer whose file system becomes read-only in use: ext4 on an image, to which an error is reported.

mod support;

use models::{DataStoreExt, MemoryCatalogue, OpenDataExt};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::HasErrno;

use config::{Policy, StageOut};
use data_store::{NewTime, Residency, Status};
use file_cache::{FileCache, Settings};
use rustix::mount::{MountFlags, mount_remount};
use support::{World, kernel_file, read};
use testkit::{Disk, TempTree, in_private_namespace};
use types::Timestamp;

/// Makes a cache with its catalogue on a disk that can become read-only. Files are staged out only by command.
fn on_a_disk() -> Option<(TempTree, Disk, World)> {
    let tree = TempTree::new();
    let disk = Disk::new(tree.path("image"), tree.dir("disk"), 64 << 20)?;
    let root = disk.place().join("forebay");
    let mut world = World::with(|settings| {
        settings.burst_buffer = root;
        settings.catalogue = None;
    });
    world.policy = Arc::new(Policy { stage_out: StageOut::Manual, ..Policy::clone(&world.policy) });
    Some((tree, disk, world))
}

/// Shuts the file system down, as if its device were gone.
fn shut_down(disk: &Disk) {
    const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
    let root = std::fs::File::open(disk.place()).unwrap();
    // `EXT4_GOING_FLAGS_NOLOGFLUSH`
    let how: u32 = 2;
    // SAFETY: the call reads four bytes, which live as long as it.
    let done = unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_SHUTDOWN, &how) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Restarts the agent after the file system was repaired.
fn after_mending(mut world: World, disk: &Disk) -> World {
    world.cache.shutdown();
    // No descriptor of the old cache stays open.
    let elsewhere = Settings { catalogue: Some(Arc::new(MemoryCatalogue::new())), ..world.settings.clone() };
    let nothing = Settings { burst_buffer: world.dir.path().join("nothing"), ..elsewhere };
    world.cache = FileCache::open(nothing).unwrap();
    disk.mend();
    world.cache = FileCache::open(world.settings.clone()).unwrap();
    world
}

/// Returns the status reasons of the burst buffer, or of a file.
fn told(status: &Status, path: &str) -> String {
    let found = status.stuck.iter().find(|stuck| stuck.path == path);
    found.map(|stuck| format!("{}: {}", stuck.reason, stuck.remedy)).unwrap_or_default()
}

fn code<T>(outcome: std::io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.errno())
}

#[test] // S52
fn new_files_and_clean_ones_that_are_written_go_through_when_the_burst_buffer_becomes_read_only() {
    in_private_namespace(|| {
        let Some((_tree, disk, world)) = on_a_disk() else { return };
        for name in ["kept", "written", "read", "absent"] {
            world.store.put(name, b"old");
        }
        ["kept", "written", "read"].iter().for_each(|name| drop(world.open(name, false)));
        let reader = world.open("read", false);
        disk.become_read_only();

        let new = world.create("new");
        assert!(new.backing().is_none());
        new.write(b"data", 0).unwrap();
        assert_eq!((read(&new, 9), world.store.read("new").unwrap()), (b"data".to_vec(), b"data".to_vec()));
        assert!(told(&world.cache.counters(), "(the burst buffer)").contains("Read-only file system"));
        assert_eq!(told(&world.cache.counters(), "(the catalogue of the burst buffer)"), "", "told twice");

        assert_eq!((read(&world.open("kept", false), 9), world.state("kept")), (b"old".to_vec(), Residency::Clean));
        assert_eq!(read(&world.open("absent", false), 9), b"old");
        for name in ["written", "read", "absent"] {
            world.open(name, true).write(b"NEW", 0).unwrap();
            assert_eq!(world.store.read(name).unwrap(), b"NEW", "{name}");
            assert_eq!(read(&world.open(name, false), 9), b"NEW", "{name}");
        }
        assert_eq!(read(&reader, 9), b"NEW", "it was open before");
        drop((new, reader));
        world.cache.housekeep();
        drop(world.store.unlink("written"));
        world.cache.unlinked(&world.identity("kept"));

        // A later start sees the global copy, and not the record in the catalogue.
        let world = after_mending(world, &disk);
        let again = &world.cache;
        assert!(again.counters().stuck.is_empty(), "{:?}", again.counters().stuck);
        assert_eq!(read(&world.open("read", false), 9), b"NEW");
    });
}

#[test] // S52
fn what_the_kernel_reads_in_a_read_only_burst_buffer_is_not_written_behind_its_back() {
    in_private_namespace(|| {
        let Some((_tree, disk, world)) = on_a_disk() else { return };
        world.store.put("f", b"old");
        let reader = world.open("f", false);
        let kernel = reader.begin_passthrough();
        disk.become_read_only();
        assert!(kernel);
        assert_eq!(code(world.cache.open_file(world.anchor("f"), world.how(true))), Some(libc::EROFS));
        assert_eq!(world.store.read("f").unwrap(), b"old");
        drop(reader);
        world.open("f", true).write(b"new", 0).unwrap();
        assert_eq!(world.store.read("f").unwrap(), b"new");
        world.cache.shutdown();
    });
}

#[test] // S52
fn a_burst_buffer_that_gives_nothing_any_more_is_passed_by() {
    in_private_namespace(|| {
        let Some((_tree, disk, world)) = on_a_disk() else { return };
        for name in ["known", "other", "absent"] {
            world.store.put(name, name.as_bytes());
        }
        ["known", "other"].iter().for_each(|name| drop(world.open(name, false)));
        world.write_new("dirty", b"dirty");
        shut_down(&disk);
        let new = world.create("new");
        new.write(b"data", 0).unwrap();
        assert_eq!(world.store.read("new").unwrap(), b"data");
        assert!(told(&world.cache.counters(), "(the burst buffer)").contains("Input/output error"));
        for name in ["known", "other", "absent"] {
            assert_eq!(read(&world.open(name, false), 20), name.as_bytes());
            world.open(name, true).write(b"NEW", 0).unwrap();
            assert_eq!(read(&world.open(name, false), 3), b"NEW");
        }
        assert_eq!(code(world.cache.open_file(world.anchor("dirty"), world.how(true))), Some(libc::EIO));
        assert_eq!(world.cache.drain_all().len(), 1, "its data is there alone");
        assert_ne!(world.state("dirty"), Residency::Clean);
        world.cache.shutdown();
    });
}

#[test] // S52
fn dirty_data_is_staged_out_of_a_read_only_burst_buffer_and_is_not_called_clean() {
    in_private_namespace(|| {
        let Some((_tree, disk, world)) = on_a_disk() else { return };
        let large = vec![7; 3 << 20];
        world.store.put("changed", b"what was there before");
        world.write_new("small", b"small");
        world.write_new("other", b"other");
        world.write_new("large", &large);
        world.open("changed", true).write(b"WHAT", 0).unwrap();
        let writer = world.create("open");
        writer.write(b"open", 0).unwrap();
        let kernel = kernel_file(&writer);
        // Data that is not on the medium yet is only in memory, and may be lost with it.
        disk.become_read_only();

        assert_eq!(code(writer.write(b"more", 4)), Some(libc::EROFS));
        assert_eq!(code(kernel.write_at(b"more", 4)), Some(libc::EROFS));
        assert_eq!(code(world.cache.open_file(world.anchor("small"), world.how(true))), Some(libc::EROFS));
        assert_eq!(read(&world.open("large", false), large.len()), large);
        drop((writer, kernel));

        let expected: [(&str, &[u8]); 5] = [
            ("small", b"small"),
            ("other", b"other"),
            ("large", &large),
            ("changed", b"WHAT was there before"),
            ("open", b"open"),
        ];
        let mut asked = 0;
        for round in 0..2 {
            let stuck = world.cache.drain_all();
            assert_eq!(stuck.len(), expected.len(), "{stuck:?}");
            for (name, data) in expected {
                assert!(world.store.read(name).unwrap() == data, "{name}");
                assert_ne!(world.state(name), Residency::Clean, "{name}");
                let told = told(&world.cache.counters(), name);
                assert!(told.contains("what can be read of it is in the global store"), "{name}: {told:?}");
            }
            if round == 0 {
                asked = world.store.operations();
            }
        }
        let asked = world.store.operations() - asked;
        assert!(asked <= 2 * expected.len() as u64, "what is copied is read again and again: {asked} operations");
        let world = after_mending(world, &disk);
        let again = &world.cache;
        let stuck = again.drain_all();
        assert!(stuck.iter().all(|stuck| stuck.state == Residency::Conflict), "{stuck:?}");
        for (name, data) in expected {
            assert!(world.store.read(name).unwrap() == data, "{name}");
        }
    });
}

/// Makes a world whose burst buffer can be made to refuse writes, and to take them again.
struct Refusing {
    world: World,
    probe: PathBuf,
    nowhere: PathBuf,
    _tree: TempTree,
}

impl Refusing {
    fn new() -> Refusing {
        let tree = TempTree::new();
        let (world, place) = (World::new(), tree.mount_tmpfs("refusing", 1 << 20));
        mount_remount(&place, MountFlags::RDONLY, c"").unwrap();
        let probe = world.dir.path().join("probe");
        Refusing { world, probe, nowhere: place.join("probe"), _tree: tree }
    }

    /// The test of the burst buffer fails, and so do all commits after `after`.
    fn refuse(&self, after: u64) {
        symlink(&self.nowhere, &self.probe).unwrap();
        self.world.catalogue.fail_commits(after, u64::MAX);
    }

    fn take(&self) {
        self.world.catalogue.fail_commits(0, 0);
        std::fs::remove_file(&self.probe).unwrap();
        self.world.advance(1);
        self.world.cache.housekeep();
        assert_eq!(told(&self.world.cache.counters(), "(the burst buffer)"), "");
    }
}

#[test] // S52
fn nothing_is_dropped_for_room_or_age_while_the_burst_buffer_takes_no_writes() {
    in_private_namespace(|| {
        let refusing = Refusing::new();
        let world = &refusing.world;
        world.store.put("kept", b"data");
        drop(world.open("kept", false));
        refusing.refuse(0);
        drop(world.create("new"));
        world.free.store(0, Ordering::Relaxed);
        world.advance(4000);
        world.cache.housekeep();
        assert_eq!(world.state("kept"), Residency::Clean, "nothing is freed by that");
        world.free.store(1 << 40, Ordering::Relaxed);
        refusing.take();
        assert_eq!(world.state("kept"), Residency::Absent, "its time was over");
    });
}

#[test] // S52
fn times_are_set_on_clean_files_while_the_burst_buffer_takes_no_writes() {
    in_private_namespace(|| {
        let refusing = Refusing::new();
        let world = &refusing.world;
        for name in ["closed", "open", "unread"] {
            world.store.put(name, b"data");
        }
        drop(world.open("closed", false));
        let (reader, late) = (world.open("open", false), world.open("unread", false));
        refusing.refuse(0);
        let time = Timestamp { seconds: 1, nanos: 0 };
        for name in ["closed", "open", "unread"] {
            let set = &mut || world.store.set_mtime(name, time);
            world.cache.date(&world.anchor(name), Some(NewTime::At(time)), set).unwrap();
            assert_eq!(world.store.attributes(name).unwrap().fingerprint.mtime, time);
            assert_eq!(read(&world.open(name, false), 9), b"data");
        }
        assert_eq!(read(&reader, 9), b"data");
        refusing.take();
        for reader in [reader, late] {
            assert_eq!(read(&reader, 9), b"data", "its replica went under it");
        }
        assert_eq!(read(&world.open("closed", false), 9), b"data");
    });
}

#[test] // S52
fn a_dirty_file_that_is_removed_while_the_burst_buffer_takes_no_writes_is_no_orphan() {
    in_private_namespace(|| {
        let mut refusing = Refusing::new();
        refusing.world.write_new("f", b"data");
        refusing.refuse(0);
        let world = &refusing.world;
        let identity = world.identity("f");
        world.cache.removing(&identity);
        world.store.unlink("f").unwrap();
        world.cache.unlinked(&identity);
        assert_eq!(world.cache.counters().dirty, 0);
        refusing.take();
        assert_eq!((world.cache.counters().files, world.replicas()), (0, 0));
        refusing.world.crash();
        assert!(refusing.world.cache.counters().stuck.is_empty());
    });
}

#[test] // S52
fn what_is_below_is_neither_cut_nor_punched_from_a_burst_buffer_that_takes_no_writes() {
    in_private_namespace(|| {
        let refusing = Refusing::new();
        let world = &refusing.world;
        for name in ["cut", "emptied", "punched"] {
            world.store.put(name, &[7; 3 << 20]);
            let writer = world.open(name, true);
            match name {
                "cut" => writer.set_len(1 << 20).unwrap(),
                "emptied" => writer.set_len(0).unwrap(),
                _ => writer.fallocate(3, 1 << 20, 1 << 20).unwrap(),
            }
        }
        refusing.refuse(0);
        assert_eq!(world.cache.drain_all().len(), 3);
        for name in ["cut", "emptied", "punched"] {
            assert!(world.store.read(name).unwrap() == vec![7; 3 << 20], "{name}: the replica may have forgotten it");
        }
        refusing.take();
        world.drain();
        assert_eq!(world.store.read("cut").unwrap().len(), 1 << 20);
        assert_eq!(world.store.read("emptied").unwrap().len(), 0);
    });
}

#[test] // S52
fn a_stage_out_whose_last_commit_alone_is_refused_is_told_for_what_it_is() {
    in_private_namespace(|| {
        let refusing = Refusing::new();
        let world = &refusing.world;
        world.write_new("f", b"data");
        refusing.refuse(1);
        assert_eq!(world.cache.drain_all().len(), 1);
        assert_eq!(world.store.read("f").unwrap(), b"data");
        let status = world.cache.counters();
        assert!(told(&status, "f").contains("what can be read of it is in the global store"), "{:?}", status.stuck);
        assert!(told(&status, "(the burst buffer)").contains("takes no writes"), "{:?}", status.stuck);
        refusing.take();
        world.drain();
        assert_eq!(world.state("f"), Residency::Clean);
    });
}

#[test] // S52
fn what_could_not_be_recorded_is_settled_when_the_burst_buffer_takes_writes_again() {
    in_private_namespace(|| {
        let refusing = Refusing::new();
        let world = &refusing.world;
        for name in ["clean", "other"] {
            world.store.put(name, b"old");
            drop(world.open(name, false));
        }
        world.write_new("dirty", b"dirty");
        let times = world.store.attributes("clean").unwrap().fingerprint.mtime;

        refusing.refuse(0);
        world.open("clean", true).write(b"NEW", 0).unwrap();
        // The global copy looks as before, except for its content.
        world.store.set_mtime("clean", times).unwrap();
        assert_eq!(world.cache.drain_all().len(), 1);
        assert_eq!(world.store.read("dirty").unwrap(), b"dirty");
        // The remembered files push each other out.
        for number in 0..2 * file_cache::limits::IDLE_FILES {
            let name = format!("f{number}");
            world.store.put(&name, b"x");
            drop(world.open(&name, false));
        }
        assert_eq!(read(&world.open("clean", false), 9), b"NEW", "a record that does not hold was believed");

        refusing.take();
        assert_eq!(read(&world.open("clean", false), 9), b"NEW", "the old record came back");
        world.drain();
        assert_eq!(world.state("dirty"), Residency::Clean);
        assert!(world.create("next").backing().is_some(), "new files go through still");
    });
}
