//! Room in a burst buffer that several directories share: clean data of one place makes way for another.
//!
//! Nobody else would drop the clean data of ended runs. So an agent that is short of room, and one that starts, drops
//! the data unused for longest from any place. An agent that has the place is asked by its control socket; a place
//! without an agent is cleaned directly. Only places of the same user are touched. Each agent is waited for at most
//! [`NEIGHBOUR_SILENCE`].

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use agent::control::{ControlClient, ControlRequest, Reply};
use data_store::{Cleaned, Which};
use file_cache::IdlePlace;
use types::Shown;

use crate::limits::{NEIGHBOUR_AGES, NEIGHBOUR_SILENCE, NEIGHBOURS_TURN, ROOM_AT_START};
use crate::place;

pub enum Outcome {
    /// Clean data of this size was dropped.
    Done(Cleaned),
    /// The place was left alone: it must be recovered first, or belongs to another user.
    Left,
}

/// Drops clean data of a place, through its agent if there is one. `patience`: longest wait for the agent.
pub fn clean(place: &Path, which: &Which, patience: Duration) -> io::Result<Outcome> {
    if file_cache::check_owner(place, false).is_err() {
        return Ok(Outcome::Left);
    }
    let mut client = match ControlClient::connect_within(place, patience) {
        Ok(client) => client,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ECONNREFUSED)) => {
            let Some(idle) = IdlePlace::take(place)? else { return Ok(Outcome::Left) };
            return idle.clean(which).map(Outcome::Done);
        }
        Err(error) => return Err(error),
    };
    match client.request(&ControlRequest::Clean { which: *which }, |_| {})? {
        Reply::Done { result } => Ok(Outcome::Done(serde_json::from_value(result)?)),
        Reply::Failed { errno, .. } => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns the current time, seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// Drops clean data of the other places of the burst buffer in which `own` lies: first data unused for days, then for
/// hours, and so on. Returns the bytes freed.
pub fn free(own: &Path, which: &Which) -> u64 {
    let (until, now) = (Instant::now() + NEIGHBOURS_TURN, now_s());
    // Each with the time of last use of its oldest data, as far as known.
    let mut others: Vec<(PathBuf, Option<u64>)> = others(own).into_iter().map(|path| (path, Some(0))).collect();
    let mut freed = 0;
    let ages = NEIGHBOUR_AGES.iter().map(|age| now.saturating_sub(age.as_secs())).chain([u64::MAX]);
    for before in ages {
        let used_before_s = before.min(which.used_before_s);
        for (other, next) in others.iter_mut().filter(|(_, next)| next.is_some_and(|used_s| used_s < used_before_s)) {
            let rest = which.bytes.saturating_sub(freed);
            if rest == 0 || Instant::now() >= until {
                return freed;
            }
            match clean(other, &Which { used_before_s, bytes: rest, dry_run: false }, NEIGHBOUR_SILENCE) {
                Ok(Outcome::Done(cleaned)) => (freed, *next) = (freed + cleaned.bytes, cleaned.next_used_s),
                Ok(Outcome::Left) => *next = None,
                Err(error) => {
                    tracing::debug!(%error, place = %other.shown(), "no room is made there");
                    *next = None;
                }
            }
        }
        if used_before_s == which.used_before_s {
            break;
        }
    }
    freed
}

/// Makes room for the first files of a place before it is opened or created, if others have filled the burst buffer
/// with clean data.
pub fn make_room_for(own: &Path) {
    let Some(excess) = excess(own).or_else(|| excess(own.parent()?)) else { return };
    if excess > 0 {
        free(own, &Which { used_before_s: u64::MAX, bytes: excess, dry_run: false });
    }
}

/// Returns how many bytes are missing from the free space that a start wants, if that space is less than half of it.
fn excess(place: &Path) -> Option<u64> {
    let now = rustix::fs::statvfs(place).ok()?;
    let wanted = now.f_blocks.saturating_mul(now.f_frsize) / ROOM_AT_START;
    let free = now.f_bavail.saturating_mul(now.f_frsize);
    Some(if free < wanted / 2 { wanted - free } else { 0 })
}

/// Lists the other places of the burst buffer on the same file system.
fn others(own: &Path) -> Vec<PathBuf> {
    let root = if place::is_subdirectory(own) { own.parent().unwrap_or(own) } else { own };
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    let here = device(root);
    place::formatted(root).into_iter().filter(|path| path != own && device(path) == here).collect()
}
