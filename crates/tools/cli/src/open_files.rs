//! Limit of open files: the highest one for the agent, the caller's own for the command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::TABLE_SLOTS;

#[derive(Debug, Clone, Copy)]
pub struct Before(Rlimit);

/// Raises the soft limit to the hard one, and both to the kernel's maximum if this process may do that
/// (`CAP_SYS_RESOURCE`). A failure leaves the limits as they are.
pub fn raise() -> Before {
    let before = getrlimit(Resource::Nofile);
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let wanted = most.map(|most| before.maximum.map_or(most, |hard| hard.max(most)));
    let set = |limit| setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit });
    if wanted.is_none() || set(wanted).is_err() {
        let _ = set(before.maximum);
    }
    make_room();
    Before(before)
}

/// Enlarges the table of descriptors before there are threads. With threads, each growth waits until every processor
/// has seen it, some 10 ms each time.
fn make_room() {
    let last = getrlimit(Resource::Nofile).current.map_or(TABLE_SLOTS, |most| most.min(TABLE_SLOTS)).saturating_sub(1);
    let Ok(last) = i32::try_from(last) else { return };
    if let Ok(any) = std::fs::File::open("/dev/null") {
        // The descriptor is closed at once; the table stays large.
        let _ = rustix::io::fcntl_dupfd_cloexec(&any, last);
    }
}

impl Before {
    /// Restores the limit for a program that is about to be executed: some break with a huge limit.
    pub fn restore(&self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}
