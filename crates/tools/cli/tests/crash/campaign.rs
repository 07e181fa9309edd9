//! How long deaths at random moments are died, and which.

use std::time::{Duration, Instant};

/// Of one kind of death; longer where fewer acknowledged records were judged.
const SECONDS: u64 = 12;

/// Of one kind of death.
pub struct Campaign {
    start: Instant,
    length: Duration,
    records_min: usize,
    records: usize,
    rounds: u64,
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
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
    usual + campaigns * length()
}

impl Campaign {
    /// That judges `records_min` records at least.
    pub fn begin(records_min: usize) -> Campaign {
        Campaign { start: Instant::now(), length: length(), records_min, records: 0, rounds: 0 }
    }

    /// The number of the next round; `None`: it is over.
    pub fn next(&mut self) -> Option<u64> {
        let goes_on = self.start.elapsed() < self.length || self.records < self.records_min;
        self.rounds += 1;
        goes_on.then_some(self.rounds)
    }

    /// So many acknowledged records were judged in a round.
    pub fn judged(&mut self, records: usize) {
        self.records += records;
    }

    /// In all rounds.
    pub fn records(&self) -> usize {
        println!("{} rounds, {} acknowledged records", self.rounds - 1, self.records);
        self.records
    }
}
