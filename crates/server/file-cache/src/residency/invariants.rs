//! Checks of a file's fields, made whenever its gate is released in a debug build.

use catalogue::State;

use super::{Body, Live, Removal};

impl Live {
    /// Panics if the fields contradict each other, or what the crate promises.
    pub(super) fn assert_invariants(&self) {
        let record = self.record();
        match &self.body {
            Body::Fresh { .. } => panic!("a fresh replica was neither filled nor withdrawn"),
            // Invariants 1 and 3 of the crate.
            Body::Clean(record) => assert!(record.state == State::Clean, "a clean file has the record {record:?}"),
            Body::Unclean(record) => assert!(record.state != State::Clean, "an unclean file is recorded as clean"),
            Body::Unrecorded(_) => {
                assert!(self.is_unlinked() || self.is_retired(), "a replica of a present file has no record")
            }
            Body::Through => assert!(self.fds.global.is_some(), "a file goes through to no descriptor"),
            Body::Lost { .. } => assert!(!self.is_open(), "a lost replica is open"),
            Body::Fetching(_) | Body::Absent => {}
        }
        assert!(self.is_loaded() || record.is_none(), "the record of a file is known before it was read");
        self.users.assert_invariants();
        // Invariant 1 of `removal.rs`.
        assert!(self.removal != Removal::Kept || record.is_none(), "a removed file that is kept is counted");
        if let Some(record) = record {
            assert!(!record.damaged || record.state == State::Conflict, "a damaged file is {:?}", record.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use catalogue::{Record, State};

    use super::super::{Body, File, Live};
    use crate::world::World;

    /// Releases the gate of a dirty file after `plant` has changed its fields.
    fn release_after(plant: impl FnOnce(&mut Live)) {
        let world = World::new();
        let identity = world.store.put("f", b"old");
        world.write(b"new");
        let file: Arc<File> = world.cache.inner.known(&identity).unwrap();
        let gate = file.gate();
        plant(&mut file.live.lock());
        drop(gate);
    }

    fn state_becomes(live: &mut Live, state: State) {
        let record = Record { state, ..live.record().unwrap().clone() };
        live.body = Body::Unclean(record);
    }

    #[test]
    fn states_that_follow_each_other_are_legal() {
        release_after(|_| {});
        release_after(|live| state_becomes(live, State::Draining));
        release_after(|live| live.lost());
    }

    #[test]
    #[should_panic(expected = "an unclean file is recorded as clean")]
    fn dirt_that_no_record_tells_of_is_found() {
        release_after(|live| state_becomes(live, State::Clean));
    }

    #[test]
    #[should_panic(expected = "a replica of a present file has no record")]
    fn a_replica_whose_record_was_forgotten_is_found() {
        release_after(|live| live.disowned());
    }

    #[test]
    #[should_panic(expected = "a fresh replica was neither filled nor withdrawn")]
    fn an_open_that_left_its_fresh_replica_is_found() {
        release_after(|live| {
            live.dropped();
            live.begin_fresh(types::Version(7));
        });
    }

    #[test]
    #[should_panic(expected = "1 of 0 handles bypass")]
    fn a_passthrough_without_a_handle_is_found() {
        release_after(|live| live.users.bypass());
    }
}
