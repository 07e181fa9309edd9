//! How far a run of the book came: the same command goes on after the last page that was finished.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::Book;
use crate::failure::Failure;
use crate::results;

/// What is written down after each page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// The pages, word for word, how they are run, and the program: with any other, nothing is gone on with.
    asked: String,
    /// Ids of the pages that were finished.
    done: Vec<String>,
    /// Whether those kept their bars.
    kept: bool,
    #[serde(skip)]
    path: PathBuf,
}

impl Unfinished {
    /// What an earlier run of these pages left beside the figures; nothing done, if there is none.
    pub fn take_up(figures: &Path, books: &[Book], quick: bool) -> Unfinished {
        let mut path = figures.as_os_str().to_os_string();
        path.push(".unfinished");
        let path = PathBuf::from(path);
        let asked = format!("{books:?} {quick} {}", program());
        let earlier = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Unfinished>(&text).ok());
        match earlier {
            // Without the figures there is nothing to go on with.
            Some(earlier) if earlier.asked == asked && figures.exists() => Unfinished { path, ..earlier },
            _ => Unfinished { asked, done: Vec::new(), kept: true, path },
        }
    }

    /// Ids of the pages that need not be run again.
    pub fn done(&self) -> &[String] {
        &self.done
    }

    /// A page came to its end.
    pub fn finish(&mut self, id: &str, kept: bool) -> Result<(), Failure> {
        self.done.push(id.to_string());
        self.kept &= kept;
        let text = serde_json::to_vec(self).map_err(|error| Failure::defect(error.to_string()))?;
        results::save(&self.path, &text)
    }

    /// All of them did: the next run begins anew. Whether all kept their bars.
    pub fn end(self) -> bool {
        let _ = fs::remove_file(&self.path);
        self.kept
    }
}

/// Which build this is: figures of another one are not of this run.
fn program() -> String {
    let found = std::env::current_exe().and_then(fs::metadata);
    let built = |found: fs::Metadata| {
        let changed = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{} {}", found.len(), changed.as_nanos()))
    };
    found.ok().and_then(built).unwrap_or_default()
}
