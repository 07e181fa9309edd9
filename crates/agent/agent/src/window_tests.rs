//! Tests of windows over a real agent and a real file cache. The program's side is in this process or in killed ones.

mod apply;
mod denied;
mod durable;
mod fork;
mod killed;
mod number;
mod replay;
mod stuck;
mod switched;
mod times;
mod write_back;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use types::HasErrno;

use catalogue::Catalogue;
use config::{Policy, PolicySet};
use file_cache::{FileCache, Settings};
use global_store::posix::{PosixStore, StoreOptions};
use posix_namespace::PosixNamespace;
use rustix::fs::{Mode as Bits, OFlags};
use testkit::{PATIENCE, Random, TempTree, in_private_namespace, wait_until};
use window::WindowMedium;
use window::attach::{Command, Control, state};
use window::client::{Registration, Window};
use window::ring::AppendRefused;

use windows::{WindowSettings, WindowStatus, limits};

use crate::{Agent, Caller, Mode, NewMode, OpenFile, PolicyTable, WriteHow};

const WRITE: Mode = Mode {
    noatime: false,
    read: true,
    write: true,
    execute: false,
    append: false,
    sync: false,
    direct: false,
    truncate: false,
    clear_set_id: false,
};

/// File in the root of a stand: if present, its windows are treated as lying on persistent memory.
const DURABLE: &str = "durable";

/// An agent over `root/data`, with its burst buffer and windows beside it.
struct Stand {
    agent: Arc<Agent>,
    registration: Registration,
}

/// Creates only the agent, before it replays or serves anything.
fn agent_over(root: &Path, rules: &[&str]) -> Arc<Agent> {
    agent_with(root, rules, None)
}

