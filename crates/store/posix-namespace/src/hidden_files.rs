//! Hidden files that nobody will finish: what a delegated tree left behind whose burst buffer is lost.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use global_store::calls::{Store, StoreCall};
use global_store::hidden::is_hidden;
use namespace::Caller;
use rustix::fs::{self, AtFlags, Mode, OFlags};

use crate::PosixNamespace;
use crate::impersonator::Judge;

impl PosixNamespace {
    /// Runs a removal of a directory. If it is refused because of hidden files, removes these as the caller, and tries
    /// again.
    pub(crate) fn emptying(
        &self,
        caller: &Caller,
        (parent, name): (BorrowedFd<'_>, &OsStr),
        run: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let is_full = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST));
        let clear = || clear_hidden(self.store.calls(), parent, name);
        match run() {
            Err(error) if is_full(&error) && self.impersonator.act(caller, Judge::Groups, clear).unwrap_or(false) => {
                run()
            }
            other => other,
        }
    }
}

/// Removes hidden files from a directory that contains nothing else. Returns whether there were any. Programs do not see these files, so the directory must be removable as
/// if it were empty.
fn clear_hidden(calls: Store, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let (directory, left) = calls.call(StoreCall::List, || -> io::Result<_> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::openat(parent, name, flags, Mode::empty())?;
        let mut left = Vec::new();
        for entry in fs::Dir::read_from(&directory)? {
            let entry = entry?;
            match OsStr::from_bytes(entry.file_name().to_bytes()) {
                name if name == "." || name == ".." => {}
                name if is_hidden(name) => left.push(name.to_os_string()),
                _ => return Ok((directory, Vec::new())),
            }
        }
        Ok((directory, left))
    })?;
    let remove = |name: &OsString| fs::unlinkat(&directory, name.as_os_str(), AtFlags::empty());
    left.iter().try_for_each(|name| calls.change(StoreCall::Remove, || remove(name)))?;
    Ok(!left.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use global_store::calls::RequestId;
    use global_store::hidden;
    use global_store::posix::{PosixStore, StoreOptions};

    use super::*;

    #[test]
    fn what_nobody_sees_is_removed_for_who_still_waits_and_where_there_is_nothing_else() {
        let tree = tempfile::tempdir().unwrap();
        let root = fs::open(tree.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let calls = PosixStore::new(root.try_clone().unwrap(), StoreOptions::default()).unwrap().calls();
        let directory = tree.path().join("directory");
        let hidden = directory.join(hidden::name("agent", 1));
        std::fs::create_dir(&directory).unwrap();
        let clear = || clear_hidden(calls, root.as_fd(), "directory".as_ref());
        assert!(!clear().unwrap());
        std::fs::write(&hidden, "").unwrap();
        let request = RequestId { asker: Store::mint(), number: 2 };
        request.begin();
        request.give_up();
        assert_eq!(clear().unwrap_err().raw_os_error(), Some(libc::EIO));
        RequestId::end();
        assert!(hidden.exists());
        std::fs::write(directory.join("other"), "").unwrap();
        assert!(!clear().unwrap() && hidden.exists());
        std::fs::remove_file(directory.join("other")).unwrap();
        assert!(clear().unwrap() && !hidden.exists());
    }
}
