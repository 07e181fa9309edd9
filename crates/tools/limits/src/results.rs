//! Results of a stage as a file, which is replaced by a rename, so that a reader never sees half of it.

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

/// Version of the file format; a reader rejects newer versions.
const FORM: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    pub forebay_limits: u32,
    pub version: String,
    pub host: String,
    pub kernel: String,
    /// Start of the stage, seconds since 1970.
    pub started_unix_s: u64,
    #[serde(flatten)]
    pub stage: Stage,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // One value a run: its size costs nothing.
#[serde(tag = "stage", content = "results", rename_all = "lowercase")]
pub enum Stage {
    Plan(Plan),
    Sweep(Sweep),
    Probe(Probe),
    Watch(Watch),
    Factors(Factors),
}

impl Results {
    pub fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Creates results of this machine with the present time.
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

    pub fn text(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self).map_err(|error| Failure::defect(format!("cannot write results: {error}")))
    }

    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        save(path, self.text()?.as_bytes())
    }

    /// Reads a file that `save` wrote. Errors: the path and the problem.
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

/// Replaces a file's content completely or not at all. A device or pipe is written in place, and a symbolic link is
/// followed.
pub fn save(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| Failure::output(format!("cannot write {}: {error}", path.display()));
    let target = match fs::canonicalize(path) {
        // A dangling symbolic link would be replaced.
        Err(error) if fs::symlink_metadata(path).is_ok() => return Err(failed(&error)),
        found => found.unwrap_or_else(|_| path.to_owned()),
    };
    let path = target.as_path();
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let written = fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(content));
        return written.map_err(|error| failed(&error));
    }
    // Not by the crate `durable`: two measurements may write the same file at once, and the umask gives its mode.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_written_to_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        save(&at("file"), b"one").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        save(&at("link"), b"two").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("file")).unwrap(), b"two");
        std::os::unix::fs::symlink("missing", at("dangling")).unwrap();
        assert!(save(&at("dangling"), b"three").is_err() && save(dir.path(), b"three").is_err());
        assert!(fs::symlink_metadata(at("dangling")).unwrap().is_symlink());
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let read = std::thread::spawn({
            let pipe = at("pipe");
            move || fs::read(pipe)
        });
        save(&at("pipe"), b"four").unwrap();
        assert_eq!(read.join().unwrap().unwrap(), b"four");
        assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
    }
}
