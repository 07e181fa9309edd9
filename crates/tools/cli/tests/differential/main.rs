//! Random operations, executed through a mount and on a plain directory: every answer agrees, and both trees are
//! equal at the end. After the unmount the global store equals the plain directory.
//!
//! A failure prints its seed. `FOREBAY_TEST_SEED=N` tells only that story, and `FOREBAY_TEST_SHRINK=1` looks for a
//! shorter one that fails in the same way. `FOREBAY_TEST_SECONDS=N` tells other stories for longer. Each failure ever
//! found stays as a test below.

mod found;
mod holes;
mod mapping;
#[path = "../mounted/mod.rs"]
mod mounted;
mod names;
mod op;
mod outcome;
mod shrink;
mod side;
mod story;
mod tree;

use std::path::Path;
use std::time::{Duration, Instant};

use mounted::Place;
use op::Op;
use side::Side;
use testkit::{TempTree, in_private_namespace_within};

/// Operations per story.
const OPS: usize = 400;
/// Duration of the stories of one policy.
const BUDGET: Duration = Duration::from_secs(8);
/// Longest time for one test, including a search for a short story.
const BOUND: Duration = Duration::from_secs(230);
/// Most stories of one policy in a normal run; `FOREBAY_TEST_SECONDS` tells others, and for longer.
const STORIES_MAX: u64 = 6;

/// Setting of a kind of story.
#[derive(Clone, Copy)]
struct Setting {
    rules: &'static [&'static str],
    /// Whether `stage out` and `evict` are mixed in.
    commands: bool,
    /// Largest file, bytes.
    size_max: u64,
    /// Size of a burst buffer in memory, bytes.
    burst_buffer: Option<u64>,
    /// Whether the story takes place in a directory that is made through the mount.
    in_new_directory: bool,
}

const DEFAULT: Setting =
    Setting { rules: &[], commands: false, size_max: 4 << 20, burst_buffer: None, in_new_directory: false };

/// Tells one story through a mount and on a plain directory.
fn attempt(setting: Setting, ops: &[Op]) -> Result<(), String> {
    let place = setting.burst_buffer.map_or_else(Place::new, Place::with_burst_buffer_of);
    let plain = place.dir.with_file_name("plain");
    std::fs::create_dir(&plain).map_err(|error| error.to_string())?;
    let dir = if setting.in_new_directory { place.dir.join("new") } else { place.dir.clone() };
    story::first_files(&plain, setting.size_max);
    if !setting.in_new_directory {
        story::first_files(&dir, setting.size_max);
    }
    let agent = place.mount(setting.rules);
    if setting.in_new_directory {
        std::fs::create_dir(&dir).map_err(|error| error.to_string())?;
        assert!(place.burst_buffer.join("trees").is_dir(), "the directory is not delegated: {}", place.agent_log());
        story::first_files(&dir, setting.size_max);
    }
    let mut two = Side::plain(&plain);
    let told = {
        let command = |name: &str, path: &Path| {
            agent.stage(name, path);
        };
        // Files of a delegated directory have no inode number below yet.
        let is_delegated = setting.in_new_directory || setting.rules.contains(&"delegate=lease");
        let below = (!is_delegated).then(|| place.below());
        let mut one = Side::mounted(&dir, below, Box::new(command));
        story::tell(&mut one, &mut two, ops)
    };
    two.close_all();
    told.map_err(|parted| format!("{parted}\n{}", agent.said()))?;
    let stored = two.stored;
    let equal = |one: &Path, when: &str| {
        let found = tree::differences(one, &plain, &|inode| stored.contains(&inode));
        if found.is_empty() { Ok(()) } else { Err(format!("{when}:\n{}\n{}", found.join("\n"), place.agent_log())) }
    };
    equal(&dir, "through the mount, at the end")?;
    agent.unmount()?;
    equal(&dir, "in the global store, after the unmount")?;
    place.check()
}

