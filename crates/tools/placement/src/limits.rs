//! Every bound of placement, with its reason.

use std::time::Duration;

/// How long an agent waits for others that choose their places in the burst buffer: they need some tens of milliseconds each.
pub const CLAIM_WAIT: Duration = Duration::from_secs(20);
/// How often it looks: two agents that start at once should lose no time that anybody notices.
pub const CLAIM_POLL: Duration = Duration::from_millis(5);
/// Most directories accelerated by one `run`: each has its own cache and threads.
pub const DIRS_MAX: usize = 16;
/// How long a mount is looked at before its agent counts as one that lives: a dead one answers at once.
pub const DEAD_LOOK: Duration = Duration::from_secs(2);
/// How often that look is asked whether it has ended.
pub const DEAD_POLL: Duration = Duration::from_millis(5);
/// Most symbolic links followed in one path, as many as the kernel follows.
pub const LINKS_MAX: usize = 40;
/// How long an agent is waited for that is asked to make room for another one: ten times what it takes when all is well.
pub const NEIGHBOUR_SILENCE: Duration = Duration::from_secs(1);
/// Longest that other places are searched for room, before the rest waits for the next time. A start waits as long.
pub const NEIGHBOURS_TURN: Duration = Duration::from_secs(3);
/// Ages in steps: data unused for the first goes from all places, then data unused for the next.
pub const NEIGHBOUR_AGES: [Duration; 3] =
    [Duration::from_secs(86_400), Duration::from_secs(3600), Duration::from_secs(600)];
/// A start wants one in so many bytes of the burst buffer free: as much as eviction leaves.
pub const ROOM_AT_START: u64 = 5;
