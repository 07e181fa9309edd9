//! The service without a network: what each request does, also when it arrives twice.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{Policy, PolicySet};
use file_cache::{FileCache, Settings};
use global_store::posix::{PosixStore, StoreOptions};
use models::DataStoreExt;
use server::{BootVerifier, Files};
use testkit::TempTree;
use transport::Service;
use types::{Identity, Timestamp};
use wire::{Code, Message, Path, Text, job, open, seek};

struct Stand {
    tree: TempTree,
    files: Files,
    session: <Files as Service>::Session,
    cache: FileCache,
}

impl Stand {
    fn new() -> Stand {
        let tree = TempTree::new();
        tree.dir("data");
        let root: OwnedFd = File::open(tree.path("data")).unwrap().into();
        let store = PosixStore::new(root, StoreOptions { shared: Some(false), ..StoreOptions::default() }).unwrap();
        let cache = FileCache::open(Settings::new(tree.path("bb"), Arc::new(store.clone()), "id")).unwrap();
        let files = {
            let boot = BootVerifier::begin(tree.root());
            Files::new(Arc::new(cache.clone()), store, "id", &tree.path("departed"), &boot).unwrap()
        };
        let session = files.begin(&[0; 16], "id", "test").unwrap();
        Stand { tree, files, session, cache }
    }

    fn ask(&self, message: Message, data: &[u8]) -> (Message, Vec<u8>) {
        let mut out = Vec::new();
        let answer = self.files.handle(&self.session, message, data, &mut out);
        (answer, out)
    }

    fn create(&self, name: &str) -> Identity {
        let file: OwnedFd = File::create(self.tree.path("data").join(name)).unwrap().into();
        PosixStore::identity_of(file.as_fd()).unwrap()
    }

    fn open(&self, handle: u64, identity: &Identity, flags: u32) -> Message {
        let policy = policy();
        let (identity, hint) = (identity.clone(), Path::default());
        self.ask(Message::Open { handle, flags, identity, hint, policy }, &[]).0
    }

    fn append(&self, end: u64, again: bool, data: &[u8]) -> Message {
        self.ask(Message::Append { handle: 1, end, again }, data).0
    }

    fn content(&self) -> Vec<u8> {
        self.ask(Message::Read { handle: 1, offset: 0, len: 1 << 20 }, &[]).1
    }
}

fn policy() -> Text {
    Text::cut(PolicySet::of(&Policy::default()).to_toml())
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.cache.shutdown();
    }
}

const BOTH: u32 = open::READ | open::WRITE;

#[test]
fn an_open_that_is_sent_again_opens_nothing_twice() {
    let stand = Stand::new();
    let identity = stand.create("file");
    let first = stand.open(1, &identity, BOTH | open::CREATED);
    assert!(matches!(first, Message::Opened { .. }), "{first:?}");
    assert_eq!(stand.open(1, &identity, BOTH | open::CREATED), first);
    assert_eq!(stand.open(2, &identity, open::READ), first, "the same version");
    assert_eq!(stand.cache.counters().handles, 2);
    let other = stand.create("other");
    assert!(matches!(stand.open(1, &other, BOTH), Message::Failed { code: Code::Exists, .. }));
    assert!(matches!(stand.open(3, &other, 1 << 20), Message::Failed { code: Code::Invalid, .. }));
    for handle in [1, 1, 2, 77] {
        assert_eq!(stand.ask(Message::Close { handle }, &[]).0, Message::Done {});
    }
    assert_eq!(stand.cache.counters().handles, 0);
    assert_eq!(stand.ask(Message::Write { handle: 1, offset: 0 }, b"x").0, Message::Unknown {});
}

