//! Staging of the files that a command names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use types::HasErrno;

use concurrency::Instant;
use data_store::{CommandOutcome, FileState, Residency, StoreCommand};
use namespace::{AnchorFor, Caller};
use types::{Identity, Shown};

use super::commands::{Say, find, item, refused};
use super::paths::{Named, Paths, Visit};
use super::{Counts, Item, Reply, Verb, stuck_item};
use crate::agent::Agent;
use crate::limits;
use crate::node::Node;
use crate::policy_table::inside;

/// One staging command.
pub struct Staging {
    pub agent: Arc<Agent>,
    pub verb: Verb,
    pub recursive: bool,
    /// Whether an eviction waits for whatever prevents it.
    pub patient: bool,
}

/// Channel through which a thread reports a file's outcome.
type Tell = mpsc::SyncSender<Reply>;

impl Staging {
    /// Stages the named files. Without `wait`, staging runs in a thread of its own, and only errors in the names are
    /// reported.
    pub fn run(
        self,
        paths: &[PathBuf],
        wait: bool,
        say: Say<'_>,
        gone: &dyn Fn() -> bool,
    ) -> io::Result<serde_json::Value> {
        // Evicting and unpinning take no time, so their outcome is reported at once.
        if !wait && !matches!(self.verb, Verb::Evict | Verb::Unpin | Verb::State) {
            paths.iter().try_for_each(|path| find(&self.agent, path).map(|_| ()))?;
            let paths = paths.to_vec();
            let stage = move || {
                let mut log = |reply: &Reply| {
                    if let Reply::Item(item) = reply {
                        tracing::warn!(path = %item.path.shown(), error = item.error, "could not stage");
                    }
                    Ok(())
                };
                self.walk(&paths, &mut log, &|| false)
            };
            concurrency::spawn_joined("stage", stage)?;
            return Ok(serde_json::Value::Null);
        }
        Ok(serde_json::to_value(self.walk(paths, say, gone)?)?)
    }

    /// Visits all paths with several threads, and passes on their reports.
    fn walk(&self, named: &[PathBuf], say: Say<'_>, gone: &dyn Fn() -> bool) -> io::Result<Counts> {
        let (paths, done) = (Paths::new(named), AtomicU64::new(0));
        // States are reported in the order of the request, so one thread visits all.
        let streams = if self.verb == Verb::State { 1 } else { limits::STAGE_STREAMS };
        let (tell, told) = mpsc::sync_channel(limits::STAGE_TOLD_MAX);
        let failed = std::thread::scope(|scope| {
            for _ in 0..streams {
                let (tell, paths, done) = (tell.clone(), &paths, &done);
                scope.spawn(move || self.visit_all(paths, done, &tell));
            }
            drop(tell);
            let outcome = listen(told, &paths, &done, say, gone);
            paths.end();
            outcome
        })?;
        Ok(Counts { done: done.into_inner(), failed })
    }

    fn visit_all(&self, paths: &Paths, done: &AtomicU64, tell: &Tell) {
        while let Some(mut visit) = paths.next() {
            match self.visit(&mut visit, &|| paths.is_ended(), tell) {
                Ok(true) => _ = done.fetch_add(1, Ordering::Relaxed),
                Ok(false) => {}
                Err(reply) => _ = tell.send(*reply),
            }
        }
    }

    /// Visits one path. True: a file, which is done. False: a directory or special file.
    fn visit(&self, visit: &mut Visit<'_>, gone: &dyn Fn() -> bool, tell: &Tell) -> Result<bool, Box<Reply>> {
        let path = visit.path().to_owned();
        let absent = |error: io::Error| Box::new(item(path.clone(), "absent", Some(error.to_string())));
        let node = match (visit.directory(), path.file_name()) {
            (Some(directory), Some(name)) => self.agent.lookup(directory, name).map(|found| found.node),
            _ => find(&self.agent, &path),
        };
        let node = node.map_err(absent)?;
        if node.is_directory() {
            visit.found(self.enter(&node, &path).map_err(absent)?);
            return Ok(false);
        }
        if !node.is_regular() {
            return Ok(false);
        }
        self.file(&node, path, gone, tell).map(|()| true)
    }

