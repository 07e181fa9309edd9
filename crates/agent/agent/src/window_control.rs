//! The ioctl on an open file, and operations of open files and agents on windows.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::HasErrno;

use data_store::{StoreCommand, WindowFile, WindowUsage, patiently};
use window::attach::{Command, Control, state};

use crate::agent::Agent;
use crate::limits;
use crate::node::Node;
use crate::open_file::OpenFile;
use windows::{
    Announced, Pending, ReplayTarget, Replayed, WindowRight, WindowService, WindowSettings, WindowStatus, Windows,
    replay,
};

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

impl Agent {
    /// Replays records that killed agents left in the windows of this burst buffer. Call this before anything is
    /// served. On an error, some records could not be replayed now and may be later: nothing must be served then.
    /// `tell` is called with the outcome of each file in any case.
    pub fn recover_windows(&self, burst_buffer: &std::path::Path, tell: &mut dyn FnMut(Replayed)) -> io::Result<()> {
        let policy = |path: &std::path::Path| self.policies.for_path(path);
        let to = ReplayTarget { data: &*self.data, store: self.names.store(), policy: &policy };
        replay(&to, burst_buffer, &mut |file| {
            self.lost_windows.fetch_add(file.lost_bytes, Ordering::Relaxed);
            tell(file);
        })
    }

    /// Serves windows from now on. Call this once. Errors: those of creating the directory and the socket.
    pub fn serve_windows(&self, settings: WindowSettings) -> io::Result<()> {
        let service = WindowService::new(settings.budget_bytes);
        self.join_windows(settings, &service)
    }

    /// Serves windows together with other agents of this process. The budget is the service's, not that of
    /// `settings.budget_bytes`.
    pub fn join_windows(&self, settings: WindowSettings, service: &Arc<WindowService>) -> io::Result<()> {
        let windows = Windows::start(settings, service, self.data.extensions().client)?;
        self.windows.set(windows).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// Socket at which programs register for windows, if they are served.
    pub fn window_socket(&self) -> Option<PathBuf> {
        self.windows.get().map(|windows| windows.socket())
    }

    /// Applies the records of all windows, before everything is staged out. Errors: that of the first file for which
    /// this fails.
    pub fn drain_windows(&self) -> io::Result<()> {
        self.apply_windows()
    }

    /// Stops serving windows. Call this after the last file was closed.
    pub fn stop_windows(&self) {
        if let Some(windows) = self.windows.get() {
            windows.stop();
        }
    }

    /// Counters of windows; `None` if none are served.
    pub fn window_status(&self) -> Option<WindowStatus> {
        let lost = self.lost_windows.load(Ordering::Relaxed);
        self.windows.get().map(|windows| windows.status()).map(|status| status.and_lost(lost))
    }

    /// Returns the announcement of an open by this thread, if there was one.
    pub fn announced(&self, thread: u32) -> Option<Announced> {
        self.windows.get()?.announced(thread)
    }

    /// Whether a file has, or may get, a window. If so, the kernel must not cache its attributes.
    pub fn is_windowed(&self, node: &Node) -> bool {
        self.windows.get().is_some_and(|windows| windows.is_windowed(node.identity()))
    }

    /// Applies the records of a file's windows and ends them, before the file is accessed past them. `waits`: without
    /// limit for a server.
    pub fn end_windows(&self, node: &Node, waits: bool) -> io::Result<()> {
        let Some(windows) = self.windows.get() else { return Ok(()) };
        if !self.may_hold(node)? {
            return Ok(());
        }
        let end = || windows.end(node.identity(), None);
        if waits { end() } else { self.patiently(end) }
    }

    /// Runs work that changes nothing. The wait for a server is limited by the policy.
    fn patiently<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.is_shared() { patiently(self.policies.base().io_timeout, work) } else { work() }
    }

    /// Notes that the last name of a file is about to be removed here, or was not removed after all. The records of a
    /// removed file are dropped.
    pub(crate) fn removes(&self, node: &Node, removes: bool) {
        if let Some(windows) = self.windows.get() {
            windows.removes(node.identity(), removes);
        }
    }

    /// Applies the records of a file's windows, before an answer about the file.
    pub(crate) fn apply_window(&self, node: &Node) -> io::Result<()> {
        self.windows.get().map_or(Ok(()), |windows| windows.apply(node.identity()))
    }

