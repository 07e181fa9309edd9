//! Names of files as people are shown them: in what commands print, and in lines of a log. Whoever may make a file says what it is
//! called, and a terminal or a log takes some of that for orders and for lines of ours. What programs read (`--json`) has names as they
//! are.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Characters that mean nothing to a shell, wherever in a word.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-+=:,./@%".contains(byte)
}

/// Whether a terminal does something else with a character than show it where it stands: controls, breaks of lines, and what turns the
/// direction of a text or is not seen in it.
fn is_unseen(of: char) -> bool {
    of.is_control()
        || matches!(of, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Bytes as text, if a terminal shows all of it.
fn seen(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains(is_unseen))
}

/// A path or other value as a shell takes it for one word. Bytes that no terminal shows are written out, in the way of bash.
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

/// What is shown to people.
pub trait Shown {
    /// As it is, if a terminal shows all of it; else as the [`word`] that it is to a shell.
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
