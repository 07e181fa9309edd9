//! Tests of the verdict on the paper's table, and that a report is one file without omissions.

use std::fs;

use super::*;
use crate::cluster::Cluster;
use crate::factors::{Factors, Options};
use crate::probe::Probe;

const CLUSTER: &str = include_str!("../../examples/omnipath-lustre.toml");
const TABLE: &str = include_str!("../../examples/omnipath-lustre.csv");

fn paper() -> (tempfile::TempDir, Report) {
    let directory = tempfile::tempdir().unwrap();
    let (plan, table) = (directory.path().join("plan.json"), directory.path().join("table.csv"));
    let cluster = Cluster::parse(CLUSTER, Path::new("cluster.toml")).unwrap();
    Results::new(Stage::Plan(plan::Plan::of(&cluster, &[]).unwrap())).save(&plan).unwrap();
    fs::write(&table, TABLE).unwrap();
    let report = Report::read(&[table, plan]).unwrap();
    (directory, report)
}

#[test]
fn the_papers_cluster_gets_a_verdict_in_plain_words() {
    let (_directory, report) = paper();
    let verdict = report.verdict.join("\n");
    assert_eq!(
        report.verdict[0],
        "the I/O nodes' links bind; 15.9 % is lost between data sheet and programs; the client's software saturates at 8 processes"
    );
    for part in [
        "by specification the I/O nodes' links bind writers, at 60.606 GB/s",
        "15.9 % is lost between data sheet and programs",
        "best: 50.943 GB/s with M=32 N=32",
        "one node saturates at N=8 with 6.974 GB/s, 57.5 % of its link: the client's software binds there",
        "knee at 64 processes",
        "eta = 0.841",
    ] {
        assert!(verdict.contains(part), "{part} is not in:\n{verdict}");
    }
    assert_eq!(report.steps.len(), 2);
    assert!((report.steps[1].write_kept.unwrap() - 0.840_56).abs() < 1e-4);
}

/// A burst buffer and the accelerated directory: two sweeps with one pattern.
#[test]
fn what_is_lost_between_two_places_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let table = |name: &str, rate: u32| {
        let path = directory.path().join(name);
        fs::write(&path, format!("M,N,MB/s\n1,1,{rate}\n")).unwrap();
        path
    };
    let paths = [table("buffer.csv", 1000), table("fast.csv", 690), table("store.csv", 2500)];
    let verdict = Report::read(&paths).unwrap().verdict.join("\n");
    assert!(verdict.contains("table write: 31.0 % is lost between ") && verdict.contains("fast.csv\n"), "{verdict}");
    assert!(verdict.contains("store.csv gives 2.50 times what "), "{verdict}");
}

/// Missing runs are reported first and in every format: a part is never presented as the whole.
#[test]
fn an_unfinished_sweep_and_its_holes_are_told_in_every_form() {
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("table.csv");
    fs::write(&table, "M,N,MB/s\n1,1,100\n").unwrap();
    let mut results = Report::read(std::slice::from_ref(&table)).unwrap().sources.remove(0).results;
    let Stage::Sweep(sweep) = &mut results.stage else { panic!("a table is a sweep") };
    sweep.complete = false;
    let saved = directory.path().join("sweep.json");
    results.save(&saved).unwrap();
    let unfinished = Report::read(std::slice::from_ref(&saved)).unwrap();
    assert!(unfinished.verdict.join("\n").contains("table: the sweep was not finished"), "{:?}", unfinished.verdict);
    let Stage::Sweep(sweep) = &mut results.stage else { panic!("a table is a sweep") };
    sweep.holes.push(sweep::Hole { groups: 2, processes: 1, repetition: 0, why: "group 1 on n2 ended early".into() });
    results.save(&saved).unwrap();
    let report = Report::read(std::slice::from_ref(&saved)).unwrap();
    assert!(report.verdict.join("\n").contains("1 runs are missing, the first because group 1 on n2"));
    for form in ["r.html", "r.txt", "r.json", "r.csv"] {
        let text = report.form(Path::new(form)).unwrap();
        assert!(text.contains("group 1 on n2 ended early"), "{form}:\n{text}");
    }
}

