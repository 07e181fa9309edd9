//! Resources that pass bytes at a rate, and resources that serve a few requests at a time.

use super::Ns;
use super::statistics::Counters;

/// Resource that passes bytes at a rate, in the order of their arrival.
#[derive(Debug)]
pub struct Pipe {
    rate: f64,
    /// Time when all data that has arrived so far will have passed.
    free: Ns,
    /// Part of a nanosecond left over from rounding.
    rest: f64,
    pub counters: Counters,
}

impl Pipe {
    pub fn new(rate: f64) -> Pipe {
        Pipe { rate, free: 0, rest: 0.0, counters: Counters::default() }
    }

    /// Reserves the next free time for `bytes` and returns its end. Idle time up to `burst` before `at` is made up for.
    pub fn pass(&mut self, at: Ns, bytes: u64, burst: Ns) -> Ns {
        let needs = bytes as f64 * 1e9 / self.rate + self.rest;
        self.rest = needs.fract();
        self.occupy(at, needs as Ns, bytes, burst)
    }

    /// Reserves the next free time like [`Pipe::pass`], for work of the length `needs`.
    pub fn occupy(&mut self, at: Ns, needs: Ns, bytes: u64, burst: Ns) -> Ns {
        self.counters.waited += self.free.saturating_sub(at);
        self.free = self.free.max(at.saturating_sub(burst)) + needs;
        self.counters.operations += 1;
        self.counters.bytes += bytes;
        self.counters.busy += needs;
        self.free
    }

    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the work that is still to be done at `now`.
    pub fn behind(&self, now: Ns) -> Ns {
        self.free.saturating_sub(now)
    }
}

/// Resource that serves several requests at a time; further ones wait in order.
#[derive(Debug)]
pub struct Service {
    free: Vec<Ns>,
    pub counters: Counters,
}

impl Service {
    pub fn new(concurrency: usize) -> Service {
        Service { free: vec![0; concurrency.max(1)], counters: Counters::default() }
    }

    /// Returns the time when a request that arrives at `at` has been served.
    pub fn serve(&mut self, at: Ns, work: Ns) -> Ns {
        self.counters.operations += 1;
        self.counters.busy += work;
        let first = self.free.iter_mut().min();
        let Some(first) = first else { return at + work };
        self.counters.waited += first.saturating_sub(at);
        *first = (*first).max(at) + work;
        *first
    }

    /// Returns the work that is still to be done at `now`, in total.
    pub fn behind(&self, now: Ns) -> Ns {
        self.free.iter().map(|free| free.saturating_sub(now)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    #[test]
    fn bytes_pass_at_the_promised_rate_however_late_the_callers_come() {
        let (mut pipe, burst) = (Pipe::new(1e6), 20 * MS);
        let first = pipe.pass(1000 * MS, 100_000, burst);
        // Late by less than the burst: the bandwidth is made up for.
        let second = pipe.pass(first + burst / 2, 100_000, burst);
        assert_eq!(second - first, 100 * MS);
        // A long pause is lost, except for the burst.
        let third = pipe.pass(second + 5000 * MS, 100_000, burst);
        assert_eq!(third - second, 5100 * MS - burst);
    }

    #[test]
    fn rounding_never_loses_bandwidth() {
        let mut pipe = Pipe::new(3e9);
        let end = (0..3_000_000).fold(0, |_, _| pipe.pass(0, 1, 0));
        assert!((999_998..=1_000_001).contains(&end), "{end}");
    }

    #[test]
    fn a_service_does_as_many_at_a_time_as_promised() {
        let mut service = Service::new(2);
        let ends: Vec<Ns> = (0..4).map(|_| service.serve(0, 5)).collect();
        assert_eq!(ends, [5, 5, 10, 10]);
        assert_eq!(service.serve(100, 5), 105);
        assert_eq!((service.counters.busy, service.counters.waited), (25, 10));
    }
}
