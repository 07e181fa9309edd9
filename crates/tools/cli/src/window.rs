//! Whether windows are served, and where their rings lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::{WindowMedium, WindowService, WindowSettings, WindowStatus};
use clap::Args;
use types::Shown;
use window::environment::{SOCKET, WISH, WISHES, Wish, wish};
use window::limits::CAPACITY_MIN;

use crate::exit::{self, Failure, reason, say};
use crate::limits;
use crate::memory;
use crate::mounts;
use crate::preload::{self, Library};
use crate::ring_memory::RingMemory;
use crate::server;
use crate::shell;

/// Remedy if windows cannot lie in a directory.
pub const WHERE: &str =
    "name a directory on a tmpfs, or on persistent memory, in which only you or root may write: --window=DIR";

/// For tests: the directory counts as persistent memory, whatever it is.
const EMULATED: &str = "FOREBAY_EMULATE_PERSISTENT_MEMORY";

/// `--window[=DIR]`
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// Serve windows: writes of preloaded programs are acknowledged in memory of the node, or in DIR on a tmpfs or on persistent
    /// memory [run: by itself, where that memory outlives the job]
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    window: Option<Option<PathBuf>>,
    /// Memory that all windows together may take; a new one gets at most half of what is left [default: an eighth of the memory that
    /// there is, at most 1GiB and half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    window_memory: Option<u64>,
}

fn size(text: &str) -> Result<u64, String> {
    let least = 2 * CAPACITY_MIN;
    match config::parse_size(text)? {
        bytes if bytes < least => Err(format!("no window has room in it: at least {}", config::format_size(least))),
        bytes => Ok(bytes),
    }
}

/// Location of the windows of this run. Programs register at the first directory's socket, however many directories
/// there are.
#[derive(Debug, Clone)]
pub struct WindowPlace {
    first: WindowSettings,
    service: Arc<WindowService>,
    served: Arc<AtomicUsize>,
    /// Whether windows are only served by default. If they cannot lie there, the run continues without them.
    by_default: bool,
    quiet: bool,
}

impl WindowArgs {
    pub fn is_asked_for(&self) -> bool {
        self.window.is_some()
    }

    /// Returns where the windows of a command lie. Windows are asked for by an option, or by an environment that
    /// gives their size and names no agent that serves them. By default there are windows if the command `loads` our
    /// library, and their contents would outlive the job.
    pub fn of_command<'a>(
        &self,
        dirs: impl Iterator<Item = &'a Path>,
        loads: bool,
        quiet: bool,
    ) -> Result<Option<WindowPlace>, Failure> {
        let at = |named| WindowArgs { window: Some(named), ..*self };
        let is_served = std::env::var_os(SOCKET).is_some();
        match wished()? {
            _ if self.is_asked_for() => {}
            _ if is_served => return Ok(None),
            Wish::Bytes(_) => return at(None).place(dirs, quiet),
            Wish::Policy if loads && preload::is_there() && RingMemory::look().lasts().is_ok() => {
                let memory = RingMemory::provide();
                if memory.lasts().is_ok() {
                    let place = at(Some(memory.dir())).place(dirs, quiet);
                    return Ok(place.ok().flatten().map(|place| WindowPlace { by_default: true, quiet, ..place }));
                }
            }
            Wish::Policy if loads => return Ok(None),
            Wish::Off => return Ok(None),
            Wish::Policy => {}
        }
        self.place(dirs, quiet)
    }

    /// Returns where windows lie, if they are asked for; each call begins a new session. They cannot lie in `dirs`,
    /// the directories to be accelerated. Unless `quiet`, a remark says where they are slower than they could be.
    pub fn place<'a>(
        &self,
        mut dirs: impl Iterator<Item = &'a Path>,
        quiet: bool,
    ) -> Result<Option<WindowPlace>, Failure> {
        let Some(named) = &self.window else {
            let why = "--window-memory is of windows, and none are asked for: --window";
            return if self.window_memory.is_none() { Ok(None) } else { Err(Failure::new(exit::USAGE, why)) };
        };
        let wish = wished()?;
        let dir = &named.clone().unwrap_or_else(|| RingMemory::provide().dir());
        let failed = |e| Failure::io(format_args!("use {} for windows", dir.shown()), &e);
        let dir = std::path::absolute(dir).map_err(failed)?;
        let real =
            dir.ancestors().find_map(|there| Some(there.canonicalize().ok()?.join(dir.strip_prefix(there).ok()?)));
        if let Some(around) = dirs.find(|around| real.as_ref().is_some_and(|real| real.starts_with(around))) {
            let why = format!("windows cannot lie in {}: {} is to be accelerated", dir.shown(), around.shown());
            return Err(
                Failure::new(exit::USAGE, why).remedy("name a directory outside, on a tmpfs or on persistent memory")
            );
        }
        if let Some(kind) = not_in_memory(&dir).filter(|_| !quiet) {
            say!(
                "forebay: {} is on {kind} and not in memory, which makes windows slow: name a directory on a tmpfs",
                dir.shown()
            );
        }
        let mut first = WindowSettings::new(&dir, "").map_err(failed)?;
        first.medium = std::env::var_os(EMULATED).map(|_| WindowMedium::Emulated);
        if first.medium.is_some() && !quiet {
            say!(
                "forebay: {EMULATED} is set: windows are taken to outlive a crash of the machine, which is only for tests"
            );
        }
        first.budget_bytes = self.window_memory.unwrap_or_else(|| budget(first.budget_bytes, &dir));
        if let Wish::Bytes(bytes) = wish
            && bytes > first.budget_bytes / 2
            && !quiet
        {
            say!(
                "forebay: no window will have the {} of {WISH}: one takes at most half of the memory for all, {} (--window-memory)",
                config::format_size(bytes),
                config::format_size(first.budget_bytes)
            );
        }
        let service = WindowService::new(first.budget_bytes);
        Ok(Some(WindowPlace { first, service, served: Arc::default(), by_default: false, quiet }))
    }
}

