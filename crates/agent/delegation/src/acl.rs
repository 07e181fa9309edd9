//! POSIX ACLs (acl(5)), by the rules of Linux (`fs/posix_acl.c`).

use rustix::io::Errno;

/// Name of the attribute with the ACL of a node itself.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute with the ACL that new nodes of a directory begin with.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// An ACL whose entries are in the order that Linux demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<AclEntry>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    bits: u16,
    id: u32,
}

impl Acl {
    /// Reads an attribute's value, which may be invalid yet. `None` for an ACL without entries, which stands for none. Errors:
    /// `EINVAL` for other bytes; `EOPNOTSUPP` for another version.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>, Errno> {
        let (version, entries) = value.split_first_chunk().ok_or(Errno::INVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::OPNOTSUPP);
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Errno::INVAL);
        }
        let entry = |bytes: &[u8; 8]| {
            let [t0, t1, b0, b1, id @ ..] = *bytes;
            let (tag, bits) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([b0, b1]));
            let id = if tag & (USER | GROUP) == 0 { NO_ID } else { u32::from_le_bytes(id) };
            AclEntry { tag, bits, id }
        };
        let acl = Acl(entries.iter().map(entry).collect());
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        let is_known =
            |entry: &AclEntry| known.contains(&entry.tag) && (entry.id != NO_ID || entry.tag & (USER | GROUP) == 0);
        match acl.0.is_empty() {
            true => Ok(None),
            false if acl.0.iter().all(is_known) => Ok(Some(acl)),
            false => Err(Errno::INVAL),
        }
    }

    /// Whether all entries that must be there are, in their order.
    pub fn is_valid(&self) -> bool {
        let (mut expected, mut needs_mask) = (USER_OBJ, false);
        for AclEntry { tag, bits, .. } in &self.0 {
            expected = match (*tag, expected) {
                (USER_OBJ, USER_OBJ) => USER,
                (USER, USER) => USER,
                (GROUP_OBJ, USER) => GROUP,
                (GROUP, GROUP) => GROUP,
                (MASK, GROUP) => OTHER,
                (OTHER, OTHER) => 0,
                (OTHER, GROUP) if !needs_mask => 0,
                _ => return false,
            };
            needs_mask |= matches!(*tag, USER | GROUP);
            if bits & !7 != 0 {
                return false;
            }
        }
        expected == 0
    }

    /// Returns the attribute's value.
    pub fn encode(&self) -> Box<[u8]> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for AclEntry { tag, bits, id } in &self.0 {
            value.extend(tag.to_le_bytes());
            value.extend(bits.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value.into()
    }

    fn bits_of(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.bits)
    }

    fn change(&mut self, tag: u16, change: impl FnOnce(u16) -> u16) -> u16 {
        let entry = self.0.iter_mut().find(|entry| entry.tag == tag).expect("a valid ACL has the entry");
        entry.bits = change(entry.bits);
        entry.bits
    }

    /// The entry that the group bits of a mode stand for.
    fn group_class(&self) -> u16 {
        if self.bits_of(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// Returns the permission bits that a mode shows of this ACL.
    pub fn mode(&self) -> u16 {
        let bits = |tag| self.bits_of(tag).unwrap_or(0);
        bits(USER_OBJ) << 6 | bits(self.group_class()) << 3 | bits(OTHER)
    }

    /// Whether the ACL says no more than a mode.
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// Gives the entries that a mode stands for the bits of a new mode.
    pub fn set_mode(&mut self, mode: u16) {
        let class = self.group_class();
        self.change(USER_OBJ, |_| mode >> 6 & 7);
        self.change(class, |_| mode >> 3 & 7);
        self.change(OTHER, |_| mode & 7);
    }

    /// Makes a default ACL that of a new node, created with these permission bits. Returns the bits that remain.
    pub fn begin_with(&mut self, mode: u16) -> u16 {
        let class = self.group_class();
        let user = self.change(USER_OBJ, |bits| bits & mode >> 6);
        let group = self.change(class, |bits| bits & mode >> 3);
        let other = self.change(OTHER, |bits| bits & mode);
        mode & !0o777 | user << 6 | group << 3 | other
    }

    /// Whether a caller who is not the owner has the permissions `wanted`. `is_in` says whether a group is one of the caller's;
    /// `gid` is the node's.
    pub fn grants(&self, uid: u32, gid: u32, is_in: impl Fn(u32) -> bool, wanted: u16) -> bool {
        let mask = self.bits_of(MASK).unwrap_or(7);
        let (mut is_member, has) = (false, |bits: u16| bits & wanted == wanted);
        for AclEntry { tag, bits, id } in &self.0 {
            match *tag {
                USER if *id == uid => return has(bits & mask),
                GROUP_OBJ | GROUP if is_in(if *tag == GROUP_OBJ { gid } else { *id }) => {
                    is_member = true;
                    if has(*bits) {
                        return has(bits & mask);
                    }
                }
                OTHER => return !is_member && has(*bits),
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entries = entries.iter().map(|(tag, bits, id)| AclEntry { tag: *tag, bits: *bits, id: *id });
        Acl(entries.collect()).encode().into()
    }

    #[test]
    fn an_acl_in_order_is_read_and_others_are_refused() {
        let plain = [(USER_OBJ, 6, NO_ID), (GROUP_OBJ, 4, NO_ID), (OTHER, 0, NO_ID)];
        let acl = Acl::parse(&value(&plain)).unwrap().unwrap();
        assert_eq!((acl.mode(), acl.is_mode(), &acl.encode()[..]), (0o640, true, &value(&plain)[..]));
        let [user, group, other] = plain;
        let named = [user, (USER, 7, 5), group, (GROUP, 7, 9), (MASK, 5, NO_ID), other];
        let mut acl = Acl::parse(&value(&named)).unwrap().unwrap();
        assert_eq!((acl.mode(), acl.is_mode()), (0o650, false));
        acl.set_mode(0o711);
        assert_eq!((acl.mode(), acl.begin_with(0o2640)), (0o711, 0o2600));
        let refused: [&[(u16, u16, u32)]; 6] = [
            &[user, group],
            &[group, user, other],
            &[user, (USER, 7, 5), group, other],
            &[user, (USER, 7, NO_ID), group, (MASK, 5, NO_ID), other],
            &[user, group, (OTHER, 8, NO_ID)],
            &[user, group, other, other],
        ];
        for entries in refused {
            assert!(!Acl::parse(&value(entries)).is_ok_and(|acl| acl.unwrap().is_valid()), "{entries:?}");
        }
        assert_eq!(Acl::parse(&value(&[])), Ok(None));
        assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(Errno::OPNOTSUPP));
        assert_eq!(Acl::parse(&value(&plain)[..13]), Err(Errno::INVAL));
    }

    #[test]
    fn permissions_are_those_of_the_first_entry_that_fits() {
        let entries = [
            (USER_OBJ, 7, NO_ID),
            (USER, 6, 5),
            (GROUP_OBJ, 4, NO_ID),
            (GROUP, 3, 9),
            (MASK, 6, NO_ID),
            (OTHER, 4, NO_ID),
        ];
        let acl = Acl::parse(&value(&entries)).unwrap().unwrap();
        let grants = |uid, groups: &[u32], wanted| acl.grants(uid, 7, |gid| groups.contains(&gid), wanted);
        assert!(grants(5, &[9], 6) && !grants(5, &[9], 1));
        assert!(grants(6, &[7], 4) && !grants(6, &[7], 2));
        assert!(grants(6, &[9], 2) && !grants(6, &[9], 1) && !grants(6, &[9], 4), "the mask takes execution away");
        assert!(grants(6, &[], 4) && !grants(6, &[], 2));
    }
}
