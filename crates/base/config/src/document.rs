//! The documentation page generated from the table of keys.

use std::fmt::Write;

use crate::keys::{ABSENT, KEYS};

/// Returns the complete text of `docs/policies.md`. A test compares it with the file; `FOREBAY_WRITE_DOCS=1 cargo test
/// -p config` rewrites the file.
pub fn policies_page() -> String {
    let mut page = String::from(
        "# Policies\n\n\
         <!-- Made from crates/base/config/src/keys.rs: FOREBAY_WRITE_DOCS=1 cargo test -p config -->\n\n\
         A policy is a set of `KEY=VALUE` rules of a directory. Directories below inherit it and may say otherwise; \
         files opened from then on follow it. Set it with `forebay policy set DIR KEY=VALUE`, or for a whole run with \
         `--policy KEY=VALUE`.\n\n\
         | key | values | default | meaning |\n| --- | --- | --- | --- |\n",
    );
    for key in &KEYS {
        let values: Vec<String> = key.syntax.split('|').map(|value| format!("`{value}`")).collect();
        let _ = writeln!(page, "| `{}` | {} | `{}` | {} |", key.name, values.join(", "), key.default, key.meaning);
    }
    let absent: Vec<String> = ABSENT.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(
        page,
        "\n`T` is a duration: `250ms`, `10s`, `5m`, `1h`, `2d`. `N` is a size in bytes: `4096`, `64KiB`, `16MiB`, \
         `1GiB`; `10MB` is a power of ten. `COUNT` is a number from 1 to 1024.\n\nPlanned keys are refused until they do what they say: {}.\n",
        absent.join(", ")
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_repository_is_the_one_the_table_makes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/policies.md");
        if std::env::var_os("FOREBAY_WRITE_DOCS").is_some() {
            std::fs::write(path, policies_page()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert_eq!(page, policies_page(), "run FOREBAY_WRITE_DOCS=1 cargo test -p config");
    }
}
