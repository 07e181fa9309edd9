//! Marks of delegated directories, which agents respect whatever their mount namespace or burst buffer.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::time::Duration;

use concurrency::{Instant, Mutex};
use data_store::is_interrupted;
use namespace::{Caller, FileAttributes, Inode, Namespace};
use types::{HasErrno, Step, Timestamp, reported};

use crate::limits;

/// Extended attribute of a delegated directory, which says whose it is.
pub(crate) const MARK: &CStr = c"user.forebay.delegated";
/// Extended attribute of a delegated directory, which says how many names wait for it elsewhere.
pub(crate) const WAITING: &CStr = c"user.forebay.waiting";
/// Reason of what cannot be brought to a directory that has lost the mark.
pub const NOT_OURS: &str = "the directory is not marked as ours any more";
/// `XATTR_CREATE`: nobody else has set the mark.
const CREATE: u32 = 1;

/// Sets the mark of a directory. `EEXIST` if it has one.
pub fn set(namespace: &dyn Namespace, directory: &Inode, value: &str) -> io::Result<()> {
    let set = namespace.set_xattr(&Caller::own(), directory, MARK, value.as_bytes(), CREATE);
    set.step("mark a delegated directory")
}

/// Sets the mark of a directory that may have it. Errors: `EEXIST` with the holder if the mark is another's.
pub fn set_again(namespace: &dyn Namespace, directory: &Inode, value: &str) -> io::Result<()> {
    match get(namespace, directory)? {
        Some(mark) if mark == value => Ok(()),
        Some(mark) => Err(reported(libc::EEXIST, &format!("the directory is delegated to {mark}"))),
        None => set(namespace, directory, value),
    }
}

/// Removes the mark of a directory.
pub fn remove(namespace: &dyn Namespace, directory: &Inode) -> io::Result<()> {
    remove_attribute(namespace, directory, MARK).step("remove the mark of a delegated directory")
}

/// Notes at a directory how many names wait for it.
pub fn note_waiting(namespace: &dyn Namespace, directory: &Inode, names: u64) -> io::Result<()> {
    match names {
        0 => remove_attribute(namespace, directory, WAITING),
        _ => namespace.set_xattr(&Caller::own(), directory, WAITING, names.to_string().as_bytes(), 0),
    }
}

fn remove_attribute(namespace: &dyn Namespace, directory: &Inode, name: &CStr) -> io::Result<()> {
    match namespace.remove_xattr(&Caller::own(), directory, name) {
        Err(error) if error.errno() == Some(libc::ENODATA) => Ok(()),
        done => done,
    }
}

/// Returns the mark of a directory; `None` if it has none.
pub fn get(namespace: &dyn Namespace, directory: &Inode) -> io::Result<Option<String>> {
    match namespace.xattr(directory, MARK) {
        Err(error) if matches!(error.errno(), Some(libc::ENODATA | libc::EOPNOTSUPP)) => Ok(None),
        found => Ok(Some(String::from_utf8_lossy(&found?).into_owned())),
    }
}

/// Directories that were found without a mark, by inode number, with the change time that they had. A mark changes it.
#[derive(Default)]
pub struct UnmarkedDirectories(Mutex<HashMap<u64, Timestamp>>);

impl UnmarkedDirectories {
    /// Waits until a directory that was found below has no mark of another agent than `own`. Its holder is asked for it by `recall`
    /// now and then. Errors: `ETIMEDOUT` with the holder's name after `most`; `EINTR` if the caller is interrupted.
    pub fn check(
        &self,
        namespace: &dyn Namespace,
        (directory, found): (&Inode, &FileAttributes),
        (own, recall): (&str, &dyn Fn(&str)),
        most: Duration,
    ) -> io::Result<()> {
        if self.0.lock().get(&found.ino) == Some(&found.ctime) {
            return Ok(());
        }
        let (start, mut asked) = (Instant::now(), None::<Instant>);
        while let Some(mark) = get(namespace, directory)? {
            // A tree that is being given back.
            if mark.contains(own) {
                return Ok(());
            }
            if asked.is_none_or(|asked| asked.elapsed() >= limits::RECALL_EVERY) {
                recall(&mark);
                asked = Some(Instant::now());
            }
            if start.elapsed() >= most {
                tracing::warn!(mark, "a directory is delegated to another agent, which has not given it back");
                return Err(reported(libc::ETIMEDOUT, &format!("the directory is delegated to {mark}")));
            }
            if is_interrupted() {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            concurrency::sleep(limits::MARK_POLL.min(most));
        }
        self.note(found);
        Ok(())
    }

    /// Notes that a directory has no mark.
    pub fn note(&self, found: &FileAttributes) {
        let mut all = self.0.lock();
        if all.len() >= limits::UNMARKED_MAX {
            all.clear();
        }
        all.insert(found.ino, found.ctime);
    }
}
