//! The preload library: finding it, checking its version, and having a command load it.

mod empty;
mod links;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use types::Shown;
use window::attach::LIBRARY_MARK;

use crate::exit::{reason, say};

const FILE: &str = "libforebay_preload.so";
pub const VARIABLE: &str = "LD_PRELOAD";

#[derive(Debug, PartialEq, Eq)]
pub enum Library {
    Ours(PathBuf),
    /// A library of another version, or another file of that name.
    Other(PathBuf),
    Missing,
}

/// Searches beside the command, where cargo puts the library, and in `../lib/forebay`, where packages do.
pub fn find() -> Library {
    let Ok(command) = std::env::current_exe() else { return Library::Missing };
    let beside = command.parent().unwrap_or(Path::new("/"));
    [beside.join(FILE), beside.join("../lib/forebay").join(FILE)].into_iter().find_map(look).unwrap_or(Library::Missing)
}

/// Returns whether [`load`] will find a library of this version.
pub fn is_there() -> bool {
    match find() {
        Library::Ours(_) => true,
        Library::Other(path) => {
            tell_other(&path);
            false
        }
        Library::Missing => false,
    }
}

fn look(path: PathBuf) -> Option<Library> {
    let path = path.canonicalize().ok()?;
    match std::fs::read(&path) {
        Ok(bytes) if contains(&bytes, LIBRARY_MARK.as_bytes()) => Some(Library::Ours(path)),
        Ok(_) => Some(Library::Other(path)),
        Err(error) => {
            tracing::warn!(path = %path.shown(), reason = reason(&error), "the preload library cannot be read");
            None
        }
    }
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    // SAFETY: both slices live through the call, which reads as many bytes as they have.
    !unsafe { libc::memmem(bytes.as_ptr().cast(), bytes.len(), mark.as_ptr().cast(), mark.len()) }.is_null()
}

/// Returns the name by which programs load `library`: through links in `dir`, where windows lie, or the library's
/// path if links cannot be made. `None`: no such name can stand in the variable.
pub fn name_for_programs(library: &Path, dir: &Path) -> Option<PathBuf> {
    let links = agent::provide_for_windows(dir).and_then(|_| links::provide(library, dir));
    links.ok().or_else(|| links::is_plain(library.as_os_str()).then(|| library.to_owned()))
}

/// Makes the command that this process becomes load the library, before the libraries that it loads already. Windows
/// lie in `dir`. Without a library the command still runs, through the kernel.
pub fn load(dir: &Path, quiet: bool) {
    match find() {
        Library::Ours(path) => {
            let Some(name) = name_for_programs(&path, dir) else {
                say!("forebay: {VARIABLE} cannot name {}: writes go through the kernel", path.shown());
                return;
            };
            let value = before(&name, std::env::var_os(VARIABLE).as_deref());
            // SAFETY: called while this process has one thread.
            unsafe { std::env::set_var(VARIABLE, value) };
        }
        Library::Other(path) => tell_other(&path),
        Library::Missing if quiet => {}
        Library::Missing => say!("forebay: there is no {FILE} beside this command: writes go through the kernel"),
    }
}

fn tell_other(path: &Path) {
    say!("forebay: {} is not of this version: the command runs without it, through the kernel", path.shown());
}

fn before(library: &Path, loaded: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(loaded) = loaded.filter(|loaded| !loaded.is_empty()) {
        value.push(":");
        value.push(loaded);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays() {
        let ours = Path::new("/lib/ours.so");
        assert_eq!(before(ours, None), "/lib/ours.so");
        assert_eq!(before(ours, Some(OsStr::new(""))), "/lib/ours.so");
        assert_eq!(before(ours, Some(OsStr::new("a.so b.so"))), "/lib/ours.so:a.so b.so");
    }

    #[test]
    fn a_library_of_another_version_is_told_from_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(look(path.clone()), None);
        std::fs::write(&path, b"forebay preload library 0.0.0, windows 0;").unwrap();
        assert_eq!(look(path.clone()), Some(Library::Other(path.canonicalize().unwrap())));
        std::fs::write(&path, format!("before {LIBRARY_MARK} after")).unwrap();
        assert_eq!(look(path.clone()), Some(Library::Ours(path.canonicalize().unwrap())));
    }
}
