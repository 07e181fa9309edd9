//! Replay of records that killed agents left in rings, into the burst buffer, before anything is served.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::Policy;
use data_store::{AcknowledgedBytes, DataStore, LeftFile, StoreCommand, WindowTarget, WindowUsage};
use global_store::GlobalStore;
use types::{ByteRange, Epoch, Identity, RangeSet, Shown, Timestamp};
use window::drained::Drained;
use window::layout::{HEADER_BYTES, NotThisRing, RingId};
use window::recover::{Bounds, Fence, Loss, RecoveryReport, Replay, Why, recover};
use window::ring::{Reason, RingGrant, RingReader, revoke};
use window::sequence::WORD_BYTES;
use window::{Mapping, Memory, WindowMedium, clock};

use crate::fault;
use crate::place::{CutRecord, FilePlace, HeldBack, RingRecord, is_damage};
use crate::session::AgentRun;

const LOST: &str = "acknowledged writes are lost";
/// Epoch of data written after all records, which themselves carry epoch 0.
const NEWER: Epoch = Epoch(1);

/// Where records are replayed to.
pub struct ReplayTarget<'a> {
    /// Store of the files' data.
    pub data: &'a dyn DataStore,
    /// Store in which the files are found.
    pub store: &'a dyn GlobalStore,
    /// Lookup of the policy of a path.
    pub policy: &'a dyn Fn(&Path) -> Arc<Policy>,
}

/// Outcome of the replay of one file's rings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Last known path of the file.
    pub path: PathBuf,
    /// Acknowledged writes that were not in a replica.
    pub records: u64,
    pub bytes: u64,
    /// Descriptions of lost data, a sentence each: which bytes, and why.
    pub lost: Vec<String>,
    /// Bytes of lost data that could not be written anywhere.
    pub lost_bytes: u64,
    /// Rings and records that could not be read, with the reasons. Their content is unknown.
    unreadable: Vec<String>,
}

struct Left {
    hint: PathBuf,
    grants: Vec<Granted>,
    /// The rest of the records, or a description of their damage.
    known: Result<Known, String>,
}

struct Known {
    identity: Identity,
    drained: Drained<Mapping>,
    cut: Option<CutRecord>,
}

/// Number of a ring, with the record of its grant or a description of the record's damage.
type Granted = (usize, Result<RingRecord, String>);

/// Error: the server's machine crashed after a part was written and before it was synced, so all must be written again.
#[derive(Debug, thiserror::Error)]
#[error("the server's machine has crashed meanwhile")]
struct Crashed;

/// Target of a replay: the replica.
struct ToReplica<'a> {
    target: Box<dyn WindowTarget>,
    place: &'a FilePlace,
    /// Boot verifier of the machine with the replica at the beginning. `None`: nothing is synced, because rings on a
    /// tmpfs do not survive a crash of the machine, so their data need not either.
    boot_verifier: Option<u64>,
    replayed: &'a mut Replayed,
    /// Query for the ranges that others have changed so far.
    newer: &'a dyn Fn() -> io::Result<Vec<ByteRange>>,
    /// Ranges not written because of changes found after the beginning.
    held_back: RangeSet,
    /// Time at which the rings were granted, ns since 1970. No record can be older, whatever it says.
    granted_ns: u64,
}

impl Replay for ToReplica<'_> {
    fn write(&mut self, offset: u64, bytes: &[u8], written_ns: u64) -> io::Result<()> {
        let at = Timestamp::from_nanos(written_ns.max(self.granted_ns).min(clock::now_ns()));
        let (mut newer, range) = (RangeSet::new(), ByteRange::at(offset, bytes.len() as u64));
        (self.newer)()?.into_iter().for_each(|range| newer.insert(range));
        for part in newer.missing(range) {
            let (start, end) = ((part.start - offset) as usize, (part.end - offset) as usize);
            self.target.write(&[(part.start, AcknowledgedBytes::Copied(&bytes[start..end]))], at)?;
        }
        newer.iter().for_each(|one| self.held_back.insert(one.intersection(&range)));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some(boot_verifier) = self.boot_verifier else { return Ok(()) };
        if self.target.sync()? == boot_verifier { Ok(()) } else { Err(io::Error::other(Crashed)) }
    }

    fn tell(&mut self, report: &RecoveryReport) {
        let mut report = report.clone();
        let late =
            self.held_back.iter().map(|range| Loss { ring: RingId(0), range: Some(range), why: Why::NewerEpoch });
        report.lost.extend(late);
        note(self.replayed, &report);
        let held = HeldBack { bytes: self.replayed.lost_bytes, lost: self.replayed.lost.clone() };
        if held.bytes > 0
            && let Err(error) = self.place.set_held_back(&held)
        {
            tracing::error!(%error, "could not record held-back bytes: if this agent is killed now, they are lost");
        }
    }
}