#[test] // S4
fn times_of_a_removed_file_are_set_while_it_is_open() {
    let stand = Stand::new();
    let identity = stand.create("file");
    assert!(matches!(stand.open(1, &identity, BOTH | open::CREATED), Message::Opened { .. }));
    assert_eq!(stand.ask(Message::Write { handle: 1, offset: 0 }, b"abc").0, Message::Written { offset: 0 });
    let done = |message| assert_eq!(stand.ask(message, &[]).0, Message::Done {});
    done(Message::Removing { identity: identity.clone() });
    std::fs::remove_file(stand.tree.path("data/file")).unwrap();
    done(Message::Unlinked { identity: identity.clone() });
    let time = Timestamp { seconds: 2, nanos: 0 };
    let set = || {
        let (identity, hint) = (identity.clone(), Path::default());
        let [atime, mtime] = [1, 2].map(|seconds| wire::TimeChange::At(Timestamp { seconds, nanos: 0 }));
        Message::SetTimes { identity, hint, atime, mtime }
    };
    done(set());
    let told = stand.ask(Message::Attributes { identity: identity.clone() }, &[]).0;
    assert!(matches!(told, Message::Overlay { known: true, mtime, size: 3, .. } if mtime == time), "{told:?}");
    let second = Message::Truncate { identity: identity.clone(), hint: Path::default(), policy: policy(), len: 1 };
    done(second);
    assert_eq!(stand.content(), b"a");
    done(Message::Close { handle: 1 });
    let gone = stand.ask(set(), &[]).0;
    assert!(matches!(&gone, Message::Failed { code, .. } if code.errno() == libc::ESTALE), "{gone:?}");
}

#[test] // S45
fn an_append_that_a_killed_server_may_have_done_is_looked_for() {
    let stand = Stand::new();
    let identity = stand.create("log");
    stand.open(1, &identity, BOTH | open::CREATED);
    let written = |offset| Message::Written { offset };
    assert_eq!(stand.append(0, false, b"one "), written(0));
    assert_eq!(stand.append(0, true, b"one "), written(0), "it was done");
    assert_eq!(stand.append(4, true, b"two "), written(4), "it was not");
    // Others appended before and after it.
    assert_eq!(stand.append(4, false, b"three "), written(8));
    assert_eq!(stand.append(0, true, b"two "), written(4));
    assert_eq!(stand.content(), b"one two three ");
    // The server died in the middle of the append, between two pages.
    let long = vec![b'x'; 5000];
    assert_eq!(stand.append(14, false, &long[..4096 - 14]), written(14));
    assert_eq!(stand.append(14, true, &long), written(14));
    assert_eq!(stand.content(), [b"one two three ", long.as_slice()].concat());
    // Data appended by somebody else is no part of it, although it begins with the same bytes.
    assert_eq!(stand.append(5014, false, b"fo"), written(5014));
    assert_eq!(stand.append(5014, true, b"four"), written(5016));
    assert_eq!(&stand.content()[5014..], b"fofour");
}

#[test] // S41
fn the_close_of_a_handle_waits_for_its_open() {
    let stand = Stand::new();
    let identity = stand.create("file");
    let policy = Text::cut(PolicySet::of(&Policy::default()).to_toml());
    let open = Message::Open { handle: 5, flags: BOTH, identity, hint: Path::default(), policy };
    let targets = |message: &Message| stand.files.targets(&stand.session, message).unwrap();
    let shared = |one: &Message, other: &Message| targets(one).iter().any(|target| targets(other).contains(target));
    // The program was killed while its open waited: nobody else will ever close the handle.
    assert!(shared(&open, &Message::Close { handle: 5 }));
    assert!(!shared(&open, &Message::Close { handle: 6 }));
    // The open may truncate the file, so it must not be executed after later writes by another handle.
    assert!(matches!(stand.ask(open.clone(), &[]).0, Message::Opened { .. }));
    assert!(shared(&open, &Message::Write { handle: 5, offset: 0 }));
    assert!(shared(&Message::Write { handle: 5, offset: 0 }, &Message::Close { handle: 5 }));
}

