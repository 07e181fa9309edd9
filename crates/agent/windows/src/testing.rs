//! Access to the state of windows, for tests of other crates.

use std::path::Path;
use std::sync::Arc;

use types::Identity;
use window::layout::RingId;

pub use crate::drain::SMALL_BATCHES;
use crate::file::FileWindow;
use crate::place::FilePlace;
use crate::session::AgentRun;
use crate::table::Windows;

/// The windows of a file.
pub struct WindowedFile(Arc<FileWindow>);

impl WindowedFile {
    /// Returns the windows of a file, if it has any.
    pub fn of(windows: &Windows, identity: &Identity) -> Option<WindowedFile> {
        windows.window(identity).map(WindowedFile)
    }

    /// Runs `act` while no record of the file can be applied.
    pub fn without_applying<T>(&self, act: impl FnOnce() -> T) -> T {
        let _rings = self.0.drain.lock();
        act()
    }

    /// Returns whether a truncation is recorded.
    pub fn is_cut(&self) -> bool {
        matches!(self.0.place.cut(), Ok(Some(_)))
    }
}

/// Runs `act` while no thread can apply a batch.
pub fn without_turns<T>(windows: &Windows, act: impl FnOnce() -> T) -> T {
    let _turn = windows.turn.lock();
    act()
}

/// Returns the number of sessions of a burst buffer that were not ended.
pub fn unfinished(burst_buffer: &Path) -> usize {
    AgentRun::unfinished(burst_buffer).map_or(0, |sessions| sessions.len())
}

/// Returns the first ring that is recorded in a file's directory, and its bytes.
pub fn first_ring(place: &Path) -> Option<(RingId, u64)> {
    let grants = FilePlace::of(place.to_owned(), false).grants().ok()?;
    let record = grants.into_iter().next()?.1.ok()?;
    Some((record.ring(), record.capacity))
}
