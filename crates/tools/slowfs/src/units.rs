//! Parsing of rates, times and sizes.

use std::time::Duration;

/// Parses a bandwidth (`120MB/s`, `1.5 GB/s`, `64MiB/s`, `1000000`) into bytes per second, 1 to 1e12.
pub fn bandwidth(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text.trim().trim_end_matches("/s"))?;
    let factor = match unit {
        "" | "B" => 1.0,
        "k" | "kB" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("`{unit}` is no unit of bandwidth: B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s or GiB/s")),
    };
    let rate = number * factor;
    // Above 1 TB/s, rounding to nanoseconds would distort the rate.
    if (1.0..=1e12).contains(&rate) { Ok(rate) } else { Err("a bandwidth is 1 B/s to 1000 GB/s".into()) }
}

/// Parses a time (`2ms`, `150us`, `0.5s`) of at most a minute.
pub fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text.trim())?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "" if number == 0.0 => 0.0,
        _ => return Err(format!("`{unit}` is no unit of time: us, ms or s")),
    };
    if seconds <= 60.0 { Ok(Duration::from_secs_f64(seconds)) } else { Err("at most 60s".into()) }
}

/// Parses a size (`4KiB`, `1MiB`, `64M`) of 1 byte to 1 PiB. `K`, `M` and `G` alone are binary, as in all sizes.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text.trim())?;
    let factor = match unit {
        "" | "B" => 1.0,
        "K" | "k" | "KiB" => 1024.0,
        "M" | "MiB" => 1024.0 * 1024.0,
        "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("`{unit}` is no unit of size: KiB, MiB or GiB")),
    };
    let size = number * factor;
    if (1.0..=(1u64 << 50) as f64).contains(&size) { Ok(size as u64) } else { Err("a size is 1 B to 1 PiB".into()) }
}

/// Parses a slow part: `2=0.5` means that the third of its kind has half the rate.
pub fn slow(text: &str) -> Result<(usize, f64), String> {
    let wrong = || format!("`{text}` is not NUMBER=PART, such as 2=0.5: number 2, counted from 0, gives half");
    let (number, part) = text.split_once('=').ok_or_else(wrong)?;
    let (number, part) = (number.parse().map_err(|_| wrong())?, part.parse::<f64>().map_err(|_| wrong())?);
    if part > 0.0 && part <= 100.0 { Ok((number, part)) } else { Err(wrong()) }
}

/// Splits a text into a number, which is not negative, and the rest.
fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].parse().map_err(|_| format!("`{text}` starts with no number"))?;
    Ok((number, text[end..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_read_with_decimal_and_binary_units() {
        assert_eq!(bandwidth("120MB/s"), Ok(120e6));
        assert_eq!(bandwidth("1.5 GB/s"), Ok(1.5e9));
        assert_eq!(bandwidth("64MiB/s"), Ok(67_108_864.0));
        assert_eq!(bandwidth("1000000"), Ok(1e6));
    }

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(time("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(time("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(time("150us"), Ok(Duration::from_micros(150)));
        assert_eq!(time("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn sizes_and_slow_parts_are_read() {
        assert_eq!((size("47008"), size("64KiB"), size("1M")), (Ok(47_008), Ok(65_536), Ok(1 << 20)));
        assert_eq!(slow("2=0.5"), Ok((2, 0.5)));
        for text in ["2", "2=0", "x=1", "2=-1"] {
            assert!(slow(text).is_err(), "{text}");
        }
        assert!(size("0").is_err() && size("1 GB").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "fast", "12 parsecs", "0", "-3MB/s", "9e99", "2000GB/s", "1.2.3MB"] {
            assert!(bandwidth(text).is_err(), "{text}");
        }
        for text in ["", "2", "2h", "61s", "-1ms"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
