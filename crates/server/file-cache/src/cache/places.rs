//! The lock of names, for files that take others' places.

use std::sync::atomic::AtomicBool;

use concurrency::RwLock;

/// State shared by all files that are published.
#[derive(Default)]
pub(crate) struct Places {
    /// Locked before any gate. Shared by changes of names and attributes, exclusive while a file takes another's
    /// place.
    pub(crate) names: RwLock<()>,
    /// Whether files may take others' places.
    pub(crate) begun: AtomicBool,
    /// Whether any file has done so in this process.
    pub(crate) any: AtomicBool,
}
