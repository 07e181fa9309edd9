//! What is known of clients with windows, written down: a server that was started again knows it.
//!
//! A file of lines, each with its checksum before it, that only grows; what they come to is written anew, beside it and then in its place,
//! when it starts and when it has grown long. What a line says is true from then on:
//!
//! | the process dies | the next server |
//! |---|---|
//! | before a line of an open file is there | its client has no answer, and no window |
//! | before the line of a close is there | keeps what others change for nothing |
//! | before the line of a change is there | who made it has no answer, and sends it again |
//! | while it is written anew | has the former file, or the new one |
//!
//! Nothing is synced: after a crash of the machine, by the life in its first line, nothing in it counts. Where a line cannot be written the file goes,
//! for to lack a return is as bad as to lack a change; that is told in the log, and all is written anew as soon as that is possible.
//! The crate `durable` does not write it: events are streamed, and the new file stays open for appends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use concurrency::Instant;
use crc_fast::{CrcAlgorithm, checksum};
use rustix::fs::FallocateFlags;
use types::{ByteRange, Identity, Shown};

use super::ClientSessionId;
use crate::limits::{KEPT_AGAIN, KEPT_BYTES_MIN};

/// The first line.
const FORMAT: &str = "forebay clients with windows 1, life";
/// No number or place comes near it.
const NUMBER_MAX: u64 = 1 << 62;

/// What becomes known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DepartureEvent {
    /// A client may have windows on a file, by this handle of its; the number is used once.
    Joined { number: u64, client: ClientSessionId, handle: u64, identity: Identity },
    /// It has none any more.
    Left { number: u64 },
    /// While it was silent others have changed bytes.
    Changed { number: u64, range: ByteRange },
    /// The client's next life, by its mark.
    Heir { number: u64, mark: u64 },
    /// It is there again: what was changed until now does not matter.
    Returned { client: ClientSessionId },
    /// Nobody will ask any more.
    Gone { client: ClientSessionId },
}

fn hex(client: &ClientSessionId) -> String {
    format!("{:032x}", u128::from_be_bytes(*client))
}

impl DepartureEvent {
    fn line(&self) -> String {
        let said = match self {
            DepartureEvent::Joined { number, client, handle, identity } => {
                format!("joined {number} {} {handle} {identity}", hex(client))
            }
            DepartureEvent::Left { number } => format!("left {number}"),
            DepartureEvent::Changed { number, range } => format!("changed {number} {} {}", range.start, range.end),
            DepartureEvent::Heir { number, mark } => format!("heir {number} {mark}"),
            DepartureEvent::Returned { client } => format!("returned {}", hex(client)),
            DepartureEvent::Gone { client } => format!("gone {}", hex(client)),
        };
        format!("{:08x} {said}\n", checksum(CrcAlgorithm::Crc32Iscsi, said.as_bytes()) as u32)
    }

    fn of(line: &str) -> Option<DepartureEvent> {
        let (sum, said) = line.split_once(' ')?;
        if u32::from_str_radix(sum, 16).ok()? != checksum(CrcAlgorithm::Crc32Iscsi, said.as_bytes()) as u32 {
            return None;
        }
        let client = |hex: &str| u128::from_str_radix(hex, 16).ok().map(u128::to_be_bytes);
        let words: Vec<&str> = said.split(' ').collect();
        let number = |word: &str| word.parse().ok().filter(|number| *number < NUMBER_MAX);
        Some(match words[..] {
            ["joined", one, of, handle, identity] => DepartureEvent::Joined {
                number: number(one)?,
                client: client(of)?,
                handle: handle.parse().ok()?,
                identity: Identity::from_hex(identity)?,
            },
            ["left", one] => DepartureEvent::Left { number: number(one)? },
            ["changed", one, start, end] => {
                let (start, end) = (start.parse().ok()?, end.parse().ok()?);
                let range = (start <= end).then(|| ByteRange::new(start, end))?;
                DepartureEvent::Changed { number: number(one)?, range }
            }
            ["heir", one, mark] => DepartureEvent::Heir { number: number(one)?, mark: mark.parse().ok()? },
            ["returned", of] => DepartureEvent::Returned { client: client(of)? },
            ["gone", of] => DepartureEvent::Gone { client: client(of)? },
            _ => return None,
        })
    }
}

fn first(boot_verifier: u64) -> String {
    format!("{FORMAT} {boot_verifier}")
}

/// The file.
pub(super) struct DepartureLog {
    path: PathBuf,
    boot_verifier: u64,
    /// `None` while it is to be written anew, which was tried at that time.
    file: Option<File>,
    tried: Instant,
    /// Since it was written last: that is told once.
    failing: bool,
    bytes: u64,
    /// More, and it is written anew.
    bytes_max: u64,
}

