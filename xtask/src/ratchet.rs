//! Checks that the tree does not pass yet: the number of findings may fall, never rise.
//!
//! `tidy.toml` says how many findings each check allows today. A check without an entry allows none.

use crate::report::Report;
use crate::sources::Sources;

pub const FILE: &str = "tidy.toml";

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The broken rule, with the number that breaks it.
    pub what: String,
}

/// Result of one check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Counted against the bound.
    pub list: Vec<Finding>,
    /// Lines that only `--list` prints.
    pub notes: Vec<String>,
}

impl Findings {
    pub fn add(&mut self, path: &str, line: usize, what: impl Into<String>) {
        self.list.push(Finding { path: path.to_owned(), line, what: what.into() });
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// A check: a pure function of the repository's text.
pub type Count = fn(&Sources) -> Findings;

/// Compares the number of findings with the bound. Returns whether the check passes, and the words for its line.
pub fn judge(sources: &Sources, name: &str, found: usize) -> (bool, String) {
    let allowed = allowed(sources, name);
    if found > allowed {
        (false, format!("{found} found, {allowed} allowed; see `cargo xtask tidy --list {name}`"))
    } else if found < allowed {
        (true, format!("{found} found, {allowed} allowed; lower the bound in {FILE} to {found}"))
    } else {
        (true, format!("{found} found, {allowed} allowed"))
    }
}

/// Checks that each bound is a number and belongs to one of the checks `names`.
pub fn check_bounds(sources: &Sources, names: &[&str]) -> Report {
    let mut report = Report::default();
    let table = sources.toml(FILE);
    for (name, bound) in table.get("allowed").and_then(toml::Value::as_table).into_iter().flatten() {
        if !names.contains(&name.as_str()) {
            report.error(format!("{FILE}: there is no check `{name}`"));
        }
        if bound.as_integer().is_none_or(|bound| bound < 0) {
            report.error(format!("{FILE}: the bound of `{name}` is no number"));
        }
    }
    report
}

fn allowed(sources: &Sources, name: &str) -> usize {
    let table = sources.toml(FILE);
    let bound = table.get("allowed").and_then(|bounds| bounds.get(name)?.as_integer());
    bound.and_then(|bound| bound.try_into().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(found: usize) -> (bool, String) {
        judge(&Sources::of(&[(FILE, "[allowed]\na = 2\n")]), "a", found)
    }

    #[test]
    fn more_findings_than_allowed_fail() {
        let (passes, words) = judged(3);
        assert!(!passes && words.contains("--list a"));
    }

    #[test]
    fn fewer_findings_than_allowed_ask_for_a_lower_bound() {
        let (passes, words) = judged(1);
        assert!(passes && words.ends_with("to 1"));
        assert_eq!(judged(2), (true, "2 found, 2 allowed".to_owned()));
    }

    #[test]
    fn a_check_without_a_bound_allows_nothing() {
        assert!(judge(&Sources::of(&[]), "a", 0).0);
        assert!(!judge(&Sources::of(&[]), "a", 1).0);
    }

    #[test]
    fn a_bound_belongs_to_a_check_and_is_a_number() {
        let errors = |text: &str| check_bounds(&Sources::of(&[(FILE, text)]), &["a"]).errors().len();
        assert_eq!(errors("[allowed]\na = 2\n"), 0);
        assert_eq!(errors("[allowed]\nb = 2\n"), 1);
        assert_eq!(errors("[allowed]\na = -2\n"), 1);
    }
}
