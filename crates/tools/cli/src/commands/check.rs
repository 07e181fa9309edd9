//! `forebay check`: checks a burst buffer that no agent uses.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use catalogue::{Catalogue, FjallCatalogue, Record, State};
use global_store::posix::PosixStore;
use placement::lock::lock;
use types::{Identity, Shown};

use crate::args::CheckArgs;
use crate::commands::recover::existing;
use crate::count::files_were;
use crate::drain::{plain, resolve_words};
use crate::exit::{self, Failure, out};
use crate::guest::Place;
use crate::limits::LISTED_MAX;
use crate::serving::{self, How};
use crate::{forget, lower, place, shell};

/// Directory of the catalogue in a burst buffer.
const CATALOGUE: &str = "catalogue";

/// Findings in one burst buffer.
#[derive(Debug, Default)]
struct Findings {
    clean: u64,
    dirty: u64,
    stuck: u64,
    replicas: u64,
    bytes: u64,
    /// Clean records without a replica; dropped at the next start.
    stale: u64,
    /// Files that were written but not synced when the machine crashed, and whose replica was lost with it.
    unsynced: u64,
    /// Files that were being removed or published when the agent ended (S53). The next start checks whether they are
    /// gone.
    removed: u64,
    /// Replicas without a record and without unsaved data; removed at the next start.
    unknown: u64,
    /// Directories in which windows of killed agents may hold writes that are not in the burst buffer yet.
    windows: Vec<PathBuf>,
    /// Problems that have cost data, or may.
    problems: Vec<String>,
    /// The first [`LISTED_MAX`] files that wait for a decision: the file, the reason, and the command to decide.
    decisions: Vec<String>,
    undecided: usize,
}

/// Checks every burst buffer in the directory. Returns 69 if one has a problem that `--repair` did not fix.
pub fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let root = existing(&args.burst_buffer)?;
    let buffers = place::formatted(&root);
    if buffers.is_empty() {
        return Err(Failure::new(exit::NO_INPUT, format!("{} is no burst buffer of Forebay", root.shown())));
    }
    let one = |buffer: &PathBuf| exit::status(one(buffer, args));
    Ok(buffers.iter().map(one).max().unwrap_or(0))
}

fn one(buffer: &Path, args: &CheckArgs) -> Result<u8, Failure> {
    if args.repair {
        repair(buffer, args.dir.as_deref())?;
    }
    let findings = look(buffer)?;
    print(buffer, &findings, args.repair);
    Ok(if findings.problems.is_empty() { 0 } else { exit::UNAVAILABLE })
}

fn look(buffer: &Path) -> Result<Findings, Failure> {
    let _lock = lock(buffer)?;
    let mut findings = Findings::default();
    match agent::windows_left(buffer) {
        Ok(left) => findings.windows = left,
        Err(error) => findings.problems.push(format!("its windows: {error}{}", forget::words(buffer, &error))),
    }
    let mut files = replicas(buffer, &mut findings);
    if file_cache::is_damaged(buffer) {
        findings.problems.push(format!("its superblock is missing or damaged: {}", mend(buffer)));
    }
    if let Some(catalogue) = catalogue(buffer, &mut findings) {
        let mut damaged = Vec::new();
        let dir = serving::directory_of(buffer).unwrap_or_default();
        let trusted = file_cache::first_after_crash(buffer);
        let scanned = catalogue.scan(
            &mut |identity, record| {
                let there = files.remove(&record.version.to_string()).is_some();
                if !there && record.version < trusted && file_cache::may_go_with_crash(&record) {
                    findings.unsynced += 1;
                } else {
                    findings.count(&record, there);
                    findings.decide(decision(buffer, &dir, &identity, &record, there));
                }
                true
            },
            &mut |error| damaged.push(error.to_string()),
        );
        findings.problems.extend(damaged);
        findings.problems.extend(scanned.err().map(|error| error.to_string()));
    }
    for (name, path) in files {
        if file_cache::holds_unsaved_data(&path) {
            findings.problems.push(format!("replica {name} holds unsaved data and has no record: {}", mend(buffer)));
        } else {
            findings.unknown += 1;
        }
    }
    Ok(findings)
}

