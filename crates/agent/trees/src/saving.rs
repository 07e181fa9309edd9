//! Files of a tree, saved as plain ones beside the burst buffer's data.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use delegation::{DataPlace, NodeKind, NodeNumber, NodeState};
use types::{Step, Timestamp, reported};

use crate::files::{Packs, local_name, pack_of};

/// Longest part of a name that a saved file takes over, in bytes.
const NAME_BYTES: usize = 200;
/// Names that are tried for one saved file at most.
const NAMES_MAX: u32 = 10_000;

/// Nodes by their directories, and the local files of their content.
pub(crate) struct Saving<'a> {
    nodes: HashMap<NodeNumber, &'a NodeState>,
    inside: HashMap<NodeNumber, Vec<(&'a [u8], NodeNumber)>>,
    data: PathBuf,
    packed: PackedBytes<'a>,
}

/// Reads the content of a packed file.
type PackedBytes<'a> = Box<dyn Fn(u64) -> io::Result<Vec<u8>> + 'a>;

impl<'a> Saving<'a> {
    /// Prepares to save some of these nodes, of a tree that is not open. `data`: directory of the local files.
    pub fn left(states: &'a [NodeState], data: PathBuf) -> io::Result<Saving<'a>> {
        let packs = Packs::open(pack_of(&data))?;
        Ok(Saving::new(states, data, move |number| packs.bytes(number)))
    }

    /// Prepares to save some of these nodes. `data`: directory of the local files. `packed` reads the content of a packed file.
    pub fn new(states: &'a [NodeState], data: PathBuf, packed: impl Fn(u64) -> io::Result<Vec<u8>> + 'a) -> Saving<'a> {
        let mut inside: HashMap<NodeNumber, Vec<(&[u8], NodeNumber)>> = HashMap::new();
        for state in states {
            for name in &state.names {
                inside.entry(name.parent).or_default().push((name.name.as_bytes(), state.number));
            }
        }
        let nodes = states.iter().map(|state| (state.number, state)).collect();
        Saving { nodes, inside, data, packed: Box::new(packed) }
    }

    /// Saves a node, and all that is below it, in the directory `saved` under `name` or a free name like it. Files share their data
    /// with the tree's own. Sockets, fifos and devices are left out, and so is content that only the global store has. Returns the
    /// path. All is durable then. Errors: `ENODATA` if there is nothing to save.
    pub fn save(&self, top: NodeNumber, saved: &Path, name: &OsStr) -> io::Result<PathBuf> {
        fs::create_dir_all(saved).step("make the directory of saved files")?;
        let to = free_name(saved, name)?;
        self.save_as(top, &to).step("save what waits in a delegated directory")?;
        if fs::symlink_metadata(&to).is_err() {
            return Err(reported(libc::ENODATA, "the burst buffer has nothing of it that could be saved"));
        }
        rustix::fs::syncfs(fs::File::open(saved)?).map_err(io::Error::from).step("sync saved files")?;
        Ok(to)
    }

    fn save_as(&self, top: NodeNumber, to: &Path) -> io::Result<()> {
        let (mut ahead, mut met) = (vec![(top, to.to_owned())], HashSet::new());
        let mut directories = Vec::new();
        while let Some((number, path)) = ahead.pop() {
            let Some(state) = self.nodes.get(&number) else { continue };
            match state.kind {
                NodeKind::Directory if met.insert(number) => {
                    fs::create_dir(&path)?;
                    let names = self.inside.get(&number).into_iter().flatten();
                    ahead.extend(names.map(|(name, child)| (*child, path.join(OsStr::from_bytes(name)))));
                    directories.push((*state, path));
                }
                NodeKind::File => self.save_file(state, &path)?,
                NodeKind::Symlink => {
                    symlink(OsStr::from_bytes(&state.target), &path)?;
                    lchown(&path, Some(state.uid), Some(state.gid)).or_else(unprivileged)?;
                }
                _ => {}
            }
        }
        // What is in a directory changes its times.
        directories.iter().rev().try_for_each(|(state, path)| dress(state, path))
    }

    fn save_file(&self, state: &NodeState, path: &Path) -> io::Result<()> {
        match state.data {
            DataPlace::Replica(number) => fs::hard_link(self.data.join(local_name(number)), path)?,
            DataPlace::None => fs::File::create(path)?.set_len(state.size)?,
            DataPlace::Packed(number) => fs::write(path, (self.packed)(number)?)?,
            DataPlace::BelowOnly | DataPlace::Outside => {
                tracing::warn!(path = %path.display(), "only the global store has the content of this file");
                return Ok(());
            }
        }
        dress(state, path)
    }
}

/// Without privilege files stay this user's.
fn unprivileged(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::PermissionDenied { Ok(()) } else { Err(error) }
}

/// Gives a saved file owner, mode and times of its node.
fn dress(state: &NodeState, path: &Path) -> io::Result<()> {
    chown(path, Some(state.uid), Some(state.gid)).or_else(unprivileged)?;
    fs::set_permissions(path, fs::Permissions::from_mode(u32::from(state.mode)))?;
    let time = |moment: delegation::Moment| {
        let time = Timestamp::from(moment);
        rustix::fs::Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() }
    };
    let times = rustix::fs::Timestamps { last_access: time(state.atime), last_modification: time(state.mtime) };
    Ok(rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty())?)
}

/// Returns the path in a directory of a name, or of one like it, that is free.
pub(crate) fn free_name(saved: &Path, name: &OsStr) -> io::Result<PathBuf> {
    let name = name.to_string_lossy();
    let name = &name[..name.floor_char_boundary(NAME_BYTES)];
    let tried = (0..NAMES_MAX).map(|number| if number == 0 { name.to_owned() } else { format!("{name}.{number}") });
    let mut free = tried.map(|name| saved.join(name)).filter(|path| fs::symlink_metadata(path).is_err());
    free.next().ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}
