//! Every interleaving of small stories about entries, by `loom`: tests/suites/interleavings.sh
//!
//! The value in an entry is not an atomic: a story also fails if a thread writes it while another looks.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32 as Count;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

/// Stands for the entry's address, and for none.
const HERE: usize = 8;
const NOTHING: usize = 0;

/// Values of the entry that the first word leads to, and of the entry adopted later. The next one is that of an empty
/// entry.
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const EMPTY: u32 = 0;

/// Two words and one entry. The tables of the preload library have more of both.
struct Table {
    words: [Word; 2],
    entry_use: EntryUse,
    holds: UnsafeCell<u32>,
    emptied: Count,
}

// SAFETY: the stories check that `holds` is written by one thread only, when nobody looks.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// Makes a table whose first word leads to the entry.
    fn new() -> Arc<Table> {
        let table = Table {
            words: [Word::new(NOTHING), Word::new(NOTHING)],
            entry_use: EntryUse::new(),
            holds: UnsafeCell::new(EMPTY),
            emptied: Count::new(0),
        };
        assert!(table.adopt(0, FIRST));
        Arc::new(table)
    }

    fn put(&self, what: u32) {
        // SAFETY: `loom` checks who else accesses it.
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

    /// Opens a descriptor. Returns false if the entry is not free.
    fn adopt(&self, word: usize, what: u32) -> bool {
        let free = self.entry_use.occupy();
        if free {
            assert_eq!(self.get(), EMPTY);
            self.put(what);
            assert_eq!(self.words[word].replace(HERE), NOTHING);
        }
        free
    }

    /// Closes the descriptor.
    fn forget(&self, word: usize) {
        if self.words[word].replace(NOTHING) == HERE {
            self.entry_use.leave(|| self.empty());
        }
    }

    /// Makes a call on the descriptor. Returns the value that it saw, if it entered.
    fn call(&self, word: usize) -> Option<u32> {
        let found = self.words[word].look();
        if found != HERE || !self.entry_use.enter(&self.words[word], found, || self.empty()) {
            return None;
        }
        let seen = self.get();
        self.entry_use.exit(|| self.empty());
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
        assert_eq!((table.emptied(), table.entry_use.entered()), (1, 0));
        assert!(table.entry_use.occupy(), "it is free");
        went(&WAYS, seen);
    });
    assert_eq!(WAYS.lock().unwrap().len(), 4, "not all was tried");
}

#[test]
fn an_entry_is_given_to_another_word_only_when_nobody_looks_at_it() {
    // Value that the call saw, and whether the entry was free at once.
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
