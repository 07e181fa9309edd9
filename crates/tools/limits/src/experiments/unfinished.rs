//! Progress of a run of the book, so that a repeated command continues after the last finished page.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::Book;
use crate::failure::Failure;
use crate::results;

/// State that is stored after each page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Text of the pages, options of the run, and the program. If any of these differs, the run starts anew.
    asked: String,
    done: Vec<String>,
    /// Whether all finished pages met their bars.
    kept: bool,
    #[serde(skip)]
    path: PathBuf,
}

impl Unfinished {
    /// Loads the state of an earlier run of these pages; if there is none, nothing is finished.
    pub fn take_up(figures: &Path, books: &[Book], quick: bool) -> Unfinished {
        let mut path = figures.as_os_str().to_os_string();
        path.push(".unfinished");
        let path = PathBuf::from(path);
        let asked = format!("{books:?} {quick} {}", program());
        let earlier = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Unfinished>(&text).ok());
        match earlier {
            // Without the file of figures a continuation makes no sense.
            Some(earlier) if earlier.asked == asked && figures.exists() => Unfinished { path, ..earlier },
            _ => Unfinished { asked, done: Vec::new(), kept: true, path },
        }
    }

    /// Returns the ids of the pages that need not be run again.
    pub fn done(&self) -> &[String] {
        &self.done
    }

    pub fn finish(&mut self, id: &str, kept: bool) -> Result<(), Failure> {
        self.done.push(id.to_string());
        self.kept &= kept;
        let text = serde_json::to_vec(self).map_err(Failure::defect)?;
        results::save(&self.path, &text)
    }

    /// Ends the run, so that the next one starts anew. Returns whether all pages met their bars.
    pub fn end(self) -> bool {
        let _ = fs::remove_file(&self.path);
        self.kept
    }
}

/// Identifies this build; figures of another build do not belong to this run.
fn program() -> String {
    let found = std::env::current_exe().and_then(fs::metadata);
    let built = |found: fs::Metadata| {
        let changed = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{} {}", found.len(), changed.as_nanos()))
    };
    found.ok().and_then(built).unwrap_or_default()
}
