//! Every interleaving of a small story about guarded mappings, by `loom`: tests/suites/interleavings.sh

use std::collections::BTreeSet;
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::*;

/// Mappings that come and go: start and length.
const FIRST: (usize, usize) = (16 * PAGE, 8 * PAGE);
const NEXT: (usize, usize) = (128 * PAGE, 64 * PAGE);
/// Address of a fault in neither mapping. It would be inside with the start of the first and the length of the next.
const FAULT: usize = 40 * PAGE;

#[test]
fn a_fault_is_not_taken_for_one_of_a_mapping_that_comes_or_goes() {
    loom::model(|| {
        let region = Arc::new(Region::new());
        assert!(region.take(FIRST.0, FIRST.1));
        let others = Arc::clone(&region);
        let owner = thread::spawn(move || {
            // The last lies where the first did.
            for (start, len) in [NEXT, FIRST] {
                others.free();
                assert!(others.take(start, len));
            }
        });
        assert_eq!(region.around(FAULT), None);
        let found = region.around(FIRST.0 + FIRST.1 - 1);
        assert!([None, Some(FIRST)].contains(&found), "{found:?}");
        owner.join().unwrap();
        assert_eq!(region.around(FIRST.0 + 1), Some(FIRST));
    });
}

/// The owner of a mapping accesses it while other threads take and free theirs.
#[test]
fn a_fault_of_a_guarded_mapping_is_found_and_noted_for_it_alone() {
    static WAYS: Mutex<BTreeSet<bool>> = Mutex::new(BTreeSet::new());
    loom::model(|| {
        let regions = Arc::new([Region::new(), Region::new()]);
        assert!(regions[0].take(FIRST.0, FIRST.1));
        regions[0].note_broken();
        let others = Arc::clone(&regions);
        let other = thread::spawn(move || {
            others[0].free();
            others.iter().position(|region| region.take(FIRST.0 + FIRST.1, PAGE))
        });
        let own = regions.iter().position(|region| region.take(NEXT.0, NEXT.1)).unwrap();
        assert!(!regions[own].is_broken(), "what was there before was");
        let found: Vec<_> = regions.iter().map(|region| region.around(NEXT.0)).collect();
        assert_eq!(found.iter().position(Option::is_some), Some(own));
        regions[own].note_broken();
        let others = other.join().unwrap();
        assert_ne!(others, Some(own), "two in one place");
        assert!(others.is_none_or(|others| !regions[others].is_broken()));
        WAYS.lock().unwrap().insert(own == 0);
    });
    assert_eq!(WAYS.lock().unwrap().len(), 2, "not all was tried");
}

#[test]
fn what_fits_no_word_is_not_guarded() {
    loom::model(|| {
        let region = Region::new();
        assert!(!region.take(PAGE, PAGE << COUNT_BITS) && !region.take(usize::MAX / PAGE * PAGE, PAGE));
        assert!(region.take(PAGE, (PAGE << COUNT_BITS) - PAGE));
        assert_eq!(region.around(2 * PAGE), Some((PAGE, (PAGE << COUNT_BITS) - PAGE)));
    });
}
