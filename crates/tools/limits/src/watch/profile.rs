//! Profile of the program's time by sampling its threads: the system call in which the kernel reports each thread, and
//! its file. No program is stopped or traced.
//!
//! A sample costs two small reads of /proc for each thread, which is seven system calls. The pause between samples
//! keeps their cost below [`COST_MAX`] of one processor, and is longer in long runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open, stat};
use rustix::io::{Errno, read};
use serde::{Deserialize, Serialize};

use super::tiers::Tiers;
use crate::bounds::{WATCH_LOOK_MAX, WATCH_LOOK_MIN, WATCH_LOOKS, WATCH_THREADS_MAX};

/// Largest cost of sampling, as a share of one processor.
const COST_MAX: f64 = 0.005;

/// Number of samples that found a thread in each state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Running on a processor, or ready to run.
    pub computing: u64,
    /// In a call on an accelerated file with data in the burst buffer.
    pub burst_buffer: u64,
    /// In a call on an accelerated file while its agent fetches from the global store or passes calls through.
    pub global_store: u64,
    /// In a call on another file on a disk or network.
    pub other_files: u64,
    /// In a call on a socket or pipe.
    pub wire: u64,
    /// Waiting for room in a window.
    #[serde(default)]
    pub window: u64,
    /// Waiting for something else: a lock, a child, a timer.
    pub waiting: u64,
    pub looks: u64,
    /// Threads that were not running and whose call the kernel did not reveal, for example another user's.
    #[serde(default)]
    pub hidden: u64,
}

impl Profile {
    fn threads(&self) -> u64 {
        self.computing + self.window + self.burst_buffer + self.global_store + self.other_files + self.wire
    }

    /// Returns the shares of the active time, with names, excluding threads that only waited. `None` if no activity was
    /// seen.
    pub fn shares(&self) -> Option<[(&'static str, f64); 6]> {
        let all = self.threads();
        let share = |count: u64| count as f64 / all as f64;
        (all > 0).then(|| {
            [
                ("computing", share(self.computing)),
                ("waiting for the window", share(self.window)),
                ("waiting for the burst buffer", share(self.burst_buffer)),
                ("waiting for the global store", share(self.global_store)),
                ("waiting for other files", share(self.other_files)),
                ("waiting for the wire", share(self.wire)),
            ]
        })
    }
}

pub struct Looker {
    root: u32,
    began: Instant,
    pub profile: Profile,
    /// Time until the next sample.
    pub pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Computing,
    Waiting,
    /// In a call on this descriptor.
    Call(u32),
    /// Waiting until this address is changed, possibly by another process.
    Address(u64),
    /// Unknown, because this user may not read it.
    Hidden,
}

impl Looker {
    pub fn new(root: u32) -> Looker {
        Looker { root, began: Instant::now(), profile: Profile::default(), pause: WATCH_LOOK_MIN }
    }

    /// Takes one sample. `cpu_ns` returns this process's own processor time.
    pub fn look(&mut self, tiers: &Tiers, cpu_ns: impl Fn() -> u64) {
        let began = cpu_ns();
        self.profile.looks += 1;
        let (mut family, mut at, mut threads) = (vec![self.root], 0, 0);
        while at < family.len() && threads < WATCH_THREADS_MAX {
            let process = family[at];
            at += 1;
            for thread in threads_of(process) {
                threads += 1;
                if threads > WATCH_THREADS_MAX {
                    break;
                }
                let task = format!("/proc/{process}/task/{thread}");
                let mut room = [0; ROOM];
                let children = small(&format!("{task}/children"), &mut room).unwrap_or_default();
                family.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
                if let Some(doing) = doing(&task) {
                    self.count(process, doing, tiers);
                }
            }
        }
        let cost = Duration::from_nanos(cpu_ns() - began);
        let sparse = (self.began.elapsed() / WATCH_LOOKS).min(WATCH_LOOK_MAX);
        self.pause = cost.div_f64(COST_MAX).max(WATCH_LOOK_MIN).max(sparse);
    }

