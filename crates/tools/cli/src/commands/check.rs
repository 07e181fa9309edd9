//! `forebay check`: checks a burst buffer that no agent uses.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use catalogue::{Catalogue, FjallCatalogue};
use data_store::DataStore;
use global_store::posix::PosixStore;
use placement::lock::lock;
use types::Shown;

use crate::args::CheckArgs;
use crate::commands::recover::existing;
use crate::count::files_were;
use crate::exit::{self, Failure, out};
use crate::findings::{self, CATALOGUE, Findings, catalogue, look};
use crate::guest::Place;
use crate::limits::LISTED_MAX;
use crate::serving::{self, How};
use crate::{delegated, lower, place, shell};

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

/// Recreates lost parts of the burst buffer, and opens the cache as an agent would, which adopts and tidies. Then
/// compares everything with the global store and repairs what it can. Stages nothing out and never changes dirty
/// data.
fn repair(buffer: &Path, asked: Option<&Path>) -> Result<(), Failure> {
    let dir = asked.map_or_else(|| findings::served(buffer), |asked| Ok(asked.to_path_buf()))?;
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
    (&cache as &dyn DataStore).shutdown();
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
        f.dirty + f.waiting,
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
        out!("  {} being removed: the next start looks whether they are gone", files_were(f.removed));
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
    if f.trees > 0 {
        out!("  delegated directories: {}; {} for the global store", f.trees, delegated::names_wait(f.waiting));
    }
    for dir in &f.windows {
        out!(
            "  windows of a killed agent, in {}, may hold writes that are not here yet: the next start brings them",
            dir.shown()
        );
    }
    if f.dirty + f.trees > 0 {
        out!("  to stage out what is dirty: forebay recover {}", shell::word(buffer));
    }
}
