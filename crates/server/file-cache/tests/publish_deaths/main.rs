//! State that a death at each step leaves, and the state after the next start.

use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use data_store::Residency;
use file_cache::fault;
use global_store::hidden::is_hidden;
use models::DataStoreExt;

// In a test program of its own: a child has its parent's open files until it executes its own program, and files that
// somebody has open are not published.
#[path = "../publish/hooked.rs"]
mod hooked;
#[path = "../publish/world.rs"]
mod world;

use world::{How, MIB, World, pattern, scratch};

const FILES: [(&str, u8); 3] = [("f", 1), ("d/g", 3), ("h", 5)];

fn version(seed: u8, new: bool) -> Vec<u8> {
    if new { pattern(seed + 1, MIB + 300_000 * usize::from(seed + 1)) } else { pattern(seed, MIB) }
}

fn how(shared: bool) -> How {
    How { shared, ..How::default() }
}

/// The child's work: three files in one run of the agent.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("FOREBAY_PUBLISH_DIR") else { return };
    let dir = PathBuf::from(dir);
    let world = World::open(&dir, how(std::env::var_os("FOREBAY_PUBLISH_SHARED").is_some()));
    for (name, seed) in FILES {
        world.rewrite(name, &version(seed, true));
        std::fs::write(dir.join("acknowledged"), name).unwrap();
        world.drain();
    }
    world.cache.shutdown();
}

/// Kills a child at the `nth` passage of a point. Returns how many files it had acknowledged before that.
fn kill_at(dir: &Path, shared: bool, point: &str, nth: usize) -> usize {
    {
        let world = World::open(dir, how(shared));
        FILES.iter().for_each(|(name, seed)| std::fs::write(world.path(name), version(*seed, false)).unwrap());
        world.cache.shutdown();
    }
    let log = dir.join("hits");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    command.env("FOREBAY_PUBLISH_DIR", dir);
    if shared {
        command.env("FOREBAY_PUBLISH_SHARED", "1");
    }
    let output =
        command.env("FOREBAY_FAULT", format!("{point}:{nth}")).env("FOREBAY_FAULT_LOG", &log).output().unwrap();
    let hit = std::fs::read_to_string(&log).is_ok_and(|text| text.trim() == point);
    assert!(hit, "{point}:{nth}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.signal(), Some(9), "{point}:{nth}");
    let last = std::fs::read_to_string(dir.join("acknowledged")).unwrap();
    FILES.iter().position(|(name, _)| *name == last).unwrap()
}

#[test] // S53
fn a_death_at_any_step_of_a_publication_leaves_one_whole_version_and_no_other_file() {
    for shared in [false, true] {
        let removal = ["unlink.below", "unlink.record", "unlink.replica"];
        for point in fault::PUBLICATION.iter().chain(&removal) {
            for nth in if shared { 2..=2 } else { 1..=3 } {
                let dir = scratch();
                let done = kill_at(dir.path(), shared, point, nth);
                check(dir.path(), shared, done, &format!("{shared} {point}:{nth}"));
            }
        }
    }
}

fn check(dir: &Path, shared: bool, done: usize, label: &str) {
    for (number, (name, seed)) in FILES.iter().enumerate() {
        let below = std::fs::read(dir.join("global").join(name)).unwrap();
        let (old, new) = (below == version(*seed, false), below == version(*seed, true));
        let whole = if number < done { new } else { old || (number == done && new) };
        assert!(whole, "{label}: {name} is a part of a version");
    }
    let world = World::open(dir, how(shared));
    assert_eq!(world.cache.counters().orphaned, 0, "{label}");
    for (number, (name, seed)) in FILES.iter().enumerate() {
        assert!(world.content(name) == version(*seed, number <= done), "{label}: {name}");
    }
    world.drain();
    for (number, (name, seed)) in FILES.iter().enumerate() {
        assert!(world.below(name) == version(*seed, number <= done), "{label}: {name} below");
        assert_eq!(world.anchor(name).mark().unwrap(), None, "{label}: {name}");
    }
    assert_eq!(world.hidden(), 0, "{label}");
    world.cache.sweep().unwrap();
    let listed = world.cache.counters().files;
    world.cache.shutdown();
    assert!(world.replicas() as u64 <= listed, "{label}");
}

/// Undoes the rename, as a crash of the store does, with the hidden name or without.
#[test] // S53
fn a_file_that_has_its_name_again_after_a_death_is_dirty_and_whole() {
    for lost in [false, true] {
        let dir = scratch();
        assert_eq!(kill_at(dir.path(), false, "a4.synced", 2), 1, "d/g");
        let beside = std::fs::read_dir(dir.path().join("global/d")).unwrap();
        let hidden = beside.map(Result::unwrap).find(|entry| is_hidden(&entry.file_name())).unwrap();
        if lost {
            std::fs::remove_file(hidden.path()).unwrap();
        }
        let world = World::open(dir.path(), How { held: true, ..How::default() });
        assert_eq!((world.cache.counters().orphaned, world.hidden()), (0, 0));
        assert!(world.content("d/g") == version(3, true) && world.below("d/g") == version(3, false));
        world.drain();
        assert!(world.below("d/g") == version(3, true));
        world.cache.shutdown();
    }
}

#[test] // S26, S53
fn what_others_removed_or_moved_while_a_file_was_published_is_told_after_a_death() {
    for (point, moved) in ["a2.recorded", "a4.synced"].into_iter().flat_map(|point| [(point, false), (point, true)]) {
        let dir = scratch();
        assert_eq!(kill_at(dir.path(), false, point, 2), 1, "d/g");
        let path = dir.path().join("global/d/g");
        if moved {
            std::fs::rename(&path, dir.path().join("global/k")).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        let world = World::open(dir.path(), How::default());
        assert_eq!(world.hidden(), 0, "{point}");
        let stuck = world.cache.drain_all();
        if moved {
            assert!(stuck.is_empty() && world.below("k") == version(3, true), "{point} {stuck:?}");
        } else {
            assert_eq!((stuck.len(), stuck[0].orphaned), (1, true), "{point} {stuck:?}");
            assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), version(3, true));
        }
        world.cache.shutdown();
    }
}

