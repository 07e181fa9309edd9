//! Windows on persistent memory, by the instructions of it: what they are worth, and in which order what they hold travels.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use file_cache::{SeekFor, WriteResult};
use parking_lot::Mutex;
use types::{Identity, Version};
use window::ring::Writer;
use window::sequence::Sequence;
use window::{Mapping, Medium};

use super::super::budget::Budget;
use super::super::counters::Counters;
use super::super::drain::Drain;
use super::super::session::Session;
use super::killed::left_with_records;
use super::*;
use crate::burst_buffer::{DataVersion, OpenData};

/// What happened to the replica, and where the mark of the drained stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Written(u64),
    Synced(u64),
}

/// A replica that keeps nothing but the order of events.
struct Recorder {
    mark: std::path::PathBuf,
    events: Events,
    full: Arc<Mutex<bool>>,
}

impl Recorder {
    fn mark(&self) -> u64 {
        let bytes = std::fs::read(&self.mark).unwrap_or_default();
        bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }
}

impl OpenData for Recorder {
    fn data(&self) -> DataVersion {
        DataVersion::There(0)
    }
    fn version(&self) -> Option<Version> {
        None
    }
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn use_passthrough(&self) -> bool {
        false
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }
    fn write_at(&self, data: &[u8], offset: u64, _: bool) -> io::Result<WriteResult> {
        Ok(WriteResult { offset, written: data.len() })
    }
    fn write_acknowledged(&self, _: &[u8], _: u64) -> io::Result<()> {
        self.events.lock().push(Event::Written(self.mark()));
        Ok(())
    }
    fn is_unshared(&self) -> bool {
        true
    }
    fn is_last_of_removed(&self) -> bool {
        false
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn fallocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn seek(&self, offset: u64, _: SeekFor) -> io::Result<u64> {
        Ok(offset)
    }
    fn sync(&self, _: bool) -> io::Result<()> {
        if *self.full.lock() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.events.lock().push(Event::Synced(self.mark()));
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

type Program = Writer<Arc<Mapping>, Arc<Mapping>>;
type Events = Arc<Mutex<Vec<Event>>>;

/// A drain on memory of that kind, with a program's half of a ring, what happened to the replica, and whether syncs fail.
fn drain_on(tree: &Path, medium: Medium) -> (Drain, Program, Events, Arc<Mutex<bool>>) {
    let (session, _) = Session::begin(&tree.join("w"), "one", tree, Some(medium)).unwrap();
    let place = session.add(1, &Identity::new(vec![1]).unwrap(), Path::new("file")).unwrap();
    let (events, full) = (Events::default(), Arc::default());
    let recorder = Recorder { mark: place.drained(), events: Arc::clone(&events), full: Arc::clone(&full) };
    let counters = Arc::new(Counters::default());
    let mut drain = Drain::new(place, medium, "file".into(), Box::new(recorder), &counters).unwrap();
    let granted = drain.add(1, Budget::new(1 << 20).take(256 << 10).unwrap()).unwrap();
    assert_eq!(granted.medium, medium);
    let writer = Writer::new(granted.ring, granted.id, granted.capacity, Sequence::new(granted.sequence)).unwrap();
    (drain, writer, events, full)
}

#[test]
fn on_persistent_memory_the_replica_is_synced_before_the_mark_says_that_it_has_something() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, writer, events, full) = drain_on(tree.path(), Medium::Emulated);
    assert_eq!(*events.lock(), [Event::Synced(0)], "what was there before the window");
    for number in 0..3u64 {
        writer.append(number * 100_000, &[7; 5000], &mut || true).unwrap();
        writer.append(number * 200_000, &[7; 5000], &mut || true).unwrap();
        drain.settle().unwrap();
        let events = std::mem::take(&mut *events.lock());
        let mark = number * 2;
        let (last, before) = events.split_last().unwrap();
        assert_eq!(*last, Event::Synced(mark), "{events:?}");
        assert!(before.iter().skip(usize::from(number == 0)).all(|event| *event == Event::Written(mark)), "{events:?}");
    }
    // What cannot be synced stays in the ring.
    *full.lock() = true;
    writer.append(0, b"more", &mut || true).unwrap();
    assert_eq!(drain.settle().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert!(!drain.is_drained() && drain.is_failing());
    *full.lock() = false;
    drain.settle().unwrap();
    assert!(drain.is_over());
}

#[test]
fn on_a_tmpfs_nothing_is_synced_and_nothing_flushed() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, writer, events, _) = drain_on(tree.path(), Medium::Volatile);
    writer.append(0, &[7; 5000], &mut || true).unwrap();
    drain.settle().unwrap();
    assert_eq!(*events.lock(), [Event::Written(0)]);
}

#[test]
fn a_program_is_told_that_its_window_is_durable_and_so_is_the_status() {
    for durable in [false, true] {
        let tree = tempfile::tempdir().unwrap();
        if durable {
            std::fs::write(tree.path().join(DURABLE), "").unwrap();
        }
        let stand = Stand::new(tree.path(), &[]);
        let open = stand.windowed("file");
        let told = |stand: &Stand| stand.control(&open, Control::new(Command::Get, 0)).unwrap().state & state::DURABLE;
        assert_eq!(told(&stand), 0, "it has none yet");
        let window = stand.attach(&open);
        assert_eq!(told(&stand) != 0, durable);
        assert_eq!(stand.agent.window_status().unwrap().durable, durable);
        window.append(0, b"written").unwrap();
        stand.agent.write(&open, b"WR", 0, WriteHow::default()).unwrap();
        open.set_len(5).unwrap();
        assert_eq!(stand.content(&open), b"WRitt");
    }
}

#[test]
fn what_lies_on_persistent_memory_is_replayed_in_whatever_life_of_the_machine_and_missed_where_it_is_not() {
    let story = left_with_records(400, true);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let list = std::fs::read_to_string(buffer.join("windows")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(!list.contains(boot.trim()), "{list}");
    std::fs::rename(root.join("w"), root.join("elsewhere")).unwrap();
    let agent = agent_over(root, &[]);
    let refused = agent.recover_windows(&buffer).unwrap_err().to_string();
    assert!(refused.contains("mount the persistent memory"), "{refused}");
    agent.cache().shutdown();
    std::fs::rename(root.join("elsewhere"), root.join("w")).unwrap();
    story.check(400);
}
