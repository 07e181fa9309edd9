//! The ioctl on an open file, and what open files and agents have to do with windows.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use file_cache::OpenHow;
use global_store::GlobalStore;
use window::attach::{Command, Control, state};

use super::drain::Pending;
use super::{Announced, Replayed, WindowRight, WindowService, WindowSettings, WindowStatus, Windows, replay};
use crate::agent::Agent;
use crate::burst_buffer::OpenData;
use crate::limits;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::remote::patiently;

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

impl Agent {
    /// Replays what killed agents left in the windows of this burst buffer. Before anything is served. An error means that
    /// something could not be replayed and may be later: nothing must be served then. `tell` hears what became of each file, in any
    /// case.
    pub fn recover_windows(&self, burst_buffer: &std::path::Path, tell: &mut dyn FnMut(Replayed)) -> io::Result<()> {
        replay(self, burst_buffer, &mut |file| {
            self.lost_windows.fetch_add(file.lost_bytes, Ordering::Relaxed);
            tell(file);
        })
    }

    /// Serves windows from now on; once. Errors: those of making the directory and the socket.
    pub fn serve_windows(&self, settings: WindowSettings) -> io::Result<()> {
        let service = WindowService::new(settings.budget_bytes);
        self.join_windows(settings, &service)
    }

    /// The same together with other agents of this process; `settings.budget_bytes` is the service's matter then.
    pub fn join_windows(&self, settings: WindowSettings, service: &Arc<WindowService>) -> io::Result<()> {
        let windows = Windows::start(settings, service, self.cache.client())?;
        self.windows.set(windows).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// Where programs register for windows, if they are served.
    pub fn window_socket(&self) -> Option<PathBuf> {
        self.windows.get().map(|windows| windows.socket())
    }

    /// Before everything is staged out: what was acknowledged is in the burst buffer, or it is said that it is not. Errors are
    /// those of the first file for which it cannot be.
    pub fn drain_windows(&self) -> io::Result<()> {
        self.settle_all()
    }

    /// Ends the service of windows, after the last file was closed.
    pub fn stop_windows(&self) {
        if let Some(windows) = self.windows.get() {
            windows.stop();
        }
    }

    /// What windows did; `None` where none are served.
    pub fn window_status(&self) -> Option<WindowStatus> {
        let lost = self.lost_windows.load(Ordering::Relaxed);
        self.windows.get().map(|windows| windows.status()).map(|status| status.and_lost(lost))
    }

    /// Whether the thread that is opening a file announced it.
    pub fn announced(&self, thread: u32) -> Option<Announced> {
        self.windows.get()?.announced(thread)
    }

    /// Whether a file has, or may get, a window: then the kernel must not keep its attributes.
    pub fn is_windowed(&self, node: &Node) -> bool {
        self.windows.get().is_some_and(|windows| windows.is_windowed(node.identity()))
    }

    /// Before somebody looks at a file past its windows: they end, drained. `waits`: for a server, however long.
    pub fn end_windows(&self, node: &Node, waits: bool) -> io::Result<()> {
        let Some(windows) = self.windows.get() else { return Ok(()) };
        if !self.may_hold(node)? {
            return Ok(());
        }
        let end = || windows.end(node.identity(), None);
        if waits { end() } else { self.patiently(end) }
    }

    /// What changes nothing waits for a server no longer than the rules say.
    fn patiently<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.cache.is_shared() { patiently(self.policies.base().io_timeout, work) } else { work() }
    }

    /// The last name of a file is about to be removed here, or was not removed after all: what windows hold of it goes with it.
    pub(crate) fn removes(&self, node: &Node, removes: bool) {
        if let Some(windows) = self.windows.get() {
            windows.removes(node.identity(), removes);
        }
    }

    /// Before an answer about a file: what was acknowledged is in the burst buffer.
    pub(crate) fn settle(&self, node: &Node) -> io::Result<()> {
        self.windows.get().map_or(Ok(()), |windows| windows.settle(node.identity()))
    }

    /// What is to be seen of a file after what was acknowledged before: with what of that could not be brought to the burst
    /// buffer, or with nothing.
    pub(crate) fn look<T>(
        &self,
        node: &Node,
        look: &mut dyn FnMut(Option<Pending<'_>>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.windows.get() {
            Some(windows) => self.patiently(|| windows.look(node.identity(), look)),
            None => look(None),
        }
    }

    /// A truncation to `len` bytes by `act`, after what was acknowledged before.
    pub(crate) fn cut<T>(&self, node: &Node, len: u64, act: &mut dyn FnMut() -> io::Result<T>) -> io::Result<T> {
        match self.windows.get() {
            Some(windows) => windows.cut(node.identify(&self.store)?, len, act),
            None => act(),
        }
    }

    /// The same for all files.
    pub(crate) fn settle_all(&self) -> io::Result<()> {
        self.windows.get().map_or(Ok(()), |windows| windows.settle_all())
    }

    /// `syncfs`: returns when what was written to any file, and every name, survives a crash of the machine.
    pub fn sync_all(&self) -> io::Result<()> {
        self.settle_all()?;
        self.cache.sync_all()?;
        self.store.sync_point()?.sync()
    }

