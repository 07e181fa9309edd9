//! Shift: decides which threads read and which run. Only the book-keeping of the session's threads, without the
//! threads.
//!
//! Waking another processor costs more than a short request. So as long as one program asks and handlers are short, one
//! thread reads, runs the request *alone*, and reads again. [`Shift::take`] and [`Shift::done`] stand around each
//! request. The watch (in `pool.rs`) calls [`Shift::tick`] at a steady rhythm. Each call is one step under one lock.
//!
//! S1. While the session lives, some thread is reading or about to. Otherwise the reader runs a request alone, a spare
//! stands by and the watch ticks.
//! S2. From its second tick within one request run alone, the watch makes the spare a reader if another request waits.
//! So no request waits longer than two ticks for a blocked handler. For some time afterwards readers stay ready, as if
//! all handlers were slow. A slow handler has no such effect while no request waits. A handler that only lacks a
//! processor has until the fifth tick at which a request waits ([`Rhythm::patience`] and one): the program that it has
//! answered computes there, and another reader would be slower. S4 may raise it before.
//! S3. Neither S1 nor S2 needs to hold while no further thread is allowed and the maximum of requests waits
//! (`Take::Run` with `full`).
//! S4. If a request waits and nothing is taken for two ticks, other threads on the reader's processor hold it up. The
//! reader is then raised, and not modest for a long time (`follow.rs`).

/// Numbers of ticks for the decisions of the watch.
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
    /// Ticks at which requests may wait for a handler that only lacks a processor.
    pub patience: u32,
}

/// Request that the only reader runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Alone {
    /// Whether a tick has seen it.
    seen: bool,
    /// Thread id of the reader.
    thread: i32,
}

/// Decision about a message that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    Run,
    /// The reader runs it alone.
    RunAlone,
    /// The reader runs it. A spare must be woken, which reads instead.
    WakeSpare,
    /// A thread must be started ([`Shift::started`]), which reads instead; then the reader runs the message. If no
    /// thread can be started: [`Shift::take_without_thread`].
    Start,
    /// The reader goes on reading; the message waits for a handler that ends. Interrupts and forgets must not wait, and
    /// their handlers never block. The reader runs those while it counts as reading.
    Leave,
}

/// Next role of a thread after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Read,
    Spare,
}

/// Result of a tick of the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    Go,
    /// A spare must be woken, which reads now.
    WakeSpare,
    /// No requests come: the watch sleeps until the next request wakes it.
    Sleep,
}

/// Processor on which a reader should run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Any processor, because several programs ask.
    Nobody,
    /// Unchanged.
    AsBefore,
    /// Processor of the only program that asks.
    Caller {
        thread: u32,
        /// Whether the reader may be modest.
        modest: bool,
    },
}

/// Counts of threads, and the state of the decisions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shift {
    max: usize,
    readers: usize,
    rhythm: Rhythm,
    pub total: usize,
    /// Threads that read or are about to.
    reading: usize,
    /// Threads that stand by.
    spares: usize,
    /// Spares that were told to read and have not run yet. They count as reading.
    woken: usize,
    alone: Option<Alone>,
    /// Whether there is a watch, so that requests may be run alone.
    watched: bool,
    watch_sleeps: bool,
    /// Ticks left for which readers stay ready.
    eager: u32,
    /// Ticks since the last request.
    quiet: u32,
    /// Handlers that ran at the last tick. The next field is how many of them, at most, ended since.
    ran: usize,
    ended: usize,
    caller: u32,
    turns: u32,
    /// Ticks since the caller's processor was looked up.
    followed: u32,
    /// Ticks until now at which a request waited.
    waited: u32,
    /// Whether a message was taken since the last tick.
    took: bool,
    /// Whether the last tick found a request that nobody took.
    lies: bool,
    /// Ticks left for which no reader is modest.
    proud: u32,
}

