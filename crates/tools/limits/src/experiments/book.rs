//! The files of the experiment book.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::grid::Grid;
use super::planted;
use super::remote::{Remote, Windows};
use crate::failure::Failure;

/// Time of one simulated scenario, seconds: measured 0.05 to 0.1.
const STORY_S: f64 = 0.1;

/// Time of all traces with all detectors, seconds: measured 3 to 10.
const ABLATION_S: f64 = 5.0;

#[derive(Debug, Clone, Deserialize)]
pub struct Book {
    /// Identifier, for example `E0-4`.
    pub id: String,
    pub title: String,
    #[serde(flatten)]
    pub experiment: Experiment,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Experiment {
    /// Programs on the store, on the burst buffer, and on the accelerated store.
    Accelerate(Accelerate),
    /// The share of a read's time that a disk takes.
    Share(Share),
    Planted(Planted),
    Locks(Locks),
    /// M x N processes on a bed, and on that bed through Forebay.
    Sweep(Through),
    /// Programs on a node whose burst buffer is behind a wire.
    Remote(Remote),
    Windows(Windows),
    Ablation(Ablation),
    /// M x N processes on separate nodes.
    Grid(Grid),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerate {
    /// Options of slowfs for the store.
    pub store: Vec<String>,
    pub burst_buffer: Vec<String>,
    pub processes: Vec<u64>,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Most bytes that a process writes.
    pub size: u64,
    #[serde(default)]
    pub random: bool,
    /// Longest time of a phase on the store, seconds.
    pub seconds: f64,
    pub repeat: u64,
    pub bar: Bars,
    #[serde(default)]
    pub paper: Bars,
}

/// Required results (bars), or a paper's results.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// Rate accelerated divided by rate direct.
    pub write_gain: Option<f64>,
    pub read_gain: Option<f64>,
    /// Rate accelerated divided by rate on the burst buffer itself.
    pub efficiency: Option<f64>,
    /// Best rate divided by the bed's limit.
    pub eta: Option<f64>,
    /// Share of reads that found their bytes on their node.
    pub hits: Option<f64>,
    /// Share of reads that sent no request themselves: hits, and reads that waited for bytes requested earlier.
    pub foreseen: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub store: Vec<String>,
    /// Sizes of a read, bytes.
    pub sizes: Vec<u64>,
    pub reads: u64,
    /// Smallest and largest accepted share of the disk.
    pub least: f64,
    pub most: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planted {
    /// Number of simulated scenarios.
    pub stories: u64,
    pub mounted: u64,
    /// Required share of correct verdicts, for each kind.
    pub named: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// Numbers of writers of one file.
    pub sharers: Vec<u64>,
    /// Sizes of a write, bytes.
    pub sizes: Vec<u64>,
    /// Lock granularities, bytes.
    pub granularities: Vec<u64>,
    /// Rate of all targets together, bytes per second.
    pub bandwidth: f64,
    pub round_trip_us: u64,
    pub manager_us: u64,
}

/// Requirement for the window's detector, in addition to being at least as good as the others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ablation {
    /// Required share of hits if a tenth of the requests are noise.
    pub noisy: f64,
}

/// Bed, grid and bar of a sweep through Forebay.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Through {
    /// Options of slowfs for the store.
    pub store: Vec<String>,
    /// Options of slowfs for the burst buffer: the bed whose limit counts.
    pub burst_buffer: Vec<String>,
    /// Values of M.
    pub groups: Vec<u64>,
    /// Values of N.
    pub processes: Vec<u64>,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Most bytes that a process writes.
    pub size: u64,
    /// Length of a phase, seconds.
    pub seconds: f64,
    pub repeat: u64,
    /// Required share of the bed's measured limit.
    pub eta: f64,
    pub paper: Option<f64>,
}

