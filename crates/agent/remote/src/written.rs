//! Files that this agent wrote. Drains of the agent stage out these, and no other files of the server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use concurrency::{Instant, Mutex};
use types::Identity;

use crate::limits::{CLOSES_WAIT_STEP, SERVER_WRITTEN};

#[derive(Default)]
struct One {
    hint: PathBuf,
    /// Number of opens for writing.
    writers: usize,
}

#[derive(Default)]
struct Table {
    files: HashMap<Identity, One>,
    /// Number of files at which clean ones are looked for next.
    full: usize,
}

/// The files that this client of a server wrote and does not know to be clean.
#[derive(Default)]
pub struct Written(Mutex<Table>);

impl Written {
    /// Notes that a file is opened for writing, or truncated. True: there are many files; [`idle`](Written::idle) ones
    /// may be clean by now.
    pub fn begin(&self, identity: &Identity, hint: &Path) -> bool {
        let mut table = self.0.lock();
        let one = table.files.entry(identity.clone()).or_default();
        one.hint = hint.to_owned();
        one.writers += 1;
        let many = table.files.len() >= table.full.max(SERVER_WRITTEN);
        if many {
            table.full = table.files.len() * 2;
        }
        many
    }

    /// Ends one `begin`.
    pub fn end(&self, identity: &Identity) {
        if let Some(one) = self.0.lock().files.get_mut(identity) {
            one.writers = one.writers.saturating_sub(1);
        }
    }

    /// Waits until no file is open for writing, because the last call of a close may be under way. Returns early after
    /// `bound`, when the files are in use, or if `interrupted` returns true.
    pub fn wait_for_ends(&self, bound: Duration, interrupted: &dyn Fn() -> bool) {
        let start = Instant::now();
        let in_use = || self.0.lock().files.values().any(|one| one.writers > 0);
        while in_use() && start.elapsed() < bound && !interrupted() {
            concurrency::sleep(CLOSES_WAIT_STEP);
        }
    }

    /// Forgets a file that is in the global store, unless it is open for writing.
    pub fn forget(&self, identity: &Identity) {
        let mut table = self.0.lock();
        if table.files.get(identity).is_some_and(|one| one.writers == 0) {
            table.files.remove(identity);
        }
    }

    /// Whether the file is open for writing or may be dirty, and was not removed through this agent.
    pub fn knows(&self, identity: &Identity) -> bool {
        self.0.lock().files.contains_key(identity)
    }

    /// Forgets a file that was removed, even if it is open.
    pub fn remove(&self, identity: &Identity) {
        self.0.lock().files.remove(identity);
    }

    /// Returns the path where the file was last seen.
    pub fn hint(&self, identity: &Identity) -> PathBuf {
        self.0.lock().files.get(identity).map(|one| one.hint.clone()).unwrap_or_default()
    }

    /// Returns all files.
    pub fn all(&self) -> Vec<Identity> {
        self.0.lock().files.keys().cloned().collect()
    }

    /// Returns the files that are not open for writing.
    pub fn idle(&self) -> Vec<Identity> {
        self.those(|one| one.writers == 0)
    }

    /// Returns the files that are open for writing.
    pub fn open(&self) -> Vec<Identity> {
        self.those(|one| one.writers > 0)
    }

    fn those(&self, which: impl Fn(&One) -> bool) -> Vec<Identity> {
        let table = self.0.lock();
        table.files.iter().filter(|(_, one)| which(one)).map(|(identity, _)| identity.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn who_waits_for_files_to_be_closed_waits_for_the_last_but_not_for_ever() {
        let written = Written::default();
        let [one, other] = [1, 2].map(|byte| Identity::new(vec![byte]).unwrap());
        for identity in [&one, &other] {
            written.begin(identity, Path::new("file"));
        }
        written.wait_for_ends(Duration::ZERO, &|| false);
        written.wait_for_ends(Duration::MAX, &|| true);
        assert_eq!(written.open().len(), 2, "they are in use");
        let asked = Cell::new(0);
        let closing = || {
            asked.set(asked.get() + 1);
            match asked.get() {
                2 => written.end(&one),
                4 => written.end(&other),
                _ => {}
            }
            false
        };
        written.wait_for_ends(Duration::MAX, &closing);
        assert_eq!((asked.get(), written.open().len()), (4, 0));
    }
}
