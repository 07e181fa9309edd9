//! How long a wait may last, and who ends it before.

use std::io;
use std::time::Duration;

use concurrency::Instant;

use crate::limits::TICK;

/// Bound of a wait: an end, and a caller who may interrupt.
pub struct WaitLimit<'a> {
    /// `None`: for ever.
    pub(crate) until: Option<Instant>,
    /// Asked about every tick, and between the parts of a frame.
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

impl WaitLimit<'_> {
    pub(crate) fn within(wait: Duration) -> WaitLimit<'static> {
        WaitLimit { until: Some(Instant::now() + wait), interrupted: &|| false }
    }

    /// Returns this limit, and no longer than `wait` from now on.
    pub(crate) fn at_most(&self, wait: Duration) -> WaitLimit<'_> {
        let end = Instant::now() + wait;
        WaitLimit { until: Some(self.until.map_or(end, |until| until.min(end))), interrupted: self.interrupted }
    }

    /// `ETIMEDOUT` or `EINTR` once it has ended.
    pub fn check(&self) -> io::Result<()> {
        if (self.interrupted)() {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        Ok(())
    }

    /// Sleeps for so long. Errors: those of [`WaitLimit::check`], within a tick.
    pub(crate) fn sleep(&self, pause: Duration) -> io::Result<()> {
        let end = Instant::now() + pause;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            concurrency::sleep(left.min(TICK));
        }
    }
}
