//! Data of the files of a delegated tree.

mod support;

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use data_store::{OpenData, OpenHow, Residency, SeekFor, SyncScope, WriteWhere};
use delegation::{Applied, BelowCopy, BelowState, DataPlace};
use namespace::{Attributes, Caller, FileAttributes, Names, NewFile, NewMode};
use support::{ALICE, Bed, MemoryFile, content_of, reading, writing};
use testkit::{PATIENCE, wait_until};
use types::{ByteRange, HasErrno, Identity, NewTime, Timestamp};

const LONG_AGO: Timestamp = Timestamp { seconds: 1_000_000_000, nanos: 5 };

/// Opens the local file as the kernel does for passthrough.
fn kernel(data: &dyn OpenData) -> File {
    let passthrough = data.passthrough().unwrap();
    assert!(passthrough.begin());
    let fd = passthrough.backing().unwrap();
    File::options().read(true).write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
}

/// Makes the store have all of a node.
fn apply(bed: &Bed, number: delegation::NodeNumber) {
    let copy = BelowCopy { identity: Identity::new(vec![7]).ok(), names: Vec::new(), doubtful: false };
    let pending = bed.tree.pending(None, 100).into_iter().find(|pending| pending.number == number).unwrap();
    assert_eq!(bed.tree.applied(pending, BelowState::At(copy.into())).unwrap(), Applied::Done);
}

#[test]
fn a_file_is_written_closed_and_read_again() {
    let bed = Bed::new();
    let (inode, number, data) = bed.create("a");
    let made = bed.stat(&inode);
    data.write_at(b"hello", WriteWhere::At(0)).unwrap();
    assert_eq!(data.write_at(b" world", WriteWhere::End).unwrap().offset, 5);
    assert_eq!(bed.stat(&inode).size, 11);
    assert_eq!(bed.tree.content(number).unwrap().size, 0, "the tree gets it at the last close");
    let other = bed.open(number, &writing());
    assert!(other.data() == data.data() && other.data().replica == data.data().replica);
    drop(data);
    assert!(bed.files.is_written_to(number) && bed.files.writers() == [number]);
    drop(other);
    assert_eq!((bed.tree.content(number).unwrap().size, bed.read(number)), (11, b"hello world".to_vec()));
    assert!(bed.stat(&inode).mtime >= made.mtime && !bed.files.is_written_to(number));
    let usage = bed.files.usage();
    assert_eq!((usage.files, bed.files.waiting_bytes(), usage.open, usage.handles), (1, 11, 0, 0));
    assert_eq!(bed.open(number, &reading()).write_at(b"x", WriteWhere::At(0)).unwrap_err().errno(), Some(libc::EBADF));
}

#[test]
fn times_do_not_move_after_the_last_close_and_an_open_without_a_write_changes_nothing() {
    let bed = Bed::new();
    let (inode, number, data) = bed.create("a");
    kernel(&*data).write_at(b"hello", 0).unwrap();
    let before = bed.stat(&inode);
    data.sync(SyncScope::All).unwrap();
    assert_eq!((bed.stat(&inode).mtime, bed.stat(&inode).ctime), (before.mtime, before.ctime));
    drop(data);
    let after = bed.stat(&inode);
    assert_eq!((after.mtime, after.ctime, after.size), (before.mtime, before.ctime, 5));
    apply(&bed, number);
    drop(bed.open(number, &writing()));
    drop(bed.open(number, &reading()));
    bed.files.settle_all().unwrap();
    assert_eq!(bed.stat(&inode), after);
    assert_eq!((bed.tree.pending_len(), bed.files.state(number).residency), (1, Residency::Clean), "the root alone");
}

