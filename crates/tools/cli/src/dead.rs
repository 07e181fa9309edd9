//! Dead mounts: mounts of ours that nobody serves any more, since the agent was killed.

use std::fs;
use std::path::Path;

pub use placement::dead::is_dead;
use types::Shown;

use crate::exit::{Failure, say};
use crate::mounts;
use crate::shell;

/// Takes a dead mount away that is in the way of a new one over `dir`. Who has files open there gets errors until he closes them; data is in
/// the burst buffer. Anything else in the way is told by who looks into the directory next.
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
