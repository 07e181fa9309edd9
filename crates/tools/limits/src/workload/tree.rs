//! Names of the files of a cell.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::message::Task;
use super::pattern::Layout;

/// Returns the directory of the cell that contains the files of `owner`.
fn home(task: &Task, owner: u64) -> &Path {
    let count = task.across.len().max(1) as u64;
    task.across.get((owner % count) as usize).unwrap_or(&task.directory)
}

pub fn data_file(task: &Task, owner: u64) -> PathBuf {
    match task.pattern.layout {
        Layout::FilePerProcess => home(task, owner).join(format!("data.{owner:08}")),
        Layout::Segmented | Layout::Strided => task.directory.join("data.shared"),
    }
}

/// Returns the directory of `owner`'s small files.
pub fn directory(task: &Task, owner: u64) -> PathBuf {
    if task.pattern.shared_directory {
        home(task, owner).join("files")
    } else {
        home(task, owner).join(format!("files.{owner:08}"))
    }
}

/// Returns the path of the `index`-th small file of `owner`.
pub fn small_file(task: &Task, owner: u64, index: u64) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(Names::new(&directory(task, owner), owner).of(index).to_bytes()))
}

/// Least number of digits in a small file's number.
const DIGITS: usize = 8;
const DIGITS_MAX: usize = 20;

/// Paths of the small files of one process in their directory. Only the number is written for each, so a path needs no
/// allocation and no copy. These costs would add to every operation.
pub struct Names {
    /// Path, with a zero byte at its end.
    path: Vec<u8>,
    number: usize,
}

impl Names {
    pub fn new(directory: &Path, owner: u64) -> Names {
        let mut path = directory.join(format!("file.{owner:08}.")).as_os_str().as_bytes().to_vec();
        let number = path.len();
        path.reserve_exact(DIGITS_MAX + 1);
        Names { path, number }
    }

    /// Returns the path of the `index`-th file.
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
        // A path from the system contains no zero byte.
        CStr::from_bytes_with_nul(&self.path).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Pattern, Preset};

    #[test]
    fn files_are_dealt_out_to_the_directories_in_turn_and_a_shared_one_is_in_the_first() {
        let task = Task {
            pattern: Pattern::preset(Preset::IorEasy),
            directory: "/t/a/c".into(),
            across: vec!["/t/a/c".into(), "/t/b/c".into()],
            processes: 2,
            ranks: 4,
            seed: 0,
        };
        let files = (0..4).map(|owner| data_file(&task, owner).display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            files,
            ["/t/a/c/data.00000000", "/t/b/c/data.00000001", "/t/a/c/data.00000002", "/t/b/c/data.00000003"]
        );
        assert!(small_file(&task, 3, 0).starts_with("/t/b/c/files"));
        let shared = Task { pattern: Pattern::preset(Preset::IorHard), ..task.clone() };
        assert_eq!(data_file(&shared, 1), Path::new("/t/a/c/data.shared"));
        let one = Task { across: Vec::new(), ..task };
        assert_eq!(data_file(&one, 1), Path::new("/t/a/c/data.00000001"));
    }

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
