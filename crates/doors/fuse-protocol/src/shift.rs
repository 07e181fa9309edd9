//! Who reads and who runs: the book-keeping of the session's threads, without the threads.
//!
//! Waking another processor costs more than a short request, so as long as one program asks and handlers are short, one
//! thread reads, runs what it read *alone*, and reads again. [`Shift::take`] and [`Shift::done`] stand around each
//! request, [`Shift::tick`] is called by the watch (in `pool.rs`) at a steady rhythm; each is one step under one lock.
//!
//! S1. While the session lives, some thread is reading or about to; or the reader runs a request alone, then a spare
//!     stands by and the watch ticks.
//! S2. From its second tick on within one request run alone, the watch makes the spare a reader if another request waits. So
//!     whatever a handler waits for, nobody waits for it longer than two ticks, and for some time after readers stay
//!     ready as if all were slow. While nobody waits, a slow handler is no reason to.
//! S4. A request that waits while nothing is taken for two ticks finds the reader held up by others on its processor: it is
//!     raised, and for long not modest (`follow.rs`).
//! S3. Neither holds only when no further thread may be, as many requests wait as may (`Take::Run` with `full`).

/// How the watch's ticks are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rhythm {
    /// Ticks for which readers stay ready after handlers were slow or programs took turns.
    pub eager: u32,
    /// Ticks without a request after which the watch sleeps.
    pub quiet: u32,
    /// Ticks after which the caller's processor is looked up again.
    pub follow: u32,
    /// Changes of the caller within a tick that mean several programs.
    pub turns: u32,
    /// Ticks for which no reader is modest after one was held up.
    pub proud: u32,
}

/// A request that the only reader runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Alone {
    /// A tick has seen it.
    seen: bool,
    /// The reader.
    thread: i32,
}

/// What becomes of a message that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Its reader runs it.
    Run,
    /// Its reader runs it alone.
    RunAlone,
    /// Its reader runs it; a spare is to be woken, which reads instead.
    WakeSpare,
    /// A thread is to be started, which reads instead; then its reader runs it ([`Shift::started`]). If none can be:
    /// [`Shift::take_without_thread`].
    Start,
    /// Its reader goes on reading; it waits for a handler that ends. What must not wait - interrupts, forgets, whose
    /// handlers never block - its reader runs while it counts as reading.
    Leave,
}

/// What a thread does after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Read,
    Spare,
}

/// What a tick of the watch found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    /// Nothing to do.
    Go,
    /// A spare is to be woken: it reads now.
    WakeSpare,
    /// Nothing happens: the watch sleeps until it is woken by the next request.
    Sleep,
}

/// On whose processor a reader is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Several programs ask: wherever there is room.
    Nobody,
    /// Nothing is to be changed.
    AsBefore,
    /// The one program's.
    Caller {
        /// Who asks.
        thread: u32,
        /// The reader may be modest.
        modest: bool,
    },
}

/// The counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shift {
    max: usize,
    readers: usize,
    rhythm: Rhythm,
    /// Threads that live.
    pub total: usize,
    /// Threads that read or are about to.
    reading: usize,
    /// Threads that stand by.
    spares: usize,
    /// Spares told to read, that did not run yet. They are counted as reading.
    woken: usize,
    alone: Option<Alone>,
    /// There is a watch: requests may be run alone.
    watched: bool,
    watch_sleeps: bool,
    /// Ticks for which readers stay ready.
    eager: u32,
    /// Ticks since the last request.
    quiet: u32,
    /// Handlers that ran at the last tick, and those that ended since.
    ran: usize,
    ended: usize,
    caller: u32,
    turns: u32,
    /// Ticks since the caller's processor was looked up.
    followed: u32,
    /// Something was taken since the last tick.
    took: bool,
    /// The last tick found a request that nobody took.
    lies: bool,
    /// Ticks for which no reader is modest.
    proud: u32,
}

impl Shift {
    /// Nobody yet. `readers`: how many read when several programs ask.
    pub fn new(max: usize, readers: usize, rhythm: Rhythm) -> Shift {
        // Two, or a blocked handler would leave nobody to read.
        let max = max.max(2);
        Shift {
            max,
            readers: readers.clamp(1, max),
            rhythm,
            total: 0,
            reading: 0,
            spares: 0,
            woken: 0,
            alone: None,
            watched: false,
            watch_sleeps: false,
            eager: 0,
            quiet: 0,
            ran: 0,
            ended: 0,
            caller: 0,
            turns: 0,
            followed: 0,
            took: false,
            lies: false,
            proud: 0,
        }
    }

    /// The watch ticks from now on.
    pub fn watch(&mut self) {
        self.watched = true;
    }

    /// The watch ends: whoever runs alone has been dealt with by the end of the session.
    pub fn unwatch(&mut self) {
        self.watched = false;
    }

    /// A thread was started; it reads.
    pub fn started(&mut self) {
        self.total += 1;
        self.reading += 1;
    }

    /// A reader stops for good.
    pub fn stopped_reading(&mut self) {
        self.reading -= 1;
    }

    /// A thread was started that has something to run already.
    pub fn started_running(&mut self) {
        self.total += 1;
    }

    /// A handler is stuck: another thread may be.
    pub fn lend(&mut self) {
        self.max += 1;
    }

    /// It has come back.
    pub fn returned(&mut self) {
        self.max -= 1;
    }

    fn is_lone(&self) -> bool {
        self.watched && self.eager == 0
    }

    /// Whether the watch is to be woken before a request is run. The caller wakes it.
    pub fn rouses_watch(&mut self) -> bool {
        self.quiet = 0;
        std::mem::take(&mut self.watch_sleeps)
    }

