//! How long deaths at random moments are died, and which.

use std::time::{Duration, Instant};

/// Of one kind of death; longer where fewer acknowledged records were judged.
const SECONDS: u64 = 12;

/// Deaths of one kind that come in time, at least.
const DEATHS_MIN: u64 = 5;

/// Of one kind of death.
pub struct Campaign {
    start: Instant,
    length: Duration,
    records_min: usize,
    records: usize,
    rounds: u64,
    deaths: u64,
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text} is no number")))
}

/// What stories and moments begin with; another one is another campaign.
pub fn seed() -> u64 {
    variable("FOREBAY_CRASH_SEED").unwrap_or(0).wrapping_mul(1 << 32)
}

fn length() -> Duration {
    Duration::from_secs(variable("FOREBAY_CRASH_SECONDS").unwrap_or(SECONDS))
}

/// What a test may take with so many of them, that takes `usual` with those of the usual length.
pub fn bound(usual: Duration, campaigns: u32) -> Duration {
    usual + campaigns * length().saturating_sub(Duration::from_secs(SECONDS))
}

impl Campaign {
    /// That judges `records_min` records at least.
    pub fn begin(records_min: usize) -> Campaign {
        Campaign { start: Instant::now(), length: length(), records_min, records: 0, rounds: 0, deaths: 0 }
    }

    /// The number of the next round; `None`: it is over.
    pub fn next(&mut self) -> Option<u64> {
        let enough = self.records >= self.records_min && self.deaths >= DEATHS_MIN;
        if self.start.elapsed() >= self.length && enough {
            println!("{} rounds, {} deaths, {} acknowledged records", self.rounds, self.deaths, self.records);
            return None;
        }
        self.rounds += 1;
        Some(self.rounds)
    }

    /// So many acknowledged records were judged in a round, in which somebody who lived was killed, or not.
    pub fn judged(&mut self, records: usize, killed: bool) {
        self.records += records;
        self.deaths += u64::from(killed);
    }
}
