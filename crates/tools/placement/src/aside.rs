//! Work that may wait for a global store, in a thread that can be left.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Does `work` in a thread of its own. `None`: it did not end before `leave` said so, which is asked every `look`; it goes on, and this
/// process should end. Errors: no thread could be started, or it ended in a panic.
pub fn aside<T: Send + 'static>(
    name: &str,
    look: Duration,
    work: impl FnOnce() -> T + Send + 'static,
    leave: &mut dyn FnMut() -> bool,
) -> io::Result<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        // Nobody listens any more when it was left.
        let _ = sender.send(work());
    };
    std::thread::Builder::new().name(name.to_string()).spawn(run)?;
    loop {
        match receiver.recv_timeout(look) {
            Ok(done) => return Ok(Some(done)),
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("it ended in a panic")),
            Err(RecvTimeoutError::Timeout) if leave() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
