//! One accelerated directory in this process: its cache, its agent, its session with the kernel and its control
//! socket.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::control::ControlListener;
use agent::{Agent, LockScope, PolicyTable, Replayed};
use config::{Delegate, Lock, Policy, PolicySet};
use data_store::DataStore;
use file_cache::{FileCache, OpenError, Settings};
use global_store::GlobalStore;
use global_store::posix::{PosixStore, StoreOptions};
use namespace::Namespace;
use posix_namespace::PosixNamespace;
use trees::{Trees, TreesData, TreesNamespace};
use types::Shown;

use placement::served::{directory_of, remember_directory};

use crate::delegated;
use crate::drain::{self, Requests};
use crate::ending::{Ending, stop_listening};
use crate::exit::{self, Failure, reason, say};
use crate::forget;
use crate::guest::Place;
use crate::left::{self, Alive};
use crate::neighbours;
use crate::one_node;
use crate::privilege;
use crate::server::{self, ServerAt};
use crate::shell;
use crate::window::{WHERE, WindowPlace};

/// The file in a burst buffer that keeps the directories' rules.
const POLICIES: &str = "policies.toml";

/// Directory of the client recovery records in a server's burst buffer.
pub const LOCKERS: &str = "lockers";
pub const DEPARTED: &str = "departed";

#[derive(Debug, Clone, Default)]
pub struct How {
    /// Rules that hold where no directory says otherwise.
    pub rules: PolicySet,
    /// Whether nobody else changes the directory.
    pub exclusive: bool,
    /// Whether nothing is staged automatically.
    pub idle: bool,
    /// Whether unsaved data is also looked for in the replicas themselves.
    pub thorough: bool,
    /// Whether new directories are delegated if no policy says otherwise and no other node may look for them.
    pub delegates: bool,
    /// Whether this process serves the directory to nodes, which share its data.
    pub serves_nodes: bool,
    /// Directories whose left windows are given up, once nothing else can be refused.
    pub forget_windows: Vec<PathBuf>,
    pub windows: Option<WindowPlace>,
    /// Server that has the data, if it is not here.
    pub server: Option<ServerAt>,
}

/// Opened cache with an agent, not yet served.
pub struct Prepared {
    pub place: Place,
    pub cache: Arc<dyn DataStore>,
    pub agent: Arc<Agent>,
    pub trees: Option<Arc<Trees>>,
    server: Option<ServerAt>,
    alive: Option<Alive>,
}

struct Below {
    store: PosixStore,
    /// Identity of the directory: the same on every node that mounts it, under any name.
    identity: String,
    base: Policy,
}

impl Below {
    fn new(place: &Place, below: OwnedFd, how: &How) -> Result<Below, Failure> {
        let failed = |e: io::Error| Failure::io(format_args!("use {}", place.dir.shown()), &e);
        let options = StoreOptions { shared: how.exclusive.then_some(false), ..StoreOptions::default() };
        let store = PosixStore::new(below, options).map_err(failed)?;
        let identity = store.id().map_err(failed)?;
        let alone = !store.is_shared() || one_node::is_job_of_one_node();
        let may_delegate = how.delegates && how.server.is_none() && alone;
        let delegate = if may_delegate { Delegate::New } else { Delegate::Off };
        let base = how.rules.apply(Policy { delegate, ..Policy::default() });
        Ok(Below { store, identity, base })
    }

    fn policies(&self, place: &Place) -> Result<PolicyTable, Failure> {
        PolicyTable::load(self.base.clone(), place.burst_buffer.join(POLICIES))
            .map_err(|error| Failure::new(exit::NO_INPUT, error.to_string()).remedy("mend that file, or remove it"))
    }
}

pub struct Opened {
    pub cache: FileCache,
    pub store: PosixStore,
    pub identity: String,
    policies: PolicyTable,
}

/// Opens the cache of a place over the directory below, and recovers what an earlier agent left.
pub fn open(place: &Place, below: OwnedFd, how: &How) -> Result<Opened, Failure> {
    let below = Below::new(place, below, how)?;
    let policies = below.policies(place)?;
    let mut settings = Settings::new(&place.burst_buffer, Arc::new(below.store.clone()), below.identity.clone());
    settings.policy = Arc::new(below.base);
    settings.agent_id = agent_id();
    settings.background = !how.idle;
    settings.thorough = how.thorough;
    let own = place.burst_buffer.clone();
    settings.neighbours = Some(Arc::new(move |which| neighbours::free(&own, which)));
    neighbours::make_room_for(&place.burst_buffer);
    let cache = FileCache::open(settings).map_err(|error| cannot_open(place, &error))?;
    remember_directory(place);
    Ok(Opened { cache, store: below.store, identity: below.identity, policies })
}

