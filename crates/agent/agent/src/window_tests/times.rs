//! Tests of the modification time of files written through windows.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use types::Timestamp;

use super::killed::left_with_records;
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
        windows::testing::without_turns(windows, || {
            write();
            let written = now();
            sleep(LATE);
            written
        })
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
