//! Names in use by programs, which the kernel must not be told to forget.
//!
//! Forgetting a name breaks its users: `/proc` says "(deleted)", `getcwd` fails, and mounts on or below it end. The
//! kernel does not look at working directories first. This module does so in `/proc`: working directories and roots of
//! all processes, and the mounts of all their namespaces. The door itself knows open files and directories.
//!
//! Only the components of paths are compared, so that more names count as in use than are. Not seen are processes
//! outside of this process namespace, working directories of single threads, namespaces without a process, and `O_PATH`
//! descriptors.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Set of the components of all paths in use on FUSE file systems.
#[derive(Debug, Default)]
pub struct InUse(HashSet<OsString>);

/// Mount points of FUSE file systems in a namespace.
type Points = Vec<PathBuf>;

impl InUse {
    /// Looks at all processes, at some microseconds each. Errors: those of reading `/proc`.
    pub fn look() -> io::Result<InUse> {
        let (mut found, mut namespaces) = (InUse::default(), HashMap::new());
        for entry in fs::read_dir("/proc")?.flatten() {
            let is_process = entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
            if is_process {
                found.add_process(&entry.path(), &mut namespaces);
            }
        }
        Ok(found)
    }

    /// Returns whether a name may be in use.
    pub fn has(&self, name: &OsStr) -> bool {
        self.0.contains(name)
    }

    fn add_process(&mut self, process: &Path, namespaces: &mut HashMap<PathBuf, Points>) {
        // The process has ended, or may not be inspected, as for an agent without root: its mounts are not ours.
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { return };
        let root = fs::read_link(process.join("root"));
        // Paths of a process with its own root are relative to another place than its mounts.
        let is_whole = root.as_deref().is_ok_and(|root| root == "/");
        if !namespaces.contains_key(&namespace) {
            let table = fs::read(process.join("mountinfo")).unwrap_or_default();
            let points = self.add_mounts(&table);
            if is_whole {
                namespaces.insert(namespace.clone(), points);
            }
        }
        let points = namespaces.get(&namespace).filter(|_| is_whole);
        for path in fs::read_link(process.join("cwd")).into_iter().chain(root) {
            match points {
                Some(points) => points.iter().for_each(|point| self.add_below(point, &path)),
                None => self.add(&path),
            }
        }
    }

    /// Adds the mounts on FUSE file systems of a mount table. Returns the mount points of those file systems.
    fn add_mounts(&mut self, table: &[u8]) -> Points {
        let lines = table.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut words = line.split(|byte| *byte == b' ');
            let point = unescaped(words.nth(4)?);
            let kind = words.skip_while(|word| *word != b"-").nth(1)?;
            Some((point, kind.starts_with(b"fuse")))
        });
        let lines: Vec<_> = lines.collect();
        let points: Points = lines.iter().filter(|(_, is_fuse)| *is_fuse).map(|(point, _)| point.clone()).collect();
        for (path, _) in &lines {
            points.iter().for_each(|point| self.add_below(point, path));
        }
        points
    }

    fn add_below(&mut self, point: &Path, path: &Path) {
        if let Ok(inside) = path.strip_prefix(point) {
            self.add(inside);
        }
    }

    fn add(&mut self, path: &Path) {
        for word in path.components() {
            let Component::Normal(word) = word else { continue };
            let bytes = word.as_bytes();
            let word = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
            if !self.0.contains(OsStr::from_bytes(word)) {
                self.0.insert(OsStr::from_bytes(word).to_owned());
            }
        }
    }
}

/// Decodes a word of a mount table, in which blanks and some other characters are octal numbers.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let code = if byte == b'\\' { after.first_chunk::<3>() } else { None };
        let number = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        path.push(number.unwrap_or(byte));
        rest = if number.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S33
    fn words_of_mounts_on_fuse_file_systems_are_in_use_and_no_others() {
        let table = b"20 1 8:1 / / rw - ext4 /dev/sda rw\n\
            21 20 0:30 / /scratch rw,nosuid shared:7 - fuse.forebay /bb rw\n\
            22 21 0:31 / /scratch/a\\040b/inner rw - tmpfs none rw\n\
            23 20 0:32 / /home/user rw - nfs4 server rw\n";
        let mut found = InUse::default();
        assert_eq!(found.add_mounts(table), [Path::new("/scratch")]);
        for (name, used) in [("a b", true), ("inner", true), ("scratch", false), ("home", false), ("user", false)] {
            assert_eq!(found.has(OsStr::new(name)), used, "{name}");
        }
        found.add(Path::new("/gone (deleted)"));
        assert!(found.has(OsStr::new("gone")));
    }
}