/// Target of a replay whose file is gone.
struct ToNowhere<'a>(&'a mut Replayed);

impl Replay for ToNowhere<'_> {
    fn write(&mut self, _: u64, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn tell(&mut self, report: &RecoveryReport) {
        gone(self.0, report);
    }
}

/// Replays every unfinished session of a burst buffer. `tell` is called with the outcome of each file before its rings
/// are removed. On an error, records that could not be replayed stay, and nothing is lost but what was reported.
pub fn replay(to: &ReplayTarget<'_>, burst_buffer: &Path, tell: &mut dyn FnMut(Replayed)) -> io::Result<()> {
    let (list, lines) = AgentRun::strange(burst_buffer)?;
    if !lines.is_empty() {
        let why = |line| {
            format!("what this line stands for, if anything, is not replayed until it is mended or removed: {line}")
        };
        let lost: Vec<String> = lines.iter().map(why).collect();
        lost.iter().for_each(|lost| tracing::error!(list = %list.shown(), "{lost}"));
        tell(Replayed { path: list, lost, ..Replayed::default() });
    }
    for session in AgentRun::unfinished(burst_buffer)? {
        let whole = session.is_whole()?;
        if session.is_wiped()? {
            let lost = "the directory of a killed agent's windows is gone: what they held, if anything, is lost";
            tracing::error!(dir = %session.path().shown(), "{lost}");
            let lost = vec![lost.to_owned()];
            tell(Replayed { path: session.path(), lost, ..Replayed::default() });
        } else if !whole {
            tracing::warn!(
                dir = %session.path().shown(),
                "the memory of an earlier agent's windows is gone, as after a crash of the machine: what was written there \
                 since the last fsync is lost"
            );
        }
        for place in if whole { session.left()? } else { Vec::new() } {
            one(to, &session, &place, tell).map_err(|error| named(&place, &error))?;
            fault::point("window.removed");
        }
        let client = if whole { session.client()? } else { None };
        session.end(burst_buffer)?;
        if let Some(client) = &client {
            to.data.command(StoreCommand::ForgetClient(client))?;
        }
    }
    Ok(())
}

fn named(place: &FilePlace, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("windows in {}: {error}", place.path().shown()))
}

/// Replays the directory of one file. If something in it is damaged, or there is no target, the directory is kept for
/// administrators.
fn one(to: &ReplayTarget<'_>, session: &AgentRun, place: &FilePlace, tell: &mut dyn FnMut(Replayed)) -> io::Result<()> {
    let replayed = loop {
        match bring(to, session, place) {
            Err(error) if error.get_ref().is_some_and(|error| error.is::<Crashed>()) => {
                tracing::warn!(%error, windows = %place.path().shown(), "the records of windows are applied once more");
            }
            replayed => break replayed?,
        }
    };
    let Some(mut replayed) = replayed else {
        place.remove();
        return Ok(());
    };
    if replayed.unreadable.is_empty() {
        tell(replayed);
        place.remove();
        return Ok(());
    }
    let aside = session.aside(place)?;
    for why in std::mem::take(&mut replayed.unreadable) {
        let aside = aside.shown();
        let lost =
            format!("{why}: what was acknowledged there, if anything, is lost; {aside} keeps what is left of it");
        tracing::error!(file = %replayed.path.shown(), "{lost}");
        replayed.lost.push(lost);
    }
    tell(replayed);
    session.set_aside(place, &aside)
}

/// Replays all that can be replayed. `None`: there are no records.
fn bring(to: &ReplayTarget<'_>, session: &AgentRun, place: &FilePlace) -> io::Result<Option<Replayed>> {
    match left(place)? {
        None => Ok(None),
        Some(Left { hint, grants, known: Ok(known) }) => {
            file(to, (session, place), Replayed { path: hint, ..Replayed::default() }, &grants, known)
        }
        Some(Left { hint, grants, known: Err(damage) }) => {
            // The programs then write through the kernel.
            grants.iter().for_each(|(number, _)| end(&place.ring(*number)));
            Ok(Some(Replayed { path: hint, unreadable: vec![damage], ..Replayed::default() }))
        }
    }
}

/// Reads the records of a file's rings. `None`: all is applied, or no ring was ever granted. Errors: those that may be
/// gone at another try.
fn left(place: &FilePlace) -> io::Result<Option<Left>> {
    if place.is_foreign()? {
        let known = Err(format!("{}: nothing that an agent made", place.path().shown()));
        return Ok(Some(Left { hint: "unknown file".into(), grants: Vec::new(), known }));
    }
    let grants = place.grants()?;
    if grants.is_empty() {
        return Ok(None);
    }
    let damage = |error: io::Error| if is_damage(&error) { Ok(error.to_string()) } else { Err(error) };
    let (identity, hint) = match place.owner() {
        Ok(None) => return Ok(None),
        Ok(Some(owner)) => owner,
        Err(error) => return Ok(Some(Left { hint: "unknown file".into(), grants, known: Err(damage(error)?) })),
    };
    let known = mark(place).and_then(|drained| Ok(Known { identity, drained, cut: place.cut()? }));
    let known = known.map_or_else(|error| damage(error).map(Err), |known| Ok(Ok(known)))?;
    Ok(Some(Left { hint, grants, known }))
}

