//! Crashes with programs that write through windows, by the preload library as it is loaded into them.

use super::*;

/// Plays every point, each with one of two actions afterwards.
fn play_all(points: impl Iterator<Item = &'static str>) {
    let ways = [Afterwards::Recover, Afterwards::MountAgain].into_iter().cycle();
    let reached = |(name, way)| play_point(Door::Preload, name, 1, way, SEEDS.len());
    let missed: Vec<_> = points.zip(ways).filter(|one| !reached(*one)).collect();
    assert!(missed.is_empty(), "never reached, so nothing is proved: {missed:?}");
}

#[test]
fn the_agent_may_die_at_every_fault_point_of_windows_that_programs_write_by_the_library() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(::windows::fault::POINTS.iter().copied()));
}

#[test]
fn the_agent_may_die_at_every_fault_point_of_the_file_cache_while_programs_write_by_the_library() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(points()));
}

#[test]
fn agent_and_programs_may_die_at_any_moment_alone_and_together_where_programs_write_by_the_library() {
    in_private_namespace_within(campaign::bound(NAMESPACE_BOUND, 3), || play_all_at_random(Door::Preload));
}
