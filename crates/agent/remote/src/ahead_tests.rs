//! Tests of read-ahead against a plain file, with fetches that arrive at random times.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Barrier;
use types::HasErrno;

use testkit::{PATIENCE, Random, wait_until};

use super::*;
use data_store::set_interruption;

const HOUR: Duration = Duration::from_secs(3600);

fn identity() -> Identity {
    Identity::new(vec![7]).unwrap()
}

fn read_from(file: &[u8], buffer: &mut [u8], offset: u64) -> usize {
    let from = file.get(offset as usize..).unwrap_or_default();
    let len = from.len().min(buffer.len());
    buffer[..len].copy_from_slice(&from[..len]);
    len
}

/// Callback that does nothing.
fn no_hurry(_: ByteRange, _: bool) {}

/// A fetch with the bytes that the file had when it was sent.
struct Sent(FetchTicket, ByteRange, SharedBytes);

#[test] // S47
fn whatever_is_fetched_when_readers_see_what_this_node_wrote_last() {
    let mut random = Random(11);
    for story in 0..40 {
        let versions = ReadAheadVersions::default();
        let ahead = versions.of(&identity(), 1, 20_000, HOUR);
        let file = RefCell::new(random.bytes(30_000));
        let mut sent: Vec<Sent> = Vec::new();
        for step in 0..400 {
            let (offset, len) = (random.below(35_000), 1 + random.below(4000));
            let range = ByteRange::at(offset, len);
            match random.below(6) {
                0 => {
                    for (ticket, range) in ahead.begin(range, 1500) {
                        let mut bytes = vec![0; range.len() as usize];
                        let got = read_from(&file.borrow(), &mut bytes, range.start);
                        sent.push(Sent(ticket, range, Arc::new(bytes[..got].to_vec())));
                    }
                }
                1 if !sent.is_empty() => {
                    let Sent(ticket, range, bytes) = sent.swap_remove(random.below(sent.len() as u64) as usize);
                    match random.below(5) {
                        0 => ahead.cancel(ticket),
                        _ => ahead.arrive(ticket, range, bytes),
                    }
                }
                2 => {
                    let (mut file, end) = (file.borrow_mut(), range.end as usize);
                    let longer = file.len().max(end);
                    file.resize(longer, 0);
                    file[offset as usize..end].copy_from_slice(&random.bytes(len as usize));
                    drop(file);
                    versions.changed(&identity(), range);
                }
                3 if step % 16 == 0 => {
                    file.borrow_mut().truncate(offset as usize);
                    versions.changed(&identity(), ALL);
                }
                _ => {
                    let parts = ahead.parts(range);
                    let (mut found, mut expected) = (vec![0; len as usize], vec![0; len as usize]);
                    // No fetch arrives while the reader waits, so all are cancelled and the reader requests the data
                    // itself.
                    let sooner = |_, _| sent.iter().for_each(|Sent(ticket, ..)| ahead.cancel(*ticket));
                    let ask = |buffer: &mut [u8], offset| Ok(read_from(&file.borrow(), buffer, offset));
                    let got = ahead.read(&mut found, offset, HOUR, &sooner, &ask).unwrap();
                    let there = read_from(&file.borrow(), &mut expected, offset);
                    assert_eq!(got, there, "story {story}, step {step}");
                    assert!(found[..got] == expected[..got], "story {story}, step {step}: other bytes");
                    if let Some(parts) = parts {
                        let there: Vec<u8> = parts.iter().flat_map(Part::as_ref).copied().collect();
                        assert!(there == expected[..there.len()], "story {story}, step {step}: other bytes in place");
                        assert!(there.len() == got || got == len as usize, "story {story}, step {step}");
                    }
                }
            }
        }
    }
}

