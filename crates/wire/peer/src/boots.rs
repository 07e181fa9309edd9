//! Boot verifiers of the servers that were met.

use types::SessionInstance;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Met {
    instance: SessionInstance,
    boot_verifier: u64,
}

/// The session instance that was met last and the one before, with the boot verifier of each one's machine. An answer
/// of the one before may be handled only after the last was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Boots {
    last: Met,
    before: Met,
}

impl Boots {
    /// Notes the session instance that gets the next requests.
    pub fn meets(&mut self, instance: SessionInstance, boot_verifier: u64) {
        if self.last.instance != instance {
            self.before = self.last;
        }
        self.last = Met { instance, boot_verifier };
    }

    /// Returns the boot verifier of the server that was met last; 0: none was met.
    pub fn last(&self) -> u64 {
        self.last.boot_verifier
    }

    /// Returns the boot verifier under which a session instance answers. `None`: unknown.
    pub fn of(&self, instance: SessionInstance) -> Option<u64> {
        [self.last, self.before].into_iter().find(|met| met.instance == instance).map(|met| met.boot_verifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S41
    fn the_boot_of_the_last_two_servers_is_known() {
        let mut boots = Boots::default();
        boots.meets([1; 16], 10);
        boots.meets([1; 16], 10);
        boots.meets([2; 16], 20);
        assert_eq!((boots.of([1; 16]), boots.of([2; 16]), boots.last()), (Some(10), Some(20), 20));
        boots.meets([3; 16], 20);
        assert_eq!((boots.of([1; 16]), boots.of([2; 16]), boots.of([3; 16])), (None, Some(20), Some(20)));
    }
}