#[test]
fn what_the_kernel_has_written_is_there_after_the_death_of_the_agent() {
    let bed = Bed::new();
    let (_, first, data) = bed.create("a");
    kernel(&*data).write_at(b"written past the agent", 0).unwrap();
    std::mem::forget(data);
    bed.make("b", b"old");
    let data = bed.open(bed.find("b").1, &writing());
    kernel(&*data).write_at(b"new", 0).unwrap();
    std::mem::forget(data);
    let (_, _, data) = bed.create("c");
    std::mem::forget(data);
    let (inode, third) = bed.make("d", b"closed");
    let closed = bed.stat(&inode);
    drop(inode);
    apply(&bed, bed.find("b").1);
    let bed = bed.killed();
    assert_eq!((bed.report.files, bed.report.settled), (4, 2));
    assert_eq!((bed.read(first), bed.stat(&bed.find("a").0).size), (b"written past the agent".to_vec(), 22));
    assert_eq!((bed.read(bed.find("b").1), bed.read(third)), (b"new".to_vec(), b"closed".to_vec()));
    assert_eq!(bed.files.state(bed.find("b").1).residency, Residency::Queued, "written again, although as long");
    assert_eq!((bed.stat(&bed.find("d").0).mtime, bed.stat(&bed.find("c").0).size), (closed.mtime, 0));
    let bed = bed.killed();
    assert_eq!(bed.report.settled, 0);
}

#[test]
fn a_removed_file_is_there_until_its_last_close_and_not_after_it() {
    let bed = Bed::new();
    let (inode, number, data) = bed.create("a");
    data.write_at(b"hello", WriteWhere::At(0)).unwrap();
    bed.remove("a", number);
    let again = bed.open(number, &reading());
    assert_eq!((content_of(&*data), content_of(&*again)), (b"hello".to_vec(), b"hello".to_vec()));
    drop(data);
    assert_eq!(bed.files.usage().files, 1);
    drop(again);
    assert_eq!(bed.files.usage().files, 0);
    drop(inode);
    let (inode, number) = bed.make("b", b"closed");
    bed.remove("b", number);
    assert_eq!(bed.files.usage().files, 0);
    let gone = bed.files.open_data(number, &reading(), &|| false);
    assert_eq!(gone.err().unwrap().errno(), Some(libc::ENOENT));
    drop(inode);
    bed.tree.assert_invariants();
}

#[test]
fn a_file_without_a_name_is_dropped_unless_it_gets_one() {
    let bed = Bed::new();
    let root = bed.tree.root().unwrap();
    for name in [None, Some("late")] {
        let new = NewFile { name: None, mode: NewMode { mode: 0o600, umask: 0 }, exclusive: false };
        let (found, _) = bed.tree.create(&ALICE, &root, new).unwrap();
        let number = bed.tree.number_of(&found.inode).unwrap();
        let data = bed.open(number, &OpenHow { created: true, ..writing() });
        kernel(&*data).write_at(b"bytes", 0).unwrap();
        match name {
            Some(name) => bed.tree.link(&ALICE, &found.inode, &root, OsStr::new(name)).unwrap(),
            None => bed.files.unlinked(number),
        }
        std::mem::forget(data);
    }
    let bed = bed.killed();
    assert_eq!((bed.report.files, bed.report.settled), (1, 1));
    // Files that were ready for others went too.
    assert!(bed.report.removed >= 1);
    assert_eq!(bed.read(bed.find("late").1), b"bytes");
}

#[test]
fn lengths_change_by_name_at_an_open_and_through_a_handle() {
    let bed = Bed::new();
    let (inode, number) = bed.make("a", b"hello");
    let before = bed.stat(&inode).mtime;
    bed.files.set_len(number, 3).unwrap();
    assert_eq!((bed.read(number), bed.stat(&inode).size), (b"hel".to_vec(), 3));
    assert!(bed.stat(&inode).mtime > before, "in the same tick, perhaps");
    bed.files.set_len(number, 4096).unwrap();
    assert_eq!(bed.tree.content(number).unwrap().size, 4096);
    let data = bed.open(number, &OpenHow { truncate: true, ..writing() });
    assert_eq!(bed.stat(&inode).size, 0);
    data.set_len(1 << 20).unwrap();
    data.fallocate(0, 1 << 20, 4096).unwrap();
    assert_eq!(data.seek(0, SeekFor::End).unwrap(), (1 << 20) + 4096);
    assert_eq!(data.seek(0, SeekFor::Hole).unwrap(), 0);
    drop(data);
    drop(bed.open(number, &OpenHow { truncate: true, ..reading() }));
    bed.files.set_len(number, 0).unwrap();
    assert_eq!((bed.read(number), bed.tree.content(number).unwrap().size), (Vec::new(), 0));
}

