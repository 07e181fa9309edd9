//! What a test of the whole gave: of writing, of reading, or of a direction that is not said.

use serde::Deserialize;

use crate::units::Rate;

/// `[measured.write]` and `[measured.read]`; or `[measured]` alone, of which nobody knows which it is: it says something only where both
/// directions have the same limits.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Of programs that write.
    pub write: Option<Figures>,
    /// Of programs that read.
    pub read: Option<Figures>,
    best: Option<Rate>,
    single: Option<Rate>,
    interface_peak: Option<Rate>,
}

/// One direction.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The best throughput of all.
    pub best: Rate,
    /// The throughput of one process on one node.
    pub single: Option<Rate>,
    /// The highest rate seen at one I/O node's interface.
    pub interface_peak: Option<Rate>,
}

impl Measured {
    /// The figures whose direction is not said.
    pub fn unsaid(&self) -> Option<Figures> {
        Some(Figures { best: self.best?, single: self.single, interface_peak: self.interface_peak })
    }

    /// What is wrong with them.
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