    /// The ioctl [`window::attach::CONTROL`]. `thread`: who asks. `exclusive`: every open description of the file may have
    /// a window. Errors: `EINVAL` for another structure, `EOPNOTSUPP` for an open file that can have no window, `EAGAIN` not now.
    pub fn window_control(
        &self,
        open: &OpenFile,
        thread: u32,
        exclusive: bool,
        argument: &[u8],
    ) -> io::Result<Vec<u8>> {
        let Some(asked) = Control::from_bytes(argument) else { return errno(libc::EINVAL) };
        let right = open.window_right();
        match asked.command {
            Command::On => open.switch_read_ahead(false),
            Command::Off if asked.state & state::ENDS == 0 => open.switch_read_ahead(true),
            _ => {}
        }
        match (asked.command, right) {
            (Command::Get, _) | (Command::On | Command::Off, None) => {}
            (Command::SyncAll, _) => self.sync_all()?,
            (Command::Advise, _) => open.advise(asked.state, asked.token, asked.bytes)?,
            (_, None) => return errno(libc::EOPNOTSUPP),
            (Command::On, Some(right)) => right.switch(false),
            (Command::Off, Some(right)) => {
                // It is about to be looked at past us, by way of this open file; who writes it by another is not heard there.
                if self.cache.is_shared() {
                    right.may_be_mapped();
                }
                right.switch(true);
                right.windows.end(&right.identity, None)?;
            }
            (Command::Size, Some(right)) => {
                right.set_bytes(asked.bytes);
                right.windows.end(&right.identity, Some(right.id))?;
            }
            (Command::Attach, Some(right)) => {
                let attach = || self.attach_window(open, right, thread, exclusive, asked.bytes);
                let attached = if self.cache.is_shared() { patiently(limits::SERVER_ATTACH, attach) } else { attach() };
                let attached = attached.map_err(|error| match error.raw_os_error() {
                    Some(libc::ETIMEDOUT) => io::Error::from_raw_os_error(libc::EAGAIN),
                    _ => error,
                })?;
                return Ok(answer(Some(right), Some(attached), exclusive));
            }
        }
        Ok(answer(right, None, exclusive))
    }

    fn attach_window(
        &self,
        open: &OpenFile,
        right: &WindowRight,
        thread: u32,
        exclusive: bool,
        bytes: u64,
    ) -> io::Result<(u64, u64)> {
        if right.is_given_back() {
            return errno(libc::EOPNOTSUPP);
        }
        let Some(pid) = right.windows.service.processes.process_of(thread).filter(|_| exclusive) else {
            return errno(libc::EAGAIN);
        };
        if bytes > 0 {
            right.set_bytes(bytes);
        }
        let attached = right.windows.attach(right, pid, &|| self.drain_handle(open.node()))?;
        right.used.store(true, Ordering::Release);
        if self.stat(open.node()).is_ok_and(|stat| stat.st_nlink == 0) {
            // When that was, it had no window to say so of.
            self.removes(open.node(), true);
        }
        Ok(attached)
    }

    /// A handle for the drain of a file, and the file's path.
    fn drain_handle(&self, node: &Arc<Node>) -> io::Result<(Box<dyn OpenData>, PathBuf)> {
        let anchor = node.anchor(&self.store)?;
        let hint = anchor.path_hint();
        let policy = self.policy_for(node);
        let how =
            OpenHow { read: false, write: true, appends: false, truncate: false, created: false, sync: false, policy };
        Ok((self.cache.open_for_windows(anchor, how)?, hint))
    }
}

/// Whether the argument of the ioctl asks for a window: then nobody else may open the file until it is answered.
pub fn attaches(argument: &[u8]) -> bool {
    Control::from_bytes(argument).is_some_and(|asked| asked.command == Command::Attach)
}

/// `attached`: the token of the window that it has got just now, and its bytes.
fn answer(right: Option<&WindowRight>, attached: Option<(u64, u64)>, exclusive: bool) -> Vec<u8> {
    let mut answer = Control { token: attached.map_or(0, |(token, _)| token), ..Control::new(Command::Get, 0) };
    if let Some(right) = right {
        if exclusive && right.windows.refusal(&right.identity).is_none() {
            answer.state |= state::MAY;
        }
        let capacity = attached.map(|(_, bytes)| bytes).or_else(|| right.windows.capacity_of(right));
        if let Some(capacity) = capacity {
            answer.state |= state::HAS | if right.windows.medium.is_durable() { state::DURABLE } else { 0 };
            answer.bytes = capacity;
        }
    }
    answer.to_bytes().to_vec()
}

impl Windows {
    fn capacity_of(&self, right: &WindowRight) -> Option<u64> {
        let window = self.table.lock().get(&right.identity)?.window.clone()?;
        // Behind a server the rings may be on their way to it.
        let wait = limits::WINDOW_STATUS_WAIT;
        let drain = if self.behind_server { window.drain.try_lock_for(wait)? } else { window.drain.lock() };
        drain.as_ref()?.capacity_of(right.id)
    }
}
