//! State shared by the agents of one process: the socket, the registered programs, and the node's memory for windows.

mod listener;

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use concurrency::RwLock;

use crate::budget::WindowBudget;
use crate::drain::Granted;
use crate::processes::Processes;
use crate::table::Windows;
use listener::WindowListener;

/// Window service of a process. Programs register once for all directories. An open is looked up among all registered
/// programs, and a ring is fetched from the agent of its file.
pub struct WindowService {
    pub(crate) budget: WindowBudget,
    pub(crate) processes: Processes,
    agents: RwLock<Vec<Weak<Windows>>>,
    listener: OnceLock<WindowListener>,
}

impl fmt::Debug for WindowService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowService").finish_non_exhaustive()
    }
}

impl WindowService {
    /// Creates a service without agents. Their windows may take `budget_bytes` together.
    pub fn new(budget_bytes: u64) -> Arc<WindowService> {
        Arc::new(WindowService {
            budget: WindowBudget::new(budget_bytes),
            processes: Processes::default(),
            agents: RwLock::default(),
            listener: OnceLock::new(),
        })
    }

    pub fn process_of(&self, thread: u32) -> Option<u32> {
        self.processes.process_of(thread)
    }

    /// Adds an agent. The socket is in the first agent's session.
    pub(crate) fn join(self: &Arc<WindowService>, windows: &Arc<Windows>) -> io::Result<()> {
        let mut agents = self.agents.write();
        if self.listener.get().is_none() {
            let listener = WindowListener::start(&windows.socket(), self)?;
            let _ = self.listener.set(listener);
        }
        agents.push(Arc::downgrade(windows));
        Ok(())
    }

    /// Removes an agent, and with the last one the socket.
    pub(crate) fn leave(&self, windows: &Windows) {
        let mut agents = self.agents.write();
        agents.retain(|agent| !std::ptr::eq(agent.as_ptr(), windows));
        let last = agents.is_empty();
        drop(agents);
        if last && let Some(listener) = self.listener.get() {
            listener.stop();
        }
    }

    /// Counts a program with a preload library of another version, in one of the agents. Returns the number of such
    /// programs so far.
    pub(crate) fn refuse_version(&self) -> u64 {
        let first = self.agents.read().first().and_then(Weak::upgrade);
        first.map_or(0, |first| first.counters.without_library.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the ring of a token. Succeeds once, and only for the process that the ring was made for.
    pub(crate) fn fetch(&self, token: u64, pid: u32) -> Option<Granted> {
        self.agents.read().iter().find_map(|agent| agent.upgrade()?.fetch(token, pid))
    }
}
