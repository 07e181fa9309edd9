//! Tests of windows on persistent memory: their guarantees, and the order of writes and syncs.

use super::recorder::{Event, drain_on, ring};
use super::*;
use crate::drain::Drain;
use types::HasErrno;

#[test] // S50
fn on_persistent_memory_the_replica_is_synced_before_the_mark_says_that_it_has_something() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Emulated);
    let writer = ring(&mut drain, 1, 256 << 10);
    let (events, full) = (&recorder.events, &recorder.full);
    let kept = |drain: &Drain| drain.kept().load(Relaxed);
    assert!(kept(&drain));
    assert_eq!(*events.lock(), [Event::Synced(0)], "what was there before the window");
    for number in 0..3u64 {
        writer.append(number * 100_000, &[7; 5000], &mut || true).unwrap();
        writer.append(number * 200_000, &[7; 5000], &mut || true).unwrap();
        drain.apply().unwrap();
        let events = std::mem::take(&mut *events.lock());
        let mark = number * 2;
        let (last, before) = events.split_last().unwrap();
        assert_eq!(*last, Event::Synced(mark), "{events:?}");
        assert!(before.iter().skip(usize::from(number == 0)).all(|event| *event == Event::Written(mark)), "{events:?}");
    }
    // A record that cannot be synced stays in the ring.
    *full.lock() = true;
    writer.append(0, b"more", &mut || true).unwrap();
    assert_eq!(drain.apply().unwrap_err().errno(), Some(libc::ENOSPC));
    assert!(!drain.is_drained() && drain.is_failing() && !kept(&drain), "a sync is to tell");
    *full.lock() = false;
    drain.apply().unwrap();
    assert!(drain.is_over() && !kept(&drain));
}

#[test] // S46
fn a_batch_that_a_servers_machine_may_have_lost_before_it_was_synced_is_brought_again() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Emulated);
    let writer = ring(&mut drain, 1, 256 << 10);
    writer.append(0, &[7; 5000], &mut || true).unwrap();
    *recorder.crashes.lock() = 2;
    recorder.events.lock().clear();
    drain.apply().unwrap();
    let (written, synced) = (Event::Written(0), Event::Synced(0));
    assert_eq!(*recorder.events.lock(), [written, synced, written, synced, written, synced]);
}

#[test] // S50
fn what_a_sync_is_to_tell_is_not_kept_from_it() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Emulated);
    let kept = |drain: &Drain| drain.kept().load(Relaxed);
    let (writer, _other) = (ring(&mut drain, 1, 256 << 10), ring(&mut drain, 2, 256 << 10));
    // Writes past the rings.
    *recorder.full.lock() = true;
    drain.sync().unwrap_err();
    assert!(!kept(&drain));
    *recorder.full.lock() = false;
    drain.sync().unwrap();
    assert!(kept(&drain));
    // Records in the rings: each open file reports its own damage, because the records of the other ring are safe.
    writer.append(0, &[7; 50_000], &mut || true).unwrap();
    std::fs::OpenOptions::new().write(true).open(drain.place().ring(0)).unwrap().set_len(5000).unwrap();
    drain.take();
    std::mem::forget(writer); // the memory is gone
    assert!(drain.damages() > 0 && drain.windows() == 1 && kept(&drain));
}

#[test]
fn on_a_tmpfs_nothing_is_synced_and_nothing_flushed() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Volatile);
    let writer = ring(&mut drain, 1, 256 << 10);
    writer.append(0, &[7; 5000], &mut || true).unwrap();
    drain.apply().unwrap();
    assert_eq!(*recorder.events.lock(), [Event::Written(0)]);
}
