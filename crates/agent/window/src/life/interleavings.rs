//! Every interleaving of small stories about entries, by `loom`: tests/suites/interleavings.sh
//!
//! What an entry holds is no atomic: a story also fails if anybody writes it while another looks.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32 as Count;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::fence;

/// In the place of the entry's address, and of none.
const HERE: usize = 8;
const NOTHING: usize = 0;
/// What a word says that counts reads.
const COUNTING: usize = 1;

/// What the first word leads to holds this, what is adopted later that, what is empty nothing.
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const EMPTY: u32 = 0;

/// Two words and one entry, as the tables of the preload library have more of them.
struct Table {
    words: [Word; 2],
    life: Life,
    holds: UnsafeCell<u32>,
    emptied: Count,
    /// What the descriptor of the first word means.
    file: AtomicU32,
}

// SAFETY: that `holds` is written by one thread alone, when nobody looks, is what the stories are about.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// The first word says `first`, and the entry is free.
    fn saying(first: usize) -> Table {
        Table {
            words: [Word::new(first), Word::new(NOTHING)],
            life: Life::new(),
            holds: UnsafeCell::new(EMPTY),
            emptied: Count::new(0),
            file: AtomicU32::new(FIRST),
        }
    }

    /// The first word leads to the entry.
    fn new() -> Arc<Table> {
        let table = Table::saying(NOTHING);
        assert!(table.adopt(0, FIRST));
        Arc::new(table)
    }

    fn put(&self, what: u32) {
        // SAFETY: `loom` watches who else is there.
        self.holds.with_mut(|holds| unsafe { *holds = what });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.holds.with(|holds| unsafe { *holds })
    }

    fn empty(&self) {
        assert_ne!(self.get(), EMPTY, "emptied twice");
        self.put(EMPTY);
        self.emptied.fetch_add(1, Relaxed);
    }

    fn emptied(&self) -> u32 {
        self.emptied.load(Relaxed)
    }

    /// A descriptor is opened. False: the entry is not free.
    fn adopt(&self, word: usize, what: u32) -> bool {
        let free = self.life.occupy();
        if free {
            assert_eq!(self.get(), EMPTY);
            self.put(what);
            assert_eq!(self.words[word].replace(HERE), NOTHING);
        }
        free
    }

    /// It is closed.
    fn forget(&self, word: usize) {
        if self.words[word].replace(NOTHING) == HERE {
            self.life.leave(|| self.empty());
        }
    }

    /// A read has the file mapped, if nobody else has meanwhile.
    fn map(&self, question: usize) {
        let ask = || {
            let file = self.file.load(Relaxed);
            let free = self.life.occupy();
            if free {
                self.put(file);
            }
            (if free { HERE } else { COUNTING }, free)
        };
        if let Some((false, true)) = self.words[0].ask(COUNTING, question, ask) {
            self.life.leave(|| self.empty());
        }
    }

    /// A call on it: what it saw, if it entered.
    fn call(&self, word: usize) -> Option<u32> {
        let found = self.words[word].look();
        if found != HERE || !self.life.enter(&self.words[word], found, || self.empty()) {
            return None;
        }
        let seen = self.get();
        self.life.exit(|| self.empty());
        Some(seen)
    }
}

fn model(story: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(story);
}

type Ways<T> = Mutex<BTreeSet<T>>;

fn went<T: Ord>(ways: &Ways<T>, way: T) {
    ways.lock().unwrap().insert(way);
}

#[test]
fn an_entry_is_emptied_once_when_neither_its_word_nor_a_call_uses_it() {
    static WAYS: Ways<[Option<u32>; 2]> = Mutex::new(BTreeSet::new());
    model(|| {
        let table = Table::new();
        let calls = [0, 1].map(|_| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.call(0))
        });
        table.forget(0);
        let seen = calls.map(|call| call.join().unwrap());
        assert!(seen.iter().flatten().all(|seen| *seen == FIRST), "{seen:?}");
        assert_eq!((table.emptied(), table.life.entered()), (1, 0));
        assert!(table.life.occupy(), "it is free");
        went(&WAYS, seen);
    });
    assert_eq!(WAYS.lock().unwrap().len(), 4, "not all was tried");
}

