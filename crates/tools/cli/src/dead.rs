//! Dead mounts: mounts of ours that nobody serves any more, since the agent was killed.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use types::Shown;

use crate::aside::aside;
use crate::exit::{Failure, say};
use crate::limits::{DEAD_LOOK, POLL};
use crate::mounts::{self, Mount};
use crate::shell;

/// Returns whether the connection of a mount has ended. A hanging agent counts as alive, after a short wait.
pub fn is_dead(mount: &Mount) -> bool {
    let (point, start) = (mount.point.clone(), Instant::now());
    // The kernel's cached attributes are bypassed.
    let look = move || statx(CWD, &point, AtFlags::STATX_FORCE_SYNC, StatxFlags::TYPE).err();
    let looked = aside("look", POLL / 10, look, &mut || start.elapsed() >= DEAD_LOOK);
    matches!(looked, Ok(Some(Some(rustix::io::Errno::NOTCONN))))
}

/// Detaches a dead mount that is in the way of a new one over `dir`. Users of files open there get errors until they
/// close them; the data is in the burst buffer. Other obstacles are reported by the next look into the directory.
pub fn detach(dir: &Path, burst_buffer: &Path) -> Result<(), Failure> {
    let (Ok(seen), Ok(lexical)) = (mounts::all(), std::path::absolute(dir)) else { return Ok(()) };
    // Nothing behind our first mount is touched, since its agent may hang.
    let first =
        mounts::walk(&lexical, |at| mounts::ours_over(&seen, at).map_or(Ok(()), |mount| Err(Box::new(mount.clone()))));
    let Some(mount) = first.err().filter(|mount| is_dead(mount)) else { return Ok(()) };
    if fs::canonicalize(&lexical).ok().as_deref() != Some(&mount.point) {
        return Ok(());
    }
    say!("forebay: the agent of {} has ended without unmounting: its mount is replaced", mount.point.shown());
    if fs::canonicalize(burst_buffer).ok().as_ref() != Some(&mount.source) {
        say!(
            "  what it left is in another burst buffer; to stage it out: forebay recover {}",
            shell::word(&mount.source)
        );
    }
    fuse_protocol::mount::unmount(&mount.point, true)
        .map_err(|e| Failure::io(format_args!("end the dead mount of {}", mount.point.shown()), &e))
}
