//! The number of names that wait for a delegated directory, which the directory says beside its mark: whoever ends the delegation for a
//! lost burst buffer hears what is lost.

use concurrency::Instant;

use crate::limits::WAITING_NOTED;

/// The number of names that wait, as a directory in the global store says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotedWaiting {
    Nothing,
    /// So many, noted at this time.
    Names(u64, Instant),
    /// As an earlier agent has noted.
    Unknown,
}

impl NotedWaiting {
    /// Whether a number is to be noted. `since`: when the first of the names came that wait.
    pub fn is_due(self, names: u64, since: Option<Instant>) -> bool {
        match self {
            NotedWaiting::Names(noted, at) if names > 0 => noted != names && at.elapsed() >= WAITING_NOTED,
            NotedWaiting::Names(..) => true,
            NotedWaiting::Nothing => names > 0 && since.is_some_and(|since| since.elapsed() >= WAITING_NOTED),
            NotedWaiting::Unknown => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S71
    fn a_number_is_noted_when_names_have_waited_and_again_when_it_is_old_or_nothing_waits() {
        let now = Instant::now();
        let (long_ago, noted) = (now.checked_sub(WAITING_NOTED), NotedWaiting::Names(3, now));
        assert!(!NotedWaiting::Nothing.is_due(0, None) && !NotedWaiting::Nothing.is_due(3, Some(now)));
        assert!(NotedWaiting::Nothing.is_due(3, long_ago));
        assert!(!noted.is_due(4, long_ago) && noted.is_due(0, None));
        let old = NotedWaiting::Names(3, long_ago.unwrap());
        assert!(old.is_due(4, long_ago) && !old.is_due(3, long_ago));
        assert!(NotedWaiting::Unknown.is_due(0, None));
    }
}
