//! Where the program's time goes, by looking at its threads now and then: what the kernel says that each is doing, and with which
//! file. No program is stopped or traced.
//!
//! A look costs a few small reads of /proc for each thread; looks are as far apart as it takes for their cost to stay below
//! [`COST_MAX`] of one processor.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tiers::Tiers;
use crate::bounds::{WATCH_LOOK_MIN, WATCH_THREADS_MAX};

/// Most that looking may cost, of one processor.
const COST_MAX: f64 = 0.005;

/// How many looks found a thread doing what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// On a processor, or ready for one.
    pub computing: u64,
    /// In a call on an accelerated file whose data is in the burst buffer.
    pub burst_buffer: u64,
    /// In a call on an accelerated file while its agent fetches from the global store or passes calls through.
    pub global_store: u64,
    /// In a call on another file of a disk or network.
    pub other_files: u64,
    /// In a call on a socket or pipe.
    pub wire: u64,
    /// Waiting for something else: a lock, a child, a clock.
    pub waiting: u64,
    /// Looks at the program.
    pub looks: u64,
    /// Threads that were not computing, of which the kernel did not tell more: another user's, for instance.
    #[serde(default)]
    pub hidden: u64,
}

impl Profile {
    fn threads(&self) -> u64 {
        self.computing + self.burst_buffer + self.global_store + self.other_files + self.wire
    }

    /// Shares of the time that threads did something, with their names; without those that only waited. None if nothing was seen.
    pub fn shares(&self) -> Option<[(&'static str, f64); 5]> {
        let all = self.threads();
        let share = |count: u64| count as f64 / all as f64;
        (all > 0).then(|| {
            [
                ("computing", share(self.computing)),
                ("waiting for the burst buffer", share(self.burst_buffer)),
                ("waiting for the global store", share(self.global_store)),
                ("waiting for other files", share(self.other_files)),
                ("waiting for the wire", share(self.wire)),
            ]
        })
    }
}

/// Looks at one program and its descendants.
pub struct Looker {
    root: u32,
    pub profile: Profile,
    /// Time until the next look.
    pub pause: Duration,
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Computing,
    Waiting,
    /// A call on this descriptor.
    Call(u32),
    /// Something that this user may not know.
    Hidden,
}

impl Looker {
    pub fn new(root: u32) -> Looker {
        Looker { root, profile: Profile::default(), pause: WATCH_LOOK_MIN }
    }

    /// One look. `cpu_ns` is a clock of this process's own processor time.
    pub fn look(&mut self, tiers: &Tiers, cpu_ns: impl Fn() -> u64) {
        let began = cpu_ns();
        self.profile.looks += 1;
        let mut threads = 0;
        for process in family(self.root) {
            let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
            for task in tasks.flatten() {
                threads += 1;
                if threads > WATCH_THREADS_MAX {
                    break;
                }
                if let Some(doing) = doing(&task.path()) {
                    self.count(process, doing, tiers);
                }
            }
        }
        let cost = Duration::from_nanos(cpu_ns() - began);
        self.pause = cost.div_f64(COST_MAX).max(WATCH_LOOK_MIN);
    }

