//! Crashes while programs work in directories that are delegated.

use delegation::fault::{APPLY_POINTS, POINTS};

use super::*;

/// Directories that are made, and the accelerated one itself.
const DELEGATED: [&[&str]; 2] = [&["delegate=new"], &["delegate=lease"]];
/// Points to which these stories do not come. The tests of the crate reach them.
const ELSEWHERE: [&str; 9] = [
    "names.cut",
    "names.copied",
    "names.settled",
    "names.deleted",
    "names.cleaned",
    "apply.parked",
    "apply.removed",
    "apply.linked",
    "apply.unlinked",
];

/// Plays points until they are hit. Returns those that no story has reached.
fn missed(door: Door, points: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let ways = [Afterwards::Recover, Afterwards::MountAgain].into_iter().cycle();
    let hit = |(name, afterwards): &(&'static str, Afterwards)| {
        SEEDS.iter().any(|seed| {
            let death = Death::AtPoint(name, 1 + *seed as u32 % 7);
            let round = Round { door, death, afterwards: *afterwards, rules: DELEGATED[0], seed: *seed };
            round.play().unwrap_or_else(|why| panic!("{why}")).hit
        })
    };
    points.zip(ways).filter(|one| !hit(one)).map(|(name, _)| name).collect()
}

#[test] // S71
fn the_agent_may_die_at_every_fault_point_of_delegated_directories() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        let points = POINTS.iter().chain(APPLY_POINTS).copied().filter(|name| !ELSEWHERE.contains(name));
        let missed = missed(Door::Kernel, points);
        assert!(missed.is_empty(), "never reached, so nothing is proved: {missed:?}");
    });
}

#[test] // S38, S71
fn the_agent_may_die_at_every_fault_point_of_windows_in_delegated_directories() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        let missed = missed(Door::Preload, ::windows::fault::POINTS.iter().copied());
        assert!(missed.is_empty(), "never reached, so nothing is proved: {missed:?}");
    });
}

#[test] // S38, S71
fn agent_and_programs_may_die_at_any_moment_in_delegated_directories() {
    in_private_namespace_within(campaign::bound(NAMESPACE_BOUND, 3), || {
        play_random(Door::Kernel, 6, &DELEGATED, Death::OfAgent);
        play_random(Door::Kernel, 7, &DELEGATED, Death::OfAll);
        play_random(Door::Preload, 8, &DELEGATED, Death::OfAll);
    });
}
