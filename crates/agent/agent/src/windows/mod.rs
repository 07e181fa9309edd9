//! Windows, the agent's side: who may have one, the rings of each file, and draining them.
//!
//! What programs do is in `docs/window.md`. The rule here is short: **whoever asks the agent about a file that has windows
//! is answered after everything that was acknowledged before is in the burst buffer** ([`Windows::settle`]), but for a sync where
//! windows survive a crash themselves ([`Windows::keeps`]), and whoever could look past the agent ends them first ([`Windows::end`]). So nothing else of the agent needs to know about rings.
//!
//! Locks, in the order in which they are taken: a file's `drain`; the turn of the files; the table. `drain` is
//! held over writes to the burst buffer. Where that is behind a server, they may wait for it: then nobody waits for `drain`
//! longer than for the server itself ([`Windows::rings`]), and to end the windows of a closed file needs no wait.

mod budget;
mod control;
mod counters;
mod damage;
mod directory;
mod drain;
pub mod fault;
mod file;
mod grant;
mod leftover;
mod listener;
mod out_of_sight;
pub mod own_tmpfs;
mod place;
mod processes;
mod replay;
mod right;
mod service;
mod session;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use concurrency::{Mutex, MutexGuard};
use types::{ByteRange, Identity};

pub use control::attaches;
pub use counters::WindowStatus;
pub use directory::{fits as fits_windows, provide as provide_for_windows};
pub use leftover::{LeftWindows, left_windows};
pub use out_of_sight::{OutOfSight, forget_windows, has_windows_in};
pub use processes::Announced;
pub(crate) use replay::replay;
pub use replay::{Replayed, windows_left};
pub(crate) use right::{WindowRight, WindowRules};
pub use service::WindowService;
pub use window::WindowMedium;
pub use window::attach::CONTROL;

use crate::limits;
use crate::remote::is_interrupted;
use counters::WindowCounters;
use damage::Damages;
use drain::{Drain, Granted, Pending};
use file::FileWindow;
use session::{AgentRun, SOCKET};

/// How windows are served.
#[derive(Debug, Clone)]
pub struct WindowSettings {
    /// Where rings lie: a directory on a tmpfs, or on persistent memory. Made if it is missing.
    pub dir: PathBuf,
    /// What keeps the bytes there; `None`: to be found out.
    pub medium: Option<WindowMedium>,
    /// The name of this run's directory in there, which no other has.
    pub session: String,
    /// The burst buffer, which remembers that there may be rings; behind a server, what does so in its place.
    pub burst_buffer: PathBuf,
    /// Behind a server: what lies there outlives a crash of the machine.
    pub lasts: bool,
    /// Bytes of the node's memory for all windows.
    pub budget_bytes: u64,
    /// Bytes of a window for which neither policy nor program says a size.
    pub window_bytes: u64,
}

impl WindowSettings {
    /// The defaults: a random session, [`limits::WINDOW_BYTES`] a window of [`limits::WINDOW_BUDGET_BYTES`].
    pub fn new(dir: impl Into<PathBuf>, burst_buffer: impl Into<PathBuf>) -> io::Result<WindowSettings> {
        Ok(WindowSettings {
            dir: dir.into(),
            medium: None,
            session: format!("{}{:016x}", leftover::PREFIX, session::random()? as u64),
            burst_buffer: burst_buffer.into(),
            lasts: false,
            budget_bytes: limits::WINDOW_BUDGET_BYTES,
            window_bytes: limits::WINDOW_BYTES,
        })
    }

    /// Where programs will register: `FOREBAY_WINDOW_SOCKET`.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(&self.session).join(SOCKET)
    }
}

/// A ring that a program may fetch.
struct Token {
    identity: Identity,
    open: u64,
    pid: u32,
    granted: Granted,
}