impl Book {
    /// Reads and checks one file. Errors: [`Failure`] with the path and the problem.
    pub fn read(path: &Path) -> Result<Book, Failure> {
        let wrong = |what: String| Failure::input(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let book: Book = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if let Some(fault) = book.fault() {
            return Err(wrong(fault));
        }
        Ok(book)
    }

    /// Returns the approximate time of a run in seconds: waits, and the time for starting, draining and computing on
    /// two processors.
    pub fn seconds(&self, quick: bool) -> f64 {
        let repeat = |full: u64| if quick { 1.0 } else { full as f64 };
        match &self.experiment {
            Experiment::Accelerate(it) => {
                // Two phases on three sides, and a drain about as long as both; before that, the limits of two sides.
                let counts = repeat(it.processes.len() as u64);
                let phase = if quick { it.seconds.min(2.0) } else { it.seconds };
                counts * repeat(it.repeat) * 8.0 * phase + 10.0
            }
            Experiment::Share(it) => {
                let reads = if quick { it.reads.min(10) } else { it.reads };
                (it.sizes.len() as u64 * reads) as f64 * 0.013 + 1.0
            }
            Experiment::Planted(it) => {
                let (stories, mounted) = it.counts(quick);
                stories as f64 * STORY_S + planted::seconds(mounted)
            }
            Experiment::Locks(it) => (it.sharers.len() * it.sizes.len() * it.granularities.len()) as f64 * 0.1,
            Experiment::Sweep(it) => {
                // Write and read, on the bed and through Forebay.
                let cells = if quick { 1 } else { it.groups.len() * it.processes.len() };
                let phase = if quick { it.seconds.min(1.0) } else { it.seconds };
                cells as f64 * repeat(it.repeat) * 4.0 * (phase + 0.1) + 5.0
            }
            Experiment::Remote(it) => it.seconds(quick),
            Experiment::Windows(it) => it.seconds(quick),
            Experiment::Ablation(_) => ABLATION_S,
            Experiment::Grid(it) => it.seconds(quick),
        }
    }

    fn fault(&self) -> Option<String> {
        let empty = match &self.experiment {
            Experiment::Accelerate(it) => {
                if it.transfer == 0 || it.size < it.transfer {
                    return Some("`size` must be at least one `transfer`".to_string());
                }
                it.processes.is_empty() || it.processes.contains(&0) || it.repeat == 0 || it.seconds <= 0.0
            }
            Experiment::Share(it) => it.sizes.is_empty() || it.reads == 0,
            Experiment::Planted(it) => it.stories == 0,
            Experiment::Sweep(it) => it.groups.is_empty() || it.processes.is_empty() || it.repeat == 0,
            Experiment::Remote(it) => return it.fault(),
            Experiment::Windows(it) => return it.fault(),
            Experiment::Grid(it) => return it.fault(),
            Experiment::Ablation(_) => false,
            Experiment::Locks(it) => it.sharers.is_empty() || it.sizes.is_empty() || it.granularities.is_empty(),
        };
        empty.then(|| "a list is empty or a count is 0: nothing would be measured".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_book_is_understood_and_named_for_its_experiment() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments");
        let (mut found, mut all) = (0, 0.0);
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|form| form == "toml") {
                let book = Book::read(&path).unwrap_or_else(|failure| panic!("{failure}"));
                assert_eq!(path.file_stem().unwrap().to_str(), Some(&*book.id));
                assert!(
                    book.seconds(true) < book.seconds(false) || ["E0-8", "E4-2"].contains(&&*book.id),
                    "{}",
                    book.id
                );
                all += book.seconds(false);
                found += 1;
            }
        }
        assert!(found >= 5);
        assert!((60.0..1200.0).contains(&all), "the whole book takes {all} s");
    }

    #[test]
    fn what_would_measure_nothing_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("E.toml");
        let head = "id = \"E\"\ntitle = \"t\"\n";
        for (text, part) in [
            ("kind = \"planted\"\nstories = 0\nnamed = 1\nmounted = 0\n", "count is 0"),
            ("kind = \"guess\"\n", "unknown variant"),
            (
                "kind = \"remote\"\nwire = { delay_us = 1, bandwidth = 1e6 }\nrepeat = 1\n[[case]]\nname = \"x\"\nprocesses = [1]\n\
                 transfer = 4096\nsize = 8192\nphases = [\"read\"]\nramp = 2\n",
                "more is read than the ramp",
            ),
            ("kind = \"share\"\nstore = []\nsizes = [1]\nreads = 1\nleast = 0\nmost = 1\nmore = 2\n", "more"),
        ] {
            fs::write(&path, format!("{head}{text}")).unwrap();
            let said = Book::read(&path).unwrap_err().message;
            assert!(said.contains(part), "{said}");
        }
    }
}
