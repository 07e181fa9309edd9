//! A network link: raw rate, line encoding, lanes.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::bounds::{COUNT_MAX, PART_MIN_BYTES_PER_S};
use crate::units::{Rate, format_rate};

/// Problem with a rate that is too low for any part of a cluster.
pub(super) const TOO_SLOW: &str = "is below 1 Mbit/s: is a prefix missing, such as G of Gbit/s?";

/// Payload bits and line bits of a line encoding: `64b/66b` is 64 of 66. `none` is 1 of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    /// Number of payload bits in a block.
    pub payload: u32,
    /// Number of bits of that block on the wire.
    pub line: u32,
}

impl Encoding {
    /// Returns the payload of one raw bit, above 0 and at most 1.
    pub fn share(self) -> f64 {
        f64::from(self.payload) / f64::from(self.line)
    }

    /// Parses `64b/66b`, `8b/10b`, `128b/130b`, `256b/257b` or `none`. Errors: a sentence for the user.
    pub fn parse(text: &str) -> Result<Encoding, String> {
        if text == "none" {
            return Ok(Encoding::default());
        }
        let wrong = || format!("`{text}` is no line encoding: write for example 64b/66b, 8b/10b, 128b/130b or none");
        let (payload, line) = text.split_once('/').ok_or_else(wrong)?;
        let bits = |part: &str| part.strip_suffix('b').and_then(|digits| digits.parse::<u32>().ok()).ok_or_else(wrong);
        let (payload, line) = (bits(payload)?, bits(line)?);
        if payload == 0 || line < payload || line > 2 * payload {
            return Err(format!("{}; payload comes first", wrong()));
        }
        Ok(Encoding { payload, line })
    }
}

impl Default for Encoding {
    fn default() -> Encoding {
        Encoding { payload: 1, line: 1 }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.payload, self.line)
    }
}

impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Encoding, D::Error> {
        Encoding::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Whether both directions have separate rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplex {
    /// Each direction has the full rate.
    #[default]
    Full,
    /// Both directions share one rate.
    Half,
}

/// One link, or `count` equal ones side by side.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Raw rate of one lane.
    pub rate: Rate,
    /// Line encoding; default none, which is right if `rate` is already the data rate.
    #[serde(default)]
    pub encoding: Encoding,
    #[serde(default = "super::one")]
    pub lanes: u64,
    /// Number of parallel links.
    #[serde(default = "super::one")]
    pub count: u64,
    /// Share that headers and protocols take from the data rate, `0.0..1.0`.
    #[serde(default)]
    pub overhead: f64,
    #[serde(default)]
    pub duplex: Duplex,
    /// Price of one link: interface, cable and port.
    pub price: Option<f64>,
}

impl Link {
    /// Returns the raw bit rate on the wire, in bytes per second.
    pub fn raw_bytes_per_s(&self) -> f64 {
        self.rate.bytes_per_s() * self.lanes as f64 * self.count as f64
    }

    /// Returns the rate that remains for data, in bytes per second for one direction.
    pub fn data_bytes_per_s(&self) -> f64 {
        self.raw_bytes_per_s() * self.encoding.share() * (1.0 - self.overhead)
    }

    /// Returns the total price of the links.
    pub(super) fn price(&self) -> f64 {
        self.count as f64 * self.price.unwrap_or(0.0)
    }

    /// Returns the first impossible value: its key and the problem.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str)> {
        if self.lanes == 0 || self.lanes > COUNT_MAX {
            return Some(("lanes", "must be at least 1"));
        }
        if self.count == 0 || self.count > COUNT_MAX {
            return Some(("count", "must be at least 1"));
        }
        if self.rate.bytes_per_s() < PART_MIN_BYTES_PER_S {
            return Some(("rate", TOO_SLOW));
        }
        (!(0.0..1.0).contains(&self.overhead)).then_some(("overhead", "must be a share such as 0.03, not a percentage"))
    }

    /// Returns the formula of the data rate: `2 x 100 Gbit/s x 64/66`.
    pub fn formula(&self) -> String {
        let mut parts = Vec::new();
        if self.count != 1 {
            parts.push(format!("{} links", self.count));
        }
        if self.lanes != 1 {
            parts.push(format!("{} lanes", self.lanes));
        }
        parts.push(format_rate(self.rate.bytes_per_s()));
        if self.encoding.payload != self.encoding.line {
            parts.push(self.encoding.to_string());
        }
        if self.overhead > 0.0 {
            parts.push(format!("{:.3}", 1.0 - self.overhead));
        }
        parts.join(" x ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_payload_over_line_bits() {
        assert!((Encoding::parse("64b/66b").unwrap().share() - 64.0 / 66.0).abs() < 1e-12);
        assert_eq!(Encoding::parse("none").unwrap().share(), 1.0);
        for wrong in ["66b/64b", "64/66", "0b/2b", "8b/99b", "fast"] {
            assert!(Encoding::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lanes_and_links_multiply() {
        let rate = Rate::parse("25.78125 Gbit/s").unwrap();
        let encoding = Encoding::parse("64b/66b").unwrap();
        let link = Link { rate, encoding, lanes: 4, count: 2, overhead: 0.0, duplex: Duplex::Full, price: None };
        assert!((link.data_bytes_per_s() - 25e9).abs() < 1.0);
        assert_eq!(link.formula(), "2 links x 4 lanes x 3.223 GB/s x 64/66");
    }
}
