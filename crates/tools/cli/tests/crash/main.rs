//! Deaths of the agent and of programs, and what is left: every acknowledged operation is in the global store after
//! the recovery, and nothing older than an acknowledged truncate, unlink, rename or newer write reappears.
//!
//! Programs are this test binary, started again with a role; their ledgers lie outside the mount. A failure prints the
//! round that was played.

mod campaign;
mod delegated;
mod holder;
mod ledger;
#[path = "../mounted/mod.rs"]
mod mounted;
mod program;
mod programs;
#[path = "../server/ledger.rs"]
#[allow(dead_code, reason = "of them records are written here")]
mod records;
mod round;
mod story;
mod verdict;
mod windows;
mod writer;

use std::os::unix::fs::FileExt;
use std::time::Duration;

use campaign::Campaign;
use mounted::chance::{Chance, payload};
use mounted::{BOUND, Place};
use round::{Afterwards, Death, Door, Round};
use testkit::{TempTree, in_private_namespace_within, wait_until};

/// Longest time for one test: a round takes about a second on an idle machine.
const NAMESPACE_BOUND: Duration = Duration::from_secs(230);
/// Least number of acknowledged records that deaths of one kind at random moments judge.
const RECORDS_MIN: usize = 3500;

/// Rules under which a fault point is looked for, in this order.
const RULES: [&[&str]; 4] = [&[], &["keep_after=delete"], &["stage_out=manual"], &["delegate=new"]];
/// Seeds of stories in which a fault point is looked for: not every story removes a file that it has synced.
const SEEDS: [u64; 4] = [10, 30, 40, 50];

#[test]
fn a_process_with_a_role_plays_it() {
    program::play(&writer::play);
}

#[test]
fn a_story_on_a_plain_directory_leaves_what_its_model_says_also_when_it_is_killed() {
    let tree = TempTree::new();
    for (seed, kill_after) in [(1, usize::MAX), (2, 20), (3, 55)] {
        let (dir, ledger) = (tree.dir(format!("plain-{seed}")), tree.path(format!("ledger-{seed}")));
        programs::first_files(&dir, seed).expect("the first files");
        let words = ["story", dir.to_str().unwrap(), &seed.to_string(), "300", ledger.to_str().unwrap()];
        let mut process = program::start(&words, &tree.path("log"), &[]);
        wait_until("the end of the program", BOUND, || {
            if ledger::read(&ledger).acknowledged >= kill_after {
                process.kill();
            }
            process.ended().is_some()
        });
        assert!(
            kill_after < 300 || process.ended().unwrap().success(),
            "{:?}",
            std::fs::read_to_string(tree.path("log"))
        );
        verdict::judge(&dir, seed, ledger::read(&ledger)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        // The judge is no rubber stamp: a byte that was never written is found.
        let file = std::fs::OpenOptions::new().append(true).create(true).open(dir.join("n0"));
        std::io::Write::write_all(&mut file.unwrap(), b"!").unwrap();
        verdict::judge(&dir, seed, ledger::read(&ledger)).unwrap_err();
    }
}

/// Returns every fault point except that of marks, which are left only on stores that other machines share. The file
/// cache's own test reaches that one.
fn points() -> impl Iterator<Item = &'static str> {
    file_cache::fault::POINTS.iter().copied().filter(|name| *name != "w6.unmarked")
}

/// Plays a point until it is hit, in up to `stories` stories and under each set of rules.
fn play_point(door: Door, name: &'static str, nth: u32, afterwards: Afterwards, stories: usize) -> bool {
    let rules_and_seeds = SEEDS[..stories].iter().flat_map(|seed| RULES.iter().map(move |rules| (rules, *seed)));
    rules_and_seeds.into_iter().any(|(rules, seed)| {
        let round = Round { door, death: Death::AtPoint(name, nth), afterwards, rules, seed: seed + u64::from(nth) };
        round.play().unwrap_or_else(|why| panic!("{why}")).hit
    })
}

#[test] // S14
fn the_agent_may_die_at_every_fault_point_and_recover_completes() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        let missed: Vec<_> =
            points().filter(|name| !play_point(Door::Kernel, name, 1, Afterwards::Recover, SEEDS.len())).collect();
        assert!(missed.is_empty(), "never reached, so nothing is proved: {missed:?}");
    });
}

#[test] // S16
fn the_agent_may_die_at_a_later_passage_of_a_fault_point_and_a_new_mount_goes_on() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        // A later passage need not come in every story.
        let hit = points().filter(|name| play_point(Door::Kernel, name, 4, Afterwards::MountAgain, 1)).count();
        assert!(hit > points().count() / 2, "only {hit} points were reached four times");
    });
}

/// Plays deaths of one kind at random moments, until enough acknowledged records were judged and enough deaths came
/// in time.
fn play_random(door: Door, seed: u64, rules: &[&'static [&'static str]], death: fn(usize) -> Death) {
    let seed = campaign::seed() + seed;
    let (mut chance, mut campaign) = (Chance::new(seed), Campaign::begin(RECORDS_MIN));
    while let Some(round) = campaign.next() {
        let afterwards = chance.of(&[Afterwards::Recover, Afterwards::MountAgain]);
        let (after, rules) = (chance.below(70) as usize, chance.of(rules));
        let round = Round { door, death: death(after), afterwards, rules, seed: seed + 100 * round };
        let played = round.play().unwrap_or_else(|why| panic!("{why}"));
        campaign.judged(played.records, played.killed);
    }
}

