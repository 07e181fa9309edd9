//! Bugs that can be planted here, so that a test shows that the simulation finds such bugs. Without the feature
//! `planted` there are none.

/// One bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// A new boot verifier counts no change as lost.
    LossForgotten,
    /// A grant of a former session instance counts.
    FormerGrantBelieved,
    /// A file that was closed while it was opened again stays open at the server.
    CloseForgotten,
    /// Locks count as claimed although the server refuses them.
    LateClaimBelieved,
}

#[cfg(feature = "planted")]
mod with {
    use std::cell::Cell;

    use super::PlantedBug;

    thread_local! {
        static BUG: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    }

    /// Plants a bug on this system thread, on which all threads of a simulation run. `None`: removes it.
    pub fn plant(bug: Option<PlantedBug>) {
        BUG.set(bug);
    }

    pub(crate) fn is_planted(bug: PlantedBug) -> bool {
        BUG.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub(crate) use with::is_planted;
#[cfg(feature = "planted")]
pub use with::plant;

#[cfg(not(feature = "planted"))]
pub(crate) const fn is_planted(_: PlantedBug) -> bool {
    false
}
