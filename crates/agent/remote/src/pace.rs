//! Reading rate of an open file. Data fetched ahead must be read before it is too old to be used; otherwise it is
//! fetched twice.

use std::time::Duration;

use concurrency::Instant;
use window::limits::BLOCK;

use crate::limits::SERVER_AHEAD_LEAST;

/// Bytes requested by an open file's reads, in periods of half the time for which fetched data may be used.
#[derive(Debug)]
pub(crate) struct ReadPace {
    period: Duration,
    began: Instant,
    /// Bytes in this period.
    bytes: u64,
    /// Bytes in the period before; `None` in the first period.
    before: Option<u64>,
}

impl ReadPace {
    /// Creates the rate of a file whose fetched data may be used for `fresh`.
    pub fn new(now: Instant, fresh: Duration) -> ReadPace {
        ReadPace { period: (fresh / 2).max(Duration::from_millis(1)), began: now, bytes: 0, before: None }
    }

    /// Notes a read of `bytes` bytes. Returns how many bytes may be kept ahead: those read in a period, but at least
    /// `bytes`.
    pub fn read(&mut self, now: Instant, bytes: u64) -> u64 {
        if self.bytes == 0 && self.before.is_none() {
            self.began = now; // the first read, however long after the open
        }
        let lasts = now.saturating_duration_since(self.began);
        // A few requests in quick succession say little about the rate.
        let counts = lasts.max(self.period / 50).as_secs_f64();
        let in_a_period = || (self.bytes as f64 * self.period.as_secs_f64() / counts) as u64;
        let ahead = match self.before {
            _ if lasts >= self.period => {
                let before = in_a_period();
                (self.began, self.bytes, self.before) = (now, 0, Some(before));
                before.max(SERVER_AHEAD_LEAST)
            }
            Some(before) => before.max(self.bytes).max(SERVER_AHEAD_LEAST),
            None => in_a_period().max(BLOCK),
        };
        self.bytes += bytes;
        ahead.max(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Duration = Duration::from_secs(1);
    const REQUEST: u64 = 128 << 10;

    /// Reads on at `rate` bytes a second for `time`. Returns how many bytes may be kept ahead at the end.
    fn reads(pace: &mut ReadPace, now: &mut Instant, rate: u64, time: Duration) -> u64 {
        let (end, mut ahead) = (*now + time, 0);
        while *now < end {
            ahead = pace.read(*now, REQUEST);
            *now += Duration::from_secs_f64(REQUEST as f64 / rate as f64);
        }
        ahead
    }

    #[test] // S47
    fn what_is_kept_ahead_is_read_while_it_is_good() {
        let mut now = Instant::now();
        let mut pace = ReadPace::new(now, FRESH);
        now += 10 * FRESH;
        assert_eq!(pace.read(now, REQUEST), BLOCK, "nobody knows");
        now += Duration::from_millis(2);
        assert!((4 << 20..8 << 20).contains(&pace.read(now, REQUEST)), "a fast one is soon known");
        for rate in [1_u64 << 20, 4 << 20, 100 << 20] {
            let ahead = reads(&mut pace, &mut now, rate, 2 * FRESH);
            assert!((rate / 3..=rate * 2 / 3).contains(&ahead), "{ahead} bytes ahead of {rate} a second");
            let mut slow = ReadPace::new(now, FRESH);
            let ahead = reads(&mut slow, &mut now, rate, FRESH / 4);
            assert!((rate / 3..=rate.max(BLOCK)).contains(&ahead), "{ahead} bytes ahead of {rate} a second at first");
        }
    }

    #[test] // S47
    fn who_reads_again_after_a_while_is_as_fast_as_what_he_has_read_since() {
        let mut now = Instant::now();
        let mut pace = ReadPace::new(now, FRESH);
        reads(&mut pace, &mut now, 100 << 20, FRESH);
        now += 100 * FRESH;
        assert!(pace.read(now, REQUEST) < 1 << 20);
        assert_eq!(pace.read(now, 4 << 20), 4 << 20, "no less than is asked for");
        assert!(reads(&mut pace, &mut now, 100 << 20, FRESH / 8) > 8 << 20);
    }
}
