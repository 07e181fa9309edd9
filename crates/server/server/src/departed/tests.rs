//! Arbitrary sequences of client events, whatever part of the log survives.

use testkit::TempTree;

use super::*;

fn file(name: u8) -> Identity {
    Identity::new(vec![name]).unwrap()
}

const ONE: ClientSessionId = [1; 16];
const OTHER: ClientSessionId = [2; 16];

const RANGE: ByteRange = ByteRange { start: 10, end: 20 };

/// Opens the files for windows and then drops the client's last connection.
fn leaves(departed: &Departed, client: &ClientSessionId, files: impl IntoIterator<Item = Identity>) {
    let handle = |identity: &Identity| u64::from(identity.as_bytes()[0]);
    files.into_iter().for_each(|identity| departed.opened(client, handle(&identity), &identity));
    departed.leaves(client);
}

fn is_empty(departed: &Departed) -> bool {
    let table = departed.table.read();
    let none = table.windowed.is_empty() && table.clients.is_empty() && table.silent.is_empty();
    none && table.order.is_empty() && table.ranges == 0 && departed.known.load(Ordering::Relaxed) == 0
}

#[test] // S46
fn what_others_change_while_a_client_is_silent_is_known_until_it_comes_back() {
    let departed = Departed::default();
    departed.opened(&ONE, 1, &file(1));
    departed.changed(&file(1), ByteRange::new(0, 5), 0);
    assert_eq!(departed.since(&file(1), &ONE, 5), None, "it was there");
    leaves(&departed, &ONE, [file(2)]);
    departed.changed(&file(1), RANGE, mark_of(&OTHER));
    departed.changed(&file(1), ByteRange::new(30, 40), mark_of(&ONE));
    departed.changed(&file(3), RANGE, 0);
    assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![RANGE]), "its own are its own");
    assert_eq!(departed.since(&file(2), &ONE, 5), Some(vec![]));
    assert_eq!((departed.since(&file(3), &ONE, 5), departed.since(&file(1), &OTHER, 5)), (None, None));
    // The client's successor sends its data, and may be killed as well.
    departed.changed(&file(1), ByteRange::new(50, 60), 5);
    assert_eq!(departed.since(&file(1), &ONE, 7), Some(vec![RANGE]));
    // The client falls silent once more before anybody asked.
    departed.leaves(&ONE);
    assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![RANGE]));
    departed.returns(&ONE);
    assert_eq!(departed.since(&file(1), &ONE, 5), None);
    departed.changed(&file(1), RANGE, 0);
    departed.leaves(&ONE);
    assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![]), "what was before it came does not matter");
    departed.forget(&ONE);
    assert_eq!(departed.since(&file(1), &ONE, 5), None);
    assert!(is_empty(&departed));
}

#[test]
fn a_file_is_known_until_its_handle_is_closed_whichever_server_has_opened_it() {
    let departed = Departed::default();
    leaves(&departed, &ONE, [file(1), file(2)]);
    departed.returns(&ONE);
    departed.closed(&ONE, 3);
    departed.closed(&ONE, 2);
    departed.leaves(&ONE);
    assert_eq!((departed.since(&file(1), &ONE, 5), departed.since(&file(2), &ONE, 5)), (Some(vec![]), None));
    departed.returns(&ONE);
    // Opens by another handle before the close of the first has arrived.
    departed.opened(&ONE, 9, &file(1));
    departed.closed(&ONE, 1);
    departed.leaves(&ONE);
    assert!(departed.since(&file(1), &ONE, 5).is_some());
    departed.returns(&ONE);
    departed.closed(&ONE, 9);
    assert!(is_empty(&departed));
}

