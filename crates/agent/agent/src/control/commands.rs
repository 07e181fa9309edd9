//! Execution of each request.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use types::HasErrno;

use config::PolicySet;
use data_store::{CommandOutcome, DrainProgress, StatusScope, StoreCommand, StoreStatus, Stuck};
use global_store::calls::OutstandingCall;
use serde_json::json;
use types::{Identity, Shown};

use super::listener::{Commanded, OnShutdown};
use super::staging::Staging;
use super::{ControlRequest, Item, Keep, Reply, Stall, stuck_item};
use crate::agent::Agent;
use crate::limits;
use crate::locks::LockScope;
use crate::node::Node;
use crate::policy_table::{PolicyError, inside};

/// Callback that sends a line before the last one. An error ends the command.
pub type Say<'a> = &'a mut dyn FnMut(&Reply) -> io::Result<()>;

/// Error message: a decision about the file is impossible while its stage-out takes long.
const STAGED_OUT_NOW: &str = "it is being staged out just now, and that takes long: nothing was decided; `forebay status` tells if the \
                              global store does not answer; when it does, try again";

/// Runs requests on an agent.
pub struct Commands {
    agent: Arc<Agent>,
    on_shutdown: OnShutdown,
}

impl Commands {
    pub fn new(agent: Arc<Agent>, on_shutdown: OnShutdown) -> Commands {
        Commands { agent, on_shutdown }
    }
}

impl Commanded for Commands {
    fn run(&self, request: &ControlRequest, say: Say<'_>, gone: &dyn Fn() -> bool) -> Reply {
        let result = match request {
            ControlRequest::Ping => Ok(json!({ "pid": std::process::id() })),
            ControlRequest::Status => self.status(),
            ControlRequest::Drain { path, wait, patience_ms } => {
                let stall = Stall::new(patience_ms.map(Duration::from_millis));
                self.drain(path.as_deref(), *wait, &stall, say, gone)
            }
            ControlRequest::GiveBack { tree } => match Identity::from_hex(tree) {
                Some(tree) => self.give_back(&tree),
                None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            },
            ControlRequest::Stage { verb, paths, recursive, wait } => {
                let (agent, verb) = (self.agent.clone(), *verb);
                Staging { agent, verb, recursive: *recursive, patient: *wait }.run(paths, *wait, say, gone)
            }
            ControlRequest::Clean { which } => {
                self.agent.data().command(StoreCommand::Clean(which)).and_then(|outcome| match outcome {
                    CommandOutcome::Cleaned(cleaned) => Ok(serde_json::to_value(cleaned)?),
                    _ => Ok(serde_json::Value::Null),
                })
            }
            ControlRequest::Quiesce => self.quiesce(true),
            ControlRequest::Resume => self.quiesce(false),
            ControlRequest::Resolve { file, keep } => self.resolve(file, *keep),
            ControlRequest::Shutdown { force } => {
                (self.on_shutdown)(*force);
                Ok(serde_json::Value::Null)
            }
            policy => self.policy(policy),
        };
        result.map_or_else(|error| failed(&error), |result| Reply::Done { result })
    }
}

impl Commands {
    fn give_back(&self, tree: &Identity) -> io::Result<serde_json::Value> {
        // Windows of closed files end so, and count as writers no longer.
        self.agent.apply_windows()?;
        self.agent.data().command(StoreCommand::GiveBack(tree))?;
        Ok(serde_json::Value::Null)
    }

    fn quiesce(&self, on: bool) -> io::Result<serde_json::Value> {
        self.agent.data().command(StoreCommand::Quiesce(on))?;
        Ok(serde_json::Value::Null)
    }

    /// Returns the file cache's counters, with these objects added: `windows` (null if none are served), `store`,
    /// `locks` (which programs locks exclude) and `server` (absent without a server).
    fn status(&self) -> io::Result<serde_json::Value> {
        let StoreStatus { counters, server } = self.agent.data().status(StatusScope::All);
        let Some(server) = server else {
            let mut status = serde_json::to_value(counters?)?;
            status["windows"] = serde_json::to_value(self.agent.window_status())?;
            status["store"] = self.store();
            status["locks"] = self.locks();
            return Ok(status);
        };
        // The status matters most when the server does not answer.
        let answers = counters.is_ok();
        let mut status = serde_json::to_value(counters.unwrap_or_default())?;
        let away = server.away.filter(|_| !answers).map(|away| away.as_secs());
        status["store"] = self.store();
        status["locks"] = self.locks();
        status["windows"] = serde_json::to_value(self.agent.window_status())?;
        status["server"] = json!({ "address": server.address, "answers": answers, "away_s": away });
        Ok(status)
    }

    /// Returns which programs locks exclude. `scope` is `node` (no other node sees the directory), `store` (programs of
    /// all nodes) or `node-alone`; then `why` tells why other nodes see no locks.
    fn locks(&self) -> serde_json::Value {
        match self.agent.lock_scope() {
            LockScope::Node => json!({ "scope": "node" }),
            LockScope::Store => json!({ "scope": "store" }),
            LockScope::NodeAlone(why) => json!({ "scope": "node-alone", "why": why }),
        }
    }

