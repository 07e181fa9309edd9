//! Deferred notices to the server that no caller waits for. One thread sends them in order, while there are any.

use std::sync::Arc;

use concurrency::{Instant, Mutex};
use peer::{NextNotice, Notices};
use transport::{Call, Client};
use wire::Message;

#[derive(Default)]
struct Queue {
    /// Notices: at most one for each file that was open or removed while the server was unreachable.
    messages: Notices<Message>,
    /// Whether a thread sends the notices.
    told: bool,
}

/// Queue of deferred notices.
#[derive(Default, Clone)]
pub(crate) struct DeferredMessages(Arc<Mutex<Queue>>);

impl DeferredMessages {
    /// Sends a notice to the server when it is reachable.
    pub fn tell(&self, client: &Arc<Client>, message: Message) {
        let mut queue = self.0.lock();
        queue.messages.add(message);
        if queue.told {
            return;
        }
        let (all, client) = (self.clone(), Arc::clone(client));
        match concurrency::spawn("tell", move || all.send(&client)) {
            Ok(_) => queue.told = true,
            Err(error) => {
                tracing::error!(%error, "could not notify the server of a closed or removed file; retried with the next one");
            }
        }
    }

    /// Whether deferred notices are being sent.
    pub fn is_telling(&self) -> bool {
        self.0.lock().told
    }

    fn send(&self, client: &Client) {
        loop {
            let message = {
                let mut queue = self.0.lock();
                let NextNotice::Send(message) = queue.messages.next(Instant::now()) else {
                    queue.told = false;
                    return;
                };
                message
            };
            // Waits however long. A refused notice would be refused again, so it is not repeated.
            if let Err(error) = client.call(Call::new(&message)) {
                tracing::error!(%error, message = message.name(), "the server refused a notice, which is dropped");
            }
        }
    }
}