#[test]
fn the_page_needs_nothing_but_itself_and_is_well_formed() {
    let (directory, mut report) = paper();
    report.verdict.push("<script>alert('&')</script>".to_string());
    let page = report.form(&directory.path().join("r.html")).unwrap();
    for outside in ["http:", "https:", "<script", "<link", "@import", "url(", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("&lt;script&gt;") && page.contains("<svg") && page.contains("M=32"));
    // Every opened element is closed, in order.
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "in {tag}");
        } else if !tag.ends_with('/') && !tag.starts_with('!') && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn every_form_holds_every_cell() {
    let (directory, report) = paper();
    let form = |name: &str| report.form(&directory.path().join(name)).unwrap();
    let csv = form("r.csv");
    assert_eq!(csv.lines().filter(|line| line.starts_with("sweep,")).count(), 49);
    assert!(csv.contains("table write,32,32,50943200000,B/s,"), "{csv}");
    assert!(form("r.json").contains("\"verdict\""));
    let text = form("r.txt");
    assert!(text.contains("50943"));
    // A table of another tool states neither the cost of its generator, nor latencies, nor the rates of groups.
    assert!(
        !text.contains("0 ns") && !text.contains("busy") && !text.contains("the slowest and the fastest"),
        "{text}"
    );
    assert!(report.form(Path::new("r.pdf")).unwrap_err().message.contains("ends in .html"));
}

/// Every format reports the missing parts of an interrupted probe and of interrupted factors.
#[test]
fn what_was_not_measured_is_told_in_every_form() {
    let directory = tempfile::tempdir().unwrap();
    let (probe, factors) = (directory.path().join("probe.json"), directory.path().join("factors.json"));
    let left = vec!["medium /scratch".to_string()];
    let found = Probe { left, findings: vec!["missing: /dev/x is no device".into()], ..Probe::default() };
    Results::new(Stage::Probe(found)).save(&probe).unwrap();
    let target = directory.path().to_path_buf();
    let options = Options { target, seconds: 1.0, repeat: 1, size_max: 1 << 30, block: 4096 };
    Results::new(Stage::Factors(Factors::new(options))).save(&factors).unwrap();
    let report = Report::read(&[probe, factors]).unwrap();
    let verdict = report.verdict.join("\n");
    for part in [
        "missing: /dev/x is no device",
        "probe: not finished; not measured: medium /scratch",
        "factors: not finished; not measured: block size, writing",
    ] {
        assert!(verdict.contains(part), "{part} is not in:\n{verdict}");
    }
    for name in ["r.html", "r.txt", "r.json", "r.csv"] {
        let form = report.form(&directory.path().join(name)).unwrap();
        assert!(form.contains("medium /scratch") && form.contains("sub-blocks, creating"), "{name}: {form}");
    }
}

#[test]
fn a_table_that_cannot_be_read_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    for (text, part) in [
        ("", "t.csv:1: is empty"),
        ("M,N\n", "t.csv:1: the heading must be"),
        ("M,N,MB\n1,1,5\n", "not a rate"),
        ("M,N,MB/s\n1,1\n", "t.csv:2: a line has three values"),
        ("M,N,MB/s\n0,1,5\n", "t.csv:2: M and N are whole numbers"),
        ("M,N,MB/s\n1,1,-5\n", "not above zero"),
        ("M,N,MB/s\n# none\n", "holds no line"),
    ] {
        fs::write(&path, text).unwrap();
        let message = Report::read(std::slice::from_ref(&path)).unwrap_err().message;
        assert!(message.contains(part), "{text:?}: {message}");
    }
}

#[test]
fn what_is_no_result_or_a_newer_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.json");
    for (text, part) in [
        ("{}", "holds no results"),
        ("not json", "holds no results"),
        (
            "{\"forebay_limits\":99,\"version\":\"9\",\"host\":\"h\",\"kernel\":\"k\",\"started_unix_s\":0,\"stage\":\"probe\",\
             \"results\":{\"measurements\":[],\"media\":[],\"promises\":[],\"findings\":[]}}",
            "a newer forebay wrote it",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let message = Report::read(std::slice::from_ref(&path)).unwrap_err().message;
        assert!(message.contains(part), "{text:?}: {message}");
    }
    let message = Report::read(&[directory.path().join("missing.json")]).unwrap_err().message;
    assert!(message.contains("missing.json"), "{message}");
}
