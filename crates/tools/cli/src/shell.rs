//! Words of commands that users are told to give.

pub use types::word;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;

    #[test] // S21
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