#[test] // S42
fn what_settled_is_told_and_never_the_same_after_another_start() {
    let (first, second) = (Stand::new(), Stand::new());
    let identity = first.create("file");
    let staged_count = |stand: &Stand| match stand.ask(Message::Attributes { identity: identity.clone() }, &[]).0 {
        Message::Overlay { staged_count, known, .. } => (staged_count, known),
        other => panic!("{other:?}"),
    };
    assert_ne!(staged_count(&first).0, staged_count(&second).0);
    first.open(1, &identity, BOTH | open::CREATED);
    first.ask(Message::Write { handle: 1, offset: 0 }, b"abc");
    let (before, known) = staged_count(&first);
    assert!(known);
    first.ask(Message::Close { handle: 1 }, &[]);
    assert!(first.cache.drain_all().is_empty());
    let (after, known) = staged_count(&first);
    assert!(!known && after != before, "whoever looked below before must look again");
}

#[test]
fn data_travels_and_is_found_by_position() {
    let stand = Stand::new();
    let identity = stand.create("file");
    stand.open(1, &identity, BOTH | open::CREATED);
    assert_eq!(stand.ask(Message::Write { handle: 1, offset: 3 }, b"abc").0, Message::Written { offset: 3 });
    let (answer, data) = stand.ask(Message::Read { handle: 1, offset: 1, len: 100 }, &[]);
    assert_eq!((answer, data.as_slice()), (Message::Bytes {}, b"\0\0abc".as_slice()));
    assert_eq!(stand.ask(Message::End { handle: 1 }, &[]).0, Message::Position { offset: 6 });
    assert_eq!(stand.ask(Message::SetLen { handle: 1, len: 5 }, &[]).0, Message::Done {});
    let past = Message::Seek { handle: 1, offset: 5, target: seek::DATA };
    assert!(matches!(stand.ask(past, &[]).0, Message::Failed { code: Code::NoDeviceOrAddress, .. }));
    let Message::Overlay { known, size, .. } = stand.ask(Message::Attributes { identity: identity.clone() }, &[]).0
    else {
        panic!("no attributes");
    };
    assert!(known && size == 5);
    let resides = stand.ask(Message::State { identity }, &[]).0;
    assert_eq!(resides, Message::Resides { state: 3, dirty: true });
    let (answer, report) = stand.ask(Message::Status {}, &[]);
    assert_eq!(answer, Message::Report {});
    let status: data_store::Status = serde_json::from_slice(&report).unwrap();
    assert_eq!(status.dirty, 1);
}

#[test] // S37
fn what_was_written_a_while_ago_has_that_time() {
    let stand = Stand::new();
    let identity = stand.create("file");
    stand.open(1, &identity, BOTH | open::CREATED);
    let mtime = || match stand.ask(Message::Attributes { identity: identity.clone() }, &[]).0 {
        Message::Overlay { mtime, .. } => mtime,
        other => panic!("{other:?}"),
    };
    std::thread::sleep(Duration::from_millis(100));
    let write = |offset, age_ns| {
        let message = Message::WriteBackdated { handle: 1, offset, age_ns };
        assert_eq!(stand.ask(message, b"abc").0, Message::Written { offset });
    };
    let before = mtime();
    write(3, u64::MAX);
    assert_eq!(mtime(), before.next(), "never before what was there");
    write(0, 20_000_000);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now = Timestamp::from_nanos(now.as_nanos() as u64 - 20_000_000);
    assert!(before.next() < mtime() && mtime() <= now);
    let (_, data) = stand.ask(Message::Read { handle: 1, offset: 0, len: 100 }, &[]);
    assert_eq!(data, b"abcabc");
}

#[test]
fn a_job_ends_and_its_outcome_is_told_once() {
    let stand = Stand::new();
    let identity = stand.create("file");
    stand.open(1, &identity, BOTH | open::CREATED);
    stand.ask(Message::Write { handle: 1, offset: 0 }, b"abc");
    stand.ask(Message::Close { handle: 1 }, &[]);
    let begin =
        Message::Begin { job: 9, verb: job::STAGE_OUT, identity, hint: Path::default(), policy: Text::default() };
    assert_eq!(stand.ask(begin.clone(), &[]).0, Message::Done {});
    assert_eq!(stand.ask(begin, &[]).0, Message::Done {}, "it goes on");
    let outcome = testkit::wait_for("the end of the job", testkit::PATIENCE, || {
        Some(stand.ask(Message::Poll { job: 9 }, &[]).0).filter(|answer| *answer != Message::Pending {})
    });
    assert_eq!(outcome, Message::Done {});
    assert_eq!(stand.ask(Message::Poll { job: 9 }, &[]).0, Message::Unknown {});
    assert_eq!(std::fs::read(stand.tree.path("data/file")).unwrap(), b"abc");
}

