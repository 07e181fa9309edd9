//! A program that writes records side by side, file after file, into files open only for writing, which is the
//! purpose of windows. It remembers every acknowledgement.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use testkit::ProcessGuard;

use crate::ledger::{self, Ledger};
use crate::program::{self, AGENT_GONE};
use crate::records::{RECORD_BYTES, record};

/// Records per file.
const FILE_RECORDS: u64 = 50;
/// Records per sync.
const SYNCED: u64 = 20;
/// Name of the role.
const ROLE: &str = "write";

/// Writer that runs or has ended.
pub struct Writer {
    pub process: ProcessGuard,
    ledger: PathBuf,
    log: PathBuf,
}

fn name(number: u64) -> String {
    format!("records-{}", number / FILE_RECORDS)
}

/// Returns the offset of a record in its file.
fn place(number: u64) -> u64 {
    number % FILE_RECORDS * RECORD_BYTES as u64
}

/// Plays the role, if `words` name it.
pub fn play(words: &[&str]) -> bool {
    let [ROLE, dir, records, ledger] = words else { return false };
    let (records, ledger) = (records.parse().expect("a number"), Ledger::create(Path::new(ledger)));
    if let Err(error) = write(Path::new(dir), records, ledger) {
        eprintln!("{error}");
        std::process::exit(if program::is_gone(&error) { AGENT_GONE } else { 1 });
    }
    true
}

fn write(dir: &Path, records: u64, mut ledger: Ledger) -> std::io::Result<()> {
    let mut open = None;
    for number in 0..records {
        ledger.begun();
        let file = match open.take() {
            Some(file) if number % FILE_RECORDS != 0 => file,
            _ => File::create(dir.join(name(number)))?,
        };
        file.write_all_at(&record(0, number), place(number))?;
        if number % SYNCED == 0 {
            file.sync_all()?;
        }
        ledger.acknowledged();
        open = Some(file);
    }
    Ok(())
}

impl Writer {
    /// Starts a writer of `records` records in `dir`. `how`: environment variables.
    pub fn start(dir: &Path, records: u64, beside: &dyn Fn(&str) -> PathBuf, how: &[(&str, &str)]) -> Writer {
        let (ledger, log) = (beside("ledger-records"), beside("records.log"));
        let text = |path: &Path| path.to_str().expect("a path of ours").to_owned();
        let words = [ROLE, &text(dir), &records.to_string(), &text(&ledger)];
        Writer { process: program::start(&words, &log, how), ledger, log }
    }

    /// Checks that every acknowledged record is in `dir`. Of the unacknowledged one, any part may be.
    pub fn judge(&self, dir: &Path) -> Result<(), String> {
        let acknowledged = ledger::read(&self.ledger).acknowledged as u64;
        let mut file = (String::new(), Vec::new());
        for number in 0..acknowledged {
            if file.0 != name(number) {
                let name = name(number);
                let bytes = std::fs::read(dir.join(&name)).map_err(|error| format!("{name}: {error}"))?;
                file = (name, bytes);
            }
            let start = place(number) as usize;
            if file.1.get(start..start + RECORD_BYTES) != Some(&record(0, number)) {
                let (name, bytes) = (&file.0, file.1.len());
                return Err(format!("record {number} of {acknowledged}, in {name} of {bytes} bytes, is lost"));
            }
        }
        Ok(())
    }

    /// Returns the number of acknowledged records.
    pub fn acknowledged(&self) -> usize {
        ledger::read(&self.ledger).acknowledged
    }

    /// Returns the writer's output.
    pub fn told(&self) -> String {
        format!("{} records:\n{}", self.acknowledged(), std::fs::read_to_string(&self.log).unwrap_or_default())
    }
}
