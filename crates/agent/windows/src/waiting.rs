//! Whether killed agents have left windows, for those who do not replay them now.

use std::io;
use std::path::{Path, PathBuf};

use types::Identity;

use crate::place::FilePlace;
use crate::session::AgentRun;

/// Returns whether killed agents left windows of files of some kind. Sessions that are not visible from here are passed over. Errors:
/// those of reading the others.
pub fn has_windows_of(burst_buffer: &Path, is_of_kind: &dyn Fn(&Identity) -> bool) -> io::Result<bool> {
    for session in AgentRun::unfinished(burst_buffer)? {
        let places = if session.is_whole().unwrap_or(false) { session.left()? } else { Vec::new() };
        let is_meant = |place: &FilePlace| matches!(place.owner(), Ok(Some((identity, _))) if is_of_kind(&identity));
        if places.iter().any(|place| place.may_hold() && is_meant(place)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the sessions that may hold acknowledged data for this burst buffer: those with granted rings. Only a replay
/// can tell how much of it is applied already. Errors: those of reading the sessions.
pub fn windows_left(burst_buffer: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for session in AgentRun::unfinished(burst_buffer)? {
        if session.is_whole()? && session.left()?.iter().any(FilePlace::may_hold) {
            found.push(session.path());
        }
    }
    Ok(found)
}
