//! Bytes that windows acknowledged, in the local files of a delegated tree.

mod support;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use data_store::{AcknowledgedBytes, OpenData, OpenHow, Removed, Residency, WindowFile, WindowUsage, WriteWhere};
use delegation::{Applied, BelowCopy, BelowState, NodeNumber};
use support::{Bed, content_of, reading, writing};
use types::{HasErrno, Identity, Timestamp};

const SERVE: WindowUsage = WindowUsage::Serve(false);

fn ago(seconds: i64) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp { seconds: now.as_secs() as i64 - seconds, nanos: now.subsec_nanos() }
}

fn window(bed: &Bed, number: NodeNumber, usage: WindowUsage) -> WindowFile {
    bed.files.open_for_windows(number, &Arc::default(), usage).unwrap()
}

fn write(window: &WindowFile, offset: u64, bytes: &[u8], at: Timestamp) {
    assert_eq!(window.target.write(&[(offset, AcknowledgedBytes::Copied(bytes))], at).unwrap(), Some(0));
}

/// Makes the store have all of a node.
fn apply(bed: &Bed, number: NodeNumber) {
    let copy = BelowCopy { identity: Identity::new(vec![7]).ok(), names: Vec::new(), doubtful: false };
    let pending = bed.tree.pending_node(number).unwrap();
    assert_eq!(bed.tree.applied(pending, BelowState::At(copy.into())).unwrap(), Applied::Done);
}

fn is_doubtful(bed: &Bed, number: NodeNumber) -> bool {
    matches!(bed.tree.state(number).unwrap().below, BelowState::At(copy) if copy.doubtful)
}

#[test] // S37, S71
fn a_file_has_the_time_of_its_last_write_which_never_goes_back() {
    let bed = Bed::new();
    let (inode, number, data) = bed.create("a");
    let windows = window(&bed, number, SERVE);
    write(&windows, 0, b"first", ago(0));
    let first = bed.stat(&inode).mtime;
    write(&windows, 5, b" later", ago(100));
    assert_eq!(bed.stat(&inode).mtime, first.next(), "it came after what was there");
    data.write_at(b"F", WriteWhere::Backdated(0, ago(1000))).unwrap();
    let at = ago(50);
    write(&windows, 5, b" again", at);
    assert_eq!(bed.stat(&inode).mtime, at);
    data.write_at(b"f", WriteWhere::Backdated(0, ago(-1000))).unwrap();
    write(&windows, 5, b" after", at);
    assert_eq!(bed.stat(&inode).mtime, at, "a time to come that was set");
    drop((windows, data));
    assert_eq!((bed.stat(&inode).mtime, bed.read(number)), (at, b"first after".to_vec()));
    // So do records that come after the next start.
    let bed = bed.killed();
    let windows = window(&bed, number, WindowUsage::Replay);
    write(&windows, 5, b" death", ago(200));
    drop(windows);
    let (inode, number) = bed.find("a");
    assert_eq!((bed.stat(&inode).mtime, bed.read(number)), (at.next(), b"first death".to_vec()));
}

#[test] // S71
fn a_file_with_a_window_counts_as_changed_before_its_first_record_also_for_the_next_agent() {
    let bed = Bed::new();
    let (_, number) = bed.make("a", b"content");
    apply(&bed, number);
    assert_eq!(bed.files.state(number).residency, Residency::Clean);
    let program = bed.open(number, &OpenHow { read: false, ..writing() });
    assert!(bed.tree.pending_node(number).is_none());
    std::mem::forget((window(&bed, number, SERVE), program));
    assert!(bed.tree.pending_node(number).is_some() && is_doubtful(&bed, number) && bed.files.is_written_to(number));
    let bed = bed.killed();
    assert!(bed.tree.pending_node(number).is_some() && is_doubtful(&bed, number));
    assert_eq!(bed.read(number), b"content");
}

#[test] // S71
fn nobody_packs_drops_or_ends_what_a_window_may_still_write() {
    let bed = Bed::new();
    let (_, number, program) = bed.create("a");
    let windows = window(&bed, number, SERVE);
    // Under `close=lazy` records come after the last close.
    drop(program);
    assert!(bed.pack() == 0 && !bed.files.end_writing(|| true) && !bed.files.evict(number).unwrap());
    write(&windows, 0, b"late", ago(0));
    windows.target.sync().unwrap();
    assert_eq!(bed.tree.content(number).unwrap().size, 4);
    drop(windows);
    assert!(bed.pack() == 1 && bed.files.end_writing(|| true));
    let refused = bed.files.open_for_windows(number, &Arc::default(), SERVE).map(drop).unwrap_err();
    assert_eq!((refused.errno(), bed.read(number)), (Some(libc::ESTALE), b"late".to_vec()));
}

#[test] // S37
fn the_last_handle_of_a_removed_file_knows_that_its_records_have_no_use() {
    let bed = Bed::new();
    let (_, number, program) = bed.create("a");
    let windows = window(&bed, number, SERVE);
    assert_eq!(windows.target.removed(), Removed::No);
    bed.remove("a", number);
    assert_eq!(windows.target.removed(), Removed::No, "its program may read it");
    write(&windows, 0, b"still", ago(0));
    assert_eq!(content_of(&*program), b"still");
    drop(program);
    assert_eq!(windows.target.removed(), Removed::Here);
}

#[test] // S37
fn a_file_that_others_have_open_or_mapped_is_shared() {
    let bed = Bed::new();
    let (_, number, program) = bed.create("a");
    let is_unshared = |data: &dyn OpenData| data.passthrough().unwrap().is_unshared();
    assert!(!is_unshared(&*program), "nobody is to have a window");
    bed.files.allow_windows();
    assert!(is_unshared(&*program));
    let other = bed.open(number, &reading());
    assert!(!is_unshared(&*program));
    drop(other);
    assert!(is_unshared(&*program));
    let kernel = std::fs::File::open(bed.local(number)).unwrap();
    assert!(!is_unshared(&*program));
    drop(kernel);
    assert!(is_unshared(&*program));
}
