//! File names in a form that is safe to print, for the output of commands and for log lines.
//!
//! Whoever may create a file chooses its name. A terminal could obey control characters in that name, and a reader of
//! the log could take it for log lines. Output for programs (`--json`) is not escaped.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns whether a byte has no special meaning to a shell, wherever in a word.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-+=:,./@%".contains(byte)
}

/// Returns whether a terminal may do something else with a character than print it in place.
///
/// That holds for control characters, line breaks, characters that change the direction of text, and invisible
/// characters.
fn is_unseen(of: char) -> bool {
    of.is_control()
        || matches!(of, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns the bytes as text, or `None` if a terminal would not show every character.
fn seen(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains(is_unseen))
}

/// Quotes a path or other value as one word for a shell. Bytes that a terminal does not show are escaped in bash's
/// `$'...'` syntax.
pub fn word(value: impl AsRef<OsStr>) -> String {
    let value = value.as_ref();
    if !value.is_empty() && value.as_bytes().iter().all(is_plain) {
        return value.to_string_lossy().into_owned();
    }
    match seen(value.as_bytes()) {
        Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
        None => {
            let escaped = value.as_bytes().iter().map(|byte| match byte {
                b'\'' | b'\\' => format!("\\{}", *byte as char),
                b' '..=b'~' => (*byte as char).to_string(),
                other => format!("\\x{other:02x}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

/// Values that can be printed for people.
pub trait Shown {
    /// Returns the text unchanged if a terminal shows all of it, otherwise quoted by [`word`].
    fn shown(&self) -> Cow<'_, str>;
}

impl Shown for Path {
    fn shown(&self) -> Cow<'_, str> {
        seen(self.as_os_str().as_bytes()).map_or_else(|| word(self).into(), Cow::Borrowed)
    }
}

impl Shown for str {
    fn shown(&self) -> Cow<'_, str> {
        Path::new(self).shown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S21
    fn a_name_is_shown_as_it_is_or_written_out_where_a_terminal_would_obey_it() {
        for plain in ["/scratch/a b", "it's", "\u{e9}t\u{e9}", "a\\nb", ""] {
            assert_eq!(Path::new(plain).shown(), plain);
        }
        let orders: [&[u8]; 7] = [
            b"\x1b[2J",
            b"a\nb",
            b"\r",
            b"\xff",
            "\u{9b}2J".as_bytes(),
            "x\u{202e}gpj.exe".as_bytes(),
            "\u{2028}".as_bytes(),
        ];
        for name in orders {
            let path = Path::new(OsStr::from_bytes(name));
            assert!(path.shown().starts_with("$'"), "{}", path.shown());
            assert!(path.shown().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", path.shown());
            assert_eq!(path.shown(), word(path));
        }
    }
}
