//! Small files of a delegated tree that lie together.

mod support;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use data_store::{OpenData, OpenHow, Residency, SeekFor, SyncScope, WriteWhere};
use delegation::{Applied, BelowCopy, BelowState, DataPlace, NodeNumber, NodeState};
use support::{Bed, MemoryFile, content_of, reading, writing};
use testkit::{PATIENCE, wait_until};
use types::{HasErrno, Identity};

/// Opens the local file as the kernel does for passthrough.
fn kernel(data: &dyn OpenData) -> File {
    let passthrough = data.passthrough().unwrap();
    assert!(passthrough.begin());
    let fd = passthrough.backing().unwrap();
    File::options().read(true).write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
}

fn place(bed: &Bed, number: NodeNumber) -> DataPlace {
    bed.tree.content(number).unwrap().place
}

fn local_number(state: &NodeState) -> Option<u64> {
    if let DataPlace::Packed(number) = state.data { Some(number) } else { None }
}

fn is_packed(bed: &Bed, number: NodeNumber) -> bool {
    matches!(place(bed, number), DataPlace::Packed(_))
}

/// Makes the store have all of a node.
fn apply(bed: &Bed, number: NodeNumber) {
    let copy = BelowCopy { identity: Identity::new(vec![7]).ok(), names: Vec::new(), doubtful: false };
    let pending = bed.tree.pending(None, 100).into_iter().find(|pending| pending.number == number).unwrap();
    assert_eq!(bed.tree.applied(pending, BelowState::At(copy.into())).unwrap(), Applied::Done);
}

fn content(path: &Path) -> Option<Vec<u8>> {
    std::fs::read(path).ok()
}

#[test] // S71
fn a_small_file_is_packed_after_its_last_close_and_read_without_a_local_file() {
    let bed = Bed::new();
    let (inode, number) = bed.make("a", b"hello");
    let (before, local) = (bed.stat(&inode), bed.local(number));
    let (larger, _) = bed.make("larger", &vec![1; 100_000]);
    let larger_before = bed.stat(&larger);
    assert_eq!((bed.pack(), bed.pack(), is_packed(&bed, number)), (2, 0, true));
    assert_eq!(bed.stat(&larger), larger_before);
    let data = bed.open(number, &reading());
    assert_eq!((content_of(&*data), bed.stat(&inode)), (b"hello".to_vec(), before));
    assert!(data.passthrough().unwrap().backing().is_none() && data.data().replica.is_none());
    assert_eq!(data.data().steady, bed.open(number, &reading()).data().steady);
    assert!(data.data().steady.is_some());
    let seek = |offset, what| data.seek(offset, what).ok();
    assert_eq!((seek(1, SeekFor::Data), seek(1, SeekFor::Hole), seek(0, SeekFor::End)), (Some(1), Some(5), Some(5)));
    assert_eq!(data.seek(5, SeekFor::Data).unwrap_err().errno(), Some(libc::ENXIO));
    let mut some = [0; 9];
    assert_eq!((data.read_at(&mut some, 3).unwrap(), &some[..2]), (2, &b"lo"[..]));
    assert!(data.sync(SyncScope::All).unwrap());
    assert_eq!(data.write_at(b"x", WriteWhere::At(0)).unwrap_err().errno(), Some(libc::EBADF));
    drop(data);
    let usage = bed.files.usage();
    assert_eq!((usage.files, usage.packed, usage.open, bed.files.waiting_bytes()), (2, 2, 0, 100_005));
    // Nobody needs the local file any more once a crash of the machine cannot bring it back.
    assert_eq!(content(&local).unwrap(), b"hello");
    bed.sync_names();
    wait_until("the drop", PATIENCE, || content(&local).is_none());
    assert_eq!(bed.read(number), b"hello");
    bed.tree.assert_invariants();
}