#[test]
fn another_directory_is_refused_and_a_file_that_is_gone_is_stale() {
    let stand = Stand::new();
    assert_eq!(stand.files.begin(&[0; 16], "other", "test").err().unwrap().0, libc::EXDEV);
    let identity = stand.create("file");
    std::fs::remove_file(stand.tree.path("data/file")).unwrap();
    let opened = stand.open(1, &identity, BOTH);
    assert!(matches!(opened, Message::Failed { code: Code::Stale, .. }), "{opened:?}");
    assert!(matches!(stand.ask(Message::Done {}, &[]).0, Message::Failed { code: Code::Protocol, .. }));
}

#[test] // S46
fn whatever_others_change_of_a_file_with_windows_of_a_silent_client_is_told_to_its_next_life() {
    let stand = Stand::new();
    let identity = stand.create("file");
    let other = stand.files.begin(&[7; 16], "id", "killed").unwrap();
    let opened = |handle: u64, flags: u32| {
        let policy = Text::cut(PolicySet::of(&Policy::default()).to_toml());
        let open = Message::Open { handle, flags, identity: identity.clone(), hint: Path::default(), policy };
        stand.files.handle(&other, open, &[], &mut Vec::new())
    };
    assert!(matches!(opened(1, BOTH | open::WINDOWS), Message::Opened { .. }));
    assert!(matches!(stand.open(1, &identity, BOTH), Message::Opened { .. }));
    let punch = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
    let keep = libc::FALLOC_FL_KEEP_SIZE as u32;
    let policy = Text::cut(PolicySet::of(&Policy::default()).to_toml());
    let changes: [(&str, Message, &[[u64; 2]]); 6] = [
        ("write", Message::Write { handle: 1, offset: 100 }, &[[100, 104]]),
        ("append", Message::Append { handle: 1, end: 0, again: false }, &[[104, 108]]),
        ("hole", Message::Allocate { handle: 1, mode: punch, offset: 10, len: 20 }, &[[10, 30]]),
        ("room", Message::Allocate { handle: 1, mode: keep, offset: 10, len: 20 }, &[]),
        ("cut", Message::SetLen { handle: 1, len: 50 }, &[[50, u64::MAX]]),
        (
            "cut by name",
            Message::Truncate { identity: identity.clone(), hint: Path::default(), policy, len: 20 },
            &[[20, u64::MAX]],
        ),
    ];
    let since = || stand.ask(Message::Since { identity: identity.clone(), session: [7; 16] }, &[]);
    let ranges = |ranges: &[[u64; 2]]| ranges.concat().into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    // A third session asks. Whatever the asking session changes afterwards is the silent client's own.
    let third = stand.files.begin(&[9; 16], "id", "third").unwrap();
    for (what, change, changed) in changes {
        assert_eq!(since().0, Message::Unknown {}, "{what}: it is there");
        stand.files.is_silent(&other, true);
        let answer = stand.ask(change, b"four").0;
        assert!(!matches!(answer, Message::Failed { .. }), "{what}: {answer:?}");
        let mut told = Vec::new();
        let asked = Message::Since { identity: identity.clone(), session: [7; 16] };
        assert_eq!(stand.files.handle(&third, asked, &[], &mut told), Message::Bytes {});
        assert_eq!(told, ranges(changed), "{what}");
        stand.files.is_silent(&other, false);
    }
    stand.files.is_silent(&other, true);
    stand.open(2, &identity, BOTH | open::TRUNCATE);
    assert_eq!(since(), (Message::Bytes {}, ranges(&[[0, u64::MAX]])));
    assert_eq!(stand.ask(Message::Gone { session: [7; 16] }, &[]).0, Message::Done {});
    assert_eq!(since().0, Message::Unknown {});
    drop((other, third));
}
