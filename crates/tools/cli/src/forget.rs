//! Windows that a killed agent left where nobody will see them again: given up when an administrator says so.

use std::io;
use std::path::Path;

use agent::OutOfSight;
use file_cache::OpenError;

use crate::commands::check;
use crate::exit::{self, Failure, say};
use crate::{left, place, shell};

/// After an error about what was noted in `noted`: how it can be given up. Empty if that would help nobody.
pub fn words(noted: &Path, error: &io::Error) -> String {
    let Some(gone) = OutOfSight::behind(error).filter(|gone| gone.may_be_gone) else { return String::new() };
    let (noted, path) = (shell::word(noted), shell::word(&gone.path));
    format!("; if that is gone for good with what it held: forebay recover {noted} --forget-windows {path}")
}

/// Gives up what lay in `path`, as noted in the burst buffers of `root`, or by an agent at a server whose directory that is, and
/// tells it as lost. Refused where another user may have made what lies there.
pub fn windows(root: &Path, path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io(format_args!("give up the windows in {}", path.display()), &error);
    let (buffers, of_agent) = (place::formatted(root), left::is_of_agent(root));
    for (dir, shared) in buffers.iter().map(|buffer| (&**buffer, true)).chain(of_agent.then_some((root, false))) {
        file_cache::check_owner(dir, shared).map_err(|error| not_ours(dir, &error))?;
    }
    let mut given_up = Vec::new();
    for buffer in buffers {
        let _lock = check::lock(&buffer)?;
        given_up.extend(agent::forget_windows(&buffer, path).map_err(failed)?);
    }
    if of_agent {
        let in_use = || Failure::new(exit::UNAVAILABLE, format!("{} is in use by an agent", root.display()));
        let _lock = left::of_dead(root).map_err(failed)?.ok_or_else(in_use)?;
        given_up.extend(agent::forget_windows(root, path).map_err(failed)?);
    }
    for path in &given_up {
        say!("forebay: {}: given up: what windows held there, if anything, is lost", path.display());
    }
    if given_up.is_empty() {
        let message = format!("{} knows of no windows in {}", root.display(), path.display());
        return Err(Failure::new(exit::NO_INPUT, message)
            .remedy(format!("to see where they lay: forebay check {}", shell::word(root))));
    }
    Ok(())
}

fn not_ours(dir: &Path, error: &OpenError) -> Failure {
    let why = match error {
        OpenError::Unsafe { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    let refused = format!("what {} says of windows is not believed: {why}", dir.display());
    Failure::new(exit::NO_PERMISSION, refused).remedy("do this as the user whose agent it was")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_an_agent_at_a_server_noted_is_given_up_once_it_is_dead() {
        let tree = tempfile::tempdir().unwrap();
        let (dir, gone) = (tree.path(), Path::new("/gone"));
        let lives = left::begin(dir, "served").unwrap();
        fs::write(dir.join("windows"), "one durable /gone\ntwo durable /gone\nthree durable /other\n").unwrap();
        assert_eq!(windows(dir, gone).unwrap_err().code, exit::UNAVAILABLE);
        drop(lives);
        windows(dir, &gone.join("two")).unwrap();
        assert_eq!(fs::read(dir.join("windows")).unwrap(), b"one durable /gone\nthree durable /other\n");
        windows(dir, gone).unwrap();
        assert_eq!(fs::read(dir.join("windows")).unwrap(), b"three durable /other\n");
        assert_eq!(windows(dir, gone).unwrap_err().code, exit::NO_INPUT);
    }
}
