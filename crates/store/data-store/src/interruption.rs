//! Interruption of the program that this thread serves, for example while it waits for an unreachable server.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use types::HasErrno;

use concurrency::Instant;

/// Callback that is asked at every tick of a wait.
pub type Interruption = Rc<dyn Fn() -> bool>;

thread_local! {
    static CURRENT: RefCell<Option<Interruption>> = const { RefCell::new(None) };
}

/// Sets the program that this thread serves; `None`: no program.
pub fn set_interruption(ask: Option<Interruption>) {
    CURRENT.set(ask);
}

/// Whether the program that this thread serves has been interrupted.
pub fn is_interrupted() -> bool {
    CURRENT.with_borrow(|ask| ask.as_ref().is_some_and(|ask| ask()))
}

/// Restores the former program of a thread on drop.
struct Former(Option<Interruption>);

impl Drop for Former {
    fn drop(&mut self) {
        set_interruption(self.0.take());
    }
}

/// Runs `work` for this thread's program, with a limit of `patience` for all waits in it. `ETIMEDOUT` if the limit is
/// exceeded.
pub fn patiently<T>(patience: Duration, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + patience;
    let former = Former(CURRENT.take());
    let asked = former.0.clone();
    let over = move || Instant::now() >= until;
    set_interruption(Some(Rc::new(move || over() || asked.as_ref().is_some_and(|ask| ask()))));
    let done = work();
    drop(former);
    match done {
        Err(error) if error.errno() == Some(libc::EINTR) && !is_interrupted() => {
            Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupted() -> io::Result<()> {
        if is_interrupted() { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(()) }
    }

    #[test]
    fn a_wait_that_took_too_long_is_told_from_one_that_was_interrupted() {
        let errno = |done: io::Result<()>| done.unwrap_err().raw_os_error();
        assert!(patiently(Duration::from_secs(3600), interrupted).is_ok());
        assert_eq!(errno(patiently(Duration::ZERO, interrupted)), Some(libc::ETIMEDOUT));
        assert!(!is_interrupted(), "as before");
        set_interruption(Some(Rc::new(|| true)));
        assert_eq!(errno(patiently(Duration::from_secs(3600), interrupted)), Some(libc::EINTR));
        assert_eq!(errno(patiently(Duration::ZERO, interrupted)), Some(libc::EINTR));
        assert!(is_interrupted());
        set_interruption(None);
    }
}
