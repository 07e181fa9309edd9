//! Rules by which the opens of one node are answered.
//!
//! The kernel allows only certain mixtures of opens of one inode: passthrough beside passthrough of the same backing
//! file, direct beside direct. An inode that was ever mapped through the page cache refuses passthrough for ever. So
//! a node's way is chosen at its first open and stays: passthrough until the last close, direct until the kernel
//! forgets the node. An open that does not fit is answered `ESTALE`: the kernel looks the name up again and gets a
//! new node.
//!
//! A kernel before 6.6 does not map direct files shared. There, files are served through its page cache
//! ([`Abilities`]), except for opens that may have a window. Beside such *bypasses* nobody may have pages changed
//! through a mapping: the kernel would write them over the data that bypassed it. An open that could make such pages
//! becomes direct as well, and cannot map the file shared (`ENODEV`). Pages that were only read are dropped after
//! each write that bypassed them (`Door::wrote`).

use std::io;

use agent::OpenFile;
use agent::descriptors::{Charge, DescriptorOwner};
use data_store::DataVersion;
use fuse_protocol::{Errno, OpenReply, fopen};
use types::Version;

use crate::limits;
use crate::registrations::{BackingRegistration, Registrations};

/// Way in which a node's opens are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// No way is chosen: nobody has the node open, and no mapping can be left.
    #[default]
    Unset,
    /// The kernel reads and writes the replica directly.
    Passthrough,
    /// Every read and write is a request.
    Direct,
}

/// State of a node's opens.
#[derive(Default)]
pub struct OpenState {
    way: Way,
    opens: u32,
    /// Number of opens that may have a window.
    windowed: u32,
    /// Number of opens that bypass a page cache used by others.
    bypasses: u32,
    /// Whether an open without the right to a window happened since the node was last closed. Its mapping may be
    /// left.
    looked_past: bool,
    /// Number of opens by the kernel for execution: running programs, except scripts.
    executing: u32,
    /// Version of the data that the opens have.
    data: Option<DataVersion>,
    /// Content whose pages the kernel may keep from one open to the next.
    pages: Option<Version>,
    /// Whether the kernel was ever allowed to keep pages, so that a mapping may be left that has them.
    keeps_pages: bool,
    /// Kernel's registration of the replica; one per node.
    backing: Option<BackingRegistration>,
    /// Descriptors of the node's open file, charged to the one who opened it first.
    charge: Option<Charge>,
    /// Thread that was last answered `ESTALE`. If it opens again at once, it has no name to look up, and is served on
    /// this node.
    refused: Option<u32>,
}

/// Answer to an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAnswer {
    /// Passthrough, with direct I/O beside it if writes must pass the agent.
    Passthrough {
        /// Reads and writes arrive as requests; only mappings use the replica.
        direct: bool,
    },
    /// All reads and writes arrive as requests.
    Direct,
    /// The node does not fit this open.
    Stale,
}

/// Properties of an open on which its answer depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Whether the replica is complete and passthrough is agreed.
    pub backing: bool,
    /// Whether the open has the same version as the node's other opens.
    pub same_file: bool,
    /// Whether writes must pass through the agent.
    pub writes_must_pass: bool,
    /// Whether this thread was just refused.
    pub refused_before: bool,
}

/// Decides about an open. The table follows the I/O modes of the kernel's `fuse_inode`.
pub fn answer(way: Way, opens: u32, offer: Offer) -> OpenAnswer {
    let passthrough = OpenAnswer::Passthrough { direct: offer.writes_must_pass };
    match (way, opens) {
        // Passthrough ends with the last close; a mapping that is left maps the replica itself.
        (Way::Unset, _) | (Way::Passthrough, 0) => {
            if offer.backing {
                passthrough
            } else {
                OpenAnswer::Direct
            }
        }
        (Way::Passthrough, _) if offer.same_file && offer.backing => passthrough,
        (Way::Passthrough, _) => OpenAnswer::Stale,
        (Way::Direct, 0) if offer.backing && !offer.refused_before => OpenAnswer::Stale,
        (Way::Direct, 0) => OpenAnswer::Direct,
        (Way::Direct, _) if offer.same_file || offer.refused_before => OpenAnswer::Direct,
        (Way::Direct, _) => OpenAnswer::Stale,
    }
}

/// Features of the connection.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// Whether passthrough is agreed.
    pub passthrough: bool,
    /// Whether direct files can be mapped shared. If not, they are served through the page cache.
    pub direct_mmap: bool,
}

/// Test whether an open was answered to bypass a page cache that others may use.
pub trait Bypasses {
    /// Returns whether the open bypasses the page cache.
    fn bypasses(&self) -> bool;
}

impl Bypasses for OpenReply {
    fn bypasses(&self) -> bool {
        self.backing.is_none() && self.flags & (fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES) == fopen::DIRECT_IO
    }
}