impl Shift {
    /// Makes an empty shift. `readers`: number of readers when several programs ask.
    pub fn new(max: usize, readers: usize, rhythm: Rhythm) -> Shift {
        // At least two, or a blocked handler would leave nobody to read.
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
            waited: 0,
            took: false,
            lies: false,
            proud: 0,
        }
    }

    /// Notes that the watch ticks from now on.
    pub fn watch(&mut self) {
        self.watched = true;
    }

    /// Notes that the watch has ended. The end of the session handles a thread that runs alone.
    pub fn unwatch(&mut self) {
        self.watched = false;
    }

    /// Counts a thread that was started and reads.
    pub fn started(&mut self) {
        self.total += 1;
        self.reading += 1;
    }

    /// Counts out a reader that stops for good.
    pub fn stopped_reading(&mut self) {
        self.reading -= 1;
    }

    /// Counts a thread that was started with a request to run.
    pub fn started_running(&mut self) {
        self.total += 1;
    }

    /// Allows one more thread, because a handler is stuck.
    pub fn lend(&mut self) {
        self.max += 1;
    }

    /// Takes that allowance back, because the stuck handler has returned.
    pub fn returned(&mut self) {
        self.max -= 1;
    }

    fn is_lone(&self) -> bool {
        self.watched && self.eager == 0
    }

    /// Returns whether the caller must wake the watch before a request is run.
    pub fn rouses_watch(&mut self) -> bool {
        self.quiet = 0;
        std::mem::take(&mut self.watch_sleeps)
    }

    /// Decides about a request that a reader has read. `brief`: its handler usually waits for nothing. `full`: no more
    /// requests can be left.
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
            // The spare takes this reader's place.
            self.spares -= 1;
            self.woken += 1;
            Take::WakeSpare
        } else if self.total < self.max {
            Take::Start
        } else {
            self.take_without_thread(full)
        }
    }

    /// Returns whether the only reader may stop reading for a moment.
    fn can_be_alone(&self) -> bool {
        self.is_lone() && self.spares > 0 && self.reading == 1 && self.alone.is_none() && !self.watch_sleeps
    }

    fn begin_alone(&mut self, thread: i32) {
        self.reading -= 1;
        self.alone = Some(Alone { seen: false, thread });
    }

    /// Completes a [`Shift::take`] that returned `Start`, when that thread was started and reads.
    pub fn take_for_started(&mut self) -> Take {
        self.reading -= 1;
        Take::Run
    }

    /// Returns whether the watch sleeps, so that it must be woken.
    pub fn watch_sleeps(&self) -> bool {
        self.watch_sleeps
    }

    /// Completes a [`Shift::take`] when no spare and no further thread can read.
    pub fn take_without_thread(&mut self, full: bool) -> Take {
        if full || self.total == 1 {
            self.reading -= 1;
            return Take::Run;
        }
        Take::Leave
    }

    /// Decides the next role of a thread whose handler has ended, when no request waits for a thread.
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

    /// Returns whether a spare was told to read. The calling spare must then read.
    pub fn is_called(&mut self) -> bool {
        let called = self.woken > 0;
        self.woken -= usize::from(called);
        called
    }

    /// Returns whether a spare must end if none is needed for long. One stays to stand by.
    pub fn has_spares_to_go(&self) -> bool {
        self.spares > 1
    }

    /// Returns whether a spare that has waited long must end.
    pub fn spare_may_go(&mut self) -> bool {
        let goes = self.has_spares_to_go();
        self.spares -= usize::from(goes);
        goes
    }

    /// Counts out a spare that ends with the session.
    pub fn spare_goes(&mut self) {
        self.spares -= 1;
    }

    /// Returns the reader that runs a request alone, if the request has taken longer than a tick already.
    pub fn late(&self) -> Option<i32> {
        self.alone.filter(|alone| alone.seen).map(|alone| alone.thread)
    }

    /// Returns whether the reader is held up and must be raised. To be called before a tick; `waits`: a request waits
    /// to be read.
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

    /// Makes one tick of the watch. `waits`: a request waits to be read, or may wait. `ready`: the reader that is
    /// [`Shift::late`] could run if it had a processor.
    pub fn tick(&mut self, waits: bool, ready: bool) -> Tick {
        self.quiet = (self.quiet + 1).min(self.rhythm.quiet + 1);
        self.followed = (self.followed + 1).min(self.rhythm.follow);
        self.waited = if waits { (self.waited + 1).min(self.rhythm.patience + 1) } else { 0 };
        let blocked = waits && !(ready && self.waited <= self.rhythm.patience);
        // A handler that ran at the last tick still runs, or others took as long together.
        let slow = blocked && self.ended < self.ran;
        let takes_turns = std::mem::take(&mut self.turns) >= self.rhythm.turns;
        self.eager = if slow || takes_turns { self.rhythm.eager } else { self.eager.saturating_sub(1) };
        self.ran = self.total - self.reading - self.spares;
        self.ended = 0;
        match &mut self.alone {
            Some(alone) if alone.seen && blocked => {
                self.alone = None;
                self.eager = self.rhythm.eager;
                if self.reading > 0 || self.spares == 0 {
                    // Another handler ended meanwhile. The request that it then read may be the one too many of S3.
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

    /// Returns now and then the caller to follow, if only one program asks. That is the time to look up its processor.
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
