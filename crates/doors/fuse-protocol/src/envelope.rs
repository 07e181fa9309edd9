//! Header information of messages, and the few messages that a relay makes itself.

use std::ops::Range;

use crate::abi::{
    self, BatchForgetIn, EntryOut, FileLock, ForgetOne, InHeader, InterruptIn, LkIn, Opcode, OpenOut, OutHeader,
    ReleaseIn, WriteIn, WriteOut, bytes_of, fattr, take,
};
use crate::view::WriteView;
use crate::{Handle, LockArgs, NodeId};

/// Header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Kind of the request; `None` if this layer does not know it.
    pub opcode: Option<Opcode>,
    /// Number of the request.
    pub unique: u64,
    /// Node of the request.
    pub node: NodeId,
    /// The caller's file system user id.
    pub uid: u32,
    /// The caller's file system group id.
    pub gid: u32,
    /// Thread id of the caller, in the numbering of its kernel's machine.
    pub pid: u32,
    /// First eight bytes of the arguments: an open file, flags, or another directory. 0 if there are fewer.
    pub first: u64,
}

impl Envelope {
    pub(crate) fn new(header: &InHeader, message: &[u8]) -> Envelope {
        let first = message.get(size_of::<InHeader>()..).and_then(<[u8]>::first_chunk::<8>);
        Envelope {
            opcode: Opcode::of(header.opcode),
            unique: header.unique,
            node: header.nodeid,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            first: first.map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
        }
    }

    /// Decodes the envelope of a message or of its beginning. Returns `None` if it is shorter than a header.
    pub fn of(message: &[u8]) -> Option<Envelope> {
        take::<InHeader>(message).map(|(header, _)| Envelope::new(&header, message))
    }

    /// Returns the flags of OPEN and CREATE, as of open(2).
    pub fn open_flags(&self) -> i32 {
        (self.first as u32).cast_signed()
    }

    /// Tells whether the request opens a file for writing.
    pub fn opens_for_writing(&self) -> bool {
        match self.opcode {
            Some(Opcode::Create | Opcode::Tmpfile) => true,
            Some(Opcode::Open) => {
                let flags = self.open_flags();
                flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0
            }
            _ => false,
        }
    }

    /// Tells whether the request closes an open file or directory for good.
    pub fn releases(&self) -> bool {
        matches!(self.opcode, Some(Opcode::Release | Opcode::Releasedir))
    }

    /// Tells whether the request cuts or extends a file.
    pub fn sets_size(&self) -> bool {
        self.opcode == Some(Opcode::Setattr) && self.first as u32 & fattr::SIZE != 0
    }
}

/// References that an answer gave to the kernel, to be given back later: a lookup, an open file, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Node that was looked up; 0: none.
    pub looked_up: NodeId,
    /// Open file or directory, with its node.
    pub opened: Option<(NodeId, Handle)>,
    /// Whether it is a directory.
    pub directory: bool,
}

impl Given {
    /// Reads what an answer, header included, gave. Returns `None` for nothing or an error.
    pub fn by(envelope: &Envelope, answer: &[u8]) -> Option<Given> {
        let (header, body) = take::<OutHeader>(answer)?;
        if header.error != 0 {
            return None;
        }
        let opened = |node: NodeId, body: &[u8]| take::<OpenOut>(body).map(|(out, _)| (node, out.fh));
        let (looked_up, opened, directory) = match envelope.opcode? {
            Opcode::Lookup | Opcode::Mknod | Opcode::Mkdir | Opcode::Symlink | Opcode::Link => {
                (take::<EntryOut>(body)?.0.nodeid, None, false)
            }
            Opcode::Create | Opcode::Tmpfile => {
                let (entry, rest) = take::<EntryOut>(body)?;
                (entry.nodeid, opened(entry.nodeid, rest), false)
            }
            Opcode::Open => (0, opened(envelope.node, body), false),
            Opcode::Opendir => (0, opened(envelope.node, body), true),
            _ => return None,
        };
        (looked_up != 0 || opened.is_some()).then_some(Given { looked_up, opened, directory })
    }

    /// Returns whether answers to such a request can give a reference.
    pub fn may_be(opcode: Opcode) -> bool {
        use Opcode as O;
        matches!(
            opcode,
            O::Lookup | O::Mknod | O::Mkdir | O::Symlink | O::Link | O::Create | O::Tmpfile | O::Open | O::Opendir
        )
    }
}