#[test] // S71
fn whoever_reads_a_packed_file_sees_what_is_written_then() {
    let bed = Bed::new();
    let (inode, number) = bed.make("a", b"hello");
    let DataPlace::Replica(before) = place(&bed, number) else { panic!() };
    bed.pack();
    let reader = bed.open(number, &reading());
    let steady = reader.data().steady.unwrap();
    let writer = bed.open(number, &writing());
    assert!(reader.data() == writer.data() && writer.data().steady == Some(steady), "nothing was written yet");
    assert!(bed.files.is_written_to(number) && bed.files.writers() == [number]);
    writer.write_at(b"j", WriteWhere::At(0)).unwrap();
    let late = bed.open(number, &reading());
    assert!(late.data().replica.is_some() && late.data().replica == writer.data().replica);
    assert!([&reader, &writer, &late].iter().all(|open| open.data().steady.is_none()));
    kernel(&*writer).write_at(b"J", 0).unwrap();
    writer.write_at(b"!", WriteWhere::End).unwrap();
    assert_eq!((content_of(&*reader), content_of(&*late)), (b"Jello!".to_vec(), b"Jello!".to_vec()));
    assert_eq!((bed.stat(&inode).size, bed.pack()), (6, 0));
    drop((reader, writer, late));
    assert_eq!((bed.pack(), bed.read(number)), (1, b"Jello!".to_vec()));
    assert!(bed.open(number, &reading()).data().steady.unwrap() != steady, "another content has another number");
    assert_ne!(place(&bed, number), DataPlace::Packed(before));
    // An open for writing without a write changes nothing.
    let stat = bed.stat(&inode);
    drop(bed.open(number, &writing()));
    assert_eq!((bed.stat(&inode), bed.pack(), bed.read(number)), (stat, 0, b"Jello!".to_vec()));
    bed.files.set_len(number, 3).unwrap();
    assert_eq!((bed.pack(), bed.read(number)), (1, b"Jel".to_vec()));
    drop(bed.open(number, &OpenHow { truncate: true, ..writing() }));
    assert_eq!((bed.pack(), place(&bed, number), bed.read(number)), (1, DataPlace::None, Vec::new()));
    assert_eq!(bed.files.usage().packed, 0);
}

#[test]
fn files_that_are_large_in_use_or_full_of_holes_keep_a_file_of_their_own() {
    let bed = Bed::new();
    let (_, large) = bed.make("large", &vec![1; (256 << 10) + 1]);
    let (_, holes, data) = bed.create("holes");
    data.set_len(200 << 10).unwrap();
    drop(data);
    let (_, nameless, data) = bed.create("nameless");
    bed.remove("nameless", nameless);
    let (_, open, used) = bed.create("open");
    let (_, mapped, mapper) = bed.create("mapped");
    let mapping = kernel(&*mapper);
    mapping.write_at(b"mapped", 0).unwrap();
    drop(mapper);
    let (_, read, data_read) = bed.create("read");
    drop(data_read);
    let reader = kernel(&*bed.open(read, &reading()));
    assert_eq!(bed.pack(), 0);
    drop((used, mapping, reader));
    bed.files.settle_all().unwrap();
    assert_eq!((bed.pack(), place(&bed, open), is_packed(&bed, mapped)), (3, DataPlace::None, true));
    assert!([large, holes].iter().all(|number| matches!(place(&bed, *number), DataPlace::Replica(_))));
    drop(data);
    assert_eq!((bed.files.pack(0, 9).unwrap().packed, bed.files.usage().files), (0, 3));
}

#[test] // S71
fn packed_files_are_there_after_the_death_of_the_agent_and_nothing_else_is() {
    let bed = Bed::new();
    let (_, packed) = bed.make("packed", b"packed");
    let (_, written) = bed.make("written", b"before");
    let (_, removed) = bed.make("removed", b"removed");
    assert_eq!(bed.pack(), 3);
    let writer = bed.open(written, &writing());
    writer.write_at(b"b", WriteWhere::At(0)).unwrap();
    kernel(&*writer).write_at(b"behind", 0).unwrap();
    std::mem::forget(writer);
    bed.remove("removed", removed);
    let bed = bed.killed();
    let report = &bed.report;
    assert_eq!((report.files, report.packed, report.settled, report.lost.len()), (2, 1, 1, 0));
    assert!(report.removed >= 4, "two objects and two local files: {report:?}");
    assert_eq!((bed.read(packed), bed.read(written)), (b"packed".to_vec(), b"behind".to_vec()));
    let bed = bed.killed();
    assert_eq!((bed.report.packed, bed.report.settled), (1, 0));
    assert_eq!((bed.read(packed), bed.read(written)), (b"packed".to_vec(), b"behind".to_vec()));
}

