//! `forebay recover`: drains what a killed agent or a crashed machine left in a burst buffer.

use std::io;
use std::path::{Path, PathBuf};

use data_store::StatusScope;
use types::Shown;

use crate::args::RecoverArgs;
use crate::count::files;
use crate::drain::{self, Requests};
use crate::exit::{self, Failure, say};
use crate::guest::Place;
use crate::serving::{self, How, Prepared};
use crate::signals::Signals;
use crate::{findings, forget, log, lower, mounts, open_files, place, privilege, replaced, served, shell};

/// Largest exit status that does not stand for a signal, as in shells.
const ENDED_BY_SIGNAL: u8 = 128;

/// Recovers every burst buffer in the directory. Returns 75 if data is left.
pub fn run(args: &RecoverArgs) -> Result<u8, Failure> {
    let root = existing(&args.burst_buffer)?;
    let signals = Signals::block();
    let _ = open_files::raise();
    let buffers = place::formatted(&root);
    let forgotten = args.forget_windows.iter().map(std::path::absolute).collect::<io::Result<Vec<_>>>();
    let forgotten = &forgotten.map_err(|error| Failure::io("find what windows are to be given up", &error))?[..];
    let (asked, single) = (args.dir.as_deref(), buffers.len() == 1);
    if !forgotten.is_empty() {
        // A problem with one of the directories is reported in its turn.
        let is_chosen = |buffer: &Path| !matches!(directory(buffer, asked, single), Ok(None));
        forget::may_ask(&root, &buffers, is_chosen, forgotten)?;
    }
    // Nothing is created in a directory that was named by mistake.
    if !buffers.is_empty() || !forgotten.is_empty() {
        log::start(&root);
    }
    privilege::keep_within_quotas();
    if buffers.is_empty() && !forgotten.is_empty() {
        return forget::windows_at_server(&root, forgotten).map(|()| 0);
    }
    let requests = Requests::none(&signals);
    let mut code = 0;
    let mut served = 0;
    for buffer in buffers {
        let done = directory(&buffer, asked, single).and_then(|dir| {
            let Some(dir) = dir else { return Ok(0) };
            served += 1;
            one(&Place { dir, burst_buffer: buffer }, forgotten, &signals, &requests)
        });
        // A problem with one directory's place does not keep others from being recovered.
        code = code.max(exit::status(done));
        if code > ENDED_BY_SIGNAL || requests.give_up() {
            break;
        }
    }
    if served == 0 && code == 0 {
        let message = format!("{} holds no data of Forebay", root.shown());
        let known: Vec<String> = place::formatted(&root)
            .iter()
            .filter_map(|b| served::directory_of(b))
            .map(|dir| dir.shown().to_string())
            .collect();
        let failure = Failure::new(exit::NO_INPUT, message);
        return Err(if known.is_empty() { failure } else { failure.remedy(format!("it serves {}", known.join(", "))) });
    }
    Ok(code)
}

/// Returns the canonical path of a burst buffer. Errors: it does not exist or is no directory.
pub fn existing(path: &Path) -> Result<PathBuf, Failure> {
    let root = std::fs::canonicalize(path)
        .map_err(|e| Failure::io(format_args!("use the burst buffer {}", path.shown()), &e))?;
    if root.is_dir() {
        Ok(root)
    } else {
        Err(Failure::new(exit::NO_INPUT, format!("{} is no directory", path.shown())))
    }
}

/// Returns the directory that a burst buffer serves. `single`: it is the only one. Returns `None` if another
/// directory is `asked` for.
fn directory(buffer: &Path, asked: Option<&Path>, single: bool) -> Result<Option<PathBuf>, Failure> {
    let known = served::directory_of(buffer);
    let Some(asked) = asked else {
        if known.is_none() && findings::holds_nothing(buffer) {
            return Ok(None);
        }
        return findings::served(buffer).map(Some);
    };
    let dir = std::fs::canonicalize(asked).map_err(|e| Failure::io(format_args!("use {}", asked.shown()), &e))?;
    // A store may be mounted elsewhere now: with a single burst buffer the cache itself checks whether the directory
    // fits.
    Ok((single || known.is_none_or(|known| known == dir)).then_some(dir))
}

fn one(place: &Place, forget: &[PathBuf], signals: &Signals, requests: &Requests<'_>) -> Result<u8, Failure> {
    let seen = mounts::all().map_err(|e| Failure::io("read the mounts", &e))?;
    if let Some(mount) = mounts::ours_over(&seen, &place.dir) {
        let message = format!("{} is accelerated now, with {}", mount.point.shown(), mount.source.shown());
        return Err(Failure::new(exit::UNAVAILABLE, message).remedy(format!(
            "its agent recovers by itself; if that is gone: forebay umount {}",
            shell::word(&mount.point)
        )));
    }
    let Some(prepared) = prepare(place, forget, signals)? else {
        say!("forebay: {} was removed and made anew; nothing of the former one waited", place.dir.shown());
        return Ok(0);
    };
    let (stuck, _) = drain::drain(&prepared.cache, requests, false);
    let counters = prepared.cache.status(StatusScope::Activity).counters.unwrap_or_default();
    say!(
        "forebay: {}: staged out {}, {} bytes",
        place.dir.shown(),
        files(counters.staged_out_files),
        counters.staged_out_bytes
    );
    if !stuck.is_empty() {
        drain::list(&stuck, &place.dir, &place.burst_buffer);
    }
    drain::let_go(&*prepared.cache, &place.burst_buffer, false);
    Ok(if stuck.is_empty() { 0 } else { exit::UNDRAINED })
}

/// Opens a place, unless a request to end comes first. Returns `None` if the directory was made anew and nothing
/// waited: the place was then taken for the new one.
fn prepare(place: &Place, forget: &[PathBuf], signals: &Signals) -> Result<Option<Prepared>, Failure> {
    let ours = place.clone();
    let how = How { thorough: true, forget_windows: forget.to_vec(), ..How::default() };
    let prepared = signals.unless_asked_to_end(move || {
        // Looks at the directory, whose store may hang.
        if replaced::is_of_former(&ours.burst_buffer, &ours.dir) {
            return replaced::take_anew(&ours.burst_buffer, &ours.dir).map(|()| None);
        }
        let below = lower::open(&ours.dir).map_err(|e| Failure::io(format_args!("use {}", ours.dir.shown()), &e))?;
        serving::prepare(&ours, below, &how).map(Some)
    });
    prepared.inspect_err(|failure| {
        if failure.code > ENDED_BY_SIGNAL {
            say!("forebay: {}: ended before it was looked at; its data is kept", place.dir.shown());
            say!("  {}", drain::advice(&place.burst_buffer));
        }
    })
}