#[test] // S47
fn a_reader_waits_for_what_is_on_its_way_and_asks_himself_for_what_is_not() {
    let versions = ReadAheadVersions::default();
    let ahead = versions.of(&identity(), 1, 1 << 20, HOUR);
    let all = ahead.begin(ByteRange::new(0, 3000), 1000);
    let (barrier, asked) = (Barrier::new(2), AtomicUsize::new(0));
    let ask = |buffer: &mut [u8], offset: u64| {
        buffer.fill(offset as u8);
        asked.fetch_add(1, Ordering::SeqCst);
        Ok(buffer.len())
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 100];
            barrier.wait();
            let got = ahead.read(&mut bytes, 950, HOUR, &no_hurry, &ask).unwrap();
            (got, bytes)
        });
        barrier.wait();
        ahead.arrive(all[0].0, all[0].1, Arc::new([1_u8; 1000]));
        ahead.cancel(all[1].0);
        let (got, bytes) = reader.join().unwrap();
        assert_eq!((got, &bytes[..50], &bytes[50..]), (100, &[1; 50][..], &[(1000_u64 as u8); 50][..]));
    });
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let late = ahead.read(&mut [0; 10], 2500, Duration::from_millis(1), &no_hurry, &ask).unwrap_err();
    assert_eq!(late.errno(), Some(libc::ETIMEDOUT));
    let kept = versions.kept().bytes();
    assert_eq!(kept, 1000);
    drop(ahead);
    assert_eq!(versions.kept().bytes(), 0);
}

#[test] // S47
fn who_reads_across_the_end_of_what_is_on_its_way_sleeps_until_it_comes() {
    let versions = ReadAheadVersions::default();
    let ahead = versions.of(&identity(), 1, 1 << 20, HOUR);
    let ticket = ahead.begin(ByteRange::new(0, 100), 100)[0].0;
    let looks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&looks);
    let count = move || {
        counted.set(counted.get() + 1);
        false
    };
    set_interruption(Some(Rc::new(count)));
    let sooner = |_, long| {
        if long {
            ahead.arrive(ticket, ByteRange::new(0, 100), Arc::new([3_u8; 100]));
        }
    };
    let ask = |buffer: &mut [u8], offset: u64| {
        assert_eq!((offset, buffer.len()), (100, 50));
        buffer.fill(4);
        Ok(50)
    };
    let mut bytes = [0; 100];
    assert_eq!(ahead.read(&mut bytes, 50, HOUR, &sooner, &ask).unwrap(), 100);
    set_interruption(None);
    assert_eq!((&bytes[..50], &bytes[50..]), (&[3; 50][..], &[4; 50][..]));
    assert!(looks.get() < 20, "{} looks in {LOOK:?}", looks.get());
}

#[test] // S47
fn who_waits_says_so_at_once_and_again_when_he_has_waited_long() {
    let versions = ReadAheadVersions::default();
    let ahead = versions.of(&identity(), 1, 1 << 20, HOUR);
    let range = ByteRange::new(0, 100);
    let ticket = ahead.begin(range, 100)[0].0;
    let (said, began) = (RefCell::new(Vec::new()), Instant::now());
    let sooner = |wanted, long: bool| {
        said.borrow_mut().push((wanted, long));
        if long {
            assert!(began.elapsed() >= LOOK, "no sooner");
            ahead.arrive(ticket, range, Arc::new([3_u8; 100]));
        }
    };
    let ask = |_: &mut [u8], _| Err(io::Error::other("it is on its way"));
    let mut bytes = [0; 50];
    assert_eq!(ahead.read(&mut bytes, 50, HOUR, &sooner, &ask).unwrap(), 50);
    let wanted = ByteRange::new(50, 100);
    assert_eq!((bytes, said.into_inner()), ([3; 50], vec![(wanted, false), (wanted, true)]));
}

#[test] // S47
fn what_was_asked_for_too_long_ago_is_not_given_out_and_versions_do_not_mix() {
    let versions = ReadAheadVersions::default();
    let fill = |ahead: &Ahead, byte: u8| {
        for (ticket, range) in ahead.begin(ByteRange::new(0, 100), 100) {
            ahead.arrive(ticket, range, Arc::new([byte; 100]));
        }
    };
    let read = |ahead: &Ahead| {
        let mut bytes = [0; 100];
        let ask = |buffer: &mut [u8], _| {
            buffer.fill(9);
            Ok(buffer.len())
        };
        ahead.read(&mut bytes, 0, HOUR, &no_hurry, &ask).unwrap();
        bytes[0]
    };
    let (one, two) = (versions.of(&identity(), 1, 1000, HOUR), versions.of(&identity(), 2, 1000, HOUR));
    fill(&one, 1);
    fill(&two, 2);
    assert_eq!((read(&one), read(&two), read(&versions.of(&identity(), 1, 1000, HOUR))), (1, 2, 1));
    versions.changed(&identity(), ByteRange::new(0, 1));
    assert_eq!((read(&one), read(&two)), (9, 9));
    let short = versions.of(&identity(), 3, 1000, Duration::from_millis(20));
    fill(&short, 3);
    wait_until("it is too old", PATIENCE, || read(&short) == 9);
    assert_eq!(versions.kept().bytes(), 198, "of the first two");
}