#[test] // S46
fn a_server_that_is_started_again_knows_what_the_one_before_it_knew() {
    let tree = TempTree::new();
    let open = || Departed::open(&tree.path("departed"), &BootVerifier::numbered(1));
    let first = open();
    leaves(&first, &ONE, [file(1), file(2)]);
    first.changed(&file(1), RANGE, 0);
    first.opened(&OTHER, 1, &file(1));
    assert_eq!(first.since(&file(1), &ONE, 9), Some(vec![RANGE]));
    first.opened(&[3; 16], 1, &file(1));
    first.closed(&[3; 16], 1);
    leaves(&first, &[4; 16], [file(1)]);
    first.forget(&[4; 16]);
    drop(first);
    let second = open();
    let more = ByteRange::new(100, 110);
    // To the second server all clients are silent, and the successor that asked is known.
    second.changed(&file(1), more, 9);
    second.changed(&file(1), more, mark_of(&OTHER));
    assert_eq!(second.since(&file(1), &ONE, 9), Some(vec![RANGE, more]));
    assert_eq!(second.since(&file(1), &OTHER, 5), Some(vec![more]));
    assert_eq!(second.since(&file(2), &ONE, 5), Some(vec![]));
    assert_eq!((second.since(&file(1), &[3; 16], 5), second.since(&file(1), &[4; 16], 5)), (None, None));
    second.returns(&OTHER);
    assert_eq!(second.since(&file(1), &OTHER, 5), None);
    drop(second);
    let third = open();
    third.changed(&file(1), RANGE, mark_of(&ONE));
    assert_eq!(third.since(&file(1), &OTHER, 5), Some(vec![RANGE]), "what it found when it came does not matter");
    assert_eq!(third.since(&file(1), &ONE, 5), Some(vec![RANGE, more]));
    third.forget(&ONE);
    third.forget(&OTHER);
    drop(third);
    assert!(is_empty(&open()));
    leaves(&open(), &ONE, [file(1)]);
    assert!(is_empty(&Departed::open(&tree.path("departed"), &BootVerifier::numbered(2))), "the machine has crashed");
}

#[test]
fn what_was_asked_is_forgotten_and_of_too_many_files_the_oldest() {
    let departed = Departed::default();
    leaves(&departed, &ONE, [file(1), file(2)]);
    leaves(&departed, &OTHER, [file(1)]);
    departed.forget(&ONE);
    assert_eq!((departed.since(&file(1), &ONE, 5), departed.since(&file(2), &ONE, 5)), (None, None));
    leaves(&departed, &ONE, [file(2)]);
    assert!(departed.since(&file(1), &OTHER, 5).is_some());
    let many = (0..DEPARTED_FILES_MAX as u64).map(|n| Identity::new(n.to_le_bytes()).unwrap());
    leaves(&departed, &[3; 16], many);
    assert_eq!(departed.since(&file(2), &ONE, 5), None);
    assert_eq!(departed.table.read().order.len(), DEPARTED_FILES_MAX);
    departed.forget(&[3; 16]);
    assert!(is_empty(&departed));
}

#[test] // S46
fn too_many_ranges_become_one_that_holds_them_all() {
    let departed = Departed::default();
    leaves(&departed, &ONE, [file(1)]);
    let all = ANSWERED_MAX as u64 + 1;
    // Adjacent ranges are merged into one anyway.
    (0..2 * all).for_each(|n| departed.changed(&file(1), ByteRange::at(n, 1), 0));
    assert_eq!(departed.since(&file(1), &ONE, 5), Some(vec![ByteRange::new(0, 2 * all)]));
    (0..all).for_each(|n| departed.changed(&file(1), ByteRange::at(1 << 40 | n << 10, 1), 0));
    let end = 1 << 40 | (all - 1) << 10;
    assert!(departed.since(&file(1), &ONE, 5).unwrap().len() < 4, "memory is bounded");
    assert!(departed.since(&file(1), &ONE, 5).unwrap().last().unwrap().end > end);
}

#[test]
fn a_file_that_was_dropped_as_one_too_many_and_is_opened_again_is_known_also_where_nothing_can_be_written_anew() {
    let tree = TempTree::new();
    let path = tree.path("departed");
    let of = |number: usize| Identity::new(number.to_le_bytes()).unwrap();
    let first = Departed::open(&path, &BootVerifier::numbered(1));
    (0..=DEPARTED_FILES_MAX).for_each(|number| first.opened(&ONE, number as u64, &of(number)));
    tree.dir("departed.new/something");
    let second = Departed::open(&path, &BootVerifier::numbered(1));
    assert_eq!((second.since(&of(0), &ONE, 5), second.since(&of(1), &ONE, 5)), (None, Some(vec![])));
    second.opened(&ONE, 77, &of(0));
    let third = Departed::open(&path, &BootVerifier::numbered(1));
    assert_eq!(third.since(&of(0), &ONE, 5), Some(vec![]));
}
