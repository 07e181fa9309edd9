//! Tests of the order in which files take turns.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use concurrency::Mutex;
use types::Identity;

use super::recorder::{PART_BYTES, Program, Recorder, program};
use super::*;
use crate::limits;
use crate::right::{WindowRight, WindowRules};

const MIB: u64 = 1 << 20;
/// Number of writes of a replica in a batch of a MiB.
const WRITES: u64 = MIB / PART_BYTES;

/// A file whose turn it is: its name and its thread.
type Turn = (char, i32);

/// Files whose threads wait in the middle of each batch until they may go on.
struct Stage {
    windows: Arc<Windows>,
    turns: Receiver<Turn>,
    goes_on: Option<Sender<()>>,
    told: Arc<Mutex<Receiver<()>>>,
    begins: Sender<Turn>,
}

/// A file of the stage.
struct Actor {
    identity: Identity,
    program: Program,
    thread: i32,
    _right: WindowRight,
}

impl Stage {
    fn new(root: &Path) -> Stage {
        let settings = WindowSettings::new(root.join("w"), root).unwrap();
        let windows = Windows::start(settings, &WindowService::new(1 << 30), None).unwrap();
        let ((begins, turns), (goes_on, told)) = (channel(), channel());
        Stage { windows, turns, goes_on: Some(goes_on), told: Arc::new(Mutex::new(told)), begins }
    }

    /// Creates a file that has applied one batch.
    fn actor(&self, root: &Path, name: char) -> Actor {
        let identity = Identity::new(vec![name as u8]).unwrap();
        let rules = WindowRules { wish: Some(8 * MIB), lazy: false, patience: PATIENCE, read_ends: false };
        let right = WindowRight::new(&self.windows, &identity, rules, false);
        let recorder = Recorder::new(&root.join(name.to_string()), root.join("no mark"));
        let (told, begins, mut writes) = (Arc::clone(&self.told), self.begins.clone(), 0);
        *recorder.before.lock() = Some(Box::new(move || {
            if std::thread::current().name() == Some("window") {
                if writes % WRITES == 0 {
                    begins.send((name, rustix::thread::gettid().as_raw_nonzero().get())).unwrap();
                    let _ = told.lock().recv();
                }
                writes += 1;
            }
        }));
        let make = || Ok((recorder.file(false), name.to_string().into()));
        let (token, _) = self.windows.attach(&right, 1, &make).unwrap();
        let granted = self.windows.fetch(token, 1).unwrap();
        let mut actor = Actor { identity, program: program(granted), thread: 0, _right: right };
        actor.has_something_to_bring();
        let (who, thread) = self.next();
        assert_eq!(who, name);
        actor.thread = thread;
        self.go_on();
        wait_until("its first batch", PATIENCE, || self.window(&actor).drain.lock().as_ref().unwrap().is_drained());
        actor
    }

    fn window(&self, actor: &Actor) -> Arc<super::super::file::FileWindow> {
        self.windows.window(&actor.identity).unwrap()
    }

    /// Returns the file whose turn it is, and whose thread waits.
    fn next(&self) -> Turn {
        self.turns.recv_timeout(PATIENCE).expect("somebody drains")
    }

    fn go_on(&self) {
        self.goes_on.as_ref().unwrap().send(()).unwrap();
    }

    /// Waits until the file's thread sleeps on a lock, with its rings locked.
    fn wait_for_asking(&self, actor: &Actor) {
        let window = self.window(actor);
        let call = format!("/proc/self/task/{}/syscall", actor.thread);
        wait_until("a file that asks for its turn", PATIENCE, || {
            let call = std::fs::read_to_string(&call).unwrap();
            let mut words = call.split(' ');
            let futex = words.next() == Some(&libc::SYS_futex.to_string());
            let waits = format!("{:#x}", libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
            futex && words.nth(1) == Some(&waits) && window.drain.is_locked()
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.goes_on = None; // from now on no thread waits
    }
}

impl Actor {
    /// Appends enough for a batch, always at the same offset.
    fn has_something_to_bring(&self) {
        self.program.append(0, &vec![1; MIB as usize], &mut || false).unwrap();
    }
}

#[test] // S37
fn files_drain_in_the_order_in_which_they_ask_and_one_that_is_written_without_end_waits_its_turn() {
    let tree = tempfile::tempdir().unwrap();
    let stage = Stage::new(tree.path());
    let [a, b, c, d] = ['a', 'b', 'c', 'd'].map(|name| stage.actor(tree.path(), name));
    let stage = stage; // dropped first
    a.has_something_to_bring();
    assert_eq!(stage.next().0, 'a');
    a.has_something_to_bring();
    for other in [&b, &c, &d] {
        other.has_something_to_bring();
        stage.wait_for_asking(other);
    }
    stage.go_on();
    assert_eq!(stage.next().0, 'b');
    b.has_something_to_bring();
    stage.wait_for_asking(&a);
    for next in ['c', 'd', 'a', 'b'] {
        stage.go_on();
        assert_eq!(stage.next().0, next);
    }
}

#[test] // S37
fn who_asks_about_a_file_with_nothing_to_bring_does_not_wait_for_the_turns_of_others() {
    let tree = tempfile::tempdir().unwrap();
    let stage = Stage::new(tree.path());
    let [a, b] = ['a', 'b'].map(|name| stage.actor(tree.path(), name));
    let stage = stage; // dropped first
    a.has_something_to_bring();
    assert_eq!(stage.next().0, 'a');
    let (window, began) = (stage.window(&b), Instant::now());
    // Meanwhile the file's thread looks for records to apply.
    b.program.append(0, b"little", &mut || false).unwrap();
    stage.windows.apply(&b.identity).unwrap();
    while began.elapsed() < 2 * limits::WINDOW_DRAIN_AFTER {
        assert!(window.drain.try_lock_for(Duration::from_secs(5)).is_some());
    }
}

#[test] // S37
fn a_file_drains_by_itself_whichever_of_two_programs_had_its_windows_made() {
    let tree = tempfile::tempdir().unwrap();
    let stage = Stage::new(tree.path());
    let identity = Identity::new(vec![1]).unwrap();
    let rules = WindowRules { wish: None, lazy: true, patience: PATIENCE, read_ends: false };
    let right = WindowRight::new(&stage.windows, &identity, rules, false);
    let recorder = Recorder::new(&tree.path().join("replica"), tree.path().join("no mark"));
    let make = || Ok((recorder.file(false), "file".into()));
    // This caller is delayed here, or gets no ring in the end.
    let made = stage.windows.window_of(&identity, &make).unwrap();
    let (token, _) = stage.windows.attach(&right, 1, &make).unwrap();
    assert!(Arc::ptr_eq(&made, &stage.windows.window(&identity).unwrap()));
    program(stage.windows.fetch(token, 1).unwrap()).append(0, b"by itself", &mut || false).unwrap();
    wait_until("it is drained", PATIENCE, || {
        std::fs::read(tree.path().join("replica")).is_ok_and(|bytes| bytes == b"by itself")
    });
}