/// Returns the default bytes for all windows: `most`, or less on a small machine or job. At most half of what is free
/// now, in memory and in `dir`, since others may come.
fn budget(most: u64, dir: &Path) -> u64 {
    let there = dir.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok());
    let space = there.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    let spared = memory::limit().map(|bytes| bytes / limits::WINDOW_MEMORY_SHARE);
    bounded(most, spared, [memory::available(), space])
}

fn bounded(most: u64, spared: Option<u64>, free: [Option<u64>; 2]) -> u64 {
    let halves = free.into_iter().flatten().map(|bytes| bytes / 2);
    spared.into_iter().chain(halves).fold(most, u64::min).max(2 * CAPACITY_MIN)
}

/// Reads what the environment wishes. Values that the library would ignore are refused here, since the library has
/// nobody to tell.
pub fn wished() -> Result<Wish, Failure> {
    let text = std::env::var_os(WISH).unwrap_or_default();
    if let Some(wish) = wish(text.as_encoded_bytes()) {
        return Ok(wish);
    }
    let why = format!("{WISH}: `{}` is no size of a window", Path::new(&text).shown());
    Err(Failure::new(exit::USAGE, why).remedy(format!("{WISHES}; unset: as the policy says")))
}

/// Returns the kind of an existing directory's file system, if that is neither memory nor persistent memory.
pub fn not_in_memory(dir: &Path) -> Option<String> {
    let there = dir.canonicalize().ok()?;
    let seen = mounts::all().ok()?;
    let kind = &mounts::covering(&seen, &there)?.kind;
    let is_memory = matches!(kind.as_str(), "tmpfs" | "ramfs" | "hugetlbfs");
    (!is_memory && WindowMedium::of(&there).is_ok_and(|medium| !medium.is_durable())).then(|| kind.clone())
}

/// Returns why programs that asked for windows got none, and what was lost in some, one sentence each.
pub fn troubles(windows: &WindowStatus) -> Vec<String> {
    let mut told = Vec::new();
    let mut tell = |number: u64, why: &str| {
        if number > 0 {
            told.push(format!("{number} asked for a window in vain: {why}"));
        }
    };
    tell(windows.without_memory, "all windows together have the memory that they may");
    let why = reason(&std::io::Error::from_raw_os_error(windows.without_place_errno));
    tell(windows.without_place, &format!("no ring can be made where they lie: {why}"));
    tell(windows.without_library, "their preload library is of another version");
    if windows.damaged > 0 {
        let times = windows.damaged;
        told.push(format!(
            "acknowledged writes were damaged in their windows {times} times and are lost: agent.log names them"
        ));
    }
    told
}

impl WindowPlace {
    /// Whether the user has asked for windows.
    pub fn is_asked_for(&self) -> bool {
        !self.by_default
    }

