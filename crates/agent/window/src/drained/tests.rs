//! Marks that are made, torn, and overwritten.

use std::sync::Arc;

use super::*;
use crate::memory::Heap;
use crate::sequence::WORD_BYTES;

fn left(memory: &Arc<Heap>) -> Option<AppliedProgress> {
    Drained::left_behind(Arc::clone(memory)).progress()
}

fn sweep(below: u64, joined: u64, swept: u64) -> AppliedProgress {
    AppliedProgress { below, joined, swept }
}

#[test] // S38
fn a_mark_that_was_written_over_is_told_from_one_that_was_made() {
    let memory = Arc::new(Heap::zeroed(WORD_BYTES));
    let drained = Drained::begin(Arc::clone(&memory));
    assert_eq!(drained.progress(), Some(AppliedProgress::all_below(0)));
    for number in [1, 2, 77, 1 << 32, ALL - 1] {
        drained.advance(AppliedProgress::all_below(number));
        drained.advance(AppliedProgress::all_below(number - 1));
        assert_eq!(left(&memory), Some(AppliedProgress::all_below(number)));
        let word = memory.word(0).load(Relaxed);
        for bit in 0..64 {
            memory.word(0).store(word ^ 1 << bit, Relaxed);
            assert_eq!(left(&memory), None, "{number}, bit {bit}");
        }
        memory.word(0).store(word, Relaxed);
    }
    for word in [0, 1, 5000, u64::MAX, u64::from_le_bytes(*b"somebody")] {
        let memory = Arc::new(Heap::zeroed(WORD_BYTES));
        memory.word(0).store(word, Relaxed);
        assert_eq!(left(&memory), None, "{word:#x}");
    }
    drained.advance(AppliedProgress::all_below(u64::MAX));
    assert_eq!(left(&memory), Some(AppliedProgress::all_below(u64::MAX)));
}

#[test]
fn the_newest_line_of_the_sweep_under_way_counts_and_those_of_former_sweeps_do_not() {
    let memory = Arc::new(Heap::zeroed(WORD_BYTES));
    let drained = Drained::begin(Arc::clone(&memory));
    let steps = [
        sweep(0, 5, 100),
        sweep(0, 5, 200),
        sweep(0, 9, 200),
        sweep(0, 9, 4000),
        AppliedProgress::all_below(9),
        sweep(9, 12, 7),
        AppliedProgress::all_below(30),
        AppliedProgress::all_below(31),
        sweep(31, 40, 1),
        AppliedProgress::all_below(u64::MAX),
    ];
    for step in steps {
        drained.advance(step);
        assert_eq!(left(&memory), Some(step));
    }
}

#[test] // S38
fn a_crash_at_any_word_of_a_line_leaves_the_line_before_it() {
    let steps = [sweep(0, 5, 100), sweep(0, 5, 200), sweep(0, 7, 300), sweep(0, 7, 400)];
    for count in 1..steps.len() {
        let memory = Arc::new(Heap::zeroed(WORD_BYTES));
        let drained = Drained::begin(Arc::clone(&memory));
        steps[..count].iter().for_each(|step| drained.advance(*step));
        let before = memory.image();
        drained.advance(steps[count]);
        let line = LINES.into_iter().find(|line| before[*line..line + 32] != memory.image()[*line..line + 32]).unwrap();
        for words in 0..4 {
            let torn = Arc::new(Heap::from_image(&before));
            torn.word(line + CHECK).store(0, Relaxed);
            let after = (BELOW..LINE_BYTES).step_by(8).take(words);
            after.for_each(|at| torn.word(line + at).store(memory.word(line + at).load(Relaxed), Relaxed));
            assert_eq!(left(&torn), Some(steps[count - 1]), "{words} words of step {count}");
        }
    }
}

#[test] // S38
fn a_line_that_was_written_over_is_told() {
    let memory = Arc::new(Heap::zeroed(WORD_BYTES));
    let drained = Drained::begin(Arc::clone(&memory));
    drained.advance(sweep(0, 5, 100));
    drained.advance(sweep(0, 5, 200));
    for line in LINES {
        for at in (CHECK..LINE_BYTES).step_by(8) {
            let word = memory.word(line + at).load(Relaxed);
            for bit in 0..64 {
                memory.word(line + at).store(word ^ 1 << bit, Relaxed);
                assert_eq!(left(&memory), None, "line {line}, word {at}, bit {bit}");
            }
            memory.word(line + at).store(word, Relaxed);
        }
    }
}

#[test]
fn what_is_left_of_a_record_is_what_no_sweep_has_passed() {
    let (progress, record) = (sweep(10, 20, 150), ByteRange::new(100, 200));
    assert!(progress.rest(9, record).is_empty());
    assert_eq!(progress.rest(10, record), ByteRange::new(150, 200));
    assert_eq!(progress.rest(19, ByteRange::new(150, 160)), ByteRange::new(150, 160));
    assert!(progress.rest(19, ByteRange::new(0, 150)).is_empty());
    assert_eq!(progress.rest(20, record), record);
}
