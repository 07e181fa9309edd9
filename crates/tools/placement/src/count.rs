//! Numbers in sentences.

pub fn files(count: u64) -> String {
    format!("{count} file{}", if count == 1 { "" } else { "s" })
}

/// Formats a count with its verb: `1 file was`, `2 files were`.
pub fn files_were(count: u64) -> String {
    format!("{} {}", files(count), if count == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_as_one() {
        assert_eq!([files(0), files(1), files(2)], ["0 files", "1 file", "2 files"]);
        assert_eq!([files_were(1), files_were(2)], ["1 file was", "2 files were"]);
    }
}
