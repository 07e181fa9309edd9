//! Whether windows are served, and where their rings lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::{WindowService, WindowSettings};
use clap::Args;

use crate::exit::Failure;
use crate::preload::{self, Library};

/// What a program's preload library looks for.
const SOCKET: &str = "FOREBAY_WINDOW_SOCKET";

/// `--window[=DIR]`
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// Serve windows: writes of preloaded programs are acknowledged in memory of the node, in DIR on a tmpfs or on persistent memory
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "/dev/shm")]
    window: Option<PathBuf>,
}

/// Where the windows of this run lie: programs register at the first directory's socket, whatever directories there are.
#[derive(Debug, Clone)]
pub struct WindowPlace {
    first: WindowSettings,
    service: Arc<WindowService>,
    served: Arc<AtomicUsize>,
}

impl WindowArgs {
    /// Where, if they are asked for; a new session each time.
    pub fn place(&self) -> Result<Option<WindowPlace>, Failure> {
        let Some(dir) = &self.window else { return Ok(None) };
        let failed = |e| Failure::io(format_args!("use {} for windows", dir.display()), &e);
        let dir = std::path::absolute(dir).map_err(failed)?;
        let first = WindowSettings::new(&dir, "").map_err(failed)?;
        let service = WindowService::new(first.budget_bytes);
        Ok(Some(WindowPlace { first, service, served: Arc::default() }))
    }
}

impl WindowPlace {
    /// The settings for one more burst buffer.
    pub fn settings(&self, burst_buffer: &Path) -> WindowSettings {
        let mut settings = WindowSettings { burst_buffer: burst_buffer.to_owned(), ..self.first.clone() };
        match self.served.fetch_add(1, Ordering::Relaxed) {
            0 => {}
            number => settings.session = format!("{}-{number}", settings.session),
        }
        settings
    }

    /// What all directories share.
    pub fn service(&self) -> &Arc<WindowService> {
        &self.service
    }

    /// What a shell must say before it starts programs that are to write through windows: `eval "$(forebay mount ... --window)"`.
    pub fn exports(&self) -> String {
        let quoted = |value: &Path| format!("'{}'", value.display().to_string().replace('\'', r"'\''"));
        let socket = format!("export {SOCKET}={}", quoted(&self.first.socket()));
        match preload::find() {
            Library::Ours(library) => {
                let (name, library) = (preload::VARIABLE, quoted(&library));
                format!("{socket} {name}={library}\"${{{name}:+:${name}}}\"")
            }
            Library::Other(_) | Library::Missing => socket,
        }
    }

    /// Tells programs that this process becomes where to register. Before there are threads.
    pub fn tell_programs(&self) {
        // SAFETY: called while this process has one thread.
        unsafe { std::env::set_var(SOCKET, self.first.socket()) };
    }
}