#[test] // S47
fn where_room_is_wanted_what_was_read_goes_and_what_was_not_stays() {
    let versions = ReadAheadVersions::default();
    let (one, two) = (versions.of(&identity(), 1, 1 << 20, HOUR), versions.of(&identity(), 2, 1 << 20, HOUR));
    for ahead in [&one, &two] {
        for (ticket, range) in ahead.begin(ByteRange::new(0, 1000), 1000) {
            ahead.arrive(ticket, range, Arc::new([1_u8; 1000]));
        }
    }
    let ask = |_: &mut [u8], offset| Err(io::Error::other(format!("{offset} is asked for")));
    for at in [0, 100, 700] {
        one.read(&mut [0; 100], at, HOUR, &no_hurry, &ask).unwrap();
    }
    versions.make_room();
    assert_eq!(versions.kept().bytes(), 700 + 1000);
    one.read(&mut [0; 500], 200, HOUR, &no_hurry, &ask).unwrap();
    two.read(&mut [0; 1000], 0, HOUR, &no_hurry, &ask).unwrap();
    assert!(one.read(&mut [0; 1], 700, HOUR, &no_hurry, &ask).is_err());
    // Data that is fetched again counts as not yet returned.
    for (ticket, range) in one.begin(ByteRange::new(700, 800), 100) {
        one.arrive(ticket, range, Arc::new([2_u8; 100]));
    }
    versions.make_room();
    assert_eq!(versions.kept().bytes(), 200 + 100, "of the first");
    one.read(&mut [0; 100], 700, HOUR, &no_hurry, &ask).unwrap();
}

#[test] // S47
fn what_a_lone_reader_left_behind_goes_where_much_is_kept_and_no_more_than_that() {
    let versions = ReadAheadVersions::default();
    let ahead = versions.of(&identity(), 1, 1 << 30, HOUR);
    let fill = |mib: u64| {
        for (ticket, range) in ahead.begin(ByteRange::at(mib << 20, 1 << 20), 1 << 20) {
            ahead.arrive(ticket, range, Arc::new(vec![1; 1 << 20]));
        }
    };
    let (one, mib) = (Reading::of(Arc::clone(&ahead)), || versions.kept().bytes() >> 20);
    let most = SERVER_AHEAD_READ_BYTES >> 20;
    (0..most - 1).for_each(fill);
    ahead.spent(ByteRange::new(0, 4 << 20));
    assert_eq!(mib(), most - 1, "there is room");
    fill(most - 1);
    let other = Reading::of(Arc::clone(one.ahead()));
    ahead.spent(ByteRange::new(0, 4 << 20));
    assert_eq!(mib(), most, "somebody else reads it");
    drop(other);
    ahead.spent(ByteRange::new(0, 4 << 20));
    assert_eq!(mib(), most - 2);
    let here = |mib: u64| ahead.parts(ByteRange::at(mib << 20, 10)).is_some();
    assert_eq!([0, 1, 2, 3, 4].map(here), [true, true, false, false, true]);
}

/// An end of file that a fetch found is not used if the file has grown since.
#[test]
fn the_end_that_a_fetch_found_before_the_file_grew_is_not_its_end() {
    let versions = ReadAheadVersions::default();
    let ahead = versions.of(&identity(), 1, 1 << 20, HOUR);
    let fetches = ahead.begin(ByteRange::new(1000, 2000), 1000);
    versions.changed(&identity(), ByteRange::new(1500, 2500));
    ahead.arrive(fetches[0].0, fetches[0].1, Arc::new([1_u8; 500]));
    let ask = |buffer: &mut [u8], offset: u64| {
        assert_eq!((offset, buffer.len()), (1500, 500));
        buffer.fill(2);
        Ok(buffer.len())
    };
    assert!(ahead.parts(ByteRange::new(1000, 2000)).is_none());
    let mut bytes = [0; 1000];
    assert_eq!(ahead.read(&mut bytes, 1000, HOUR, &no_hurry, &ask).unwrap(), 1000);
    assert_eq!((&bytes[..500], &bytes[500..]), (&[1; 500][..], &[2; 500][..]));
}

