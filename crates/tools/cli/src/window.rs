//! Whether windows are served, and where their rings lie.

use std::path::{Path, PathBuf};

use agent::WindowSettings;
use clap::Args;

use crate::exit::Failure;
use crate::preload::{self, Library};

/// What a program's preload library looks for.
const SOCKET: &str = "FOREBAY_WINDOW_SOCKET";

/// `--window[=DIR]`
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// Serve windows: writes of preloaded programs are acknowledged in memory of the node, in DIR on a tmpfs
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "/dev/shm")]
    window: Option<PathBuf>,
}

/// Where the windows of this run lie.
#[derive(Debug, Clone)]
pub struct WindowPlace(WindowSettings);

impl WindowArgs {
    /// Where, if they are asked for; a new session each time.
    pub fn place(&self) -> Result<Option<WindowPlace>, Failure> {
        let Some(dir) = &self.window else { return Ok(None) };
        let failed = |e| Failure::io(format_args!("use {} for windows", dir.display()), &e);
        let dir = std::path::absolute(dir).map_err(failed)?;
        WindowSettings::new(&dir, "").map(|settings| Some(WindowPlace(settings))).map_err(failed)
    }
}

impl WindowPlace {
    /// The settings for one burst buffer.
    pub fn settings(&self, burst_buffer: &Path) -> WindowSettings {
        WindowSettings { burst_buffer: burst_buffer.to_owned(), ..self.0.clone() }
    }

    /// What a shell must say before it starts programs that are to write through windows: `eval "$(forebay mount ... --window)"`.
    pub fn exports(&self) -> String {
        let quoted = |value: &Path| format!("'{}'", value.display().to_string().replace('\'', r"'\''"));
        let socket = format!("export {SOCKET}={}", quoted(&self.0.socket()));
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
        unsafe { std::env::set_var(SOCKET, self.0.socket()) };
    }
}