/// Returns whether the first start was interrupted before the place could hold anything; the next start creates the
/// missing parts. An unreadable place may hold something.
pub fn holds_nothing(buffer: &Path) -> bool {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let mut begun = ["FORMAT", "db"].iter().map(|part| fs::symlink_metadata(buffer.join(CATALOGUE).join(part)));
    let empty = |dir: PathBuf| match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => missing(&error),
    };
    begun.all(|part| part.is_err_and(|error| missing(&error)))
        && match fs::read_dir(buffer.join("replicas")) {
            Ok(mut parts) => parts.all(|part| part.is_ok_and(|part| empty(part.path()))),
            Err(error) => missing(&error),
        }
}

fn mend(buffer: &Path) -> String {
    format!("forebay check {} --repair", shell::word(buffer))
}

/// Opens the catalogue if there is one. A missing one is not created, so that the next start knows that it is lost.
fn catalogue(buffer: &Path, findings: &mut Findings) -> Option<FjallCatalogue> {
    let path = buffer.join(CATALOGUE);
    if holds_nothing(buffer) {
        return None;
    }
    let wrong = if path.join("db").exists() {
        match FjallCatalogue::open(&path) {
            Ok(catalogue) => return Some(catalogue),
            Err(error) => error.to_string(),
        }
    } else {
        format!("the catalogue {} is missing", path.shown())
    };
    findings.problems.push(format!("{wrong}; it is made anew from the dirty replicas: {}", mend(buffer)));
    None
}

impl Findings {
    fn decide(&mut self, decision: Option<String>) {
        let Some(decision) = decision else { return };
        self.undecided += 1;
        if self.decisions.len() < LISTED_MAX {
            self.decisions.push(decision);
        }
    }

    fn count(&mut self, record: &Record, has_replica: bool) {
        if record.removing && record.state != State::Clean {
            self.removed += 1;
            return;
        }
        match record.state {
            State::Clean => self.clean += 1,
            State::Dirty | State::Draining if !record.orphaned => self.dirty += 1,
            _ => self.stuck += 1,
        }
        match (record.state, has_replica) {
            (_, true) => {}
            (State::Clean, false) => self.stale += 1,
            (_, false) => {
                let path = record.hint.shown();
                self.problems.push(format!("{path}: its data, not yet in the global store, is missing here"));
            }
        }
    }
}

/// Describes a file that waits for a decision. Returns `None` if it does not.
fn decision(buffer: &Path, dir: &Path, identity: &Identity, record: &Record, there: bool) -> Option<String> {
    let named = || dir.join(&record.hint);
    let (file, why) = match record.state {
        _ if record.orphaned => (identity.to_string().into(), "it is not in the global store"),
        State::Conflict | State::Failed => (named(), plain(&record.reason)),
        _ => return None,
    };
    let words = resolve_words(&file, record.orphaned, there, Some(buffer));
    Some(format!("{}: {why}\n    to decide: forebay resolve {words}", named().shown()))
}

/// Returns the number of files in a burst buffer without an agent that are not in the global store.
pub fn undrained(buffer: &Path) -> Result<u64, Failure> {
    let findings = look(buffer)?;
    Ok(findings.dirty + findings.stuck)
}

/// The replica files by name.
fn replicas(buffer: &Path, findings: &mut Findings) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    for part in fs::read_dir(buffer.join("replicas")).into_iter().flatten().flatten() {
        for file in fs::read_dir(part.path()).into_iter().flatten().flatten() {
            let Ok(meta) = file.metadata() else { continue };
            let name = file.file_name().to_string_lossy().into_owned();
            let is_version = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_version && meta.is_file() {
                findings.replicas += 1;
                findings.bytes += meta.len();
                files.insert(name, file.path());
            }
        }
    }
    files
}

/// Recreates lost parts of the burst buffer, and opens the cache as an agent would, which adopts and tidies. Then
/// compares everything with the global store and repairs what it can. Stages nothing out and never changes dirty
/// data.
fn repair(buffer: &Path, asked: Option<&Path>) -> Result<(), Failure> {
    let no_dir = || {
        Failure::new(exit::NO_INPUT, format!("{} does not say which directory it serves", buffer.shown()))
            .remedy("name it: --dir DIR")
    };
    let dir = asked.map(Path::to_path_buf).or_else(|| serving::directory_of(buffer)).ok_or_else(no_dir)?;
    let cannot = |e: &io::Error| {
        Failure::io(format_args!("use {}, whose data this is", dir.shown()), e)
            .remedy("if it is elsewhere now, name it: --dir DIR")
    };
    let dir = fs::canonicalize(&dir).map_err(|e| cannot(&e))?;
    let below = lower::open(&dir).map_err(|e| cannot(&e))?;
    let place = Place { dir, burst_buffer: buffer.to_path_buf() };
    if file_cache::is_damaged(buffer) {
        remake_superblock(buffer, below.as_fd())?;
    }
    set_catalogue_aside(buffer)?;
    let how = How { idle: true, thorough: true, ..How::default() };
    let cache = serving::cache_of(&place, below, &how)?;
    let report = cache.check(true, true);
    cache.shutdown();
    let report = report.map_err(|e| Failure::io("check the burst buffer", &e))?;
    out!("{}: {} findings, {} mended", buffer.shown(), report.found, report.mended);
    report.findings.iter().take(LISTED_MAX).for_each(|finding| out!("  {finding}"));
    Ok(())
}