#[test]
fn an_entry_is_given_to_another_word_only_when_nobody_looks_at_it() {
    // What the call saw, and whether the entry was free at once.
    static WAYS: Ways<(Option<u32>, bool)> = Mutex::new(BTreeSet::new());
    model(|| {
        let table = Table::new();
        let other = Arc::clone(&table);
        let call = thread::spawn(move || other.call(0));
        table.forget(0);
        let adopted = table.adopt(1, SECOND);
        let seen = call.join().unwrap();
        assert!([None, Some(FIRST)].contains(&seen), "by the first word it found {seen:?}");
        assert_eq!(table.emptied(), 1);
        assert_eq!(table.call(1), adopted.then_some(SECOND), "a call that came late emptied it");
        went(&WAYS, (seen, adopted));
    });
    assert_eq!(WAYS.lock().unwrap().len(), 4, "not all was tried");
}

#[test]
fn a_word_may_lead_to_the_same_entry_again_while_a_call_comes_by_it() {
    static WAYS: Ways<(Option<u32>, bool)> = Mutex::new(BTreeSet::new());
    model(|| {
        let table = Table::new();
        let other = Arc::clone(&table);
        let call = thread::spawn(move || other.call(0));
        table.forget(0);
        let adopted = table.adopt(0, SECOND);
        table.forget(0);
        let seen = call.join().unwrap();
        assert_ne!(seen, Some(EMPTY));
        assert_eq!(table.emptied(), 1 + u32::from(adopted));
        went(&WAYS, (seen, adopted));
    });
    let all = [(None, true), (None, false), (Some(FIRST), true), (Some(FIRST), false), (Some(SECOND), true)];
    assert!(all.iter().all(|way| WAYS.lock().unwrap().contains(way)), "not all was tried");
}

#[test]
fn what_was_mapped_for_a_descriptor_that_was_closed_meanwhile_is_nobodys() {
    static WAYS: Ways<[Option<u32>; 2]> = Mutex::new(BTreeSet::new());
    model(|| {
        let table = Arc::new(Table::saying(COUNTING));
        let other = Arc::clone(&table);
        let reads = thread::spawn(move || {
            other.map(COUNTING + 2);
            other.call(0)
        });
        // It is closed, and the number opened again.
        table.forget(0);
        table.file.store(SECOND, Relaxed);
        assert_eq!(table.words[0].replace(COUNTING), NOTHING);
        table.map(COUNTING + 4);
        let seen = table.call(0);
        assert!([None, Some(SECOND)].contains(&seen), "read of the second file was {seen:?}");
        went(&WAYS, [reads.join().unwrap(), seen]);
        let leads = table.words[0].glance() == HERE;
        assert_eq!(table.life.is_occupied(), leads, "a mapping stays to which nothing leads");
    });
    let ways = WAYS.lock().unwrap();
    let (none, first, second) = (None, Some(FIRST), Some(SECOND));
    let all = [[none, none], [none, second], [first, none], [first, second], [second, none], [second, second]];
    assert!(all.iter().all(|way| ways.contains(way)), "not all was tried: {ways:?}");
}

/// How the handler of faults is taken away (`faults::end` in the preload library): when nobody copies under its protection.
#[test]
fn who_finds_that_nobody_has_entered_is_seen_by_all_who_enter_later() {
    const THERE: u32 = 0;
    const ENDING: u32 = 1;
    // Whether the call copied, and whether nobody was found.
    static WAYS: Ways<(bool, bool)> = Mutex::new(BTreeSet::new());
    model(|| {
        let table = Table::new();
        let both = Arc::new((AtomicU32::new(THERE), UnsafeCell::new(true)));
        let (others, table_of_call) = (Arc::clone(&both), Arc::clone(&table));
        let call = thread::spawn(move || {
            let (handler, is_there) = &*others;
            assert!(table_of_call.life.enter(&table_of_call.words[0], HERE, || ()));
            // `loom` knows the one order of all that is SeqCst, here of the addition and of this load, by fences alone: the story is
            // about the steps, and no story sees that the accesses themselves must be SeqCst.
            fence(SeqCst);
            let may_copy = handler.load(SeqCst) == THERE;
            if may_copy {
                // SAFETY: `loom` watches who else is there.
                assert!(is_there.with(|is_there| unsafe { *is_there }));
            }
            table_of_call.life.exit(|| ());
            may_copy
        });
        let (handler, is_there) = &*both;
        assert!(handler.compare_exchange(THERE, ENDING, SeqCst, SeqCst).is_ok());
        fence(SeqCst);
        let nobody = table.life.entered() == 0;
        if nobody {
            // SAFETY: as above.
            is_there.with_mut(|is_there| unsafe { *is_there = false });
        }
        went(&WAYS, (call.join().unwrap(), nobody));
    });
    assert_eq!(WAYS.lock().unwrap().len(), 4, "not all was tried");
}
