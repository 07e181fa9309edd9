//! The thread that applies the records of one file's windows.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use concurrency::{Instant, Mutex, MutexGuard};
use types::Identity;
use window::ring::sleep_on;

use crate::drain::Drain;
use crate::limits;
use crate::place::FilePlace;
use crate::table::Windows;

pub(crate) struct FileWindow {
    pub identity: Identity,
    pub place: FilePlace,
    /// State under the file's lock; `None` once the windows are over.
    pub drain: Mutex<Option<Drain>>,
    /// Flag for [`Windows::keeps`], updated by the holder of `drain`.
    pub kept: Arc<AtomicBool>,
    started: AtomicBool,
    /// Open files that were closed while `drain` was locked. Their windows are to end.
    closed: Mutex<Vec<u64>>,
}

enum Next {
    Again,
    Nap(Duration),
    Sleep,
    End,
}

impl FileWindow {
    pub fn new(identity: Identity, drain: Drain) -> Arc<FileWindow> {
        let place = drain.place().beside();
        let kept = drain.kept();
        let (drain, started, closed) = (Mutex::new(Some(drain)), AtomicBool::new(false), Mutex::default());
        Arc::new(FileWindow { identity, place, drain, kept, started, closed })
    }

    /// Notes that the windows of an open file are to end. The next holder of `drain` ends them
    /// ([`end_closed`](FileWindow::end_closed)).
    pub fn close(&self, open: u64) {
        self.closed.lock().push(open);
    }

    /// Ends the windows of open files that were closed. Call this with `drain` locked.
    pub fn end_closed(&self, drain: &mut Drain) {
        let closed = std::mem::take(&mut *self.closed.lock());
        closed.into_iter().for_each(|open| drain.end(Some(open)));
    }

    /// Starts the thread, unless it runs. Call this after a ring was added; without a ring the thread would end at
    /// once.
    pub fn start(window: &Arc<FileWindow>, windows: &Arc<Windows>) -> io::Result<()> {
        if window.started.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let (its, windows) = (Arc::clone(window), Arc::downgrade(windows));
        concurrency::spawn("window", move || its.run(&windows))
            .inspect_err(|_| window.started.store(false, Ordering::Release))
    }

    fn run(self: &Arc<FileWindow>, windows: &Weak<Windows>) {
        let mut pace = Pace::new();
        loop {
            let Some(windows) = windows.upgrade() else { return };
            let mut slot = self.drain.lock();
            let next = match slot.as_mut() {
                None => Next::End,
                Some(drain) => {
                    self.end_closed(drain);
                    step(drain, &windows, &mut pace)
                }
            };
            match next {
                Next::Again => MutexGuard::unlock_fair(slot),
                Next::Nap(time) => {
                    drop(slot);
                    drop(windows);
                    concurrency::sleep(time);
                }
                Next::Sleep => {
                    let bed = slot.as_ref().and_then(Drain::lie_down);
                    drop(slot);
                    drop(windows);
                    match bed {
                        Some((memory, bell)) => {
                            let most = limits::WINDOW_SLEEP;
                            concurrency::wait(most, || sleep_on(&*memory, bell, most));
                        }
                        None => concurrency::sleep(limits::WINDOW_POLL),
                    }
                    if let Some(drain) = self.drain.lock().as_ref() {
                        drain.get_up();
                    }
                }
                Next::End => {
                    *slot = None;
                    drop(slot);
                    windows.forget(self);
                    return;
                }
            }
        }
    }
}

struct Pace {
    /// Time at which records were last taken.
    busy: Instant,
    /// Start of the present wait of writers for room.
    without_room: Option<Instant>,
    /// Start of the present wait for neighbouring writes.
    waits: Option<Instant>,
    /// End of the last wait for neighbours that was in vain.
    waited: Option<Instant>,
}

impl Pace {
    fn new() -> Pace {
        Pace { busy: Instant::now(), without_room: None, waits: None, waited: None }
    }

    /// Whether writers have waited for room for too long.
    fn is_without_room(&mut self, drain: &Drain) -> bool {
        if !drain.is_without_room() {
            self.without_room = None;
            return false;
        }
        self.without_room.get_or_insert_with(Instant::now).elapsed() > limits::WINDOW_STUCK_WAIT
    }

    /// Whether to wait for neighbouring writes. False for a while after a wait in vain.
    fn waits(&mut self) -> bool {
        if self.waited.is_some_and(|waited| waited.elapsed() < limits::WINDOW_DRAIN_AFTER) {
            return false;
        }
        let waits = self.waits.get_or_insert_with(Instant::now).elapsed() < limits::WINDOW_NEIGHBOURS;
        if !waits {
            (self.waits, self.waited) = (None, Some(Instant::now()));
        }
        waits
    }
}

fn step(drain: &mut Drain, windows: &Windows, pace: &mut Pace) -> Next {
    if drain.take() {
        pace.busy = Instant::now();
    }
    let quiet = pace.busy.elapsed();
    let mut waits = || drain.neighbours_come() && pace.waits();
    let urgent = quiet > limits::WINDOW_DRAIN_AFTER || drain.is_short_of_room() && !waits();
    // A server handles many batches at once, and one batch that waits for it must not hold up the others.
    let turn = (!windows.behind_server).then_some(&windows.turn);
    match drain.batch(urgent, turn) {
        Ok(true) => {
            pace.waits = None;
            Next::Again
        }
        Ok(false) => {
            if pace.is_without_room(drain) {
                drain.end_unfinished();
            }
            drain.sweep();
            if drain.is_over() {
                Next::End
            } else if drain.is_drained() && quiet > limits::WINDOW_DRAIN_AFTER {
                Next::Sleep
            } else {
                Next::Nap(limits::WINDOW_POLL)
            }
        }
        Err(_) if drain.is_forlorn() => {
            drain.abandon();
            Next::End
        }
        Err(_) => Next::Nap(limits::WINDOW_RETRY), // reported when it began
    }
}
