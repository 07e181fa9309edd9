//! `forebay serve`: serves a burst buffer to the agents of other processes and machines.

use std::io;
use std::sync::Arc;

use agent::control::ControlListener;
use relay_server::{NameService, RecoveryRecords};
use server::{BootVerifier, Files};
use transport::{Address, AllowedPeers, Server};
use types::Shown;

use crate::args::ServeArgs;
use crate::ending::{Ending, stop_listening};
use crate::exit::{self, Failure, say};
use crate::limits::POLL;
use crate::server::read_secret;
use crate::serving::{self, How};
use crate::signals::Signals;
use crate::{claim, drain, heap, log, lower, open_files, privilege};

/// Serves until asked to end; then drains.
pub fn run(args: &ServeArgs) -> Result<u8, Failure> {
    let buffer = args.burst_buffer.required()?;
    let access = AllowedPeers { secret: read_secret(args.secret.as_deref())?, anonymous: args.anonymous };
    let on_network = args.listen.iter().any(|address| matches!(address, Address::Tcp(_)));
    if on_network && access.secret.is_none() && !access.anonymous {
        return Err(Failure::new(exit::USAGE, "clients on the network need a secret")
            .remedy("name a file with --secret, on both sides, or allow everybody with --anonymous"));
    }
    let (places, claim) = claim::places(std::slice::from_ref(&args.dir), &buffer)?;
    let place = &places[0];
    heap::keep_small();
    let signals = Signals::block();
    let _ = open_files::raise();
    log::start(&place.burst_buffer);
    privilege::keep_within_quotas();
    let how = How { rules: args.rules.set(), exclusive: args.exclusive, serves_nodes: true, ..How::default() };
    let ours = place.clone();
    let (prepared, cache, store, identity) = signals.unless_asked_to_end(move || {
        let below = lower::open(&ours.dir).map_err(|e| Failure::io(format_args!("use {}", ours.dir.shown()), &e))?;
        let opened = serving::open(&ours, below, &how)?;
        let (cache, store, identity) = (opened.cache.clone(), opened.store.clone(), opened.identity.clone());
        Ok((opened.prepared(&ours, &how)?, cache, store, identity))
    })?;
    prepared.can_keep_policies()?;
    prepared.lock_note().iter().for_each(|note| say!("forebay: {note}"));
    drop(claim);
    let asked = Arc::new(Ending::default());
    let theirs = Arc::clone(&asked);
    let on_shutdown = Box::new(move |force| theirs.ask(force));
    let control = ControlListener::start(Arc::clone(&prepared.agent), &place.burst_buffer, on_shutdown)
        .map_err(|e| Failure::io("listen for commands", &e))?;
    // For nodes that see the global store, and for nodes that do not.
    let recovery_records =
        RecoveryRecords::open(place.burst_buffer.join(serving::LOCKERS), relay_server::limits::GRACE)
            .map_err(|e| Failure::io("read which nodes had locks", &e))?;
    let boot_verifier = BootVerifier::begin(&place.burst_buffer);
    let departed = place.burst_buffer.join(serving::DEPARTED);
    let files = Files::new(Arc::new(cache), store, identity.clone(), &departed, &boot_verifier)
        .map_err(|e| Failure::io("serve its files", &e))?;
    let service =
        NameService::new(files, identity, Arc::clone(&prepared.agent), recovery_records, boot_verifier.number());
    let server = Server::start(service, &args.listen, access).map_err(|e| cannot_listen(&e))?;
    for address in server.addresses() {
        say!("forebay: serving {} at {address}", place.dir.shown());
        tracing::info!("serving {} at {address}", place.dir.shown());
    }
    while !asked.is_asked() && !signals.next(POLL).is_some_and(|signal| signal.asks_to_end()) {}
    // Files that agents had open are closed with the server, and staged out with the rest.
    let requests = drain::Requests::one(&signals, false);
    let closed = requests.unless(move |_| drop(server)).map_err(|e| Failure::io("start a thread", &e))?;
    let (stuck, _) = drain::drain(&prepared.cache, &requests, false);
    if !stuck.is_empty() {
        drain::list(&stuck, &place.dir, &place.burst_buffer);
    }
    // Only after the server has closed: a request that is under way may still be acknowledged.
    let end = || {
        let dir = place.dir.clone();
        requests.unless(move |_| boot_verifier.end(&dir))
    };
    let synced = closed.map(|()| end()).transpose().map_err(|e| Failure::io("start a thread", &e))?.flatten();
    if let Some(Err(error)) = &synced {
        tracing::warn!(%error, "should this machine end now, the next server takes it that it has crashed");
    }
    drain::let_go(&*prepared.cache, &place.burst_buffer, synced.is_none());
    stop_listening(control, &place.burst_buffer);
    Ok(if stuck.is_empty() { 0 } else { exit::UNDRAINED })
}

fn cannot_listen(error: &io::Error) -> Failure {
    let failure = Failure::io("listen", error);
    match error.kind() {
        io::ErrorKind::AddrInUse => failure.remedy(
            "another process listens there, perhaps another forebay serve (ss -lxtp shows which): end it, or name another \
             address with --listen",
        ),
        io::ErrorKind::AddrNotAvailable => {
            failure.remedy("name an address of this machine with --listen, or tcp:0.0.0.0:PORT for all that it has")
        }
        _ => failure,
    }
}