    fn count(&mut self, process: u32, doing: Doing, tiers: &Tiers) {
        let profile = &mut self.profile;
        let counter = match doing {
            Doing::Computing => &mut profile.computing,
            Doing::Waiting => &mut profile.waiting,
            Doing::Hidden => &mut profile.hidden,
            Doing::Address(at) => match fs::read_to_string(format!("/proc/{process}/maps")) {
                Ok(maps) if is_window(&maps, at) => &mut profile.window,
                _ => &mut profile.waiting,
            },
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

/// Most bytes read from a file of /proc: six hundred children, or a line about a call.
const ROOM: usize = 4096;

/// Reads a small file of /proc with three system calls; the standard library needs six.
fn small<'a>(path: &str, room: &'a mut [u8]) -> Result<&'a str, Errno> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let length = read(&file, &mut *room)?;
    Ok(std::str::from_utf8(&room[..length]).unwrap_or_default())
}

/// Returns the threads of a process; none if it has ended. If the directory has three links there is a single thread,
/// and the directory is not read.
fn threads_of(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task");
    match stat(&path) {
        Ok(found) if found.st_nlink == 3 => vec![process],
        Ok(_) => {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        }
        Err(_) => Vec::new(),
    }
}

fn doing(task: &str) -> Option<Doing> {
    let mut room = [0; ROOM];
    match small(&format!("{task}/syscall"), &mut room) {
        // Without a stack the thread has ended, and its parent has not noticed yet.
        Ok("-1 0x0 0x0\n") => None,
        Ok(line) => Some(call(line)),
        // The call of another user's thread is secret; whether it runs is public.
        Err(Errno::PERM | Errno::ACCESS) => {
            let line = small(&format!("{task}/stat"), &mut room).ok()?;
            // The name in parentheses may contain any characters.
            match line.get(line.rfind(')')? + 2..)?.chars().next()? {
                'R' => Some(Doing::Computing),
                'Z' | 'X' | 'T' | 't' => None,
                _ => Some(Doing::Hidden),
            }
        }
        Err(_) => None,
    }
}

/// Parses a line of /proc/PID/task/TID/syscall: a number and its arguments in hexadecimal.
fn call(line: &str) -> Doing {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("running") => return Doing::Computing,
        // Blocked outside a call: a page fault on a mapping, whose file is not reported.
        Some("-1") | None => return Doing::Waiting,
        Some(number) if number.parse() == Ok(libc::SYS_futex) => {
            let mut word = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (at, operation) = (word(), word());
            // A process's own locks are private, and there are many of them.
            let shared = operation.is_some_and(|operation| operation & FUTEX_PRIVATE == 0);
            return at.filter(|_| shared).map_or(Doing::Waiting, Doing::Address);
        }
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

const FUTEX_PRIVATE: u64 = 128;

/// Returns whether an address lies in a window: a shared mapping of a ring, `DIR/SESSION/files/7/0`, or of the counter
/// beside it.
fn is_window(maps: &str, at: u64) -> bool {
    maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let range = words.next().and_then(|range| range.split_once('-'));
        let within = range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&at));
        let shared = words.next().is_some_and(|access| access.ends_with('s'));
        let mut path = words.nth(3).unwrap_or("").rsplit('/');
        let is_number = |name: Option<&str>| {
            name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let last = path.next();
        let file = last == Some("sequence") || is_number(last);
        within && shared && file && is_number(path.next()) && path.next() == Some("files")
    })
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
        assert_eq!(call(&format!("{} 0x7f0000001040 0x80 0x2", libc::SYS_futex)), Doing::Waiting);
        assert_eq!(call(&format!("{} 0x7f0000001040 0x0 0x2", libc::SYS_futex)), Doing::Address(0x7f00_0000_1040));
        assert_eq!(
            (call("running"), call("-1 0x7ffc 0x7f00"), call("")),
            (Doing::Computing, Doing::Waiting, Doing::Waiting)
        );
    }

    #[test]
    fn who_waits_for_room_in_a_window_is_told_from_who_waits_for_something_else() {
        let maps = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
                    7f0000001000-7f0000003000 rw-s 00000000 00:1a 77 /dev/shm/forebay/Kx2/files/7/0\n\
                    7f0000003000-7f0000004000 rw-s 00000000 00:1a 78 /dev/shm/forebay/Kx2/files/7/sequence\n\
                    7f0000004000-7f0000005000 rw-s 00000000 00:1a 79 /dev/shm/sem.other\n\
                    7f0000005000-7f0000006000 r--p 00000000 00:1a 80 /data/files/7/0\n";
        let found =
            [0, 0x1040, 0x2fff, 0x3000, 0x4000, 0x5000, 0x9000].map(|at| is_window(maps, 0x7f00_0000_0000 + at));
        assert_eq!(found, [false, true, true, true, false, false, false]);
    }

    #[test]
    fn what_has_ended_is_no_thread_that_waits() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let task = format!("/proc/{0}/task/{0}", child.id());
        let deadline = Instant::now() + Duration::from_secs(60);
        while doing(&task).is_some() {
            assert!(Instant::now() < deadline, "{:?}", fs::read_to_string(format!("{task}/syscall")));
        }
        child.wait().unwrap();
        assert_eq!(doing(&task), None);
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

    /// A process with one running thread and one sleeping child.
    #[test]
    fn a_thread_that_computes_and_a_child_that_waits_are_told_apart_at_few_calls() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "sleep 60 & while :; do :; done"]).spawn().unwrap();
        let mut looker = Looker::new(child.id());
        let deadline = Instant::now() + Duration::from_secs(60);
        // The shell needs some time to get there.
        while looker.profile.computing < 3 || looker.profile.waiting < 3 {
            assert!(Instant::now() < deadline, "{:?}", looker.profile);
            looker.look(&Tiers::default(), || 0);
        }
        let (before, looks) = (calls(), looker.profile.looks);
        (0..10).for_each(|_| looker.look(&Tiers::default(), || 0));
        let each = (calls() - before) as f64 / (looker.profile.looks - looks) as f64;
        let slept = fs::read_to_string(format!("/proc/{}/task/{}/children", child.id(), child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        for id in slept.split_whitespace() {
            let _ = std::process::Command::new("kill").arg(id).status();
        }
        // Two processes of one thread each: two files each, of which one read.
        assert!(each <= 4.5, "{each} reads a look");
        let shares: HashMap<_, _> = looker.profile.shares().unwrap().into_iter().collect();
        assert!(shares["computing"] > 0.0);
    }

    /// Returns the number of reads that this thread has done.
    fn calls() -> u64 {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        text.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok()).unwrap()
    }

    #[test]
    fn a_long_run_is_looked_at_less_often() {
        let mut looker = Looker::new(std::process::id());
        looker.began -= Duration::from_secs(20);
        looker.look(&Tiers::default(), || 0);
        assert_eq!(looker.pause.as_millis(), 100);
        looker.began -= Duration::from_secs(3600);
        looker.look(&Tiers::default(), || 0);
        assert_eq!(looker.pause, WATCH_LOOK_MAX);
    }
}
