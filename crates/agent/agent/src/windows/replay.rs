//! What killed agents left in rings, brought to the burst buffer before anything is served.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use file_cache::{Backdating, OpenHow};
use global_store::GlobalStore;
use types::{ByteRange, Epoch, Identity, RangeSet, Shown, Timestamp};
use window::drained::Drained;
use window::layout::{HEADER_BYTES, NotThisRing, RingId};
use window::recover::{Bounds, Fence, Loss, RecoveryReport, Replay, Why, recover};
use window::ring::{Reason, RingGrant, RingReader, revoke};
use window::sequence::WORD_BYTES;
use window::{Mapping, Memory, WindowMedium, clock};

use super::fault;
use super::place::{CutRecord, FilePlace, HeldBack, RingRecord, is_damage};
use super::session::AgentRun;
use crate::agent::Agent;
use crate::burst_buffer::OpenData;

const LOST: &str = "acknowledged writes are lost";
/// The epoch of what was written after everything in the rings, which bear none.
const NEWER: Epoch = Epoch(1);

/// What became of one file's rings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Its path, as last known.
    pub path: PathBuf,
    /// Acknowledged writes that were in no replica.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is lost, a sentence each: which bytes, and why.
    pub lost: Vec<String>,
    /// Bytes of it that had nowhere to go.
    pub lost_bytes: u64,
    /// What could not be read at all: nobody knows what it held.
    unreadable: Vec<String>,
}

/// What is written down of a file's rings.
struct Left {
    hint: PathBuf,
    grants: Vec<Granted>,
    /// Or what is wrong with it.
    known: Result<Known, String>,
}

struct Known {
    identity: Identity,
    drained: Drained<Mapping>,
    cut: Option<CutRecord>,
}

/// A ring's number, and what was granted with it, or what is wrong with that record.
type Granted = (usize, Result<RingRecord, String>);

/// The server's machine has, after a part was there and before that was synced: all is to be brought again.
#[derive(Debug, thiserror::Error)]
#[error("the server's machine has crashed meanwhile")]
struct Crashed;

/// Where replayed bytes go.
struct ToReplica<'a> {
    handle: Box<dyn OpenData>,
    place: &'a FilePlace,
    durable: bool,
    /// That of the server's machine when this began.
    life: u64,
    replayed: &'a mut Replayed,
    /// What others have changed, as it is known by now.
    newer: &'a dyn Fn() -> io::Result<Vec<ByteRange>>,
    /// What is not written for that, beyond what was known at first.
    held_back: RangeSet,
    /// When the rings were granted, ns since 1970: nothing in them is older, whatever it says.
    granted_ns: u64,
    /// When the last of what was brought was written.
    written: Timestamp,
    since: Option<Backdating>,
}

impl ToReplica<'_> {
    /// All is there: the file has the time of its last write.
    fn backdate(&self) {
        let Some(since) = self.since.as_ref().filter(|_| self.written > Timestamp::default()) else { return };
        if let Err(error) = self.handle.backdate(since, self.written) {
            tracing::debug!(%error, "the time at which a window was written is lost");
        }
    }
}

impl Replay for ToReplica<'_> {
    fn write(&mut self, offset: u64, bytes: &[u8], written_ns: u64) -> io::Result<()> {
        let at = Timestamp::from_nanos(written_ns.max(self.granted_ns).min(clock::now_ns()));
        self.written = self.written.max(at);
        let (mut newer, range) = (RangeSet::new(), ByteRange::at(offset, bytes.len() as u64));
        (self.newer)()?.into_iter().for_each(|range| newer.insert(range));
        for part in newer.missing(range) {
            let (start, end) = ((part.start - offset) as usize, (part.end - offset) as usize);
            self.handle.write_acknowledged(&bytes[start..end], part.start, at)?;
        }
        newer.iter().for_each(|one| self.held_back.insert(one.intersection(&range)));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.backdate();
        // Rings on a tmpfs outlive no machine; neither must what comes from them.
        if !self.durable {
            return Ok(());
        }
        self.handle.sync_acknowledged(false)?;
        if self.handle.life() == self.life { Ok(()) } else { Err(io::Error::other(Crashed)) }
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
            tracing::error!(%error, "should this agent be killed now, what its windows held back is not kept");
        }
    }
}

