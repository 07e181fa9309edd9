//! Registry of threads that are in a call to a store, and since when.
//!
//! A store that hangs blocks its callers in the kernel, where no signal reaches them. We can only know which calls
//! hang. Requests that wait for such a call are then answered with an error, and the blocked thread changes nothing
//! more for them.
//!
//! Each thread has a slot. Only the thread itself writes the slot, except for `given_up`. Readers see each value as it
//! was a moment ago.

// The table of calls is the process's, and shows real time to people: it outlives every story of a test.
#![cfg_attr(not(test), expect(clippy::disallowed_types, reason = "a static that stories share"))]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Kind of a call to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum StoreCall {
    None,
    Lookup,
    Attributes,
    Change,
    Create,
    Remove,
    Rename,
    Open,
    Read,
    Write,
    Sync,
    List,
    Lock,
}

impl StoreCall {
    const NAMES: [&str; 13] = [
        "",
        "lookup",
        "attributes",
        "change",
        "create",
        "remove",
        "rename",
        "open",
        "read",
        "write",
        "sync",
        "list",
        "lock",
    ];

    fn name(number: u8) -> &'static str {
        StoreCall::NAMES.get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// One store among those of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store(u64);

/// One request that threads work on: the requester and the request number. Numbers are never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    /// Number of the requester, minted by [`Store::mint`].
    pub asker: u64,
    /// Number of the request, unique for the requester.
    pub number: u64,
}

/// State of the thread that works on an errand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Working {
    /// Name of the store call in progress. `None`: the thread is outside any call, perhaps waiting for another thread's
    /// call.
    pub call: Option<&'static str>,
    /// Time since that call began, or since the last one ended.
    pub since: Duration,
}

/// A call that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutstandingCall {
    /// Name of the call.
    pub call: &'static str,
    /// Time since the call began.
    pub since: Duration,
    /// Name of the file as the requester sees it, if set with [`RequestId::label`].
    pub label: Option<Arc<str>>,
}

#[derive(Default)]
struct Slot {
    /// Number of the store whose call is in progress; 0: none.
    store: AtomicU64,
    call: AtomicU8,
    /// Time of the last change of `store`, in milliseconds of [`now_ms`].
    moved_ms: AtomicU64,
    asker: AtomicU64,
    number: AtomicU64,
    /// Number of the errand that was given up, because the requester has already been answered.
    given_up: AtomicU64,
    labelled: AtomicBool,
    label: Mutex<Option<Arc<str>>>,
}

static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());
static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MINE: Arc<Slot> = {
        let slot = Arc::new(Slot::default());
        let mut slots = SLOTS.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        slot
    };
}

fn now_ms() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed().as_millis() as u64
}

fn since(then_ms: u64) -> Duration {
    Duration::from_millis(now_ms().saturating_sub(then_ms))
}

/// Guard that marks a call as ended, even if the call panics.
struct End<'a>(&'a Slot);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.moved_ms.store(now_ms(), Ordering::Relaxed);
        self.0.store.store(0, Ordering::Release);
    }
}

impl Store {
    /// Returns a number that is unique in this process.
    pub fn mint() -> u64 {
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Registers a store. Calls to it are told apart from those to others.
    pub fn register() -> Store {
        Store(Store::mint())
    }

    /// Runs a function that calls the store. Inside another call this is part of the outer call.
    pub fn call<T>(self, call: StoreCall, run: impl FnOnce() -> T) -> T {
        MINE.with(|slot| {
            if slot.store.load(Ordering::Relaxed) != 0 {
                return run();
            }
            slot.call.store(call as u8, Ordering::Relaxed);
            slot.moved_ms.store(now_ms(), Ordering::Relaxed);
            slot.store.store(self.0, Ordering::Release);
            let _end = End(slot);
            run()
        })
    }

    /// Runs a function that changes the store, like [`Store::call`]. Errors: `EIO`, without running it, if the request
    /// was given up.
    pub fn change<T, E: From<rustix::io::Errno>>(
        self,
        call: StoreCall,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if is_given_up() { Err(rustix::io::Errno::IO.into()) } else { self.call(call, run) }
    }

    /// Returns the calls that have not returned, oldest first.
    pub fn outstanding(self) -> Vec<OutstandingCall> {
        let mut found = Vec::new();
        each(|slot| {
            let (call, moved_ms) = (slot.call.load(Ordering::Relaxed), slot.moved_ms.load(Ordering::Relaxed));
            if slot.store.load(Ordering::Acquire) == self.0 {
                let label = slot.label.lock().clone();
                found.push(OutstandingCall { call: StoreCall::name(call), since: since(moved_ms), label });
            }
        });
        found.sort_by_key(|one| std::cmp::Reverse(one.since));
        found
    }

    /// Returns the age of the oldest call that has not returned; zero if there is none.
    pub fn silence(self) -> Duration {
        let mut longest = Duration::ZERO;
        each(|slot| {
            let moved_ms = slot.moved_ms.load(Ordering::Relaxed);
            if slot.store.load(Ordering::Acquire) == self.0 {
                longest = longest.max(since(moved_ms));
            }
        });
        longest
    }
}

fn each(mut look: impl FnMut(&Slot)) {
    let slots: Vec<_> = SLOTS.lock().iter().filter_map(Weak::upgrade).collect();
    slots.iter().for_each(|slot| look(slot));
}

impl RequestId {
    /// Assigns this thread to the errand until [`RequestId::end`].
    pub fn begin(self) {
        MINE.with(|slot| {
            slot.moved_ms.store(now_ms(), Ordering::Relaxed);
            slot.asker.store(self.asker, Ordering::Relaxed);
            // Numbers are unique only within a requester, so a given-up number of another requester must not match.
            slot.given_up.store(0, Ordering::Relaxed);
            slot.number.store(self.number, Ordering::Release);
        });
    }

