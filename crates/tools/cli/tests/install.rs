//! Files that `make install` installs, and where.

mod common;

use std::fs;
use std::process::Command;

#[test]
fn the_command_is_installed_with_its_library_its_pages_and_completions() {
    let tree = tempfile::tempdir().unwrap();
    let (built, prefix) = (tree.path().join("built"), tree.path().join("usr"));
    fs::create_dir(&built).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_forebay"), built.join("forebay")).unwrap();
    // The library belongs to another package, and need not have been built.
    fs::write(built.join("libforebay_preload.so"), "the library").unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/install.sh");
    let installed = Command::new(script).args([&built, &prefix]).output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let has = |file: &str, text: &str| {
        let found = fs::read_to_string(prefix.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(found.contains(text), "{file}");
    };
    has("share/man/man1/forebay-run.1", "burst");
    has("share/man/man1/forebay-stage-in.1", "burst");
    has("share/bash-completion/completions/forebay", "complete");
    has("share/zsh/site-functions/_forebay", "#compdef forebay");
    has("share/fish/vendor_completions.d/forebay.fish", "complete -c forebay");
    let command = common::start(Command::new(prefix.join("bin/forebay")).args(["doctor", "--json"]), "").wait();
    let library = fs::canonicalize(prefix.join("lib/forebay/libforebay_preload.so")).unwrap();
    // The stub counts as another version, which shows that it was found.
    assert!(command.out.contains(library.to_str().unwrap()), "{command:?}");
}
