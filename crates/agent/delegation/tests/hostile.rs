//! Log bytes that nobody wrote so: damage, and frames that are made to deceive.

mod story;

use std::collections::BTreeMap;
use std::io;

use delegation::layout::{self, FRAME_BYTES, FileHeader, HEADER_BYTES};
use delegation::log::{LogContent, read_log};
use delegation::{LogRecord, Moment, NodeKind, NodeName, NodeNumber, NodeState, ShortName, Transaction, Tree};
use namespace::{NameKind, Names};
use story::medium::Medium;
use story::{ALICE, Story, new_file, open, root_state, snapshot, try_open};
use testkit::Random;
use types::HasErrno;

type Files = BTreeMap<u32, Vec<u8>>;

/// Reads bytes as a log. The tree that they give, if any, is checked.
fn judge(files: Files) -> (LogContent, bool) {
    try_judge(files).unwrap()
}

/// Errors: the log is of another version.
fn try_judge(files: Files) -> io::Result<(LogContent, bool)> {
    let mut content = read_log(&Medium::of_files(files))?;
    let mut states = std::mem::take(&mut content.states);
    content.states.last = states.last;
    if content.damage.is_some() {
        states.prune();
    }
    let tree = Tree::try_from(states);
    if let Ok(tree) = &tree {
        tree.assert_invariants();
    }
    Ok((content, tree.is_ok()))
}

