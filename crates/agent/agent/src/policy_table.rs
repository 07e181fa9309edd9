//! Policies of directories: kept in a file of the burst buffer, inherited by directories below, effective for new
//! opens.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Mutex, MutexGuard, RwLock};
use config::{Policy, PolicySet};
use durable::{Durability, replace};

/// Error in reading or writing policies.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file could not be read or written.
    #[error("cannot {step} the policies {path}: {source}")]
    Io {
        /// Step that failed.
        step: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// The file's content is not a valid table of policies.
    #[error("the policies {path} cannot be understood: {reason}")]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Reason in words.
        reason: String,
    },
    /// The path leaves the accelerated directory.
    #[error("{path} is not a path inside the accelerated directory")]
    Outside {
        /// Path as it was given.
        path: PathBuf,
    },
    /// Unknown key or value.
    #[error(transparent)]
    Key(#[from] config::KeyError),
}

#[derive(Default)]
struct Rules {
    /// Rules set on each directory. Paths are relative to the accelerated directory, which is the empty path.
    sets: BTreeMap<PathBuf, PolicySet>,
    /// For each of these directories, its policy with all that it inherits.
    resolved: BTreeMap<PathBuf, Arc<Policy>>,
}

impl Rules {
    fn resolve(&mut self, base: &Policy) {
        let chain = |path: &Path| {
            let mut above: Vec<&Path> = path.ancestors().collect();
            above.reverse();
            let sets = above.into_iter().filter_map(|ancestor| self.sets.get(ancestor));
            Arc::new(sets.fold(base.clone(), |policy, set| set.apply(policy)))
        };
        self.resolved = self.sets.keys().map(|path| (path.clone(), chain(path))).collect();
    }
}

/// The policies of all directories, over a base policy for directories without rules.
pub struct PolicyTable {
    base: Arc<Policy>,
    file: Option<PathBuf>,
    any: AtomicBool,
    rules: RwLock<Rules>,
    /// Held while one directory is moved in the global store together with its rules. Taken before `change`.
    moving: Mutex<()>,
    /// Held during one change, from reading the rules to writing the file.
    change: Mutex<()>,
}

impl PolicyTable {
    /// Creates a table without rules that is not kept in a file.
    pub fn new(base: Policy) -> PolicyTable {
        PolicyTable {
            base: Arc::new(base),
            file: None,
            any: AtomicBool::new(false),
            rules: RwLock::default(),
            moving: Mutex::new(()),
            change: Mutex::new(()),
        }
    }