/// What is known of a file: it is here while an open file may have a window, or a window is not drained.
#[derive(Default)]
struct Entry {
    rights: u32,
    /// Rights that are switched off: while there are any the file gets no window.
    off: u32,
    /// Rights whose open files may be mapped, behind a server: the same.
    mapped: u32,
    window: Option<Arc<FileWindow>>,
    /// It was read, under `rw_conflict = disable`: it gets no window any more.
    barred: bool,
    /// An open file of it was closed that may have been mapped, and a mapping outlives it: the same.
    left_mapped: bool,
    /// Some of the rights were of open files that can be mapped for writing.
    mappable: bool,
    /// What of the file was acknowledged and is lost.
    damages: Damages,
}

/// What of a file survives a crash of the machine as it is, for it has windows on persistent memory. [`Windows::keep`] sees to what
/// comes past them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashDurability {
    /// Nothing is known to.
    Nothing,
    /// All that was acknowledged, but not what is stored into mappings, of which nobody is told.
    Acknowledged,
    /// The same, and it cannot be mapped for writing.
    All,
}

/// The windows of one agent.
pub(crate) struct Windows {
    settings: WindowSettings,
    session: AgentRun,
    /// The burst buffer is a server's: it may be gone for a while.
    behind_server: bool,
    medium: WindowMedium,
    service: Arc<WindowService>,
    counters: Arc<WindowCounters>,
    table: Mutex<HashMap<Identity, Entry>>,
    /// Files in the table, so that an agent without windows looks at one word.
    known: AtomicUsize,
    tokens: Mutex<HashMap<u64, Token>>,
    numbers: AtomicU64,
    /// Files drain by turns, one batch each, in the order in which they had one.
    turn: Mutex<()>,
}

impl Windows {
    /// Serves windows from now on. Whatever earlier agents left was replayed before. `client`: what the agent is to its server.
    pub fn start(
        settings: WindowSettings,
        service: &Arc<WindowService>,
        client: Option<[u8; 16]>,
    ) -> io::Result<Arc<Windows>> {
        let windows = Windows::begin(settings, service, client)?;
        service.join(&windows)?;
        Ok(windows)
    }

    /// With a session of their own, of which no program hears.
    fn begin(
        settings: WindowSettings,
        service: &Arc<WindowService>,
        client: Option<[u8; 16]>,
    ) -> io::Result<Arc<Windows>> {
        let behind_server = client.is_some();
        let medium = if behind_server && !settings.lasts { Some(WindowMedium::Volatile) } else { settings.medium };
        let (session, medium) = AgentRun::begin(&settings.dir, &settings.session, &settings.burst_buffer, medium)?;
        if let Some(client) = client {
            session.note_client(client)?;
        }
        Ok(Arc::new(Windows {
            service: Arc::clone(service),
            counters: Arc::default(),
            settings,
            session,
            behind_server,
            medium,
            table: Mutex::default(),
            known: AtomicUsize::new(0),
            tokens: Mutex::default(),
            numbers: AtomicU64::new(1),
            turn: Mutex::default(),
        }))
    }

    /// Where programs register.
    pub fn socket(&self) -> PathBuf {
        self.session.socket()
    }

    /// Ends the service: no program registers any more. If everything is drained the session ends with it; else the next agent
    /// replays what is left.
    pub fn stop(&self) {
        self.service.leave(self);
        if self.known.load(Ordering::Acquire) == 0
            && let Err(error) = self.session.end(&self.settings.burst_buffer)
        {
            tracing::warn!(%error, "the directory of the windows stays");
        }
    }

    /// What they did, and what there is now.
    pub fn status(&self) -> WindowStatus {
        let all: Vec<_> = self.table.lock().values().filter_map(|entry| entry.window.clone()).collect();
        let (mut windows, mut failing) = (0, 0);
        for file in all {
            // One whose drain takes long is not waited for: the numbers are those of a moment ago.
            if let Some(mut slot) = file.drain.try_lock_for(limits::WINDOW_STATUS_WAIT)
                && let Some(drain) = slot.as_mut()
            {
                drain.take();
                windows += drain.windows() as u64;
                failing += u64::from(drain.is_failing());
            }
        }
        WindowStatus { windows, failing, durable: self.medium.is_durable(), ..self.counters.status() }
    }