fn message(opcode: u32, (unique, nodeid): (u64, NodeId), body: &[&[u8]]) -> Vec<u8> {
    let len = size_of::<InHeader>() + body.iter().map(|part| part.len()).sum::<usize>();
    let header = InHeader { len: len as u32, opcode, unique, nodeid, ..InHeader::default() };
    let mut message = bytes_of(&header).to_vec();
    body.iter().for_each(|part| message.extend_from_slice(part));
    message
}

/// Makes the message that gives lookups back, for pairs of node and count.
pub fn forgets(ones: &[(NodeId, u64)]) -> Vec<u8> {
    let ones: Vec<u8> =
        ones.iter().flat_map(|&(nodeid, nlookup)| bytes_of(&ForgetOne { nodeid, nlookup }).to_vec()).collect();
    let count = (ones.len() / size_of::<ForgetOne>()) as u32;
    message(abi::BATCH_FORGET, (0, 0), &[bytes_of(&BatchForgetIn { count, dummy: 0 }), &ones])
}

/// Makes the message that interrupts a request.
pub fn interrupt(unique: u64) -> Vec<u8> {
    // Numbered as the kernel does.
    message(abi::INTERRUPT, (unique | 1, 0), &[bytes_of(&InterruptIn { unique })])
}

/// Number for requests made here, which no kernel uses: kernels use even numbers, starting after it.
const OURS: u64 = 1;

/// Makes the message that takes or releases a lock without waiting.
pub fn set_lock(node: NodeId, handle: Handle, lock: &LockArgs) -> Vec<u8> {
    let lk = FileLock { start: lock.start, end: lock.end, kind: lock.kind.cast_unsigned(), pid: lock.pid };
    let lk_flags = if lock.flock { abi::LK_FLOCK } else { 0 };
    let body = LkIn { fh: handle, owner: lock.owner, lk, lk_flags, padding: 0 };
    message(abi::SETLK, (OURS, node), &[bytes_of(&body)])
}

/// Makes the message that closes an open file. Flocks are not released with it.
pub fn release(node: NodeId, handle: Handle) -> Vec<u8> {
    message(abi::RELEASE, (OURS, node), &[bytes_of(&ReleaseIn { fh: handle, ..ReleaseIn::default() })])
}

/// Makes the head of a write of one part of another write's data, and returns it with that data. Returns `None` if the
/// write has no such part.
pub fn part_of_write(message: &[u8], part: Range<usize>) -> Option<(Vec<u8>, &[u8])> {
    let (header, body) = take::<InHeader>(message)?;
    let (fixed, data) = take::<WriteIn>(body)?;
    let data = data.get(part.clone())?;
    let fixed = WriteIn { offset: fixed.offset + part.start as u64, size: data.len() as u32, ..fixed };
    let header = InHeader { len: (WriteView::HEAD_BYTES + data.len()) as u32, ..header };
    Some(([bytes_of(&header), bytes_of(&fixed)].concat(), data))
}

/// Makes the answer to a write of `bytes` bytes.
pub fn written(unique: u64, bytes: usize) -> Vec<u8> {
    let body = WriteOut { size: bytes as u32, padding: 0 };
    let len = (size_of::<OutHeader>() + size_of_val(&body)) as u32;
    [bytes_of(&OutHeader { len, error: 0, unique }), bytes_of(&body)].concat()
}

