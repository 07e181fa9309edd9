//! Tests of how many records a request about a file waits for.

use types::ByteRange;

use super::recorder::{Event, drain_on, ring};
use super::*;
use crate::limits;

const KIB: u64 = 1 << 10;

fn writes(events: &[Event]) -> usize {
    events.iter().filter(|event| !matches!(event, Event::Synced(_))).count()
}

#[test] // S37
fn what_is_written_beside_what_windows_hold_waits_for_none_of_it() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Volatile);
    let program = ring(&mut drain, 1, 256 * KIB);
    program.append(0, &[1; 1000], &mut || false).unwrap();
    program.append(5000, &[2; 1000], &mut || false).unwrap();
    for beside in [ByteRange::new(1000, 5000), ByteRange::new(6000, 1 << 40)] {
        drain.apply_within(beside).unwrap();
        assert_eq!(writes(&recorder.events.lock()), 0, "{beside:?}");
    }
    drain.apply_within(ByteRange::new(5999, 6000)).unwrap();
    assert!(drain.is_drained() && writes(&recorder.events.lock()) == 2);
}

#[test] // S37
fn nobody_waits_for_a_program_that_has_no_room_or_for_what_others_write_meanwhile() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Volatile);
    let program = ring(&mut drain, 1, 64 * KIB);
    let (mut at, mut beside) = (0, None);
    // Until a writer has to wait.
    while beside.is_none() {
        let waits = &mut || {
            let began = Instant::now();
            drain.apply_within(ByteRange::new(1 << 30, 1 << 31)).unwrap();
            beside = Some((began.elapsed(), writes(&recorder.events.lock())));
            drain.apply().unwrap();
            true
        };
        program.append(at, &[7; 10_000], waits).unwrap();
        at += 10_000;
    }
    let (waited, written) = beside.unwrap();
    assert!(waited < limits::WINDOW_HOLE_WAIT && written == 0, "{waited:?}, {written} writes");
    assert_eq!(drain.windows(), 1, "its window goes on");
    drain.apply().unwrap();
    assert!(std::fs::read(tree.path().join("replica")).unwrap() == vec![7; at as usize]);
}

#[test]
fn programs_that_write_one_file_in_turn_travel_together_although_one_is_a_whole_ring_ahead() {
    const RECORD: u64 = 47_008;
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Volatile);
    let programs = [ring(&mut drain, 1, 4096 * KIB), ring(&mut drain, 2, 4096 * KIB)];
    let append = |drain: &mut crate::drain::Drain, program: usize, number: u64| {
        let bytes = [number as u8, program as u8].repeat(RECORD as usize / 2);
        programs[program].append((2 * number + program as u64) * RECORD, &bytes, &mut || false).unwrap();
        drain.take();
        while drain.batch(false, None).unwrap() {}
    };
    let ahead = 80;
    (0..ahead).for_each(|number| append(&mut drain, 0, number));
    assert_eq!(writes(&recorder.events.lock()), 0, "its neighbours are to come");
    (0..ahead).for_each(|number| append(&mut drain, 1, number));
    let pieces = (2 * ahead * RECORD).div_ceil(256 * KIB) as usize;
    drain.apply().unwrap();
    let written = writes(&recorder.events.lock());
    assert!(written <= pieces + 1, "{written} writes of at least {pieces}");
    let file = std::fs::read(tree.path().join("replica")).unwrap();
    let expected = (0..2 * ahead).flat_map(|n| [(n / 2) as u8, (n % 2) as u8].repeat(RECORD as usize / 2));
    assert!(file.into_iter().eq(expected));
}

#[test]
fn a_write_beside_waits_for_all_where_a_truncation_is_to_be_made_again_by_a_replay() {
    let tree = tempfile::tempdir().unwrap();
    let (mut drain, recorder) = drain_on(tree.path(), WindowMedium::Emulated);
    let program = ring(&mut drain, 1, 32 * KIB * KIB);
    for number in 0..12 {
        program.append(number << 20, &[number as u8; 1 << 20], &mut || false).unwrap();
    }
    *recorder.full.lock() = true;
    assert!(drain.apply().is_err() && drain.is_failing());
    drain.cut(11 << 20, &mut || Ok(())).unwrap();
    *recorder.full.lock() = false;
    assert!(drain.batch(true, None).unwrap() && !drain.is_failing() && !drain.is_drained());
    drain.apply_within(ByteRange::new(20 << 20, 21 << 20)).unwrap();
    assert!(drain.is_drained() && drain.is_over());
}
