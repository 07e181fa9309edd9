//! Names of the files of a cell.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::message::Task;
use super::pattern::Layout;

/// The data file of `owner`.
pub fn data_file(task: &Task, owner: u64) -> PathBuf {
    match task.pattern.layout {
        Layout::FilePerProcess => task.directory.join(format!("data.{owner:08}")),
        Layout::Segmented | Layout::Strided => task.directory.join("data.shared"),
    }
}

/// The directory of `owner`'s small files.
pub fn directory(task: &Task, owner: u64) -> PathBuf {
    if task.pattern.shared_directory {
        task.directory.join("files")
    } else {
        task.directory.join(format!("files.{owner:08}"))
    }
}

/// The `index`-th small file of `owner`.
pub fn small_file(task: &Task, owner: u64, index: u64) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(Names::new(&directory(task, owner), owner).of(index).to_bytes()))
}

/// Digits of a small file's number at least.
const DIGITS: usize = 8;
/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// The small files of one process in their directory. Only the number is written for each: a name costs neither an allocation nor
/// a copy, for it is part of what the generator adds to an operation.
pub struct Names {
    /// The path, and a zero byte at its end.
    path: Vec<u8>,
    /// Where the number begins.
    number: usize,
}

impl Names {
    /// Those of `owner` in `directory`.
    pub fn new(directory: &Path, owner: u64) -> Names {
        let mut path = directory.join(format!("file.{owner:08}.")).as_os_str().as_bytes().to_vec();
        let number = path.len();
        path.reserve_exact(DIGITS_MAX + 1);
        Names { path, number }
    }

    /// The path of the `index`-th.
    pub fn of(&mut self, index: u64) -> &CStr {
        let mut digits = [b'0'; DIGITS_MAX];
        let (mut at, mut left) = (DIGITS_MAX, index);
        while left > 0 {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        self.path.truncate(self.number);
        self.path.extend_from_slice(&digits[at.min(DIGITS_MAX - DIGITS)..]);
        self.path.push(0);
        // No path that the system gave holds a zero byte.
        CStr::from_bytes_with_nul(&self.path).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_owner_and_number_however_large() {
        let mut names = Names::new(Path::new("/d/e"), 7);
        let room = names.path.capacity();
        for index in [0, 9, 10, 12_345_678, 99_999_999, 100_000_000, u64::MAX, 3] {
            let wanted = format!("/d/e/file.00000007.{index:08}");
            assert_eq!(names.of(index).to_str().unwrap(), wanted);
        }
        assert_eq!(names.path.capacity(), room);
    }
}
