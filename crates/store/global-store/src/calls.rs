//! Which threads are in a call to a store, and since when.
//!
//! A store that hangs holds its callers in the kernel, where no signal reaches them. All that can be done is to know of
//! them: to answer those who wait for them, and to do nothing more for who was answered so. Each thread has a slot that
//! only it writes, but for `given_up`; whoever looks at slots sees each value as it was a moment ago.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What a call does.
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

/// For whom a thread works: a request of one of several askers. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    /// Whose; minted by [`Store::mint`].
    pub asker: u64,
    /// Which of his.
    pub number: u64,
}

/// A thread that works for somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Working {
    /// The call it is in; `None`: it is in none, and may wait for who is.
    pub call: Option<&'static str>,
    /// Since it went into that call, or came out of the last one.
    pub since: Duration,
}

/// A call that has not come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutstandingCall {
    /// What it does.
    pub call: &'static str,
    /// For how long.
    pub since: Duration,
    /// What the one who asked calls the file, where he has said so.
    pub label: Option<Arc<str>>,
}

#[derive(Default)]
struct Slot {
    /// The store it is in a call to; 0: none.
    store: AtomicU64,
    call: AtomicU8,
    /// When that changed last, in milliseconds of [`now_ms`].
    moved_ms: AtomicU64,
    asker: AtomicU64,
    number: AtomicU64,
    /// The number of the errand that was answered by somebody else.
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

/// Ends a call however it ends.
struct End<'a>(&'a Slot);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.moved_ms.store(now_ms(), Ordering::Relaxed);
        self.0.store.store(0, Ordering::Release);
    }
}

impl Store {
    /// A number that nobody else in this process has.
    pub fn mint() -> u64 {
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn new() -> Store {
        Store(Store::mint())
    }

    /// Runs something that calls the store. Within another such call it is a part of that.
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

    /// The same for what changes the store: `EIO`, and nothing done, for an errand that was given up.
    pub fn change<T, E: From<rustix::io::Errno>>(
        self,
        call: StoreCall,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if is_given_up() { Err(rustix::io::Errno::IO.into()) } else { self.call(call, run) }
    }

    /// The calls that have not come back, the oldest first.
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

    /// For how long the store has not answered the call that waits longest; zero if none waits.
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
    /// This thread works for it until [`RequestId::end`].
    pub fn begin(self) {
        MINE.with(|slot| {
            slot.moved_ms.store(now_ms(), Ordering::Relaxed);
            slot.asker.store(self.asker, Ordering::Relaxed);
            // Numbers are an asker's own: another's may have been given up here.
            slot.given_up.store(0, Ordering::Relaxed);
            slot.number.store(self.number, Ordering::Release);
        });
    }

    /// This thread works for nobody.
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

    /// How far it is; `None`: no thread works for it.
    pub fn working(self) -> Option<Working> {
        self.with(|slot| {
            let (call, moved_ms) = (slot.call.load(Ordering::Relaxed), slot.moved_ms.load(Ordering::Relaxed));
            let inside = slot.store.load(Ordering::Acquire) != 0;
            Working { call: inside.then(|| StoreCall::name(call)), since: since(moved_ms) }
        })
    }

    /// Whoever asked has been answered: the thread that works for it changes nothing more.
    pub fn give_up(self) {
        self.with(|slot| slot.given_up.store(self.number, Ordering::Release));
    }

    /// What the file is called, for people.
    pub fn label(self, label: &str) {
        self.with(|slot| {
            *slot.label.lock() = Some(label.into());
            slot.labelled.store(true, Ordering::Relaxed);
        });
    }
}

/// Whether who asked for what this thread does has been answered by somebody else.
pub fn is_given_up() -> bool {
    MINE.with(|slot| {
        let number = slot.number.load(Ordering::Relaxed);
        number != 0 && slot.given_up.load(Ordering::Acquire) == number
    })
}

/// `EIO` for an errand that was given up: before something is begun that could not be taken back.
pub fn still_wanted() -> io::Result<()> {
    if is_given_up() { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test] // S51
    fn a_call_that_does_not_come_back_is_seen_and_what_was_given_up_changes_nothing() {
        let store = Store::new();
        let errand = RequestId { asker: Store::mint(), number: 2 };
        let (inside, entered) = mpsc::channel();
        let (go, on) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            errand.begin();
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
        assert_eq!(errand.working().unwrap().call, Some("lookup"));
        assert_eq!(store.outstanding().len(), 1);
        assert!(Store::new().outstanding().is_empty(), "another store's");
        errand.label("a/file");
        assert_eq!(store.outstanding()[0].label.as_deref(), Some("a/file"));
        errand.give_up();
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), (Err(rustix::io::Errno::IO), false, Ok(())));
        assert!(store.outstanding().is_empty() && errand.working().is_none());
        assert_eq!(store.silence(), Duration::ZERO);
    }

    #[test] // S51
    fn an_errand_that_is_over_is_not_given_up() {
        let errand = RequestId { asker: Store::mint(), number: 4 };
        errand.begin();
        assert!(errand.working().is_some_and(|working| working.call.is_none()));
        RequestId::end();
        errand.give_up();
        RequestId { number: 6, ..errand }.begin();
        assert!(!is_given_up() && still_wanted().is_ok());
        let given_up = RequestId { number: 8, ..errand };
        given_up.begin();
        given_up.give_up();
        assert!(is_given_up());
        RequestId { asker: Store::mint(), ..given_up }.begin();
        assert!(!is_given_up(), "another asker's of the same number");
        RequestId::end();
    }
}