    /// Ends the assignment of this thread.
    pub fn end() {
        MINE.with(|slot| {
            slot.number.store(0, Ordering::Release);
            if slot.labelled.swap(false, Ordering::Relaxed) {
                *slot.label.lock() = None;
            }
        });
    }

    fn with<T>(self, look: impl FnOnce(&Slot) -> T) -> Option<T> {
        let slots = SLOTS.lock();
        let mut slots = slots.iter().filter_map(Weak::upgrade);
        let mine = |slot: &Arc<Slot>| {
            slot.number.load(Ordering::Acquire) == self.number && slot.asker.load(Ordering::Relaxed) == self.asker
        };
        slots.find(mine).map(|slot| look(&slot))
    }

    /// Returns the state of the thread that works on the errand; `None`: no thread does.
    pub fn working(self) -> Option<Working> {
        self.with(|slot| {
            let (call, moved_ms) = (slot.call.load(Ordering::Relaxed), slot.moved_ms.load(Ordering::Relaxed));
            let inside = slot.store.load(Ordering::Acquire) != 0;
            Working { call: inside.then(|| StoreCall::name(call)), since: since(moved_ms) }
        })
    }

    /// Marks the errand as given up after the requester was answered. The working thread then changes nothing more.
    pub fn give_up(self) {
        self.with(|slot| slot.given_up.store(self.number, Ordering::Release));
    }

    /// Sets the name of the file, for messages.
    pub fn label(self, label: &str) {
        self.with(|slot| {
            *slot.label.lock() = Some(label.into());
            slot.labelled.store(true, Ordering::Relaxed);
        });
    }
}

/// Returns whether the errand of this thread was given up.
pub fn is_given_up() -> bool {
    MINE.with(|slot| {
        let number = slot.number.load(Ordering::Relaxed);
        number != 0 && slot.given_up.load(Ordering::Acquire) == number
    })
}

/// Returns `EIO` if the errand of this thread was given up. Call this before a step that cannot be undone.
pub fn still_wanted() -> io::Result<()> {
    if is_given_up() { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test] // S51
    fn a_call_that_does_not_come_back_is_seen_and_what_was_given_up_changes_nothing() {
        let store = Store::register();
        let request = RequestId { asker: Store::mint(), number: 2 };
        let (inside, entered) = mpsc::channel();
        let (go, on) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            request.begin();
            store.call(StoreCall::Lookup, || {
                inside.send(()).unwrap();
                on.recv().unwrap();
            });
            let mut changed = false;
            let refused = store.change(StoreCall::Remove, || {
                changed = true;
                rustix::io::Result::Ok(())
            });
            RequestId::end();
            let after = store.change(StoreCall::Remove, || rustix::io::Result::Ok(()));
            (refused, changed, after)
        });
        entered.recv().unwrap();
        assert_eq!(request.working().unwrap().call, Some("lookup"));
        assert_eq!(store.outstanding().len(), 1);
        assert!(Store::register().outstanding().is_empty(), "another store's");
        request.label("a/file");
        assert_eq!(store.outstanding()[0].label.as_deref(), Some("a/file"));
        request.give_up();
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), (Err(rustix::io::Errno::IO), false, Ok(())));
        assert!(store.outstanding().is_empty() && request.working().is_none());
        assert_eq!(store.silence(), Duration::ZERO);
    }

    #[test] // S51
    fn an_errand_that_is_over_is_not_given_up() {
        let request = RequestId { asker: Store::mint(), number: 4 };
        request.begin();
        assert!(request.working().is_some_and(|working| working.call.is_none()));
        RequestId::end();
        request.give_up();
        RequestId { number: 6, ..request }.begin();
        assert!(!is_given_up() && still_wanted().is_ok());
        let given_up = RequestId { number: 8, ..request };
        given_up.begin();
        given_up.give_up();
        assert!(is_given_up());
        RequestId { asker: Store::mint(), ..given_up }.begin();
        assert!(!is_given_up(), "another asker's of the same number");
        RequestId::end();
    }
}
