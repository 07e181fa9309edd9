//! What a death at each step leaves, and what the next start makes of it.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use file_cache::{Residency, fault};

use crate::hooked::Blind;
use crate::world::{How, MIB, World, pattern, scratch};

const FILES: [(&str, u8); 3] = [("f", 1), ("d/g", 3), ("h", 5)];

fn version(seed: u8, new: bool) -> Vec<u8> {
    if new { pattern(seed + 1, MIB + 300_000 * usize::from(seed + 1)) } else { pattern(seed, MIB) }
}

/// How the worlds of a child are opened: a letter for each that is not as usual.
fn how(letters: &str) -> How {
    let blind = Blind { paths: letters.contains('b'), walks: letters.contains('w'), syncs: letters.contains('n') };
    How { shared: letters.contains('s'), no_handles: letters.contains('h'), blind, ..How::default() }
}

/// What the child does: three files in one agent's life.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("FOREBAY_PUBLISH_DIR") else { return };
    let dir = PathBuf::from(dir);
    let world = World::open(&dir, how(&std::env::var("FOREBAY_PUBLISH_HOW").unwrap()));
    for (name, seed) in FILES {
        world.rewrite(name, &version(seed, true));
        std::fs::write(dir.join("acknowledged"), name).unwrap();
        world.drain();
    }
    world.cache.shutdown();
}

/// Kills a child at the `nth` passage of a point; returns how many files it had acknowledged before that.
fn kill_at(dir: &Path, letters: &str, point: &str, nth: usize) -> usize {
    {
        let world = World::open(dir, how(letters));
        FILES.iter().for_each(|(name, seed)| std::fs::write(world.path(name), version(*seed, false)).unwrap());
        world.cache.shutdown();
    }
    let log = dir.join("hits");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "deaths::child", "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    command.env("FOREBAY_PUBLISH_DIR", dir).env("FOREBAY_PUBLISH_HOW", letters);
    let output =
        command.env("FOREBAY_FAULT", format!("{point}:{nth}")).env("FOREBAY_FAULT_LOG", &log).output().unwrap();
    let hit = std::fs::read_to_string(&log).is_ok_and(|text| text.trim() == point);
    assert!(hit, "{point}:{nth}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.signal(), Some(9), "{point}:{nth}");
    let last = std::fs::read_to_string(dir.join("acknowledged")).unwrap();
    FILES.iter().position(|(name, _)| *name == last).unwrap()
}

#[test]
fn a_death_at_any_step_of_a_publication_leaves_one_whole_version_and_no_other_file() {
    for letters in ["", "h", "s"] {
        for point in fault::PUBLICATION {
            for nth in if letters.is_empty() { 1..=3 } else { 2..=2 } {
                let dir = scratch();
                let done = kill_at(dir.path(), letters, point, nth);
                check(dir.path(), letters, done, &format!("{letters} {point}:{nth}"));
            }
        }
    }
}

fn check(dir: &Path, letters: &str, done: usize, label: &str) {
    for (number, (name, seed)) in FILES.iter().enumerate() {
        let below = std::fs::read(dir.join("global").join(name)).unwrap();
        let (old, new) = (below == version(*seed, false), below == version(*seed, true));
        let whole = if number < done { new } else { old || (number == done && new) };
        assert!(whole, "{label}: {name} is a part of a version");
    }
    let world = World::open(dir, how(letters));
    assert_eq!((world.hidden(), world.cache.status().orphaned), (0, 0), "{label}");
    for (number, (name, seed)) in FILES.iter().enumerate() {
        assert!(world.content(name) == version(*seed, number <= done), "{label}: {name}");
    }
    world.drain();
    for (number, (name, seed)) in FILES.iter().enumerate() {
        assert!(world.below(name) == version(*seed, number <= done), "{label}: {name} below");
        assert_eq!(world.anchor(name).mark().unwrap(), None, "{label}: {name}");
    }
    world.cache.sweep().unwrap();
    let listed = world.cache.status().files;
    assert_eq!((world.hidden(), world.replicas() as u64), (0, listed), "{label}");
    world.cache.shutdown();
}

#[test]
fn what_was_moved_after_a_death_is_the_file_whatever_can_be_told_of_its_place() {
    let points = [("a3.written", false), ("a4.synced", false), ("a5.placed", true), ("a6.synced", true)];
    for (letters, point, done) in
        ["", "h", "b"].into_iter().flat_map(|how| points.map(|(point, done)| (how, point, done)))
    {
        let (dir, label) = (scratch(), format!("{letters} {point}"));
        assert_eq!(kill_at(dir.path(), letters, point, 2), 1, "d/g");
        std::fs::rename(dir.path().join("global/d"), dir.path().join("global/e")).unwrap();
        std::fs::rename(dir.path().join("global/e/g"), dir.path().join("global/e/k")).unwrap();
        let world = World::open(dir.path(), how(letters));
        assert_eq!(world.cache.status().orphaned, 0, "{label}");
        assert_eq!(world.below("e/k") == version(3, true), done, "{label}");
        assert!(world.content("e/k") == version(3, true), "{label}");
        world.drain();
        assert!(world.below("e/k") == version(3, true), "{label}");
        world.rewrite("e/k", b"again");
        world.drain();
        assert_eq!((world.below("e/k"), world.state("e/k")), (b"again".to_vec(), Residency::Clean), "{label}");
        if point != "a3.written" && letters != "b" {
            assert_eq!(world.hidden(), 0, "{label}");
        }
        world.cache.shutdown();
    }
}

#[test]
fn a_file_of_which_nobody_can_tell_whether_it_was_published_keeps_no_start_from_the_others() {
    let dir = scratch();
    assert_eq!(kill_at(dir.path(), "h", "a5.placed", 2), 1, "d/g");
    std::fs::remove_file(dir.path().join("global/d/g")).unwrap();
    let world = World::open(dir.path(), how("hw"));
    assert!(world.content("f") == version(1, true));
    let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
    assert_eq!((stuck.len(), stuck[0].orphaned), (1, true), "{stuck:?}");
    assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), version(3, true));
    world.cache.shutdown();
}

#[test]
fn who_wrote_below_after_a_death_is_in_conflict_and_the_name_is_synced_before_the_former_files_record_goes() {
    for edited in [true, false] {
        let dir = scratch();
        assert_eq!(kill_at(dir.path(), "", "a5.placed", 1), 0);
        if edited {
            std::fs::write(dir.path().join("global/f"), b"theirs").unwrap();
        }
        // What cannot be found out, or made sure of, is left to the next start.
        World::open(dir.path(), how("n")).cache.abandon();
        let world = World::open(dir.path(), How::default());
        assert_eq!(world.store.synced.load(Ordering::Relaxed), 1, "the name may go with a crash");
        let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
        if edited {
            assert_eq!((stuck.len(), stuck[0].state), (1, Residency::Conflict));
            assert_eq!(world.below("f"), b"theirs");
        } else {
            assert_eq!((stuck.len(), world.state("f")), (0, Residency::Clean));
        }
        world.cache.shutdown();
    }
}
