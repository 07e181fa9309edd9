//! Deferred notices to the server that no caller waits for. One thread sends them in order, while there are any.

use std::collections::VecDeque;
use std::sync::Arc;

use concurrency::Mutex;
use transport::Call;
use wire::Message;

use super::Inner;

#[derive(Default)]
struct Queue {
    /// Notices: at most one for each file that was open or removed while the server was unreachable.
    messages: VecDeque<Message>,
    /// Whether a thread sends the notices.
    told: bool,
}

/// Queue of deferred notices.
#[derive(Default)]
pub(super) struct DeferredMessages(Mutex<Queue>);

impl Inner {
    /// Sends a notice to the server when it is reachable.
    pub(super) fn tell_later(self: &Arc<Inner>, message: Message) {
        let mut queue = self.later.0.lock();
        queue.messages.push_back(message);
        if queue.told {
            return;
        }
        let inner = Arc::clone(self);
        match concurrency::spawn("tell", move || inner.tell_all()) {
            Ok(_) => queue.told = true,
            Err(error) => {
                tracing::error!(%error, "could not notify the server of a closed or removed file; retried with the next one")
            }
        }
    }

    /// Whether deferred notices are being sent.
    pub(super) fn is_telling(&self) -> bool {
        self.later.0.lock().told
    }

    fn tell_all(&self) {
        loop {
            let message = {
                let mut queue = self.later.0.lock();
                queue.told = !queue.messages.is_empty();
                let Some(message) = queue.messages.pop_front() else { return };
                message
            };
            // Waits however long. A refused notice would be refused again, so it is not repeated.
            if let Err(error) = self.client.call(Call::new(&message)) {
                tracing::error!(%error, message = message.name(), "the server refused a notice, which is dropped");
            }
        }
    }
}