#[test]
fn times_that_a_program_sets_count_until_the_next_write() {
    let bed = Bed::new();
    let set = |number, inode: &_| {
        bed.files.settle(number).unwrap();
        bed.tree.set_times(&ALICE, inode, [None, Some(NewTime::At(LONG_AGO))]).unwrap();
        bed.files.times_set(number).unwrap();
        assert_eq!(bed.stat(inode).mtime, LONG_AGO);
    };
    let (inode, number, data) = bed.create("a");
    kernel(&*data).write_at(b"one", 0).unwrap();
    set(number, &inode);
    assert_eq!((bed.stat(&inode).size, bed.tree.content(number).unwrap().size), (3, 3));
    drop(data);
    assert_eq!(bed.stat(&inode).mtime, LONG_AGO);
    set(number, &inode);
    let data = bed.open(number, &writing());
    assert_eq!(bed.stat(&inode).mtime, LONG_AGO);
    kernel(&*data).write_at(b"two", 0).unwrap();
    assert!(bed.stat(&inode).mtime > LONG_AGO);
    drop(data);
    assert!(bed.stat(&inode).mtime > LONG_AGO);
    set(number, &inode);
    drop(inode);
    let bed = bed.killed();
    assert_eq!((bed.report.settled, bed.stat(&bed.find("a").0).mtime), (0, LONG_AGO));
    let data = bed.open(number, &writing());
    data.write_at(b"x", WriteWhere::Backdated(0, LONG_AGO.next())).unwrap();
    drop(data);
    assert_eq!(bed.stat(&bed.find("a").0).mtime, LONG_AGO.next());
}

#[test]
fn a_write_during_the_tick_of_a_copy_gives_the_store_another_time() {
    let bed = Bed::new();
    let (inode, number, data) = bed.create("a");
    data.write_at(b"one", WriteWhere::At(0)).unwrap();
    bed.files.settle(number).unwrap();
    let before = bed.stat(&inode).mtime;
    let into = MemoryFile::default();
    bed.files.contents().write(number, DataPlace::Replica(0), &into).unwrap();
    apply(&bed, number);
    // As if within one tick.
    data.write_at(b"two", WriteWhere::Backdated(0, before)).unwrap();
    drop(data);
    let after = bed.stat(&inode).mtime;
    assert_eq!((after, bed.files.state(number).residency), (before.next(), Residency::Queued));
    apply(&bed, number);
    let data = bed.open(number, &writing());
    data.write_at(b"six", WriteWhere::Backdated(0, after)).unwrap();
    drop(data);
    assert_eq!((bed.stat(&inode).mtime, bed.files.state(number).residency), (after.next(), Residency::Queued));
}

#[test]
fn holes_stay_holes_in_the_store_and_replace_what_it_had() {
    let bed = Bed::new();
    let (_, number, data) = bed.create("a");
    let file = kernel(&*data);
    file.write_at(&[1; 4096], 8 << 20).unwrap();
    file.write_at(&[2; 3 << 20], 16 << 20).unwrap();
    file.set_len(32 << 20).unwrap();
    drop(data);
    let old = MemoryFile::of(&vec![9; 10 << 20]);
    for into in [MemoryFile::default(), old] {
        bed.files.contents().write(number, DataPlace::Replica(0), &into).unwrap();
        assert_eq!(*into.bytes.lock().unwrap(), bed.read(number));
        let written: u64 = into.written.lock().unwrap().iter().map(ByteRange::len).sum();
        assert!(written <= (3 << 20) + 65536 * 2, "{written}");
        assert!(into.written.lock().unwrap().iter().all(|range| range.len() <= 1 << 20));
    }
    let (_, empty) = bed.make("empty", b"");
    let into = MemoryFile::of(b"old");
    bed.files.contents().write(empty, DataPlace::None, &into).unwrap();
    assert!(into.bytes.lock().unwrap().is_empty());
}

