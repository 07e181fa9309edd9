//! Tests of windows on persistent memory: their guarantees, and the order of writes and syncs.

use std::time::Duration;

use testkit::Disk;

use windows::CrashDurability;
use windows::testing::WindowedFile;

use super::killed::left_with_records;
use super::replay::recovered;
use super::*;
use data_store::NewTime;

use crate::NewAttributes;
use types::Timestamp;

#[test] // S50
fn a_sync_of_what_lies_on_persistent_memory_waits_for_nobody_unless_it_has_something_to_tell() {
    let write_alone = Mode { read: false, ..WRITE };
    for (durable, rules, mode) in
        [(true, &[][..], WRITE), (true, &[], write_alone), (true, &["fsync=global"], WRITE), (false, &[], write_alone)]
    {
        let tree = tempfile::tempdir().unwrap();
        if durable {
            std::fs::write(tree.path().join(DURABLE), "").unwrap();
        }
        let stand = Stand::new(tree.path(), rules);
        let (open, below) = (stand.open("file", mode), tree.path().join("data/file"));
        let windows = stand.agent.windows.get().unwrap();
        let keeps = |open: &OpenFile| windows.keeps(open.node().identity());
        assert_eq!(keeps(&open), CrashDurability::Nothing, "it has none yet");
        let window = stand.attach(&open);
        let maps = if mode.read { CrashDurability::Acknowledged } else { CrashDurability::All };
        assert_eq!(keeps(&open), if durable { maps } else { CrashDurability::Nothing });
        window.append(0, b"written").unwrap();
        stand.agent.write(&open, b"WR", 0, WriteHow::default()).unwrap();
        let at_once = durable && rules.is_empty();
        std::thread::scope(|scope| {
            // While the lock of the rings is held, no record is applied.
            let sync = WindowedFile::of(windows, open.node().identity()).unwrap().without_applying(|| {
                let sync = scope.spawn(|| open.sync(false));
                if at_once {
                    wait_until("the sync", PATIENCE, || sync.is_finished());
                } else {
                    std::thread::sleep(Duration::from_millis(100));
                    assert!(!sync.is_finished(), "{durable} {rules:?}");
                }
                sync
            });
            sync.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::read(below).unwrap() == b"WRitten", rules == ["fsync=global"]);
        drop(open);
        let again = stand.unannounced("file", WRITE);
        assert_eq!(keeps(&again), CrashDurability::Nothing, "nobody sees to what is written now");
    }
}

#[test] // S50
fn a_time_that_was_set_before_a_sync_is_on_the_medium_after_it() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let Some(disk) = Disk::new(tree.path("image"), tree.dir("disk"), 64 << 20) else { return };
        std::fs::write(disk.place().join(DURABLE), "").unwrap();
        let stand = Stand::new(disk.place(), &[]);
        let open = stand.open("file", Mode { read: false, ..WRITE });
        stand.attach(&open).append(0, b"written").unwrap();
        let set = Timestamp { seconds: 1_000_000_007, nanos: 9 };
        let new = NewAttributes { mtime: Some(NewTime::At(set)), ..NewAttributes::default() };
        stand.agent.set_attributes(&Caller::own(), open.node(), None, &new, &|| false).unwrap();
        open.sync(false).unwrap();
        // The image holds what a crash of the machine would leave at this moment.
        std::fs::copy(tree.path("image"), tree.path("left")).unwrap();
        let left = Disk::again(tree.path("left"), tree.dir("left-disk")).unwrap();
        let replicas = std::fs::read_dir(left.place().join("buffer/replicas")).unwrap();
        // Those that are ready for later files are there as well.
        let mut all = replicas.flat_map(|part| std::fs::read_dir(part.unwrap().path()).unwrap());
        let has_time = |replica: std::fs::DirEntry| replica.metadata().unwrap().modified().unwrap() == time_of(set);
        assert!(all.any(|replica| has_time(replica.unwrap())));
    });
}

fn time_of(stamp: Timestamp) -> std::time::SystemTime {
    std::time::UNIX_EPOCH + Duration::new(stamp.seconds as u64, stamp.nanos)
}

#[test] // S50
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

#[test] // S50
fn what_lies_on_persistent_memory_is_replayed_in_whatever_life_of_the_machine_and_missed_where_it_is_not() {
    let story = left_with_records(400, true);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let list = std::fs::read_to_string(buffer.join("windows")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(!list.contains(boot.trim()), "{list}");
    std::fs::rename(root.join("w"), root.join("elsewhere")).unwrap();
    let agent = agent_over(root, &[]);
    let refused = recovered(&agent, &buffer).unwrap_err().to_string();
    assert!(refused.contains("mount the persistent memory"), "{refused}");
    agent.data().shutdown();
    std::fs::rename(root.join("elsewhere"), root.join("w")).unwrap();
    story.check(400);
}
