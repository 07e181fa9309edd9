//! Campaigns of deaths at random moments: their duration and seeds.

use std::time::{Duration, Instant};

/// Seconds for one kind of death; longer if too few acknowledged records were judged.
const SECONDS: u64 = 12;

/// Least number of deaths of one kind that come in time.
const DEATHS_MIN: u64 = 5;

/// Campaign of one kind of death.
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

/// Returns the seed of stories and moments. Another seed gives another campaign.
pub fn seed() -> u64 {
    variable("FOREBAY_CRASH_SEED").unwrap_or(0).wrapping_mul(1 << 32)
}

fn length() -> Duration {
    Duration::from_secs(variable("FOREBAY_CRASH_SECONDS").unwrap_or(SECONDS))
}

/// Returns the longest time for a test with `campaigns` campaigns, if `usual` suffices at their usual length.
pub fn bound(usual: Duration, campaigns: u32) -> Duration {
    usual + campaigns * length().saturating_sub(Duration::from_secs(SECONDS))
}

impl Campaign {
    /// Begins a campaign that judges at least `records_min` records.
    pub fn begin(records_min: usize) -> Campaign {
        Campaign { start: Instant::now(), length: length(), records_min, records: 0, rounds: 0, deaths: 0 }
    }

    /// Returns the number of the next round. `None`: the campaign is over.
    pub fn next(&mut self) -> Option<u64> {
        let enough = self.records >= self.records_min && self.deaths >= DEATHS_MIN;
        if self.start.elapsed() >= self.length && enough {
            println!("{} rounds, {} deaths, {} acknowledged records", self.rounds, self.deaths, self.records);
            return None;
        }
        self.rounds += 1;
        Some(self.rounds)
    }

    /// Counts a round in which `records` acknowledged records were judged. `killed`: whether a live process was
    /// killed.
    pub fn judged(&mut self, records: usize, killed: bool) {
        self.records += records;
        self.deaths += u64::from(killed);
    }
}