/// The log of a story, without the zeros behind it.
fn log_of(seed: u64, steps: usize, file_bytes: u64) -> Files {
    let medium = Medium::default();
    let mut story = Story::new(open(medium.clone(), file_bytes), seed);
    (0..steps).for_each(|_| drop(story.step()));
    let mut files = medium.files();
    for bytes in files.values_mut() {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        bytes.truncate(end.next_multiple_of(layout::FRAME_ALIGN) + 16);
    }
    files
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_nothing_behind_it_is_used() {
    let files = log_of(3, 120, 2 << 10);
    assert!(files.len() > 1);
    let whole = judge(files.clone()).0.states.last;
    for (number, bytes) in &files {
        for at in 0..bytes.len() * 8 {
            let mut damaged = files.clone();
            damaged.get_mut(number).unwrap()[at / 8] ^= 1 << (at % 8);
            let Ok((content, _)) = try_judge(damaged) else {
                assert!((64..96).contains(&at), "bit {at} is not of the version");
                continue;
            };
            let (damage, last) = (content.damage, content.states.last);
            assert!(last <= whole);
            if let Some(damage) = damage {
                let is_told = damage.following > 0 || content.unused.contains(number);
                assert_eq!((damage.sequence, is_told), (last + 1, true), "bit {at} of file {number}");
            } else if last < whole {
                // The last transaction, which counts as torn.
                assert_eq!(last + 1, whole, "bit {at} of file {number}");
            }
        }
    }
}

#[test]
fn random_bytes_and_shuffled_parts_give_no_wrong_tree() {
    let (files, mut random) = (log_of(4, 60, 3 << 10), Random(5));
    for _ in 0..3000 {
        let mut damaged = files.clone();
        let numbers: Vec<u32> = damaged.keys().copied().collect();
        let number = numbers[random.below(numbers.len() as u64) as usize];
        let bytes = damaged.get_mut(&number).unwrap();
        let (from, to) = (random.below(bytes.len() as u64) as usize, random.below(bytes.len() as u64) as usize);
        let length = (random.below(300) as usize).min(bytes.len() - from.max(to));
        match random.below(4) {
            0 => bytes.copy_within(from..from + length, to),
            1 => bytes[from..from + length].copy_from_slice(&random.bytes(length)),
            2 => bytes.truncate(from),
            _ => drop(damaged.remove(&number)),
        }
        let _ = try_judge(damaged);
    }
}

/// Puts a whole transaction's bytes into a log of one file behind the root.
fn with_transaction(bytes: &[u8]) -> Files {
    let medium = Medium::default();
    drop(open(medium.clone(), 1 << 14));
    let mut files = medium.files();
    let file = files.get_mut(&1).unwrap();
    let header = FileHeader::decode(file).unwrap();
    let root = layout::decode_frame(&file[HEADER_BYTES..], &header.file).unwrap();
    let (at, sequence) = (HEADER_BYTES + root.length, root.sequence + 1);
    let mut frame = Vec::new();
    layout::begin_frame(&mut frame);
    frame.extend_from_slice(bytes);
    layout::end_frame(&mut frame, &header.file, sequence, 0);
    file.truncate(at);
    file.extend(frame);
    files
}

fn node(number: u64, kind: NodeKind, names: &[(u64, &str)]) -> LogRecord {
    let mut state = NodeState::new(NodeNumber(number), kind, (0o755, 0, 0), Moment(1));
    let name = |name: &str| ShortName::new(name.as_bytes()).unwrap();
    state.names = names.iter().map(|(parent, of)| NodeName { parent: NodeNumber(*parent), name: name(of) }).collect();
    LogRecord::State(Box::new(state))
}

#[test]
fn states_that_are_no_tree_are_refused_and_left_as_they_are() {
    use NodeKind::{Directory, File};
    let mut late = root_state();
    late.stamp = 99;
    let stories: Vec<Vec<LogRecord>> = vec![
        vec![LogRecord::Forgotten(NodeNumber::ROOT)],
        vec![node(1, File, &[])],
        vec![node(1, Directory, &[(1, "root in itself")])],
        vec![node(5, File, &[(9, "in nothing")])],
        vec![node(5, File, &[(1, "a")]), node(6, File, &[(5, "in a file")])],
        vec![node(5, File, &[(1, "twice")]), node(6, File, &[(1, "twice")])],
        vec![node(5, File, &[(1, "twice"), (1, "twice")])],
        vec![node(5, Directory, &[(6, "a")]), node(6, Directory, &[(5, "b")])],
        vec![node(5, Directory, &[(5, "itself")])],
        vec![node(5, Directory, &[(1, "a"), (1, "b")])],
        vec![node(5, File, &[])],
        vec![node(0, File, &[(1, "a")])],
        vec![node(u64::MAX, File, &[(1, "a")])],
        vec![LogRecord::State(Box::new(late))],
    ];
    for records in stories {
        let shown = format!("{records:?}");
        let transaction = Transaction { sequence: 0, time: Moment(5), touched: vec![NodeNumber(77)], records };
        let mut bytes = Vec::new();
        layout::encode_transaction(&mut bytes, &transaction);
        let files = with_transaction(&bytes);
        let (content, is_tree) = judge(files.clone());
        assert_eq!((content.states.last, is_tree), (2, false), "{shown}");
        let medium = Medium::of_files(files.clone());
        let error = try_open(Box::new(medium.clone()), 1 << 14).err().expect("no tree");
        assert_eq!((error.errno(), medium.files()), (Some(libc::EUCLEAN), files), "{shown}");
    }
}

#[test]
fn a_frame_with_a_right_checksum_and_any_content_is_read_without_a_panic() {
    let files = log_of(6, 200, 1 << 20);
    let header = FileHeader::decode(&files[&1]).unwrap();
    let (mut at, mut random, mut trees) = (HEADER_BYTES, Random(8), 0);
    while let Some(frame) = layout::decode_frame(&files[&1][at..], &header.file) {
        at += frame.length;
        let original = frame.transaction.to_vec();
        for bit in 0..original.len() * 8 {
            let mut bytes = original.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if bit % 64 == 0 {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            let decoded = layout::decode_transaction(2, &bytes);
            if bit % 8 == at % 8 {
                trees += u32::from(judge(with_transaction(&bytes)).1);
            } else if let Ok(transaction) = decoded {
                let mut again = Vec::new();
                layout::encode_transaction(&mut again, &transaction);
                assert_eq!(layout::decode_transaction(2, &again).unwrap(), transaction);
            }
        }
    }
    assert!(trees > 0, "some flips leave a tree");
}

#[test]
fn counts_and_lengths_that_are_too_large_are_refused() {
    for bytes in [&[0xff; 40][..], &[0; 11], &[0xff; 4096], &[0; 8], &[]] {
        assert_eq!(layout::decode_transaction(1, bytes).is_ok(), bytes == [0; 11]);
    }
    let mut frame = Vec::new();
    layout::begin_frame(&mut frame);
    layout::end_frame(&mut frame, &[7; 16], 1, 0);
    assert!(layout::decode_frame(&frame, &[7; 16]).is_some());
    assert!(layout::decode_frame(&frame, &[8; 16]).is_none(), "a frame of another file");
    frame[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(layout::decode_frame(&frame, &[7; 16]).is_none());
    assert!(layout::decode_frame(&frame[..FRAME_BYTES - 1], &[7; 16]).is_none());
    let header = FileHeader { log: [1; 16], file: [2; 16], number: 3, opening: 4, first: 5 };
    assert_eq!(FileHeader::decode(&header.encode()), Ok(header));
}

#[test]
fn damage_in_the_middle_is_told_and_the_tree_before_it_goes_on() {
    let medium = Medium::default();
    let tree = open(medium.clone(), 2 << 10);
    let root = tree.root().unwrap();
    for number in 0..20 {
        tree.create(&ALICE, &root, new_file(&format!("{number}"))).unwrap();
        tree.sync().unwrap();
    }
    let mut files = medium.files();
    let header = FileHeader::decode(&files[&1]).unwrap();
    let mut at = HEADER_BYTES;
    for _ in 0..5 {
        at += layout::decode_frame(&files[&1][at..], &header.file).unwrap().length;
    }
    files.get_mut(&1).unwrap()[at + 40] ^= 1;
    let damaged = Medium::of_files(files);
    let (again, report) = try_open(Box::new(damaged.clone()), 2 << 10).unwrap();
    let damage = report.damage.expect("told");
    assert_eq!((damage.file, damage.offset, damage.sequence), (1, at as u64, 6));
    assert_eq!((damage.following, damage.synced), (15, true));
    assert!(damaged.damaged() > 0, "a copy is kept");
    again.remove(&ALICE, &again.root().unwrap(), "0".as_ref(), NameKind::File).unwrap();
    let (third, report) = try_open(Box::new(damaged), 2 << 10).unwrap();
    assert_eq!((report.damage, snapshot(&third)), (None, snapshot(&again)));
}

#[test]
fn a_log_that_cannot_be_read_at_all_is_left_as_it_is() {
    let files = log_of(3, 60, 1 << 20);
    assert_eq!(files.len(), 1);
    for (at, errno) in [(0, libc::EUCLEAN), (8, libc::EPROTONOSUPPORT), (20, libc::EUCLEAN), (70, libc::EUCLEAN)] {
        let mut damaged = files.clone();
        damaged.get_mut(&1).unwrap()[at] ^= 1;
        let medium = Medium::of_files(damaged.clone());
        let error = try_open(Box::new(medium.clone()), 1 << 14).err().expect("no tree");
        assert_eq!((error.errno(), medium.files()), (Some(errno), damaged), "byte {at}");
    }
    // A file that was only begun is no log yet.
    let medium = Medium::of_files([(1, vec![0; 4096])].into());
    let (tree, report) = try_open(Box::new(medium), 1 << 14).unwrap();
    assert!(report.is_new && report.damage.is_none() && tree.is_empty());
}
