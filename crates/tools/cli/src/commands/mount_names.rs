//! `forebay mount --names server`: the server's directory on a node that does not see the global store.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::control::{Commanded, Listener, Reply, Request, SOCKET, Say};
use config::{Policy, PolicySet};
use fuse_protocol::{Session, Threads};
use relay::Relay;
use serde_json::{Value, json};
use transport::Call;

use crate::args::MountArgs;
use crate::channel::Channel;
use crate::commands::mount::{self, Mounted, note};
use crate::exit::{self, Failure, reason};
use crate::guest::{self, Place};
use crate::limits::{POLL, SERVER_STATUS};
use crate::server::ServerAt;
use crate::signals::Signals;
use crate::{apart, heap, log, mounts, open_files, place, privilege, serving};

/// What `status` and `umount` are told under `names`.
pub const NAMES: &str = "server";

/// The one rule that a node has itself.
const OWN_RULE: &str = "io_timeout";

/// Mounts it, with `own` for what is this process's; returns when it works, or in the foreground when it has ended.
pub fn run(args: &MountArgs, own: &Path) -> Result<u8, Failure> {
    let Some(server) = args.server.get()? else {
        return Err(Failure::new(exit::USAGE, "no server is named").remedy("add --server ADDR"));
    };
    if !privilege::has_admin() {
        return Err(Failure::new(exit::NO_PERMISSION, "mounting for the whole node needs root"));
    }
    if args.exclusive || args.window.place()?.is_some() {
        let message = "--window and --exclusive are for nodes that mount the global store";
        return Err(Failure::new(exit::USAGE, message).remedy("leave them out, or --names server"));
    }
    let patience = patience(&args.rules.set())?;
    let seen = mounts::all().map_err(|e| Failure::io("read the mounts", &e))?;
    let dir = place::canonical_dir(&args.dir, &seen)?;
    let burst_buffer = fs::canonicalize(own).map_err(|e| Failure::io(format_args!("use {}", own.display()), &e))?;
    let place = Place { dir, burst_buffer };
    mount::in_background(args.foreground, own, |started| relay(&place, &server, patience, started))
}

fn patience(rules: &PolicySet) -> Result<Duration, Failure> {
    if let Some((name, _)) = rules.iter().find(|(name, _)| *name != OWN_RULE) {
        let message = format!("the rule {name} is not this node's: names and data are the server's");
        return Err(
            Failure::new(exit::USAGE, message).remedy("set it there: forebay serve --policy, forebay policy set")
        );
    }
    Ok(rules.apply(Policy::default()).io_timeout)
}

/// Mounts and relays until unmounted.
fn relay(place: &Place, server: &ServerAt, patience: Duration, started: Option<&Channel>) -> Result<u8, Failure> {
    heap::keep_small();
    let signals = Signals::block();
    let _ = open_files::raise();
    let _ = std::env::set_current_dir("/");
    log::start(&place.burst_buffer);
    let relay = Relay::new(server.client("", &serving::agent_id())?, patience);
    let asked = Arc::new(Asked::default());
    let commands = Commands { relay: Arc::clone(&relay), asked: Arc::clone(&asked) };
    let control =
        Listener::serve(&place.burst_buffer, Arc::new(commands)).map_err(|e| Failure::io("listen for commands", &e))?;
    let device = guest::open_device()?;
    guest::mount_over(place, &device)?;
    let mounted = Mounted(&place.dir);
    let thread = |e: io::Error| Failure::io("start a thread", &e);
    let session = Session::raw(relay.clone(), device, Threads::default());
    let helpers = relay.start(session.passer()).map_err(thread)?;
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    let serve = move || {
        match session.run() {
            Ok(end) => tracing::info!("the session ended: {end:?}"),
            Err(error) => tracing::error!("the session failed: {error}"),
        }
        flag.store(true, Ordering::Release);
    };
    let serving = std::thread::Builder::new().name("session".into()).spawn(serve).map_err(thread)?;
    // The first request through the mount: it works, or the caller hears why not.
    apart::look_into(&place.dir)
        .map_err(|e| Failure::io(format_args!("look into {} at the server", place.dir.display()), &e))?;
    tracing::info!("{} is the directory of {}", place.dir.display(), relay.server().address());
    mount::say_started(started)?;
    wait(place, &signals, &asked, &ended);
    // It is gone already, or has no users.
    std::mem::forget(mounted);
    for thread in [serving].into_iter().chain(helpers) {
        // One that panicked has ended as well.
        let _ = thread.join();
    }
    let _ = fs::remove_file(place.burst_buffer.join(SOCKET));
    // Not dropped: that would wait for its thread, which the end of this process stops at once.
    std::mem::forget(control);
    tracing::info!("ended; what was written is at the server");
    Ok(0)
}

/// Until it is unmounted, or asked to end and nobody uses it; or asked twice.
fn wait(place: &Place, signals: &Signals, asked: &Asked, ended: &AtomicBool) {
    let mut told = false;
    while !ended.load(Ordering::Acquire) {
        let signalled = signals.next(POLL).is_some_and(|signal| signal.asks_to_end());
        if !signalled && !asked.to_end.swap(false, Ordering::AcqRel) {
            continue;
        }
        match mount::unmount(&place.dir) {
            Ok(()) => return,
            Err(error) if told || asked.by_force.load(Ordering::Acquire) => {
                tracing::warn!("ended although {}: {}", place.dir.display(), reason(&error));
                let _ = fuse_protocol::mount::unmount(&place.dir, true);
                return;
            }
            Err(error) => {
                told = true;
                note(&format!("{}: {}; once more ends it nevertheless", place.dir.display(), reason(&error)));
            }
        }
    }
}

/// That somebody wants the end.
#[derive(Default)]
struct Asked {
    to_end: AtomicBool,
    by_force: AtomicBool,
}

struct Commands {
    relay: Arc<Relay>,
    asked: Arc<Asked>,
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
    fn run(&self, request: &Request, _: Say<'_>, _: &dyn Fn() -> bool) -> Reply {
        let result = match request {
            Request::Ping => json!({ "pid": std::process::id(), "names": NAMES }),
            Request::Status => self.status(),
            Request::Shutdown { force } => {
                self.asked.by_force.fetch_or(*force, Ordering::AcqRel);
                self.asked.to_end.store(true, Ordering::Release);
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