/// The name of the directory says nothing of the file's change time.
#[test] // S25
fn other_bytes_as_many_and_as_old_that_came_while_a_file_was_published_are_a_conflict_after_a_death() {
    for moved in [false, true] {
        let dir = scratch();
        assert_eq!(kill_at(dir.path(), false, "a2.recorded", 2), 1, "d/g");
        let global = dir.path().join("global");
        let file = std::fs::File::options().write(true).open(global.join("d/g")).unwrap();
        let was = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(&pattern(9, MIB), 0).unwrap();
        file.set_modified(was).unwrap();
        drop(file);
        if moved {
            std::fs::rename(global.join("d"), global.join("e")).unwrap();
        }
        let world = World::open(dir.path(), How::default());
        let stuck = world.cache.drain_all();
        assert_eq!((stuck.len(), stuck[0].state), (1, Residency::Conflict), "{moved} {stuck:?}");
        assert!(world.below(if moved { "e/g" } else { "d/g" }) == pattern(9, MIB));
        assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), version(3, true));
        world.cache.shutdown();
    }
}

#[test] // S53
fn what_a_start_could_not_learn_of_a_hidden_file_is_asked_later() {
    for (point, placed) in [("a4.synced", false), ("a5.placed", true)] {
        let dir = scratch();
        assert_eq!(kill_at(dir.path(), false, point, 2), 1, "d/g");
        std::fs::remove_file(dir.path().join("global/d/g")).unwrap();
        let world = World::open(dir.path(), How { silent: true, ..How::default() });
        assert_eq!((world.hidden(), world.cache.counters().orphaned), (usize::from(!placed), 0), "{point}");
        let stuck = world.cache.drain_all();
        assert_eq!((world.hidden(), stuck.len()), (0, usize::from(!placed)), "{point} {stuck:?}");
        assert!(stuck.iter().all(|stuck| stuck.orphaned && std::fs::read(&stuck.replica).unwrap() == version(3, true)));
        world.cache.shutdown();
    }
}
