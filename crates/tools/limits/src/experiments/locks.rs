//! Comparison of lock protocols: writers of one file, in separate parts and in turn. Runs in simulated time, so that
//! the figures depend on the protocols and not on the machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use clap::ValueEnum;
use slowfs::model::{Bed, Ns, Operation, Protocol, Spec, Transfer};

use super::book::Locks;
use super::{Row, Run};
use crate::units::format_rate;

const WRITES: u64 = 200;
/// Distance between the starts of two writers' parts, in writes.
const PART: u64 = 1 << 20;

pub fn run(run: &Run<'_>, wanted: &Locks) -> Vec<Row> {
    let mut rows = Vec::new();
    for (strided, order) in [(false, "parts of their own"), (true, "in turn")] {
        for size in wanted.sizes.iter().copied() {
            for sharers in wanted.sharers.iter().copied() {
                for granularity in wanted.granularities.iter().copied() {
                    let free = rate(wanted, Protocol::None, (sharers, size, granularity, strided));
                    for protocol in Protocol::value_variants().iter().filter(|known| **known != Protocol::None) {
                        let found = rate(wanted, *protocol, (sharers, size, granularity, strided));
                        let name =
                            protocol.to_possible_value().map_or(String::new(), |name| name.get_name().to_string());
                        let case = format!(
                            "{name}, {sharers} writers {order}, {} KiB, locks of {} KiB",
                            size >> 10,
                            granularity >> 10
                        );
                        let what = format!("{} of {} without locks", format_rate(found), format_rate(free));
                        rows.push(Row::new(run, case, found / free, "x").judged(None, None, what));
                    }
                }
            }
        }
    }
    rows
}

/// Returns the rate of all writers together, bytes per second.
fn rate(wanted: &Locks, lock: Protocol, (sharers, size, granularity, strided): (u64, u64, u64, bool)) -> f64 {
    let us = |time: u64| time * 1000;
    let mut bed = Bed::new(Spec {
        bandwidth: Some(wanted.bandwidth),
        round_trip: us(wanted.round_trip_us),
        lock,
        lock_service: us(wanted.manager_us),
        lock_granularity: granularity,
        ..Spec::default()
    });
    let mut next: BinaryHeap<_> = (0..sharers).map(|writer| Reverse((0 as Ns, writer, 0u64))).collect();
    let mut last = 1;
    while let Some(Reverse((now, writer, step))) = next.pop() {
        let place = if strided { step * sharers + writer } else { writer * PART + step };
        let offset = place * size;
        let transfer = Transfer { file: 1, stream: writer, client: writer, offset, bytes: size, write: true };
        let end = bed.operate(now, Operation::Transfer(transfer));
        last = last.max(end);
        if step + 1 < WRITES {
            next.push(Reverse((end, writer, step + 1)));
        }
    }
    (sharers * WRITES * size) as f64 / (last as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shape of the paper's figure: the protocol that suits each pattern.
    #[test]
    fn expansion_suits_parts_of_their_own_and_loses_in_turn_where_exact_and_central_do_not() {
        let wanted = Locks {
            sharers: vec![],
            sizes: vec![],
            granularities: vec![],
            bandwidth: 400e6,
            round_trip_us: 500,
            manager_us: 50,
        };
        let at = |protocol, strided| rate(&wanted, protocol, (8, 65_536, 4096, strided));
        assert!(at(Protocol::Expand, false) > 0.8 * at(Protocol::None, false));
        assert!(at(Protocol::Expand, true) < 0.5 * at(Protocol::Exact, true));
        assert!(at(Protocol::Central, true) > 1.5 * at(Protocol::Expand, true));
        assert!(at(Protocol::File, false) < 0.5 * at(Protocol::Expand, false));
        // Rounding to more than the size of a write causes conflicts between neighbours.
        let coarse = rate(&wanted, Protocol::Exact, (8, 65_536, 1 << 20, true));
        assert!(coarse < 0.5 * at(Protocol::Exact, true));
    }
}
