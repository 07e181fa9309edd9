//! Models of seams, which keep everything in memory: for tests of whoever stands above a seam.

mod catalogue;
mod data;
pub mod global;
mod names;

pub use catalogue::MemoryCatalogue;
pub use data::MemoryDataStore;
pub use names::MemoryNamespace;