    /// Loads the rules from `file`, which need not exist yet.
    pub fn load(base: Policy, file: impl Into<PathBuf>) -> Result<PolicyTable, PolicyError> {
        let file = file.into();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(PolicyError::Io { step: "read", path: file, source }),
        };
        let sets: BTreeMap<PathBuf, PolicySet> = toml::from_str(&text)
            .map_err(|error| PolicyError::Content { path: file.clone(), reason: error.message().to_owned() })?;
        let sets = sets.into_iter().map(|(path, set)| Ok((inside(&path)?, set))).collect::<Result<_, PolicyError>>()?;
        let table = PolicyTable { file: Some(file), ..PolicyTable::new(base) };
        table.install(sets);
        Ok(table)
    }

    /// Whether no directory has rules, so that the base policy applies everywhere.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Base policy, which applies where no rules are set.
    pub fn base(&self) -> Arc<Policy> {
        self.base.clone()
    }

    /// Returns the policy of a file or directory, by its path relative to the accelerated directory.
    pub fn for_path(&self, path: &Path) -> Arc<Policy> {
        let rules = self.rules.read();
        path.ancestors().find_map(|ancestor| rules.resolved.get(ancestor)).unwrap_or(&self.base).clone()
    }

    /// Returns all policies in use.
    pub fn all(&self) -> Vec<Arc<Policy>> {
        self.rules.read().resolved.values().chain([&self.base]).cloned().collect()
    }

    /// Returns the rules set on a directory itself.
    pub fn get(&self, path: &Path) -> Result<PolicySet, PolicyError> {
        Ok(self.rules.read().sets.get(&inside(path)?).cloned().unwrap_or_default())
    }

    /// Returns all directories with rules.
    pub fn list(&self) -> BTreeMap<PathBuf, PolicySet> {
        self.rules.read().sets.clone()
    }

    /// Adds rules to a directory. They are durable when this returns.
    pub fn set(&self, path: &Path, rules: &PolicySet) -> Result<(), PolicyError> {
        self.edit(path, |set| {
            set.extend(rules);
            Ok(())
        })
    }

    /// Removes keys of a directory, or all if `keys` is empty.
    pub fn unset(&self, path: &Path, keys: &[String]) -> Result<(), PolicyError> {
        self.edit(path, |set| {
            if keys.is_empty() {
                *set = PolicySet::new();
            }
            keys.iter().try_for_each(|key| set.unset(key).map(|_| ()))
        })
    }

    /// Returns a guard, held from before a directory moves until its rules have moved. Another directory that moves
    /// meanwhile, above or below, could take rules along wrongly or leave them behind. `None` if there are no rules.
    pub(crate) fn moving(&self) -> Option<MutexGuard<'_, ()>> {
        (!self.is_empty()).then(|| self.moving.lock())
    }

    /// Moves the rules of a directory that was moved, and of all directories below. Rules of a directory that it
    /// replaced are dropped or, with `exchange`, move the other way. The new rules take effect even if they cannot be
    /// written to the file.
    pub(crate) fn moved(&self, from: &Path, to: &Path, exchange: bool) -> Result<(), PolicyError> {
        let _one = self.change.lock();
        let before = self.list();
        let place = |path: &Path| {
            let into = |old: &Path, new: &Path| path.strip_prefix(old).ok().map(|below| joined(new, below));
            into(from, to).or_else(|| if exchange { into(to, from) } else { None })
        };
        let replaced = |path: &Path| path.starts_with(to) && !path.starts_with(from) && !exchange;
        let kept = before.iter().filter(|(path, _)| !replaced(path));
        let after = kept.map(|(path, set)| (place(path).unwrap_or_else(|| path.clone()), set.clone())).collect();
        if after == before {
            return Ok(());
        }
        let kept = self.keep(&after);
        self.install(after);
        kept
    }

    fn edit(
        &self,
        path: &Path,
        edit: impl FnOnce(&mut PolicySet) -> Result<(), config::KeyError>,
    ) -> Result<(), PolicyError> {
        let path = inside(path)?;
        let _one = self.change.lock();
        let mut sets = self.list();
        let set = sets.entry(path.clone()).or_default();
        edit(set)?;
        if set.is_empty() {
            sets.remove(&path);
        }
        self.keep(&sets)?;
        self.install(sets);
        Ok(())
    }

    fn install(&self, sets: BTreeMap<PathBuf, PolicySet>) {
        let mut rules = self.rules.write();
        self.any.store(!sets.is_empty(), Ordering::Release);
        rules.sets = sets;
        rules.resolve(&self.base);
    }

    fn keep(&self, sets: &BTreeMap<PathBuf, PolicySet>) -> Result<(), PolicyError> {
        let Some(file) = &self.file else { return Ok(()) };
        let named: BTreeMap<&Path, &PolicySet> = sets
            .iter()
            .map(|(path, set)| (if path.as_os_str().is_empty() { Path::new(".") } else { path }, set))
            .collect();
        let text = toml::to_string(&named)
            .map_err(|error| PolicyError::Content { path: file.clone(), reason: error.to_string() })?;
        replace(file, text.as_bytes(), Durability::Synced, 0o600).map_err(|source| PolicyError::Io {
            step: "write",
            path: file.clone(),
            source,
        })
    }
}

