//! Equal random operations on several directories, and a snapshot of a directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, XattrFlags};

/// Marsaglia's xorshift64: equal seeds give equal operations.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Returns one of a few names on two levels, so that operations often conflict.
    fn path(&mut self) -> String {
        let (top, sub) = (self.below(6), self.below(5));
        if self.below(2) == 0 { format!("n{top}") } else { format!("n{top}/s{sub}") }
    }
}

/// One operation with its arguments.
#[derive(Debug)]
enum Operation {
    Write { path: String, at: u64, bytes: Vec<u8> },
    Append { path: String, bytes: Vec<u8> },
    Read { path: String },
    Truncate { path: String, len: u64 },
    Mkdir { path: String },
    Rmdir { path: String },
    Unlink { path: String },
    Rename { from: String, to: String, flags: RenameFlags },
    Link { from: String, to: String },
    Symlink { target: String, path: String },
    Chmod { path: String, mode: u32 },
    SetXattr { path: String, value: Vec<u8> },
    RemoveXattr { path: String },
    List { path: String },
}

fn draw(random: &mut Random) -> Operation {
    let path = random.path();
    let bytes = vec![random.below(256) as u8; random.below(9000) as usize];
    match random.below(16) {
        0..=2 => Operation::Write { path, at: random.below(20_000), bytes },
        3 => Operation::Append { path, bytes },
        4 => Operation::Read { path },
        5 => Operation::Truncate { path, len: random.below(20_000) },
        6 | 7 => Operation::Mkdir { path },
        8 => Operation::Rmdir { path },
        9 => Operation::Unlink { path },
        10 => {
            let flags = [RenameFlags::empty(), RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
            Operation::Rename { from: path, to: random.path(), flags: flags[random.below(4) as usize] }
        }
        11 => Operation::Link { from: path, to: random.path() },
        12 => Operation::Symlink { target: random.path(), path },
        13 => Operation::Chmod { path, mode: random.below(0o1000) as u32 },
        14 if random.below(2) == 0 => Operation::RemoveXattr { path },
        14 => Operation::SetXattr { path, value: bytes[..bytes.len().min(100)].to_vec() },
        _ => Operation::List { path },
    }
}

/// Performs an operation and returns its result as a program sees it.
fn perform(dir: &Path, operation: &Operation) -> io::Result<Vec<u8>> {
    let none = || Vec::new();
    let at = |path: &String| dir.join(path);
    match operation {
        Operation::Write { path, at: offset, bytes } => {
            let file = File::options().create(true).truncate(false).write(true).open(at(path))?;
            file.write_all_at(bytes, *offset).map(|()| none())
        }
        Operation::Append { path, bytes } => {
            let mut file = File::options().append(true).open(at(path))?;
            io::Write::write_all(&mut file, bytes).map(|()| none())
        }
        Operation::Read { path } => fs::read(at(path)),
        Operation::Truncate { path, len } => File::options().write(true).open(at(path))?.set_len(*len).map(|()| none()),
        Operation::Mkdir { path } => fs::create_dir(at(path)).map(|()| none()),
        Operation::Rmdir { path } => fs::remove_dir(at(path)).map(|()| none()),
        Operation::Unlink { path } => fs::remove_file(at(path)).map(|()| none()),
        Operation::Rename { from, to, flags } => {
            Ok(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), *flags).map(|()| none())?)
        }
        Operation::Link { from, to } => fs::hard_link(at(from), at(to)).map(|()| none()),
        Operation::Symlink { target, path } => symlink(target, at(path)).map(|()| none()),
        Operation::Chmod { path, mode } => {
            // Root reads files of any mode. How modes of directories restrict other users is not tested here.
            fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)).map(|()| none())
        }
        Operation::SetXattr { path, value } => {
            Ok(rustix::fs::setxattr(at(path), "user.test", value, XattrFlags::empty()).map(|()| none())?)
        }
        Operation::RemoveXattr { path } => Ok(rustix::fs::removexattr(at(path), "user.test").map(|()| none())?),
        Operation::List { path } => {
            let mut names = Vec::new();
            for entry in fs::read_dir(at(path))? {
                let entry = entry?;
                names.push(format!("{:?} {:?}", entry.file_name(), entry.file_type()?));
            }
            names.sort();
            Ok(names.join("\n").into_bytes())
        }
    }
}

/// Runs `count` random operations on both directories and checks that each has equal results, including errors.
pub fn same_operations(dirs: &[PathBuf; 2], seed: u64, count: usize) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for number in 0..count {
        let operation = draw(&mut random);
        let [one, other] = dirs.each_ref().map(|dir| perform(dir, &operation).map_err(|error| error.raw_os_error()));
        assert!(one == other, "operation {number} of seed {seed}, {operation:?}: {one:?}, not {other:?}");
    }
}

/// Runs `count` random operations while other threads do so too. None may return an error that only a broken file
/// system returns.
pub fn any_operations(dir: &Path, seed: u64, count: usize) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for number in 0..count {
        let operation = draw(&mut random);
        if let Err(error) = perform(dir, &operation) {
            let broken = [libc::EIO, libc::EBADF, libc::ESTALE, libc::ENOSYS, libc::EPROTO, libc::EINTR];
            let code = error.raw_os_error().unwrap_or(libc::EIO);
            assert!(!broken.contains(&code), "operation {number} of seed {seed}, {operation:?}: {error}");
        }
    }
}

/// Returns everything below `dir`, by relative path: kind, mode, link count, size, content or target, extended
/// attribute.
pub fn snapshot(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    collect(dir, dir, &mut found);
    found
}

fn collect(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        let content = if stat.is_dir() {
            collect(root, &path, found);
            String::new()
        } else if stat.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else {
            let bytes = fs::read(&path).unwrap();
            let mut value = [0; 128];
            let xattr = rustix::fs::getxattr(&path, "user.test", &mut value).map(|len| &value[..len]);
            format!(
                "{} bytes {:x?} {xattr:?}",
                bytes.len(),
                bytes.iter().fold(0u64, |sum, b| sum.rotate_left(5) ^ u64::from(*b))
            )
        };
        let what = format!("{:o} {} {content}", stat.mode(), stat.nlink());
        found.insert(path.strip_prefix(root).unwrap().to_owned(), what);
    }
}
