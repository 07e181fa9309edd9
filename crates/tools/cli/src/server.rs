//! Burst buffer behind a server: its address, and where the agent then stores its own files.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use data_store::DataStore;
use durable::sync_directory;
use remote::RemoteStore;
use transport::{Address, CallError, Client, Secret, SecretError, Who};
use types::Shown;

use crate::burst_buffer;
use crate::exit::{self, Failure};
use crate::left;
use crate::shell;

/// Longest time for the first connection: a server that is being started together with its agents is waited for.
const FIRST_CONNECTION: Duration = Duration::from_secs(10);

/// Age at which the directory of a dead agent is removed: its log may be wanted until then.
const LEFT: Duration = Duration::from_secs(24 * 3600);

/// `--server`
#[derive(Debug, Clone, Default, Args)]
pub struct ServerArgs {
    /// Keep files' data at a server (`forebay serve`) instead of in a directory here: unix:PATH or tcp:HOST:PORT
    #[arg(long, value_name = "ADDR", conflicts_with = "burst_buffer")]
    server: Option<Address>,
    /// The secret that the server on the network and its agents share; a file that only its owner may read
    #[arg(long, value_name = "FILE", requires = "server")]
    secret: Option<PathBuf>,
    /// Where the names of files are known
    #[arg(long, value_enum, default_value_t, value_name = "WHO", requires_if("server", "server"))]
    pub names: NamesAt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum NamesAt {
    /// The node itself: it mounts the global store at the directory
    #[default]
    Node,
    /// The server: the node need not see the global store, and the directory is where the server's shows
    Server,
}

#[derive(Debug, Clone)]
pub struct ServerAt {
    address: Address,
    secret: Option<Secret>,
}

impl ServerArgs {
    pub fn get(&self) -> Result<Option<ServerAt>, Failure> {
        let Some(address) = self.server.clone() else { return Ok(None) };
        Ok(Some(ServerAt { address, secret: read_secret(self.secret.as_deref())? }))
    }

    /// Returns the directory for the agent's own files: the burst buffer, or with a server a directory of this
    /// process.
    pub fn directory(&self, burst_buffer: &burst_buffer::BurstBuffer) -> Result<PathBuf, Failure> {
        if self.server.is_some() { own_directory() } else { burst_buffer.required() }
    }
}

pub fn read_secret(path: Option<&Path>) -> Result<Option<Secret>, Failure> {
    path.map(Secret::read).transpose().map_err(|error| {
        let code = match &error {
            SecretError::Read { .. } => exit::NO_INPUT,
            SecretError::Open { .. } | SecretError::Short { .. } => exit::NO_PERMISSION,
        };
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Failure::new(code, format!("{error}{source}"))
    })
}

/// Creates a fresh directory in `forebay-agents-UID`, for the control socket, log and rules of one running agent.
fn own_directory() -> Result<PathBuf, Failure> {
    let root = rustix::process::geteuid().is_root();
    let runtime = if root { PathBuf::from("/run") } else { std::env::temp_dir() };
    fresh(&agents_in(&runtime), "name a directory of your own in TMPDIR")
}

/// Returns the directory for agents of this user inside another directory.
pub fn agents_in(dir: &Path) -> PathBuf {
    dir.join(format!("forebay-agents-{}", rustix::process::geteuid().as_raw()))
}

fn fresh(all: &Path, instead: &str) -> Result<PathBuf, Failure> {
    let failed = |e: std::io::Error| Failure::io(format_args!("make a directory in {}", all.shown()), &e);
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(failed)?;
    let own = all.join(random.trim());
    let make = |dir: &Path| fs::DirBuilder::new().mode(0o700).create(dir);
    match make(all) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    if !left::is_ours_alone(all).map_err(failed)? {
        let why = format!("{} is not this user's alone", all.shown());
        return Err(Failure::new(exit::NO_PERMISSION, why).remedy(instead));
    }
    make(&own).map_err(failed)?;
    remove_left(all);
    Ok(own)
}

/// Creates a fresh directory in `all`, on persistent memory, where an agent notes its windows so that they survive a
/// crash of the machine. Agents without windows there find it while the machine runs, by a link beside `own`.
pub fn lasting_notes(all: &Path, own: &Path) -> Result<PathBuf, Failure> {
    let notes = fresh(all, "name a directory for windows in which you alone have something: --window=DIR")?;
    let synced = [&notes, all].into_iter().chain(all.parent()).try_for_each(sync_directory);
    let linked = synced.and_then(|()| std::os::unix::fs::symlink(&notes, own.with_extension("windows")));
    linked.map_err(|e| Failure::io(format_args!("note windows in {}", notes.shown()), &e))?;
    Ok(notes)
}

/// Removes the files of agents that ended long ago.
fn remove_left(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let path = entry.path();
        let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|then| then.elapsed().ok());
        // A `run` with several directories has theirs inside.
        let inside = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
        let lives = || inside.chain([path.clone()]).any(|dir| agent::control::ControlClient::connect(&dir).is_ok());
        // Acknowledged writes in windows are brought to the server by the next agent for the directory.
        if age.is_some_and(|age| age > LEFT) && !lives() && !left::has_windows(&path) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

impl ServerAt {
    /// Returns the advice how to bring the contents of this node's windows to the server.
    pub fn advice(&self, dir: &Path) -> String {
        format!("forebay run --server {} --dir {} -- true", self.address, shell::word(dir))
    }

    /// Connects for the data of the directory with this identity.
    pub fn connect(&self, directory: &str, name: &str, patience: Duration) -> Result<Arc<dyn DataStore>, Failure> {
        let client = self.client(directory, name)?;
        Ok(Arc::new(RemoteStore::new(client, patience)))
    }

    /// Connects for the directory with this identity. If it is empty, for the server's directory, names included.
    pub fn client(&self, directory: &str, name: &str) -> Result<Client, Failure> {
        let who = Who { store: directory.to_owned(), agent: name.to_owned() };
        match Client::connect(self.address.clone(), self.secret.clone(), who, FIRST_CONNECTION) {
            Ok(client) => Ok(client),
            Err(CallError::TimedOut) => {
                Err(Failure::new(exit::UNAVAILABLE, format!("no server answers at {}", self.address))
                    .remedy("start it there: forebay serve DIR --burst-buffer BB --listen ADDR"))
            }
            Err(CallError::Refused { errno: libc::EACCES, reason }) => Err(Failure::new(exit::NO_PERMISSION, reason)),
            Err(error) => Err(Failure::new(exit::UNAVAILABLE, error.to_string())),
        }
    }
}
