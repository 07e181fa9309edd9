//! Which session instance has a client's state.

use types::SessionInstance;

use crate::planted::{PlantedBug, is_planted};

/// The session instance of the server that has, or is receiving, a client's state. Grants of any other are void:
/// nothing is claimed from them, and another client may have got the lock since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateHolder(SessionInstance);

impl StateHolder {
    /// Notes the session instance to which the state goes from now on.
    pub fn moves_to(&mut self, instance: SessionInstance) {
        self.0 = instance;
    }

    /// Returns the session instance.
    pub fn instance(&self) -> SessionInstance {
        self.0
    }

    /// Returns whether a grant by this session instance counts.
    pub fn may_grant(&self, by: SessionInstance) -> bool {
        self.0 == by || is_planted(PlantedBug::FormerGrantBelieved)
    }
}
