//! Attributes of files in trees and of others.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;

use global_store::calls::Store;
use global_store::{Anchor, GlobalStore};
use namespace::{AnchorFor, Attributes, Caller, FileAttributes, FileSystemSpace, HiddenFiles, Inode, Mode, Namespace};
use types::NewTime;

use crate::names::TreesNamespace;

impl Attributes for TreesNamespace {
    fn attributes(&self, inode: &Inode) -> io::Result<FileAttributes> {
        self.ask(inode, |tree| tree.tree.attributes(inode), |below, inode| below.attributes(inode))
    }

    fn set_owner(&self, caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.ask(
            inode,
            |tree| tree.tree.set_owner(caller, inode, uid, gid),
            |below, inode| below.set_owner(caller, inode, uid, gid),
        )
    }

    fn set_mode(&self, caller: &Caller, inode: &Inode, mode: u32) -> io::Result<()> {
        self.ask(
            inode,
            |tree| tree.tree.set_mode(caller, inode, mode),
            |below, inode| below.set_mode(caller, inode, mode),
        )
    }

    fn set_times(&self, caller: &Caller, inode: &Inode, times: [Option<NewTime>; 2]) -> io::Result<()> {
        self.ask(
            inode,
            |tree| tree.tree.set_times(caller, inode, times),
            |below, inode| below.set_times(caller, inode, times),
        )
    }

    fn check_open(&self, caller: &Caller, inode: &Inode, mode: Mode) -> io::Result<()> {
        self.ask(
            inode,
            |tree| tree.tree.check_open(caller, inode, mode),
            |below, inode| below.check_open(caller, inode, mode),
        )
    }

    fn xattr(&self, inode: &Inode, name: &CStr) -> io::Result<Vec<u8>> {
        self.ask(inode, |tree| tree.tree.xattr(inode, name), |below, inode| below.xattr(inode, name))
    }

    fn xattr_names(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        self.ask(inode, |tree| tree.tree.xattr_names(inode), |below, inode| below.xattr_names(inode))
    }

    fn set_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> io::Result<()> {
        self.ask(
            inode,
            |tree| tree.tree.set_xattr(caller, inode, name, value, flags),
            |below, inode| below.set_xattr(caller, inode, name, value, flags),
        )
    }

    fn remove_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()> {
        self.ask(
            inode,
            |tree| tree.tree.remove_xattr(caller, inode, name),
            |below, inode| below.remove_xattr(caller, inode, name),
        )
    }

    fn flags(&self, caller: &Caller, inode: &Inode, command: u32, argument: &mut [u8]) -> io::Result<()> {
        match self.live(inode)? {
            Some(tree) => tree.tree.flags(caller, inode, command, argument),
            None => self.below().flags(caller, self.lowered(inode)?.of(), command, argument),
        }
    }

    fn keeps_acls(&self) -> bool {
        self.below().keeps_acls()
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        self.below().space()
    }
}

impl Namespace for TreesNamespace {
    fn anchor(&self, inode: &Inode, what: AnchorFor<'_>) -> io::Result<Arc<dyn Anchor>> {
        self.ask(inode, |tree| tree.tree.anchor(inode), |below, inode| below.anchor(inode, what))
    }

    fn identify(&self, inode: &Inode, may_be_known: &dyn Fn(&[u8]) -> bool) -> io::Result<bool> {
        if delegation::node_of_key(inode.key()).is_some() {
            Ok(true)
        } else {
            self.below().identify(inode, may_be_known)
        }
    }

    fn calls(&self) -> Store {
        self.below().calls()
    }

    fn acts_for_all(&self) -> bool {
        self.below().acts_for_all()
    }

    fn hidden_files(&self) -> &dyn HiddenFiles {
        self.below().hidden_files()
    }

    fn store(&self) -> &dyn GlobalStore {
        self.below().store()
    }
}