    /// Returns the settings for one more burst buffer.
    pub fn settings(&self, burst_buffer: &Path, lasts: bool) -> WindowSettings {
        let mut settings = WindowSettings { burst_buffer: burst_buffer.to_owned(), lasts, ..self.first.clone() };
        match self.served.fetch_add(1, Ordering::Relaxed) {
            0 => {}
            number => settings.session = format!("{}-{number}", settings.session),
        }
        settings
    }

    /// Returns where windows behind a server are noted, if they outlive a crash of the machine.
    pub fn notes(&self) -> PathBuf {
        server::agents_in(&self.first.dir)
    }

    pub fn dir(&self) -> &Path {
        &self.first.dir
    }

    /// Returns whether no other user can change the contents of the directory.
    pub fn is_fit(&self) -> bool {
        agent::fits_windows(&self.first.dir).is_ok()
    }

    /// Returns whether the windows lie on persistent memory. Prints a remark if that cannot be tried.
    pub fn are_durable(&self) -> bool {
        let dir = &self.first.dir;
        // If it fails, whoever has windows there reports the reason.
        let is_there = agent::provide_for_windows(dir).is_ok();
        let medium = self.first.medium.map_or_else(|| WindowMedium::of(dir), Ok);
        if let (true, Err(error)) = (is_there, &medium) {
            let (dir, why) = (dir.shown(), reason(error));
            say!(
                "forebay: whether {dir} is persistent memory cannot be found out: {why}; windows there are lost with the machine"
            );
        }
        medium.is_ok_and(WindowMedium::is_durable)
    }

    /// Notes that windows could not be served for the directory of the last [`settings`](WindowPlace::settings).
    /// Returns whether the run continues without, since nobody asked for them. Programs then find the windows of the
    /// next directory.
    pub fn goes_on_without(&self, dir: &Path, why: &std::io::Error) -> bool {
        if self.by_default {
            self.served.fetch_sub(1, Ordering::Relaxed);
            if !self.quiet {
                say!("forebay: {}: no windows in {}: {}", dir.shown(), self.first.dir.shown(), reason(why));
            }
        }
        self.by_default
    }

    pub fn service(&self) -> &Arc<WindowService> {
        &self.service
    }

    /// Returns the commands that a shell must execute before it starts programs that write through windows: `eval
    /// "$(forebay mount ... --window)"`.
    pub fn exports(&self) -> String {
        let socket = format!("export {SOCKET}={}", shell::word(self.first.socket()));
        let library = match preload::find() {
            Library::Ours(library) => preload::name_for_programs(&library, self.dir()),
            Library::Other(_) | Library::Missing => None,
        };
        let Some(library) = library else { return socket };
        let (name, library) = (preload::VARIABLE, shell::word(&library));
        format!("{socket} {name}={library}\"${{{name}:+:${name}}}\"")
    }

    /// Tells programs that this process becomes where to register. Called before there are threads.
    pub fn tell_programs(&self) {
        // SAFETY: called while this process has one thread.
        unsafe { std::env::set_var(SOCKET, self.first.socket()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_take_no_more_by_themselves_than_half_of_what_nobody_has() {
        const MIB: u64 = 1 << 20;
        assert_eq!(bounded(1024 * MIB, None, [None, None]), 1024 * MIB);
        assert_eq!(bounded(1024 * MIB, Some(512 * MIB), [Some(4096 * MIB), None]), 512 * MIB);
        assert_eq!(bounded(1024 * MIB, Some(512 * MIB), [Some(600 * MIB), Some(4096 * MIB)]), 300 * MIB);
        assert_eq!(bounded(1024 * MIB, Some(512 * MIB), [Some(600 * MIB), Some(100 * MIB)]), 50 * MIB);
        assert_eq!(bounded(1024 * MIB, Some(512 * MIB), [Some(0), None]), 2 * CAPACITY_MIN, "one has room at least");
    }

    #[test]
    fn a_wish_of_the_environment_is_a_size_that_policies_take() {
        for unit in ["", "B", "K", "KiB", "KB", "mib", " GiB", "MB", "T", "TiB", "tb", "KiBi", "P", "i"] {
            let text = format!("7{unit}");
            let size = config::parse_size(&text).ok().map(Wish::Bytes);
            assert_eq!(wish(text.as_bytes()), size, "{text}");
        }
    }
}