impl OpenState {
    /// Takes a charge for another open file, if the node has none yet. Called before the file is opened. Errors:
    /// `ENFILE` if the owner has too many open files.
    pub fn may_open(&self, owner: DescriptorOwner) -> Result<Option<Charge>, Errno> {
        if self.charge.is_some() { Ok(None) } else { Ok(Some(Charge::take(owner).map_err(io::Error::from)?)) }
    }

    /// Stores the charge of a file that was opened and admitted.
    pub fn charge(&mut self, open: &OpenFile, charge: Option<Charge>) {
        if self.charge.is_some() {
            return;
        }
        self.charge = charge;
        // Data that is not in a complete replica is read and written below.
        let data = open.data();
        let is_below = data.replica.is_none() && data.steady.is_none() && !open.is_remote();
        if let Some(charge) = self.charge.as_mut().filter(|_| is_below) {
            charge.grow(limits::DESCRIPTORS_BELOW);
        }
    }

    /// Counts an open and returns its answer; the caller fills in the handle number. Errors: `ESTALE` if the open
    /// does not fit this node.
    pub fn admit(
        &mut self,
        open: &OpenFile,
        thread: u32,
        can: Abilities,
        registrations: Option<&Registrations>,
        mut windowed: bool,
    ) -> Result<OpenReply, Errno> {
        let mut offer = self.offer(open, can);
        offer.backing &= registrations.is_some();
        offer.refused_before = self.refused == Some(thread);
        if offer.backing && self.backing.is_none() {
            let begin = |(all, version): (&Registrations, _)| all.begin(version, open.atime(), || open.backing());
            self.backing = registrations.zip(open.version()).and_then(begin);
            offer.backing = self.backing.is_some();
        }
        let mut chosen = answer(self.way, self.opens, offer);
        if matches!(chosen, OpenAnswer::Passthrough { .. }) && !open.use_passthrough() {
            // The data has left the burst buffer since the file was opened.
            offer.backing = false;
            chosen = answer(self.way, self.opens, offer);
        }
        let mut opened = OpenReply::default();
        match chosen {
            OpenAnswer::Stale => {
                self.refused = Some(thread);
                self.unregister_if_unused(registrations);
                return Err(Errno::ESTALE);
            }
            OpenAnswer::Passthrough { direct } => {
                self.way = Way::Passthrough;
                opened.backing = self.backing.map(|registration| registration.id);
                // The kernel's own reads and writes of a file with a window must reach the agent as well.
                opened.flags = if direct || windowed { fopen::DIRECT_IO } else { 0 };
            }
            OpenAnswer::Direct => {
                self.way = Way::Direct;
                windowed &= self.can_window_direct(open, can);
                let bypass = windowed || (self.bypasses > 0 && open.maps_for_writing());
                opened.flags = match (can.direct_mmap, bypass) {
                    _ if !windowed && self.may_keep_pages(open) => self.keep_pages(open),
                    (true, _) if !self.keeps_pages => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
                    (true, _) | (false, true) => fopen::DIRECT_IO,
                    (false, false) => 0,
                };
                self.bypasses += u32::from(opened.bypasses());
            }
        }
        if windowed {
            open.allow_window();
            self.windowed += 1;
        }
        self.refused = None;
        self.opens += 1;
        self.looked_past |= !open.has_window_right();
        self.executing += u32::from(open.executes());
        self.data = Some(open.data());
        if chosen == OpenAnswer::Direct {
            self.unregister(registrations);
        }
        Ok(opened)
    }

    /// Whether an open may be answered from the kernel's page cache: it changes nothing, and whoever does is on this node as well.
    fn may_keep_pages(&mut self, open: &OpenFile) -> bool {
        if open.changes() {
            // What is read from now on may be another content by the next open.
            self.pages = None;
        }
        !open.changes() && open.data().steady.is_some()
    }

    /// Returns the flags with which the kernel keeps the pages that it has of the content, and drops others.
    fn keep_pages(&mut self, open: &OpenFile) -> u32 {
        let steady = open.data().steady;
        self.keeps_pages = true;
        if std::mem::replace(&mut self.pages, steady) == steady && steady.is_some() { fopen::KEEP_CACHE } else { 0 }
    }

    fn offer(&self, open: &OpenFile, can: Abilities) -> Offer {
        Offer {
            backing: can.passthrough && open.version().is_some(),
            same_file: self.data.as_ref().is_none_or(|data| *data == open.data()),
            writes_must_pass: open.writes_must_pass(),
            refused_before: false,
        }
    }

    /// Returns whether this open would be answered otherwise than by `ESTALE`.
    pub fn welcomes(&self, open: &OpenFile, can: Abilities) -> bool {
        answer(self.way, self.opens, self.offer(open, can)) != OpenAnswer::Stale
    }

    /// Returns whether the node can be open or mapped only by opens that may have windows.
    pub fn is_all_windowed(&self) -> bool {
        self.windowed == self.opens && !self.looked_past
    }

