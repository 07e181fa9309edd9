//! Moving the data of files that a command names.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use file_cache::Residency;

use super::commands::{Say, find, item};
use super::{Counts, Reply, Verb, stuck_item};
use crate::agent::Agent;
use crate::caller::Caller;
use crate::limits;
use crate::node::Node;

/// One staging command.
pub struct Staging {
    pub agent: Arc<Agent>,
    pub verb: Verb,
    pub recursive: bool,
}

/// What is still to be visited, and what was done.
struct Walk {
    left: Vec<PathBuf>,
    counts: Counts,
    told: Instant,
}

impl Staging {
    /// Stages what is named; without `wait` in a thread of its own, and only errors in the names themselves are told.
    pub fn run(
        self,
        paths: &[PathBuf],
        wait: bool,
        say: Say<'_>,
        gone: &dyn Fn() -> bool,
    ) -> io::Result<serde_json::Value> {
        if !wait && self.verb != Verb::State {
            paths.iter().try_for_each(|path| find(&self.agent, path).map(|_| ()))?;
            let paths = paths.to_vec();
            let stage = move || {
                let mut log = |reply: &Reply| {
                    if let Reply::Item(item) = reply {
                        tracing::warn!(path = %item.path.display(), error = item.error, "not staged");
                    }
                    Ok(())
                };
                self.walk(&paths, &mut log, &|| false)
            };
            std::thread::Builder::new().name("stage".into()).spawn(stage)?;
            return Ok(serde_json::Value::Null);
        }
        Ok(serde_json::to_value(self.walk(paths, say, gone)?)?)
    }

    fn walk(&self, paths: &[PathBuf], say: Say<'_>, gone: &dyn Fn() -> bool) -> io::Result<Counts> {
        let mut walk = Walk { left: paths.to_vec(), counts: Counts::default(), told: Instant::now() };
        walk.left.reverse();
        while let Some(path) = walk.left.pop() {
            if gone() {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            match find(&self.agent, &path) {
                Ok(node) if node.is_directory() => self.enter(&node, &path, &mut walk, say)?,
                Ok(node) if node.is_regular() => self.file(&node, path, &mut walk, say, gone)?,
                Ok(_) => {}
                Err(error) => walk.failed(item(path, "absent", Some(error.to_string())), say)?,
            }
            if walk.told.elapsed() >= limits::CONTROL_POLL {
                walk.told = Instant::now();
                let (files_done, files_left) = (walk.counts.done, walk.left.len() as u64);
                say(&Reply::Progress { files_done, files_left, bytes_left: 0 })?;
            }
        }
        Ok(walk.counts)
    }

    fn enter(&self, node: &Node, path: &Path, walk: &mut Walk, say: Say<'_>) -> io::Result<()> {
        if !self.recursive {
            return walk.failed(item(path.to_owned(), "absent", Some("is a directory".into())), say);
        }
        let directory = match self.agent.open_directory(&Caller::own(), node) {
            Ok(directory) => directory,
            Err(error) => return walk.failed(item(path.to_owned(), "absent", Some(error.to_string())), say),
        };
        let mut names = Vec::new();
        directory.read(0, |entry| {
            if entry.name != "." && entry.name != ".." {
                names.push(path.join(&entry.name));
            }
            true
        })?;
        names.sort_by(|a, b| b.cmp(a));
        walk.left.append(&mut names);
        Ok(())
    }

    fn file(
        &self,
        node: &Node,
        path: PathBuf,
        walk: &mut Walk,
        say: Say<'_>,
        gone: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let (cache, identity) = (self.agent.cache(), node.identity());
        self.agent.settle(node)?;
        let stage_in = || cache.stage_in(&node.anchor(&self.agent.store)?, &self.agent.policy_for(node));
        let outcome = match self.verb {
            Verb::In => stage_in(),
            Verb::Pin => stage_in().and_then(|()| cache.pin(identity, true)),
            Verb::Unpin => ignore_absent(cache.pin(identity, false)),
            Verb::Evict if cache.state(identity) == Residency::Absent => Ok(()),
            Verb::Evict => cache.evict(identity),
            Verb::State => {
                say(&item(path.clone(), cache.state(identity).name(), None))?;
                Ok(())
            }
            Verb::Out => match cache.drain_file(identity, gone) {
                Ok(()) => Ok(()),
                Err(stuck) => return walk.failed(Reply::Item(super::Item { path, ..stuck_item(&stuck) }), say),
            },
        };
        match outcome {
            Ok(()) => walk.counts.done += 1,
            Err(error) => {
                let state = cache.state(identity).name();
                walk.failed(item(path, state, Some(error.to_string())), say)?;
            }
        }
        Ok(())
    }
}

fn ignore_absent(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

impl Walk {
    fn failed(&mut self, reply: Reply, say: Say<'_>) -> io::Result<()> {
        self.counts.failed += 1;
        say(&reply)
    }
}
