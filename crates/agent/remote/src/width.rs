//! Number of large writes from windows under way to a server at once. There should be enough to keep the network and
//! the server busy, and hardly more. Every open, query and read of the node waits behind writes that only queue. For
//! example, a query of 8 KiB takes a tenth of a second on a network of 60 MB/s with 24 writes of 1 MiB under way.
//!
//! The rule is that of TCP Vegas (Brakmo and Peterson, IEEE JSAC 13(8), 1995). If each of `n` writes takes `t` where a
//! single one would take `floor`, then `n (1 - floor / t)` of them queue.

use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};
use transport::{CallError, Lane};

use crate::limits::SERVER_WIDTH;
use data_store::is_interrupted;

/// Interval at which a waiting write checks for an interrupt.
const LOOK: Duration = Duration::from_millis(20);

/// Longest wait for a turn while no other write ends. The others may be stuck, for example at a store that hangs.
const TURN: Duration = Duration::from_secs(1);

/// Bounds of the number of queued writes: below the first the limit grows by one, above the second it shrinks by one.
/// The bounds of Vegas are 1 and 3. With them, sixteen writers on two processors, where times vary, gained 1.29 and
/// 1.34 over plain writes. With these bounds they gained 1.52 twice (`forebay limits experiments E0-1`, in turn).
const QUEUED: (f64, f64) = (4.0, 8.0);

/// Fraction by which the shortest time seen grows with each write, so that a slower server is believed after some
/// thousand writes. Until then more writes queue than the upper bound says, and the server stays busy.
const FORGETS: f64 = 1.0 / 4096.0;

/// Limit of the large writes from all windows of a server's client.
pub(crate) struct Width {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    /// Writes under way or about to be. Waiting writes that were granted a place are included.
    running: usize,
    waiting: usize,
    /// Waiting writes that were granted a place.
    granted: usize,
    /// Time at which a write last ended.
    moved: Instant,
    limit: usize,
    /// Shortest time of a write, seconds, by the binary logarithm of its size.
    floors: [f64; usize::BITS as usize],
    /// Writes since the limit was last adapted, the sum of their queued writes, and whether the limit held up any.
    round: (usize, f64, bool),
}

impl Default for Width {
    fn default() -> Width {
        let floors = [f64::INFINITY; usize::BITS as usize];
        let state = State {
            running: 0,
            waiting: 0,
            granted: 0,
            moved: Instant::now(),
            limit: SERVER_WIDTH.start,
            floors,
            round: (0, 0.0, false),
        };
        Width { state: Mutex::new(state), freed: Condvar::new() }
    }
}

impl Width {
    /// Runs a write of `bytes` bytes when it is its turn; a small one at once. An interrupt of this thread ends the
    /// wait for the turn.
    pub fn pass<T>(&self, bytes: usize, write: impl FnOnce() -> Result<T, CallError>) -> Result<T, CallError> {
        if Lane::of_data(bytes) != Lane::Large {
            return write();
        }
        let running = self.enter()?;
        let place = Place(self);
        let begun = Instant::now();
        let done = write()?;
        self.state.lock().learn(bytes, running, begun.elapsed().as_secs_f64());
        drop(place);
        Ok(done)
    }

    /// Waits for a turn. Returns how many writes are under way then. Later writes do not overtake waiting ones.
    fn enter(&self) -> Result<usize, CallError> {
        let mut state = self.state.lock();
        if state.waiting == state.granted && state.running < state.limit {
            state.running += 1;
            return Ok(state.running);
        }
        let came = Instant::now();
        state.round.2 = true;
        state.waiting += 1;
        let mut interrupted = is_interrupted();
        while !interrupted && came.max(state.moved).elapsed() < TURN {
            self.freed.wait_for(&mut state, LOOK);
            if state.granted > 0 {
                (state.waiting, state.granted) = (state.waiting - 1, state.granted - 1);
                return Ok(state.running);
            }
            interrupted = is_interrupted();
        }
        state.waiting -= 1;
        // Gives up a place that may have been granted to this write.
        let over = state.granted.saturating_sub(state.waiting);
        (state.granted, state.running) = (state.granted - over, state.running - over);
        if interrupted {
            return Err(CallError::Interrupted);
        }
        state.running += 1;
        Ok(state.running)
    }
}

/// Place of a write under way.
struct Place<'a>(&'a Width);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        (state.running, state.moved) = (state.running - 1, Instant::now());
        while state.running < state.limit && state.granted < state.waiting {
            (state.running, state.granted) = (state.running + 1, state.granted + 1);
            self.0.freed.notify_one();
        }
    }
}

