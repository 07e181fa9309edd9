//! Whose files are shown to a kernel that knows one user and one group only: the mount of an ordinary user, in a user namespace.
//!
//! The kernel refuses every change of a file whose owner or group has no name in that namespace, whatever the mode says, so that nothing in a
//! directory of a project could be written. All files are therefore shown as of the one user and the one group. The owner's bits of
//! other people's files are shown to grant all that any of their bits does: the kernel asks for no others. That is too much at times, and
//! what is too much the agent refuses, who does everything with the rights and all groups of the user.

use fuse_protocol::{Attr, SetAttr};

/// The user and the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnlyUser {
    /// The user.
    pub uid: u32,
    /// The user's primary group.
    pub gid: u32,
}

impl OnlyUser {
    /// Attributes as they are shown.
    pub(crate) fn show(self, attr: &mut Attr) {
        if attr.uid != self.uid {
            attr.mode |= (attr.mode << 3 | attr.mode << 6) & 0o700;
        }
        (attr.uid, attr.gid) = (self.uid, self.gid);
    }

    /// Whether a change would give a file of `gid` the group with which it is shown already: whoever copies attributes asks for that, and
    /// would take the file from its group.
    pub(crate) fn misleads(self, set: &SetAttr, gid: u32) -> bool {
        set.gid == Some(self.gid) && gid != self.gid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S35
    fn all_files_are_of_the_one_user_who_may_what_any_of_their_bits_grants() {
        let user = OnlyUser { uid: 7, gid: 8 };
        for (owner, mode, shown) in [
            (7, 0o100_070, 0o100_070),
            (0, 0o102_770, 0o102_770),
            (0, 0o100_640, 0o100_640),
            (0, 0o100_064, 0o100_664),
            (9, 0o100_005, 0o100_505),
        ] {
            let mut attr = Attr { uid: owner, gid: 5, mode, ..Attr::default() };
            user.show(&mut attr);
            assert_eq!((attr.uid, attr.gid, attr.mode), (7, 8, shown), "{mode:o}");
        }
        let set = SetAttr { gid: Some(8), ..SetAttr::default() };
        assert!(user.misleads(&set, 5) && !user.misleads(&set, 8) && !user.misleads(&SetAttr::default(), 5));
    }
}
