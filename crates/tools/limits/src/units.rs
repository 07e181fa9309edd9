//! Parsing and formatting of rates, always with a unit: bits and bytes differ by eight, and published tables confuse
//! them.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::bounds::RATE_MAX_BYTES_PER_S;

/// Prefixes, as powers of ten and of two. The empty one comes last so that the longest match wins.
const PREFIXES: [(&str, f64); 9] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];

/// A rate in bytes per second, finite and above zero. Documents state it with a unit (`100 Gbit/s`, `12.5 GB/s`).
/// Results contain plain numbers whose names end in `_bytes_per_s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// Parses `100 Gbit/s`, `100 Gb/s`, `100 Gbps`, `12.5 GB/s`, `900 MiB/s`. Errors: a sentence for the user.
    pub fn parse(text: &str) -> Result<Rate, String> {
        let text = text.trim();
        let end = text
            .char_indices()
            .find(|(i, c)| !(c.is_ascii_digit() || *c == '.' || *c == '_' || (*i == 0 && "+-".contains(*c))))
            .map_or(text.len(), |(i, _)| i);
        let number: f64 = text[..end]
            .replace('_', "")
            .parse()
            .map_err(|_| format!("`{text}` is no rate: write for example 100 Gbit/s or 12.5 GB/s"))?;
        let unit = text[end..].trim();
        if unit.is_empty() {
            return Err(format!("`{text}` has no unit: write for example {text} Gbit/s or {text} GB/s"));
        }
        let bytes = number * unit_bytes(unit).ok_or_else(|| unknown_unit(text, unit))?;
        Rate::new(bytes).map_err(|why| format!("`{text}` {why}"))
    }

    /// Creates a rate from bytes per second. Errors: the problem with the number.
    pub fn new(bytes_per_s: f64) -> Result<Rate, String> {
        if !bytes_per_s.is_finite() || bytes_per_s <= 0.0 {
            return Err("is not above zero".to_string());
        }
        if bytes_per_s > RATE_MAX_BYTES_PER_S {
            return Err(format!("is more than {}: are the units right?", format_rate(RATE_MAX_BYTES_PER_S)));
        }
        Ok(Rate(bytes_per_s))
    }

    pub fn bytes_per_s(self) -> f64 {
        self.0
    }
}

/// Returns the bytes per second of one unit; `b` is a bit and `B` a byte.
fn unit_bytes(unit: &str) -> Option<f64> {
    let amount = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps"))?;
    let (prefix, factor) =
        PREFIXES.iter().find(|(name, _)| amount.starts_with(name)).map_or(("", 1.0), |(name, factor)| (*name, *factor));
    match &amount[prefix.len()..] {
        "B" | "byte" | "bytes" => Some(factor),
        "b" | "bit" | "bits" => Some(factor / 8.0),
        _ => None,
    }
}

fn unknown_unit(text: &str, unit: &str) -> String {
    if unit_bytes(&format!("{unit}/s")).is_some() {
        return format!("`{text}` is an amount, not a rate: write {text}/s");
    }
    if matches!(unit.to_ascii_lowercase().as_str(), "gb/s" | "mb/s" | "kb/s" | "tb/s" | "gbps" | "mbps" | "tbps") {
        return format!("`{text}` may mean bits or bytes: write Gbit/s for bits or GB/s for bytes");
    }
    format!("`{unit}` in `{text}` is no unit of rate: use bit/s, kbit/s, Mbit/s, Gbit/s, B/s, MB/s, GB/s or GiB/s")
}

/// Formats bytes per second in powers of ten: `60.606 GB/s`.
pub fn format_rate(bytes_per_s: f64) -> String {
    let (value, unit) = match bytes_per_s.abs() {
        rate if rate >= 1e12 => (bytes_per_s / 1e12, "TB/s"),
        rate if rate >= 1e9 => (bytes_per_s / 1e9, "GB/s"),
        rate if rate >= 1e6 => (bytes_per_s / 1e6, "MB/s"),
        rate if rate >= 1e3 => (bytes_per_s / 1e3, "kB/s"),
        _ => (bytes_per_s, "B/s"),
    };
    let digits = if value.abs() >= 100.0 { 1 } else { 3 };
    format!("{value:.digits$} {unit}")
}

/// Formats operations per second: `12.3 k/s`.
pub fn format_operations(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{:.2} M/s", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1} k/s", rate / 1e3),
        rate => format!("{rate:.0} /s"),
    }
}

/// Formats nanoseconds: `12.3 us`.
pub fn format_nanoseconds(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.2} us", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// Formats seconds: `1h 02m`, `4m 30s`, `12 s`.
pub fn format_seconds(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 if seconds < 10.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole % 3600 / 60),
    }
}

/// Formats a count: `1 stream`, `2 streams`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

pub fn format_share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_rate(self.0))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Rate;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate with its unit in quotes, such as \"100 Gbit/s\" or \"12.5 GB/s\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
                Rate::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_bytes_are_told_apart() {
        assert_eq!(Rate::parse("100 Gbit/s").unwrap().bytes_per_s(), 12.5e9);
        assert_eq!(Rate::parse("100Gb/s").unwrap().bytes_per_s(), 12.5e9);
        assert_eq!(Rate::parse("100 Gbps").unwrap().bytes_per_s(), 12.5e9);
        assert_eq!(Rate::parse("12.5 GB/s").unwrap().bytes_per_s(), 12.5e9);
        assert_eq!(Rate::parse("12_500 MB/s").unwrap().bytes_per_s(), 12.5e9);
        assert_eq!(Rate::parse("1 GiB/s").unwrap().bytes_per_s(), 1_073_741_824.0);
        assert_eq!(Rate::parse("8 bit/s").unwrap().bytes_per_s(), 1.0);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write() {
        for (text, part) in [
            ("100", "has no unit"),
            ("100 gb/s", "bits or bytes"),
            ("100 GB", "not a rate"),
            ("-3 GB/s", "not above zero"),
            ("0 GB/s", "not above zero"),
            ("9e9 GB/s", "no unit of rate"),
            ("900000 TB/s", "are the units right"),
            ("fast", "is no rate"),
            ("3 furlong/s", "no unit of rate"),
        ] {
            let error = Rate::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_written_with_their_unit() {
        assert_eq!(format_rate(60.606_060_6e9), "60.606 GB/s");
        assert_eq!(format_rate(387.878e9), "387.9 GB/s");
        assert_eq!(format_rate(905.6e6), "905.6 MB/s");
        assert_eq!(format_operations(123_456.0), "123.5 k/s");
        assert_eq!(format_nanoseconds(1_500.0), "1.50 us");
        assert_eq!(format_seconds(3_720.0), "1h 02m");
        assert_eq!(format_share(0.8406), "84.1 %");
    }
}
