//! Grants of file ranges to clients, and the cost of obtaining them.

use std::collections::HashMap;

use super::pipe::Service;
use super::spec::Protocol;
use super::{ClientId, FileId, Ns, Spec};
use crate::limits::GRANTS_MAX;

/// A range that a client may use without a request.
#[derive(Debug, Clone, Copy)]
struct Grant {
    client: ClientId,
    start: u64,
    /// End of the range, exclusive.
    end: u64,
    write: bool,
    /// End of the last operation that uses the grant.
    busy: Ns,
}

impl Grant {
    fn conflicts(&self, client: ClientId, start: u64, end: u64, write: bool) -> bool {
        self.client != client && (self.write || write) && self.start < end && start < self.end
    }

    fn serves(&self, client: ClientId, start: u64, end: u64, write: bool) -> bool {
        self.client == client && self.start <= start && end <= self.end && (self.write || !write)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub file: FileId,
    pub client: ClientId,
    pub start: u64,
    pub bytes: u64,
    pub write: bool,
}

#[derive(Debug)]
pub struct Locks {
    protocol: Protocol,
    granularity: u64,
    service: Ns,
    round_trip: Ns,
    pub manager: Service,
    files: HashMap<FileId, Vec<Grant>>,
}

impl Locks {
    pub fn new(spec: &Spec) -> Locks {
        Locks {
            protocol: spec.lock,
            granularity: spec.lock_granularity.max(1),
            service: spec.lock_service,
            round_trip: spec.round_trip,
            manager: Service::new(1),
            files: HashMap::new(),
        }
    }

    /// Returns the time when the operation may begin, if requested at `at`.
    pub fn acquire(&mut self, at: Ns, wanted: Wanted) -> Ns {
        match self.protocol {
            Protocol::None => return at,
            Protocol::Central => {
                let told = self.manager.serve(at + self.round_trip / 2, self.service) + self.round_trip.div_ceil(2);
                return self.waited(at, told);
            }
            Protocol::File | Protocol::Expand | Protocol::Exact => {}
        }
        let (start, end) = self.rounded(wanted);
        let Wanted { file, client, write, .. } = wanted;
        let held = |grant: &Grant| grant.serves(client, start, end, write);
        if self.files.get(&file).is_some_and(|grants| grants.iter().any(held)) {
            return at;
        }
        let mut granted = self.manager.serve(at + self.round_trip / 2, self.service);
        let grants = self.files.entry(file).or_default();
        let (mut taken, mut low) = (false, 0);
        grants.retain(|grant| {
            let conflicts = grant.conflicts(client, start, end, write);
            if conflicts {
                (taken, low) = (true, if grant.start < start { start } else { low });
                granted = granted.max(grant.busy);
            }
            !conflicts
        });
        if taken {
            // The manager asks all holders at once. Each answers when its operations have ended.
            granted += self.round_trip;
        }
        let (start, end) = match self.protocol {
            Protocol::Expand => expanded(grants, client, write, start, end),
            _ => (start, end),
        };
        // The part of a revoked grant below the request is not granted: its former holder may request it again.
        let start = start.max(low);
        let mut busy = granted;
        grants.retain(|grant| {
            let replaced =
                grant.client == client && start <= grant.start && grant.end <= end && (write || !grant.write);
            if replaced {
                busy = busy.max(grant.busy);
            }
            !replaced
        });
        if grants.len() >= GRANTS_MAX {
            grants.remove(0);
        }
        join(grants, Grant { client, start, end, write, busy });
        self.waited(at, granted + self.round_trip.div_ceil(2))
    }

    fn waited(&mut self, at: Ns, granted: Ns) -> Ns {
        self.manager.counters.waited += granted - at;
        granted
    }

    /// Sets the end of the granted operation. Before it, the range is granted to no other client.
    pub fn used(&mut self, wanted: Wanted, until: Ns) {
        let (start, end) = self.rounded(wanted);
        for grant in self.files.get_mut(&wanted.file).into_iter().flatten() {
            if grant.serves(wanted.client, start, end, wanted.write) {
                grant.busy = grant.busy.max(until);
            }
        }
    }

    /// Releases all grants of a client that has closed the file.
    pub fn closed(&mut self, file: FileId, client: ClientId) {
        if let Some(grants) = self.files.get_mut(&file) {
            grants.retain(|grant| grant.client != client);
            if grants.is_empty() {
                self.files.remove(&file);
            }
        }
    }

