//! `forebay run --names server`: runs one command with the server's directory, on a node that does not see the global
//! store.
//!
//! As with other runs, this process stays outside and relays, and its child is the command in a private namespace. At
//! the end the server stages out everything that was written here, and files that it could not are listed.

use std::time::Duration;

use data_store::Status;
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

/// Runs the command. Returns the command's exit status, or 75 if some of what was written is not in the global store.
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
    // There are no counters for the command alone: the server works for many.
    let told = Directory::new(&dir, address.as_ref(), Status::default(), &stuck, outcome.took);
    relaying.stop();
    outcome.report(args, here.report, (drained, stuck.is_empty()), vec![told])
}

struct Started {
    relaying: Relaying,
    mounts: Vec<Mount>,
    pid: Pid,
}

fn bring_up(guest: Guest, place: &Place, server: &ServerAt, patience: Duration) -> Result<Started, Failure> {
    let device = guest.device()?;
    let relaying = relaying::prepare(place, server, patience)?.serve(device)?;
    // A refusal is reported once here; otherwise the command would get an error for each file.
    relaying.agreed()?;
    let mounts = run::mounts_of(guest.pid, std::slice::from_ref(place));
    let pid = guest.release()?;
    Ok(Started { relaying, mounts, pid })
}
