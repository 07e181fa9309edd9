//! Files that are open at a server, and must be opened again when it has forgotten them.

use types::SessionInstance;

use crate::boots::Boots;
use crate::planted::{PlantedBug, is_planted};
use crate::unsynced::Unsynced;

/// Open version of a file's data, as numbered by a server in one session instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenVersion {
    /// Session instance in which the file was opened.
    pub instance: SessionInstance,
    /// Number of the version.
    pub version: u64,
    /// Boot verifier of the server's machine.
    pub boot_verifier: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Open,
    /// The server said that the file no longer exists. It may be opened again.
    Gone,
    /// The program has closed the file. An open that was under way must be undone.
    Closed,
}

/// One open file.
#[derive(Debug, Default)]
pub struct ReopenableFile {
    at: OpenVersion,
    boots: Boots,
    stage: Stage,
}

impl ReopenableFile {
    /// Notes that the server has opened the file, for the first time or again.
    pub fn opened(&mut self, at: OpenVersion) {
        self.at = at;
        self.boots.meets(at.instance, at.boot_verifier);
        if self.stage == Stage::Gone {
            self.stage = Stage::Open;
        }
    }

    /// Notes that the server does not find the file any more.
    pub fn is_not_found(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Gone;
        }
    }

    /// Notes that the program has closed the file. The caller then tells the server.
    pub fn closes(&mut self) {
        self.stage = Stage::Closed;
    }

    /// Returns the version at which the file was opened last.
    pub fn at(&self) -> OpenVersion {
        self.at
    }

    /// Returns the boot verifier under which a session instance answers. `None`: unknown.
    pub fn boot_of(&self, instance: SessionInstance) -> Option<u64> {
        self.boots.of(instance)
    }

    /// Returns whether the server does not find the file any more.
    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// Returns whether the program has closed the file.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Returns whether the file must be opened again to be open in this session instance.
    pub fn must_follow(&self, to: SessionInstance) -> bool {
        self.at.instance != to && !self.is_closed()
    }

    /// Returns whether the file must be closed again: it was closed while it was being opened.
    pub fn must_close_again(&self) -> bool {
        self.is_closed() && !is_planted(PlantedBug::CloseForgotten)
    }
}

/// End of one try to open a member of a group again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReopenEnd {
    /// The server has answered. A member that it refused is opened when it is used.
    Answered,
    /// The server is unreachable, or the time is over. The rest is opened when it is used.
    Unreachable,
    /// The caller was interrupted. The next caller goes on.
    Interrupted,
}

/// Open files of one file that share the same bytes. They must keep sharing them in each new session instance.
#[derive(Debug, Default)]
pub struct ReopenableGroup {
    at: OpenVersion,
    /// Session instance to which the members were last moved.
    followed: SessionInstance,
    /// Changes through the members that were not synced.
    pub unsynced: Unsynced,
}

impl ReopenableGroup {
    /// Returns the version of the members.
    pub fn at(&self) -> OpenVersion {
        self.at
    }

    /// Notes a version that a member was given. The first one in each session instance counts.
    pub fn arrives(&mut self, at: OpenVersion) {
        if self.at.instance != at.instance {
            self.at = at;
        }
    }

    /// Returns whether the caller is the first one that meets this session instance, and opens all members again.
    pub fn begins_to_follow(&mut self, to: SessionInstance) -> bool {
        std::mem::replace(&mut self.followed, to) != to
    }

    /// Notes the end of one try. Returns whether the caller goes on with the next member.
    pub fn reopened(&mut self, end: ReopenEnd) -> bool {
        if end == ReopenEnd::Interrupted {
            self.followed = SessionInstance::default();
        }
        end == ReopenEnd::Answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(instance: u8) -> OpenVersion {
        OpenVersion { instance: [instance; 16], version: instance.into(), boot_verifier: 7 }
    }

    #[test]
    fn a_file_is_opened_again_where_it_is_not_open_unless_it_was_closed() {
        let mut file = ReopenableFile::default();
        file.opened(at(1));
        assert!(!file.must_follow([1; 16]) && file.must_follow([2; 16]) && !file.must_close_again());
        file.is_not_found();
        assert!(file.is_gone() && file.must_follow([2; 16]), "it may be there again");
        file.opened(at(2));
        assert!(!file.is_gone());
        assert_eq!((file.at(), file.boot_of([1; 16]), file.boot_of([3; 16])), (at(2), Some(7), None));
        file.closes();
        assert!(!file.must_follow([3; 16]) && file.must_close_again());
        file.is_not_found();
        file.opened(at(3));
        assert!(file.must_close_again(), "the open was under way when it was closed");
    }

    #[test]
    fn the_first_who_meets_a_server_opens_all_again_or_the_next_if_he_was_interrupted() {
        let mut group = ReopenableGroup::default();
        assert!(group.begins_to_follow([1; 16]) && !group.begins_to_follow([1; 16]));
        assert!(group.reopened(ReopenEnd::Answered) && !group.reopened(ReopenEnd::Unreachable));
        assert!(!group.begins_to_follow([1; 16]), "the rest is opened when it is used");
        assert!(!group.reopened(ReopenEnd::Interrupted) && group.begins_to_follow([1; 16]));
        assert!(group.begins_to_follow([2; 16]));
        group.arrives(at(2));
        group.arrives(OpenVersion { version: 9, ..at(2) });
        assert_eq!(group.at(), at(2));
    }
}