impl State {
    /// Adapts the limit after a write of `bytes` bytes that took `seconds` beside `running - 1` others.
    fn learn(&mut self, bytes: usize, running: usize, seconds: f64) {
        let floor = &mut self.floors[bytes.max(1).ilog2() as usize];
        *floor = seconds.min(*floor * (1.0 + FORGETS));
        let queued = running as f64 * (1.0 - *floor / seconds.max(f64::MIN_POSITIVE));
        let (writes, sum, held_up) = &mut self.round;
        (*writes, *sum) = (*writes + 1, *sum + queued);
        if *writes < self.limit {
            return;
        }
        let mean = *sum / *writes as f64;
        if mean < QUEUED.0 && *held_up {
            self.limit = (self.limit + 1).min(SERVER_WIDTH.most);
        } else if mean > QUEUED.1 {
            self.limit -= 1;
        }
        self.round = (0, 0.0, false);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use testkit::wait_until;

    use super::*;
    use data_store::set_interruption;

    const LARGE: usize = 1 << 20;

    /// Returns the limit after a thousand writes on a network where one takes `latency`, and `share` more for each that
    /// is under way.
    fn settled(state: &mut State, latency: f64, share: f64) -> usize {
        for _ in 0..1000 {
            state.round.2 = true;
            let running = state.limit;
            state.learn(1 << 20, running, latency + share * running as f64);
        }
        state.limit
    }

    #[test]
    fn a_narrow_wire_has_few_writes_on_it_and_one_with_latency_many() {
        let state = Width::default().state;
        let mut state = state.into_inner();
        // The shortest time comes from a single write.
        state.learn(1 << 20, 1, 0.002 + 0.017);
        let narrow = settled(&mut state, 0.002, 0.017);
        assert!((5..=9).contains(&narrow), "{narrow} on a narrow wire");
        let state = Width::default().state;
        assert_eq!(settled(&mut state.into_inner(), 0.020, 0.001), SERVER_WIDTH.most);
    }

    #[test]
    fn a_server_that_has_become_slower_is_believed() {
        let mut state = Width::default().state.into_inner();
        assert_eq!(settled(&mut state, 0.020, 0.001), SERVER_WIDTH.most);
        // The server is suddenly far away, which looks like a queue at first.
        let doubted = settled(&mut state, 0.200, 0.001);
        assert!(doubted as f64 >= QUEUED.1 && doubted < SERVER_WIDTH.most, "{doubted}");
        (0..20).for_each(|_| _ = settled(&mut state, 0.200, 0.001));
        assert_eq!(state.limit, SERVER_WIDTH.most);
    }

    #[test]
    fn without_need_the_limit_does_not_grow() {
        let mut state = Width::default().state.into_inner();
        (0..1000).for_each(|_| state.learn(1 << 20, 1, 0.010));
        assert_eq!(state.limit, SERVER_WIDTH.start);
    }

    /// Takes all places of a new width, runs `act`, and releases the places.
    fn taken(act: impl FnOnce(&Width)) -> Width {
        let width = Width::default();
        let places: Vec<_> = (0..SERVER_WIDTH.start).map(|_| (width.enter().unwrap(), Place(&width)).1).collect();
        act(&width);
        drop(places);
        let state = width.state.lock();
        assert_eq!((state.running, state.waiting, state.granted), (0, 0, 0));
        drop(state);
        width
    }

    #[test]
    fn who_waits_for_a_turn_is_interrupted_and_small_writes_do_not_wait() {
        taken(|width| {
            set_interruption(Some(Rc::new(|| true)));
            let interrupted = width.pass(LARGE, || Ok(()));
            assert!(matches!(interrupted, Err(CallError::Interrupted)), "{interrupted:?}");
            width.pass(1, || Ok(())).unwrap();
            set_interruption(None);
        });
    }

    #[test]
    fn writes_that_never_end_hold_up_others_for_a_bounded_time() {
        let began = Instant::now();
        taken(|width| width.pass(LARGE, || Ok(())).unwrap());
        assert!(began.elapsed() >= TURN);
    }

    #[test]
    fn while_others_end_a_write_waits_longer_for_its_turn() {
        taken(|width| {
            let (began, goes) = (Instant::now(), AtomicBool::new(true));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while goes.load(Relaxed) {
                        // As if one write ended and another was given its place.
                        width.state.lock().moved = Instant::now();
                        std::thread::yield_now();
                    }
                });
                let given_up = move || began.elapsed() > TURN * 3 / 2;
                set_interruption(Some(Rc::new(given_up)));
                let waited = width.pass(LARGE, || Ok(()));
                set_interruption(None);
                goes.store(false, Relaxed);
                assert!(matches!(waited, Err(CallError::Interrupted)), "{waited:?}");
            });
        });
    }

    #[test]
    fn who_comes_later_does_not_pass_those_that_wait() {
        let (width, seen) = (Width::default(), Barrier::new(2));
        std::thread::scope(|scope| {
            let mut places: Vec<_> =
                (0..SERVER_WIDTH.start).map(|_| (width.enter().unwrap(), Place(&width)).1).collect();
            scope.spawn(|| {
                width.enter().unwrap();
                let place = Place(&width);
                seen.wait();
                drop(place);
            });
            wait_until("somebody waits", Duration::from_secs(30), || width.state.lock().waiting == 1);
            places.pop();
            // The place belongs to the waiting write at once, whether its thread is awake or not.
            assert_eq!(width.state.lock().running, SERVER_WIDTH.start);
            seen.wait();
        });
        assert_eq!(width.state.lock().running, 0);
    }
}
