//! Media that store the data, and the cost of redundancy.

use std::path::PathBuf;

use serde::Deserialize;

use super::link::TOO_SLOW;
use crate::bounds::{COUNT_MAX, PART_MIN_BYTES_PER_S};
use crate::units::Rate;

/// Place where the redundant blocks are computed, which determines the links that carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedundancyAt {
    /// A controller at the media: no link carries them.
    #[default]
    Media,
    /// The I/O node: the storage network carries them.
    IoNode,
    /// The client: every link carries them.
    Client,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// Name for `--what-if` and `probe`.
    #[serde(default)]
    pub name: String,
    pub count: u64,
    /// Sustained read rate of one device.
    pub read: Rate,
    /// Sustained write rate of one device.
    pub write: Rate,
    /// Data blocks of a redundancy group (8 of 8+2).
    #[serde(default = "super::one")]
    pub data: u64,
    /// Redundant blocks of a group (2 of 8+2).
    #[serde(default)]
    pub parity: u64,
    /// Number of complete copies of all data; an alternative to `data` and `parity`.
    #[serde(default = "super::one")]
    pub replicas: u64,
    /// Share of the rate that file system and controller take, `0.0..1.0`.
    #[serde(default)]
    pub overhead: f64,
    #[serde(default)]
    pub redundancy_at: RedundancyAt,
    /// Directory on one of the devices on this machine, for `probe`.
    pub dir: Option<PathBuf>,
    /// Price of one device.
    pub price: Option<f64>,
}

impl Media {
    /// Returns the bytes written for one byte of data, at least 1.
    pub fn write_amplification(&self) -> f64 {
        (self.data + self.parity) as f64 / self.data as f64 * self.replicas as f64
    }

    /// Returns the rate of all devices for program data, in bytes per second.
    pub fn data_bytes_per_s(&self, write: bool) -> f64 {
        let rate = if write { self.write } else { self.read };
        let amplification = if write { self.write_amplification() } else { 1.0 };
        self.count as f64 * rate.bytes_per_s() * (1.0 - self.overhead) / amplification
    }

    /// Returns the first impossible value: its key and the problem.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str)> {
        if self.data == 0 || self.data > COUNT_MAX || self.parity > COUNT_MAX {
            return Some(("data", "must be at least 1"));
        }
        if self.replicas == 0 || self.replicas > COUNT_MAX {
            return Some(("replicas", "must be at least 1: 1 means no copy"));
        }
        if self.replicas > 1 && self.parity > 0 {
            return Some(("replicas", "stands beside parity: say one of them"));
        }
        if self.count < self.replicas.max(self.data + self.parity) {
            return Some(("count", "is less than one group of data and parity, or than the copies"));
        }
        let slow = |rate: Rate| rate.bytes_per_s() < PART_MIN_BYTES_PER_S;
        if let Some((field, _)) = [("read", self.read), ("write", self.write)].into_iter().find(|(_, rate)| slow(*rate))
        {
            return Some((field, TOO_SLOW));
        }
        (!(0.0..1.0).contains(&self.overhead)).then_some(("overhead", "must be a share such as 0.03, not a percentage"))
    }

    /// Returns the formula of the data rate.
    pub fn formula(&self, write: bool) -> String {
        let rate = if write { self.write } else { self.read };
        let mut text = format!("{} x {rate}", self.count);
        if write && self.write_amplification() > 1.0 {
            text.push_str(&format!(" / {:.3}", self.write_amplification()));
        }
        if self.overhead > 0.0 {
            text.push_str(&format!(" x {:.3}", 1.0 - self.overhead));
        }
        text
    }
}
