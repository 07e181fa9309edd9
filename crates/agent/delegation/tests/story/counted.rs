//! A namespace that counts the calls to another, and fails one on demand, or all from one on.
//!
//! Syncs of its store are counted alone: tests in which the store's machine crashes need other stores.

use std::ffi::{CStr, OsStr};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;

use global_store::calls::Store;
use global_store::{Anchor, GlobalStore, StoreFile, SyncPoint};
use namespace::{
    AnchorFor, Attributes, Caller, FileAttributes, FileSystemSpace, Found, HiddenFiles, Inode, KnownSince, Mode,
    NameKind, Names, Namespace, NewFile, NewName, OpenDirectory,
};
use types::{Identity, NewTime};

/// A namespace whose calls are counted.
pub struct Counted {
    below: Arc<dyn Namespace>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Vec<&'static str>,
    /// Calls that fail, and how.
    fails: Option<(Range<usize>, i32)>,
    /// Whether the call that fails is made nevertheless.
    is_made: bool,
}

impl Counted {
    pub fn new(below: Arc<dyn Namespace>) -> Counted {
        Counted { below, state: Arc::default() }
    }

    /// Takes the calls since the last time.
    pub fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// Makes the nth call from now on fail, counted from 0.
    pub fn fail(&self, nth: usize, errno: i32) {
        let mut state = self.state.lock().unwrap();
        let at = state.calls.len().saturating_add(nth);
        state.fails = Some((at..at.saturating_add(1), errno));
        state.is_made = false;
    }

    /// Makes all calls fail from the nth on, as if the machine had crashed.
    pub fn die(&self, nth: usize) {
        self.fail(nth, libc::EIO);
        let mut state = self.state.lock().unwrap();
        state.fails = state.fails.take().map(|(calls, errno)| (calls.start..usize::MAX, errno));
    }

    /// Makes all calls succeed from now on.
    pub fn heal(&self) {
        self.state.lock().unwrap().fails = None;
    }

    /// As [`fail`](Counted::fail), but the call that fails has taken place.
    pub fn fail_after(&self, nth: usize, errno: i32) {
        self.fail(nth, errno);
        self.state.lock().unwrap().is_made = true;
    }

    fn call<T>(&self, name: &'static str, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        count(&self.state, name, run)
    }
}

fn count<T>(state: &Mutex<State>, name: &'static str, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut state = state.lock().unwrap();
    let at = state.calls.len();
    state.calls.push(name);
    let fails = state.fails.clone().filter(|(calls, _)| calls.contains(&at));
    let is_made = state.is_made;
    drop(state);
    let Some((_, errno)) = fails else { return run() };
    if is_made {
        drop(run());
    }
    Err(io::Error::from_raw_os_error(errno))
}

struct Point(Arc<Mutex<State>>);

impl SyncPoint for Point {
    fn sync(&self) -> io::Result<()> {
        count(&self.0, "sync", || Ok(()))
    }
}

impl GlobalStore for Counted {
    fn locate(&self, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>> {
        self.below.store().locate(identity, hint, scan)
    }

    fn sync_point(&self) -> io::Result<Box<dyn SyncPoint>> {
        self.call("sync_point", || Ok(Box::new(Point(Arc::clone(&self.state))) as Box<dyn SyncPoint>))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.call("sync_names", || Ok(()))
    }

    fn is_shared(&self) -> bool {
        self.below.store().is_shared()
    }

    fn finds_by_identity(&self) -> bool {
        self.below.store().finds_by_identity()
    }
}

macro_rules! hand_on {
    ($to:ident; $($call:ident($($arg:ident: $of:ty),*) -> $out:ty;)*) => {
        $(fn $call(&self, $($arg: $of),*) -> io::Result<$out> {
            self.call(stringify!($call), || self.below.$to().$call($($arg),*))
        })*
    };
}

trait Itself {
    fn itself(&self) -> &dyn Namespace;
}

impl Itself for Arc<dyn Namespace> {
    fn itself(&self) -> &dyn Namespace {
        &**self
    }
}

type Place<'a> = (&'a Inode, &'a OsStr);

impl Names for Counted {
    hand_on! { itself;
        root() -> Inode;
        lookup(parent: &Inode, name: &OsStr) -> Found;
        create(caller: &Caller, parent: &Inode, new: NewFile<'_>) -> (Found, Arc<dyn Anchor>);
        make(caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> ();
        link(caller: &Caller, inode: &Inode, parent: &Inode, name: &OsStr) -> ();
        remove(caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> ();
        rename(caller: &Caller, from: Place<'_>, to: Place<'_>, flags: u32) -> ();
        read_symlink(inode: &Inode) -> Vec<u8>;
        open_directory(caller: &Caller, inode: &Inode) -> Box<dyn OpenDirectory>;
        find(identity: &Identity, hint: &Path, since: KnownSince) -> Option<Inode>;
        sync() -> ();
    }

    fn path_of(&self, inode: &Inode) -> Option<PathBuf> {
        self.below.path_of(inode)
    }
}

impl Attributes for Counted {
    hand_on! { itself;
        attributes(inode: &Inode) -> FileAttributes;
        set_owner(caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> ();
        set_mode(caller: &Caller, inode: &Inode, mode: u32) -> ();
        set_times(caller: &Caller, inode: &Inode, times: [Option<NewTime>; 2]) -> ();
        check_open(caller: &Caller, inode: &Inode, mode: Mode) -> ();
        xattr(inode: &Inode, name: &CStr) -> Vec<u8>;
        xattr_names(inode: &Inode) -> Vec<u8>;
        set_xattr(caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> ();
        remove_xattr(caller: &Caller, inode: &Inode, name: &CStr) -> ();
        flags(caller: &Caller, inode: &Inode, command: u32, argument: &mut [u8]) -> ();
        space() -> FileSystemSpace;
    }

    fn keeps_acls(&self) -> bool {
        self.below.keeps_acls()
    }
}

impl HiddenFiles for Counted {
    hand_on! { hidden_files;
        create_hidden(caller: &Caller, parent: &Inode, name: &OsStr, mode: u32) -> (Found, Box<dyn StoreFile>);
        make_hidden(caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> ();
        find_hidden(parent: &Inode, name: &OsStr) -> Found;
        rename_hidden(caller: &Caller, from: Place<'_>, to: Place<'_>, flags: u32) -> ();
        remove_hidden(caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> ();
    }
}

impl Namespace for Counted {
    hand_on! { itself;
        anchor(inode: &Inode, what: AnchorFor<'_>) -> Arc<dyn Anchor>;
        identify(inode: &Inode, may_be_known: &dyn Fn(&[u8]) -> bool) -> bool;
    }

    fn calls(&self) -> Store {
        self.below.calls()
    }

    fn acts_for_all(&self) -> bool {
        self.below.acts_for_all()
    }

    fn hidden_files(&self) -> &dyn HiddenFiles {
        self
    }

    fn store(&self) -> &dyn GlobalStore {
        self
    }
}