#[test]
fn missing_local_files_are_reported_and_those_of_nobody_removed() {
    let bed = Bed::new();
    let (_, kept) = bed.make("kept", b"kept");
    let (_, lost) = bed.make("lost", b"lost");
    let (_, below) = bed.make("below", b"below");
    apply(&bed, below);
    bed.below.0.lock().unwrap().insert(below, MemoryFile::of(b"below"));
    let path = |number| match bed.tree.content(number).unwrap().place {
        DataPlace::Replica(local) => bed.scratch.path("data").join(format!("{local:016x}")),
        place => panic!("{place:?}"),
    };
    std::fs::remove_file(path(lost)).unwrap();
    std::fs::remove_file(path(below)).unwrap();
    std::fs::write(bed.scratch.path("data").join(format!("{:016x}", 5)), b"stray").unwrap();
    assert_eq!(bed.files.open_data(lost, &reading(), &|| false).err().unwrap().errno(), Some(libc::EIO));
    let bed = bed.killed();
    let report = &bed.report;
    assert_eq!((report.files, report.below, &report.lost), (1, 1, &vec![lost]));
    assert!(report.removed >= 1);
    assert_eq!((bed.read(kept), bed.read(lost), bed.read(below)), (b"kept".to_vec(), Vec::new(), b"below".to_vec()));
    assert_eq!(bed.stat(&bed.find("lost").0).size, 0);
    assert_eq!(bed.files.usage().files, 3);
}

#[test]
fn a_file_that_only_the_store_has_is_copied_whole_once_with_its_holes() {
    let bed = Bed::new();
    let (inode, number) = bed.make("a", &vec![0; 12 << 20]);
    apply(&bed, number);
    let before = bed.stat(&inode);
    let mut bytes = vec![0; 12 << 20];
    bytes[4 << 20..6 << 20].fill(5);
    let data = Some(vec![ByteRange::new(4 << 20, 6 << 20)]);
    bed.below.0.lock().unwrap().insert(number, MemoryFile { data, ..MemoryFile::of(&bytes) });
    assert!(bed.files.evict(number).unwrap() && bed.files.usage().files == 0);
    assert_eq!(bed.files.state(number).residency, Residency::Absent);
    let asked = Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 2
    };
    let stopped = bed.files.open_data(number, &reading(), &interrupted);
    assert_eq!(stopped.err().unwrap().errno(), Some(libc::EINTR));
    assert_eq!(bed.files.usage().files, 0);
    assert_eq!(bed.read(number), bytes);
    bed.below.0.lock().unwrap().clear();
    let data = bed.open(number, &reading());
    assert!(data.seek(0, SeekFor::Data).unwrap() >= 3 << 20, "a hole");
    assert!(!bed.files.evict(number).unwrap(), "it is open");
    drop(data);
    // The copy has holes.
    assert_eq!(FileAttributes { blocks: before.blocks, ..bed.stat(&inode) }, before);
    assert_eq!((bed.tree.pending_len(), bed.files.state(number).residency), (1, Residency::Clean));
    assert!(bed.files.evict(number).unwrap());
    let data = bed.open(number, &OpenHow { truncate: true, ..writing() });
    assert_eq!(data.seek(0, SeekFor::End).unwrap(), 0);
    drop(data);
    assert_eq!((bed.stat(&inode).size, bed.files.evict(number).unwrap()), (0, false));
}

#[test]
fn a_sync_leaves_size_and_time_in_the_durable_log() {
    let bed = Bed::new();
    let (inode, number, data) = bed.create("a");
    kernel(&*data).write_at(b"hello", 0).unwrap();
    assert!(!data.sync(SyncScope::IfKept).unwrap());
    for scope in [SyncScope::All, SyncScope::Data, SyncScope::OfWrite, SyncScope::Acknowledged(true)] {
        assert!(data.sync(scope).unwrap());
    }
    assert_eq!(bed.tree.content(number).unwrap().size, 5);
    bed.files.sync().unwrap();
    let sync = bed.open(number, &OpenHow { sync: true, ..writing() });
    assert!(bed.stat(&inode).size == 5 && content_of(&*sync) == b"hello");
}