impl Opened {
    pub fn prepared(self, place: &Place, how: &How) -> Result<Prepared, Failure> {
        prepared(place, Arc::new(self.cache), self.store, self.policies, how, &self.identity)
    }
}

/// Opens the cache of a place, with every acknowledged write in it. From then on this process is subject to quotas.
pub fn cache_of(place: &Place, below: OwnedFd, how: &How) -> Result<FileCache, Failure> {
    // Before any thread of the cache starts.
    privilege::keep_within_quotas();
    let opened = open(place, below, how)?;
    let cache = opened.cache.clone();
    opened.prepared(place, how)?;
    Ok(cache)
}

/// Opens the burst buffer of a place, here or at a server, with an agent over it.
pub fn prepare(place: &Place, below: OwnedFd, how: &How) -> Result<Prepared, Failure> {
    let Some(server) = &how.server else { return open(place, below, how)?.prepared(place, how) };
    let below = Below::new(place, below, how)?;
    let policies = below.policies(place)?;
    let cache = server.connect(&below.identity, &agent_id(), below.base.io_timeout)?;
    prepared(place, cache, below.store, policies, how, &below.identity)
}

fn prepared(
    place: &Place,
    cache: Arc<dyn DataStore>,
    store: PosixStore,
    policies: PolicyTable,
    how: &How,
    identity: &str,
) -> Result<Prepared, Failure> {
    let policies = Arc::new(policies);
    let failed = |e: io::Error| Failure::io(format_args!("use {}", place.dir.shown()), &e);
    let names: Arc<dyn Namespace> = Arc::new(PosixNamespace::new(store.clone()).map_err(failed)?);
    // Nodes of a server see each other's names at once, so nothing is delegated there.
    let has_trees = how.server.is_none() && !how.serves_nodes;
    let trees = has_trees.then(|| delegated::open(place, Arc::clone(&names), &policies, how)).transpose()?;
    let (cache, names): (Arc<dyn DataStore>, Arc<dyn Namespace>) = match &trees {
        Some(trees) => (Arc::new(TreesData::new(trees, cache)), Arc::new(TreesNamespace::new(trees))),
        None => (cache, names),
    };
    let mut agent = Agent::new(Arc::clone(&cache), names, policies).map_err(failed)?;
    // Several nodes share the data.
    if how.server.is_some() || how.serves_nodes {
        agent.lock_in_store(&store);
    }
    let alive = windows(place, &agent, how, identity, trees.is_some())?;
    trees.iter().try_for_each(Trees::begin_work).map_err(|e| Failure::io("start threads", &e))?;
    let (place, server) = (place.clone(), how.server.clone());
    Ok(Prepared { place, cache, agent: Arc::new(agent), trees, server, alive })
}

/// Applies what killed agents left in windows to the burst buffer. Then serves windows, if asked for.
fn windows(place: &Place, agent: &Agent, how: &How, identity: &str, has_trees: bool) -> Result<Option<Alive>, Failure> {
    let loses = Cell::new(false);
    let failed = |dir: &Path, e: io::Error| {
        let lost = if loses.get() { "nothing more is lost" } else { "nothing is lost" };
        Failure::io("bring what a killed agent left in windows to the burst buffer", &e)
            .remedy(format!("{lost}: mend that and start again{}", forget::words(dir, &e)))
    };
    let own = &place.burst_buffer;
    forget::windows(own, &how.forget_windows)?;
    let at_server = how.windows.as_ref().filter(|_| how.server.is_some());
    // Also done where there is no room for new windows: applying old ones makes room.
    let noted = at_server.map(WindowPlace::notes);
    let believed = noted.as_deref().filter(|_| at_server.is_some_and(WindowPlace::is_fit));
    let find = |_| left::find(own, believed, identity);
    let left = how.server.as_ref().map(find).transpose().map_err(|e| failed(own, e))?;
    for dir in left.as_ref().map_or(std::slice::from_ref(&place.burst_buffer), |left| &left.dirs) {
        if !has_trees {
            delegated::has_no_windows(dir)?;
        }
        let tell = &mut |file: Replayed| {
            loses.set(loses.get() || !file.lost.is_empty());
            file.lost.iter().for_each(|lost| say!("forebay: {}: {lost}", file.path.shown()));
        };
        agent.recover_windows(dir, tell).map_err(|e| failed(dir, e))?;
    }
    let Some(windows) = &how.windows else { return Ok(None) };
    let lasting = noted.filter(|_| windows.are_durable());
    let notes = lasting.as_ref().map_or_else(|| Ok(own.clone()), |all| server::lasting_notes(all, own))?;
    let alive = left.as_ref().map(|_| left::begin(&notes, identity)).transpose();
    let alive = alive.map_err(|e| Failure::io(format_args!("use {}", notes.shown()), &e))?;
    let settings = windows.settings(&notes, lasting.is_some());
    let dir = settings.dir.clone();
    match agent.join_windows(settings, windows.service()) {
        Err(error) if windows.goes_on_without(&place.dir, &error) => {}
        joined => {
            let failed = |e| Failure::io(format_args!("use {} for windows", dir.shown()), &e).remedy(WHERE);
            joined.map_err(failed)?;
        }
    }
    Ok(alive)
}

