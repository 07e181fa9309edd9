//! `docs/commands.md` must equal the program's help.

mod common;

use std::fmt::Write;

use common::{forebay, start};

fn help(command: &str) -> String {
    let mut words = forebay();
    words.args(command.split_ascii_whitespace()).arg("--help").env_remove("COLUMNS");
    let done = start(&mut words, "").wait();
    assert_eq!(done.code, 0, "{done:?}");
    done.out.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The page of a command, then those of the commands below it, in the order of its help.
fn write_command(page: &mut String, command: &str) {
    let title = format!("forebay {command}");
    let help = help(command);
    write!(page, "\n## {}\n\n```text\n{}\n```\n", title.trim_end(), help.trim_end()).unwrap();
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continuation lines are indented further.
    let names = below.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    for name in names.filter(|name| *name != "help") {
        write_command(page, format!("{command} {name}").trim_start());
    }
}

#[test]
fn the_page_in_the_repository_says_what_the_program_says() {
    let mut page = String::from(
        "# Commands\n\n<!-- Made from what the program says: FOREBAY_WRITE_DOCS=1 cargo test -p cli --test documents -->\n",
    );
    write_command(&mut page, "");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/commands.md");
    if std::env::var_os("FOREBAY_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page, "run FOREBAY_WRITE_DOCS=1 cargo test -p cli --test documents");
}
