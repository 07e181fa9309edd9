//! Every interleaving of small stories about gifts, by `loom`: tests/suites/interleavings.sh

use std::collections::BTreeSet;
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::entry_use::{EntryUse, Word};

/// Stands for an entry's address, and for none.
const HERE: usize = 8;
const NOTHING: usize = 0;

/// Fetched value. Not an atomic, so that a story fails if a thread drops it while another looks.
struct Window(UnsafeCell<u32>);

// SAFETY: `loom` checks who accesses it.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    fn of(file: u32) -> Window {
        Window(UnsafeCell::new(file))
    }

    fn file(&self) -> u32 {
        // SAFETY: `loom` checks who else accesses it.
        self.0.with(|file| unsafe { *file })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: as above.
        self.0.with_mut(|file| unsafe { *file = 0 });
    }
}

/// Outcome of a write: the window's file, or whether the write asked in vain.
type Written = Result<u32, bool>;

/// Writes by the window, which is asked for if wanted.
fn write(gift: &Gift<Window>, answer: Option<u32>) -> Written {
    let asks = gift.is_wanted() && gift.fetch(|| answer.map(Window::of));
    gift.get().map(Window::file).ok_or(asks)
}

fn model(story: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(story);
}

#[test]
fn one_thread_asks_at_a_time_and_all_find_the_whole_of_what_it_was_given() {
    // The first asks in vain.
    static WAYS: Mutex<BTreeSet<[Written; 2]>> = Mutex::new(BTreeSet::new());
    model(|| {
        let gift = Arc::new(Gift::none());
        let others = Arc::clone(&gift);
        let other = thread::spawn(move || write(&others, Some(7)));
        let first = write(&gift, None);
        let ways = [first, other.join().unwrap()];
        assert!(ways.iter().flatten().all(|file| *file == 7), "{ways:?}");
        WAYS.lock().unwrap().insert(ways);
    });
    let ways = WAYS.lock().unwrap();
    let all = [[Err(true), Ok(7)], [Err(false), Ok(7)], [Ok(7), Ok(7)], [Err(true), Err(false)]];
    assert!(all.iter().all(|way| ways.contains(way)), "not all was tried: {ways:?}");
}

struct Open {
    words: [Word; 2],
    entry_use: EntryUse,
    window: Gift<Window>,
}

impl Open {
    fn empty(&self) {
        // SAFETY: nobody uses the entry any more.
        drop(unsafe { self.window.take() });
    }

    fn write(&self, word: usize, file: u32) -> Option<Written> {
        if self.words[word].look() != HERE || !self.entry_use.enter(&self.words[word], HERE, || self.empty()) {
            return None;
        }
        let written = write(&self.window, Some(file));
        self.entry_use.exit(|| self.empty());
        Some(written)
    }

    fn close(&self, word: usize) {
        if self.words[word].replace(NOTHING) == HERE {
            self.entry_use.leave(|| self.empty());
        }
    }
}

#[test]
fn a_window_goes_with_its_open_file_and_the_next_has_its_own() {
    static WAYS: Mutex<BTreeSet<(Option<Written>, bool)>> = Mutex::new(BTreeSet::new());
    model(|| {
        let open =
            Open { words: [Word::new(HERE), Word::new(NOTHING)], entry_use: EntryUse::new(), window: Gift::none() };
        assert!(open.entry_use.occupy());
        let open = Arc::new(open);
        let others = Arc::clone(&open);
        let writer = thread::spawn(move || others.write(0, 1));
        open.close(0);
        let adopted = open.entry_use.occupy();
        if adopted {
            open.words[1].replace(HERE);
            assert_eq!(open.write(1, 2), Some(Ok(2)), "the second file's");
        }
        let written = writer.join().unwrap();
        assert!([None, Some(Ok(1))].contains(&written), "the first file's: {written:?}");
        WAYS.lock().unwrap().insert((written, adopted));
    });
    assert_eq!(WAYS.lock().unwrap().len(), 4, "not all was tried");
}
