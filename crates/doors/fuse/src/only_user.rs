//! Attributes for a kernel that knows only one user and one group: the mount of an ordinary user, in a user
//! namespace.
//!
//! The kernel refuses every change of a file whose owner or group has no mapping in that namespace, whatever the mode
//! is. A user could then write nothing in a project's directory. So all files are shown with the one user and group
//! as owner. For other owners' files, the owner's permission bits are shown as the union of all bits, since the
//! kernel checks no others. That grants too much in some cases. The agent refuses those: it executes every request
//! with the user's rights and all groups.

use fuse_protocol::{Attr, SetAttr};

/// User and group that the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnlyUser {
    /// User id.
    pub uid: u32,
    /// The user's primary group id.
    pub gid: u32,
}

impl OnlyUser {
    /// Changes attributes to those shown to the kernel.
    pub(crate) fn show(self, attr: &mut Attr) {
        if attr.uid != self.uid {
            attr.mode |= (attr.mode << 3 | attr.mode << 6) & 0o700;
        }
        (attr.uid, attr.gid) = (self.uid, self.gid);
    }

    /// Returns whether a change would set the group that is already shown, on a file whose real group is another.
    /// Programs that copy attributes do that, and the file would lose its real group.
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