#[test]
fn a_file_that_is_mapped_after_its_last_close_counts_as_written_to() {
    let bed = Bed::new();
    let (inode, number, data) = bed.create("a");
    let mapping = kernel(&*data);
    mapping.write_at(b"one", 0).unwrap();
    drop(data);
    assert!(bed.files.is_written_to(number) && bed.files.writers() == [number]);
    bed.files.settle_all().unwrap();
    mapping.write_at(b"later", 0).unwrap();
    assert_eq!((bed.stat(&inode).size, bed.read(number)), (5, b"later".to_vec()));
    drop(mapping);
    assert!(!bed.files.is_written_to(number) && bed.files.writers().is_empty());
    let usage = bed.files.usage();
    assert_eq!((bed.tree.content(number).unwrap().size, usage.open, usage.handles), (5, 0, 0));
    // Others that close late are found when one more does.
    let late: Vec<_> = (0..3).map(|number| bed.create(&number.to_string())).collect();
    for (_, _, data) in late {
        let mapping = kernel(&*data);
        drop((data, mapping));
    }
    assert_eq!(bed.files.usage().open, 1, "the last one");
    assert_eq!((bed.files.writers(), bed.files.usage().open), (Vec::new(), 0));
}

#[test]
fn the_data_of_a_removed_file_is_not_given_to_another_one_while_it_is_mapped() {
    let bed = Bed::new();
    let (_, number, data) = bed.create("a");
    let mapping = kernel(&*data);
    mapping.write_at(b"mine", 0).unwrap();
    bed.remove("a", number);
    drop(data);
    let (_, _, other) = bed.create("b");
    other.write_at(b"other", WriteWhere::At(0)).unwrap();
    let mut bytes = [0; 4];
    mapping.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, bed.files.usage().files), (b"mine", 1));
}

#[test]
fn the_numbers_of_dropped_files_are_told_and_never_come_again() {
    let bed = Bed::new();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let tell = std::sync::Arc::clone(&told);
    bed.files.observe_removals(Box::new(move |version| tell.lock().unwrap().push(version)));
    let mut seen = std::collections::HashSet::new();
    for round in 0..20 {
        let (inode, number, data) = bed.create("a");
        assert_eq!(content_of(&*data), b"", "what was removed is not seen");
        data.write_at(b"bytes", WriteWhere::At(0)).unwrap();
        let version = data.data().replica.unwrap();
        assert!(seen.insert(version));
        if round % 2 == 0 {
            drop(data);
            bed.remove("a", number);
        } else {
            bed.remove("a", number);
            drop(data);
        }
        assert_ne!(told.lock().unwrap().last(), Some(&version), "the log is not durable yet");
        bed.sync_names();
        testkit::wait_until("the drop", testkit::PATIENCE, || told.lock().unwrap().last() == Some(&version));
        drop(inode);
    }
    assert_eq!(bed.files.usage().files, 0);
}

/// A crash of the machine may take the end of the log. What it brings back must have its data.
#[test] // S71
fn what_was_replaced_or_removed_keeps_its_data_until_the_log_is_durable() {
    let bed = Bed::new();
    let root = bed.tree.root().unwrap();
    let (_, old) = bed.make("f", b"old");
    let (_, gone) = bed.make("gone", b"gone");
    bed.make("new", b"new");
    bed.sync_names();
    let local = |number| match bed.tree.content(number).unwrap().place {
        DataPlace::Replica(local) => bed.scratch.path("data").join(format!("{local:016x}")),
        place => panic!("{place:?}"),
    };
    let (old_file, gone_file) = (local(old), local(gone));
    let inodes = [bed.find("f").0, bed.find("gone").0];
    bed.tree.rename(&Caller::own(), (&root, "new".as_ref()), (&root, "f".as_ref()), 0).unwrap();
    bed.files.unlinked(old);
    bed.remove("gone", gone);
    drop(inodes);
    let content = |path: &Path| std::fs::read(path).ok();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((content(&old_file), content(&gone_file)), (Some(b"old".to_vec()), Some(b"gone".to_vec())));
    bed.sync_names();
    wait_until("the drop", PATIENCE, || content(&old_file).is_none() && content(&gone_file).is_none());
    assert_eq!(bed.read(bed.find("f").1), b"new");
}

#[test] // S71
fn nothing_is_written_after_the_end_and_there_is_no_end_while_somebody_writes() {
    let bed = Bed::new();
    let (_, number, data) = bed.create("a");
    assert!(!bed.files.end_writing(|| true) && !bed.files.has_ended(), "somebody writes");
    drop(data);
    assert!(!bed.files.end_writing(|| false) && bed.files.end_writing(|| true));
    assert_eq!(bed.files.open_data(number, &writing(), &|| false).err().unwrap().errno(), Some(libc::ESTALE));
    assert_eq!(bed.read(number), b"");
}
