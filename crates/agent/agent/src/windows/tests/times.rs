//! Tests of the modification time of files written through windows.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use types::Timestamp;

use super::killed::left_with_records;
use super::recorder::{drain_on, ring};
use super::replay::recovered;
use super::*;

/// Longer than applying records takes, and than a tick of any clock.
const LATE: Duration = Duration::from_millis(300);

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_nanos(now.as_nanos() as u64)
}

impl Stand {
    fn mtime(&self, open: &OpenFile) -> Timestamp {
        self.agent.attributes(open.node()).unwrap().mtime
    }

    /// Runs `write` and delays applying its records. Returns the latest possible time of the write.
    fn written_late(&self, write: impl FnOnce()) -> Timestamp {
        let windows = self.agent.windows.get().unwrap();
        let turn = windows.turn.lock();
        write();
        let written = now();
        sleep(LATE);
        drop(turn);
        written
    }
}

#[test] // S37
fn a_file_has_the_time_at_which_its_window_was_written_however_late_it_is_drained() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &["close=lazy"]);
    let open = stand.windowed("file");
    let window = stand.attach(&open);
    let before = stand.mtime(&open);
    let first = stand.written_late(|| window.append(0, b"first").unwrap());
    let drained = stand.mtime(&open);
    assert!(before < drained && drained <= first, "{before:?} {drained:?} {first:?}");
    let second = stand.written_late(|| window.append(5, b"second").unwrap());
    assert!(first < stand.mtime(&open) && stand.mtime(&open) <= second);
    // Later writes through the kernel, and times that were set, count.
    let asked = now();
    stand.agent.write(&open, b"third", 0, WriteHow::default()).unwrap();
    let third = stand.mtime(&open);
    assert!(third > second && third.seconds - asked.seconds <= 10);
    let last = stand.written_late(|| {
        window.append(0, b"last").unwrap();
        drop(open);
    });
    wait_until("the window is over", PATIENCE, || window.is_revoked());
    assert!(stand.agent.data().drain(None, &mut |_| {}, &|| false).is_empty());
    let below = std::fs::metadata(tree.path().join("data/file")).unwrap().modified().unwrap();
    let below = Timestamp::from_nanos(below.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64);
    assert!(third < below && below <= last, "{third:?} {below:?} {last:?}");
}

#[test] // S37
fn what_was_written_while_a_batch_was_on_its_way_has_its_own_time() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Volatile);
    let program = Arc::new(ring(&mut drain, 1, 1 << 20));
    let appended = Arc::new(Mutex::new(Vec::new()));
    program.append(0, b"first", &mut || false).unwrap();
    let (writer, times) = (Arc::clone(&program), Arc::clone(&appended));
    *recorder.before.lock() = Some(Box::new(move || {
        sleep(LATE / 10);
        writer.append(100, b"beside", &mut || false).unwrap();
        times.lock().push(now());
        sleep(LATE);
    }));
    drain.take();
    assert!(drain.batch(true, None).unwrap());
    *recorder.before.lock() = None;
    // Meanwhile the room of the first record was released, which says nothing about the second.
    drain.take();
    assert!(drain.batch(true, None).unwrap());
    let (dated, appended) = (recorder.dated.lock(), appended.lock());
    let [first, second] = dated[..] else { panic!("two batches: {dated:?}") };
    assert!(first < second && second <= appended[0] && appended.len() == 1, "{dated:?} {appended:?}");
}

#[test] // S37
fn what_comes_after_a_failed_try_has_the_time_at_which_it_was_written() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Volatile);
    let program = ring(&mut drain, 1, 1 << 20);
    program.append(0, b"data", &mut || false).unwrap();
    let written = now();
    drain.take();
    sleep(LATE);
    *recorder.gone.lock() = true;
    assert!(drain.batch(true, None).is_err() && drain.is_failing());
    sleep(LATE);
    *recorder.gone.lock() = false;
    assert!(drain.batch(true, None).unwrap());
    let dated = recorder.dated.lock();
    assert!(dated.len() >= 2 && dated.iter().all(|at| *at <= written), "a part of it may be there: {dated:?}");
}

#[test] // S37
fn what_is_replayed_has_the_time_at_which_it_was_written() {
    let story = left_with_records(900, false);
    let (root, killed) = (story.tree.path(), now());
    sleep(LATE);
    let agent = agent_over(root, &[]);
    let [file] = &recovered(&agent, &root.join("buffer")).unwrap()[..] else { panic!("one file") };
    assert!(file.records > 0);
    let node = agent.lookup(agent.root(), "file".as_ref()).unwrap().node;
    let replayed = agent.attributes(&node).unwrap().mtime;
    assert!(replayed <= killed, "{replayed:?} {killed:?}");
    agent.data().shutdown();
}
