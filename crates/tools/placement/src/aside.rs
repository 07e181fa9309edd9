//! Work that may wait for a global store, in a thread that can be abandoned.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Runs `work` in a thread of its own. `leave` is asked every `look` whether to abandon it. Returns `None` if so: the
/// work continues, and this process should end. Errors: the thread could not be started, or it panicked.
pub fn aside<T: Send + 'static>(
    name: &str,
    look: Duration,
    work: impl FnOnce() -> T + Send + 'static,
    leave: &mut dyn FnMut() -> bool,
) -> io::Result<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        // Fails if the work was abandoned, since nobody listens then.
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
