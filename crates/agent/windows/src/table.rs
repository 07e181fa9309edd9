//! The windows of one agent, by file.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use concurrency::{Mutex, MutexGuard};
use data_store::is_interrupted;
use types::{ByteRange, Identity};
use window::WindowMedium;

use crate::counters::{WindowCounters, WindowStatus};
use crate::damage::Damages;
use crate::drain::{Drain, Granted, Pending};
use crate::file::FileWindow;
use crate::leftover;
use crate::limits;
use crate::processes::Announced;
use crate::service::WindowService;
use crate::session::{self, AgentRun, SOCKET};

/// Settings of the window service.
#[derive(Debug, Clone)]
pub struct WindowSettings {
    /// Directory of the rings, on a tmpfs or on persistent memory. Created if it is missing.
    pub dir: PathBuf,
    /// Medium of that directory; `None`: to be detected.
    pub medium: Option<WindowMedium>,
    /// Unique name of this run's directory in `dir`.
    pub session: String,
    /// Burst buffer, in which the existence of rings is recorded; behind a server, a directory in its place.
    pub burst_buffer: PathBuf,
    /// Behind a server: whether that directory survives a crash of the machine.
    pub lasts: bool,
    /// Memory of the node for all windows, bytes.
    pub budget_bytes: u64,
    /// Bytes of a window for which neither policy nor program gives a size.
    pub window_bytes: u64,
}

impl WindowSettings {
    /// Creates settings with a random session name and the default sizes, [`limits::WINDOW_BYTES`] and
    /// [`limits::WINDOW_BUDGET_BYTES`].
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

    /// Socket at which programs will register: `FOREBAY_WINDOW_SOCKET`.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(&self.session).join(SOCKET)
    }
}

pub(crate) struct Token {
    pub(crate) identity: Identity,
    pub(crate) open: u64,
    pub(crate) pid: u32,
    pub(crate) granted: Granted,
}

/// State of a file. Kept while an open file may have a window, or records are not applied.
#[derive(Default)]
pub(crate) struct FileEntry {
    pub(crate) rights: u32,
    /// Number of rights that are switched off. While there are any, the file gets no window.
    pub(crate) off: u32,
    /// Number of rights whose open files may be mapped, behind a server. While there are any, the file gets no window.
    pub(crate) mapped: u32,
    pub(crate) window: Option<Arc<FileWindow>>,
    /// Whether the file was read under `rw_conflict = disable`. If so, it gets no window any more.
    pub(crate) barred: bool,
    /// Whether an open file that may have been mapped was closed; a mapping outlives it. If so, the file gets no
    /// window.
    pub(crate) left_mapped: bool,
    /// Whether any right was of an open file that can be mapped for writing.
    pub(crate) mappable: bool,
    pub(crate) damages: Damages,
}

/// Data of a file that survives a crash of the machine without a sync, because the file has windows on persistent
/// memory. Writes past the windows are handled by [`Windows::keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashDurability {
    /// Nothing is known to survive.
    Nothing,
    /// All acknowledged writes survive. Stores into mappings, which the agent does not see, may not.
    Acknowledged,
    /// All acknowledged writes survive, and the file cannot be mapped for writing.
    All,
}

pub struct Windows {
    pub(crate) settings: WindowSettings,
    pub(crate) session: AgentRun,
    /// Whether the burst buffer is at a server, which may be unreachable for a while.
    pub(crate) behind_server: bool,
    pub medium: WindowMedium,
    pub service: Arc<WindowService>,
    pub(crate) counters: Arc<WindowCounters>,
    pub(crate) table: Mutex<HashMap<Identity, FileEntry>>,
    /// Number of files in the table, so that an agent without windows checks one word only.
    pub(crate) known: AtomicUsize,
    pub(crate) tokens: Mutex<HashMap<u64, Token>>,
    pub(crate) numbers: AtomicU64,
    /// Turn of the files: one batch each, in the order of their last turns.
    pub(crate) turn: Mutex<()>,
}

impl Windows {
    /// Starts to serve windows. Records left by earlier agents must have been replayed before. `client`: the agent's
    /// name at its server.
    pub fn start(
        settings: WindowSettings,
        service: &Arc<WindowService>,
        client: Option<[u8; 16]>,
    ) -> io::Result<Arc<Windows>> {
        let windows = Windows::begin(settings, service, client)?;
        service.join(&windows)?;
        Ok(windows)
    }

