//! Models of seams, which keep everything in memory: for tests of whoever stands above a seam.

mod data;
mod names;

pub use data::MemoryStore;
pub use names::MemoryNamespace;
