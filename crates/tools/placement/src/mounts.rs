//! Mounts as listed in `/proc/*/mountinfo`, read without touching the mounts, which may hang.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::limits::LINKS_MAX;

/// File system type of our mounts.
pub const KIND: &str = "fuse.forebay";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount, unique in the namespace while mounted.
    pub id: u64,
    /// Number of the mount on which this one is mounted.
    pub parent: u64,
    /// `major:minor` of its files' `st_dev`.
    pub device: String,
    /// Part of the file system that is mounted: `/` for all of it.
    pub root: PathBuf,
    pub point: PathBuf,
    pub kind: String,
    /// Text that `mount` shows before "on": for our mounts the burst buffer.
    pub source: PathBuf,
}

impl Mount {
    /// Returns whether the mount is a directory that Forebay accelerates.
    pub fn is_ours(&self) -> bool {
        self.kind == KIND
    }
}

/// Lists the mounts that this process sees.
pub fn all() -> io::Result<Vec<Mount>> {
    of("/proc/self/mountinfo")
}

/// Lists the mounts that process `pid` sees.
pub fn seen_by(pid: i32) -> io::Result<Vec<Mount>> {
    of(&format!("/proc/{pid}/mountinfo"))
}

fn of(file: &str) -> io::Result<Vec<Mount>> {
    Ok(fs::read(file)?.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Parses a line such as `36 35 98:0 /root /mnt rw,noatime shared:1 - ext4 /dev/sda rw`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8(rest.next()?.to_vec()).ok()?;
    Some(Mount { id, parent, device, root, point, kind, source: unescape(rest.next()?) })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Turns `\040` and the like back into bytes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.get(..3)).flatten();
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Returns the mount that shows at `path`: of the mounts with the longest matching mount point, the uppermost.
pub fn covering<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    let longest = above.clone().map(|mount| mount.point.as_os_str().len()).max()?;
    let here: Vec<&Mount> = above.filter(|mount| mount.point.as_os_str().len() == longest).collect();
    here.iter().find(|mount| !here.iter().any(|other| other.parent == mount.id)).or(here.last()).copied()
}

/// Returns our mount in which `path` lies, whatever is mounted deeper inside.
pub fn ours_over<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.is_ours() && path.starts_with(&mount.point))
}

/// Walks an absolute path as the kernel would, through symbolic links. Calls `enter` with each directory before
/// anything in it is touched, since touching a mount with a stopped agent blocks. Ends at the first error.
pub fn walk<E>(path: &Path, mut enter: impl FnMut(&Path) -> Result<(), E>) -> Result<(), E> {
    let words = |path: &Path| path.components().rev().map(|word| word.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut rest, mut at, mut links) = (words(path), PathBuf::from("/"), 0);
    while let Some(word) = rest.pop() {
        match Path::new(&word).components().next() {
            Some(Component::ParentDir) => {
                at.pop();
            }
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                enter(&next)?;
                match fs::read_link(&next) {
                    Ok(target) if links < LINKS_MAX => {
                        links += 1;
                        rest.extend(words(&target));
                    }
                    _ => at = next,
                }
            }
            Some(Component::RootDir) => at = PathBuf::from("/"),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the mount points strictly below `dir` that are not below another one. These must be moved on top of a
/// mount over `dir`. With `on`, only those mounted on that mount.
pub fn below(mounts: &[Mount], dir: &Path, on: Option<u64>) -> Vec<PathBuf> {
    let inside = |mount: &&Mount| mount.point != dir && mount.point.starts_with(dir);
    let mut points: Vec<PathBuf> = mounts
        .iter()
        .filter(inside)
        .filter(|mount| on.is_none_or(|id| mount.parent == id))
        .map(|mount| mount.point.clone())
        .collect();
    points.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    points.dedup();
    let all = points.clone();
    points.retain(|point| !all.iter().any(|other| other != point && point.starts_with(other)));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, parent: u64, point: &str, kind: &str) -> Mount {
        let (root, point, source) = (PathBuf::from("/"), PathBuf::from(point), PathBuf::from("/bb"));
        Mount { id, parent, device: "0:1".to_string(), root, point, kind: kind.to_string(), source }
    }

    #[test]
    fn a_line_with_escapes_and_optional_fields_is_read() {
        let line = br"36 35 98:0 /mnt1 /a\040b rw,noatime shared:1 master:2 - fuse.forebay /bb\134x rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.parent, mount.device.as_str()), (36, 35, "98:0"));
        assert_eq!((mount.root.as_path(), mount.point.as_path()), (Path::new("/mnt1"), Path::new("/a b")));
        assert_eq!(mount.source, Path::new(r"/bb\x"));
        assert!(mount.is_ours());
        assert_eq!(parse(b"garbage"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn the_upper_of_two_mounts_on_one_point_shows() {
        let mounts = [mount(3, 1, "/d", KIND), mount(2, 3, "/d", "tmpfs"), mount(1, 0, "/", "ext4")];
        assert_eq!(covering(&mounts, Path::new("/d/x")).unwrap().id, 2);
        assert_eq!(covering(&mounts, Path::new("/dx")).unwrap().id, 1);
        assert_eq!(ours_over(&mounts, Path::new("/d/x")).unwrap().id, 3);
        assert_eq!(ours_over(&mounts, Path::new("/dx")), None);
    }

    #[test]
    fn a_walk_goes_where_links_lead_and_touches_nothing_behind_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("../../c/./stop", root.join("a/b/relative")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b/relative"), root.join("absolute")).unwrap();
        std::os::unix::fs::symlink("circle", root.join("circle")).unwrap();
        let stop = root.join("c/stop");
        let come = |name: &str| walk(&root.join(name), |at| if at == stop { Err(()) } else { Ok(()) });
        for name in ["c/stop", "c/stop/x", "a/b/relative", "absolute/x", "a/../c/stop", "none/../absolute"] {
            assert_eq!(come(name), Err(()), "{name}");
        }
        for name in ["c", "a/b", "c/stopped", "circle", "c/../a", ""] {
            assert_eq!(come(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn only_the_topmost_mounts_below_a_directory_are_listed() {
        let mounts = [
            mount(1, 0, "/", "ext4"),
            mount(2, 1, "/d", "ext4"),
            mount(3, 2, "/d/a", "tmpfs"),
            mount(4, 3, "/d/a/b", "tmpfs"),
            mount(5, 2, "/d/c", "tmpfs"),
            mount(6, 1, "/dd/c", "tmpfs"),
        ];
        assert_eq!(below(&mounts, Path::new("/d"), None), [Path::new("/d/a"), Path::new("/d/c")]);
        assert_eq!(below(&mounts, Path::new("/d"), Some(9)), Vec::<PathBuf>::new());
    }
}
