//! Judges what a crash left: every acknowledged step, nothing older, and of the one unknown step all, nothing, or -
//! for data - some of its bytes.

use std::collections::BTreeMap;
use std::path::Path;

use crate::ledger::Reading;
use crate::story::{NAMES, Step, Story};

/// Returns the first steps of a story.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut story = Story::new(seed);
    let mut steps = Vec::new();
    for _ in 0..count {
        let step = story.next();
        story.model.apply(&step);
        steps.push(step);
    }
    steps
}

/// Prints the last steps, which concern a failure most.
pub fn print(steps: &[Step]) -> String {
    let from = steps.len().saturating_sub(60);
    let lines = steps[from..].iter().enumerate().map(|(at, step)| format!("  {}: {step:?}\n", from + at));
    lines.collect()
}

/// Compares a program's directory with its ledger.
pub fn judge(dir: &Path, seed: u64, ledger: Reading) -> Result<(), String> {
    let mut story = Story::new(seed);
    for _ in 0..ledger.acknowledged {
        let step = story.next();
        story.model.apply(&step);
    }
    let found = read(dir)?;
    let before = story.model.clone();
    let Err(why) = compare(&found, &before.tree(), None) else { return Ok(()) };
    if !ledger.unknown {
        return Err(why);
    }
    let unknown = story.next();
    story.model.apply(&unknown);
    let data = matches!(unknown, Step::Pwrite { .. } | Step::Store { .. } | Step::Punch { .. });
    let old = before.tree();
    compare(&found, &story.model.tree(), data.then_some(&old))
        .map_err(|after| format!("{why}; with the unknown step {unknown:?}: {after}"))
}

type Tree<'a> = BTreeMap<String, &'a Vec<u8>>;

/// `old`: bytes may also be those of this tree, and a file as short as there.
fn compare(found: &BTreeMap<String, Vec<u8>>, wanted: &Tree<'_>, old: Option<&Tree<'_>>) -> Result<(), String> {
    if !found.keys().eq(wanted.keys()) {
        return Err(format!("names {:?}, wanted {:?}", found.keys(), wanted.keys()));
    }
    for (name, content) in found {
        let wanted = wanted[name];
        if content == wanted {
            continue;
        }
        let mixed = old.and_then(|old| old.get(name)).is_some_and(|old| is_mix(content, old, wanted));
        if !mixed {
            return Err(format!("{name}: {}", difference(content, wanted)));
        }
    }
    Ok(())
}

/// Each byte is the old or the new one, the size between both; a byte past the old end that was not written is zero.
fn is_mix(content: &[u8], old: &[u8], new: &[u8]) -> bool {
    let sized = content.len() >= old.len().min(new.len()) && content.len() <= old.len().max(new.len());
    sized
        && content
            .iter()
            .enumerate()
            .all(|(at, byte)| Some(byte) == new.get(at) || *byte == old.get(at).copied().unwrap_or(0))
}

/// Describes where two contents differ.
pub fn difference(found: &[u8], wanted: &[u8]) -> String {
    let at = found.iter().zip(wanted).position(|(a, b)| a != b);
    let sizes = format!("{} bytes, wanted {}", found.len(), wanted.len());
    match at {
        Some(at) => {
            let count = found.iter().zip(wanted).filter(|(a, b)| a != b).count();
            let around = |bytes: &[u8]| format!("{:02x?}", &bytes[at..bytes.len().min(at + 8)]);
            format!("{sizes}; from byte {at} {}, wanted {}; {count} differ", around(found), around(wanted))
        }
        None => sizes,
    }
}

fn read(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut found = BTreeMap::new();
    for name in NAMES {
        match std::fs::read(dir.join(name)) {
            Ok(content) => drop(found.insert(name.to_owned(), content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("read {name}: {error}")),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S16
    fn a_mix_has_only_old_and_new_bytes() {
        assert!(is_mix(b"aBc", b"abc", b"ABC"));
        assert!(is_mix(b"aB", b"a", b"ABC"));
        assert!(is_mix(b"a\0C", b"a", b"ABC"));
        assert!(!is_mix(b"axc", b"abc", b"ABC"));
        assert!(!is_mix(b"", b"a", b"ABC"));
        assert!(!is_mix(b"aBCd", b"a", b"ABC"));
    }
}