    fn rounded(&self, wanted: Wanted) -> (u64, u64) {
        if self.protocol == Protocol::File {
            return (0, u64::MAX);
        }
        let end = wanted.start.saturating_add(wanted.bytes.max(1));
        let up = end.div_ceil(self.granularity).saturating_mul(self.granularity);
        (wanted.start / self.granularity * self.granularity, up)
    }
}

/// Extends a range to both sides up to the nearest conflicting grants.
fn expanded(grants: &[Grant], client: ClientId, write: bool, start: u64, end: u64) -> (u64, u64) {
    let others = || grants.iter().filter(|grant| grant.client != client && (grant.write || write));
    let low = others().filter(|grant| grant.end <= start).map(|grant| grant.end).max().unwrap_or(0);
    let high = others().filter(|grant| grant.start >= end).map(|grant| grant.start).min().unwrap_or(u64::MAX);
    (low, high)
}

/// Adds a grant, or extends a grant of the same client that ends where the new one starts.
fn join(grants: &mut Vec<Grant>, new: Grant) {
    let before = |old: &&mut Grant| old.client == new.client && old.write == new.write && old.end == new.start;
    match grants.iter_mut().find(before) {
        Some(old) => (old.end, old.busy) = (new.end, old.busy.max(new.busy)),
        None => grants.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Ns = 100;

    fn locks(lock: Protocol) -> Locks {
        let spec = Spec { lock, lock_service: 10, round_trip: TRIP, lock_granularity: 10, ..Spec::default() };
        Locks::new(&spec)
    }

    fn write(client: ClientId, start: u64, bytes: u64) -> Wanted {
        Wanted { file: 1, client, start, bytes, write: true }
    }

    /// Returns the time that an operation needs when no other operation is in progress.
    fn costs(locks: &mut Locks, at: Ns, wanted: Wanted) -> Ns {
        let granted = locks.acquire(at, wanted);
        locks.used(wanted, granted);
        granted - at
    }

    #[test]
    fn a_file_lock_is_free_for_its_holder_and_costs_the_next_one_three_half_trips_more() {
        let mut locks = locks(Protocol::File);
        assert_eq!(costs(&mut locks, 0, write(1, 0, 10)), TRIP + 10);
        assert_eq!(costs(&mut locks, 1000, write(1, 5000, 10)), 0);
        assert_eq!(costs(&mut locks, 2000, write(2, 90, 10)), 2 * TRIP + 10);
        assert_eq!(costs(&mut locks, 3000, write(1, 0, 10)), 2 * TRIP + 10);
    }

    #[test]
    fn expansion_is_free_for_separate_halves_and_fights_over_strides() {
        let mut locks = locks(Protocol::Expand);
        costs(&mut locks, 0, write(1, 0, 10));
        // The first client was granted everything. That is taken once, then both have what they need.
        assert_eq!(costs(&mut locks, 1000, write(2, 500, 10)), 2 * TRIP + 10);
        assert_eq!(costs(&mut locks, 2000, write(1, 10, 10)), TRIP + 10);
        for step in 1..40 {
            assert_eq!(costs(&mut locks, 3000 * step, write(1, 10 * step, 10)), 0);
            assert_eq!(costs(&mut locks, 3000 * step + 1000, write(2, 500 + 10 * step, 10)), 0);
        }
        let mut fights = 0;
        for step in 0..20 {
            fights += u64::from(costs(&mut locks, 200_000 + step * 1000, write(step % 2, 2000 + step * 10, 10)) > 0);
        }
        assert!(fights >= 19, "{fights}");
    }

    #[test]
    fn exact_ranges_cost_one_request_each_and_never_fight_over_strides() {
        let mut locks = locks(Protocol::Exact);
        for step in 0..20 {
            assert_eq!(costs(&mut locks, step * 1000, write(step % 2, step * 10, 10)), TRIP + 10);
        }
        for step in 0..20 {
            assert_eq!(costs(&mut locks, 50_000 + step * 1000, write(step % 2, step * 10, 10)), 0);
        }
        // Coarser granularity than the stride causes conflicts.
        assert_eq!(costs(&mut locks, 90_000, write(1, 5, 1)), 2 * TRIP + 10);
    }

    #[test]
    fn the_central_manager_serves_one_after_another_and_readers_share() {
        let mut central = locks(Protocol::Central);
        assert_eq!(costs(&mut central, 0, write(1, 0, 10)), TRIP + 10);
        assert_eq!(central.acquire(0, write(2, 90, 10)), TRIP + 20);
        let mut file = locks(Protocol::File);
        let read = |client| Wanted { write: false, ..write(client, 0, 10) };
        assert_eq!(costs(&mut file, 0, read(1)), TRIP + 10);
        assert_eq!(costs(&mut file, 1000, read(2)), TRIP + 10);
        assert_eq!(costs(&mut file, 2000, read(1)), 0);
    }

    #[test]
    fn a_grant_is_given_only_when_the_holders_operation_has_ended() {
        let mut locks = locks(Protocol::File);
        locks.acquire(0, write(1, 0, 10));
        locks.used(write(1, 0, 10), 7000);
        assert_eq!(locks.acquire(1000, write(2, 0, 10)), 7000 + TRIP + TRIP / 2);
        locks.closed(1, 2);
        assert_eq!(costs(&mut locks, 9000, write(1, 0, 10)), TRIP + 10);
    }

    /// M3, over random sequences of operations.
    #[test]
    fn grants_overlap_only_for_readers_or_one_client() {
        for protocol in [Protocol::File, Protocol::Expand, Protocol::Exact] {
            let mut locks = locks(protocol);
            for step in 0..3000u64 {
                let any = |salt: u64, below: u64| super::super::splitmix(step * 7 + salt) % below;
                let wanted = Wanted {
                    file: 1,
                    client: any(1, 4),
                    start: any(2, 900),
                    bytes: 1 + any(3, 60),
                    write: any(4, 3) > 0,
                };
                let granted = locks.acquire(step * 500, wanted);
                locks.used(wanted, granted + 5);
                let (start, end) = locks.rounded(wanted);
                let grants = &locks.files[&1];
                assert!(grants.iter().any(|grant| grant.serves(wanted.client, start, end, wanted.write)));
                for (at, a) in grants.iter().enumerate() {
                    assert!(
                        grants[at + 1..].iter().all(|b| !a.conflicts(b.client, b.start, b.end, b.write)),
                        "{grants:?}"
                    );
                }
            }
        }
    }
}