    /// Lists a directory.
    fn enter(&self, node: &Arc<Node>, path: &Path) -> io::Result<Vec<Named>> {
        if !self.recursive {
            return Err(io::Error::other("is a directory: what is below it is meant with --recursive"));
        }
        let mut names = Vec::new();
        self.agent.open_directory(&Caller::own(), node)?.read(0, &mut |entry| {
            if entry.name != "." && entry.name != ".." {
                names.push((entry.ino, path.join(&entry.name)));
            }
            true
        })?;
        // Files to be read are visited in inode order, the order in which most stores keep them. Others are listed by
        // name.
        match self.verb {
            Verb::In | Verb::Pin => names.sort_unstable(),
            _ => names.sort_unstable_by(|one, other| one.1.cmp(&other.1)),
        }
        Ok(names.into_iter().map(|(_, path)| Named { path, directory: Some(Arc::clone(node)) }).collect())
    }

    fn file(&self, node: &Node, path: PathBuf, gone: &dyn Fn() -> bool, tell: &Tell) -> Result<(), Box<Reply>> {
        let unknown = |error: io::Error| Box::new(item(path.clone(), "unknown", Some(error.to_string())));
        let (data, identity) = (self.agent.data(), &self.agent.identity_of(node).map_err(unknown)?);
        let stage_in = || {
            let anchor = {
                let place = inside(&path).map_err(refused)?;
                node.anchor(&*self.agent.names, AnchorFor::FoundAt(&place))?
            };
            data.command(StoreCommand::StageIn(&anchor, &self.agent.policy_for(node)))
        };
        let outcome = self.agent.apply_window(node).and_then(|()| match self.verb {
            Verb::In => stage_in().map(drop),
            Verb::Pin => stage_in().and_then(|_| data.command(StoreCommand::Pin(identity, true))).map(drop),
            Verb::Unpin => ignore_absent(data.command(StoreCommand::Pin(identity, false))),
            Verb::Evict if data.state(identity).residency == Residency::Absent => Ok(()),
            Verb::Evict => self.evict(identity, gone),
            Verb::State => {
                // If the receiver is gone, the command has ended.
                let FileState { residency, pinned, .. } = data.state(identity);
                let told = Item { path: path.clone(), state: residency.name().into(), pinned, ..Item::default() };
                let _ = tell.send(Reply::Item(told));
                Ok(())
            }
            Verb::Out => Ok(()),
        });
        let failed = |error: io::Error| {
            Box::new(item(path.clone(), data.state(identity).residency.name(), Some(error.to_string())))
        };
        outcome.map_err(failed)?;
        if self.verb != Verb::Out {
            return Ok(());
        }
        data.drain_file(identity, gone).map_err(|stuck| Box::new(Reply::Item(Item { path, ..stuck_item(&stuck) })))
    }
}

impl Staging {
    fn evict(&self, identity: &Identity, gone: &dyn Fn() -> bool) -> io::Result<()> {
        let data = self.agent.data();
        loop {
            match data.command(StoreCommand::Evict(identity)) {
                // Dirty. A file open for writing is staged out as it is, and stays dirty.
                Err(error) if self.patient && error.errno() == Some(libc::EINVAL) => {
                    data.drain_file(identity, gone).map_err(|stuck| io::Error::other(stuck.reason))?;
                }
                Err(error) if self.patient && error.errno() == Some(libc::EBUSY) => {}
                evicted => return evicted.map(drop).map_err(why_it_stays),
            }
            if gone() {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            concurrency::sleep(limits::STAGE_POLL);
        }
    }
}

/// Passes on the threads' reports until the threads end. Returns the number of files that failed.
fn listen(
    told: mpsc::Receiver<Reply>,
    paths: &Paths,
    done: &AtomicU64,
    say: Say<'_>,
    gone: &dyn Fn() -> bool,
) -> io::Result<u64> {
    let (mut failed, mut said) = (0, Instant::now());
    loop {
        match told.recv_timeout(limits::STAGE_POLL) {
            Ok(reply) => {
                failed += u64::from(matches!(&reply, Reply::Item(item) if item.error.is_some()));
                say(&reply)?;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(failed),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if gone() {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if said.elapsed() >= limits::CONTROL_POLL {
            said = Instant::now();
            let (files_done, files_left) = (done.load(Ordering::Relaxed), paths.left());
            say(&Reply::Progress { files_done, files_left, bytes_left: 0 })?;
        }
    }
}

/// Translates an eviction's error into words.
fn why_it_stays(error: io::Error) -> io::Error {
    match error.errno() {
        Some(libc::EPERM) => io::Error::other("it is pinned: forebay stage unpin"),
        Some(libc::EBUSY) => io::Error::other("it is open, mapped or being staged in"),
        Some(libc::EINVAL) => io::Error::other("it is not in the global store yet: forebay stage out"),
        _ => error,
    }
}

fn ignore_absent(outcome: io::Result<CommandOutcome>) -> io::Result<()> {
    match outcome {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}