/// Makes the notification that the cached data and attributes of a node are no longer valid. The kernel writes back the
/// pages changed by mappings and drops all pages.
pub fn drops_pages(node: NodeId) -> Vec<u8> {
    let body = abi::NotifyInvalInodeOut { ino: node, off: 0, len: 0 };
    let len = size_of::<abi::OutHeader>() + size_of_val(&body);
    let header = abi::OutHeader { len: len as u32, error: abi::notify_code::INVAL_INODE, unique: 0 };
    [bytes_of(&header), bytes_of(&body)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Operation, decode};
    use crate::init::Agreed;

    const SETATTR: u32 = 4;
    const WRITE: u32 = 16;

    #[test]
    fn messages_of_our_own_are_those_of_the_kernel() {
        let agreed = Agreed::default();
        let message = forgets(&[(7, 2), (9, 1)]);
        let (_, operation) = decode(&message, &[], &agreed).unwrap();
        assert!(matches!(operation, Operation::BatchForget { ones } if ones.len() == 32));
        let message = interrupt(12);
        let (header, operation) = decode(&message, &[], &agreed).unwrap();
        assert!(header.unique == 13 && matches!(operation, Operation::Interrupt { unique: 12 }));
        let wanted = LockArgs { start: 1, end: 2, kind: libc::F_WRLCK, pid: 3, owner: 4, flock: true };
        let message = set_lock(5, 6, &wanted);
        let (header, operation) = decode(&message, &[], &agreed).unwrap();
        assert!(header.nodeid == 5 && header.unique % 2 == 1);
        assert!(matches!(operation, Operation::Setlk { handle: 6, lock, wait: false } if lock == wanted));
        let message = release(5, 6);
        let (header, operation) = decode(&message, &[], &agreed).unwrap();
        assert!(header.nodeid == 5 && matches!(operation, Operation::Release { handle: 6, flock_owner: None, .. }));
    }

    #[test]
    fn a_part_of_a_write_is_a_write_of_its_own() {
        let flags = libc::O_APPEND.cast_unsigned();
        let fixed = WriteIn { fh: 3, offset: 100, size: 8, flags, ..WriteIn::default() };
        let whole = message(WRITE, (2, 7), &[bytes_of(&fixed), b"01234567"]);
        let (head, data) = part_of_write(&whole, 2..5).unwrap();
        let part = [&head[..], data].concat();
        let (header, operation) = decode(&part, &[], &Agreed::default()).unwrap();
        assert_eq!((header.unique, header.nodeid), (2, 7));
        let Operation::Write { handle: 3, offset: 102, data: b"234", how } = operation else { panic!("{operation:?}") };
        assert!(how.append);
        assert_eq!(part_of_write(&whole, 2..9), None);
        assert!((0..whole.len()).all(|len| part_of_write(&whole[..len], 0..8).is_none()));
    }

    #[test]
    fn the_answer_to_a_write_says_how_much_was_written() {
        let answer = written(2, 4096);
        let (header, body) = take::<OutHeader>(&answer).unwrap();
        assert_eq!((header.len, header.error, header.unique), (24, 0, 2));
        let (out, rest) = take::<WriteOut>(body).unwrap();
        assert_eq!((out.size, rest.len()), (4096, 0));
    }

    #[test]
    fn only_a_setattr_of_the_size_sets_it() {
        let envelope = |opcode, valid| {
            let fixed = abi::SetattrIn { valid, ..Default::default() };
            Envelope::of(&message(opcode, (2, 5), &[bytes_of(&fixed)])).unwrap()
        };
        assert!(envelope(SETATTR, fattr::SIZE | fattr::FH).sets_size());
        assert!(!envelope(SETATTR, fattr::MODE).sets_size() && !envelope(WRITE, fattr::SIZE).sets_size());
    }

    #[test]
    fn what_an_answer_gave_is_read_from_it() {
        let envelope = |opcode| Envelope { opcode: Some(opcode), unique: 2, node: 5, uid: 0, gid: 0, pid: 0, first: 0 };
        let answer = |error: i32, body: &[&[u8]]| {
            let mut answer = bytes_of(&OutHeader { len: 0, error, unique: 2 }).to_vec();
            body.iter().for_each(|part| answer.extend_from_slice(part));
            answer
        };
        let (entry, open) = (EntryOut { nodeid: 8, ..Default::default() }, OpenOut { fh: 3, ..Default::default() });
        let created = answer(0, &[bytes_of(&entry), bytes_of(&open)]);
        let given = Given { looked_up: 8, opened: Some((8, 3)), directory: false };
        assert_eq!(Given::by(&envelope(Opcode::Create), &created), Some(given));
        let opened = Given { looked_up: 0, opened: Some((5, 3)), directory: true };
        assert_eq!(Given::by(&envelope(Opcode::Opendir), &answer(0, &[bytes_of(&open)])), Some(opened));
        assert_eq!(Given::by(&envelope(Opcode::Lookup), &answer(-2, &[])), None);
        let negative = answer(0, &[bytes_of(&EntryOut::default())]);
        assert_eq!(Given::by(&envelope(Opcode::Lookup), &negative), None);
        assert_eq!(Given::by(&envelope(Opcode::Create), &created[..40]), None);
    }
}
