//! The same deaths where programs write through windows, by the preload library as it is loaded into them.

use super::*;

/// Every point, each with one of two ways to go on.
fn play_all(points: impl Iterator<Item = &'static str>) {
    let ways = [Afterwards::Recover, Afterwards::MountAgain].into_iter().cycle();
    let reached = |(name, way)| play_point(Door::Preload, name, 1, way, SEEDS.len());
    let missed: Vec<_> = points.zip(ways).filter(|one| !reached(*one)).collect();
    assert!(missed.is_empty(), "never reached, so nothing is proved: {missed:?}");
}

#[test]
fn the_agent_may_die_at_every_fault_point_of_windows_that_programs_write_by_the_library() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(agent::windows::fault::POINTS.iter().copied()));
}

#[test]
fn the_agent_may_die_at_every_fault_point_of_the_file_cache_while_programs_write_by_the_library() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(points()));
}

#[test]
fn agent_and_program_may_die_at_any_moment_alone_and_together_where_programs_write_by_the_library() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        type Dies = fn(usize) -> Death;
        let deaths: [(u64, Dies); 3] = [(3, Death::OfAgent), (4, Death::OfProgram), (5, Death::OfAll)];
        for (seed, death) in deaths {
            let played = play_random(Door::Preload, seed, death);
            let records: usize = played.iter().map(|round| round.records).sum();
            println!("{} rounds, {records} acknowledged records", played.len());
            assert!(records > 0, "nothing was acknowledged, so nothing is proved");
        }
    });
}
