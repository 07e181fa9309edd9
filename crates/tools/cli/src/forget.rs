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
    let mut given_up = 0;
    let mut forget = |noted: &Path| {
        let tell = &mut |path: &Path| {
            given_up += 1;
            say!("forebay: {}: given up: what windows held there, if anything, is lost", path.display());
        };
        agent::forget_windows(noted, path, tell).map_err(failed)
    };
    // What is wrong with one of them keeps no other from being given up.
    let mut wrong = Vec::new();
    for buffer in buffers {
        wrong.extend(check::lock(&buffer).and_then(|_lock| forget(&buffer)).err());
    }
    if of_agent {
        let in_use = || Failure::new(exit::UNAVAILABLE, format!("{} is in use by an agent", root.display()));
        let lock = left::of_dead(root).map_err(failed).and_then(|lock| lock.ok_or_else(in_use));
        wrong.extend(lock.and_then(|_lock| forget(root)).err());
    }
    if let Some(first) = wrong.into_iter().next() {
        return Err(first);
    }
    if given_up == 0 {
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
    fn windows_that_are_there_in_one_burst_buffer_keep_none_of_another_from_being_given_up() {
        let tree = tempfile::tempdir().unwrap();
        let (root, rings) = (tree.path().join("root"), tree.path().join("rings"));
        fs::create_dir_all(rings.join("there")).unwrap();
        for (buffer, session) in [("one", "there"), ("two", "gone")] {
            let buffer = root.join(buffer);
            fs::create_dir_all(&buffer).unwrap();
            fs::write(buffer.join(place::MARKER), "{}").unwrap();
            fs::write(buffer.join("windows"), format!("{session} durable {}\n", rings.display())).unwrap();
        }
        let refused = windows(&root, &rings).unwrap_err();
        assert!(refused.message.contains("is there, and what it holds is replayed without this"), "{refused}");
        let noted = ["one", "two"].map(|buffer| fs::read(root.join(buffer).join("windows")).unwrap().len());
        assert!(noted[0] > 0 && noted[1] == 0, "{noted:?}");
    }

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