/// Opens the applied mark. `InvalidData` if it is missing or damaged.
fn mark(place: &FilePlace) -> io::Result<Drained<Mapping>> {
    let path = place.drained();
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{}: not what an agent wrote", path.shown()));
    match Mapping::open(&path, WindowMedium::Volatile) {
        Ok(memory) if memory.len() < WORD_BYTES => Err(damaged()),
        Ok(memory) => Some(Drained::left_behind(memory)).filter(|mark| mark.progress().is_some()).ok_or_else(damaged),
        // The mark is missing or empty.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => Err(damaged()),
        Err(error) => Err(error),
    }
}

/// Finds the file of some rings. The path is that of the file's first window. If a renamed file were taken for a removed one, its
/// records would be lost.
fn find(to: &ReplayTarget<'_>, identity: &Identity, hint: &Path) -> io::Result<LeftFile> {
    match to.data.extensions().windows.map_or(Ok(LeftFile::Below), |windows| windows.find_left(identity))? {
        LeftFile::Below => {
            let found = to.store.locate(identity, hint, !to.store.finds_by_identity())?;
            Ok(found.map_or(LeftFile::Gone, LeftFile::Here))
        }
        found => Ok(found),
    }
}

/// Revokes the rings of a file whose data is lost. What they hold is kept for administrators.
fn without_data(rings: &mut [RingReader<Arc<Mapping>>], mut replayed: Replayed) -> Replayed {
    rings.iter_mut().for_each(RingReader::revoke);
    replayed.unreadable.push("its data in the burst buffer is lost, and its windows with it".to_owned());
    replayed
}

/// Replays the rings of one file. Mappings need not be flushed: nothing is served before the session has ended durably,
/// and until then the same records are replayed again.
fn file(
    to: &ReplayTarget<'_>,
    (session, place): (&AgentRun, &FilePlace),
    mut replayed: Replayed,
    grants: &[Granted],
    known: Known,
) -> io::Result<Option<Replayed>> {
    let Known { identity, drained, cut } = known;
    let (client, durable) = (session.client()?, session.is_durable());
    let hint = replayed.path.clone();
    let found = find(to, &identity, &hint)?;
    if matches!(found, LeftFile::Gone) && place.was_removed() {
        tracing::info!(file = %hint.shown(), "dropped the windows of a file that was removed on this node");
        return Ok(None);
    }
    let mut rings = rings(place, grants, &mut replayed.unreadable)?;
    let keep = cut.map_or(u64::MAX, |cut| cut.keep);
    let anchor = match found {
        LeftFile::Here(anchor) => anchor,
        LeftFile::Lost => return Ok(Some(without_data(&mut rings, replayed))),
        LeftFile::Below | LeftFile::Gone => {
            let bounds = Bounds { cut: keep, ..Bounds::NONE };
            recover(&mut rings, &drained, bounds, &mut ToNowhere(&mut replayed))?;
            fault::point("window.drained");
            return Ok(Some(replayed));
        }
    };
    let policy = (to.policy)(&hint);
    let Some(windows) = to.data.extensions().windows else {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    };
    let target = match windows.open_for_windows(anchor, &policy, WindowUsage::Replay) {
        Err(_) if to.data.state(&identity).lost => return Ok(Some(without_data(&mut rings, replayed))),
        // After any other error the rings must stay.
        file => file?.target,
    };
    let boot_verifier = durable.then(|| target.sync()).transpose()?;
    // Data that others have written since this agent's former run fell silent is newer.
    let newer = || client.map_or(Ok(Vec::new()), |client| windows.changed_since(&identity, &client));
    let fences: Vec<_> = newer()?.into_iter().map(|range| Fence { range, epoch: NEWER }).collect();
    if let Some(cut) = cut
        && fences.iter().all(|fence| fence.range.end <= cut.len)
    {
        target.set_len(cut.len)?;
    }
    let bounds = Bounds { cut: keep, fences: &fences };
    let mut replica = ToReplica {
        target,
        place,
        boot_verifier,
        replayed: &mut replayed,
        newer: &newer,
        held_back: RangeSet::new(),
        granted_ns: place.granted_ns(),
    };
    recover(&mut rings, &drained, bounds, &mut replica)?;
    drop(replica);
    fault::point("window.drained");
    if let (0, Ok(Some(held))) = (replayed.lost_bytes, place.held_back()) {
        // An earlier replay held back bytes, and its agent was killed before it had reported and kept them.
        replayed.lost_bytes = held.bytes;
        replayed.lost.extend(held.lost);
    }
    if replayed.lost_bytes > 0 {
        replayed.unreadable.push("others have written since to the same bytes, or cut the file".to_owned());
    }
    Ok(Some(replayed))
}

