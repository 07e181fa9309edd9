//! Parsing and formatting of durations (`250ms`, `10s`, `5m`, `1h`, `2d`) and sizes (`4096`, `64KiB`, `1.5GiB`,
//! `10MB`).

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Longest accepted duration in milliseconds: a hundred years, so that adding one to a clock cannot overflow.
const DURATION_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// Splits `12.5MiB` into the number and the unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

/// Parses a duration: a number and a unit of `ms`, `s`, `m`, `h`, `d`; plain `0` needs none. Errors: a sentence for the
/// user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration: write for example 10s, 5m, 1h or 2d");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    if number == 0.0 && unit.is_empty() {
        return Ok(Duration::ZERO);
    }
    let (_, ms) = DURATIONS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let total = number * *ms as f64;
    if total > DURATION_MS_MAX as f64 {
        return Err(format!("`{text}` is longer than a hundred years"));
    }
    Ok(Duration::from_millis(total.round() as u64))
}

/// Formats a duration in the largest unit that is exact, at the finest in milliseconds. [`parse_duration`] reads the
/// result.
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis() as u64;
    if ms == 0 {
        return "0s".to_string();
    }
    let (unit, size) = DURATIONS.iter().rev().find(|(_, size)| ms.is_multiple_of(*size)).unwrap_or(&DURATIONS[0]);
    format!("{}{unit}", ms / size)
}

/// Parses a size in bytes: a number and a unit. Errors: a sentence for the user.
///
/// `KiB`, `MiB`, `GiB`, `TiB` and their short forms `K` to `T` are powers of 1024. `KB` to `TB` are powers of 1000. A
/// number without a unit is in bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size: write for example 4096, 64KiB, 16MiB or 1GiB");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let (_, bytes) = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
    let total = number * *bytes as f64;
    if total >= i64::MAX as f64 {
        return Err(format!("`{text}` is more than a file can hold"));
    }
    Ok(total.round() as u64)
}

/// Formats a size in the largest binary unit that is exact. [`parse_size`] reads the result.
pub fn format_size(bytes: u64) -> String {
    let exact = SIZES[2..6].iter().rev().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    exact.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        for text in ["0s", "90s", "1h", "2d", "250ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes_read_as_written() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("64m"), Ok(64 << 20));
        assert_eq!(parse_size("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_size("10MB"), Ok(10_000_000));
        for text in ["0", "1000", "64KiB", "1MiB", "3TiB"] {
            assert_eq!(format_size(parse_size(text).unwrap()), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "s", "10", "10 parsecs", "-1s", "1e9d", "99999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "MiB", "1..5", "5 sheep", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_duration("fast").unwrap_err().contains("10s"));
    }
}
