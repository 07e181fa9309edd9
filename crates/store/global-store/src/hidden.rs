//! Names of files that are not yet what they are to be, and that nobody shall see who looks through us.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const PREFIX: &[u8] = b".forebay-new-";
/// Digits of each of the two numbers, which a dash parts.
const DIGITS: usize = 16;

/// The name of one. `owner`: an agent, by what no other agent is called; `number`: one that it uses once at a time.
pub fn name(owner: &str, number: u64) -> OsString {
    // FNV-1a: it must be the same in every version of this program.
    let owner = owner
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!(".forebay-new-{owner:016x}-{number:016x}").into()
}

/// Whether it is such a name, of whatever agent.
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

    #[test] // S53
    fn a_hidden_name_is_known_for_one_and_no_other_is() {
        assert_eq!(name("host:1", 7), name("host:1", 7));
        assert_ne!(name("host:1", 7), name("host:2", 7));
        assert!(is_hidden(&name("", 0)) && is_hidden(&name("host", u64::MAX)));
        for other in ["", ".forebay-new-", ".forebay-new-0-0", ".forebay-new-0123456789abcdef-0123456789ABCDEF"] {
            assert!(!is_hidden(OsStr::new(other)), "{other}");
        }
    }
}
