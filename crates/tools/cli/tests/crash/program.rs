//! The program under test: this test binary, started again with a role in its environment.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::ProcessGuard;

use crate::ledger::Ledger;
use crate::mounted::chance::payload;
use crate::story::{NAMES, SLOTS, Step, Story};

/// Environment variable with the role of this process.
const ROLE: &str = "CRASH_TEST_ROLE";
/// Name of the test that plays a role.
pub const ENTRY: &str = "a_process_with_a_role_plays_it";

/// Environment variable, set for a program whose data is at a server. It changes two things. Stores through a mapping
/// are synced, since pages of a mapping belong to the node there. Nothing is stored through files without a name,
/// since a restarted server does not find them (`ESTALE`, and SIGBUS in a mapping).
pub const AT_SERVER: &str = "CRASH_TEST_AT_SERVER";

/// Exit status after an error that a dead agent explains.
pub const AGENT_GONE: i32 = 3;

/// Starts a process in a role, with `words` as arguments and additional environment variables.
pub fn start(words: &[&str], log: &Path, environment: &[(&str, &str)]) -> ProcessGuard {
    let log = File::create(log).expect("a log");
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args(["--exact", ENTRY, "--nocapture"]).env(ROLE, words.join("\n")).stdin(Stdio::null());
    command.envs(environment.iter().copied()).stdout(log.try_clone().expect("dup")).stderr(log);
    ProcessGuard::spawn(&mut command)
}

/// Returns whether a dead agent explains an error; the judge checks that the agent is dead. `EIO` comes from requests
/// under way to an agent that serves data itself: behind a server, and where there are windows.
pub fn is_gone(error: &std::io::Error) -> bool {
    match error.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => true,
        Some(libc::EIO) => {
            [AT_SERVER, "FOREBAY_WINDOW_SOCKET"].into_iter().any(|name| std::env::var_os(name).is_some())
        }
        _ => false,
    }
}

/// Plays the role of this process, if it has one, and does not return then. `other` plays roles that are unknown
/// here.
pub fn play(other: &dyn Fn(&[&str]) -> bool) {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.lines().collect();
    match words[..] {
        ["story", dir, seed, steps, ledger] => {
            let (seed, steps) = (seed.parse().expect("a seed"), steps.parse().expect("a number"));
            std::process::exit(tell(Path::new(dir), seed, steps, Path::new(ledger)));
        }
        ["hold", file, ready, go] => crate::holder::hold(Path::new(file), Path::new(ready), Path::new(go)),
        ref words => assert!(other(words), "no such role: {role}"),
    }
    std::process::exit(0);
}

/// Tells a story until it ends or the agent dies. Returns the exit status.
fn tell(dir: &Path, seed: u64, steps: usize, ledger: &Path) -> i32 {
    let mut ledger = Ledger::create(ledger);
    let mut story = Story::new(seed);
    let at_server = std::env::var_os(AT_SERVER).is_some();
    let mut hands = Hands { dir: dir.to_owned(), slots: Default::default(), at_server };
    for number in 0..steps {
        let step = story.next();
        ledger.begun();
        let is_lost = |error: &std::io::Error| {
            at_server && error.raw_os_error() == Some(libc::ESTALE) && story.model.is_nameless(&step)
        };
        let kills = at_server && matches!(step, Step::Store { .. }) && story.model.is_nameless(&step);
        if !kills
            && let Err(error) = hands.act(&step, &story)
            && !is_lost(&error)
        {
            eprintln!("step {number} {step:?}: {error}");
            return if is_gone(&error) { AGENT_GONE } else { 1 };
        }
        story.model.apply(&step);
        ledger.acknowledged();
    }
    // What is open stays open until the process ends: its end is a close.
    0
}

struct Hands {
    dir: PathBuf,
    slots: [Option<File>; SLOTS],
    at_server: bool,
}

impl Hands {
    fn path(&self, name: usize) -> PathBuf {
        self.dir.join(NAMES[name])
    }

    fn file(&self, slot: usize) -> &File {
        self.slots[slot].as_ref().expect("stories use open descriptors")
    }

    fn act(&mut self, step: &Step, story: &Story) -> std::io::Result<()> {
        match *step {
            Step::Open { slot, name, truncate } => {
                let mut how = OpenOptions::new();
                how.read(true).write(true).create(true).truncate(truncate);
                self.slots[slot] = Some(how.open(self.path(name))?);
            }
            Step::Pwrite { slot, at, len, seed } => self.file(slot).write_all_at(&payload(seed, len), at)?,
            Step::Store { slot, at, len, seed } => store(self.file(slot), at, &payload(seed, len), self.at_server)?,
            Step::Fsync { slot } => self.file(slot).sync_all()?,
            Step::Ftruncate { slot, len } => self.file(slot).set_len(len)?,
            Step::Punch { slot, at, len } => {
                use rustix::fs::FallocateFlags as Flags;
                rustix::fs::fallocate(self.file(slot), Flags::PUNCH_HOLE | Flags::KEEP_SIZE, at, len)?;
            }
            Step::Close { slot } => {
                let file = self.slots[slot].take().expect("an open descriptor");
                let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
                // SAFETY: the descriptor was ours and is forgotten.
                if unsafe { libc::close(fd) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Step::Truncate { name, len } => {
                let path = std::ffi::CString::new(self.path(name).into_os_string().into_encoded_bytes())?;
                // SAFETY: the path is a C string.
                if unsafe { libc::truncate(path.as_ptr(), len as libc::off_t) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Step::Rename { from, to } => fs::rename(self.path(from), self.path(to))?,
            Step::Link { from, to } => fs::hard_link(self.path(from), self.path(to))?,
            Step::Unlink { name } => fs::remove_file(self.path(name))?,
            Step::Read { name } => {
                let read = fs::read(self.path(name))?;
                let expected = story.model.content(name).expect("a name");
                if read != *expected {
                    let why = crate::verdict::difference(&read, expected);
                    return Err(std::io::Error::other(format!("read other bytes than were written: {why}")));
                }
            }
        }
        Ok(())
    }
}

/// Stores through a shared mapping that lives as long as the call, and syncs it if `sync`.
pub fn store(file: &File, at: u64, bytes: &[u8], sync: bool) -> std::io::Result<()> {
    let start = at & !4095;
    let (skip, len) = ((at - start) as usize, (at - start) as usize + bytes.len());
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping inside the file's size, known to the story; nobody else maps or shortens it meanwhile.
    unsafe {
        let address =
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), start as libc::off_t);
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>().add(skip), bytes.len());
        let synced = if sync { libc::msync(address, len, libc::MS_SYNC) } else { 0 };
        let error = std::io::Error::last_os_error();
        libc::munmap(address, len);
        if synced == 0 { Ok(()) } else { Err(error) }
    }
}
