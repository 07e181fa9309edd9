//! `forebay mount --names server`: mounts the server's directory on a node that does not see the global store.

use std::fs;
use std::path::Path;
use std::time::Duration;

use placement::choice;
use types::Shown;

use crate::args::MountArgs;
use crate::channel::Channel;
use crate::commands::mount::{self, Mounted, note};
use crate::exit::{self, Failure, reason};
use crate::guest::{self, Place};
use crate::limits::POLL;
use crate::relaying::{self, Relaying};
use crate::server::ServerAt;
use crate::signals::Signals;
use crate::{apart, dead, heap, log, mounts, open_files, privilege};

/// Mounts the directory, with `own` for this process's files. Returns when it works, or in the foreground when it has
/// ended.
pub fn run(args: &MountArgs, own: &Path) -> Result<u8, Failure> {
    let Some(server) = args.server.get()? else {
        return Err(Failure::new(exit::USAGE, "no server is named").remedy("add --server ADDR"));
    };
    if !privilege::has_admin() {
        return Err(Failure::new(exit::NO_PERMISSION, "mounting for the whole node needs root"));
    }
    let patience = relaying::patience(&args.rules.set(), &args.window, args.exclusive)?;
    dead::detach(&args.dir, own)?;
    let place = place_of(&args.dir, own)?;
    mount::in_background(args.foreground, own, |started| relay(&place, &server, patience, started))
}

/// Returns the place of a directory to be mounted. `own`: directory for this process's files.
pub fn place_of(dir: &Path, own: &Path) -> Result<Place, Failure> {
    let seen = mounts::all().map_err(|e| Failure::io("read the mounts", &e))?;
    let dir = choice::canonical_dir(dir, &seen)?;
    let burst_buffer = fs::canonicalize(own).map_err(|e| Failure::io(format_args!("use {}", own.shown()), &e))?;
    Ok(Place { dir, burst_buffer })
}

/// Mounts and relays until unmounted.
fn relay(place: &Place, server: &ServerAt, patience: Duration, started: Option<&Channel>) -> Result<u8, Failure> {
    heap::keep_small();
    let signals = Signals::block();
    let _ = open_files::raise();
    let _ = std::env::set_current_dir("/");
    log::start(&place.burst_buffer);
    let prepared = relaying::prepare(place, server, patience)?;
    let device = guest::open_device()?;
    guest::mount_over(place, &device)?;
    let mounted = Mounted(&place.dir);
    let mut relaying = prepared.serve(device)?;
    relaying.agreed()?;
    // The first request through the mount: either it works, or the caller gets the error.
    match apart::look_into(&place.dir) {
        // The server answered before. Other programs may be on the mount already and wait for it, as they do later.
        Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => {
            let (dir, server) = (place.dir.shown(), relaying.address());
            mount::tell(started, &format!("{server} does not answer any more: {dir} is there when it does"));
        }
        looked => looked.map_err(|e| Failure::io(format_args!("look into {} at the server", place.dir.shown()), &e))?,
    }
    tracing::info!("{} is the directory of {}", place.dir.shown(), relaying.address());
    mount::say_started(started)?;
    wait(&relaying, &signals);
    // The mount is gone already, or has no users.
    std::mem::forget(mounted);
    relaying.join();
    relaying.stop();
    tracing::info!("ended; what was written is at the server");
    Ok(0)
}

/// Waits until the directory is unmounted, or until a request to end finds it unused. A second request ends it even
/// if it is in use.
fn wait(relaying: &Relaying, signals: &Signals) {
    let (mut told, dir) = (false, &relaying.place.dir);
    while !relaying.has_ended() {
        let signalled = signals.next(POLL).is_some_and(|signal| signal.asks_to_end());
        if !signalled && !relaying.asked.is_asked() {
            continue;
        }
        match mount::unmount(dir) {
            Ok(()) => return,
            Err(error) if told || relaying.asked.is_forced() => {
                tracing::warn!("ended although {}: {}", dir.shown(), reason(&error));
                let _ = fuse_protocol::mount::unmount(dir, true);
                return;
            }
            Err(error) => {
                told = true;
                note(&format!("{}: {}; once more ends it nevertheless", dir.shown(), reason(&error)));
            }
        }
    }
}
