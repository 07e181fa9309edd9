//! Preparations made while a file is opened.

use std::sync::atomic::Ordering;

use transport::Lane;

use super::Inner;
use crate::limits::SERVER_READY;

/// An open for writing that is under way. Meanwhile connections are made for the first large write, and for a window or
/// the next open.
pub(super) struct Opening<'a>(&'a Inner);

impl Opening<'_> {
    pub(super) fn begin(inner: &Inner) -> Opening<'_> {
        let opening = inner.opening.fetch_add(1, Ordering::Relaxed) + 1;
        [Lane::Slow, Lane::Large].into_iter().for_each(|lane| inner.client.prepare(lane, opening.min(SERVER_READY)));
        Opening(inner)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.fetch_sub(1, Ordering::Relaxed);
    }
}
