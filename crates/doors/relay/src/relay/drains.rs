//! Draining: staging out everything that programs of this node have written.

use std::path::Path;
use std::sync::atomic::Ordering;

use data_store::{DrainProgress, Stuck};
use fuse_protocol::HeldFile;
use remote::Drainer;
use transport::Call;
use types::Identity;
use wire::Message;

use super::Relay;

impl Relay {
    fn drainer(&self) -> Drainer<'_> {
        Drainer { client: &self.client, written: &self.written, numbers: &self.jobs, patience: self.patience }
    }

    /// Has the server stage out everything that was written through this node, and waits for that. Returns the files
    /// that did not reach the global store. After the session's end, the server closes open files first.
    pub fn drain(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck> {
        if self.has_ended() {
            // Repeated, since the server may have missed the first one. The next request reports an error, if there
            // is one.
            let farewell = Message::Detach {};
            let _ = self.client.call(Call { interrupted, ..Call::new(&farewell) });
        }
        self.drainer().drain_all(progress, interrupted)
    }

    /// Notes that a file is open for writing.
    pub(super) fn begin_write(&self, identity: &Identity, hint: &Path) {
        if self.written.begin(identity, hint) {
            self.drainer().forget_clean(&|| self.ended.load(Ordering::SeqCst));
        }
    }

    pub(super) fn closed(&self, held: Option<HeldFile>) {
        held.iter().filter(|held| held.writes).for_each(|held| self.written.end(&held.identity));
    }
}
