//! Activity counters of each resource, as a real one would report them.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::Ns;

/// Kind of a resource, in the mount's statistics as in `client-cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    ClientCpu,
    ClientLink,
    /// The core network, which all data crosses.
    Core,
    ServerLink,
    Target,
    Metadata,
    /// The lock protocol: the manager's work, and the time that operations waited for grants.
    Lock,
}

/// Activity of one resource since the model was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub kind: Kind,
    /// Number of the resource among those of its kind, from 0.
    pub number: usize,
    pub operations: u64,
    pub bytes: u64,
    /// Busy time; for [`Kind::Metadata`] the sum over all threads.
    pub busy: Ns,
    /// Time that operations waited for the resource, without its work.
    pub waited: Ns,
}

/// Formats a line of the mount's statistics.
impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Use { kind, number, operations, bytes, busy, waited } = self;
        let name = kind.to_possible_value();
        let name = name.as_ref().map_or("", PossibleValue::get_name);
        write!(f, "{name} {number} operations {operations} bytes {bytes} busy_ns {busy} waited_ns {waited}")
    }
}

impl Use {
    /// Parses a line of the mount's statistics; `None` if it is about something else.
    pub fn parse(line: &str) -> Option<Use> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, number, "operations", operations, "bytes", bytes, "busy_ns", busy, "waited_ns", waited] = words[..]
        else {
            return None;
        };
        Some(Use {
            kind: Kind::from_str(name, false).ok()?,
            number: number.parse().ok()?,
            operations: operations.parse().ok()?,
            bytes: bytes.parse().ok()?,
            busy: busy.parse().ok()?,
            waited: waited.parse().ok()?,
        })
    }

    /// Returns the activity since the earlier values; all of it if the resource did not exist then.
    pub fn since(&self, earlier: &[Use]) -> Use {
        let Some(then) = earlier.iter().find(|then| (then.kind, then.number) == (self.kind, self.number)) else {
            return *self;
        };
        Use {
            operations: self.operations.saturating_sub(then.operations),
            bytes: self.bytes.saturating_sub(then.bytes),
            busy: self.busy.saturating_sub(then.busy),
            waited: self.waited.saturating_sub(then.waited),
            ..*self
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    pub operations: u64,
    pub bytes: u64,
    pub busy: Ns,
    pub waited: Ns,
}

impl Counters {
    /// Returns the counters as the resource would show them while the work `behind` is still to be done.
    pub fn told(self, kind: Kind, number: usize, behind: Ns) -> Use {
        let Counters { operations, bytes, busy, waited } = self;
        let done = 1.0 - behind.min(busy) as f64 / busy.max(1) as f64;
        let bytes = (bytes as f64 * done).round() as u64;
        Use { kind, number, operations, bytes, busy: busy - behind.min(busy), waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_again_and_grows_from_an_earlier_look() {
        for kind in Kind::value_variants().iter().copied() {
            let then = Use { kind, number: 3, operations: 4, bytes: 5, busy: 6, waited: 7 };
            assert_eq!(Use::parse(&then.to_string()), Some(then));
            assert!(Use { kind: Kind::ClientCpu, ..then }.to_string().starts_with("client-cpu 3 operations 4 "));
            let now = Use { operations: 14, bytes: 25, busy: 36, waited: 47, ..then };
            assert_eq!(now.since(&[then]), Use { operations: 10, bytes: 20, busy: 30, waited: 40, ..then });
            assert_eq!(now.since(&[Use { number: 2, ..then }]), now);
        }
        assert_eq!((Use::parse("now_ns 12"), Use::parse("fault 0 hits 1")), (None, None));
    }
}