/// Joins paths without adding a slash for an empty second one.
fn joined(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_path_buf() } else { path.join(below) }
}

/// Returns a path inside the accelerated directory without `.` components.
pub(crate) fn inside(path: &Path) -> Result<PathBuf, PolicyError> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => clean.push(name),
            _ => return Err(PolicyError::Outside { path: path.to_owned() }),
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use config::Cache;

    use super::*;

    fn rules(items: &[&str]) -> PolicySet {
        PolicySet::parse(items.iter().copied()).unwrap()
    }

    #[test] // S34
    fn a_directory_inherits_and_may_say_otherwise() {
        let table = PolicyTable::new(Policy::default());
        assert!(table.is_empty());
        table.set(Path::new("."), &rules(&["cache=preload", "verify=full"])).unwrap();
        table.set(Path::new("a/b"), &rules(&["cache=through"])).unwrap();
        assert_eq!(table.for_path(Path::new("a/file")).cache, Cache::Preload);
        let inner = table.for_path(Path::new("a/b/c/file"));
        assert_eq!((inner.cache, inner.verify), (Cache::Through, config::Verify::Full));
        assert_eq!(table.for_path(Path::new("a/bc")).cache, Cache::Preload);
    }

    #[test]
    fn rules_are_there_after_a_restart_and_gone_once_unset() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policies.toml");
        let table = PolicyTable::load(Policy::default(), &file).unwrap();
        table.set(Path::new("."), &rules(&["keep_after=2h"])).unwrap();
        table.set(Path::new("deep/er"), &rules(&["cache=through"])).unwrap();
        let again = PolicyTable::load(Policy::default(), &file).unwrap();
        assert_eq!(again.list(), table.list());
        again.unset(Path::new("deep/er"), &["cache".into()]).unwrap();
        again.unset(Path::new("."), &[]).unwrap();
        assert!(PolicyTable::load(Policy::default(), &file).unwrap().is_empty());
    }

    #[test]
    fn a_path_that_leaves_the_directory_is_refused() {
        let table = PolicyTable::new(Policy::default());
        assert!(matches!(table.set(Path::new("../x"), &rules(&[])), Err(PolicyError::Outside { .. })));
        assert!(matches!(table.get(Path::new("/etc")), Err(PolicyError::Outside { .. })));
    }

    #[test] // S34
    fn rules_go_with_a_directory_that_is_moved_and_those_of_what_it_replaced_go() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policies.toml");
        let table = PolicyTable::load(Policy::default(), &file).unwrap();
        for (path, rule) in
            [("a", "verify=full"), ("a/b", "cache=through"), ("ab", "fsync=global"), ("c", "keep_after=2h")]
        {
            table.set(Path::new(path), &rules(&[rule])).unwrap();
        }
        let paths = |table: &PolicyTable| {
            table.list().keys().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        table.moved(Path::new("a"), Path::new("c"), false).unwrap();
        assert_eq!(paths(&table), "ab c c/b");
        assert_eq!(table.for_path(Path::new("c/b/file")).cache, Cache::Through);
        assert_eq!(table.for_path(Path::new("c/file")).verify, config::Verify::Full);
        assert_eq!(table.for_path(Path::new("a/b/file")).cache, Cache::Both);
        table.moved(Path::new("c/b"), Path::new("ab"), true).unwrap();
        assert_eq!(table.for_path(Path::new("ab/file")).cache, Cache::Through);
        assert_eq!(paths(&table), "ab c c/b");
        table.moved(Path::new("none"), Path::new("else"), false).unwrap();
        assert_eq!(PolicyTable::load(Policy::default(), &file).unwrap().list(), table.list());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policies.toml");
        std::fs::write(&file, "[x]\ncahce = \"both\"").unwrap();
        let error = PolicyTable::load(Policy::default(), &file).err().unwrap().to_string();
        assert!(error.contains("policies.toml") && error.contains("cache"), "{error}");
    }
}
