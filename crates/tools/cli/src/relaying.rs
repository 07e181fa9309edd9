//! The server's directory on a node that does not see the global store, in this process: the relay, its session with
//! the kernel and its control socket.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use agent::control::{Commanded, ControlListener, ControlRequest, Reply, Say};
use config::{Policy, PolicySet};
use fuse_protocol::{Session, ThreadCounts};
use relay::Relay;
use serde_json::{Value, json};
use transport::Call;

use crate::drain::{self, Requests};
use crate::ending::{Ending, stop_listening};
use crate::exit::{self, Failure};
use crate::guest::Place;
use crate::limits::{SERVER_STATUS, START_LOOK};
use crate::server::ServerAt;
use crate::serving;
use crate::window::WindowArgs;

/// Value of `names` in the answers to `status` and `umount`.
pub const NAMES: &str = "server";

/// The one rule that a node decides itself.
const OWN_RULE: &str = "io_timeout";

/// Returns the one rule that a node may set, `io_timeout`. Errors: other rules or options are given, which are the
/// server's.
pub fn patience(rules: &PolicySet, window: &WindowArgs, exclusive: bool) -> Result<Duration, Failure> {
    if exclusive || window.is_asked_for() {
        let message = "--window and --exclusive are for nodes that mount the global store";
        return Err(Failure::new(exit::USAGE, message).remedy("leave them out, or --names server"));
    }
    if let Some((name, _)) = rules.iter().find(|(name, _)| *name != OWN_RULE) {
        let message = format!("the rule {name} is not this node's: names and data are the server's");
        return Err(
            Failure::new(exit::USAGE, message).remedy("set it there: forebay serve --policy, forebay policy set")
        );
    }
    Ok(rules.apply(Policy::default()).io_timeout)
}

/// Relay that is connected and does not serve yet.
pub struct Prepared {
    place: Place,
    relay: Arc<Relay>,
    asked: Arc<Ending>,
    control: ControlListener,
}

pub struct Relaying {
    /// Directory that is served, and the directory of this process's files.
    pub place: Place,
    relay: Arc<Relay>,
    pub asked: Arc<Ending>,
    control: ControlListener,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

pub fn prepare(place: &Place, server: &ServerAt, patience: Duration) -> Result<Prepared, Failure> {
    let relay = Relay::new(server.client("", &serving::agent_id())?, patience);
    let asked = Arc::new(Ending::default());
    let commands = Commands { relay: Arc::clone(&relay), asked: Arc::clone(&asked) };
    let control = ControlListener::serve(&place.burst_buffer, Arc::new(commands))
        .map_err(|e| Failure::io("listen for commands", &e))?;
    Ok(Prepared { place: place.clone(), relay, asked, control })
}

impl Prepared {
    /// Serves the mount behind `device` from now on, in threads of its own.
    pub fn serve(self, device: OwnedFd) -> Result<Relaying, Failure> {
        let Prepared { place, relay, asked, control } = self;
        let thread = |e: io::Error| Failure::io("start a thread", &e);
        let session = Session::raw(relay.clone(), device, ThreadCounts::default());
        let mut threads = Vec::from(relay.start(session.passer()).map_err(thread)?);
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let serve = move || {
            match session.run() {
                Ok(end) => tracing::info!("the session ended: {end:?}"),
                Err(error) => tracing::error!("the session failed: {error}"),
            }
            flag.store(true, Ordering::Release);
        };
        threads.push(std::thread::Builder::new().name("session".into()).spawn(serve).map_err(thread)?);
        Ok(Relaying { place, relay, asked, control, ended, threads })
    }
}

impl Relaying {
    /// Waits until the server has agreed to serve the kernel.
    pub fn agreed(&self) -> Result<(), Failure> {
        let refused = |why: &str| {
            let message = format!("the server at {} does not serve names: {why}", self.address());
            Failure::new(exit::UNAVAILABLE, message)
        };
        loop {
            // Read before the look, whose result is then final.
            let ended = self.has_ended();
            match self.relay.serves() {
                Ok(true) => return Ok(()),
                Ok(false) if ended => return Err(refused("the session with the kernel ended")),
                Ok(false) => std::thread::sleep(START_LOOK),
                Err(reason) => return Err(refused(&reason)),
            }
        }
    }

    pub fn address(&self) -> String {
        self.relay.server().address().to_string()
    }

    /// Returns whether the mount is gone and every request was answered.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Has the server stage out everything that was written here, until there are enough `requests` to end.
    pub fn drain(&self, requests: &Requests<'_>, quiet: bool) -> (Vec<data_store::Stuck>, Duration) {
        drain::with_progress(quiet, |show| self.relay.drain(show, &|| requests.give_up()))
    }

    /// Waits for the relay's threads after the session has ended.
    pub fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }

    /// Stops taking commands. Afterwards this process should end.
    pub fn stop(self) {
        stop_listening(self.control, &self.place.burst_buffer);
    }
}

struct Commands {
    relay: Arc<Relay>,
    asked: Arc<Ending>,
}

impl Commands {
    fn status(&self) -> Value {
        let ping = wire::Message::Ping {};
        let answers = self.relay.server().call(Call { within: Some(SERVER_STATUS), ..Call::new(&ping) }).is_ok();
        let away = self.relay.server().away().filter(|_| !answers).map(|away| away.as_secs());
        let address = self.relay.server().address().to_string();
        json!({ "names": NAMES, "server": { "address": address, "answers": answers, "away_s": away } })
    }
}

impl Commanded for Commands {
    fn run(&self, request: &ControlRequest, _: Say<'_>, _: &dyn Fn() -> bool) -> Reply {
        let result = match request {
            ControlRequest::Ping => json!({ "pid": std::process::id(), "names": NAMES }),
            ControlRequest::Status => self.status(),
            ControlRequest::Shutdown { force } => {
                self.asked.ask(*force);
                Value::Null
            }
            _ => {
                let message = format!(
                    "names and data are the server's: give this command there, at {}",
                    self.relay.server().address()
                );
                return Reply::Failed { errno: libc::EOPNOTSUPP, message };
            }
        };
        Reply::Done { result }
    }
}
