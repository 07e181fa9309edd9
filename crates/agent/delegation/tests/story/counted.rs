//! A namespace that counts the calls to another, and fails one on demand.

use std::ffi::{CStr, OsStr};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;

use global_store::calls::Store;
use global_store::{Anchor, GlobalStore, StoreFile};
use namespace::{
    AnchorFor, Attributes, Caller, FileAttributes, FileSystemSpace, Found, HiddenFiles, Inode, KnownSince, Mode,
    NameKind, Names, Namespace, NewFile, NewName, OpenDirectory,
};
use types::{Identity, NewTime};

/// A namespace whose calls are counted.
pub struct Counted {
    below: Arc<dyn Namespace>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: Vec<&'static str>,
    fails: Option<(usize, i32)>,
    /// Whether the call that fails is made nevertheless.
    is_made: bool,
}

impl Counted {
    pub fn new(below: Arc<dyn Namespace>) -> Counted {
        Counted { below, state: Mutex::default() }
    }

    /// Takes the calls since the last time.
    pub fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// Makes the nth call from now on fail, counted from 0.
    pub fn fail(&self, nth: usize, errno: i32) {
        let mut state = self.state.lock().unwrap();
        state.fails = Some((state.calls.len() + nth, errno));
        state.is_made = false;
    }

    /// As [`fail`](Counted::fail), but the call that fails has taken place.
    pub fn fail_after(&self, nth: usize, errno: i32) {
        self.fail(nth, errno);
        self.state.lock().unwrap().is_made = true;
    }

    fn call<T>(&self, name: &'static str, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(name);
        let fails = state.fails.filter(|(at, _)| at + 1 == state.calls.len());
        let is_made = state.is_made;
        drop(state);
        let Some((_, errno)) = fails else { return run() };
        if is_made {
            drop(run());
        }
        Err(io::Error::from_raw_os_error(errno))
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
        self.below.store()
    }
}