/// Returns the host name and a part that no other agent has: the name by which other machines see the holder of a
/// file.
pub fn agent_id() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    format!("{} {}", host.trim(), random.trim())
}

fn cannot_open(place: &Place, error: &OpenError) -> Failure {
    let buffer = place.burst_buffer.shown();
    match error {
        OpenError::InUse { pid, .. } => Failure::new(
            exit::UNAVAILABLE,
            format!("the burst buffer {buffer} is in use by process {pid}"),
        )
        .remedy(
            "wait for it, or name another directory with --burst-buffer; one that was ended lives on while a call of \
                     its to the global store has not come back",
        ),
        OpenError::OtherStore { .. } => {
            let served = directory_of(&place.burst_buffer);
            let other = served.as_ref().map_or_else(|| "another directory".to_string(), |dir| dir.shown().to_string());
            let remedy = format!(
                "name another burst buffer, or drain this one: forebay recover {}",
                shell::word(&place.burst_buffer)
            );
            if served.as_ref() == Some(&place.dir) {
                let message = format!("the burst buffer {buffer} holds data of a former {other}, which was replaced");
                return Failure::new(exit::UNAVAILABLE, message)
                    .remedy(format!("to look what waits in it: forebay recover {}", shell::word(&place.burst_buffer)));
            }
            let message = format!("the burst buffer {buffer} holds data of {other}, not of {}", place.dir.shown());
            Failure::new(exit::UNAVAILABLE, message).remedy(remedy)
        }
        OpenError::Io { step, source, path } => {
            let message = format!("cannot {step} {}: {}", path.shown(), reason(source));
            Failure { message, ..Failure::io(step, source) }
        }
        OpenError::Catalogue(error) if !error.is_of_another_version() => {
            Failure::new(exit::UNAVAILABLE, error.to_string()).remedy(format!(
                "to make it anew from the dirty replicas: forebay check {} --repair",
                shell::word(&place.burst_buffer)
            ))
        }
        other => Failure::new(exit::CANT_CREATE, other.to_string()),
    }
}

pub struct Serving {
    pub place: Place,
    /// Returns how many names programs have made, removed or moved.
    pub name_changes: Box<dyn Fn() -> u64 + Send>,
    /// Whether new directories are delegated where no directory's policy says otherwise.
    pub delegates: bool,
    pub cache: Arc<dyn DataStore>,
    ended: Arc<AtomicBool>,
    pub asked: Arc<Ending>,
    /// Whether the drain of its windows did not end.
    left: AtomicBool,
    agent: Arc<Agent>,
    control: ControlListener,
    server: Option<ServerAt>,
    _alive: Option<Alive>,
}

impl Prepared {
    /// Returns a note about locks that programs of other nodes do not see. `None` if all nodes see them, or if a rule
    /// decides about them.
    pub fn lock_note(&self) -> Option<String> {
        let LockScope::NodeAlone(why) = self.agent.lock_scope() else { return None };
        let asked_for = self.agent.policies().base().lock != Lock::Auto;
        let text = format!(
            "{}: fcntl and flock exclude programs of this node alone: {why}; --policy lock=refuse makes them fail instead",
            self.place.dir.shown()
        );
        (!asked_for).then_some(text)
    }

