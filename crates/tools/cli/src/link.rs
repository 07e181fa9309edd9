//! Connection to a running agent: from a path to its mount, its burst buffer and its socket.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::control::{ControlClient, ControlRequest, Item, Reply};
use data_store::ORPHANED;
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use types::Shown;

use crate::apart;
use crate::dead;
use crate::drain::{self, Left};
use crate::exit::{self, Failure, reason};
use crate::findings;
use crate::holders;
use crate::limits::{POLL, RELEASE_TRIES};
use crate::log;
use crate::mounts::{self, Mount};
use crate::place;
use crate::progress::{Progress, State};
use crate::served;
use crate::shell;

pub struct Link {
    pub dir: PathBuf,
    pub burst_buffer: PathBuf,
    /// Descriptor of the burst buffer, if it is not found by its path.
    held: Option<OwnedFd>,
    client: ControlClient,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub dir: PathBuf,
    pub burst_buffer: PathBuf,
}

impl From<&Mount> for Target {
    fn from(mount: &Mount) -> Target {
        Target { dir: mount.point.clone(), burst_buffer: mount.source.clone() }
    }
}

/// Returns all accelerated directories that are mounted here, and those of `buffer`, which may be mounted elsewhere.
pub fn targets(buffer: Option<&Path>) -> Result<Vec<Target>, Failure> {
    let seen = mounts::all().map_err(|e| Failure::io("read the mounts", &e))?;
    let mut found: Vec<Target> = seen.iter().filter(|mount| mount.is_ours()).map(Target::from).collect();
    if let Some(buffer) = buffer {
        let buffer = fs::canonicalize(buffer).map_err(|e| Failure::io(format_args!("use {}", buffer.shown()), &e))?;
        for burst_buffer in place::formatted(&buffer) {
            let dir = served::directory_of(&burst_buffer).unwrap_or_default();
            found.push(Target { dir, burst_buffer });
        }
    }
    let mut seen = HashSet::new();
    found.retain(|target| seen.insert(target.burst_buffer.clone()));
    Ok(found)
}

/// Fails if an agent exists and does not answer. A missing agent is no error here; callers that need it report it.
pub fn answers(target: &Target) -> Result<(), Failure> {
    let asked = ControlClient::connect(&target.burst_buffer).map(|mut client| {
        let agent = client.agent();
        client.request(&ControlRequest::Ping, |_| {}).map_err(|error| (error, agent))
    });
    match asked {
        Ok(Err((error, agent))) if error.kind() == io::ErrorKind::TimedOut => {
            Err(mute(&target.dir, &target.burst_buffer, agent))
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(no_agent(target, &error)),
        _ => Ok(()),
    }
}

/// Returns an absolute path without resolving links, after each agent on its way has answered. Nothing in a mount may
/// be touched whose agent hangs, since the caller would hang with it.
pub fn way(path: &Path, all: &[Target]) -> Result<PathBuf, Failure> {
    let lexical = std::path::absolute(path).map_err(|e| Failure::io("find the working directory", &e))?;
    let mut asked: Option<&Target> = None;
    mounts::walk(&lexical, |at| match upper(at, all) {
        Some(found) if asked != Some(found) => answers(asked.insert(found)),
        _ => Ok(()),
    })?;
    Ok(lexical)
}

fn upper<'a>(path: &Path, all: &'a [Target]) -> Option<&'a Target> {
    all.iter().rev().find(|target| path.starts_with(&target.dir))
}

/// Returns the accelerated directory in which a path lies, and the relative path. Each agent on the way is asked
/// first.
pub fn target(path: &Path, buffer: Option<&Path>) -> Result<(Target, PathBuf), Failure> {
    let all = targets(buffer)?;
    let lexical = way(path, &all)?;
    let upper = |path: &Path| upper(path, &all).cloned();
    // If the text of the path suffices, nothing is touched that may not answer.
    if let Some(found) = upper(&lexical).filter(|found| found.dir == lexical) {
        return Ok((found, PathBuf::new()));
    }
    let canonical = fs::canonicalize(&lexical);
    if let Ok(canonical) = &canonical
        && let Some(found) = upper(canonical)
    {
        let inside = canonical.strip_prefix(&found.dir).unwrap_or(Path::new("")).to_path_buf();
        return Ok((found, inside));
    }
    if let Some(found) = upper(&lexical) {
        let inside = lexical.strip_prefix(&found.dir).unwrap_or(Path::new("")).to_path_buf();
        return Ok((found, inside));
    }
    let canonical = canonical.map_err(|error| Failure::io(format_args!("find {}", path.shown()), &error))?;
    if let Some(found) = elsewhere(&canonical) {
        let inside = canonical.strip_prefix(&found.dir).unwrap_or(Path::new("")).to_path_buf();
        return Ok((found, inside));
    }
    let failure = Failure::new(exit::NO_INPUT, format!("{} is not accelerated here", path.shown()));
    Err(failure.remedy("see `forebay status`; for the directory of a running `forebay run` add --burst-buffer BB"))
}

