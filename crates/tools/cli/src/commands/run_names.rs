//! `forebay run --names server`: one command with the server's directory, on a node that does not see the global store.
//!
//! As any run: this process stays outside and relays, its child is the command in a private namespace. At the end the server has
//! staged out what was written here, or what it has not is named.

use std::time::Duration;

use file_cache::Status;
use rustix::process::Pid;

use crate::args::RunArgs;
use crate::commands::mount_names::place_of;
use crate::commands::run::{self, Here};
use crate::drain;
use crate::exit::{self, Failure};
use crate::guest::{Guest, Place};
use crate::mounts::Mount;
use crate::relaying::{self, Relaying};
use crate::report::Directory;
use crate::server::ServerAt;
use crate::signals::Signals;

/// Runs it. The exit status is the command's, or 75 when not all that was written is in the global store.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let Some(server) = args.server.get()? else {
        return Err(Failure::new(exit::USAGE, "no server is named").remedy("add --server ADDR"));
    };
    let patience = relaying::patience(&args.rules.set(), &args.window, false)?;
    let dirs = args.dirs();
    let [dir] = &*dirs else {
        return Err(Failure::new(exit::USAGE, "a server has one directory: name one with --dir"));
    };
    let here = Here::new(args)?;
    let place = place_of(dir, &args.server.directory(&args.burst_buffer)?)?;
    let signals = Signals::block();
    let guest = here.begin(args, std::slice::from_ref(&place), &signals, &place.burst_buffer)?;
    let child = guest.pid;
    let started = run::start(child, &signals, move || bring_up(guest, &place, &server, patience))?;
    let Started { relaying, mounts, pid } = started;
    let outcome = run::supervise(args, pid, &mounts, &|| relaying.has_ended(), &signals);
    let (stuck, drained) = relaying.drain(&outcome.requests(&signals), args.quiet);
    let (dir, address) = (relaying.place.dir.clone(), relaying.address());
    if !stuck.is_empty() {
        drain::list_at_server(&stuck, &dir, &address);
    }
    // Counters of what was done for the command alone are nowhere: the server works for many.
    let told = Directory::new(&dir, address.as_ref(), Status::default(), &stuck, outcome.took);
    relaying.stop();
    outcome.report(args, here.report, (drained, stuck.is_empty()), vec![told])
}

/// The command runs.
struct Started {
    relaying: Relaying,
    mounts: Vec<Mount>,
    pid: Pid,
}

fn bring_up(guest: Guest, place: &Place, server: &ServerAt, patience: Duration) -> Result<Started, Failure> {
    let device = guest.device()?;
    let relaying = relaying::prepare(place, server, patience)?.serve(device)?;
    // Else the command would hear of each file what is to be told once.
    relaying.agreed()?;
    let mounts = run::mounts_of(guest.pid, std::slice::from_ref(place));
    let pid = guest.release()?;
    Ok(Started { relaying, mounts, pid })
}
