//! Contents of a burst buffer that no agent uses, and their problems.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use catalogue::{Catalogue, FjallCatalogue, Record, State};
use placement::lock::lock;
use types::{Identity, Shown};

use crate::drain::{plain, resolve_words};
use crate::exit::{self, Failure};
use crate::limits::LISTED_MAX;
use crate::{delegated, forget, served, shell};

/// Directory of the catalogue in a burst buffer.
pub const CATALOGUE: &str = "catalogue";

#[derive(Debug, Default)]
pub struct Findings {
    pub clean: u64,
    pub dirty: u64,
    pub stuck: u64,
    pub replicas: u64,
    pub bytes: u64,
    /// Clean records without a replica; dropped at the next start.
    pub stale: u64,
    /// Files that were written but not synced when the machine crashed, and whose replica was lost with it.
    pub unsynced: u64,
    /// Files that were being removed when the agent ended. The next start checks whether they are gone.
    pub removed: u64,
    /// Replicas without a record and without unsaved data; removed at the next start.
    pub unknown: u64,
    /// Directories in which windows of killed agents may hold writes that are not in the burst buffer yet.
    pub windows: Vec<PathBuf>,
    /// Delegated directories.
    pub trees: u64,
    /// Files and directories of these of which the global store lacks changes.
    pub waiting: u64,
    /// Problems that have cost data, or may.
    pub problems: Vec<String>,
    /// The first [`LISTED_MAX`] files that wait for a decision: the file, the reason, and the command to decide.
    pub decisions: Vec<String>,
    pub undecided: usize,
}

/// Looks into a burst buffer without an agent, and changes nothing.
pub fn look(buffer: &Path) -> Result<Findings, Failure> {
    let _lock = lock(buffer)?;
    let mut findings = Findings::default();
    match agent::windows_left(buffer) {
        Ok(left) => findings.windows = left,
        Err(error) => findings.problems.push(format!("its windows: {error}{}", forget::words(buffer, &error))),
    }
    look_at_trees(buffer, &mut findings);
    let mut files = replicas(buffer, &mut findings);
    if file_cache::is_damaged(buffer) {
        findings.problems.push(format!("its superblock is missing or damaged: {}", mend(buffer)));
    }
    if let Some(catalogue) = catalogue(buffer, &mut findings) {
        let mut damaged = Vec::new();
        let dir = served::directory_of(buffer).unwrap_or_default();
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
        } else if fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
            // It was made ready for a file that nobody made.
            findings.replicas -= 1;
        } else {
            findings.unknown += 1;
        }
    }
    Ok(findings)
}

fn look_at_trees(buffer: &Path, findings: &mut Findings) {
    let left = delegated::left(buffer).unwrap_or_else(|error| {
        findings.problems.push(format!("its delegated directories: {error}"));
        Vec::new()
    });
    findings.trees = left.len() as u64;
    findings.waiting = left.iter().map(|tree| tree.waiting).sum();
    findings.problems.extend(left.iter().filter_map(|tree| delegated::problem(tree, buffer)));
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

/// Returns the directory that a burst buffer says it serves.
pub fn served(buffer: &Path) -> Result<PathBuf, Failure> {
    served::directory_of(buffer).ok_or_else(|| {
        Failure::new(exit::NO_INPUT, format!("{} does not say which directory it serves", buffer.shown()))
            .remedy("name it: --dir DIR")
    })
}

fn mend(buffer: &Path) -> String {
    format!("forebay check {} --repair", shell::word(buffer))
}

/// Opens the catalogue if there is one. A missing one is not created, so that the next start knows that it is lost.
pub fn catalogue(buffer: &Path, findings: &mut Findings) -> Option<FjallCatalogue> {
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
    Ok(findings.dirty + findings.stuck + findings.waiting)
}

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