/// Returns the directory that is accelerated over a path in the mount namespace of another process, such as a
/// `forebay run`.
fn elsewhere(path: &Path) -> Option<Target> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen: HashSet<PathBuf> = namespace("self").into_iter().collect();
    let fresh =
        holders::processes().into_iter().filter(|pid| namespace(&pid.to_string()).is_some_and(|ns| seen.insert(ns)));
    fresh
        .filter_map(|pid| mounts::seen_by(pid).ok())
        .find_map(|mounts| mounts::ours_over(&mounts, path).map(Target::from))
}

/// Connects to the agent of the directory in which a path lies.
pub fn to(path: &Path, buffer: Option<&Path>) -> Result<(Link, PathBuf), Failure> {
    let (target, inside) = target(path, buffer)?;
    Ok((connect(target)?, inside))
}

pub fn connect(target: Target) -> Result<Link, Failure> {
    let found = ControlClient::connect(&target.burst_buffer).map(|client| (client, None));
    let is_missing = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ECONNREFUSED));
    let (client, held) = match found {
        Err(error) if is_missing(&error) => through_mount(&target, &error)?,
        found => found.map_err(|error| no_agent(&target, &error))?,
    };
    Ok(Link { dir: target.dir, burst_buffer: target.burst_buffer, held, client })
}

/// Connects to an agent whose socket is not where its mount says, since its burst buffer is no longer mounted there.
/// The mount knows the socket. `missing`: the error at the expected path.
fn through_mount(target: &Target, missing: &io::Error) -> Result<(ControlClient, Option<OwnedFd>), Failure> {
    let seen = mounts::all().map_err(|e| Failure::io("read the mounts", &e))?;
    let is_mounted = |mount: &Mount| mount.is_ours() && mount.point == target.dir;
    if !seen.iter().any(is_mounted) {
        return Err(no_agent(target, missing));
    }
    let place = match apart::attribute(&target.dir, agent::control::CONTROL) {
        Ok(place) => PathBuf::from(OsString::from_vec(place)),
        // The agent lives, so no caller may continue as without one.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(Failure { code: exit::SOFTWARE, ..no_agent(target, &error) });
        }
        // The connection with the kernel ends with the agent.
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return Err(no_agent(target, missing)),
        // In a user namespace the kernel reports a missing attribute without asking the agent.
        Err(_) if seen.iter().any(|mount| is_mounted(mount) && dead::is_dead(mount)) => {
            return Err(no_agent(target, missing));
        }
        Err(error) => return Err(out_of_reach(target, &error)),
    };
    let held = rustix::fs::open(&place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let held = held.map_err(|error| out_of_reach(target, &error.into()))?;
    let client = ControlClient::connect(&held_path(&held)).map_err(|error| out_of_reach(target, &error))?;
    Ok((client, Some(held)))
}

/// Failure for an agent that lives but cannot be reached.
fn out_of_reach(target: &Target, error: &io::Error) -> Failure {
    let (dir, buffer) = (target.dir.shown(), target.burst_buffer.shown());
    let message = format!("the agent of {dir} lives, but cannot be reached by {buffer}: {}", reason(error));
    Failure::new(exit::SOFTWARE, message).remedy(format!(
        "if that was unmounted, mount it there again; then: forebay umount {}",
        shell::word(&target.dir)
    ))
}

/// Returns a path that leads to the held directory.
pub fn held_path(held: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(held.as_raw_fd().to_string())
}

fn no_agent(target: &Target, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut => mute(&target.dir, &target.burst_buffer, None),
        io::ErrorKind::PermissionDenied => {
            Failure::new(exit::NO_PERMISSION, format!("the agent of {} belongs to another user", target.dir.shown()))
        }
        _ => Failure::new(exit::UNAVAILABLE, format!("no agent serves {}: {}", target.dir.shown(), reason(error)))
            .remedy(match findings::undrained(&target.burst_buffer) {
                Ok(0) => "all that it holds is in the global store: end the mount if there is one".to_owned(),
                _ => format!(
                    "end the mount if there is one, then drain what it left: forebay recover {}",
                    shell::word(&target.burst_buffer)
                ),
            }),
    }
}

