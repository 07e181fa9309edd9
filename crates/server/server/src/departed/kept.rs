//! The log of clients with windows, for a server that is started again.
//!
//! The log is a file of lines that only grows. Each line begins with its checksum. The log is rewritten at a start and
//! when it has grown long: a new file is written beside it and then takes its place. A line is valid from the moment
//! it is written:
//!
//! | the process dies | the next server |
//! |---|---|
//! | before the line of an open is written | its client has no answer, and no window |
//! | before the line of a close is written | remembers needlessly what others change |
//! | before the line of a change is written | the writer has no answer, and sends the change again |
//! | while the log is rewritten | has the former file, or the new one |
//!
//! Nothing is synced. The first line names the boot verifier, so after a crash of the machine nothing in the log
//! counts. If a line cannot be written, the file is deleted, for a lost return is as bad as a lost change. A warning
//! is logged, and the file is rewritten as soon as that is possible.

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

/// Begin of the first line.
const FORMAT: &str = "forebay clients with windows 1, life";
/// Bound that no number or place ever reaches.
const NUMBER_MAX: u64 = 1 << 62;

/// One event that is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DepartureEvent {
    /// A client may have windows on a file, by this handle of its own. `number` is used once.
    Joined { number: u64, client: ClientSessionId, handle: u64, identity: Identity },
    /// A client has no window on the file any more.
    Left { number: u64 },
    /// Others have changed bytes while the client was silent.
    Changed { number: u64, range: ByteRange },
    /// The mark of the client's successor, which asked last.
    Heir { number: u64, mark: u64 },
    /// The client is connected again: changes made until now do not matter.
    Returned { client: ClientSessionId },
    /// Nobody will ask for the client's ranges any more.
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

/// The log file and its state.
pub(super) struct DepartureLog {
    path: PathBuf,
    boot_verifier: u64,
    /// The open file; `None` while it has to be rewritten. `tried`: when that was tried last.
    file: Option<File>,
    tried: Instant,
    /// Whether writing has failed since the last success, so that the failure is logged once.
    failing: bool,
    bytes: u64,
    /// Size in bytes beyond which the log is rewritten.
    bytes_max: u64,
}

impl DepartureLog {
    /// Reads the events that an earlier server has logged under the boot verifier `believed`. The log must be
    /// rewritten under `boot_verifier` before anything is appended. If that fails, a log that was read in full goes
    /// on, provided that both verifiers are equal.
    pub fn open(path: &Path, (believed, boot_verifier): (u64, u64)) -> (DepartureLog, Vec<DepartureEvent>) {
        let (path, tried) = (path.to_owned(), Instant::now());
        let mut kept = DepartureLog { path, boot_verifier, file: None, tried, failing: false, bytes: 0, bytes_max: 0 };
        let found = match fs::read(&kept.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (kept, Vec::new()),
            Err(error) => {
                let path = kept.path.shown();
                tracing::error!(%error, %path, "could not read the log of clients with windows: it is unknown what others changed in their files");
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
            tracing::warn!(%path, bytes = lost, "part of the log of clients with windows is not valid: the machine has crashed, or another version wrote it");
        } else if known && believed == boot_verifier {
            kept.file = OpenOptions::new().write(true).open(&kept.path).ok();
            kept.bytes = found.len() as u64;
            kept.bytes_max = 4 * kept.bytes.max(KEPT_BYTES_MIN);
        }
        (kept, events)
    }

    /// Appends an event. Returns false if the log must be rewritten.
    #[must_use]
    pub fn append(&mut self, event: &DepartureEvent) -> bool {
        let Some(file) = &self.file else { return self.tried.elapsed() < KEPT_AGAIN };
        let line = event.line();
        // Overwrites what a failed write left.
        if let Err(error) = file.write_all_at(line.as_bytes(), self.bytes) {
            self.fail(&error);
            return false;
        }
        self.bytes += line.len() as u64;
        self.bytes <= self.bytes_max
    }

    /// Rewrites the log with the given events.
    pub fn rewrite(&mut self, events: impl Iterator<Item = DepartureEvent>) {
        self.tried = Instant::now();
        let new = self.path.with_extension("new");
        match self.begin(&new, events) {
            Ok((file, bytes)) => (self.file, self.bytes, self.failing) = (Some(file), bytes, false),
            Err(error) => {
                let _ = fs::remove_file(&new);
                // A file that is still open goes on: there may be room behind its last line.
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
        // Reserves room for later events, in case the burst buffer fills up.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes + 4 * KEPT_BYTES_MIN);
        fs::rename(new, &self.path)?;
        Ok((file, bytes))
    }

    fn fail(&mut self, error: &io::Error) {
        self.file = None;
        let _ = fs::remove_file(&self.path);
        if !std::mem::replace(&mut self.failing, true) {
            let path = self.path.shown();
            tracing::warn!(%error, %path, "could not write the log of clients with windows: if this server is killed now, the next one does not know all of it");
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
        // The lost part may have been a return.
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
