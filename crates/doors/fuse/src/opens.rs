//! How the opens of one node are answered.
//!
//! The kernel lets one inode be open in certain mixtures only: passthrough beside passthrough of the same backing file,
//! direct beside direct; and an inode that was ever mapped through the page cache refuses passthrough for ever. So a
//! node's way is chosen at the first of its opens and kept: passthrough until the last close, direct until the kernel
//! forgets it. What no longer fits is answered `ESTALE`: the kernel looks the name up again and gets a new node.
//!
//! A kernel before 6.6 does not map direct files shared, so those are served through its page cache there ([`Abilities`]), but for
//! opens that may have a window. Beside such *bypasses* nobody may have pages that a mapping has changed, for the kernel would
//! write them over what went past it: who could make some is direct as well, and cannot map the file shared (`ENODEV`). Pages that
//! were only read are forgotten after each write that bypassed them (`Door::wrote`).

use std::io;

use agent::descriptors::{Charge, DescriptorOwner};
use agent::{DataVersion, OpenFile};
use fuse_protocol::{Errno, OpenReply, fopen};

use crate::limits;
use crate::registrations::{BackingRegistration, Registrations};

/// The way of a node's opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// Not chosen: nobody has it open, and no mapping can be left.
    #[default]
    Unset,
    /// The kernel reads and writes the replica.
    Passthrough,
    /// Every read and write is a request.
    Direct,
}

/// How a node is open.
#[derive(Default)]
pub struct OpenState {
    way: Way,
    opens: u32,
    /// Opens that may have a window.
    windowed: u32,
    /// Opens past the page cache that others use.
    bypasses: u32,
    /// There was another open since nobody had it open: its mapping may be left.
    looked_past: bool,
    /// Opens by the kernel to execute it: programs that run, but for scripts.
    executing: u32,
    /// The version of the data that its opens have.
    data: Option<DataVersion>,
    /// The kernel's registration of the replica, one a node.
    backing: Option<BackingRegistration>,
    /// Its descriptors, counted for who opened it first.
    charge: Option<Charge>,
    /// The thread that was told `ESTALE` last: if it comes again it has no name to look up, and is served as it is.
    refused: Option<u32>,
}

/// What can be answered to an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAnswer {
    /// Passthrough; `direct` beside it if writes must be seen.
    Passthrough {
        /// Reads and writes come as requests, only mappings go to the replica.
        direct: bool,
    },
    /// Requests only.
    Direct,
    /// The node does not fit any more.
    Stale,
}

/// What an open brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The replica is complete and passthrough is agreed.
    pub backing: bool,
    /// Same version as that of the opens there are.
    pub same_file: bool,
    /// Writes must pass through the agent.
    pub writes_must_pass: bool,
    /// This thread was refused just before.
    pub refused_before: bool,
}

/// The rule, in one place; the table is that of the kernel's `fuse_inode` I/O modes.
pub fn answer(way: Way, opens: u32, offer: Offer) -> OpenAnswer {
    let passthrough = OpenAnswer::Passthrough { direct: offer.writes_must_pass };
    match (way, opens) {
        // With the last close passthrough ends; a mapping that is left has the replica itself.
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

/// What the connection can do.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// Passthrough is agreed.
    pub passthrough: bool,
    /// Direct files can be mapped shared; without it they are served through the page cache.
    pub direct_mmap: bool,
}

/// How an open was answered: past a page cache that others may use.
pub trait Bypasses {
    /// It was.
    fn bypasses(&self) -> bool;
}

impl Bypasses for OpenReply {
    fn bypasses(&self) -> bool {
        self.backing.is_none() && self.flags & (fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES) == fopen::DIRECT_IO
    }
}

impl OpenState {
    /// Before a file is opened: the right to have another one open, if nobody has it open yet. `ENFILE`: its owner has too many.
    pub fn may_open(&self, owner: DescriptorOwner) -> Result<Option<Charge>, Errno> {
        if self.charge.is_some() { Ok(None) } else { Ok(Some(Charge::take(owner).map_err(io::Error::from)?)) }
    }

    /// A file that was opened with the right to do so, and has been admitted.
    pub fn charge(&mut self, open: &OpenFile, charge: Option<Charge>) {
        if self.charge.is_some() {
            return;
        }
        self.charge = charge;
        // What is not in a complete replica is read and written below.
        if let Some(charge) = self.charge.as_mut().filter(|_| open.version().is_none() && !open.is_remote()) {
            charge.grow(limits::DESCRIPTORS_BELOW);
        }
    }

    /// Counts an open and says how to answer it; the handle number is still to be filled in.
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
            // The data has left the burst buffer since the handle was made.
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
                    (true, _) => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
                    (false, true) => fopen::DIRECT_IO,
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

    fn offer(&self, open: &OpenFile, can: Abilities) -> Offer {
        Offer {
            backing: can.passthrough && open.version().is_some(),
            same_file: self.data.as_ref().is_none_or(|data| *data == open.data()),
            writes_must_pass: open.writes_must_pass(),
            refused_before: false,
        }
    }

    /// Whether this open would be answered by another thing than `ESTALE`.
    pub fn welcomes(&self, open: &OpenFile, can: Abilities) -> bool {
        answer(self.way, self.opens, self.offer(open, can)) != OpenAnswer::Stale
    }

    /// Whether nobody can have it open or mapped but opens that may have windows.
    pub fn is_all_windowed(&self) -> bool {
        self.windowed == self.opens && !self.looked_past
    }

    /// Whether an open that may have a window can be answered: all that it reads and writes must reach the agent, and whatever is
    /// mapped must show what the agent drains.
    pub fn can_window(&self, open: &OpenFile, can: Abilities) -> bool {
        let replica = can.passthrough && self.way != Way::Direct && !open.is_remote();
        replica || self.can_window_direct(open, can)
    }

    /// The same without passthrough. No drain reaches the pages of a mapping then: it must be an open that cannot be mapped. Behind a
    /// server whoever maps ends all windows; but through the page cache the kernel would answer for us.
    fn can_window_direct(&self, open: &OpenFile, can: Abilities) -> bool {
        if open.is_remote() { can.direct_mmap } else { open.writes_alone() }
    }

    /// Whether somebody has it open through the page cache.
    pub fn is_cached(&self) -> bool {
        self.opens > self.bypasses
    }

    /// Whether nobody has it open. A mapping may be left.
    pub fn is_closed(&self) -> bool {
        self.opens == 0
    }

    /// Whether a program runs from it: truncating it would kill that.
    pub fn is_executed(&self) -> bool {
        self.executing > 0
    }

    /// Counts a release; `bypasses` as it was answered.
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
