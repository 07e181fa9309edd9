//! Tests of the modification time of files written through windows.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use types::Timestamp;

use super::recorder::{drain_on, ring};
use super::*;

/// Longer than applying records takes, and than a tick of any clock.
const LATE: Duration = Duration::from_millis(300);

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_nanos(now.as_nanos() as u64)
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
