//! Giving up windows that a killed agent left where nobody will see them again, when an administrator says so.

use std::io;
use std::path::{Path, PathBuf};

use agent::OutOfSight;
use file_cache::OpenError;
use types::Shown;

use crate::exit::{self, Failure, say};
use crate::{left, shell};

/// Returns the advice how to give up the windows after an error about what was noted in `noted`. Empty if that would
/// not help.
pub fn words(noted: &Path, error: &io::Error) -> String {
    let Some(gone) = OutOfSight::cause_of(error).filter(|gone| gone.may_be_gone) else { return String::new() };
    let (noted, path) = (shell::word(noted), shell::word(&gone.path));
    format!("; if that is gone for good with what it held: forebay recover {noted} --forget-windows {path}")
}

/// Checks whether the windows in `paths` can be given up. For each, a chosen one of `buffers` must have noted
/// something, or the directory of an agent at a server that is `root`. Refused where another user may have made the
/// contents. Gives up nothing itself.
pub fn may_ask(
    root: &Path,
    buffers: &[PathBuf],
    is_chosen: impl Fn(&Path) -> bool,
    paths: &[PathBuf],
) -> Result<(), Failure> {
    let of_agent = left::is_of_agent(root);
    for (dir, shared) in buffers.iter().map(|buffer| (&**buffer, true)).chain(of_agent.then_some((root, false))) {
        file_cache::check_owner(dir, shared).map_err(|error| not_ours(dir, &error))?;
    }
    let chosen = buffers.iter().map(|buffer| &**buffer).filter(|buffer| is_chosen(buffer));
    let places: Vec<&Path> = chosen.chain(of_agent.then_some(root)).collect();
    // An unreadable note is reported when it is opened.
    let is_known = |path: &PathBuf| places.iter().any(|dir| agent::has_windows_in(dir, path).unwrap_or(true));
    let Some(unknown) = paths.iter().find(|path| !is_known(path)) else { return Ok(()) };
    let asked = if let [one] = places[..] { one } else { root };
    let message = format!("{} knows of no windows in {}", asked.shown(), unknown.shown());
    Err(Failure::new(exit::NO_INPUT, message)
        .remedy(format!("to see where they lay: forebay check {}", shell::word(root))))
}

/// Gives up the windows in `paths`, as noted in a burst buffer or by an agent at a server, and reports each as lost.
/// Gives up nothing if the rest could not be replayed afterwards. The caller holds the lock and has nothing left to
/// refuse.
pub fn windows(noted: &Path, paths: &[PathBuf]) -> Result<(), Failure> {
    let tell = &mut |path: &Path| {
        say!("forebay: {}: given up: what windows held there, if anything, is lost", path.shown());
    };
    agent::forget_windows(noted, paths, tell).map_err(|error| cannot(noted, paths, &error))
}

/// Gives up windows noted in the directory of an agent at a server; the next agent there does the rest.
pub fn windows_at_server(dir: &Path, paths: &[PathBuf]) -> Result<(), Failure> {
    let in_use = || Failure::new(exit::UNAVAILABLE, format!("{} is in use by an agent", dir.shown()));
    let _lock = left::of_dead(dir).map_err(|error| cannot(dir, paths, &error))?.ok_or_else(in_use)?;
    windows(dir, paths)
}

fn cannot(noted: &Path, paths: &[PathBuf], error: &io::Error) -> Failure {
    let named: Vec<String> = paths.iter().map(|path| path.shown().to_string()).collect();
    let failure = Failure::io(format_args!("give up the windows in {}", named.join(", ")), error);
    let Some(gone) = OutOfSight::cause_of(error).filter(|gone| gone.may_be_gone) else { return failure };
    let all = paths.iter().chain([&gone.path]).map(|path| format!(" --forget-windows {}", shell::word(path)));
    failure.remedy(format!(
        "nothing was given up: mend that, or if it is gone for good too: forebay recover {}{}",
        shell::word(noted),
        all.collect::<String>()
    ))
}

fn not_ours(dir: &Path, error: &OpenError) -> Failure {
    let why = match error {
        OpenError::Unsafe { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    let refused = format!("what {} says of windows is not believed: {why}", dir.shown());
    Failure::new(exit::NO_PERMISSION, refused).remedy("do this as the user whose agent it was")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test] // S38
    fn what_an_agent_at_a_server_noted_is_given_up_once_it_is_dead() {
        let tree = tempfile::tempdir().unwrap();
        let (dir, gone) = (tree.path(), PathBuf::from("/gone"));
        let lives = left::begin(dir, "served").unwrap();
        fs::write(dir.join("windows"), "one durable /gone\ntwo durable /gone\nthree other:1 /other\n").unwrap();
        assert_eq!(windows_at_server(dir, std::slice::from_ref(&gone)).unwrap_err().code, exit::UNAVAILABLE);
        drop(lives);
        may_ask(dir, &[], |_| true, std::slice::from_ref(&gone)).unwrap();
        let refused = windows_at_server(dir, &[gone.join("two")]).unwrap_err();
        assert!(refused.remedy.ends_with(" --forget-windows /gone/two --forget-windows /gone/one"), "{refused}");
        windows_at_server(dir, std::slice::from_ref(&gone)).unwrap();
        assert_eq!(fs::read(dir.join("windows")).unwrap(), b"three other:1 /other\n");
        assert_eq!(may_ask(dir, &[], |_| true, std::slice::from_ref(&gone)).unwrap_err().code, exit::NO_INPUT);
    }
}