    /// Returns whether this open may have a window. All its reads and writes must reach the agent, and mappings must
    /// show the records that the agent applies.
    pub fn can_window(&self, open: &OpenFile, can: Abilities) -> bool {
        let replica = can.passthrough && self.way != Way::Direct && !open.is_remote();
        replica || self.can_window_direct(open, can)
    }

    /// Returns whether this open may have a window without passthrough. Applied records do not reach the pages of a
    /// mapping, so the open must be one that cannot be mapped. Behind a server the open may be mapped, since a mapping
    /// ends all windows. But there the file must not go through the page cache, from which the kernel would answer.
    fn can_window_direct(&self, open: &OpenFile, can: Abilities) -> bool {
        if open.is_remote() { can.direct_mmap } else { open.writes_alone() }
    }

    /// Returns whether somebody has the node open through the page cache.
    pub fn is_cached(&self) -> bool {
        self.opens > self.bypasses
    }

    /// Returns whether nobody has the node open. A mapping may be left.
    pub fn is_closed(&self) -> bool {
        self.opens == 0
    }

    /// Returns whether a next open is answered as a first one is. Passthrough ends with the last close.
    pub fn is_new(&self) -> bool {
        let has_pages = self.keeps_pages || self.pages.is_some();
        self.is_closed() && self.way != Way::Direct && !has_pages && self.refused.is_none()
    }

    /// Returns whether a running program executes the file. Truncating it would kill the program.
    pub fn is_executed(&self) -> bool {
        self.executing > 0
    }

    /// Counts a release. `bypasses`: as in the open's answer.
    pub fn leave(&mut self, open: &OpenFile, bypasses: bool, registrations: Option<&Registrations>) {
        self.bypasses = self.bypasses.saturating_sub(u32::from(bypasses));
        self.opens = self.opens.saturating_sub(1);
        self.windowed = self.windowed.saturating_sub(u32::from(open.has_window_right()));
        self.executing = self.executing.saturating_sub(u32::from(open.executes()));
        if self.opens == 0 {
            self.data = None;
            self.charge = None;
            self.looked_past = false;
            if let (Some(registration), Some(registrations)) = (self.backing.take(), registrations) {
                registrations.leave(registration);
            }
        }
    }

    fn unregister_if_unused(&mut self, registrations: Option<&Registrations>) {
        if self.opens == 0 || self.way == Way::Direct {
            self.unregister(registrations);
        }
    }

    fn unregister(&mut self, registrations: Option<&Registrations>) {
        if let (Some(registration), Some(registrations)) = (self.backing.take(), registrations) {
            registrations.close(registration.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: Offer = Offer { backing: true, same_file: true, writes_must_pass: false, refused_before: false };
    const THROUGH: Offer = Offer { backing: false, ..COMPLETE };

    #[test]
    fn the_first_open_chooses() {
        assert_eq!(answer(Way::Unset, 0, COMPLETE), OpenAnswer::Passthrough { direct: false });
        assert_eq!(answer(Way::Unset, 0, THROUGH), OpenAnswer::Direct);
    }

    #[test]
    fn nothing_but_passthrough_of_the_same_version_joins_passthrough() {
        assert_eq!(answer(Way::Passthrough, 1, COMPLETE), OpenAnswer::Passthrough { direct: false });
        assert_eq!(answer(Way::Passthrough, 1, Offer { same_file: false, ..COMPLETE }), OpenAnswer::Stale);
        assert_eq!(answer(Way::Passthrough, 1, THROUGH), OpenAnswer::Stale);
        assert_eq!(answer(Way::Passthrough, 1, Offer { refused_before: true, ..THROUGH }), OpenAnswer::Stale);
    }

    #[test]
    fn set_id_writers_join_passthrough_directly() {
        let writer = Offer { writes_must_pass: true, ..COMPLETE };
        assert_eq!(answer(Way::Passthrough, 1, writer), OpenAnswer::Passthrough { direct: true });
    }

    #[test]
    fn the_last_close_ends_passthrough_and_not_direct() {
        let other = Offer { same_file: false, ..COMPLETE };
        assert_eq!(answer(Way::Passthrough, 0, other), OpenAnswer::Passthrough { direct: false });
        assert_eq!(answer(Way::Passthrough, 0, THROUGH), OpenAnswer::Direct);
        assert_eq!(answer(Way::Direct, 0, THROUGH), OpenAnswer::Direct);
        assert_eq!(answer(Way::Direct, 0, COMPLETE), OpenAnswer::Stale);
    }

    #[test]
    fn who_cannot_look_again_is_served_directly() {
        assert_eq!(answer(Way::Direct, 0, Offer { refused_before: true, ..COMPLETE }), OpenAnswer::Direct);
        assert_eq!(answer(Way::Direct, 2, COMPLETE), OpenAnswer::Direct);
        assert_eq!(answer(Way::Direct, 2, Offer { same_file: false, ..THROUGH }), OpenAnswer::Stale);
    }
}
