//! The experiment book as a user runs it. Needs root, because it runs in private namespaces.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay-limits");

fn experiments(words: &[&str], results: &Path) -> (Option<i32>, String) {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../experiments");
    let mut command = Command::new(PROGRAM);
    command.args(["experiments", "--book", book, "--results"]).arg(results).args(words);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said)
}

/// E4-2 runs in simulated time: it needs no bed, and its figures are equal everywhere.
#[test]
fn one_experiment_is_run_kept_and_plotted() {
    let directory = tempfile::tempdir().unwrap();
    let (results, page) = (directory.path().join("results.jsonl"), directory.path().join("report.html"));
    let (code, said) = experiments(&["E4-2"], &results);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("exact, 8 writers in turn, 64 KiB, locks of 4 KiB"), "{said}");
    let first = fs::read_to_string(&results).unwrap();
    experiments(&["E4-2"], &results);
    let both = fs::read_to_string(&results).unwrap();
    assert_eq!(both.lines().count(), 2 * first.lines().count());
    let (code, said) = experiments(&["--report", page.to_str().unwrap()], &results);
    assert_eq!(code, Some(0), "{said}");
    assert!(fs::read_to_string(&page).unwrap().contains("<h2>E4-2</h2>"));
}

/// The second page ends the run with an option that no bed accepts. Figures of the first page are kept and not measured
/// again.
#[test]
fn a_run_that_ended_early_goes_on_after_its_last_page() {
    let directory = tempfile::tempdir().unwrap();
    let (book, results) = (directory.path().join("book"), directory.path().join("results.jsonl"));
    fs::create_dir(&book).unwrap();
    let locks = |id: &str| {
        let page = format!(
            "id = \"{id}\"\ntitle = \"locks\"\nkind = \"locks\"\nsharers = [2]\nsizes = [65536]\ngranularities = [4096]\n\
             bandwidth = 1e8\nround_trip_us = 100\nmanager_us = 10\n"
        );
        fs::write(book.join(format!("{id}.toml")), page).unwrap();
    };
    let run = || {
        let mut command = Command::new(PROGRAM);
        command.args(["experiments", "--book"]).arg(&book).arg("--results").arg(&results);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let figures = |id: &str| {
        let mark = format!("\"experiment\":\"{id}\"");
        fs::read_to_string(&results).unwrap().lines().filter(|line| line.contains(&mark)).count()
    };
    locks("A");
    locks("C");
    let wrong = "id = \"B\"\ntitle = \"wrong\"\nkind = \"share\"\nstore = [\"--no-such-option\"]\nsizes = [4096]\nreads = 1\n\
                 least = 0.0\nmost = 1.0\n";
    fs::write(book.join("B.toml"), wrong).unwrap();
    let (code, said) = run();
    assert_eq!(code, Some(69), "{said}");
    let once = figures("A");
    assert!(once > 0 && figures("C") == 0, "{said}");
    let (code, said) = run();
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("going on after A, whose") && !said.contains("A: locks"), "{said}");
    assert_eq!(figures("A"), once);
    // Other pages are another run: all of them run, and the next run starts anew as well.
    fs::remove_file(book.join("B.toml")).unwrap();
    for times in 2..4 {
        let (code, said) = run();
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.contains("going on"), "{said}");
        assert_eq!(figures("A"), times * once, "{said}");
    }
}

#[test]
fn what_is_not_in_the_book_is_named_with_what_is() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results.jsonl");
    let (code, said) = experiments(&["E9-9"], &results);
    assert_eq!(code, Some(66), "{said}");
    assert!(
        said.contains("there is no experiment E9-9; there are E0-1, E0-2, E0-3, E0-4, E0-5, E0-6, E0-8, E3-1"),
        "{said}"
    );
    let (code, said) = experiments(&["--dry-run"], &results);
    assert!(code == Some(0) && said.contains("E4-1: ") && !results.exists(), "{said}");
    assert!(said.lines().all(|line| line.contains("about ")) && said.contains(" in all"), "{said}");
    let (_, said) = experiments(&["--dry-run", "E4-1"], &results);
    assert!(said.contains("E4-1: ") && said.contains("E4-1-eta: ") && !said.contains("E4-2"), "{said}");
    let (_, more) = experiments(&["--dry-run", "E4-1", "--mounted", "1000"], &results);
    assert!(more.contains("E4-1: ") && more != said, "{more}");
}

/// Ctrl-C reaches this program and no process in its namespaces; those end with the program.
#[test]
fn an_interrupt_ends_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let long = "id = \"E\"\ntitle = \"long\"\nkind = \"planted\"\nstories = 20000\nnamed = 0\nmounted = 0\n";
    fs::write(directory.path().join("E.toml"), long).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["experiments", "--book"]).arg(directory.path()).arg("--results").arg(directory.path().join("r"));
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("E: long") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    running.wait().unwrap();
    let (sender, ended) = channel();
    // A process that still runs keeps the pipe open.
    thread::spawn(move || sender.send(said.read_to_end(&mut Vec::new()).is_ok()));
    assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Ok(true));
}
