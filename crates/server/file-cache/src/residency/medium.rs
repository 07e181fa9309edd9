//! Facts about the media: the burst buffer's below the replica, the global store's below the name.

use std::io;

use super::Live;

/// Known failures of the medium below a replica.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Medium {
    /// Number of reports that the medium did not take written bytes, and the errno of the last one.
    failed: (u64, i32),
    /// Number of these reports known when somebody accepted the remaining data.
    accepted: u64,
}

impl Medium {
    /// Returns whether the medium may lack bytes of the replica, whatever a sync says.
    pub(crate) fn lacks_some(&self) -> bool {
        self.failed.0 != 0
    }

    /// Returns whether the medium may lack bytes, and nobody has accepted the remaining data.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.failed.0 != self.accepted
    }

    pub(crate) fn accept(&mut self) {
        self.accepted = self.failed.0;
    }

    pub(crate) fn fail(&mut self, errno: i32) {
        self.failed = (self.failed.0 + 1, errno);
    }

    pub(crate) fn reports(&self) -> u64 {
        self.failed.0
    }

    pub(crate) fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(if self.failed.1 == 0 { libc::EIO } else { self.failed.1 })
    }
}

/// Facts that a crash of a machine leaves true.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Synced {
    /// The content that the replica had when it was last clean is on the medium.
    pub(crate) content: bool,
    pub(crate) intent: bool,
    /// A sync of the replica's data makes the identity attribute durable as well.
    pub(crate) identity_attribute: bool,
    /// The file is new, and its name may not be durable.
    pub(crate) lacks_name: bool,
}

impl Synced {
    /// Notes that a stage-out has synced the replica, and then the record.
    pub(crate) fn announced(&mut self) {
        (self.content, self.intent) = (true, true);
    }

    /// Notes the commit of an intent. `durable`: it is on the medium.
    pub(crate) fn intended(&mut self, durable: bool) {
        (self.intent, self.identity_attribute) = (durable, false);
    }

    /// Forgets what is true of a replica that is dropped.
    pub(super) fn dropped(&mut self) {
        *self = Synced { lacks_name: self.lacks_name, ..Synced::default() };
    }
}

impl Live {
    /// Returns whether the record that calls the file unclean is not durable yet.
    pub(crate) fn is_intent_unsynced(&self) -> bool {
        self.is_unclean() && !self.synced.intent
    }

    pub(crate) fn is_name_unsynced(&self) -> bool {
        self.synced.lacks_name && !self.is_unlinked()
    }
}
