//! Windows that a killed agent left where nobody will see them again: given up when an administrator says so.

use std::io;
use std::path::{Path, PathBuf};

use agent::OutOfSight;
use file_cache::OpenError;

use crate::exit::{self, Failure, say};
use crate::{left, shell};

/// After an error about what was noted in `noted`: how it can be given up. Empty if that would help nobody.
pub fn words(noted: &Path, error: &io::Error) -> String {
    let Some(gone) = OutOfSight::behind(error).filter(|gone| gone.may_be_gone) else { return String::new() };
    let (noted, path) = (shell::word(noted), shell::word(&gone.path));
    format!("; if that is gone for good with what it held: forebay recover {noted} --forget-windows {path}")
}

/// Whether what lay in `path` can be asked to be given up: one of `buffers` notes it, or the directory of an agent at a server that
/// `root` is. Refused where another user may have made what lies there. Nothing is given up here.
pub fn may_ask(root: &Path, buffers: &[PathBuf], path: &Path) -> Result<(), Failure> {
    let of_agent = left::is_of_agent(root).then_some((root, false));
    let places: Vec<(&Path, bool)> = buffers.iter().map(|buffer| (&**buffer, true)).chain(of_agent).collect();
    for &(dir, shared) in &places {
        file_cache::check_owner(dir, shared).map_err(|error| not_ours(dir, &error))?;
    }
    // What cannot be read is told by who opens it.
    if places.iter().any(|(dir, _)| agent::has_windows_in(dir, path).unwrap_or(true)) {
        return Ok(());
    }
    let message = format!("{} knows of no windows in {}", root.display(), path.display());
    Err(Failure::new(exit::NO_INPUT, message)
        .remedy(format!("to see where they lay: forebay check {}", shell::word(root))))
}

/// Gives up what lay in `path`, as noted in a burst buffer or by an agent at a server, and tells each as lost. For who holds its lock
/// and has nothing left to refuse.
pub fn windows(noted: &Path, path: &Path) -> Result<(), Failure> {
    let tell = &mut |path: &Path| {
        say!("forebay: {}: given up: what windows held there, if anything, is lost", path.display());
    };
    agent::forget_windows(noted, path, tell).map_err(|error| cannot(path, &error))
}

/// The same for the directory of an agent at a server, whose next one does the rest.
pub fn windows_at_server(dir: &Path, path: &Path) -> Result<(), Failure> {
    let in_use = || Failure::new(exit::UNAVAILABLE, format!("{} is in use by an agent", dir.display()));
    let _lock = left::of_dead(dir).map_err(|error| cannot(path, &error))?.ok_or_else(in_use)?;
    windows(dir, path)
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::io(format_args!("give up the windows in {}", path.display()), error)
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
        assert_eq!(windows_at_server(dir, gone).unwrap_err().code, exit::UNAVAILABLE);
        drop(lives);
        may_ask(dir, &[], gone).unwrap();
        windows_at_server(dir, &gone.join("two")).unwrap();
        assert_eq!(fs::read(dir.join("windows")).unwrap(), b"one durable /gone\nthree durable /other\n");
        windows_at_server(dir, gone).unwrap();
        assert_eq!(fs::read(dir.join("windows")).unwrap(), b"three durable /other\n");
        assert_eq!(may_ask(dir, &[], gone).unwrap_err().code, exit::NO_INPUT);
    }
}
