//! The holder of a delegated directory, as the directory's mark tells.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use global_store::hidden;
use rustix::io::Errno;

use crate::mark::{MARK, WAITING};

/// Longest value of a mark that is read, bytes: a host name, a few ids and a path.
const MARK_BYTES: usize = 8192;

/// Longest number of waiting names that is read, bytes.
const WAITING_BYTES: usize = 20;

/// Digits of the number at the end of a hidden name.
const NUMBER_DIGITS: usize = 16;

/// The agent to which a directory is delegated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    mark: String,
    /// Name of its machine.
    pub host: String,
    /// The tree in its burst buffer.
    pub tree: PathBuf,
    /// Number of names that waited there when that was last noted.
    pub waiting: Option<u64>,
}

impl Holder {
    /// Returns the value of a mark: the tree's id, the agent's name, which begins with its host, and the tree's directory.
    pub(crate) fn mark(id: &str, agent: &str, tree: &Path) -> String {
        format!("{id} of {agent} with {}", tree.display())
    }

    pub(crate) fn parse(mark: &str) -> Option<Holder> {
        let (agent, tree) = mark.split_once(" of ")?.1.split_once(" with ")?;
        let host = agent.split(' ').next()?.to_owned();
        Some(Holder { mark: mark.to_owned(), host, tree: tree.into(), waiting: None })
    }

    /// Returns the holder of a directory of the global store; `None` if it is not delegated. Errors: those of the directory; `EUCLEAN`
    /// for a mark that cannot be read.
    pub fn of(directory: impl AsFd) -> io::Result<Option<Holder>> {
        let mut value = vec![0; MARK_BYTES];
        let bytes = match rustix::fs::fgetxattr(&directory, MARK, &mut value) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            found => found?,
        };
        let mark = String::from_utf8_lossy(&value[..bytes]).into_owned();
        let holder = Holder::parse(&mark).ok_or_else(|| io::Error::from_raw_os_error(libc::EUCLEAN))?;
        Ok(Some(Holder { waiting: waiting_for(directory), ..holder }))
    }

    /// Ends the delegation of a directory of the global store. What its holder has not brought there waits in its burst buffer.
    pub fn end(directory: impl AsFd) -> io::Result<()> {
        // The count goes first: a later delegation must not find it.
        match rustix::fs::fremovexattr(&directory, WAITING) {
            Err(Errno::NODATA) => {}
            removed => removed?,
        }
        Ok(rustix::fs::fremovexattr(&directory, MARK)?)
    }

    /// Removes what the holder has made under hidden names below a directory, and did not finish.
    pub fn remove_unfinished(&self, directory: &Path) -> io::Result<()> {
        // All names of one owner begin alike, and end with the same number of digits.
        let name = hidden::name(&self.mark, 0);
        let start = &name.as_bytes()[..name.len() - NUMBER_DIGITS];
        let mut ahead = vec![directory.to_owned()];
        while let Some(directory) = ahead.pop() {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let is_directory = entry.file_type()?.is_dir();
                let is_unfinished =
                    hidden::is_hidden(&entry.file_name()) && entry.file_name().as_bytes().starts_with(start);
                match (is_unfinished, is_directory) {
                    (true, true) => std::fs::remove_dir_all(entry.path())?,
                    (true, false) => std::fs::remove_file(entry.path())?,
                    (false, true) => ahead.push(entry.path()),
                    (false, false) => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the burst buffer of the tree.
    pub fn burst_buffer(&self) -> Option<&Path> {
        self.tree.parent()?.parent()
    }
}

/// Returns how many names wait for a directory, as far as its holder has noted that.
fn waiting_for(directory: impl AsFd) -> Option<u64> {
    let mut value = [0; WAITING_BYTES];
    let bytes = rustix::fs::fgetxattr(directory, WAITING, &mut value).ok()?;
    std::str::from_utf8(&value[..bytes]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_the_host_and_the_burst_buffer_of_its_holder() {
        let mark = Holder::mark("00ff", "node7 0b52-11", Path::new("/nvme/bb of one/trees/00ff"));
        let holder = Holder::parse(&mark).unwrap();
        assert_eq!((&*holder.host, holder.burst_buffer().unwrap()), ("node7", Path::new("/nvme/bb of one")));
        assert_eq!(Holder::parse("something"), None);
    }

    #[test] // S71
    fn what_a_holder_did_not_finish_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let holder = Holder::parse(&Holder::mark("00ff", "node7 0b52-11", Path::new("/bb/trees/00ff"))).unwrap();
        let [ours, theirs] = [&*holder.mark, "another"].map(|owner| hidden::name(owner, 7));
        std::fs::create_dir_all(place.path().join("sub").join(hidden::name(&holder.mark, 8))).unwrap();
        let stays = [place.path().join(&theirs), place.path().join("sub/file")];
        stays.iter().chain([&place.path().join("sub").join(&ours)]).for_each(|path| std::fs::write(path, "x").unwrap());
        holder.remove_unfinished(place.path()).unwrap();
        assert!(stays.iter().all(|path| path.exists()));
        assert_eq!(std::fs::read_dir(place.path().join("sub")).unwrap().count(), 1);
    }
}
