//! Small files that are replaced whole or not at all, with the durability that the caller names.

mod directory;
mod replacement;

pub use directory::sync_directory;
pub use replacement::{Durability, replace, temporary};