    /// Returns the calls that the global store has not answered for at least [`limits::STORE_SLOW`], the oldest first.
    fn store(&self) -> serde_json::Value {
        let mut calls = self.agent.store_calls().outstanding();
        calls.retain(|one| one.since >= limits::STORE_SLOW);
        let waits = |one: &OutstandingCall| json!({ "call": one.call, "for_s": one.since.as_secs(), "file": one.label.as_deref() });
        let listed: Vec<_> = calls.iter().take(limits::STORE_CALLS_LISTED).map(waits).collect();
        json!({ "unanswered": calls.len(), "calls": listed })
    }

    fn drain(
        &self,
        path: Option<&Path>,
        wait: bool,
        stall: &Stall,
        say: Say<'_>,
        gone: &dyn Fn() -> bool,
    ) -> io::Result<serde_json::Value> {
        if let Some(path) = path.map(inside).transpose().map_err(refused)?
            && !path.as_os_str().is_empty()
        {
            if wait && let Ok(node) = find(&self.agent, &path) {
                // What cannot be given back is brought as far as possible, and told below.
                let _ = self.agent.identity_of(&node).and_then(|identity| self.give_back(&identity));
            }
            let staging = Staging { agent: self.agent.clone(), verb: super::Verb::Out, recursive: true, patient: true };
            return staging.run(&[path], wait, say, gone);
        }
        self.agent.apply_windows()?;
        let data = Arc::clone(self.agent.data());
        if !wait {
            let drain = move || report_stuck(&data.drain(None, &mut |_| {}, &|| false));
            concurrency::spawn("drain", drain)?;
            return Ok(serde_json::Value::Null);
        }
        let mut lost = None;
        let mut progress = |so_far: DrainProgress| {
            stall.saw(so_far);
            let (files_done, files_left, bytes_left) = (so_far.files_done, so_far.files_left, so_far.bytes_left);
            lost = lost.take().or(say(&Reply::Progress { files_done, files_left, bytes_left }).err());
        };
        let stuck = data.drain(None, &mut progress, &|| gone() || stall.is_over());
        for one in &stuck {
            say(&Reply::Item(stuck_item(one)))?;
        }
        lost.map_or(Ok(json!({ "stuck": stuck.len() })), Err)
    }

    fn resolve(&self, file: &str, keep: Keep) -> io::Result<serde_json::Value> {
        let identity = match find(&self.agent, Path::new(file)) {
            Ok(node) => self.agent.identity_of(&node)?,
            Err(error) => self.waiting_at(file).or_else(|| Identity::from_hex(file)).ok_or(error)?,
        };
        match self.agent.data().command(StoreCommand::Resolve(&identity, keep)) {
            Ok(CommandOutcome::Saved(path)) => Ok(json!(path)),
            Ok(_) => Ok(serde_json::Value::Null),
            Err(error) if error.errno() == Some(libc::ETIMEDOUT) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, STAGED_OUT_NOW))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the identity of what waits for a decision under a path that leads nowhere.
    fn waiting_at(&self, path: &str) -> Option<Identity> {
        let status = self.agent.data().status(StatusScope::Activity).counters.ok()?;
        let found = status.stuck.into_iter().find(|one| one.path == path)?;
        Identity::from_hex(&found.identity)
    }

    fn policy(&self, request: &ControlRequest) -> io::Result<serde_json::Value> {
        let policies = self.agent.policies();
        let value = match request {
            ControlRequest::PolicyGet { path } => {
                let holds = policies.for_path(&inside(path).map_err(refused)?);
                serde_json::to_value(PolicySet::of(&holds))?
            }
            ControlRequest::PolicySet { path, rules } => {
                if !find(&self.agent, path)?.is_directory() {
                    return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
                }
                let atime = rules.apply(config::Policy::default()).atime;
                let wrong = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
                self.agent.data().notes_reads(atime).map_err(wrong)?;
                policies.set(path, rules).map_err(refused)?;
                serde_json::Value::Null
            }
            ControlRequest::PolicyUnset { path, keys } => {
                policies.unset(path, keys).map_err(refused)?;
                serde_json::Value::Null
            }
            ControlRequest::PolicyList => serde_json::to_value(policies.list())?,
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        Ok(value)
    }
}

fn report_stuck(stuck: &[Stuck]) {
    for one in stuck {
        tracing::warn!(path = %one.path_hint.shown(), reason = one.reason, "could not stage out");
    }
}

pub(super) fn refused(error: PolicyError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

fn failed(error: &io::Error) -> Reply {
    let errno = match error.errno() {
        Some(errno) => errno,
        None if error.kind() == io::ErrorKind::InvalidInput => libc::EINVAL,
        None if error.kind() == io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        None => libc::EIO,
    };
    Reply::Failed { errno, message: error.to_string() }
}

/// Returns the node at a path inside the accelerated directory. Does not follow symbolic links.
pub(super) fn find(agent: &Agent, path: &Path) -> io::Result<Arc<Node>> {
    let mut node = agent.root().clone();
    for component in inside(path).map_err(refused)?.components() {
        if let Component::Normal(name) = component {
            node = agent.lookup(&node, name)?.node;
        }
    }
    Ok(node)
}

/// Builds the line for one file.
pub(super) fn item(path: PathBuf, state: &str, error: Option<String>) -> Reply {
    Reply::Item(Item { path, state: state.into(), error, ..Item::default() })
}
