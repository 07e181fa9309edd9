//! `docs/commands.md` is what the program says of itself.

mod common;

use std::fmt::Write;

use common::{forebay, start};

const COMMANDS: [&str; 34] = [
    "",
    "run",
    "mount",
    "umount",
    "status",
    "stage",
    "stage in",
    "stage out",
    "stage evict",
    "stage pin",
    "stage unpin",
    "stage state",
    "drain",
    "quiesce",
    "resolve",
    "policy",
    "policy get",
    "policy set",
    "policy unset",
    "policy list",
    "recover",
    "check",
    "doctor",
    "completions",
    "limits",
    "limits plan",
    "limits sweep",
    "limits probe",
    "limits watch",
    "limits factors",
    "limits report",
    "limits peer",
    "limits experiments",
    "man",
];

fn help(command: &str) -> String {
    let mut words = forebay();
    words.args(command.split_ascii_whitespace()).arg("--help").env_remove("COLUMNS");
    let done = start(&mut words, "").wait();
    assert_eq!(done.code, 0, "{done:?}");
    done.out.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_in_the_repository_says_what_the_program_says() {
    let mut page = String::from(
        "# Commands\n\n<!-- Made from what the program says: FOREBAY_WRITE_DOCS=1 cargo test -p cli --test documents -->\n",
    );
    for command in COMMANDS {
        let title = if command.is_empty() { "forebay".to_string() } else { format!("forebay {command}") };
        write!(page, "\n## {title}\n\n```text\n{}\n```\n", help(command).trim_end()).unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/commands.md");
    if std::env::var_os("FOREBAY_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page, "run FOREBAY_WRITE_DOCS=1 cargo test -p cli --test documents");
}