fn agent_with(root: &Path, rules: &[&str], catalogue: Option<Arc<dyn Catalogue>>) -> Arc<Agent> {
    let (data, buffer) = (root.join("data"), root.join("buffer"));
    std::fs::create_dir_all(&data).unwrap();
    let below = rustix::fs::open(&data, OFlags::PATH | OFlags::DIRECTORY, Bits::empty()).unwrap();
    let store = PosixStore::new(below, StoreOptions::default()).unwrap();
    let settings = Settings { catalogue, ..Settings::new(&buffer, Arc::new(store.clone()), "test") };
    let cache = FileCache::open(settings).unwrap();
    let policy = PolicySet::parse(rules.iter().copied()).unwrap().apply(Policy::default());
    let policies = PolicyTable::load(policy, buffer.join("policies.toml")).unwrap();
    Arc::new(Agent::new(Arc::new(cache), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap())
}

impl Stand {
    fn new(root: &Path, rules: &[&str]) -> Stand {
        Stand::with_budget(root, rules, 1 << 30)
    }

    fn with_budget(root: &Path, rules: &[&str], budget_bytes: u64) -> Stand {
        let (agent, buffer) = (agent_over(root, rules), root.join("buffer"));
        agent.recover_windows(&buffer, &mut |file| assert!(file.lost.is_empty(), "{file:?}")).unwrap();
        let settings =
            WindowSettings { window_bytes: 256 << 10, ..WindowSettings::new(root.join("w"), &buffer).unwrap() };
        let medium = root.join(DURABLE).exists().then_some(WindowMedium::Emulated);
        let settings = WindowSettings { medium, budget_bytes, ..settings };
        let socket = settings.socket();
        agent.serve_windows(settings).unwrap();
        let registration = Registration::connect(socket.as_os_str().as_encoded_bytes()).unwrap();
        Stand { agent, registration }
    }

    /// Opens a file with permission for a window. This may need several tries while the replica is open elsewhere: by a
    /// stage-out, or by a process just forked by another test, which holds descriptors until it executes.
    fn windowed(&self, name: &str) -> OpenFile {
        let mut opened = None;
        wait_until("an open that may have a window", PATIENCE, || {
            opened = Some(self.open(name, WRITE)).filter(OpenFile::has_window_right);
            opened.is_some()
        });
        opened.unwrap()
    }

    /// Opens or creates a file as an announced thread does, as the FUSE door allows.
    fn open(&self, name: &str, how: Mode) -> OpenFile {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let announcement = self.registration.announce(thread);
        let announced = self.agent.announced(thread).expect("an announced open");
        let open = self.unannounced(name, how);
        if open.may_have_window(!self.agent.is_windowed(open.node())) {
            open.allow_window();
            announced.grant();
        }
        assert_eq!(announcement.windowed(), open.has_window_right());
        open
    }

    fn unannounced(&self, name: &str, how: Mode) -> OpenFile {
        let new = NewMode { mode: 0o644, umask: 0 };
        match self.agent.lookup(self.agent.root(), name.as_ref()) {
            Ok(found) => self.agent.open(&Caller::own(), &found.node, how, &|| false).unwrap(),
            Err(_) => {
                self.agent.create(&Caller::own(), self.agent.root(), Some(name.as_ref()), new, true, how).unwrap().1
            }
        }
    }

    fn control(&self, open: &OpenFile, ask: Control) -> Result<Control, i32> {
        let answer = self.agent.window_control(open, std::process::id(), true, &ask.to_bytes());
        answer.map(|bytes| Control::from_bytes(&bytes).unwrap()).map_err(|error| error.errno().unwrap())
    }

    fn attach(&self, open: &OpenFile) -> Window {
        self.attach_sized(open, 0)
    }

    /// Attaches a window of `bytes` bytes; 0: the policy's size.
    fn attach_sized(&self, open: &OpenFile, bytes: u64) -> Window {
        let token = self.control(open, Control::new(Command::Attach, bytes)).unwrap().token;
        self.registration.fetch(token).unwrap()
    }

    fn content(&self, open: &OpenFile) -> Vec<u8> {
        let size = self.agent.attributes(open.node()).unwrap().size;
        let mut bytes = vec![0; size as usize];
        assert_eq!(open.read(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.agent.stop_windows();
        self.agent.data().shutdown();
    }
}

#[test] // S37
fn what_is_appended_is_read_counted_synced_and_staged_out() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let open = stand.windowed("file");
    let window = stand.attach(&open);
    window.append(0, b"hello").unwrap();
    let mut bytes = [0; 5];
    assert_eq!(open.read(&mut bytes, 0).unwrap(), 5);
    assert_eq!(&bytes, b"hello");
    window.append(5000, b"world").unwrap();
    assert_eq!(stand.agent.attributes(open.node()).unwrap().size, 5005);
    // A write through the kernel comes after earlier acknowledged writes, and before later ones.
    window.append(0, b"J").unwrap();
    stand.agent.write(&open, b"AY", 0, WriteHow::default()).unwrap();
    window.append(1, b"a").unwrap();
    open.set_len(3).unwrap();
    open.sync(false).unwrap();
    assert_eq!(stand.content(&open), b"Aal");
    drop(open);
    assert!(window.is_revoked());
    assert_eq!(window.append(0, b"late"), Err(AppendRefused::Revoked));
    assert!(stand.agent.data().drain(None, &mut |_| {}, &|| false).is_empty());
    assert_eq!(std::fs::read(tree.path().join("data/file")).unwrap(), b"Aal");
}

#[test] // S37
fn nobody_gets_a_window_that_may_not() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    drop(stand.unannounced("file", WRITE));
    for how in [
        Mode { write: false, ..WRITE },
        Mode { append: true, ..WRITE },
        Mode { sync: true, ..WRITE },
        Mode { direct: true, ..WRITE },
    ] {
        assert!(!stand.open("file", how).has_window_right(), "{how:?}");
    }
    let plain = stand.unannounced("file", WRITE);
    assert_eq!(stand.control(&plain, Control::new(Command::Attach, 0)), Err(libc::EOPNOTSUPP));
    assert_eq!(stand.control(&plain, Control::new(Command::Off, 0)).map(|answer| answer.state), Ok(0));
    // Another process has the file open.
    assert!(!stand.open("file", WRITE).has_window_right());
    drop(plain);
    let open = stand.windowed("file");
    let ask = Control::new(Command::Attach, 0).to_bytes();
    let refused =
        |thread, exclusive| stand.agent.window_control(&open, thread, exclusive, &ask).unwrap_err().errno().unwrap();
    assert_eq!(refused(std::process::id(), false), libc::EAGAIN);
    assert_eq!(refused(1, true), libc::EAGAIN);
    assert!(stand.agent.window_control(&open, std::process::id(), true, &ask[..31]).is_err());
}

#[test]
fn a_directory_without_windows_has_none_and_sizes_are_kept() {
    let tree = tempfile::tempdir().unwrap();
    let off = Stand::new(tree.path(), &["window=off"]);
    assert!(!off.open("file", WRITE).has_window_right());
    drop(off);
    let sized = Stand::new(tree.path(), &["window=128KiB"]);
    let open = sized.windowed("file");
    let _window = sized.attach(&open);
    let now = sized.control(&open, Control::new(Command::Get, 0)).unwrap();
    assert_eq!((now.bytes, now.state), (128 << 10, state::MAY | state::HAS));
}

#[test]
fn the_ioctl_ends_a_window_drained_and_gives_another() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let open = stand.windowed("file");
    let window = stand.attach(&open);
    window.append(0, b"before").unwrap();
    assert_eq!(stand.control(&open, Control::new(Command::Off, 0)).unwrap().state, 0);
    assert!(window.is_revoked());
    assert_eq!(stand.control(&open, Control::new(Command::Attach, 0)), Err(libc::EOPNOTSUPP));
    stand.control(&open, Control::new(Command::On, 0)).unwrap();
    stand.control(&open, Control::new(Command::Size, 1 << 20)).unwrap();
    let window = stand.attach(&open);
    assert_eq!(window.payload_max(), 256 << 10);
    window.append(6, b" after").unwrap();
    assert_eq!(stand.content(&open), b"before after");
    assert_eq!(stand.control(&open, Control::new(Command::Attach, 0)), Err(libc::EAGAIN), "one for each open file");
}

