//! Words of commands that users are told to give.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Characters that mean nothing to a shell, wherever in a word.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-+=:,./@%".contains(byte)
}

/// A path or other value as a shell takes it for one word. Bytes that no terminal shows are written out, in the way of bash.
pub fn word(value: impl AsRef<OsStr>) -> String {
    let value = value.as_ref();
    if !value.is_empty() && value.as_bytes().iter().all(is_plain) {
        return value.to_string_lossy().into_owned();
    }
    match value.to_str().filter(|text| !text.contains(char::is_control)) {
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_takes_a_word_for_the_path_that_it_is() {
        assert_eq!(word("/scratch/run-1/out.h5"), "/scratch/run-1/out.h5");
        let odd: [&[u8]; 9] =
            [b"", b"a b", b"it's", b"$HOME", b"a;b&c|d", b"*", b"new\nline", b"\xff\\'x", "\u{e9}t\u{e9}".as_bytes()];
        for value in odd {
            let value = OsStr::from_bytes(value);
            let told = Command::new("bash").arg("-c").arg(format!("printf %s {}", word(value))).output().unwrap();
            assert_eq!(told.stdout, value.as_bytes(), "{}", word(value));
        }
        assert!(!word("new\nline").contains('\n'));
    }
}
