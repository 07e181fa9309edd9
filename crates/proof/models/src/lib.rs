//! Models of seams, which keep everything in memory: for tests of whoever stands above a seam.

mod data;

pub use data::MemoryStore;