#[test] // S39
fn a_token_is_worth_one_ring_of_its_own_process() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let open = stand.windowed("file");
    let token = stand.control(&open, Control::new(Command::Attach, 0)).unwrap().token;
    let refused = |token| stand.registration.fetch(token).unwrap_err().errno();
    assert_eq!(refused(token ^ 2), Some(libc::EAGAIN));
    stand.registration.fetch(token).unwrap();
    assert_eq!(refused(token), Some(libc::EAGAIN));
}

#[test]
fn a_full_ring_makes_its_writer_wait_and_loses_nothing() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let open = stand.windowed("file");
    let window = stand.attach(&open);
    for number in 0..200u64 {
        window.append(number * 10_000, &[number as u8; 10_000]).unwrap(); // 2 MB through 256 KiB
    }
    let content = stand.content(&open);
    assert!(content.chunks(10_000).enumerate().all(|(number, part)| part == [number as u8; 10_000]));
}

#[test] // S37
fn a_lazy_close_does_not_wait_and_whoever_looks_does() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &["close=lazy"]);
    let mut write_back = 0;
    for number in 0..50u8 {
        let open = stand.windowed(&format!("{number}"));
        let window = stand.attach(&open);
        window.append(0, &[number; 50_000]).unwrap();
        let node = Arc::clone(open.node());
        open.flush().unwrap();
        drop(open);
        assert!(window.is_revoked(), "closed");
        write_back += u64::from(stand.agent.window_status().unwrap().waiting_bytes > 0);
        match number % 3 {
            0 => assert_eq!(stand.agent.attributes(&node).unwrap().size, 50_000),
            1 => assert_eq!(stand.content(&stand.windowed(&format!("{number}"))), [number; 50_000]),
            _ => {} // records are applied in their own time
        }
    }
    assert!(write_back > 25, "{write_back} of 50 were not drained when close returned");
    wait_until("the drain", PATIENCE, || stand.agent.window_status().unwrap().waiting_bytes == 0);
    assert!(stand.agent.drain_windows().is_ok());
    assert!(stand.agent.data().drain(None, &mut |_| {}, &|| false).is_empty());
    assert_eq!(std::fs::read(tree.path().join("data/47")).unwrap(), [47; 50_000]);
}

#[test] // S37
fn the_first_read_ends_the_windows_of_a_file_where_reading_and_writing_exclude_each_other() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &["rw_conflict=disable"]);
    let open = stand.windowed("file");
    let window = stand.attach(&open);
    window.append(0, b"written").unwrap();
    stand.agent.attributes(open.node()).unwrap();
    assert!(!window.is_revoked(), "nobody has read");
    assert_eq!(open.read(&mut [0; 7], 0).unwrap(), 7);
    assert!(window.is_revoked());
    assert_eq!(stand.control(&open, Control::new(Command::Attach, 0)), Err(libc::EOPNOTSUPP));
    drop(open);
    let open = stand.windowed("file");
    stand.attach(&open).append(0, b"W").unwrap();
    assert_eq!(stand.content(&open), b"Written");
}

