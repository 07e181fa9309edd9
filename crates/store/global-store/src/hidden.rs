//! Names of temporary files, which are still being written. They are hidden in the mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const PREFIX: &[u8] = b".forebay-new-";
/// Digits of each of the two numbers, which a dash separates.
const DIGITS: usize = 16;

/// Returns the name of a temporary file. `owner` is an agent's unique name. `number` is one that the agent does not use
/// for two files at a time.
pub fn name(owner: &str, number: u64) -> OsString {
    // FNV-1a; it must not change between versions of this program.
    let owner = owner
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!(".forebay-new-{owner:016x}-{number:016x}").into()
}

/// Returns whether `name` is a temporary file of any agent.
pub fn is_hidden(name: &OsStr) -> bool {
    let Some(digits) = name.as_bytes().strip_prefix(PREFIX) else { return false };
    let is_number = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    digits.len() == 2 * DIGITS + 1
        && digits[DIGITS] == b'-'
        && is_number(&digits[..DIGITS])
        && is_number(&digits[DIGITS + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S71
    fn a_hidden_name_is_known_for_one_and_no_other_is() {
        assert_eq!(name("host:1", 7), name("host:1", 7));
        assert_ne!(name("host:1", 7), name("host:2", 7));
        assert!(is_hidden(&name("", 0)) && is_hidden(&name("host", u64::MAX)));
        for other in ["", ".forebay-new-", ".forebay-new-0-0", ".forebay-new-0123456789abcdef-0123456789ABCDEF"] {
            assert!(!is_hidden(OsStr::new(other)), "{other}");
        }
    }
}
