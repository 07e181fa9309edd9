//! Models of seams, which keep everything in memory: for tests of whoever stands above a seam. The tests of one call
//! it by the short words of [`DataStoreExt`] and [`OpenDataExt`].

mod catalogue;
mod data;
mod extensions;
pub mod global;
mod names;

pub use catalogue::MemoryCatalogue;
pub use data::MemoryDataStore;
pub use extensions::{DataStoreExt, Handle, OpenDataExt};
pub use names::MemoryNamespace;
