//! One figure of an experiment, and the append-only file of all figures: a JSON value per line.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize};

use super::Run;
use crate::failure::Failure;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub experiment: String,
    pub case: String,
    /// Value of the figure, always finite, because JSON has no other numbers.
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// Unit; `x` for ratios.
    pub unit: String,
    /// Required minimum; `None` without a requirement.
    pub bar: Option<f64>,
    /// Required maximum; `None` without a requirement.
    #[serde(default)]
    pub bar_most: Option<f64>,
    pub paper: Option<f64>,
    /// Origin of the figure, in words.
    pub what: String,
    /// Reason why the figure does not count.
    #[serde(default)]
    pub rejected: Option<String>,
    pub quick: bool,
    /// Load average of the machine over a minute. A value above the number of processors means that there was other
    /// work.
    pub load_average: f64,
    pub processors: u64,
    pub kernel: String,
    pub version: String,
    pub unix_s: u64,
}

impl Row {
    /// Creates a figure with the present time and load.
    pub fn new(run: &Run<'_>, case: impl Into<String>, value: f64, unit: &str) -> Row {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Row {
            experiment: run.book.id.clone(),
            case: case.into(),
            value: if value.is_finite() { value } else { 0.0 },
            unit: unit.to_string(),
            bar: None,
            bar_most: None,
            paper: None,
            what: String::new(),
            rejected: (!value.is_finite()).then(|| NO_FIGURE.to_string()),
            quick: run.quick,
            load_average: load.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            unix_s: since.as_secs(),
        }
    }

    /// Sets the bar, the paper's figure, and the words.
    pub fn judged(mut self, bar: Option<f64>, paper: Option<f64>, what: impl Into<String>) -> Row {
        (self.bar, self.paper, self.what) = (bar, paper, what.into());
        self
    }

    /// Returns whether the figure meets its bar. True without a bar, false if rejected.
    pub fn is_kept(&self) -> bool {
        self.rejected.is_none()
            && self.bar.is_none_or(|bar| self.value >= bar)
            && self.bar_most.is_none_or(|most| self.value <= most)
    }
}

/// Reason why a figure without a value does not count.
const NO_FIGURE: &str = "no figure: what it is divided by was nothing";

/// Reads a value. An earlier version wrote null for a division by zero, which is read like the value of [`Row::new`].
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(0.0))
}

pub fn append(path: &Path, rows: &[Row]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::output(format!("cannot write {}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut text = String::new();
    for row in rows {
        text += &serde_json::to_string(row).map_err(Failure::defect)?;
        text.push('\n');
    }
    let mut file = fs::File::options().create(true).append(true).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// Reads all rows of a file, oldest first.
pub fn read(path: &Path) -> Result<Vec<Row>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read {}: {error}; `make experiments` first", path.display()))
    })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            let wrong = |error| Failure::input(format!("{} line {}: {error}", path.display(), number + 1));
            serde_json::from_str(line).map_err(wrong)
        })
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::super::book::{Book, Experiment, Planted};
    use super::*;

    pub fn row(experiment: &str, case: &str, value: f64) -> Row {
        Row {
            experiment: experiment.to_string(),
            case: case.to_string(),
            value,
            unit: "x".to_string(),
            bar: Some(2.0),
            bar_most: None,
            paper: Some(2.4),
            what: String::new(),
            rejected: None,
            quick: false,
            load_average: 0.1,
            processors: 2,
            kernel: "6".to_string(),
            version: "0".to_string(),
            unix_s: 1_700_000_000,
        }
    }

    #[test]
    fn rows_are_kept_in_order_and_only_appended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/results.jsonl");
        let (a, b) = (row("E0-4", "write", 2.5), row("E0-4", "write", 1.5));
        append(&path, std::slice::from_ref(&a)).unwrap();
        append(&path, std::slice::from_ref(&b)).unwrap();
        assert!(a.is_kept() && !b.is_kept());
        assert_eq!(read(&path).unwrap(), [a, b]);
        fs::write(&path, "{}\n").unwrap();
        assert!(read(&path).unwrap_err().message.contains("line 1"));
    }

    #[test]
    fn a_ratio_to_nothing_is_rejected_kept_and_read_again() {
        let book = Book {
            id: "E".to_string(),
            title: String::new(),
            experiment: Experiment::Planted(Planted { stories: 1, named: 1.0, mounted: 0 }),
        };
        let run = Run { book: &book, quick: true };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        for value in [f64::INFINITY, f64::NAN] {
            let row = Row::new(&run, "gain", value, "x");
            assert!(!row.is_kept());
            append(&path, &[row]).unwrap();
        }
        // The form in which an earlier version stored it.
        let earlier = fs::read_to_string(&path).unwrap().replace("\"value\":0.0", "\"value\":null");
        fs::write(&path, earlier).unwrap();
        let rows = read(&path).unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.value == 0.0 && row.rejected.is_some()), "{rows:?}");
    }

    #[test]
    fn what_was_rejected_keeps_no_bar() {
        let mut row = row("E0-4", "write", 9.0);
        row.rejected = Some("a cache".to_string());
        assert!(!row.is_kept());
    }
}
