//! What programs of this node have written, brought to the global store.

use std::path::Path;
use std::sync::atomic::Ordering;

use agent::{DrainProgress, Drainer, Stuck};
use transport::Call;
use types::Identity;
use wire::Message;

use super::Relay;
use crate::held::HeldFile;

impl Relay {
    fn drainer(&self) -> Drainer<'_> {
        Drainer { client: &self.client, written: &self.written, numbers: &self.jobs, patience: self.patience }
    }

    /// Has the server stage out what was written through this node, and waits for it; what did not reach the global store. With the
    /// session ended the server closes first what was open.
    pub fn drain(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck> {
        if self.has_ended() {
            // It may not have heard it the first time. An error is found by the next question.
            let farewell = Message::Detach {};
            let _ = self.client.call(Call { interrupted, ..Call::new(&farewell) });
        }
        self.drainer().drain_all(progress, interrupted)
    }

    /// A file is open for writing.
    pub(super) fn begin_write(&self, identity: &Identity, hint: &Path) {
        if self.written.begin(identity, hint) {
            self.drainer().forget_clean(&|| self.ended.load(Ordering::SeqCst));
        }
    }

    pub(super) fn closed(&self, held: Option<HeldFile>) {
        held.iter().filter(|held| held.writes).for_each(|held| self.written.end(&held.identity));
    }
}
