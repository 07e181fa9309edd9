//! Environment variables about a program's windows.

/// Name of the variable with the path of the agent's socket. Without it there are no windows.
pub const SOCKET: &str = "FOREBAY_WINDOW_SOCKET";

/// Name of the variable with a [`Wish`].
pub const WISH: &str = "FOREBAY_WINDOW";

/// Description of the valid texts of a wish.
pub const WISHES: &str =
    "off, or a whole number of bytes from 1, with a unit if you like: 4096, 64KiB, 16MiB, 1GiB, 10MB";

/// User's wish for the windows of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// No windows.
    Off,
    /// Windows as the policy says.
    Policy,
    /// Windows of this many bytes each.
    Bytes(u64),
}

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
];

/// Parses a wish. Sizes are the whole numbers that policies accept. Returns `None` if the text is not one of
/// [`WISHES`]. Allocates nothing.
pub fn wish(text: &[u8]) -> Option<Wish> {
    let text = core::str::from_utf8(text).ok()?.trim();
    match text {
        "" => return Some(Wish::Policy),
        "off" => return Some(Wish::Off),
        _ => {}
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    let bytes = number.parse::<u64>().ok()?.checked_mul(*bytes)?;
    (1..i64::MAX as u64).contains(&bytes).then_some(Wish::Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_off_or_a_whole_size() {
        assert_eq!((wish(b""), wish(b"off")), (Some(Wish::Policy), Some(Wish::Off)));
        for (text, bytes) in [
            ("1", 1),
            ("16MiB", 16 << 20),
            (" 64k ", 64 << 10),
            ("2 GiB", 2 << 30),
            ("10MB", 10_000_000),
            ("4096B", 4096),
        ] {
            assert_eq!(wish(text.as_bytes()), Some(Wish::Bytes(bytes)), "{text}");
        }
        for text in ["0", "0K", "much", "MiB", "1.5MiB", "+1", "16mango", "16 M B", "9999999T", "Off", "0x10", "-1"] {
            assert_eq!(wish(text.as_bytes()), None, "{text}");
        }
        assert_eq!(wish(b"\xff16"), None);
    }
}