impl Link {
    /// Sends a request and returns the result. Every line before the last is passed to `each`.
    pub fn ask(&mut self, request: &ControlRequest, each: impl FnMut(&Reply)) -> Result<Value, Failure> {
        match self.client.request(request, each) {
            Ok(Reply::Done { result }) => Ok(result),
            Ok(Reply::Failed { errno, message }) => Err(refused(errno, &message)),
            Ok(_) => Err(Failure::new(exit::SOFTWARE, "the agent gave an answer without an end")),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Failure::new(exit::UNAVAILABLE, "the agent ended before it answered")
                    .remedy(format!("see {}", log::of(&self.burst_buffer).shown())))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(self.mute()),
            Err(error) => Err(Failure::io("talk to the agent", &error)),
        }
    }

    fn mute(&self) -> Failure {
        mute(&self.dir, &self.burst_buffer, self.agent())
    }

    /// Returns the agent's process id. `None`: it is not in this process namespace.
    pub fn agent(&self) -> Option<i32> {
        self.client.agent()
    }

    /// Stages out everything below `path` and waits, with progress. Returns the files that did not reach the global
    /// store. `patience`: longest time without progress before the drain is ended.
    ///
    /// The kernel may still be releasing a file that was closed a moment ago, so files that are merely in use are
    /// tried again.
    pub fn drain(&mut self, path: &Path, patience: Option<Duration>) -> Result<Vec<Item>, Failure> {
        let mut progress = Progress::new("draining", false);
        let path = (!path.as_os_str().is_empty()).then(|| path.to_path_buf());
        let patience_ms = patience.map(|patience| patience.as_millis() as u64);
        let request = ControlRequest::Drain { path, wait: true, patience_ms };
        let mut stuck = Vec::new();
        for _ in 0..RELEASE_TRIES {
            let items = Cell::new(Vec::new());
            self.ask(&request, |reply| {
                State::of(reply).into_iter().for_each(|state| progress.update(state));
                if let Reply::Item(item) = reply {
                    let mut list = items.take();
                    list.push(item.clone());
                    items.set(list);
                }
            })?;
            stuck = items.into_inner();
            let only_in_use = stuck.iter().all(|item| item.state == "dirty");
            if stuck.is_empty() || !only_in_use || patience.is_some() {
                break;
            }
            std::thread::sleep(POLL);
        }
        progress.finish();
        Ok(stuck)
    }

    /// Waits until the agent has ended, at most `patience`. Returns the burst buffer if it is not found by its path.
    pub fn wait_for_end(self, patience: Option<Duration>) -> Result<Option<OwnedFd>, Failure> {
        let failure = self.mute();
        self.client.wait_for_end(patience).map_err(|_| failure)?;
        Ok(self.held)
    }

    /// Lists files whose data is only in the burst buffer.
    pub fn list(&self, stuck: &[Item]) {
        let dir = &*self.dir;
        let left = stuck.iter().map(|item| {
            let orphaned = item.state == ORPHANED;
            let decide = orphaned || matches!(item.state.as_str(), "conflict" | "failed" | "damaged");
            let file = item.identity.as_ref().map_or_else(|| dir.join(&item.path), PathBuf::from);
            // The data may be another user's, where this process cannot look.
            let data = item.replica.as_deref().filter(|replica| !drain::is_none(replica));
            let words = || drain::resolve_words(&file, orphaned, data.is_some(), None);
            Left {
                path: &item.path,
                state: &item.state,
                reason: item.error.as_deref().unwrap_or("in use"),
                data: data.map(|replica| (replica, false)),
                resolve: decide.then(words),
            }
        });
        drain::list_left(dir, stuck.len(), left);
    }
}

/// Failure for an agent that exists and does not answer.
fn mute(dir: &Path, burst_buffer: &Path, agent: Option<i32>) -> Failure {
    let (dir, log) = (dir.shown(), log::of(burst_buffer));
    let Some(pid) = agent else {
        return Failure::new(exit::UNAVAILABLE, format!("the agent of {dir} does not answer"))
            .remedy(format!("it may be stopped, or overloaded; see {}", log.shown()));
    };
    Failure::new(exit::UNAVAILABLE, format!("the agent of {dir}, process {pid}, does not answer")).remedy(format!(
        "if it is stopped let it go on: kill -CONT {pid}; if it hangs see {}, and end it: kill -KILL {pid}; \
         no acknowledged data is lost by that",
        log.shown()
    ))
}

fn refused(errno: i32, message: &str) -> Failure {
    let code = match errno {
        libc::ENOENT | libc::ENOTDIR => exit::NO_INPUT,
        libc::EACCES | libc::EPERM => exit::NO_PERMISSION,
        libc::EINVAL => exit::USAGE,
        libc::ENOSPC | libc::EROFS => exit::CANT_CREATE,
        libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT => exit::UNDRAINED,
        _ => exit::UNAVAILABLE,
    };
    Failure::new(code, message.split(" (os error").next().unwrap_or(message))
}
