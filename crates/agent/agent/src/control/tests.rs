//! Tests of a control socket over a real agent, with requests as the command line sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use config::{Policy, PolicySet};
use file_cache::{FileCache, Settings};
use global_store::posix::{PosixStore, StoreOptions};
use posix_namespace::PosixNamespace;
use rustix::fs::{Mode, OFlags};

use super::*;
use crate::{Agent, PolicyTable};

struct Stand {
    directory: tempfile::TempDir,
    asked_to_end: Arc<AtomicU32>,
    _listener: ControlListener,
}

impl Stand {
    fn new() -> Stand {
        let directory = tempfile::tempdir().unwrap();
        let (data, buffer) = (directory.path().join("data"), directory.path().join("x".repeat(150)));
        std::fs::create_dir_all(data.join("deep/er")).unwrap();
        std::fs::write(data.join("deep/er/file"), b"content").unwrap();
        std::fs::create_dir(&buffer).unwrap();
        let root = rustix::fs::open(&data, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let cache = FileCache::open(Settings::new(&buffer, Arc::new(store.clone()), "test")).unwrap();
        let policies = PolicyTable::load(Policy::default(), buffer.join("policies.toml")).unwrap();
        let agent =
            Arc::new(Agent::new(Arc::new(cache), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap());
        let asked_to_end = Arc::new(AtomicU32::new(0));
        let counter = asked_to_end.clone();
        let on_shutdown = Box::new(move |force| {
            counter.store(1 + u32::from(force), Ordering::SeqCst);
        });
        let listener = ControlListener::start(agent, &buffer, on_shutdown).unwrap();
        Stand { directory, asked_to_end, _listener: listener }
    }

    fn ask(&self, request: &ControlRequest) -> (Vec<Reply>, Reply) {
        let mut before = Vec::new();
        let mut client = ControlClient::connect(&self.directory.path().join("x".repeat(150))).unwrap();
        let last = client.request(request, |reply| before.push(reply.clone())).unwrap();
        (before, last)
    }

    fn result(&self, request: &ControlRequest) -> serde_json::Value {
        match self.ask(request).1 {
            Reply::Done { result } => result,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_running_agent_answers_even_in_a_burst_buffer_with_a_long_path() {
    let stand = Stand::new();
    assert_eq!(stand.result(&ControlRequest::Ping)["pid"], std::process::id());
    assert!(stand.result(&ControlRequest::Status)["files"].is_u64());
}

#[test]
fn rules_are_set_inherited_listed_and_unset() {
    let stand = Stand::new();
    let rules = PolicySet::parse(["cache=through"]).unwrap();
    stand.result(&ControlRequest::PolicySet { path: "deep".into(), rules });
    assert_eq!(stand.result(&ControlRequest::PolicyGet { path: "deep/er/file".into() })["cache"], "through");
    assert_eq!(stand.result(&ControlRequest::PolicyGet { path: ".".into() })["cache"], "both");
    assert_eq!(stand.result(&ControlRequest::PolicyList)["deep"]["cache"], "through");
    stand.result(&ControlRequest::PolicyUnset { path: "deep".into(), keys: vec![] });
    assert_eq!(stand.result(&ControlRequest::PolicyGet { path: "deep/er/file".into() })["cache"], "both");
}

#[test]
fn staging_names_what_failed_and_counts_the_rest() {
    let stand = Stand::new();
    let stage = |verb, paths: &[&str], recursive| {
        let paths = paths.iter().map(PathBuf::from).collect();
        stand.ask(&ControlRequest::Stage { verb, paths, recursive, wait: true })
    };
    let (items, last) = stage(Verb::In, &["deep", "missing"], true);
    assert_eq!(last, Reply::Done { result: serde_json::json!({ "done": 1, "failed": 1 }) });
    assert!(matches!(&items[..], [Reply::Item(item)] if item.path == Path::new("missing") && item.error.is_some()));
    let (items, _) = stage(Verb::State, &["deep/er/file"], false);
    assert!(matches!(&items[..], [Reply::Item(item)] if item.state == "clean"), "{items:?}");
    let (_, last) = stage(Verb::In, &["deep"], false);
    assert_eq!(last, Reply::Done { result: serde_json::json!({ "done": 0, "failed": 1 }) });
}

#[test]
fn draining_quiescing_and_ending_are_passed_on() {
    let stand = Stand::new();
    stand.result(&ControlRequest::Quiesce);
    stand.result(&ControlRequest::Resume);
    assert_eq!(stand.result(&ControlRequest::Drain { path: None, wait: true, patience_ms: None })["stuck"], 0);
    stand.result(&ControlRequest::Drain { path: Some("deep".into()), wait: true, patience_ms: None });
    stand.result(&ControlRequest::Shutdown { force: true });
    assert_eq!(stand.asked_to_end.load(Ordering::SeqCst), 2);
}

#[test]
fn nonsense_and_paths_outside_are_refused() {
    use std::io::{BufRead, BufReader, Write};
    let stand = Stand::new();
    let outside = ControlRequest::PolicyGet { path: "../etc".into() };
    assert!(matches!(stand.ask(&outside).1, Reply::Failed { errno: libc::EINVAL, .. }));
    let resolve = ControlRequest::Resolve { file: "missing".into(), keep: Keep::Global };
    assert!(matches!(stand.ask(&resolve).1, Reply::Failed { errno: libc::ENOENT, .. }));
    let directory = std::fs::File::open(stand.directory.path().join("x".repeat(150))).unwrap();
    let mut raw = std::os::unix::net::UnixStream::connect(short_path(&directory, Path::new(SOCKET))).unwrap();
    raw.write_all(b"{\"command\":\"dance\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(raw).read_line(&mut line).unwrap();
    assert!(line.contains("failed"), "{line}");
}

#[test]
fn an_agent_that_says_nothing_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let _mute = std::os::unix::net::UnixListener::bind(directory.path().join(SOCKET)).unwrap();
    let connect = || ControlClient::connect_within(directory.path(), std::time::Duration::from_millis(20)).unwrap();
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    assert_eq!(connect().agent(), Some(std::process::id() as i32));
    assert_eq!(kind(connect().request(&ControlRequest::Status, |_| {}).map(|_| ())), std::io::ErrorKind::TimedOut);
    assert_eq!(kind(connect().wait_for_end(None)), std::io::ErrorKind::TimedOut);
    // Also when so many connections are queued that no more are accepted.
    let mut waiting = Vec::new();
    let full = loop {
        match ControlClient::connect_within(directory.path(), std::time::Duration::from_millis(20)) {
            Ok(client) => waiting.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn the_end_of_an_agent_is_waited_for() {
    use std::io::{BufRead, Write};
    // An agent closes its connections when its process ends. The agent of a test cannot end, so the test plays one.
    let directory = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(directory.path().join(SOCKET)).unwrap();
    let client = ControlClient::connect(directory.path()).unwrap();
    let waiting = std::thread::spawn(move || client.wait_for_end(None));
    let (mut stream, _) = listener.accept().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(&stream).read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<ControlRequest>(&line).unwrap(), ControlRequest::Ping);
    let alive = serde_json::to_string(&Reply::Done { result: serde_json::Value::Null }).unwrap();
    writeln!(stream, "{alive}").unwrap();
    assert!(!waiting.is_finished(), "an agent that answers has not ended");
    drop(stream);
    waiting.join().unwrap().unwrap();
}