#[test]
fn what_windows_did_is_counted() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let status = || stand.agent.window_status().unwrap();
    assert_eq!(status(), WindowStatus::default());
    let (open, other) = (stand.windowed("file"), stand.windowed("other"));
    let (window, plain) = (stand.attach(&open), stand.attach(&other));
    window.append(0, &[1; 1000]).unwrap();
    window.append(500, &[2; 1000]).unwrap();
    plain.append(0, &[3; 10]).unwrap();
    let now = status();
    assert_eq!((now.windows, now.attached, now.revoked, now.failing), (2, 2, 0, 0));
    assert_eq!((now.acknowledged_writes, now.acknowledged_bytes), (3, 2010));
    open.sync(false).unwrap();
    other.sync(false).unwrap();
    let now = status();
    assert_eq!((now.waiting_bytes, now.drained_bytes + now.superseded_bytes), (0, 2010));
    drop(open);
    assert_eq!((status().windows, status().revoked), (1, 0), "closing is no revocation");
    stand.agent.end_windows(other.node(), true).unwrap();
    assert_eq!((status().windows, status().revoked), (0, 1));
    assert_eq!(status().waited_us, 0);
    let (open, number) = (stand.windowed("full"), AtomicU64::new(0));
    let window = stand.attach(&open);
    // Until a writer had to sleep: the ring is a quarter of a MiB.
    wait_until("a wait for room", PATIENCE, || {
        for _ in 0..20 {
            window.append(number.fetch_add(60_000, Relaxed), &[4; 60_000]).unwrap();
        }
        status().waited_us > 0
    });
}

#[test] // S39
fn a_ring_that_its_program_cuts_or_scribbles_over_harms_nobody_else() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let (bad, good) = (stand.windowed("bad"), stand.windowed("good"));
    let (first, other) = (stand.attach(&bad), stand.attach(&good));
    first.append(0, b"x").unwrap();
    for session in std::fs::read_dir(tree.path().join("w")).unwrap() {
        for place in std::fs::read_dir(session.unwrap().path().join("files")).unwrap() {
            let place = place.unwrap().path();
            let owner = std::fs::read(place.join("file")).unwrap();
            if String::from_utf8(owner).unwrap().contains("bad") {
                std::fs::OpenOptions::new().write(true).open(place.join("0")).unwrap().set_len(0).unwrap();
            }
        }
    }
    std::mem::forget(first); // the memory is gone
    other.append(0, b"fine").unwrap();
    let _ = bad.read(&mut [0; 1], 0);
    assert_eq!(stand.content(&good), b"fine");
    drop(bad);
    other.append(4, b"!").unwrap();
    assert_eq!(stand.content(&good), b"fine!");
}

#[test] // S37
fn windows_and_the_kernel_in_any_mix_end_in_the_same_bytes() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let (a, b) = (stand.windowed("file"), stand.windowed("file"));
    let windows = [stand.attach(&a), stand.attach(&b)];
    let mut rng = Random(7);
    let mut model: Vec<u8> = Vec::new();
    for step in 0..1500 {
        let (offset, len) = (rng.below(200_000), 1 + rng.below(5_000));
        let bytes = rng.bytes(len as usize);
        match rng.below(10) {
            0 => stand.agent.write(&a, &bytes, offset, WriteHow::default()).map(|_| ()).unwrap(),
            1 => {
                b.set_len(offset).unwrap();
                model.resize(offset as usize, 0);
                continue;
            }
            2 => {
                assert_eq!(stand.agent.attributes(a.node()).unwrap().size, model.len() as u64, "step {step}");
                continue;
            }
            3 => {
                assert!(stand.content(&b) == model, "step {step}");
                continue;
            }
            which => windows[which as usize % 2].append(offset, &bytes).unwrap(),
        }
        model.resize(model.len().max((offset + len) as usize), 0);
        model[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
    }
    assert!(stand.content(&a) == model);
}
