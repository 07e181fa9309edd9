//! Windows that a killed agent left where they are not visible from here, and giving them up.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use types::Shown;

use crate::session::AgentRun;

/// A session that may exist elsewhere. Nothing is served on its burst buffer until it is visible or given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfSight {
    pub path: PathBuf,
    /// Whether the session's medium may be gone for good. If so, only [`forget_windows`] helps.
    pub may_be_gone: bool,
    why: &'static str,
}

impl OutOfSight {
    pub(crate) fn of(session: &AgentRun, why: &'static str, may_be_gone: bool) -> OutOfSight {
        OutOfSight { path: session.path(), may_be_gone, why }
    }

    /// Returns the session that an error of this crate is about.
    pub fn cause_of(error: &io::Error) -> Option<&OutOfSight> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for OutOfSight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.shown(), self.why)
    }
}

impl Error for OutOfSight {}

impl From<OutOfSight> for io::Error {
    fn from(out_of_sight: OutOfSight) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, out_of_sight)
    }
}

/// Whether killed agents left windows in `path`, according to the list in `noted`. `path` is a session's directory or
/// its parent. `noted` is the burst buffer of the sessions, or the directory of an agent at a server. Errors: those of
/// reading the list.
pub fn has_windows_in(noted: &Path, path: &Path) -> io::Result<bool> {
    Ok(AgentRun::unfinished(noted)?.iter().any(|one| one.is_in(path)))
}

/// Gives up sessions of killed agents in `paths`, with their records. `paths` are directories of sessions or their
/// parents. Given up are those that are not visible from here and [may be gone](OutOfSight::may_be_gone): all of them,
/// or none if the next start still could not replay the rest. `tell` is called with the directory of each session after
/// it is given up, even if the next one fails.
///
/// `noted` is the burst buffer of the sessions, or the directory of an agent at a server. The caller ensures that
/// nobody else uses it meanwhile.
///
/// Errors: that of another session which is not visible or cannot be examined; `InvalidInput` if no session in `paths`
/// needs to be given up; those of reading and writing the list.
pub fn forget_windows(noted: &Path, paths: &[PathBuf], tell: &mut dyn FnMut(&Path)) -> io::Result<()> {
    let sessions = AgentRun::unfinished(noted)?;
    let is_named = |session: &AgentRun| paths.iter().any(|path| session.is_in(path));
    if !sessions.iter().any(is_named) {
        return Ok(());
    }
    let (mut gone, mut not_gone, mut in_the_way) = (Vec::new(), None, None);
    for session in &sessions {
        let named = is_named(session);
        let seen = match session.is_whole() {
            Err(error) if named && OutOfSight::cause_of(&error).is_some_and(|gone| gone.may_be_gone) => {
                gone.push(session);
                continue;
            }
            Err(error) => {
                in_the_way = Some(error);
                continue;
            }
            Ok(true) => "is there, and what it holds is replayed without this",
            Ok(false) => "is known to be gone, and is in nobody's way",
        };
        not_gone = not_gone.or_else(|| named.then(|| format!("{} {seen}", session.path().shown())));
    }
    let not_gone = not_gone.filter(|_| gone.is_empty()).map(|why| io::Error::new(io::ErrorKind::InvalidInput, why));
    if let Some(error) = not_gone.or(in_the_way) {
        return Err(error);
    }
    for session in gone {
        session.forget(noted)?;
        tracing::error!(
            dir = %session.path().shown(),
            "gave up windows that are not visible from here: their records are lost"
        );
        tell(&session.path());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::own_tmpfs::OWN_TMPFS;

    fn forget(noted: &Path, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut told = Vec::new();
        forget_windows(noted, &[path.to_owned()], &mut |path| told.push(path.to_owned())).map(|()| told)
    }

    #[test] // S38
    fn what_is_given_up_is_told_whatever_becomes_of_the_next() {
        let tree = tempfile::tempdir().unwrap();
        let noted = tree.path();
        fs::write(noted.join("windows"), "one durable /gone\ntwo durable /gone\n").unwrap();
        let mut told = Vec::new();
        let failed = forget_windows(noted, &[PathBuf::from("/gone")], &mut |path| {
            told.push(path.to_owned());
            fs::create_dir(noted.join("windows.new")).unwrap();
        });
        assert!(failed.is_err());
        assert_eq!(told, [Path::new("/gone/one")]);
        assert_eq!(fs::read(noted.join("windows")).unwrap(), b"two durable /gone\n");
    }

    #[test] // S38
    fn nothing_is_given_up_while_what_nobody_named_is_in_the_way_of_the_rest() {
        let tree = tempfile::tempdir().unwrap();
        let noted = tree.path();
        let lines = "one durable /gone\ntwo durable /other\n";
        fs::write(noted.join("windows"), lines).unwrap();
        for (named, other) in [("/gone", "/other/two"), ("/other", "/gone/one")] {
            let refused = forget(noted, Path::new(named)).unwrap_err();
            assert_eq!(OutOfSight::cause_of(&refused).unwrap().path, Path::new(other));
            assert_eq!(fs::read_to_string(noted.join("windows")).unwrap(), lines);
        }
        forget_windows(noted, &["/gone".into(), "/other/two".into()], &mut |_| {}).unwrap();
        assert_eq!(fs::read(noted.join("windows")).unwrap(), b"");
    }

    #[test] // S38
    fn only_what_is_out_of_sight_and_may_be_gone_is_given_up() {
        let tree = tempfile::tempdir().unwrap();
        let (noted, rings) = (tree.path(), tree.path().join("rings"));
        let (there, _) = AgentRun::begin(&rings, "there", noted, None).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let (boot, dir) = (boot.trim(), rings.display());
        let sessions = || fs::read_to_string(noted.join("windows")).unwrap().lines().count();
        let note = |lines: &str| {
            fs::write(noted.join("windows"), fs::read_to_string(noted.join("windows")).unwrap() + lines).unwrap();
        };
        note(&format!("elsewhere {boot}:1 {dir}\nwiped {boot} {dir}\ncrashed other:1 {dir}\n"));
        for kept in [there.path(), rings.join("wiped"), rings.join("crashed")] {
            let refused = forget(noted, &kept).unwrap_err();
            assert!(refused.kind() == io::ErrorKind::InvalidInput, "{refused}");
        }
        assert_eq!(forget(noted, Path::new("/elsewhere")).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(sessions(), 4);
        assert_eq!(forget(noted, &rings).unwrap(), [rings.join("elsewhere")]);
        assert_eq!(sessions(), 3);
        note(&format!("ours {boot}:1 {OWN_TMPFS}\n"));
        if !crate::own_tmpfs::sees_mounts_of_the_machine() {
            let refused = forget(noted, Path::new(OWN_TMPFS)).unwrap_err();
            assert!(OutOfSight::cause_of(&refused).is_some_and(|seen| !seen.may_be_gone), "{refused}");
        }
    }
}
