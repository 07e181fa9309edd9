//! Operations on names.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, RawDir, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::mounted::chance::payload;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::side::{Answer, DONE, Side};

/// Names of extended attributes.
const XATTRS: [&str; 3] = ["user.one", "user.two", "user.three"];
/// Bytes of a list or a value; stories use less.
const XATTR_BYTES: usize = 64 << 10;

/// Does an operation on names.
pub fn apply(side: &Side<'_>, op: &Op) -> Answer {
    let path = |path: &u8| side.path(*path);
    match op {
        Op::Truncate { path: p, len } => truncate(&path(p), *len),
        Op::Rename { from, to, flags } => {
            fs::renameat_with(CWD, path(from), CWD, path(to), RenameFlags::from_bits_retain(*flags)).and(DONE)
        }
        Op::Link { from, to } => fs::linkat(CWD, path(from), CWD, path(to), AtFlags::empty()).and(DONE),
        Op::Readlink { path: p } => Ok(Outcome::Bytes(fs::readlink(path(p), Vec::new())?.into_bytes())),
        Op::Unlink { path: p } => fs::unlink(path(p)).and(DONE),
        Op::Mkdir { path: p, mode } => fs::mkdir(path(p), Mode::from_raw_mode(mode | 0o700)).and(DONE),
        Op::Rmdir { path: p } => fs::rmdir(path(p)).and(DONE),
        Op::Mkfifo { path: p } => fs::mknodat(CWD, path(p), FileType::Fifo, Mode::from_raw_mode(0o644), 0).and(DONE),
        Op::Chmod { path: p, mode } => fs::chmod(path(p), Mode::from_raw_mode(*mode)).and(DONE),
        Op::Chown { path: p, uid } => {
            let (uid, gid) = (fs::Uid::from_raw(*uid), fs::Gid::from_raw(*uid + 1));
            fs::chown(path(p), Some(uid), Some(gid)).and(DONE)
        }
        Op::Stat { path: p } => side.stat_name(*p, true),
        Op::Lstat { path: p } => side.stat_name(*p, false),
        Op::Readdir { path: p } => list(&path(p)),
        Op::ReadFile { path: p } => no_fifo(&path(p), |path| Ok(Outcome::Bytes(std::fs::read(path)?))),
        Op::WriteFile { path: p, len, seed } => no_fifo(&path(p), |path| {
            std::fs::write(path, payload(*seed, *len as usize))?;
            Ok(Outcome::Value(u64::from(*len)))
        }),
        Op::SetXattr { path: p, name, len, seed, flags } => {
            let value = payload(*seed, *len as usize);
            fs::setxattr(path(p), xattr(*name), &value, XattrFlags::from_bits_retain(*flags)).and(DONE)
        }
        Op::GetXattr { path: p, name } => {
            let mut value = vec![0; XATTR_BYTES];
            let len = fs::getxattr(path(p), xattr(*name), &mut value[..])?;
            value.truncate(len);
            Ok(Outcome::Bytes(value))
        }
        Op::ListXattr { path: p } => Ok(Outcome::Bytes(xattrs(&path(p))?.join("\0").into_bytes())),
        Op::RemoveXattr { path: p, name } => fs::removexattr(path(p), xattr(*name)).and(DONE),
        _ => unreachable!("not of names: {op:?}"),
    }
}

fn xattr(name: u8) -> &'static str {
    XATTRS[name as usize % XATTRS.len()]
}

/// The sorted names of a file's extended attributes.
pub fn xattrs(path: &Path) -> Result<Vec<String>, Errno> {
    let mut list = vec![0; XATTR_BYTES];
    let len = fs::listxattr(path, &mut list[..])?;
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    Ok(names)
}

fn truncate(path: &Path, len: u64) -> Answer {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
    // SAFETY: the path is a C string.
    let result = unsafe { libc::truncate(path.as_ptr(), len as libc::off_t) };
    if result < 0 { Err(errno(&std::io::Error::last_os_error())) } else { DONE }
}

/// Opening a FIFO would wait for its other end.
fn no_fifo(path: &Path, act: impl FnOnce(&Path) -> std::io::Result<Outcome>) -> Answer {
    if std::fs::metadata(path).is_ok_and(|meta| crate::side::kind(mode(&meta)) == FileType::Fifo) {
        return Ok(Outcome::Skipped);
    }
    act(path).map_err(|error| errno(&error))
}

fn mode(meta: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(meta)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Names and kinds, sorted. `.` and `..` must be there.
fn list(path: &Path) -> Answer {
    let flags = fs::OFlags::RDONLY | fs::OFlags::DIRECTORY | fs::OFlags::CLOEXEC;
    let fd = fs::open(path, flags, Mode::empty())?;
    let mut entries = Vec::new();
    // A buffer for few entries: a listing takes several calls.
    let mut buffer = Vec::with_capacity(300);
    let mut dir = RawDir::new(&fd, buffer.spare_capacity_mut());
    while let Some(entry) = dir.next() {
        let entry = entry?;
        entries.push(format!("{:?} {:?}", entry.file_name(), entry.file_type()));
    }
    entries.sort();
    Ok(Outcome::Bytes(entries.join("\n").into_bytes()))
}