/// Opens the rings that can be read. Rings with lasting damage are described in `unreadable` and revoked, because their
/// programs' writes would never be read. Errors: those of a ring that may be readable at another try.
fn rings(
    place: &FilePlace,
    grants: &[Granted],
    unreadable: &mut Vec<String>,
) -> io::Result<Vec<RingReader<Arc<Mapping>>>> {
    let mut rings = Vec::new();
    for (number, record) in grants {
        let path = place.ring(*number);
        let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.shown());
        let why = match record.as_ref().map(|record| ring(&path, record)) {
            Ok(Ok(Ok(reader))) => {
                rings.push(reader);
                continue;
            }
            Ok(Ok(Err(another))) => named(&another),
            // The ring is missing or empty.
            Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {
                named(&error)
            }
            Ok(Err(error)) => return Err(io::Error::new(error.kind(), named(&error))),
            Err(damage) => damage.clone(),
        };
        end(&path);
        unreadable.push(why);
    }
    Ok(rings)
}

/// Opens a ring. A different version counts as damage: the file record, which was checked first, tells the version.
fn ring(path: &Path, record: &RingRecord) -> io::Result<Result<RingReader<Arc<Mapping>>, NotThisRing>> {
    // Not mapped yet, because the program may have given the file any length.
    if fs::metadata(path)?.len() != record.capacity.saturating_add(HEADER_BYTES as u64) {
        return Ok(Err(NotThisRing::Size));
    }
    let writable = ByteRange::new(0, i64::MAX as u64);
    let grant = RingGrant { ring: record.ring(), capacity: record.capacity, epochs: Epoch(0)..=Epoch(0), writable };
    let memory = Mapping::open(path, WindowMedium::Volatile).and_then(Mapping::guarded)?;
    Ok(RingReader::left_behind(Arc::new(memory), grant))
}

/// Revokes a ring, so that its program, if alive, writes through the kernel. An unsound ring may not allow this.
pub(crate) fn end(ring: &Path) {
    if let Ok(memory) = Mapping::open(ring, WindowMedium::Volatile).and_then(Mapping::guarded) {
        revoke(&memory);
    }
}

/// Reports the records of a file that is gone and was not removed by a program of this node.
fn gone(replayed: &mut Replayed, report: &RecoveryReport) {
    replayed.lost_bytes = report.replayed.len();
    let gone =
        |range: ByteRange| format!("{LOST}: bytes {} to {}: the file was removed elsewhere", range.start, range.end);
    replayed.lost.extend(report.replayed.iter().map(gone));
    note(replayed, &RecoveryReport { lost: report.lost.clone(), ..RecoveryReport::default() });
}

fn note(replayed: &mut Replayed, report: &RecoveryReport) {
    replayed.records = report.records;
    replayed.bytes = report.replayed.len();
    let held_back = held_back(report);
    replayed.lost_bytes += held_back.len();
    let held_back = held_back.iter().map(|range| Loss { ring: RingId(0), range: Some(range), why: Why::NewerEpoch });
    let others = report.lost.iter().filter(|loss| loss.why != Why::NewerEpoch).copied();
    replayed.lost.extend(others.chain(held_back).map(|loss| lost(&loss)));
    let (path, lost) = (replayed.path.shown(), &replayed.lost);
    if replayed.records > 0 {
        tracing::info!(
            file = %path,
            records = replayed.records,
            bytes = replayed.bytes,
            "replayed a killed agent's windows"
        );
    }
    lost.iter().for_each(|lost| tracing::error!(file = %path, "{lost}"));
}

/// Returns the ranges not written because others have written there.
fn held_back(report: &RecoveryReport) -> RangeSet {
    let mut ranges = RangeSet::new();
    let newer = report.lost.iter().filter(|loss| loss.why == Why::NewerEpoch);
    newer.filter_map(|loss| loss.range).for_each(|range| ranges.insert(range));
    ranges
}

fn lost(loss: &Loss) -> String {
    let why = match loss.why {
        Why::Damaged(Reason::Header | Reason::Payload) => "what the window holds of them is damaged",
        Why::Damaged(Reason::Forbidden) => "the window may not write there",
        Why::NewerEpoch => "others have written there since, or cut the file",
    };
    match loss.range {
        Some(range) => format!("{LOST}: bytes {} to {}: {why}", range.start, range.end),
        None => format!("{LOST}: of bytes that cannot be told: {why}"),
    }
}
