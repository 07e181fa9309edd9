//! The number of names that wait for a delegated directory, which the directory says beside its mark: whoever ends the delegation for a
//! lost burst buffer hears what is lost.

use std::io;

use concurrency::Instant;

use crate::limits::WAITING_NOTED;
use crate::mark;
use crate::open_tree::OpenTree;

/// What a directory in the global store says of the number of names that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotedWaiting {
    Nothing,
    /// So many, noted at this time.
    Names(u64, Instant),
    /// What an earlier agent has noted.
    Unknown,
}

impl NotedWaiting {
    /// Whether a number is to be noted. `since`: when the first of the names came that wait.
    fn is_due(self, names: u64, since: Option<Instant>) -> bool {
        match self {
            NotedWaiting::Names(noted, at) if names > 0 => noted != names && at.elapsed() >= WAITING_NOTED,
            NotedWaiting::Names(..) => true,
            NotedWaiting::Nothing => names > 0 && since.is_some_and(|since| since.elapsed() >= WAITING_NOTED),
            NotedWaiting::Unknown => true,
        }
    }
}

impl OpenTree {
    /// Notes at the directory how many names wait, if they have waited for a while.
    pub(crate) fn count_below(&self) {
        let (names, since) = (self.tree.pending_len() as u64, self.changes.lock().pending);
        let mut noted = self.noted_waiting.lock();
        if !noted.is_due(names, since) {
            return;
        }
        // The mark of another says what waits for that one.
        let written =
            self.is_marked().and_then(|is_ours| if is_ours { self.write_waiting(&mut noted, names) } else { Ok(()) });
        if let Err(error) = written {
            tracing::debug!(%error, names, "a delegated directory cannot say how many names wait");
        }
    }

    /// Removes what the directory says, as the delegation ends.
    pub(crate) fn forget_count_below(&self) -> io::Result<()> {
        let mut noted = self.noted_waiting.lock();
        if *noted == NotedWaiting::Nothing { Ok(()) } else { self.write_waiting(&mut noted, 0) }
    }

    fn write_waiting(&self, noted: &mut NotedWaiting, names: u64) -> io::Result<()> {
        *noted = if names > 0 { NotedWaiting::Names(names, Instant::now()) } else { NotedWaiting::Nothing };
        mark::note_waiting(&*self.store.namespace, &self.root, names)
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