/// Where bytes go whose file is gone.
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

/// Replays every unfinished session of a burst buffer. `tell` hears what became of a file before its rings go. On an error what
/// could not be replayed stays, and nothing is lost but what was told.
pub(crate) fn replay(agent: &Agent, burst_buffer: &Path, tell: &mut dyn FnMut(Replayed)) -> io::Result<()> {
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
            one(agent, &session, &place, tell).map_err(|error| named(&place, &error))?;
            fault::point("window.removed");
        }
        let client = if whole { session.client()? } else { None };
        session.end(burst_buffer)?;
        client.iter().for_each(|client| agent.cache.forget_client(client));
    }
    Ok(())
}

fn named(place: &FilePlace, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("windows in {}: {error}", place.path().shown()))
}

/// The directory of one file. Where something in it is damaged, or there is nothing to bring it to, it is kept for people.
fn one(agent: &Agent, session: &AgentRun, place: &FilePlace, tell: &mut dyn FnMut(Replayed)) -> io::Result<()> {
    let replayed = loop {
        match bring(agent, session, place) {
            Err(error) if error.get_ref().is_some_and(|error| error.is::<Crashed>()) => {
                tracing::warn!(%error, windows = %place.path().shown(), "what windows hold is brought once more");
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

/// Brings to the burst buffer what can be brought there. `None`: there is nothing.
fn bring(agent: &Agent, session: &AgentRun, place: &FilePlace) -> io::Result<Option<Replayed>> {
    match left(place)? {
        None => Ok(None),
        Some(Left { hint, grants, known: Ok(known) }) => {
            file(agent, (session, place), Replayed { path: hint, ..Replayed::default() }, &grants, known)
        }
        Some(Left { hint, grants, known: Err(damage) }) => {
            // Programs go on through the kernel.
            grants.iter().for_each(|(number, _)| end(&place.ring(*number)));
            Ok(Some(Replayed { path: hint, unreadable: vec![damage], ..Replayed::default() }))
        }
    }
}

/// `None`: everything is drained, or nothing was ever granted. Errors: what may be read another time.
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

/// The mark of what is drained. `InvalidData`: it is gone, or damaged.
fn mark(place: &FilePlace) -> io::Result<Drained<Mapping>> {
    let path = place.drained();
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{}: not what an agent wrote", path.shown()));
    match Mapping::open(&path, WindowMedium::Volatile) {
        Ok(memory) if memory.len() < WORD_BYTES => Err(damaged()),
        Ok(memory) => Some(Drained::left_behind(memory)).filter(|mark| mark.progress().is_some()).ok_or_else(damaged),
        // Not there, or empty.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => Err(damaged()),
        Err(error) => Err(error),
    }
}

/// Mappings need not be flushed here: nothing is served before the session has ended, durably, and until then the same is
/// replayed again.
fn file(
    agent: &Agent,
    (session, place): (&AgentRun, &FilePlace),
    mut replayed: Replayed,
    grants: &[Granted],
    known: Known,
) -> io::Result<Option<Replayed>> {
    let Known { identity, drained, cut } = known;
    let (client, durable) = (session.client()?, session.is_durable());
    let hint = replayed.path.clone();
    // The name is that of its first window; who takes a renamed file for a removed one loses what its rings hold.
    let found = agent.store.locate(&identity, &hint, !agent.store.finds_by_identity())?;
    if found.is_none() && place.was_removed() {
        tracing::info!(file = %hint.shown(), "windows of a file that was removed on this node are dropped");
        return Ok(None);
    }
    let mut rings = rings(place, grants, &mut replayed.unreadable)?;
    let keep = cut.map_or(u64::MAX, |cut| cut.keep);
    let Some(anchor) = found else {
        let bounds = Bounds { cut: keep, ..Bounds::NONE };
        recover(&mut rings, &drained, bounds, &mut ToNowhere(&mut replayed))?;
        fault::point("window.drained");
        return Ok(Some(replayed));
    };
    let policy = agent.policies().for_path(&hint);
    let how =
        OpenHow { read: false, write: true, appends: false, truncate: false, created: false, sync: false, policy };
    let handle = match agent.cache.open_unless(anchor, how, &|| false) {
        Err(_) if agent.cache.is_lost(&identity) => {
            rings.iter_mut().for_each(RingReader::revoke);
            replayed.unreadable.push("its data in the burst buffer is lost, and its windows with it".to_owned());
            return Ok(Some(replayed));
        }
        // Whatever else it is: rings are not the ones to suffer.
        handle => handle?,
    };
    // What others have written since this agent's former life fell silent is newer.
    let newer = || client.map_or(Ok(Vec::new()), |client| agent.cache.changed_since(&identity, &client));
    let fences: Vec<_> = newer()?.into_iter().map(|range| Fence { range, epoch: NEWER }).collect();
    if let Some(cut) = cut
        && fences.iter().all(|fence| fence.range.end <= cut.len)
    {
        handle.set_len(cut.len)?;
    }
    let bounds = Bounds { cut: keep, fences: &fences };
    let mut to = ToReplica {
        since: handle.backdating(),
        life: handle.life(),
        handle,
        place,
        durable,
        replayed: &mut replayed,
        newer: &newer,
        held_back: RangeSet::new(),
        granted_ns: place.granted_ns(),
        written: Timestamp::default(),
    };
    recover(&mut rings, &drained, bounds, &mut to)?;
    drop(to);
    fault::point("window.drained");
    if let (0, Ok(Some(held))) = (replayed.lost_bytes, place.held_back()) {
        // By a replay whose agent was killed before it had told and kept it.
        replayed.lost_bytes = held.bytes;
        replayed.lost.extend(held.lost);
    }
    if replayed.lost_bytes > 0 {
        replayed.unreadable.push("others have written since to the same bytes, or cut the file".to_owned());
    }
    Ok(Some(replayed))
}

/// The rings that can be read. What is wrong with the others for good goes to `unreadable`, and they are revoked: nobody will
/// ever read what their programs write. Errors: a ring may be read another time.
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
            // Gone, or empty.
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

/// That its version is another is damage too: the record of whose it is has been looked at, and says which version it was made by.
fn ring(path: &Path, record: &RingRecord) -> io::Result<Result<RingReader<Arc<Mapping>>, NotThisRing>> {
    // Not mapped: its program may have made it as long as it liked.
    if fs::metadata(path)?.len() != record.capacity.saturating_add(HEADER_BYTES as u64) {
        return Ok(Err(NotThisRing::Size));
    }
    let writable = ByteRange::new(0, i64::MAX as u64);
    let grant = RingGrant { ring: record.ring(), capacity: record.capacity, epochs: Epoch(0)..=Epoch(0), writable };
    let memory = Mapping::open(path, WindowMedium::Volatile).and_then(Mapping::guarded)?;
    Ok(RingReader::left_behind(Arc::new(memory), grant))
}

/// Its program, if it lives, goes on through the kernel: as far as that can be told in a ring that is not sound.
pub(super) fn end(ring: &Path) {
    if let Ok(memory) = Mapping::open(ring, WindowMedium::Volatile).and_then(Mapping::guarded) {
        revoke(&memory);
    }
}

/// Nobody of this node removed the file, and it is not there any more.
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
        tracing::info!(file = %path, records = replayed.records, bytes = replayed.bytes, "replayed a killed agent's windows");
    }
    lost.iter().for_each(|lost| tracing::error!(file = %path, "{lost}"));
}

/// What is not brought over what others wrote.
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

/// The directories in which something may wait that killed agents acknowledged, to be brought to this burst buffer: rings that
/// were granted, of which only a replay tells how much is there already. Errors: those of reading them.
pub fn windows_left(burst_buffer: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for session in AgentRun::unfinished(burst_buffer)? {
        if session.is_whole()? && session.left()?.iter().any(FilePlace::may_hold) {
            found.push(session.path());
        }
    }
    Ok(found)
}