    /// Returns notes about delegated directories that could not be opened.
    pub fn tree_notes(&self) -> Vec<String> {
        self.trees.as_ref().map_or_else(Vec::new, |trees| delegated::notes(trees, &self.place))
    }

    /// Fails if the rules of its directories cannot be stored.
    pub fn can_keep_policies(&self) -> Result<(), Failure> {
        let dir = self.place.dir.shown();
        self.agent.can_keep_policies().map_err(|reason| Failure::new(exit::UNAVAILABLE, format!("{dir}: {reason}")))
    }

    /// Serves the mount behind `device` from now on, in threads of its own. Fails if its rules cannot be stored.
    pub fn serve(self, device: OwnedFd) -> Result<Serving, Failure> {
        self.can_keep_policies()?;
        let options = fuse::DoorOptions {
            passthrough: privilege::administrates_machine(),
            only_user: privilege::only_user(),
            ..fuse::DoorOptions::default()
        };
        let asked = Arc::new(Ending::default());
        let theirs = Arc::clone(&asked);
        let on_shutdown = Box::new(move |force| theirs.ask(force));
        let control = ControlListener::start(Arc::clone(&self.agent), &self.place.burst_buffer, on_shutdown)
            .map_err(|e| Failure::io("listen for commands", &e))?;
        let agent = Arc::clone(&self.agent);
        let session = Arc::new(fuse::serve(Arc::clone(&self.agent), device, options));
        if let Some(trees) = &self.trees {
            let session = Arc::downgrade(&session);
            let forget = move || session.upgrade().into_iter().for_each(|session| session.forget_exclusive());
            trees.observe_returns(Box::new(forget));
        }
        let name_changes = Box::new(session.name_changes());
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let dir = self.place.dir.clone();
        let served = move || {
            match session.run() {
                Ok(end) => tracing::info!("the session of {} ended: {end:?}", dir.shown()),
                Err(error) => tracing::error!("the session of {} failed: {error}", dir.shown()),
            }
            // Files that are still open are closed with the session, before anybody drains.
            drop(session);
            flag.store(true, Ordering::Release);
        };
        let started = std::thread::Builder::new().name("session".to_string()).spawn(served);
        started.map_err(|e| Failure::io("start a thread", &e))?;
        let Prepared { place, cache, server, alive, .. } = self;
        let left = AtomicBool::default();
        let delegates = agent.policies().base().delegate == Delegate::New;
        Ok(Serving { place, name_changes, delegates, cache, ended, asked, left, agent, control, server, _alive: alive })
    }
}

impl Serving {
    pub fn windows(&self) -> Option<agent::WindowStatus> {
        self.agent.window_status()
    }

    /// Returns whether the mount is gone, every request was answered and every file is closed.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Applies all acknowledged writes in windows to the burst buffer, before everything is staged out. Returns
    /// false, with a message, if some cannot be applied: they stay in their rings for the next start. Stops waiting
    /// for a server or store once there are enough `requests`.
    pub fn drain_windows(&self, requests: &Requests<'_>) -> bool {
        if self.windows().is_none() {
            return true;
        }
        let agent = Arc::clone(&self.agent);
        let drained = requests.unless(move |asked| {
            data_store::set_interruption(Some(Rc::new(move || asked.load(Ordering::Acquire))));
            agent.drain_windows()
        });
        let drained = drained.and_then(|ended| {
            self.left.store(ended.is_none(), Ordering::Release);
            ended.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EINTR)))
        });
        let Err(error) = drained else { return true };
        let (dir, waiting) = (self.place.dir.shown(), self.agent.window_status().unwrap_or_default().waiting_bytes);
        say!(
            "forebay: {dir}: {waiting} bytes that windows acknowledged are not in the burst buffer: {}",
            reason(&error)
        );
        match &self.server {
            Some(server) => say!("  they are kept in memory of this node; later: {}", server.advice(&self.place.dir)),
            None => say!(
                "  they are kept in memory; when there is room: forebay recover {}",
                shell::word(&self.place.burst_buffer)
            ),
        }
        false
    }

    /// Releases the burst buffer; dirty data stays in it. Afterwards this process should end.
    pub fn stop(self) {
        self.agent.stop_windows();
        drain::let_go(&*self.cache, &self.place.burst_buffer, self.left.load(Ordering::Acquire));
        stop_listening(self.control, &self.place.burst_buffer);
    }
}