impl DepartureLog {
    /// What an earlier server has written in the life `believed` of the machine, if any. It is to be written anew, under `boot_verifier`, before
    /// anything is appended; if that fails what was found in full goes on if that is the same.
    pub fn open(path: &Path, (believed, boot_verifier): (u64, u64)) -> (DepartureLog, Vec<DepartureEvent>) {
        let (path, tried) = (path.to_owned(), Instant::now());
        let mut kept = DepartureLog { path, boot_verifier, file: None, tried, failing: false, bytes: 0, bytes_max: 0 };
        let found = match fs::read(&kept.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (kept, Vec::new()),
            Err(error) => {
                let path = kept.path.shown();
                tracing::error!(%error, %path, "what windows clients had is not known: it cannot be read");
                return (kept, Vec::new());
            }
            Ok(found) => found,
        };
        let mut events = Vec::new();
        let mut lines = found.split_inclusive(|byte| *byte == b'\n');
        let whole = |line: &[u8]| std::str::from_utf8(line).ok()?.strip_suffix('\n').map(str::to_owned);
        let known = lines.next().and_then(whole).is_some_and(|line| line == first(believed));
        let mut lost = if known { 0 } else { found.len() };
        for line in lines.filter(|_| known) {
            match whole(line).as_deref().and_then(DepartureEvent::of).filter(|_| lost == 0) {
                Some(event) => events.push(event),
                None => lost += line.len(),
            }
        }
        if lost > 0 {
            let path = kept.path.shown();
            tracing::warn!(%path, bytes = lost, "what windows clients had is not known in full: a machine has crashed, or another version wrote it");
        } else if known && believed == boot_verifier {
            kept.file = OpenOptions::new().write(true).open(&kept.path).ok();
            kept.bytes = found.len() as u64;
            kept.bytes_max = 4 * kept.bytes.max(KEPT_BYTES_MIN);
        }
        (kept, events)
    }

    /// Writes it down; false: all is to be written anew.
    #[must_use]
    pub fn append(&mut self, event: &DepartureEvent) -> bool {
        let Some(file) = &self.file else { return self.tried.elapsed() < KEPT_AGAIN };
        let line = event.line();
        // Over what a failed write left.
        if let Err(error) = file.write_all_at(line.as_bytes(), self.bytes) {
            self.fail(&error);
            return false;
        }
        self.bytes += line.len() as u64;
        self.bytes <= self.bytes_max
    }

    /// Begins it anew.
    pub fn rewrite(&mut self, events: impl Iterator<Item = DepartureEvent>) {
        self.tried = Instant::now();
        let new = self.path.with_extension("new");
        match self.begin(&new, events) {
            Ok((file, bytes)) => (self.file, self.bytes, self.failing) = (Some(file), bytes, false),
            Err(error) => {
                let _ = fs::remove_file(&new);
                // Behind its last line there is room yet, perhaps.
                if self.file.is_none() {
                    self.fail(&error);
                }
            }
        }
        self.bytes_max = 4 * self.bytes.max(KEPT_BYTES_MIN);
    }

    fn begin(&self, new: &Path, events: impl Iterator<Item = DepartureEvent>) -> io::Result<(File, u64)> {
        let _ = fs::remove_file(new);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
        let mut writer = BufWriter::new(&file);
        let mut bytes = 0;
        let lines = events.map(|event| event.line());
        for line in std::iter::once(format!("{}\n", first(self.boot_verifier))).chain(lines) {
            writer.write_all(line.as_bytes())?;
            bytes += line.len() as u64;
        }
        writer.flush()?;
        drop(writer);
        // In a burst buffer that fills up later there is room for what becomes known.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes + 4 * KEPT_BYTES_MIN);
        fs::rename(new, &self.path)?;
        Ok((file, bytes))
    }