    /// Applies the records of a file's windows, then calls `look`. If records could not be applied, `look` gets them;
    /// otherwise it gets `None`.
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

    /// Truncates a file to `len` bytes by `act`, after all acknowledged records were applied.
    pub(crate) fn cut<T>(&self, node: &Node, len: u64, act: &mut dyn FnMut() -> io::Result<T>) -> io::Result<T> {
        match self.windows.get() {
            Some(windows) => windows.cut(
                {
                    self.identify(node)?;
                    node.identity()
                },
                len,
                act,
            ),
            None => act(),
        }
    }

    /// Makes a change for which a delegated directory may have to be given back. If a file in it is written to, the records of all windows
    /// are applied, and the change is tried once more: windows of closed files have ended then.
    pub(crate) fn beyond_windows<T>(&self, change: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match change() {
            Err(error) if error.errno() == Some(libc::EXDEV) && self.windows.get().is_some() => {
                self.apply_windows()?;
                change()
            }
            done => done,
        }
    }

    /// Applies the records of all files' windows.
    pub(crate) fn apply_windows(&self) -> io::Result<()> {
        self.windows.get().map_or(Ok(()), |windows| windows.apply_all())
    }

    /// `syncfs`: returns when all written data, and every name, survives a crash of the machine.
    pub fn sync_all(&self) -> io::Result<()> {
        self.apply_windows()?;
        self.data.command(StoreCommand::SyncAll)?;
        self.names.sync()
    }

    /// Runs the ioctl [`window::attach::CONTROL`]. `thread`: thread of the caller. `exclusive`: every open file
    /// description of the file may have a window. Errors: `EINVAL` for another structure; `EOPNOTSUPP` if the open file
    /// can have no window; `EAGAIN` if not now.
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
                // The file is about to be accessed past us through this open file, perhaps by a mapping. Writes by
                // another open file are not noticed there.
                if self.is_shared() {
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
                let attached = if self.is_shared() { patiently(limits::SERVER_ATTACH, attach) } else { attach() };
                let attached = attached.map_err(|error| match error.errno() {
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
        let Some(pid) = right.windows.service.process_of(thread).filter(|_| exclusive) else {
            return errno(libc::EAGAIN);
        };
        if bytes > 0 {
            right.set_bytes(bytes);
        }
        let attached = right.windows.attach(right, pid, &|| self.drain_target(open.node()))?;
        right.used.store(true, Ordering::Release);
        if self.stat(open.node()).is_ok_and(|stat| stat.nlink == 0) {
            // When the file was removed, it had no window in which to record that.
            self.removes(open.node(), true);
        }
        Ok(attached)
    }

    /// Opens a file to which the records of its windows are applied. Returns its path too.
    fn drain_target(&self, node: &Arc<Node>) -> io::Result<(WindowFile, PathBuf)> {
        let Some(store) = self.data.extensions().windows else { return errno(libc::EOPNOTSUPP) };
        let anchor = self.anchor(node)?;
        let hint = anchor.path_hint();
        let retained = self.windows.get().is_some_and(|windows| windows.medium.is_durable());
        let file = store.open_for_windows(anchor, &self.policy_for(node), WindowUsage::Serve(retained))?;
        Ok((file, hint))
    }
}

/// Whether the argument of the ioctl requests a window. If so, opens of the file must wait until it is answered.
pub fn attaches(argument: &[u8]) -> bool {
    Control::from_bytes(argument).is_some_and(|asked| asked.command == Command::Attach)
}

/// Builds the ioctl's answer. `attached`: token and bytes of the window just attached.
fn answer(right: Option<&WindowRight>, attached: Option<(u64, u64)>, exclusive: bool) -> Vec<u8> {
    let mut answer = Control { token: attached.map_or(0, |(token, _)| token), ..Control::new(Command::Get, 0) };
    if let Some(right) = right {
        if exclusive && right.windows.refusal(&right.identity).is_none() {
            answer.state |= state::MAY;
        }
        let capacity =
            attached.map(|(_, bytes)| bytes).or_else(|| right.windows.capacity_of(&right.identity, right.id));
        if let Some(capacity) = capacity {
            answer.state |= state::HAS | if right.windows.medium.is_durable() { state::DURABLE } else { 0 };
            answer.bytes = capacity;
        }
    }
    answer.to_bytes().to_vec()
}
