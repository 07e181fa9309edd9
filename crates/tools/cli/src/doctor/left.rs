//! Checks for windows that killed agents have left.

use std::path::{Path, PathBuf};

use agent::own_tmpfs::OWN_TMPFS;
use agent::{LeftWindows, left_windows};
use types::Shown;

use super::Check;
use crate::exit::reason;
use crate::ring_memory::SHARED;

const NAMED_MAX: usize = 4;

/// Checks the directories in which windows lie by default, and the `named` one.
pub fn checks(named: Option<&Path>) -> Vec<Check> {
    let mut dirs: Vec<PathBuf> = [OWN_TMPFS, SHARED].map(PathBuf::from).into();
    dirs.extend(named.map(Path::to_owned));
    let mut real: Vec<PathBuf> = dirs.iter().filter_map(|dir| dir.canonicalize().ok()).collect();
    real.sort();
    real.dedup();
    let of = |dir: &PathBuf| match left_windows(dir) {
        Ok(left) => {
            let (aside, rings): (Vec<_>, Vec<_>) = left.into_iter().partition(|left| left.set_aside);
            [check_rings(&rings), check_aside(&aside)].into_iter().flatten().collect()
        }
        Err(error) => {
            vec![Check::limited("left windows", format!("cannot read {}: {}", dir.shown(), reason(&error)), "")]
        }
    };
    let found: Vec<Check> = real.iter().flat_map(of).collect();
    if found.is_empty() { vec![Check::ok("left windows", "none of killed agents")] } else { found }
}

fn check_rings(left: &[LeftWindows]) -> Option<Check> {
    let found = format!("killed agents left acknowledged writes there: {}", listed(left)?);
    let remedy = "the next agent for the same directory brings them to its burst buffer before it serves, or now: forebay recover";
    Some(Check::limited("left windows", found, remedy))
}

fn check_aside(left: &[LeftWindows]) -> Option<Check> {
    let found = format!("kept for you, as it could not be recovered: {}", listed(left)?);
    Some(Check::limited(
        "damaged windows",
        found,
        "agent.log of the burst buffer says why; remove it when you need it no more",
    ))
}

/// Describes leftovers and their contents. Returns `None` if there are none.
fn listed(left: &[LeftWindows]) -> Option<String> {
    if left.is_empty() {
        return None;
    }
    let one = |left: &LeftWindows| {
        let files = left.files.iter().take(NAMED_MAX).map(|file| file.shown().to_string());
        let files =
            files.chain((left.files.len() > NAMED_MAX).then(|| format!("{} more", left.files.len() - NAMED_MAX)));
        let files: Vec<String> = files.collect();
        let of = if files.is_empty() { String::new() } else { format!(" of {}", files.join(", ")) };
        format!("{} ({}{of})", left.path.shown(), config::format_size(left.bytes))
    };
    let mut all: Vec<String> = left.iter().take(NAMED_MAX).map(one).collect();
    if left.len() > NAMED_MAX {
        let bytes = left[NAMED_MAX..].iter().map(|left| left.bytes).sum();
        all.push(format!("and {} more ({})", left.len() - NAMED_MAX, config::format_size(bytes)));
    }
    Some(all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_named_up_to_a_bound() {
        assert!(check_rings(&[]).is_none() && check_aside(&[]).is_none());
        let one = |number: usize| LeftWindows {
            path: format!("/w/{number}").into(),
            bytes: 1 << 20,
            files: (0..number).map(|file| format!("f{file}").into()).collect(),
            set_aside: false,
        };
        assert_eq!(listed(&[one(2)]).unwrap(), "/w/2 (1MiB of f0, f1)");
        assert_eq!(listed(&[one(0), one(6)]).unwrap(), "/w/0 (1MiB); /w/6 (1MiB of f0, f1, f2, f3, 2 more)");
        let many: Vec<_> = (1..8).map(|_| one(1)).collect();
        assert!(listed(&many).unwrap().ends_with("; and 3 more (3MiB)"));
    }
}
