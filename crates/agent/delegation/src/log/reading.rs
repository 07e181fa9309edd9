//! Reading a log: every transaction up to the first place that is not right.

use std::io;

use types::reported;

use super::files::LogDirectory;
use crate::layout::{self, FRAME_ALIGN, FileHeader, HEADER_BYTES};
use crate::limits;
use crate::replay::NodeStates;

/// A place of the log from which on it was not used, although transactions follow or may do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogDamage {
    /// Number of the log file.
    pub file: u32,
    /// Byte in the file.
    pub offset: u64,
    /// Sequence of the transaction that should be there.
    pub sequence: u64,
    /// Number of whole transactions that were found behind the place. They were not used. Those of a file without a whole header
    /// cannot be told from rubbish, and are not among them.
    pub following: u64,
    /// Whether a transaction that was synced is lost. If not, a crash of the machine may have lost the place before it was
    /// synced, while later bytes had reached the medium.
    pub synced: bool,
}

/// Facts about one log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadFile {
    /// Number of the file.
    pub number: u32,
    /// States and tombstones in it.
    pub records: u64,
    /// Bytes up to the end of its last transaction.
    pub bytes: u64,
    /// Whether other bytes than zeros follow.
    pub is_torn: bool,
}

/// Content of a log.
#[derive(Debug, Default)]
pub struct LogContent {
    /// States that the transactions say.
    pub states: NodeStates,
    /// Files whose transactions were used, the oldest first.
    pub files: Vec<ReadFile>,
    /// Files of which nothing was used: behind damage, or without a header.
    pub unused: Vec<u32>,
    /// Damage, if transactions follow it or may do so.
    pub damage: Option<LogDamage>,
    /// Random id of the log; `None` if it has no file with a header.
    pub log: Option<[u8; 16]>,
    /// The largest opening of a file's header.
    pub opening: u32,
}

/// Reads all files of a log. Errors: those of the directory; `EPROTONOSUPPORT` for a file of another version.
pub fn read_log(directory: &dyn LogDirectory) -> io::Result<LogContent> {
    let mut numbers = directory.list()?;
    numbers.sort_unstable();
    let mut content = LogContent::default();
    let (mut stopped, mut is_unreadable): (Option<LogDamage>, bool) = (None, false);
    for number in numbers {
        let bytes = directory.read(number)?;
        let header = match FileHeader::decode(&bytes) {
            Err(layout::UNKNOWN_VERSION) => {
                return Err(reported(libc::EPROTONOSUPPORT, "the name log is of another version"));
            }
            header => header.ok(),
        };
        content.opening = content.opening.max(header.map_or(0, |header| header.opening));
        // Behind the end of a file rubbish may follow. It costs nothing if the next file goes on where this one has ended.
        let may_go_on = stopped.is_none_or(|damage| damage.offset > 0 && damage.following == 0);
        match header.filter(|header| may_go_on && content.continues(number, header)) {
            Some(header) => stopped = content.read_file(&header, &bytes),
            None => {
                let begin = LogDamage { file: number, ..LogDamage::at(content.states.last + 1) };
                let damage = stopped.get_or_insert(begin);
                content.unused.push(number);
                let rest = bytes.get(HEADER_BYTES..).unwrap_or(&[]);
                match header {
                    Some(header) => damage.note(&header, rest),
                    None => is_unreadable |= rest.iter().any(|byte| *byte != 0),
                }
            }
        }
    }
    content.damage = stopped.filter(|damage| damage.following > 0 || is_unreadable);
    content.states.settle();
    Ok(content)
}

impl LogContent {
    /// Whether a file with this header goes on where the former has ended.
    fn continues(&self, number: u32, header: &FileHeader) -> bool {
        let is_ours = self.log.is_none_or(|log| log == header.log) && header.number == number;
        let is_ours = is_ours && (1..limits::SEQUENCE_MAX).contains(&header.first);
        let follows = |last: &ReadFile| last.number + 1 == number && header.first == self.states.last + 1;
        is_ours && self.files.last().is_none_or(follows)
    }

    /// Reads the transactions of a file. Returns where other bytes than zeros follow.
    fn read_file(&mut self, header: &FileHeader, bytes: &[u8]) -> Option<LogDamage> {
        if self.files.is_empty() {
            (self.log, self.states.last) = (Some(header.log), header.first - 1);
        }
        let (number, mut records, mut at) = (header.number, 0, HEADER_BYTES);
        while let Some(frame) = layout::decode_frame(&bytes[at..], &header.file) {
            let decoded = layout::decode_transaction(frame.sequence, frame.transaction);
            let Some(transaction) = decoded.ok().filter(|_| frame.sequence == self.states.last + 1) else { break };
            records += transaction.records.len() as u64;
            self.states.add(number, transaction);
            at = (at + frame.length).min(bytes.len());
        }
        let is_torn = bytes[at..].iter().any(|byte| *byte != 0);
        self.files.push(ReadFile { number, records, bytes: at as u64, is_torn });
        is_torn.then(|| {
            let begin = LogDamage::at(self.states.last + 1);
            let mut damage = LogDamage { file: number, offset: at as u64, ..begin };
            damage.note(header, &bytes[at..]);
            damage
        })
    }
}

impl LogDamage {
    fn at(sequence: u64) -> LogDamage {
        LogDamage { file: 0, offset: 0, sequence, following: 0, synced: false }
    }

    /// Counts the whole transactions in the rest of a file, after the place.
    fn note(&mut self, header: &FileHeader, rest: &[u8]) {
        let mut at = 0;
        while at + layout::FRAME_BYTES <= rest.len() {
            match layout::decode_frame(&rest[at..], &header.file) {
                Some(frame) if frame.sequence >= self.sequence => {
                    self.following += 1;
                    self.synced |= frame.durable >= self.sequence;
                    at += frame.length;
                }
                Some(frame) => at += frame.length,
                None => at += FRAME_ALIGN,
            }
        }
    }
}