/// Creates a new superblock for the store whose root is `below`.
fn remake_superblock(buffer: &Path, below: BorrowedFd<'_>) -> Result<(), Failure> {
    let failed = |e: &io::Error| Failure::io(format_args!("mend {}", buffer.shown()), e);
    let store = PosixStore::id_of(below).map_err(|e| failed(&e))?;
    let mut last = file_cache::last_version(buffer).map_err(|e| failed(&e))?;
    {
        let _lock = lock(buffer)?;
        // Records may name later versions than the remaining replicas.
        if let Some(catalogue) = catalogue(buffer, &mut Findings::default()) {
            let _ = catalogue.scan(
                &mut |_, record| {
                    last = last.max(record.version);
                    true
                },
                &mut |_| {},
            );
        }
    }
    file_cache::remake(buffer, &store, last).map_err(|error| Failure::new(exit::CANT_CREATE, error.to_string()))?;
    out!("{}: made a new superblock", buffer.shown());
    Ok(())
}

/// Moves an unreadable catalogue aside. A catalogue of another format version stays.
fn set_catalogue_aside(buffer: &Path) -> Result<(), Failure> {
    let _lock = lock(buffer)?;
    let path = buffer.join(CATALOGUE);
    if !path.exists() {
        return Ok(());
    }
    match FjallCatalogue::open(&path) {
        Ok(_) => return Ok(()),
        Err(error @ catalogue::Error::Format { .. }) if error.is_of_another_version() => {
            return Err(Failure::new(exit::CANT_CREATE, error.to_string()));
        }
        Err(error) => out!("{error}"),
    }
    let aside = (0..).map(|n| buffer.join(format!("catalogue.damaged-{n}"))).find(|aside| !aside.exists());
    let Some(aside) = aside else { return Ok(()) };
    fs::rename(&path, &aside).map_err(|e| Failure::io(format_args!("move {} away", path.shown()), &e))?;
    out!("{}: the catalogue cannot be read: moved to {}, a new one is made", buffer.shown(), aside.shown());
    Ok(())
}

fn print(buffer: &Path, findings: &Findings, repaired: bool) {
    let f = findings;
    out!(
        "{}: {} replicas, {} bytes: {} clean, {} dirty, {} need a decision",
        buffer.shown(),
        f.replicas,
        f.bytes,
        f.clean,
        f.dirty,
        f.stuck
    );
    if f.stale + f.unknown > 0 && !repaired {
        out!(
            "  {} records without replica and {} replicas without record: the next start, or --repair, tidies up",
            f.stale,
            f.unknown
        );
    }
    if f.removed > 0 {
        out!("  {} being removed or published: the next start looks whether they are gone", files_were(f.removed));
    }
    if f.unsynced > 0 {
        out!(
            "  {} written and not synced when the machine crashed: they are what they are below",
            files_were(f.unsynced)
        );
    }
    for problem in f.problems.iter().take(LISTED_MAX) {
        out!("  problem: {problem}");
    }
    if f.problems.len() > LISTED_MAX {
        out!("  and {} more", f.problems.len() - LISTED_MAX);
    }
    for decision in &f.decisions {
        out!("  {decision}");
    }
    if f.undecided > f.decisions.len() {
        out!("  and {} more to be decided", f.undecided - f.decisions.len());
    }
    for dir in &f.windows {
        out!(
            "  windows of a killed agent, in {}, may hold writes that are not here yet: the next start brings them",
            dir.shown()
        );
    }
    if f.dirty > 0 {
        out!("  to stage out what is dirty: forebay recover {}", shell::word(buffer));
    }
}