    /// Creates windows with a session of their own that no program knows yet.
    pub(crate) fn begin(
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

    pub fn socket(&self) -> PathBuf {
        self.session.socket()
    }

    /// Stops the service: no program registers any more. If all records are applied, the session ends; otherwise the
    /// next agent replays the rest.
    pub fn stop(&self) {
        self.service.leave(self);
        if self.known.load(Ordering::Acquire) == 0
            && let Err(error) = self.session.end(&self.settings.burst_buffer)
        {
            tracing::warn!(%error, "could not remove the session of the windows; its directory may stay");
        }
    }

    /// Counters and present numbers of windows.
    pub fn status(&self) -> WindowStatus {
        let all: Vec<_> = self.table.lock().values().filter_map(|entry| entry.window.clone()).collect();
        let (mut windows, mut failing) = (0, 0);
        for file in all {
            // A file whose lock is held for long is skipped: its numbers are those of a moment ago.
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

    /// Returns the announcement of an open by this thread, if there was one.
    pub fn announced(&self, thread: u32) -> Option<Announced> {
        self.service.processes.announced(thread)
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether an open file of this file may have a window, or records are not applied.
    pub fn is_windowed(&self, identity: &Identity) -> bool {
        self.known.load(Ordering::Acquire) > 0 && self.table.lock().contains_key(identity)
    }

    /// Applies everything that was acknowledged before this call. Errors: those of writing to the burst buffer.
    pub fn apply(&self, identity: &Identity) -> io::Result<()> {
        self.apply_within(identity, ByteRange::new(0, u64::MAX))
    }

    /// Applies everything acknowledged before this call in `range`. For a write past the windows, which does not change
    /// bytes outside `range`.
    pub fn apply_within(&self, identity: &Identity, range: ByteRange) -> io::Result<()> {
        self.with_window(identity, |drain| drain.apply_within(range)).map(drop)
    }

    /// Applies records, then calls `look`. If records could not be applied, `look` gets them; otherwise it gets `None`.
    /// Errors: those of `look`.
    pub fn look<T>(
        &self,
        identity: &Identity,
        look: &mut dyn FnMut(Option<Pending<'_>>) -> io::Result<T>,
    ) -> io::Result<T> {
        let over_pending = self.with_window(identity, |drain| match drain.apply() {
            Ok(()) => Ok(None),
            Err(_) if drain.is_failing() => look(Some(Pending(drain))).map(Some),
            Err(error) => Err(error),
        })?;
        over_pending.flatten().map_or_else(|| look(None), Ok)
    }

    /// Applies records, then truncates the file to `len` bytes by `act`. Acknowledged bytes beyond `len` never come
    /// back, even if they could not be applied.
    pub fn cut<T>(&self, identity: &Identity, len: u64, act: &mut dyn FnMut() -> io::Result<T>) -> io::Result<T> {
        let over_pending = self.with_window(identity, |drain| match drain.apply() {
            Ok(()) => {
                // The error belongs to other callers.
                let _ = drain.report_error_to_writer();
                Ok(None)
            }
            Err(_) if drain.is_failing() => {
                let done = drain.cut(len, act)?;
                // There may be room now, or nothing left to apply. If not, the file's thread tries again.
                let _ = drain.apply();
                Ok(Some(done))
            }
            Err(error) => Err(error),
        })?;
        let done = over_pending.flatten().map_or_else(act, Ok)?;
        if self.medium.is_durable() {
            self.with_window(identity, |drain| drain.sync().and_then(|_| drain.report_error_to_writer()))?;
        }
        Ok(done)
    }

    /// Makes a change past the windows of a file as durable as later writes through them, if they are on persistent
    /// memory. Returns whether the file has such windows.
    pub fn keep(&self, identity: &Identity) -> io::Result<bool> {
        if !self.medium.is_durable() {
            return Ok(false);
        }
        Ok(self.with_window(identity, Drain::sync)?.is_some())
    }

    /// Returns which data needs no sync. Does not block.
    pub fn keeps(&self, identity: &Identity) -> CrashDurability {
        if !self.medium.is_durable() || self.known.load(Ordering::Acquire) == 0 {
            return CrashDurability::Nothing;
        }
        let table = self.table.lock();
        let of = |entry: &FileEntry| Some((entry.window.as_ref()?.kept.load(Ordering::Acquire), entry.mappable));
        match table.get(identity).and_then(of) {
            Some((true, false)) => CrashDurability::All,
            Some((true, true)) => CrashDurability::Acknowledged,
            _ => CrashDurability::Nothing,
        }
    }

    /// Applies the records of every file; see [`apply`](Windows::apply).
    pub fn apply_all(&self) -> io::Result<()> {
        let all: Vec<_> = self.table.lock().keys().cloned().collect();
        all.iter().map(|identity| self.apply(identity)).fold(Ok(()), Result::and)
    }

    /// Ends the windows of a file, or of one open file of it, and applies their records. After an error they have ended
    /// all the same. Their records stay in the rings and are tried again.
    pub fn end(&self, identity: &Identity, open: Option<u64>) -> io::Result<()> {
        if self.known.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mine = |token: &Token| token.identity == *identity && open.is_none_or(|open| token.open == open);
        self.tokens.lock().retain(|_, token| !mine(token));
        self.with_window(identity, |drain| {
            drain.end(open);
            drain.apply()
        })
        .map(drop)
    }

    /// Ends the window of one open file, whose records are applied later. Used for `close = lazy`, and behind a server,
    /// where the last flush has applied them. Does not wait for a server.
    pub(crate) fn leave(&self, identity: &Identity, open: u64) {
        self.tokens.lock().retain(|_, token| token.open != open);
        let Some(window) = self.window(identity) else { return };
        window.close(open);
        // Behind a server, the holder of `drain` ends the windows of closed files later.
        let rings = if self.behind_server { window.drain.try_lock() } else { Some(window.drain.lock()) };
        if let Some(slot) = rings {
            let _ = self.work(&window, slot, |drain| {
                drain.sweep();
                Ok(())
            });
        }
    }

    /// Ends the windows of a file and bars new ones until all have closed it.
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

    /// Notes that a program of this node is about to remove the last name of a file, or that it was not removed after
    /// all. Does not block.
    pub fn removes(&self, identity: &Identity, removes: bool) {
        let Some(window) = self.window(identity) else { return };
        if let Err(error) = window.place.set_removed(removes) {
            // At worst, records that vanish with the file are reported as lost.
            tracing::warn!(
                %error,
                "could not record the removal of a file with windows; its data may be reported as lost"
            );
        }
    }

    pub(crate) fn window(&self, identity: &Identity) -> Option<Arc<FileWindow>> {
        if self.known.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table.lock().get(identity).and_then(|entry| entry.window.clone())
    }

    /// Locks the rings of a file. `EINTR` if the program that this thread serves was interrupted.
    pub(crate) fn rings<'a>(&self, window: &'a FileWindow) -> io::Result<MutexGuard<'a, Option<Drain>>> {
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

    /// Runs `work` on the rings of a file. `None` if the file has no window.
    fn with_window<T>(
        &self,
        identity: &Identity,
        work: impl FnOnce(&mut Drain) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some(window) = self.window(identity) else { return Ok(None) };
        self.work(&window, self.rings(&window)?, work)
    }

    pub(crate) fn work<T>(
        &self,
        window: &Arc<FileWindow>,
        mut slot: MutexGuard<'_, Option<Drain>>,
        work: impl FnOnce(&mut Drain) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some(drain) = slot.as_mut() else { return Ok(None) };
        window.end_closed(drain);
        let done = work(drain);
        if drain.is_over() {
            // The next open of the file must find no write-back on the replica.
            drain.end_behind();
            let over = slot.take();
            drop(slot);
            self.forget(window);
            // The handle is closed here, which may cost a round trip.
            drop(over);
        }
        done.map(Some)
    }

    /// Removes windows whose rings and handle are gone from the table.
    pub(crate) fn forget(&self, window: &Arc<FileWindow>) {
        let mut table = self.table.lock();
        if let Some(entry) = table.get_mut(&window.identity)
            && entry.window.as_ref().is_some_and(|known| Arc::ptr_eq(known, window))
        {
            entry.window = None;
        }
        self.tidy(&mut table, &window.identity);
    }

    pub(crate) fn tidy(&self, table: &mut HashMap<Identity, FileEntry>, identity: &Identity) {
        if table.get(identity).is_some_and(|entry| entry.rights == 0 && entry.window.is_none()) {
            table.remove(identity);
        }
        self.known.store(table.len(), Ordering::Release);
    }

    /// Returns the size of the window that an open file has now, bytes.
    pub fn capacity_of(&self, identity: &Identity, open: u64) -> Option<u64> {
        let window = self.table.lock().get(identity)?.window.clone()?;
        // Behind a server, records may be under way to it while `drain` is locked.
        let wait = limits::WINDOW_STATUS_WAIT;
        let drain = if self.behind_server { window.drain.try_lock_for(wait)? } else { window.drain.lock() };
        drain.as_ref()?.capacity_of(open)
    }
}
