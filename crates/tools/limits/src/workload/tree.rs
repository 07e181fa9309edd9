//! Names of the files of a cell.

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

/// The `index`-th small file of `owner` in its directory.
pub fn small_file(directory: &Path, owner: u64, index: u64) -> PathBuf {
    directory.join(format!("file.{owner:08}.{index:08}"))
}
