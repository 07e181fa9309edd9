//! `forebay check`: whether a burst buffer that no agent uses is sound.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use catalogue::{Catalogue, FjallCatalogue, Record, State};
use rustix::fs::FlockOperation;

use crate::args::CheckArgs;
use crate::commands::recover::existing;
use crate::exit::{self, Failure, out};
use crate::guest::Place;
use crate::limits::LISTED_MAX;
use crate::serving::{self, How};
use crate::{lower, place};

/// What is found in one burst buffer.
#[derive(Debug, Default)]
struct Findings {
    clean: u64,
    dirty: u64,
    stuck: u64,
    replicas: u64,
    bytes: u64,
    /// Clean records without a replica: dropped at the next start.
    stale: u64,
    /// Replicas without a record: removed at the next start, or adopted if they say whose dirt they hold.
    unknown: u64,
    /// What costs data, or may.
    problems: Vec<String>,
}

/// Checks every burst buffer in the directory. 69 if one has a problem that `--repair` did not mend.
pub fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let root = existing(&args.burst_buffer)?;
    let buffers = place::formatted(&root);
    if buffers.is_empty() {
        return Err(Failure::new(exit::NO_INPUT, format!("{} is no burst buffer of Forebay", root.display())));
    }
    let mut code = 0;
    for buffer in buffers {
        if args.repair {
            repair(&buffer)?;
        }
        let findings = look(&buffer)?;
        print(&buffer, &findings, args.repair);
        if !findings.problems.is_empty() {
            code = exit::UNAVAILABLE;
        }
    }
    Ok(code)
}

fn look(buffer: &Path) -> Result<Findings, Failure> {
    let _lock = lock(buffer)?;
    let mut findings = Findings::default();
    let mut files = replicas(buffer, &mut findings);
    let catalogue = FjallCatalogue::open(buffer.join("catalogue")).map_err(|e| {
        Failure::new(exit::UNAVAILABLE, e.to_string())
            .remedy("a lost catalogue is rebuilt from the replicas: forebay check --repair")
    })?;
    let mut damaged = Vec::new();
    let scanned = catalogue.scan(
        &mut |_, record| {
            findings.count(&record, files.remove(&record.version.to_string()));
            true
        },
        &mut |error| damaged.push(error.to_string()),
    );
    findings.problems.extend(damaged);
    findings.problems.extend(scanned.err().map(|error| error.to_string()));
    findings.unknown = files.len() as u64;
    Ok(findings)
}

impl Findings {
    fn count(&mut self, record: &Record, has_replica: bool) {
        match record.state {
            State::Clean => self.clean += 1,
            State::Dirty | State::Draining => self.dirty += 1,
            State::Conflict | State::Failed => self.stuck += 1,
        }
        match (record.state, has_replica) {
            (_, true) => {}
            (State::Clean, false) => self.stale += 1,
            (_, false) => {
                let path = record.hint.display();
                self.problems.push(format!("{path}: its data, not yet in the global store, is missing here"));
            }
        }
    }
}

/// How many files a burst buffer without an agent holds that are not in the global store.
pub fn undrained(buffer: &Path) -> Result<u64, Failure> {
    let findings = look(buffer)?;
    Ok(findings.dirty + findings.stuck)
}

/// The lock that an agent holds.
fn lock(buffer: &Path) -> Result<File, Failure> {
    let path = buffer.join("forebay.lock");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|e| Failure::io(format_args!("open {}", path.display()), &e))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Failure::new(exit::UNAVAILABLE, format!("the burst buffer {} is in use", buffer.display()))
            .remedy("an agent in use checks itself: forebay status")
    })?;
    Ok(file)
}

/// The names of the replica files.
fn replicas(buffer: &Path, findings: &mut Findings) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for part in fs::read_dir(buffer.join("replicas")).into_iter().flatten().flatten() {
        for file in fs::read_dir(part.path()).into_iter().flatten().flatten() {
            findings.replicas += 1;
            findings.bytes += file.metadata().map_or(0, |meta| meta.len());
            names.insert(file.file_name().to_string_lossy().into_owned());
        }
    }
    names
}

/// Opens the cache as an agent would, which adopts and tidies, then compares everything with the global store and mends
/// what can be mended. Nothing is staged out, and dirty data is never touched.
fn repair(buffer: &Path) -> Result<(), Failure> {
    let dir = serving::directory_of(buffer).ok_or_else(|| {
        Failure::new(exit::NO_INPUT, format!("{} does not say which directory it serves", buffer.display()))
    })?;
    let below = lower::open(&dir).map_err(|e| Failure::io(format_args!("use {}", dir.display()), &e))?;
    let place = Place { dir, burst_buffer: buffer.to_path_buf() };
    let how = How { idle: true, ..How::default() };
    let cache = serving::prepare(&place, below, &how)?.cache;
    let report = cache.check(true, true);
    cache.shutdown();
    let report = report.map_err(|e| Failure::io("check the burst buffer", &e))?;
    out!("{}: {} findings, {} mended", buffer.display(), report.found, report.mended);
    report.findings.iter().take(LISTED_MAX).for_each(|finding| out!("  {finding}"));
    Ok(())
}

fn print(buffer: &Path, findings: &Findings, repaired: bool) {
    let f = findings;
    out!(
        "{}: {} replicas, {} bytes: {} clean, {} dirty, {} need a decision",
        buffer.display(),
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
    for problem in f.problems.iter().take(LISTED_MAX) {
        out!("  problem: {problem}");
    }
    if f.problems.len() > LISTED_MAX {
        out!("  and {} more", f.problems.len() - LISTED_MAX);
    }
    if f.dirty > 0 {
        out!("  to stage out what is dirty: forebay recover {}", buffer.display());
    }
}