    fn count(&mut self, process: u32, doing: Doing, tiers: &Tiers) {
        let profile = &mut self.profile;
        let counter = match doing {
            Doing::Computing => &mut profile.computing,
            Doing::Waiting => &mut profile.waiting,
            Doing::Hidden => &mut profile.hidden,
            Doing::Call(fd) => match fs::read_link(format!("/proc/{process}/fd/{fd}")) {
                Ok(path) => match place(&path, tiers) {
                    Place::BurstBuffer => &mut profile.burst_buffer,
                    Place::GlobalStore => &mut profile.global_store,
                    Place::Other => &mut profile.other_files,
                    Place::Wire => &mut profile.wire,
                    Place::Nowhere => &mut profile.waiting,
                },
                Err(_) => &mut profile.waiting,
            },
        };
        *counter += 1;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    BurstBuffer,
    GlobalStore,
    Other,
    Wire,
    Nowhere,
}

fn place(path: &Path, tiers: &Tiers) -> Place {
    let text = path.as_os_str().as_encoded_bytes();
    if text.starts_with(b"socket:") || text.starts_with(b"pipe:") {
        return Place::Wire;
    }
    if !path.is_absolute() || text.starts_with(b"/dev/") || text.starts_with(b"/proc/") {
        return Place::Nowhere;
    }
    match tiers.of(path) {
        Some(tier) if tier.is_fetching() => Place::GlobalStore,
        Some(_) => Place::BurstBuffer,
        None => Place::Other,
    }
}

/// The process and its descendants that live.
fn family(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() && found.len() < WATCH_THREADS_MAX {
        let process = found[at];
        at += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    found
}

fn doing(task: &Path) -> Option<Doing> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // The name is in parentheses and may hold any.
    let state = stat.get(stat.rfind(')')? + 2..)?.chars().next()?;
    match state {
        'R' => Some(Doing::Computing),
        'Z' | 'X' | 'T' | 't' => None,
        _ => Some(match fs::read_to_string(task.join("syscall")) {
            Ok(line) => call(&line),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Doing::Hidden,
            Err(_) => Doing::Waiting,
        }),
    }
}

/// From a line of /proc/PID/task/TID/syscall: a number and its arguments in hexadecimal.
fn call(line: &str) -> Doing {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("running") => return Doing::Computing,
        // Blocked, but in no call: a fault on a mapping, whose file is not told.
        Some("-1") | None => return Doing::Waiting,
        Some(number) => {
            let takes_descriptor = number.parse().is_ok_and(|number: i64| ON_DESCRIPTOR.contains(&number));
            if !takes_descriptor {
                return Doing::Waiting;
            }
        }
    }
    let fd = words.next().and_then(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    fd.map_or(Doing::Waiting, Doing::Call)
}

/// Calls whose first argument is the descriptor that they wait for.
const ON_DESCRIPTOR: [i64; 17] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_close,
    libc::SYS_getdents64,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
];

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_line_of_the_kernels_tells_the_call_and_its_descriptor() {
        let line = format!("{} 0x1f 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", libc::SYS_pread64);
        assert_eq!(call(&line), Doing::Call(31));
        assert_eq!(call(&format!("{} 0x3 0x0", libc::SYS_futex)), Doing::Waiting);
        assert_eq!(
            (call("running"), call("-1 0x7ffc 0x7f00"), call("")),
            (Doing::Computing, Doing::Waiting, Doing::Waiting)
        );
    }

    #[test]
    fn files_are_told_apart_by_where_they_lie() {
        let mut tiers = Tiers::default();
        tiers.learn(r#"[{"agent":1,"burst_buffer":"/bb","dir":"/data","status":{"fetching":0,"through":0}}]"#);
        let at = |path: &str, tiers: &Tiers| place(Path::new(path), tiers);
        assert_eq!(at("/data/a/b", &tiers), Place::BurstBuffer);
        assert_eq!(at("/database", &tiers), Place::Other);
        assert_eq!(at("socket:[12]", &tiers), Place::Wire);
        assert_eq!(at("/dev/null", &tiers), Place::Nowhere);
        tiers.learn(r#"[{"agent":1,"burst_buffer":"/bb","dir":"/data","status":{"fetching":2,"through":0}}]"#);
        assert_eq!(at("/data/a/b", &tiers), Place::GlobalStore);
    }

    #[test]
    fn this_very_process_is_seen_computing() {
        let mut looker = Looker::new(std::process::id());
        looker.look(&Tiers::default(), || 0);
        assert!(looker.profile.computing >= 1, "{:?}", looker.profile);
        let shares: HashMap<_, _> = looker.profile.shares().unwrap().into_iter().collect();
        assert!(shares["computing"] > 0.0);
    }
}
