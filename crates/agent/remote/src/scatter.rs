//! Concurrent writes. Each is a round trip, and a window written at random places of a file has thousands of them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use types::HasErrno;

use crate::limits::SERVER_WRITES_AT_ONCE;
use data_store::{is_interrupted, set_interruption};

/// Interval at which the thread that waits for the others checks for an interrupt.
const LOOK: Duration = Duration::from_millis(20);

/// Calls `each` for the numbers below `count`, several at once. Returns the first error; the rest is not begun then,
/// but some calls may have succeeded. An interrupt of this thread interrupts all.
pub(crate) fn at_once(count: usize, each: &(dyn Fn(usize) -> io::Result<()> + Sync)) -> io::Result<()> {
    let helpers = count.min(SERVER_WRITES_AT_ONCE).saturating_sub(1);
    if helpers == 0 {
        return (0..count).try_for_each(each);
    }
    let (next, stop) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let work = || -> io::Result<()> {
        while !stop.load(Ordering::Acquire) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            each(number).inspect_err(|_| stop.store(true, Ordering::Release))?;
        }
        Ok(())
    };
    let running = AtomicUsize::new(0);
    let this = std::thread::current();
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..helpers)
            .map_while(|_| {
                let (ours, this, running, work) = (Arc::clone(&stop), &this, &running, &work);
                running.fetch_add(1, Ordering::AcqRel);
                let help = move || {
                    set_interruption(Some(Rc::new(move || ours.load(Ordering::Acquire))));
                    let _ended = Ended(running, this);
                    work()
                };
                #[cfg_attr(
                    not(test),
                    expect(clippy::disallowed_methods, reason = "the scheduler has no scoped threads with names")
                )]
                let started = std::thread::Builder::new().name("scatter".into()).spawn_scoped(scope, help);
                if started.is_err() {
                    running.fetch_sub(1, Ordering::AcqRel);
                }
                started.ok()
            })
            .collect();
        let mut done = work();
        while running.load(Ordering::Acquire) > 0 {
            stop.fetch_or(is_interrupted(), Ordering::AcqRel);
            concurrency::park_timeout(LOOK);
        }
        for helper in started {
            let helped = helper.join().unwrap_or_else(|_| Err(io::Error::other("a write ended in a panic")));
            // Errors of calls that were stopped because of an error say less than that error.
            match (&done, helped) {
                (Ok(()), helped) => done = helped,
                (Err(first), Err(error)) if is_stopped(first) && !is_stopped(&error) => done = Err(error),
                _ => {}
            }
        }
        // An interrupt may come between two calls.
        let left = next.load(Ordering::Acquire) < count;
        done.and_then(|()| if left { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(()) })
    })
}

/// Signals the end of a helper, also after a panic.
struct Ended<'a>(&'a AtomicUsize, &'a std::thread::Thread);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
        self.1.unpark();
    }
}

fn is_stopped(error: &io::Error) -> bool {
    error.errno() == Some(libc::EINTR)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn each_is_done_once_and_several_at_a_time() {
        let (done, barrier) = (Mutex::new(vec![0; 100]), std::sync::Barrier::new(SERVER_WRITES_AT_ONCE));
        at_once(100, &|number| {
            if number < SERVER_WRITES_AT_ONCE {
                barrier.wait();
            }
            done.lock()[number] += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(*done.lock(), [1; 100]);
        at_once(0, &|_| Err(io::ErrorKind::Other.into())).unwrap();
    }

    #[test]
    fn the_first_error_ends_it_and_an_interruption_reaches_all() {
        let failed = at_once(1000, &|number| match number {
            7 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ if is_interrupted() => Err(io::Error::from_raw_os_error(libc::EINTR)),
            _ => Ok(()),
        });
        assert_eq!(failed.unwrap_err().errno(), Some(libc::ENOSPC));
        let asked = Arc::new(AtomicBool::new(false));
        let ask = Arc::clone(&asked);
        set_interruption(Some(Rc::new(move || ask.load(Ordering::Acquire))));
        let waits = at_once(4, &|number| {
            asked.store(number == 3 || asked.load(Ordering::Acquire), Ordering::Release);
            while !is_interrupted() {
                std::thread::yield_now();
            }
            Err(io::Error::from_raw_os_error(libc::EINTR))
        });
        set_interruption(None);
        assert_eq!(waits.unwrap_err().errno(), Some(libc::EINTR));
    }
}
