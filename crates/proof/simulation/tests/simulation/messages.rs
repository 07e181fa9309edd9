//! Messages of a kernel, as its node sends them.

use types::LockKind;

pub const OPEN: u32 = 14;
pub const WRITE: u32 = 16;
pub const RELEASE: u32 = 18;
pub const FSYNC: u32 = 20;
pub const FLUSH: u32 = 25;
pub const INIT: u32 = 26;
pub const SETLK: u32 = 32;
pub const SETLKW: u32 = 33;

/// Flag of RELEASE: the owner's flock ends with it.
const FLOCK_UNLOCK: u32 = 2;
/// Flag of SETLK: the lock is a flock.
const LK_FLOCK: u32 = 1;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

/// A request of root, by a thread of this process.
pub fn request(opcode: u32, unique: u64, file: u64, body: &[Vec<u8>]) -> Vec<u8> {
    let body = body.concat();
    let head =
        [words(&[40 + body.len() as u32, opcode]), longs(&[unique, file]), words(&[0, 0, std::process::id(), 0])];
    [head.concat(), body].concat()
}

/// An answer with an error, or 0, and a body.
pub fn answer(errno: i32, unique: u64, body: &[u8]) -> Vec<u8> {
    let head = [(16 + body.len() as u32).to_ne_bytes(), (-errno).to_ne_bytes()].concat();
    [head, longs(&[unique]), body.to_vec()].concat()
}

pub fn open(unique: u64, file: u64) -> Vec<u8> {
    request(OPEN, unique, file, &[words(&[libc::O_RDWR.cast_unsigned(), 0])])
}

/// The body of the answer to an open.
pub fn opened(handle: u64) -> Vec<u8> {
    [longs(&[handle]), words(&[0, 0])].concat()
}

pub fn write(unique: u64, file: u64, handle: u64, place: Option<u64>, id: u64) -> Vec<u8> {
    let flags = if place.is_none() { libc::O_APPEND.cast_unsigned() } else { 0 };
    let size = longs(&[id]).len() as u32;
    let place = place.unwrap_or(0);
    request(WRITE, unique, file, &[longs(&[handle, place]), words(&[size, 0, 0, 0, flags, 0]), longs(&[id])])
}

pub fn fsync(unique: u64, file: u64, handle: u64) -> Vec<u8> {
    request(FSYNC, unique, file, &[longs(&[handle]), words(&[0, 0])])
}

pub fn flush(unique: u64, file: u64, handle: u64, owner: u64) -> Vec<u8> {
    request(FLUSH, unique, file, &[longs(&[handle]), words(&[0, 0]), longs(&[owner])])
}

pub fn release(unique: u64, file: u64, handle: u64, owner: u64) -> Vec<u8> {
    request(RELEASE, unique, file, &[longs(&[handle]), words(&[0, FLOCK_UNLOCK]), longs(&[owner])])
}

/// `kind`: of the lock to take; `None`: releases.
pub fn lock(
    (opcode, unique, file): (u32, u64, u64),
    (handle, owner): (u64, u64),
    kind: Option<LockKind>,
    range: (u64, u64),
    flock: bool,
) -> Vec<u8> {
    let kind = match kind {
        Some(LockKind::Shared) => libc::F_RDLCK,
        Some(LockKind::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    let body = [
        longs(&[handle, owner, range.0, range.1]),
        words(&[kind.cast_unsigned(), 7, if flock { LK_FLOCK } else { 0 }, 0]),
    ];
    request(opcode, unique, file, &body)
}

/// The part of a RELEASE behind its handle: whether it ends a flock, and whose.
pub fn flock_of_release(message: &[u8]) -> Option<u64> {
    let flags = u32::from_ne_bytes(*message.get(52..)?.first_chunk()?);
    let owner = u64::from_ne_bytes(*message.get(56..)?.first_chunk()?);
    (flags & FLOCK_UNLOCK != 0).then_some(owner)
}

/// The request that an INTERRUPT is about.
pub fn interrupted(message: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(*message.get(40..)?.first_chunk()?))
}
