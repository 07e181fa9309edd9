//! `forebay clean`: drops clean data from a burst buffer, with or without an agent.

use std::path::Path;

use data_store::{Cleaned, Which};
use indicatif::HumanBytes;
use serde_json::json;
use types::Shown;

use crate::args::CleanArgs;
use crate::commands::recover::existing;
use crate::count::files;
use crate::exit::{self, Failure, out, say};
use crate::limits::SILENCE;
use crate::neighbours::{self, Outcome};
use crate::{place, served, shell};

/// Cleans every place in the burst buffer, or the place of one directory. Returns 69 if one could not be cleaned.
pub fn run(args: &CleanArgs) -> Result<u8, Failure> {
    let root = existing(&args.burst_buffer)?;
    let asked = args.dir.as_ref().map(|dir| std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone()));
    let is_asked = |place: &Path| asked.is_none() || served::directory_of(place) == asked;
    let places: Vec<_> = place::formatted(&root).into_iter().filter(|place| is_asked(place)).collect();
    if places.is_empty() {
        let of = asked.map_or(String::new(), |dir| format!(" for {}", dir.shown()));
        return Err(Failure::new(exit::NO_INPUT, format!("{} holds no data of Forebay{of}", root.shown())));
    }
    let used_before_s = args.older.map_or(u64::MAX, |age| neighbours::now_s().saturating_sub(age.as_secs()));
    let which = Which { used_before_s, bytes: u64::MAX, dry_run: args.dry_run };
    let (mut code, mut told) = (0, Vec::new());
    for place in &places {
        let dir = served::directory_of(place).unwrap_or_default();
        let outcome = clean(place, &which);
        let failure = outcome.as_ref().err().cloned();
        let cleaned = outcome.unwrap_or_default();
        told.push(json!({
            "dir": dir,
            "burst_buffer": place,
            "files": cleaned.files,
            "bytes": cleaned.bytes,
            "error": failure.as_ref().map(|failure| &failure.message),
        }));
        if !args.json {
            let would = if args.dry_run { "would be " } else { "" };
            let bytes = HumanBytes(cleaned.bytes);
            out!("{}: {} of clean data, {} {would}freed", dir.shown(), bytes, files(cleaned.files));
            failure.iter().for_each(|failure| say!("{failure}"));
        }
        code = failure.map_or(code, |failure| code.max(failure.code));
    }
    if args.json {
        exit::out_json(&told)?;
    }
    Ok(code)
}

fn clean(place: &Path, which: &Which) -> Result<Cleaned, Failure> {
    let mut all = Cleaned::default();
    loop {
        let failed = |e| Failure::io(format_args!("clean {}", place.shown()), &e);
        match neighbours::clean(place, which, SILENCE).map_err(failed)? {
            Outcome::Left => {
                let message =
                    format!("{} was left: it is in use, of another user, or to be looked through first", place.shown());
                return Err(
                    Failure::new(exit::UNAVAILABLE, message).remedy(format!("forebay recover {}", shell::word(place)))
                );
            }
            Outcome::Done(some) => {
                (all.files, all.bytes) = (all.files + some.files, all.bytes + some.bytes);
                // Cleaned in turns, so that whoever wants to use the place waits for one turn only.
                if which.dry_run || some.files == 0 {
                    return Ok(all);
                }
            }
        }
    }
}
