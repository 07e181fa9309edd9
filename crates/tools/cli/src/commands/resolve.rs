//! `forebay resolve`: decides which copy stays of a file that changed in both places, or that cannot be staged out.
//!
//! A running agent is asked. Without one this process opens the burst buffer.

use std::path::{Path, PathBuf};

use agent::control::{ControlRequest, Keep};
use data_store::{CommandOutcome, DataStore, StatusScope, StoreCommand, StuckStatus};
use types::{Identity, Shown};

use crate::args::{KeepArg, ResolveArgs};
use crate::drain;
use crate::exit::{self, Failure, out};
use crate::guest::Place;
use crate::link::{self, Link, Target};
use crate::lower;
use crate::place;
use crate::privilege;
use crate::replaced;
use crate::served;
use crate::serving::{self, How};

/// Resolves a file. Prints where the burst buffer's copy was saved, if it was.
pub fn run(args: &ResolveArgs) -> Result<u8, Failure> {
    let buffer = args.burst_buffer.get();
    if let Some((place, dir)) = of_former(&args.path, buffer.as_deref()) {
        return give_up(&place, &dir, args.keep);
    }
    let (target, file) = match identity(&args.path, buffer.as_deref())? {
        // The identity belongs to the burst buffer, or to the directory in which this process runs.
        Some(identity) => (of_identity(buffer.as_deref())?, PathBuf::from(identity)),
        None => link::target(&args.path, buffer.as_deref())?,
    };
    match link::connect(target.clone()) {
        Ok(link) => by_agent(link, &file, args),
        Err(failure) if failure.code == exit::UNAVAILABLE && buffer.is_some() => {
            // A stopped agent still has its mount over the directory.
            link::answers(&target)?;
            by_hand(target, &file, copy_of(args.keep))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the place of a former directory at `path` and the path, if the burst buffer has one.
fn of_former(path: &Path, buffer: Option<&Path>) -> Option<(PathBuf, PathBuf)> {
    let buffer = std::fs::canonicalize(buffer?).ok()?;
    let of_it = |place: &PathBuf| {
        served::directory_of(place).filter(|dir| std::path::absolute(path).is_ok_and(|path| path == *dir))
    };
    let found = place::formatted(&buffer).into_iter().find_map(|place| of_it(&place).map(|dir| (place, dir)))?;
    replaced::is_of_former(&found.0, &found.1).then_some(found)
}

/// Ends what waits in a place of a former directory, which is emptied: saved (`both`), or given up (`global`).
fn give_up(place: &Path, dir: &Path, keep: KeepArg) -> Result<u8, Failure> {
    if keep == KeepArg::BurstBuffer {
        let message = format!("the directory {} is not the one whose data this is", dir.shown());
        return Err(Failure::new(exit::USAGE, message).remedy("save it with --keep both, and copy from there"));
    }
    replaced::give_up(place, keep == KeepArg::Both, &mut |path| out!("{}", path.shown())).map(|()| 0)
}

/// Identity given in place of a path: a word that names no file here and looks like an identity.
fn identity(path: &Path, buffer: Option<&Path>) -> Result<Option<String>, Failure> {
    let hex = |text: &&str| text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(text) = path.to_str().filter(hex) else { return Ok(None) };
    let lexical = link::way(path, &link::targets(buffer)?)?;
    Ok(std::fs::symlink_metadata(lexical).is_err().then(|| text.to_string()))
}

fn of_identity(buffer: Option<&Path>) -> Result<Target, Failure> {
    let mut targets = link::targets(buffer)?;
    match (targets.pop(), targets.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Ok(link::target(Path::new("."), buffer)?.0),
    }
}

fn by_agent(mut link: Link, file: &Path, args: &ResolveArgs) -> Result<u8, Failure> {
    let keep = copy_of(args.keep);
    let asked = link.ask(&ControlRequest::Resolve { file: file.to_string_lossy().into_owned(), keep }, |_| {});
    let saved = asked.map_err(|failure| match failure.code {
        exit::NO_INPUT => nothing(&args.path).remedy("what is to be decided: forebay status"),
        _ => failure,
    })?;
    if let Some(path) = saved.as_str() {
        out!("{path}");
    }
    Ok(0)
}

/// Resolves without an agent: opens the burst buffer, decides, and stages out what became dirty.
fn by_hand(target: Target, file: &Path, keep: Keep) -> Result<u8, Failure> {
    let below = lower::open(&target.dir).map_err(|e| Failure::io(format_args!("use {}", target.dir.shown()), &e))?;
    let place = Place { dir: target.dir, burst_buffer: target.burst_buffer };
    privilege::keep_within_quotas();
    let prepared = serving::prepare(&place, below, &How { idle: true, ..How::default() })?;
    let cache: &dyn DataStore = &*prepared.cache;
    let wanted = file.to_string_lossy();
    let mut found = waiting(cache, &wanted);
    if let Some(trees) = prepared.trees.as_ref().filter(|_| found.is_empty()) {
        // Which names of delegated directories wait is known after an attempt.
        trees.apply_all();
        found = waiting(cache, &wanted);
    }
    let resolved = found.iter().try_for_each(|identity| decide(cache, identity, keep));
    cache.shutdown();
    if found.is_empty() {
        return Err(nothing(&place.dir.join(file)).remedy(drain::advice(&place.burst_buffer)));
    }
    resolved.map(|()| 0)
}

/// Returns the identities of what waits under a path or an identity, or else of all names that others have made below the path, which
/// is a delegated directory.
fn waiting(cache: &dyn DataStore, wanted: &str) -> Vec<Identity> {
    let stuck = cache.status(StatusScope::Activity).counters.unwrap_or_default().stuck;
    let identity = |one: &StuckStatus| Identity::from_hex(&one.identity);
    if let Some(itself) = stuck.iter().find(|one| one.path == wanted || one.identity == wanted) {
        return identity(itself).into_iter().collect();
    }
    let is_below = |one: &&StuckStatus| !wanted.is_empty() && Path::new(&one.path).starts_with(wanted);
    let decided = stuck.iter().filter(is_below).filter(|one| one.state == "conflict");
    decided.filter_map(identity).filter(trees::is_of_tree).collect()
}

fn decide(cache: &dyn DataStore, identity: &Identity, keep: Keep) -> Result<(), Failure> {
    let resolve = StoreCommand::Resolve(identity, keep);
    if let CommandOutcome::Saved(path) = cache.command(resolve).map_err(|e| Failure::io("resolve it", &e))? {
        out!("{}", path.shown());
    }
    if trees::is_of_tree(identity) {
        return Ok(());
    }
    // Other files may still be stuck; the caller wants to know of this file's own failure.
    cache.drain_file(identity, &|| false).map_err(|stuck| Failure::new(exit::UNDRAINED, stuck.reason))
}

fn nothing(path: &Path) -> Failure {
    Failure::new(exit::NO_INPUT, format!("nothing is to be decided about {}", path.shown()))
}

fn copy_of(keep: KeepArg) -> Keep {
    match keep {
        KeepArg::BurstBuffer => Keep::BurstBuffer,
        KeepArg::Global => Keep::Global,
        KeepArg::Both => Keep::Both,
    }
}