/// A crash of the machine may keep the log's record and lose the object.
#[test] // S71
fn without_the_object_the_local_file_counts_until_both_are_durable() {
    let bed = Bed::new();
    let (inode, number) = bed.make("a", b"hello");
    let before = bed.stat(&inode);
    drop(inode);
    bed.pack();
    let pack = bed.scratch.path("pack");
    bed.files.close();
    std::fs::remove_dir_all(&pack).unwrap();
    let bed = bed.killed();
    assert_eq!((bed.report.returned, bed.report.files, bed.report.packed), (1, 1, 0));
    assert_eq!((bed.read(number), bed.stat(&bed.find("a").0)), (b"hello".to_vec(), before));
    // What the medium loses later is lost.
    let (_, below) = bed.make("below", b"below");
    assert_eq!(bed.pack(), 2);
    apply(&bed, below);
    bed.below.0.lock().unwrap().insert(below, MemoryFile::of(b"below"));
    bed.files.sync_pack().unwrap();
    let locals = [bed.local(number), bed.local(below)];
    bed.sync_names();
    wait_until("the drops", PATIENCE, || locals.iter().all(|local| content(local).is_none()));
    bed.files.close();
    std::fs::remove_dir_all(&pack).unwrap();
    let gone = bed.files.open_data(number, &reading(), &|| false);
    assert_eq!(gone.err().unwrap().errno(), Some(libc::EIO));
    let bed = bed.killed();
    assert_eq!((&bed.report.lost, bed.report.below), (&vec![number], 1));
    assert_eq!((bed.read(number), bed.read(below)), (Vec::new(), b"below".to_vec()));
}

#[test] // S71
fn an_object_stays_until_the_log_has_durably_that_nobody_needs_it() {
    let bed = Bed::new();
    let (_, written) = bed.make("written", b"written");
    let (_held, removed) = bed.make("removed", b"removed");
    bed.pack();
    bed.sync_names();
    let DataPlace::Packed(before) = place(&bed, written) else { panic!() };
    let open = bed.open(removed, &reading());
    bed.remove("removed", removed);
    assert_eq!(content_of(&*open), b"removed");
    assert_eq!(bed.files.open_data(removed, &reading(), &|| false).map(|data| content_of(&*data)).unwrap(), b"removed");
    let truncating = bed.open(removed, &writing());
    truncating.set_len(2).unwrap();
    assert_eq!(content_of(&*open), b"re");
    drop((open, truncating));
    assert_eq!(bed.files.open_data(removed, &reading(), &|| false).err().unwrap().errno(), Some(libc::ENOENT));
    bed.open(written, &writing()).write_at(b"W", WriteWhere::At(0)).unwrap();
    assert_eq!(bed.files.usage().packed, 0);
    assert!(bed.files.has_packed(before), "the log is not durable yet");
    bed.sync_names();
    assert!(!bed.files.has_packed(before) && bed.files.has_dead_packed());
    while bed.files.tidy_pack().unwrap() {}
    assert!(!bed.files.has_dead_packed());
    let segments = std::fs::read_dir(bed.scratch.path("pack")).unwrap().count();
    assert_eq!(segments, 0, "nothing in them is alive");
}

#[test] // S71
fn the_global_store_gets_packed_files_and_they_can_be_dropped_then() {
    let bed = Bed::new();
    let (_, number) = bed.make("a", b"hello");
    bed.pack();
    for into in [MemoryFile::default(), MemoryFile::of(b"longer than before")] {
        bed.files.contents().write(number, DataPlace::None, &into).unwrap();
        assert_eq!(*into.bytes.lock().unwrap(), b"hello");
    }
    assert_eq!(bed.files.state(number).residency, Residency::Queued);
    apply(&bed, number);
    bed.below.0.lock().unwrap().insert(number, MemoryFile::of(b"hello"));
    assert_eq!(bed.files.state(number).residency, Residency::Clean);
    let open = bed.open(number, &reading());
    assert!(!bed.files.evict(number).unwrap(), "it is open");
    drop(open);
    assert!(bed.files.evict(number).unwrap() && bed.files.state(number).residency == Residency::Absent);
    bed.sync_names();
    assert_eq!((bed.files.usage().files, bed.read(number)), (0, b"hello".to_vec()));
    assert_eq!((bed.pack(), bed.read(number)), (1, b"hello".to_vec()), "what was copied in is packed as well");
}

#[test] // S71
fn local_files_go_from_one_small_file_to_the_next() {
    let bed = Bed::new();
    let all = |round: u32| {
        (0..300u32).for_each(|number| drop(bed.make(&format!("{round}-{number}"), &number.to_le_bytes())));
    };
    let made_after = |round| {
        all(round);
        assert_eq!(bed.pack(), 300);
        bed.sync_names();
        // Those that are dropped get another number at last.
        let numbers: Vec<_> = bed.tree.states().iter().filter_map(local_number).collect();
        let is_there = |number: &u64| bed.scratch.path("data").join(format!("{number:016x}")).exists();
        wait_until("the drops", PATIENCE, || !numbers.iter().any(is_there));
        bed.local_files().len()
    };
    let first = made_after(0);
    assert!((1..4).all(|round| made_after(round) <= first + 96), "files were made although others were free");
    let (_, one) = bed.find("2-7");
    assert_eq!(bed.read(one), 7u32.to_le_bytes());
    assert_eq!(bed.files.usage().packed, 1200);
}
