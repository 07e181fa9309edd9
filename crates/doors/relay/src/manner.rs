//! How each kind of request is asked: how long it waits for a server that is away, over which connections, and whether it may
//! be done twice.

use std::time::Duration;

use fuse_protocol::view::{CopyView, ReadView, WriteView};
use fuse_protocol::{Envelope, Opcode, WriteFlags};
use wire::pace;

use crate::limits;

/// How long a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// `io_timeout`: it changes nothing that anybody would miss.
    Briefly,
    /// Until the server is back, or its caller is killed.
    Long,
    /// Nobody waits for it: what is not changes at once is changes later.
    Tells,
}

/// How a request is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    pub waits: Waits,
    pub pace: u8,
    /// Doing it twice would differ from doing it once.
    pub once: bool,
}

/// Whether an open empties its file.
pub(crate) fn cuts(envelope: &Envelope) -> bool {
    envelope.opcode == Some(Opcode::Open) && envelope.open_flags() & libc::O_TRUNC != 0
}

/// Returns the flags of a write; the default flags if the message is too short.
fn write_how(message: &[u8]) -> WriteFlags {
    WriteView::parse(message).map_or_else(WriteFlags::default, |write| write.how())
}

/// Whether a write goes to the end of the file.
fn appends(envelope: &Envelope, message: &[u8]) -> bool {
    envelope.opcode == Some(Opcode::Write) && write_how(message).append
}

/// Whether a write is the kernel's, of what programs stored through mappings, by whomever's descriptor.
pub(crate) fn is_cached(message: &[u8]) -> bool {
    write_how(message).cached
}

/// The file that a request changes in another way than by a write.
pub(crate) fn changes_otherwise(envelope: &Envelope, message: &[u8]) -> Option<u64> {
    match envelope.opcode? {
        Opcode::Fallocate => Some(envelope.node),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => Some(CopyView::parse(message)?.target()),
        Opcode::Setattr if envelope.sets_size() => Some(envelope.node),
        _ => None,
    }
}

/// Whether a write is on the medium when it is answered.
pub(crate) fn writes_durably(message: &[u8]) -> bool {
    write_how(message).sync
}

/// How a request is asked. `writes`: whether its open file is open for writing.
pub(crate) fn of(envelope: &Envelope, message: &[u8], writes: bool) -> Manner {
    use Opcode as O;
    let Some(opcode) = envelope.opcode else { return Manner { waits: Waits::Briefly, pace: pace::QUICK, once: false } };
    let waits = match opcode {
        O::Release | O::Releasedir => Waits::Tells,
        O::Open if !envelope.opens_for_writing() => Waits::Briefly,
        O::Flush if !writes => Waits::Briefly,
        O::Lookup | O::Opendir | O::Readdirplus | O::Ioctl => Waits::Briefly,
        pure if pure.is_pure() => Waits::Briefly,
        _ => Waits::Long,
    };
    let pace = match opcode {
        O::Getlk | O::Setlk | O::Setlkw | O::Interrupt | O::Forget | O::BatchForget | O::Destroy => pace::QUICK,
        O::Read | O::Readdir | O::Readdirplus if asks_for(message) > SMALL => pace::LARGE,
        O::Write if message.len() > limits::HEAD_BYTES + SMALL => pace::LARGE,
        O::Open | O::Create | O::Tmpfile | O::Flush | O::Fsync | O::Fsyncdir | O::Syncfs | O::Setattr => pace::SLOW,
        O::Rename | O::Rename2 | O::Fallocate | O::CopyFileRange | O::CopyFileRange64 | O::Release => pace::SLOW,
        _ => pace::BRIEF,
    };
    let once = matches!(
        opcode,
        O::Mknod
            | O::Mkdir
            | O::Symlink
            | O::Unlink
            | O::Rmdir
            | O::Rename
            | O::Rename2
            | O::Link
            | O::Create
            | O::Setxattr
            | O::Removexattr
    ) || appends(envelope, message)
        || envelope.sets_size()
        || cuts(envelope);
    Manner { waits, pace, once }
}

/// Data of this many bytes is not small.
const SMALL: usize = 16 << 10;

/// The size that a read asks for.
fn asks_for(message: &[u8]) -> usize {
    ReadView::parse(message).map_or(0, |read| read.size())
}

