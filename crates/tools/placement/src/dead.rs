//! Mounts of ours that nobody serves any more: the agent was killed.

use std::time::Instant;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::aside::aside;
use crate::limits::{DEAD_LOOK, DEAD_POLL};
use crate::mounts::Mount;

/// Returns whether the connection of a mount has ended. An agent that hangs is not dead: the answer comes within [`DEAD_LOOK`].
pub fn is_dead(mount: &Mount) -> bool {
    let (point, start) = (mount.point.clone(), Instant::now());
    // Past what the kernel remembers.
    let look = move || statx(CWD, &point, AtFlags::STATX_FORCE_SYNC, StatxFlags::TYPE).err();
    let looked = aside("look", DEAD_POLL, look, &mut || start.elapsed() >= DEAD_LOOK);
    matches!(looked, Ok(Some(Some(rustix::io::Errno::NOTCONN))))
}
