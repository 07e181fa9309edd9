//! Deaths of server, agent and program, alone and together, where the data is behind a server. Every acknowledged
//! operation is there afterwards, for the nodes and in the global store, and nothing older reappears.
//!
//! Programs, ledgers and their judgment are those of the crash tests of a node's own burst buffer.
#![allow(dead_code, reason = "each crash has its own part of what programs do")]

#[path = "../crash/campaign.rs"]
mod campaign;
#[path = "../server/cluster.rs"]
mod cluster;
#[path = "../crash/holder.rs"]
mod holder;
#[path = "../crash/ledger.rs"]
mod ledger;
#[path = "../mounted/mod.rs"]
mod mounted;
#[path = "../crash/program.rs"]
mod program;
#[path = "../crash/programs.rs"]
mod programs;
#[path = "../server/ledger.rs"]
mod records;
mod round;
#[path = "../crash/story.rs"]
mod story;
#[path = "../crash/verdict.rs"]
mod verdict;
#[path = "../crash/writer.rs"]
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use campaign::Campaign;
use cluster::{BOUND, Cluster};
use mounted::chance::Chance;
use records::{Appender, EndOfAll};
use round::{Door, Falls, RECORDS, Round, When, With};
use testkit::{in_private_namespace_within, wait_until};

/// Longest time for one test: a round takes some seconds on a busy machine.
const NAMESPACE_BOUND: Duration = Duration::from_secs(235);

/// Rules under which a fault point is looked for, in this order.
const RULES: [&[&str]; 3] = [&[], &["keep_after=delete"], &["stage_out=manual"]];

/// Seeds of stories in which a fault point is looked for.
const SEEDS: [u64; 3] = [30, 40, 50];

/// Processes that die together with the one at the fault point. Each point has one of these; with this environment
/// variable, all.
const WITH: [With; 4] = [With::Nobody, With::Peer, With::Programs, With::All];
const ALL: &str = "FOREBAY_CRASH_ALL";

/// Least number of acknowledged records that deaths at random moments judge.
const RECORDS_MIN: usize = 10_000;

#[test]
fn a_process_with_a_role_plays_it() {
    program::play(&writer::play);
}

/// Returns every fault point of the server except two. Marks are left only on stores that other machines share.
/// Stories have no appends, whose point has its own test.
fn of_server() -> Vec<&'static str> {
    let all = file_cache::fault::POINTS.iter().chain(server::fault::POINTS).copied();
    all.filter(|name| !["w6.unmarked", "serve.appended"].contains(name)).collect()
}

/// Returns the fault points of the agent.
fn of_agent(door: Door) -> Vec<&'static str> {
    let windows = if door == Door::Preload { windows::fault::POINTS } else { &[] };
    remote::fault::POINTS.iter().chain(windows).copied().collect()
}

/// Plays a point until it is hit, in several stories and under each set of rules.
fn play_point(falls: Falls, point: &'static str, door: Door, with: With) -> bool {
    let rules_and_seeds = SEEDS.iter().flat_map(|seed| RULES.iter().map(move |rules| (rules, *seed)));
    rules_and_seeds.into_iter().any(|(rules, seed)| {
        let round = Round { falls, when: When::AtPoint(point), door, with, rules, seed };
        round.play().unwrap_or_else(|why| panic!("{why}")).fallen
    })
}

/// Plays all points. Neighbouring points have different company.
fn play_all(falls: Falls, points: &[&'static str], door: Door, shift: usize) {
    let mut missed = Vec::new();
    for (number, point) in points.iter().enumerate() {
        let one = (number + shift) % WITH.len();
        let with = if std::env::var_os(ALL).is_some() { &WITH[..] } else { &WITH[one..=one] };
        missed.extend(with.iter().filter(|with| !play_point(falls, point, door, **with)).map(|with| (point, with)));
    }
    assert!(missed.is_empty(), "never reached, so nothing is proved: {missed:?}");
}

#[test] // S41
fn the_server_may_die_at_every_fault_point_alone_and_with_others() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(Falls::Server, &of_server(), Door::Kernel, 0));
}

#[test] // S46
fn the_server_may_die_at_every_fault_point_alone_and_with_others_where_programs_write_through_windows() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(Falls::Server, &of_server(), Door::Preload, 2));
}

#[test] // S41
fn an_agent_at_a_server_may_die_at_every_fault_point_alone_and_with_others() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(Falls::Agent, &of_agent(Door::Kernel), Door::Kernel, 1));
}

#[test] // S46
fn an_agent_at_a_server_may_die_at_every_fault_point_alone_and_with_others_where_programs_write_through_windows() {
    in_private_namespace_within(NAMESPACE_BOUND, || play_all(Falls::Agent, &of_agent(Door::Preload), Door::Preload, 3));
}

/// Plays deaths at random moments.
fn play_random(door: Door) {
    let (mut chance, mut campaign) = (Chance::new(campaign::seed() + 7), Campaign::begin(RECORDS_MIN));
    while let Some(round) = campaign.next() {
        let (falls, with) = (chance.of(&[Falls::Server, Falls::Agent]), chance.of(&WITH));
        let (when, rules) = (When::Acknowledged(chance.below(RECORDS as u64) as usize), chance.of(&RULES));
        let round = Round { falls, when, door, with, rules, seed: campaign::seed() + 100 * round };
        let played = round.play().unwrap_or_else(|why| panic!("{why}"));
        assert!(played.fallen, "nobody died in {round:?}");
        campaign.judged(played.records, played.fallen);
    }
}

#[test] // S41
fn server_agent_and_programs_may_die_at_any_moment_alone_and_together() {
    in_private_namespace_within(campaign::bound(NAMESPACE_BOUND, 1), || play_random(Door::Kernel));
}

#[test] // S46
fn server_agent_and_programs_may_die_at_any_moment_alone_and_together_where_programs_write_through_windows() {
    in_private_namespace_within(campaign::bound(NAMESPACE_BOUND, 1), || play_random(Door::Preload));
}

#[test] // S41
fn an_append_that_a_server_did_before_it_died_is_there_once() {
    in_private_namespace_within(NAMESPACE_BOUND, || {
        let mut cluster = Cluster::without_server(2);
        cluster.start_server_with("FOREBAY_FAULT=serve.appended:20");
        let (one, two) = (cluster.mount(1, &[]), cluster.mount(2, &[]));
        let mut appender = Appender::new(&one);
        let (end, count) = (AtomicBool::new(false), appender.acknowledged());
        std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            scope.spawn(|| appender.run(&end));
            wait_until("the server's death", BOUND, || cluster.server_status().is_some());
            assert_eq!(count.load(Ordering::SeqCst), 19, "the one that was done is not acknowledged");
            cluster.start_server();
            wait_until("appends go on", BOUND, || count.load(Ordering::SeqCst) > 40);
        });
        appender.close();
        appender.check(&two);
        cluster.end_server();
        appender.check(&cluster.data);
    });
}