#[test]
fn what_comes_late_is_as_old_as_its_request_and_what_waited_to_be_sent_is_not() {
    const FRESH: Duration = Duration::from_millis(200);
    let versions = ReadAheadVersions::default();
    let ahead = versions.of(&identity(), 1, 1 << 20, FRESH);
    let range = ByteRange::new(0, 100);
    let is_here = || ahead.meet(range, &mut |_, fared, _| if fared == Fared::Hit { vec![range] } else { Vec::new() });
    let grows_old = || {
        let since = Instant::now();
        wait_until("it is old", PATIENCE, || since.elapsed() >= FRESH);
        assert!(is_here().is_empty());
    };
    let ticket = ahead.begin(range, 100)[0].0;
    grows_old();
    ahead.arrive(ticket, range, Arc::new([1_u8; 100]));
    assert!(is_here().is_empty(), "it was asked for long ago");
    let ticket = ahead.begin(range, 100)[0].0;
    grows_old();
    ahead.send(ticket);
    ahead.arrive(ticket, range, Arc::new([1_u8; 100]));
    assert!(!is_here().is_empty(), "it was asked for just now");
    grows_old();
}

/// Runs reads through a detector; every fetch arrives before the next read. Returns the bytes moved for each byte read,
/// and the number of reads that had to request data.
fn moved_by(reads: impl Iterator<Item = ByteRange>, size: u64) -> (f64, usize) {
    let versions = ReadAheadVersions::default();
    let ahead = versions.of(&identity(), 1, 128 << 20, HOUR);
    let mut detector = window::detector::Detector::new(32 << 20);
    let (mut asked, mut moved, mut late) = (0, 0, 0);
    for range in reads {
        detector.set_budget((32 << 20).min(ahead.earned(range.len())));
        let following = ahead.meet(range, &mut |_, fared, absent| {
            use window::detector::RequestOutcome;
            let outcome = if fared == Fared::Hit { RequestOutcome::Hit } else { RequestOutcome::Miss };
            detector.read(range, outcome, size, absent)
        });
        asked += range.len();
        if ahead.parts(range).is_none() {
            (moved, late) = (moved + range.len(), late + 1);
        }
        for (ticket, range) in following.into_iter().flat_map(|range| ahead.begin(range, 1 << 20)) {
            moved += range.len();
            ahead.arrive(ticket, range, Arc::new(vec![0_u8; range.len() as usize]));
        }
    }
    (moved as f64 / asked as f64, late)
}

#[test] // S63
fn however_a_file_is_read_no_more_than_twice_what_is_used_is_moved() {
    const SIZE: u64 = 256 << 20;
    for len in [4_u64 << 10, 8 << 10, 64 << 10] {
        let mut random = Random(len);
        let anywhere = (0..20_000).map(|_| ByteRange::at(random.below(SIZE / len) * len, len));
        let (moved, _) = moved_by(anywhere, SIZE);
        assert!(moved <= 1.9, "{moved} bytes for each of random reads of {len}");
    }
    let (moved, late) = moved_by((0..2048).map(|number| ByteRange::at(number << 17, 1 << 17)), SIZE);
    assert!(moved <= 1.2, "{moved} bytes for each of a sequential reader");
    assert!(late <= 2, "a sequential reader asked {late} times");
    for mib in [1, 2, 4, 8] {
        let (moved, _) = moved_by((0..mib << 3).map(|number| ByteRange::at(number << 17, 1 << 17)), SIZE);
        assert!(moved <= 2.0, "{moved} bytes for each of a sequential reader who stops after {mib} MiB");
    }
    // Programs that read the beginning of many places.
    let heads = (0..500_u64)
        .flat_map(|number| [0, 1].map(|part| ByteRange::at((number * 37 % 251) << 20 | part << 14, 1 << 14)));
    let (moved, _) = moved_by(heads, SIZE);
    assert!(moved <= 1.9, "{moved} bytes for each of two reads here and there");
}
