//! Preparations made while a file is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use transport::{Client, Lane};

use crate::limits::SERVER_READY;

/// Number of files that are being opened for writing.
#[derive(Default)]
pub(crate) struct Openings(AtomicUsize);

/// An open for writing that is under way. Meanwhile connections are made for the first large write, and for a window or
/// the next open.
pub(crate) struct UnderWayOpen<'a>(&'a Openings);

impl Openings {
    pub fn begin(&self, client: &Arc<Client>) -> UnderWayOpen<'_> {
        let opening = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        [Lane::Slow, Lane::Large].into_iter().for_each(|lane| client.prepare(lane, opening.min(SERVER_READY)));
        UnderWayOpen(self)
    }
}

impl Drop for UnderWayOpen<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