/// Tells stories for a while. The bound of the namespace leaves room for a slow machine, and for shrinking.
fn tell_stories(setting: Setting) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let longer = number("FOREBAY_TEST_SECONDS");
    let seeds = match (number("FOREBAY_TEST_SEED"), longer) {
        (Some(seed), _) => seed..=seed,
        (None, Some(_)) => u64::from(std::process::id())..=u64::MAX >> 24,
        (None, None) => 1..=STORIES_MAX,
    };
    let budget = longer.map_or(BUDGET, Duration::from_secs);
    let start = Instant::now();
    for seed in seeds {
        if start.elapsed() > budget {
            break;
        }
        let ops = story::draw(seed, OPS, setting.size_max, setting.commands);
        if let Err(why) = attempt(setting, &ops) {
            println!("seed {seed}: {why}");
            let short = shrink::shrink(&ops, |ops| attempt(setting, ops));
            panic!("seed {seed}: {short}");
        }
    }
}

#[test] // S1
fn a_mount_with_default_rules_is_a_plain_directory() {
    in_private_namespace_within(BOUND, || tell_stories(DEFAULT));
}

#[test] // S8
fn commands_that_move_data_change_nothing_that_programs_see() {
    in_private_namespace_within(BOUND, || {
        tell_stories(Setting { rules: &["stage_out=manual"], commands: true, ..DEFAULT })
    });
}

#[test]
fn a_mount_that_caches_nothing_is_a_plain_directory() {
    in_private_namespace_within(BOUND, || tell_stories(Setting { rules: &["cache=through"], ..DEFAULT }));
}

#[test]
fn replicas_that_go_once_clean_are_not_missed() {
    in_private_namespace_within(BOUND, || tell_stories(Setting { rules: &["keep_after=delete"], ..DEFAULT }));
}

#[test] // S71
fn delegated_directories_are_plain_directories() {
    in_private_namespace_within(BOUND, || {
        let inside = Setting { in_new_directory: true, ..DEFAULT };
        tell_stories(Setting { rules: &["delegate=new"], commands: true, ..inside });
        tell_stories(Setting { rules: &["delegate=new", "stage_out=manual"], ..inside });
        // Existing directories, each read when it is first used.
        tell_stories(Setting { rules: &["delegate=lease"], commands: true, ..DEFAULT });
        tell_stories(Setting { rules: &["delegate=lease", "stage_out=manual"], ..DEFAULT });
        // Names move between delegated directories and others.
        tell_stories(Setting { rules: &["delegate=new"], ..DEFAULT });
    });
}

#[test]
fn a_mount_that_only_reads_ahead_is_a_plain_directory() {
    in_private_namespace_within(BOUND, || {
        tell_stories(Setting { rules: &["cache=preload"], commands: true, ..DEFAULT })
    });
}

#[test] // S30
fn a_full_burst_buffer_is_not_noticed() {
    let setting = Setting { size_max: 256 << 10, burst_buffer: Some(8 << 20), ..DEFAULT };
    in_private_namespace_within(BOUND, move || tell_stories(setting));
}

#[test]
fn two_plain_directories_agree() {
    let tree = TempTree::new();
    let (one, two) = (tree.dir("one"), tree.dir("two"));
    for seed in 1..=10 {
        for root in [&one, &two] {
            std::fs::remove_dir_all(root).unwrap();
            std::fs::create_dir(root).unwrap();
            story::first_files(root, 1 << 20);
        }
        let ops = story::draw(seed, OPS, 1 << 20, true);
        let (mut first, mut second) = (Side::plain(&one), Side::plain(&two));
        story::tell(&mut first, &mut second, &ops).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(tree::differences(&one, &two, &|_| false), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_planted_difference_of_one_byte_is_found() {
    use std::os::unix::fs::FileExt;
    let tree = TempTree::new();
    let (one, two) = (tree.dir("one"), tree.dir("two"));
    story::first_files(&one, 1 << 20);
    story::first_files(&two, 1 << 20);
    std::fs::OpenOptions::new().write(true).open(one.join("big")).unwrap().write_all_at(b"\0", 777).unwrap();
    let big = op::PATHS.iter().position(|path| *path == "big").unwrap() as u8;
    let ops = [Op::Stat { path: big }, Op::ReadFile { path: big }];
    let why = story::tell(&mut Side::plain(&one), &mut Side::plain(&two), &ops).unwrap_err();
    assert!(why.contains("operation 1") && why.contains("byte 777"), "{why}");
    let found = tree::differences(&one, &two, &|_| false);
    assert!(found.len() == 1 && found[0].contains("byte 777"), "{found:?}");
}