/// Whether what the caller may do decides, and with it the groups that it is in.
pub(crate) fn depends_on_groups(opcode: Option<Opcode>) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        Some(
            O::Setattr
                | O::Symlink
                | O::Mknod
                | O::Mkdir
                | O::Unlink
                | O::Rmdir
                | O::Rename
                | O::Rename2
                | O::Link
                | O::Open
                | O::Opendir
                | O::Create
                | O::Tmpfile
                | O::Setxattr
                | O::Removexattr
                | O::Listxattr
        )
    )
}

impl Manner {
    /// How long, where reads wait for `patience`.
    pub fn within(&self, patience: Duration) -> Option<Duration> {
        match self.waits {
            Waits::Briefly => Some(patience),
            Waits::Long => None,
            Waits::Tells => Some(limits::RELEASE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(opcode: Opcode, first: i32) -> Envelope {
        let first = u64::from(first.cast_unsigned());
        Envelope { opcode: Some(opcode), unique: 2, node: 1, uid: 0, gid: 0, pid: 1, first }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut random = testkit::Random(11);
        use Opcode as O;
        for opcode in [O::Open, O::Readdirplus, O::Setattr, O::Flush, O::Setlk, O::Setlkw, O::Write, O::Read] {
            for _ in 0..300 {
                let len = random.below(200) as usize;
                let bytes = random.bytes(len);
                let envelope = Envelope { first: random.next(), ..envelope(opcode, 0) };
                _ = of(&envelope, &bytes, random.below(2) == 0);
            }
        }
    }

    #[test]
    fn what_changes_anything_waits_and_what_only_looks_does_not() {
        let waits = |opcode, first| of(&envelope(opcode, first), &[], false).waits;
        assert_eq!(waits(Opcode::Open, libc::O_RDONLY), Waits::Briefly);
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC] {
            assert_eq!(waits(Opcode::Open, flags), Waits::Long);
        }
        for opcode in [Opcode::Read, Opcode::Lookup, Opcode::Getattr, Opcode::Opendir, Opcode::Flush] {
            assert_eq!(waits(opcode, 0), Waits::Briefly, "{opcode:?}");
        }
        for opcode in [Opcode::Write, Opcode::Create, Opcode::Unlink, Opcode::Rename2, Opcode::Fsync, Opcode::Setlkw] {
            assert_eq!(waits(opcode, 0), Waits::Long, "{opcode:?}");
        }
        assert_eq!(of(&envelope(Opcode::Flush, 1), &[], true).waits, Waits::Long);
    }

    /// The bit of SETATTR that says that the size is set.
    const SETS_SIZE: u64 = 1 << 3;

    #[test]
    fn what_may_be_lost_is_remembered_by_the_server_or_may_be_done_twice() {
        for opcode in [Opcode::Mkdir, Opcode::Unlink, Opcode::Rename2, Opcode::Create, Opcode::Link] {
            assert!(of(&envelope(opcode, 0), &[], false).once && !opcode.is_pure(), "{opcode:?}");
        }
        // Done again, they would take what somebody else has written between.
        let cut = Envelope { first: SETS_SIZE, ..envelope(Opcode::Setattr, 0) };
        let emptied = Envelope { first: libc::O_TRUNC as u64, ..envelope(Opcode::Open, 0) };
        assert!(of(&cut, &[], false).once && !of(&envelope(Opcode::Setattr, 0), &[], false).once);
        assert!(of(&emptied, &[], false).once && !of(&envelope(Opcode::Open, 0), &[], false).once);
        // It counts a lookup, opens a file, moves the end of one.
        for opcode in [Opcode::Lookup, Opcode::Open, Opcode::Write, Opcode::Release, Opcode::BatchForget] {
            assert!(!opcode.is_pure(), "{opcode:?}");
        }
    }

    #[test]
    fn large_requests_have_connections_of_their_own() {
        let mut message = vec![0; 80];
        message[56..60].copy_from_slice(&(1_u32 << 20).to_ne_bytes());
        assert_eq!(of(&envelope(Opcode::Read, 0), &message, false).pace, pace::LARGE);
        assert_eq!(of(&envelope(Opcode::Read, 0), &[0; 80], false).pace, pace::BRIEF);
        assert_eq!(of(&envelope(Opcode::Write, 0), &vec![0; 1 << 20], false).pace, pace::LARGE);
        assert_eq!(of(&envelope(Opcode::Write, 0), &[0; 4096], false).pace, pace::BRIEF);
    }
}
