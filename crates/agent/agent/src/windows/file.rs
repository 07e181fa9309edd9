//! The thread that drains the windows of one file.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use concurrency::{Instant, Mutex, MutexGuard};
use types::Identity;
use window::ring::sleep_on;

use super::Windows;
use super::drain::Drain;
use super::place::FilePlace;
use crate::limits;

/// The windows of one file.
pub(super) struct FileWindow {
    pub identity: Identity,
    /// Where its rings are written down.
    pub place: FilePlace,
    /// `None` once it is over.
    pub drain: Mutex<Option<Drain>>,
    /// See [`Windows::keeps`]; told by whoever has the rings.
    pub kept: Arc<AtomicBool>,
    /// It has its thread.
    started: AtomicBool,
    /// Open files that were closed, and whose windows are to end, while somebody had the rings.
    closed: Mutex<Vec<u64>>,
}

/// What the thread does next.
enum Next {
    /// Another batch waits.
    Again,
    /// Nothing for so long.
    Nap(Duration),
    /// Nothing until the bell.
    Sleep,
    /// It is over.
    End,
}

impl FileWindow {
    pub fn new(identity: Identity, drain: Drain) -> Arc<FileWindow> {
        let place = drain.place().beside();
        let kept = drain.kept();
        let (drain, started, closed) = (Mutex::new(Some(drain)), AtomicBool::new(false), Mutex::default());
        Arc::new(FileWindow { identity, place, drain, kept, started, closed })
    }

    /// The windows of an open file are to end; whoever has the rings next sees to that ([`end_closed`](FileWindow::end_closed)).
    pub fn close(&self, open: u64) {
        self.closed.lock().push(open);
    }

    /// Ends the windows of the open files that were closed. By whoever has the rings.
    pub fn end_closed(&self, drain: &mut Drain) {
        let closed = std::mem::take(&mut *self.closed.lock());
        closed.into_iter().for_each(|open| drain.end(Some(open)));
    }

    /// Starts its thread, unless it has one. Not before it has a ring: the thread would find it over.
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

/// When things happened last.
struct Pace {
    /// Something was taken.
    busy: Instant,
    /// Since when writers wait for room.
    without_room: Option<Instant>,
    /// It began to be waited for neighbours, and goes on to be.
    waits: Option<Instant>,
    /// That was in vain.
    waited: Option<Instant>,
}

impl Pace {
    fn new() -> Pace {
        Pace { busy: Instant::now(), without_room: None, waits: None, waited: None }
    }

    /// Whether writers have been waiting for room for long.
    fn is_without_room(&mut self, drain: &Drain) -> bool {
        if !drain.is_without_room() {
            self.without_room = None;
            return false;
        }
        self.without_room.get_or_insert_with(Instant::now).elapsed() > limits::WINDOW_STUCK_WAIT
    }

    /// Whether to wait for neighbours, which come: if not in vain, a moment ago.
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
    // A server has many at once to do; and one batch that waits for it must not keep the others from it.
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
        Err(_) => Next::Nap(limits::WINDOW_RETRY), // told when it began
    }
}