    /// Who is about to open with this thread, if it was announced.
    pub fn announced(&self, thread: u32) -> Option<Announced> {
        self.service.processes.announced(thread)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether an open file of this file may have a window, or one is not drained.
    pub fn is_windowed(&self, identity: &Identity) -> bool {
        self.known.load(Ordering::Acquire) > 0 && self.table.lock().contains_key(identity)
    }

    /// Everything acknowledged before this call is in the burst buffer when it returns. Errors as writing there gives them.
    pub fn settle(&self, identity: &Identity) -> io::Result<()> {
        self.settle_within(identity, ByteRange::new(0, u64::MAX))
    }

    /// The same of what was acknowledged of `range`: before it is written otherwise, which does not change what lies beside it.
    pub fn settle_within(&self, identity: &Identity, range: ByteRange) -> io::Result<()> {
        self.with_window(identity, |drain| drain.settle_within(range)).map(drop)
    }

    /// Settles, and looks at the file: with what could not be brought to the burst buffer, or with nothing. Errors are those of
    /// `look`.
    pub fn look<T>(
        &self,
        identity: &Identity,
        look: &mut dyn FnMut(Option<Pending<'_>>) -> io::Result<T>,
    ) -> io::Result<T> {
        let over_pending = self.with_window(identity, |drain| match drain.settle() {
            Ok(()) => Ok(None),
            Err(_) if drain.is_failing() => look(Some(Pending(drain))).map(Some),
            Err(error) => Err(error),
        })?;
        over_pending.flatten().map_or_else(|| look(None), Ok)
    }

    /// Settles, and cuts the file to `len` bytes by `act`: whether or not what was acknowledged could be brought to the burst
    /// buffer, what of it lies behind never comes back.
    pub fn cut<T>(&self, identity: &Identity, len: u64, act: &mut dyn FnMut() -> io::Result<T>) -> io::Result<T> {
        let over_pending = self.with_window(identity, |drain| match drain.settle() {
            Ok(()) => {
                // That was others'.
                let _ = drain.tell_writer();
                Ok(None)
            }
            Err(_) if drain.is_failing() => {
                let done = drain.cut(len, act)?;
                // Perhaps there is room now, or nothing left to bring. Its thread tries again if not.
                let _ = drain.settle();
                Ok(Some(done))
            }
            Err(error) => Err(error),
        })?;
        let done = over_pending.flatten().map_or_else(act, Ok)?;
        if self.medium.is_durable() {
            self.with_window(identity, |drain| drain.sync().and_then(|()| drain.tell_writer()))?;
        }
        Ok(done)
    }

    /// After a change past the windows of a file that has some on persistent memory: it is no less durable than what comes after
    /// it through them. Whether it has some.
    pub fn keep(&self, identity: &Identity) -> io::Result<bool> {
        if !self.medium.is_durable() {
            return Ok(false);
        }
        Ok(self.with_window(identity, Drain::sync)?.is_some())
    }

    /// What needs no sync. Waits for nobody.
    pub fn keeps(&self, identity: &Identity) -> CrashDurability {
        if !self.medium.is_durable() || self.known.load(Ordering::Acquire) == 0 {
            return CrashDurability::Nothing;
        }
        let table = self.table.lock();
        let of = |entry: &Entry| Some((entry.window.as_ref()?.kept.load(Ordering::Acquire), entry.mappable));
        match table.get(identity).and_then(of) {
            Some((true, false)) => CrashDurability::All,
            Some((true, true)) => CrashDurability::Acknowledged,
            _ => CrashDurability::Nothing,
        }
    }

    /// [`settle`](Windows::settle) for every file.
    pub fn settle_all(&self) -> io::Result<()> {
        let all: Vec<_> = self.table.lock().keys().cloned().collect();
        all.iter().map(|identity| self.settle(identity)).fold(Ok(()), Result::and)
    }

    /// Ends the windows of a file, or of one open file of it, drained. On an error they have ended all the same, what
    /// they hold stays in their rings, and is tried again.
    pub fn end(&self, identity: &Identity, open: Option<u64>) -> io::Result<()> {
        if self.known.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mine = |token: &Token| token.identity == *identity && open.is_none_or(|open| token.open == open);
        self.tokens.lock().retain(|_, token| !mine(token));
        self.with_window(identity, |drain| {
            drain.end(open);
            drain.settle()
        })
        .map(drop)
    }

    /// The window of one open file ends, and is drained when there is time: `close = lazy`, and behind a server, where the last
    /// flush has waited for that. Waits for nobody.
    fn leave(&self, identity: &Identity, open: u64) {
        self.tokens.lock().retain(|_, token| token.open != open);
        let Some(window) = self.window(identity) else { return };
        window.close(open);
        // Behind a server whoever has the rings comes by again.
        let rings = if self.behind_server { window.drain.try_lock() } else { Some(window.drain.lock()) };
        if let Some(slot) = rings {
            let _ = self.work(&window, slot, |drain| {
                drain.sweep();
                Ok(())
            });
        }
    }

    /// The windows of a file end, and there are no others until everybody has closed it.
    pub fn bar(&self, identity: &Identity) -> io::Result<()> {
        if self.known.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let first = match self.table.lock().get_mut(identity) {
            Some(entry) => !std::mem::replace(&mut entry.barred, true),
            None => false,
        };
        if first { self.end(identity, None) } else { Ok(()) }
    }

    /// A program of this node is about to remove the last name of a file; or it was not removed after all. Waits for nobody.
    pub fn removes(&self, identity: &Identity, removes: bool) {
        let Some(window) = self.window(identity) else { return };
        if let Err(error) = window.place.set_removed(removes) {
            // At worst what goes with the file is told as lost.
            tracing::warn!(%error, "cannot note the removal of a file with windows");
        }
    }

    fn window(&self, identity: &Identity) -> Option<Arc<FileWindow>> {
        if self.known.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table.lock().get(identity).and_then(|entry| entry.window.clone())
    }

    /// The rings of a file. `EINTR`: whoever this thread works for waits no longer.
    fn rings<'a>(&self, window: &'a FileWindow) -> io::Result<MutexGuard<'a, Option<Drain>>> {
        if !self.behind_server {
            return Ok(window.drain.lock());
        }
        loop {
            if let Some(rings) = window.drain.try_lock_for(limits::WINDOW_LOOK) {
                return Ok(rings);
            }
            if is_interrupted() {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
        }
    }

    /// `None`: it has no window.
    fn with_window<T>(
        &self,
        identity: &Identity,
        work: impl FnOnce(&mut Drain) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some(window) = self.window(identity) else { return Ok(None) };
        self.work(&window, self.rings(&window)?, work)
    }

    fn work<T>(
        &self,
        window: &Arc<FileWindow>,
        mut slot: MutexGuard<'_, Option<Drain>>,
        work: impl FnOnce(&mut Drain) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some(drain) = slot.as_mut() else { return Ok(None) };
        window.end_closed(drain);
        let done = work(drain);
        if drain.is_over() {
            // Whoever opens the file next finds nobody at its replica.
            drain.end_behind();
            let over = slot.take();
            drop(slot);
            self.forget(window);
            // Its handle is closed here, which may be a round trip.
            drop(over);
        }
        done.map(Some)
    }

    /// The window is over: its rings and its handle are gone.
    fn forget(&self, window: &Arc<FileWindow>) {
        let mut table = self.table.lock();
        if let Some(entry) = table.get_mut(&window.identity)
            && entry.window.as_ref().is_some_and(|known| Arc::ptr_eq(known, window))
        {
            entry.window = None;
        }
        self.tidy(&mut table, &window.identity);
    }

    fn tidy(&self, table: &mut HashMap<Identity, Entry>, identity: &Identity) {
        if table.get(identity).is_some_and(|entry| entry.rights == 0 && entry.window.is_none()) {
            table.remove(identity);
        }
        self.known.store(table.len(), Ordering::Release);
    }
}
