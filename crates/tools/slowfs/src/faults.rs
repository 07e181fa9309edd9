//! Fault points: operations that fail or are delayed on purpose.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use fuse_protocol::Errno;

use crate::limits::HANG_POLL;
use crate::model;
use crate::shape::Call;
use crate::units;

#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    /// The operation with this number, counted from 1.
    At(u64),
    /// The operation with this number and all later ones.
    From(u64),
    /// This share of the operations, 0 to 1, chosen by the seed.
    Share(f64),
}

#[derive(Debug, Clone, PartialEq)]
enum How {
    Fail(Errno),
    Delay(Duration),
    /// Hangs as long as this file exists.
    While(PathBuf),
}

/// One fault point, as `--fault` takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Kind of the operations; `None`: all kinds.
    call: Option<Call>,
    when: When,
    how: How,
}

const ERRORS: [(&str, Errno); 8] = [
    ("EIO", Errno(libc::EIO)),
    ("ENOSPC", Errno(libc::ENOSPC)),
    ("EDQUOT", Errno(libc::EDQUOT)),
    ("EACCES", Errno(libc::EACCES)),
    ("ESTALE", Errno(libc::ESTALE)),
    ("ETIMEDOUT", Errno(libc::ETIMEDOUT)),
    ("EINTR", Errno(libc::EINTR)),
    ("EROFS", Errno(libc::EROFS)),
];

const WHILE: &str = "while=";

/// Parses `write:100:EIO`, `fsync:5+:ENOSPC`, `any:0.1%:2s` or `any:1+:while=/run/hung`. Errors: a sentence for the
/// user.
pub fn parse(text: &str) -> Result<Fault, String> {
    let mut parts = text.splitn(3, ':');
    let (Some(call), Some(when), Some(how)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("a fault is OPERATION:WHEN:HOW, such as write:100:EIO, fsync:5+:ENOSPC or any:0.1%:2s".into());
    };
    let call = match call {
        "any" => None,
        name => {
            Some(Call::from_str(name, false).map_err(|_| format!("`{name}` is no operation: any, {}", Call::names()))?)
        }
    };
    let wrong = || format!("`{when}` is no time: N (the Nth), N+ (from it on) or P% (so many, by the seed)");
    let when = if let Some(percent) = when.strip_suffix('%') {
        let share = percent.parse::<f64>().map_err(|_| wrong())? / 100.0;
        (0.0..=1.0).contains(&share).then_some(When::Share(share)).ok_or_else(wrong)?
    } else if let Some(first) = when.strip_suffix('+') {
        When::From(first.parse().ok().filter(|first| *first > 0).ok_or_else(wrong)?)
    } else {
        When::At(when.parse().ok().filter(|at| *at > 0).ok_or_else(wrong)?)
    };
    let how = match ERRORS.iter().find(|(name, _)| *name == how) {
        Some((_, errno)) => How::Fail(*errno),
        None if how.starts_with(WHILE) => How::While(how[WHILE.len()..].into()),
        None => How::Delay(units::time(how).map_err(|_| {
            let names = ERRORS.map(|(name, _)| name).join(", ");
            format!("`{how}` is neither a time nor {WHILE}FILE nor one of {names}")
        })?),
    };
    Ok(Fault { call, when, how })
}

/// The fault points of a mount, with the number of hits of each.
pub struct Faults {
    seed: u64,
    points: Vec<Point>,
}

struct Point {
    fault: Fault,
    met: AtomicU64,
    hit: AtomicU64,
}

impl Faults {
    pub fn new(faults: &[Fault], seed: u64) -> Faults {
        let point = |fault: &Fault| Point { fault: fault.clone(), met: AtomicU64::new(0), hit: AtomicU64::new(0) };
        Faults { seed, points: faults.iter().map(point).collect() }
    }

    /// Applies the fault points to an operation. Returns an error, or the time by which the operation is delayed.
    pub fn meet(&self, call: Call) -> Result<Duration, Errno> {
        let mut delay = Duration::ZERO;
        for (number, point) in self.points.iter().enumerate() {
            if point.fault.call.is_some_and(|named| !call.is_one_of(named)) {
                continue;
            }
            let met = point.met.fetch_add(1, Ordering::Relaxed) + 1;
            let is_hit = match point.fault.when {
                When::At(at) => met == at,
                When::From(first) => met >= first,
                When::Share(share) => model::share(self.seed ^ ((number as u64) << 48) ^ met) < share,
            };
            if !is_hit {
                continue;
            }
            if matches!(&point.fault.how, How::While(file) if !file.exists()) {
                continue;
            }
            point.hit.fetch_add(1, Ordering::Relaxed);
            match &point.fault.how {
                How::Fail(errno) => return Err(*errno),
                How::Delay(more) => delay += *more,
                How::While(file) => {
                    while file.exists() {
                        std::thread::sleep(HANG_POLL);
                    }
                }
            }
        }
        Ok(delay)
    }

    /// Returns the number of hits of each fault point, in the order of the command line.
    pub fn hits(&self) -> impl Iterator<Item = u64> + '_ {
        self.points.iter().map(|point| point.hit.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meets(text: &str, calls: u64) -> Vec<u64> {
        let faults = Faults::new(&[parse(text).unwrap()], 3);
        (1..=calls).filter(|_| faults.meet(Call::Write).is_err()).collect()
    }

    #[test]
    fn a_fault_is_met_when_it_was_said_and_counted() {
        assert_eq!(meets("write:3:EIO", 6), [3]);
        assert_eq!(meets("any:4+:ENOSPC", 6), [4, 5, 6]);
        assert_eq!(meets("read:1+:EIO", 6), []);
        let some = meets("write:10%:EIO", 2000);
        assert!((150..250).contains(&some.len()), "{}", some.len());
        assert_eq!(some, meets("write:10%:EIO", 2000));
        let faults = Faults::new(&[parse("fsync:2:3ms").unwrap()], 0);
        assert_eq!(faults.meet(Call::Fsync), Ok(Duration::ZERO));
        assert_eq!(faults.meet(Call::Fsync), Ok(Duration::from_millis(3)));
        assert_eq!(faults.hits().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn nonsense_is_refused_with_what_to_write() {
        for (text, part) in [
            ("write", "OPERATION:WHEN:HOW"),
            ("wrote:1:EIO", "`wrote` is no operation: any, lookup"),
            ("write:0:EIO", "`0` is no time"),
            ("write:101%:EIO", "no time"),
            ("write:1:EWHAT", "neither a time nor while=FILE nor one of EIO"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