    fn fail(&mut self, error: &io::Error) {
        self.file = None;
        let _ = fs::remove_file(&self.path);
        if !std::mem::replace(&mut self.failing, true) {
            let path = self.path.shown();
            tracing::warn!(%error, %path, "should this server be killed now, the next does not know in full what windows clients had");
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempTree;

    use super::*;

    fn some() -> Vec<DepartureEvent> {
        let identity = Identity::new(vec![7; 20]).unwrap();
        vec![
            DepartureEvent::Joined { number: 3, client: [0xab; 16], handle: u64::MAX, identity },
            DepartureEvent::Changed { number: 3, range: ByteRange::new(5, u64::MAX) },
            DepartureEvent::Heir { number: 3, mark: u64::MAX },
            DepartureEvent::Returned { client: [0; 16] },
            DepartureEvent::Gone { client: [0xff; 16] },
            DepartureEvent::Left { number: 3 },
        ]
    }

    #[test]
    fn what_is_written_down_is_read_again_whatever_was_appended_when() {
        let tree = TempTree::new();
        let path = tree.path("kept");
        let (mut kept, none) = DepartureLog::open(&path, (1, 1));
        assert!(none.is_empty());
        let (first, second) = (some(), some());
        kept.rewrite(first.iter().cloned());
        assert!(second.iter().all(|event| kept.append(event)));
        assert_eq!(DepartureLog::open(&path, (1, 1)).1, [first, second].concat());
        assert_eq!(DepartureLog::open(&path, (2, 2)).1, [], "a machine that crashed has kept any part of it");
        let (mut kept, found) = DepartureLog::open(&path, (1, 2));
        tree.dir("kept.new/something");
        kept.rewrite(found.into_iter());
        assert!(!path.exists(), "what comes now is true in the other life alone");
    }

    #[test] // S46
    fn what_is_cut_or_damaged_ends_there_and_what_others_wrote_says_nothing() {
        let tree = TempTree::new();
        let path = tree.path("kept");
        let (mut kept, _) = DepartureLog::open(&path, (1, 1));
        kept.rewrite(some().into_iter());
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let lines = ends.iter().filter(|end| **end < cut).count();
            assert_eq!(DepartureLog::open(&path, (1, 1)).1, some()[..lines.saturating_sub(1)], "{cut}");
            let mut damaged = whole.clone();
            damaged[cut] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let before = ends.iter().filter(|end| **end < cut).count();
            let read = DepartureLog::open(&path, (1, 1)).1;
            assert_eq!(read, some()[..before.saturating_sub(1)], "{cut}");
        }
        fs::write(&path, [whole, vec![0; 5000]].concat()).unwrap();
        assert_eq!(DepartureLog::open(&path, (1, 1)).1, some());
        fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(DepartureLog::open(&path, (1, 1)).1, []);
    }

    #[test]
    fn what_has_grown_long_is_to_be_written_anew() {
        let tree = TempTree::new();
        let (mut kept, _) = DepartureLog::open(&tree.path("kept"), (1, 1));
        kept.rewrite(std::iter::empty());
        let event = DepartureEvent::Returned { client: [1; 16] };
        let mut appended = 0u64;
        while kept.append(&event) {
            appended += 1;
        }
        assert!(appended * event.line().len() as u64 > KEPT_BYTES_MIN);
        kept.rewrite(some().into_iter());
        assert_eq!(DepartureLog::open(&tree.path("kept"), (1, 1)).1, some());
    }

    #[test]
    fn what_was_found_in_full_goes_on_where_it_cannot_be_written_anew() {
        let tree = TempTree::new();
        let path = tree.path("kept");
        DepartureLog::open(&path, (1, 1)).0.rewrite(some().into_iter());
        tree.dir("kept.new/something");
        let (mut kept, found) = DepartureLog::open(&path, (1, 1));
        kept.rewrite(found.into_iter());
        assert!(kept.append(&some()[0]));
        assert_eq!(DepartureLog::open(&path, (1, 1)).1, [some(), some()[..1].to_vec()].concat());
        // What was lost of it may have been a return.
        for damaged in [[fs::read(&path).unwrap(), b"half a l".to_vec()].concat(), Vec::new()] {
            fs::write(&path, damaged).unwrap();
            let (mut kept, found) = DepartureLog::open(&path, (1, 1));
            kept.rewrite(found.into_iter());
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_cannot_be_written_is_tried_again_and_nobody_waits_for_it() {
        let tree = TempTree::new();
        tree.dir("kept.new/something");
        fs::write(tree.path("kept"), "of before").unwrap();
        let (mut kept, _) = DepartureLog::open(&tree.path("kept"), (1, 1));
        kept.rewrite(some().into_iter());
        assert!(!tree.path("kept").exists(), "it would say what is not so any more");
        assert!(kept.append(&some()[0]), "not at once again");
        fs::remove_dir_all(tree.path("kept.new")).unwrap();
        testkit::wait_until("it is time", 10 * KEPT_AGAIN, || !kept.append(&some()[0]));
        kept.rewrite(some().into_iter());
        assert!(kept.append(&some()[0]));
        assert_eq!(DepartureLog::open(&tree.path("kept"), (1, 1)).1.len(), 7);
    }
}
