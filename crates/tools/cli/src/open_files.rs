//! The limit of open files: all that is allowed for the agent, the caller's own for the command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::TABLE_SLOTS;

/// The limit that was in force before [`raise`].
#[derive(Debug, Clone, Copy)]
pub struct Before(Rlimit);

/// Raises the soft limit to the hard one, and both to all that the kernel allows where this process may do that (`CAP_SYS_RESOURCE`). A
/// failure leaves the limits as they are.
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

/// Makes the table of descriptors large before there are threads: with threads the kernel lets whoever makes it grow wait until every
/// processor has seen that, some 10 ms each time.
fn make_room() {
    let last = getrlimit(Resource::Nofile).current.map_or(TABLE_SLOTS, |most| most.min(TABLE_SLOTS)).saturating_sub(1);
    let Ok(last) = i32::try_from(last) else { return };
    if let Ok(any) = std::fs::File::open("/dev/null") {
        // It is closed at once; the table stays.
        let _ = rustix::io::fcntl_dupfd_cloexec(&any, last);
    }
}

impl Before {
    /// Puts the limit back, for a program that is about to be executed: some break when it is huge.
    pub fn restore(&self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}
