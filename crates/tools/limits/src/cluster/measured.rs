//! Results of a test of the complete system: for writing, for reading, or without a stated direction.

use serde::Deserialize;

use crate::units::Rate;

/// Results under `[measured.write]` and `[measured.read]`, or `[measured]` alone.
///
/// Figures of `[measured]` alone have no direction. They are used only if both directions have equal limits.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub write: Option<Figures>,
    pub read: Option<Figures>,
    best: Option<Rate>,
    single: Option<Rate>,
    interface_peak: Option<Rate>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Highest throughput measured.
    pub best: Rate,
    /// Throughput of one process on one node.
    pub single: Option<Rate>,
    /// Highest rate observed at one I/O node's interface.
    pub interface_peak: Option<Rate>,
}

impl Measured {
    /// Returns the figures without a stated direction.
    pub fn unsaid(&self) -> Option<Figures> {
        Some(Figures { best: self.best?, single: self.single, interface_peak: self.interface_peak })
    }

    /// Returns the problem with the figures, if there is one.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let directed = self.write.is_some() || self.read.is_some();
        let bare = self.best.is_some() || self.single.is_some() || self.interface_peak.is_some();
        match (directed, bare) {
            (true, true) => {
                Some("has figures beside those of a direction: put each under [measured.write] or [measured.read]")
            }
            (false, _) if self.best.is_none() => {
                Some("has no `best`: write [measured.write] or [measured.read] with best = \"20 GB/s\"")
            }
            _ => None,
        }
    }
}
