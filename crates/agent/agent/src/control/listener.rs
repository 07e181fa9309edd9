//! Server side of the control socket: a thread that accepts, and one for each connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};

use concurrency::{JoinHandle, Mutex};
use namespace::with_umask;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::commands::{Commands, Say};
use super::{ControlRequest, Reply, SOCKET, short_path};
use crate::agent::Agent;
use crate::limits;

/// A served control socket. The socket file is removed on drop.
pub struct ControlListener {
    directory: OwnedFd,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Callback for [`ControlRequest::Shutdown`], with the value of `force`. Must return at once.
pub type OnShutdown = Box<dyn Fn(bool) + Send + Sync>;

/// Executor of the requests on a control socket.
pub trait Commanded: Send + Sync + 'static {
    /// Runs a request and returns the last line of its answer. `gone` returns true once the caller has hung up.
    fn run(&self, request: &ControlRequest, say: Say<'_>, gone: &dyn Fn() -> bool) -> Reply;
}

impl ControlListener {
    /// Listens in the burst buffer, which this process owns. A socket left there by an earlier process is removed.
    pub fn start(agent: Arc<Agent>, burst_buffer: &Path, on_shutdown: OnShutdown) -> io::Result<ControlListener> {
        let listener = ControlListener::serve(burst_buffer, Arc::new(Commands::new(Arc::clone(&agent), on_shutdown)))?;
        let place = format!("/proc/{}/fd/{}", std::process::id(), listener.directory.as_raw_fd());
        // The first listener serves as long as the agent.
        let _ = agent.control.set(place);
        Ok(listener)
    }

    /// Listens in a directory that this process owns, with any executor.
    pub fn serve(burst_buffer: &Path, commands: Arc<dyn Commanded>) -> io::Result<ControlListener> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(burst_buffer, flags, Mode::empty())?;
        match rustix::fs::unlinkat(&directory, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let path = short_path(&directory, Path::new(SOCKET));
        // The umask keeps other users from connecting, even before a chmod.
        let listener = with_umask(0, 0o177, |_| UnixListener::bind(path))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let accept = move || accept(&listener, &commands, &until);
        let thread = Some(concurrency::spawn_joined("control", accept)?);
        Ok(ControlListener { directory, stop, thread })
    }
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The thread looks at `stop` every CONTROL_POLL. A panic in it has been reported already.
            let _ = thread.join();
        }
        // A socket that stays behind refuses connections, so clients see the same.
        let _ = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
    }
}

fn accept(listener: &UnixListener, commands: &Arc<dyn Commanded>, stop: &Arc<AtomicBool>) {
    let served = Arc::new(AtomicUsize::new(0));
    let nap = Timespec { tv_sec: 0, tv_nsec: limits::CONTROL_POLL.as_nanos() as i64 };
    while !stop.load(Ordering::Acquire) {
        let mut waiting = [PollFd::new(listener, PollFlags::IN)];
        if !matches!(poll(&mut waiting, Some(&nap)), Ok(1..)) {
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        if !is_allowed(&stream) || served.load(Ordering::Relaxed) >= limits::CONTROL_CONNECTIONS_MAX {
            continue;
        }
        served.fetch_add(1, Ordering::Relaxed);
        let (commands, ended, stop) = (commands.clone(), served.clone(), stop.clone());
        let serve = move || {
            if let Err(error) = serve(&stream, &*commands, &stop) {
                tracing::debug!(%error, "a control connection ended");
            }
            ended.fetch_sub(1, Ordering::Relaxed);
        };
        if concurrency::spawn("command", serve).is_err() {
            served.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Allows root and the agent's own user.
fn is_allowed(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

fn serve(stream: &UnixStream, commands: &dyn Commanded, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(limits::CONTROL_WRITE_TIMEOUT))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if lines.by_ref().take(limits::CONTROL_LINE_BYTES_MAX as u64).read_line(&mut line)? == 0 {
            return Ok(());
        }
        // A caller that hung up does not want the rest. A caller that cannot be written to is noticed here too.
        let gone = || stop.load(Ordering::Acquire) || has_hung_up(stream);
        let lines = Mutex::new(stream);
        let mut say = |reply: &Reply| send(&lines, reply);
        let last = match serde_json::from_str::<ControlRequest>(&line) {
            Ok(request) => alive_while(&lines, || commands.run(&request, &mut say, &gone)),
            Err(error) => Reply::Failed { errno: libc::EINVAL, message: format!("no request: {error}") },
        };
        send(&lines, &last)?;
    }
}

/// Sends [`Reply::Alive`] regularly while `work` runs.
fn alive_while<R>(lines: &Mutex<&UnixStream>, work: impl FnOnce() -> R) -> R {
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let beat = move || {
            // If the caller cannot be reached, `work` notices.
            while ended.recv_timeout(limits::CONTROL_BEAT) == Err(RecvTimeoutError::Timeout)
                && send(lines, &Reply::Alive).is_ok()
            {}
        };
        // Without a thread the caller hears nothing until the end, and may give up.
        #[cfg_attr(
            not(test),
            expect(clippy::disallowed_methods, reason = "the scheduler has no scoped threads with names")
        )]
        let _ = std::thread::Builder::new().name("alive".into()).spawn_scoped(scope, beat);
        let result = work();
        drop(end);
        result
    })
}

fn send(lines: &Mutex<&UnixStream>, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    // Lines are written whole, whichever thread writes.
    let mut stream: &UnixStream = &lines.lock();
    stream.write_all(line.as_bytes())
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut watched = [PollFd::new(stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_says_that_the_agent_lives() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(limits::CONTROL_SILENCE)).unwrap();
        let lines = Mutex::new(&ours);
        let heard = alive_while(&lines, || {
            let mut line = String::new();
            BufReader::new(&theirs).read_line(&mut line).unwrap();
            line
        });
        assert_eq!(serde_json::from_str::<Reply>(&heard).unwrap(), Reply::Alive);
    }
}