/// Plays random deaths of the agent and of programs, alone and together.
fn play_all_at_random(door: Door) {
    play_random(door, 3, &RULES, Death::OfAgent);
    play_random(door, 4, &RULES, Death::OfProgram);
    play_random(door, 5, &RULES, Death::OfAll);
}

#[test] // S14, S27
fn agent_and_programs_may_die_at_any_moment_alone_and_together() {
    in_private_namespace_within(campaign::bound(NAMESPACE_BOUND, 3), || play_all_at_random(Door::Kernel));
}

#[test]
fn a_removed_file_of_an_agent_that_died_is_told_by_nobody_as_unsaved() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        let place = Place::new();
        let mut agent = place.mount(&["stage_out=manual"]);
        let file = std::fs::File::create(place.dir.join("file")).unwrap();
        file.write_all_at(b"synced", 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        std::fs::remove_file(place.dir.join("file")).unwrap();
        agent.kill();
        let ended = place.forebay(&["umount", place.dir.to_str().unwrap()], &[]);
        assert_eq!(ended.code, 0, "{}", ended.text);
        drop(agent);
        let ended = place.forebay(&["check", place.burst_buffer.to_str().unwrap()], &[]);
        assert!(ended.code == 0 && ended.text.contains("1 file was being removed"), "{}", ended.text);
        assert_eq!(place.recover(&[]).code, 0);
    });
}

#[test] // S32
fn a_dead_agents_mount_answers_enotconn_and_the_data_comes_back_with_the_next() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        let place = Place::new();
        let (file, content) = (place.dir.join("file"), payload(1, 100_000));
        let mut agent = place.mount(&["stage_out=manual"]);
        std::fs::write(&file, &content).unwrap();
        agent.kill();
        assert_eq!(std::fs::read(&file).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
        drop(agent);
        assert!(std::fs::read(&file).unwrap() != content, "not staged out yet: else this proves nothing");
        let agent = place.mount(&[]);
        assert!(std::fs::read(&file).unwrap() == content);
        agent.unmount().unwrap();
        assert!(std::fs::read(&file).unwrap() == content);
    });
}

/// Points of a new file's stage-out: the agent dies at each while a rename is to replace an existing name.
const STAGE_OUT: &[&str] =
    &["w3.draining", "w4.range", "w4.written", "w5.sized", "w5.mtime", "w6.synced", "w7.verified", "w7.committed"];

#[test] // S23
fn replacing_a_name_by_a_dirty_file_never_leaves_neither_version_below() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        for point in STAGE_OUT {
            let place = Place::new();
            let (old, new) = (payload(1, 300_000), payload(2, 400_000));
            let (name, temporary) = (place.dir.join("file"), place.dir.join("file.new"));
            std::fs::write(&name, &old).unwrap();
            let log = place.beside("fault");
            let environment = [("FOREBAY_FAULT", *point), ("FOREBAY_FAULT_LOG", log.to_str().unwrap())];
            let mut agent = place.try_mount(&["stage_out=manual"], &environment).unwrap();
            std::fs::write(&temporary, &new).unwrap();
            let renamed = std::fs::rename(&temporary, &name);
            assert!(renamed.is_err(), "{point}: the agent was to die within the rename");
            wait_until("the agent's death", BOUND, || agent.has_ended());
            assert!(log.exists(), "{point} was not reached");
            drop(agent);
            let below = std::fs::read(&name).unwrap();
            assert!(below == old || below == new, "{point}: {}", verdict::difference(&below, &new));
            assert_eq!(place.recover(&[]).code, 0, "{point}");
            let versions = [std::fs::read(&name).ok(), std::fs::read(&temporary).ok()];
            let renamed_below = versions == [Some(new.clone()), None];
            assert!(renamed_below || versions == [Some(old), Some(new)], "{point}: the new version is lost");
        }
    });
}

#[test] // S20
fn a_file_is_not_clean_before_a_program_that_outlived_the_agent_lets_it_go() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        let place = Place::new();
        let (file, ready, go) = (place.dir.join("held"), place.beside("ready"), place.beside("go"));
        let mut content = payload(1, holder::HELD_BYTES);
        let mut agent = place.mount(&[]);
        std::fs::write(&file, &content).unwrap();

        let words = ["hold", file.to_str().unwrap(), ready.to_str().unwrap(), go.to_str().unwrap()];
        let log = place.beside("holder.log");
        let mut holder = program::start(&words, &log, &[]);
        let said = |round: u64| {
            let wanted = round.to_string();
            wait_until("the holder's next round", BOUND, || {
                std::fs::read_to_string(&ready).is_ok_and(|text| text == wanted)
            });
        };
        let go_on = |rounds: usize| std::fs::write(&go, vec![b'.'; rounds]).unwrap();
        said(0);
        agent.kill();
        place.detach();
        go_on(1);
        said(1);
        let early = place.recover(&[]);
        assert_ne!(early.code, 0, "recover says that all is done while a program can still store:\n{}", early.text);
        go_on(2);
        said(2);
        go_on(3);
        said(3);
        let mapped = place.recover(&[]);
        assert_ne!(mapped.code, 0, "recover says that all is done while a mapping lives:\n{}", mapped.text);
        go_on(4);
        let status = holder.wait(BOUND);
        assert!(status.success(), "{}", std::fs::read_to_string(&log).unwrap());

        let last = place.recover(&[]);
        assert_eq!(last.code, 0, "{}", last.text);
        (1..=3).for_each(|round| holder::apply(&mut content, round));
        let mut found = vec![0; content.len()];
        std::fs::File::open(place.below().join("held")).unwrap().read_exact_at(&mut found, 0).unwrap();
        assert!(found == content, "{}", verdict::difference(&found, &content));
        place.check().unwrap();
    });
}
