//! Whether a file's last name was removed.

use super::Live;

/// The removal of the last name through the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Removal {
    /// There was none, as far as we know.
    #[default]
    No,
    /// One was under way when the agent died, and the start could not check that the name is gone. The record still
    /// says `removing`.
    Doubted,
    /// The name is gone: no record, no stage-out.
    Done,
    /// The store's medium may lack the removal: record (in the catalogue) and replica are kept.
    Kept,
}

impl Removal {
    /// Notes that nobody could check whether the name is gone.
    pub(crate) fn doubt(&mut self) {
        if *self == Removal::No {
            *self = Removal::Doubted;
        }
    }

    /// Ends the doubt. Returns whether there was one.
    pub(crate) fn end_doubt(&mut self) -> bool {
        let doubted = *self == Removal::Doubted;
        if doubted {
            *self = Removal::No;
        }
        doubted
    }
}

impl Live {
    /// Returns whether the last name was removed through the agent.
    pub(crate) fn is_unlinked(&self) -> bool {
        matches!(self.removal, Removal::Done | Removal::Kept)
    }
}
