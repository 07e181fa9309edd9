//! What the server must hear of although nobody waits for that any more: in order, by one thread, while there is something.

use std::collections::VecDeque;
use std::sync::Arc;

use concurrency::Mutex;
use transport::Call;
use wire::Message;

use super::Inner;

#[derive(Default)]
struct Queue {
    /// At most one for each file that was open or removed while the server was away.
    messages: VecDeque<Message>,
    /// A thread tells it.
    told: bool,
}

/// What is still to be told.
#[derive(Default)]
pub(super) struct DeferredMessages(Mutex<Queue>);

impl Inner {
    /// Tells the server, when it is there.
    pub(super) fn tell_later(self: &Arc<Inner>, message: Message) {
        let mut queue = self.later.0.lock();
        queue.messages.push_back(message);
        if queue.told {
            return;
        }
        let inner = Arc::clone(self);
        match concurrency::spawn("tell", move || inner.tell_all()) {
            Ok(_) => queue.told = true,
            Err(error) => tracing::error!(%error, "the server is told of a closed or removed file with the next one"),
        }
    }

    /// Whether somebody is told things.
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
            // However long; refused, it is refused again.
            if let Err(error) = self.client.call(Call::new(&message)) {
                tracing::error!(%error, message = message.name(), "the server refused what it was told");
            }
        }
    }
}