    /// A reader has read a request. `brief`: its handler commonly waits for nothing; `full`: no more can be left.
    pub fn take(&mut self, thread: i32, caller: u32, brief: bool, full: bool) -> Take {
        self.took = true;
        if caller != 0 && caller != self.caller {
            self.caller = caller;
            self.turns = (self.turns + 1).min(self.rhythm.turns);
        }
        if self.reading > 1 {
            self.reading -= 1;
            Take::Run
        } else if brief && self.can_be_alone() {
            self.begin_alone(thread);
            Take::RunAlone
        } else if self.spares > 0 {
            // It takes our place among the readers.
            self.spares -= 1;
            self.woken += 1;
            Take::WakeSpare
        } else if self.total < self.max {
            Take::Start
        } else {
            self.take_without_thread(full)
        }
    }

    /// Whether the only reader may stop reading for a moment.
    fn can_be_alone(&self) -> bool {
        self.is_lone() && self.spares > 0 && self.reading == 1 && self.alone.is_none() && !self.watch_sleeps
    }

    fn begin_alone(&mut self, thread: i32) {
        self.reading -= 1;
        self.alone = Some(Alone { seen: false, thread });
    }

    /// As [`Shift::take`] that said `Start`, when that thread was started: it reads.
    pub fn take_for_started(&mut self) -> Take {
        self.reading -= 1;
        Take::Run
    }

    /// Whether the watch is to be woken by somebody.
    pub fn watch_sleeps(&self) -> bool {
        self.watch_sleeps
    }

    /// As [`Shift::take`], when no spare and no further thread can read.
    pub fn take_without_thread(&mut self, full: bool) -> Take {
        if full || self.total == 1 {
            self.reading -= 1;
            return Take::Run;
        }
        Take::Leave
    }

    /// A handler has ended, and no request waits for one.
    pub fn done(&mut self, thread: i32) -> Done {
        self.ended = (self.ended + 1).min(self.ran);
        let was_alone = self.alone.is_some_and(|alone| alone.thread == thread);
        if was_alone {
            self.alone = None;
        }
        let wanted = if self.is_lone() { 1 } else { self.readers };
        if self.reading < wanted {
            self.reading += 1;
            return Done::Read;
        }
        self.spares += 1;
        Done::Spare
    }

    /// Whether a spare was told to read. It does then.
    pub fn is_called(&mut self) -> bool {
        let called = self.woken > 0;
        self.woken -= usize::from(called);
        called
    }

    /// Whether one of the spares is to go if none of them is needed for long. One stays, to stand by.
    pub fn has_spares_to_go(&self) -> bool {
        self.spares > 1
    }

    /// A spare has waited long; true: it ends.
    pub fn spare_may_go(&mut self) -> bool {
        let goes = self.has_spares_to_go();
        self.spares -= usize::from(goes);
        goes
    }

    /// A spare ends with the session.
    pub fn spare_goes(&mut self) {
        self.spares -= 1;
    }

    /// Whether a request that is run alone takes longer than a tick already.
    pub fn is_late(&self) -> bool {
        self.alone.is_some_and(|alone| alone.seen)
    }

    /// Before a tick: whether a request waits to be read. True: who should have read it is to be raised.
    pub fn is_held_up(&mut self, waits: bool) -> bool {
        let took = std::mem::take(&mut self.took);
        let lies = waits && !took;
        let held_up = lies && std::mem::replace(&mut self.lies, lies);
        self.lies = lies;
        self.proud = if held_up { self.rhythm.proud } else { self.proud.saturating_sub(1) };
        if held_up {
            self.eager = self.rhythm.eager;
        }
        held_up
    }

    /// The watch looks; a request `waits` to be read, or may.
    pub fn tick(&mut self, waits: bool) -> Tick {
        self.quiet = (self.quiet + 1).min(self.rhythm.quiet + 1);
        self.followed = (self.followed + 1).min(self.rhythm.follow);
        // One of those that ran at the last tick still does, or as many others took as long together.
        let slow = waits && self.ended < self.ran;
        let takes_turns = std::mem::take(&mut self.turns) >= self.rhythm.turns;
        self.eager = if slow || takes_turns { self.rhythm.eager } else { self.eager.saturating_sub(1) };
        self.ran = self.total - self.reading - self.spares;
        self.ended = 0;
        match &mut self.alone {
            Some(alone) if alone.seen && !waits => Tick::Go,
            Some(alone) if alone.seen => {
                self.alone = None;
                self.eager = self.rhythm.eager;
                if self.reading > 0 || self.spares == 0 {
                    // Another handler ended meanwhile; and what it read then may be one too many (S3).
                    return Tick::Go;
                }
                self.reading += 1;
                self.spares -= 1;
                self.woken += 1;
                Tick::WakeSpare
            }
            Some(alone) => {
                alone.seen = true;
                Tick::Go
            }
            None if self.quiet > self.rhythm.quiet => {
                (self.watch_sleeps, self.eager, self.ran) = (true, 0, 0);
                Tick::Sleep
            }
            None => Tick::Go,
        }
    }

    /// Who asks, once in a while, if it is one program alone: time to look on which processor.
    pub fn follows(&mut self) -> Follow {
        if !self.is_lone() {
            return Follow::Nobody;
        }
        if self.followed < self.rhythm.follow || self.caller == 0 {
            return Follow::AsBefore;
        }
        self.followed = 0;
        Follow::Caller { thread: self.caller, modest: self.proud == 0 }
    }
}

#[cfg(test)]
#[path = "shift_tests.rs"]
mod tests;
