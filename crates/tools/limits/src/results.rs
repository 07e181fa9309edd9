//! What a stage found, as a file: made anew and renamed into place, so that a reader never sees half of one.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::bounds::DOCUMENT_MAX;
use crate::factors::Factors;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::probe::Probe;
use crate::sweep::Sweep;
use crate::watch::Watch;

/// Version of the file's form; a reader refuses a newer one.
const FORM: u32 = 1;

/// One file of results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// Version of the form.
    pub forebay_limits: u32,
    /// Version of the program.
    pub version: String,
    /// Name of the machine.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// When the stage began, seconds since 1970.
    pub started_unix_s: u64,
    /// What was found.
    #[serde(flatten)]
    pub stage: Stage,
}

/// Which stage, and its findings.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // One value a run: its size costs nothing.
#[serde(tag = "stage", content = "results", rename_all = "lowercase")]
pub enum Stage {
    /// Limits from specifications.
    Plan(Plan),
    /// The ideal workload.
    Sweep(Sweep),
    /// Each component alone.
    Probe(Probe),
    /// A program's run.
    Watch(Watch),
    /// One software factor at a time.
    Factors(Factors),
}

impl Results {
    /// This machine's name.
    pub fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Findings of this machine, now.
    pub fn new(stage: Stage) -> Results {
        let system = rustix::system::uname();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Results {
            forebay_limits: FORM,
            version: env!("CARGO_PKG_VERSION").to_string(),
            host: Results::host(),
            kernel: system.release().to_string_lossy().into_owned(),
            started_unix_s: since.as_secs(),
            stage,
        }
    }

    /// The text of the file.
    pub fn text(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self).map_err(|error| Failure::defect(format!("cannot write results: {error}")))
    }

    /// Writes the file whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        save(path, self.text()?.as_bytes())
    }

    /// Reads a file that `save` wrote.
    pub fn load(path: &Path) -> Result<Results, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::input(format!("cannot read {}: {error}", path.display()));
        if fs::metadata(path).map_err(|error| failed(&error))?.len() > DOCUMENT_MAX {
            return Err(failed(&"it is too large for results"));
        }
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let results: Results = serde_json::from_str(&text).map_err(|error| {
            Failure::input(format!("{} holds no results of `forebay limits`: {error}", path.display()))
        })?;
        if results.forebay_limits > FORM {
            return Err(failed(&"a newer forebay wrote it"));
        }
        Ok(results)
    }
}

/// Replaces a file's content whole or not at all.
pub fn save(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        Failure::output(format!("cannot write {}: {error}", path.display()))
    })
}
