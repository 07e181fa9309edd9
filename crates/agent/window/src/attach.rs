//! Messages between programs and the agent about windows. Only this file knows their bytes.
//!
//! There are three small interfaces, all little-endian, all with a version and a size. `docs/window.md` describes their
//! use.
//!
//! - [`WindowMessage`]: 64 bytes on a `SOCK_SEQPACKET` Unix socket. `Hello` is answered by `Welcome` with one descriptor (the
//!   [`page`]). `Fetch` is answered by `Ring` with two (ring and sequence counter), and `Here` by `Here`. Each may be
//!   answered by `Refused`. A request is sent only after the former one was answered, so an answer need not name its
//!   request.
//! - [`Control`]: the argument of the ioctl [`CONTROL`] on a descriptor of an accelerated file.
//! - [`page`]: memory in which a thread announces that it is about to open a file.

use crate::layout::RingId;

/// Version of messages and pages, raised with every change of them. Another version is refused. Version 2 added `Here`.
pub const VERSION: u16 = 2;
/// Version of the argument of [`CONTROL`], which programs may use by themselves. Raised with every change of it;
/// another version is refused.
pub const CONTROL_VERSION: u32 = 1;
/// Mark in the bytes of a preload library that fits this agent.
pub const LIBRARY_MARK: &str = concat!("forebay preload library ", env!("CARGO_PKG_VERSION"), ", windows 2;");
/// First word of a message and of a page.
pub const MAGIC: u32 = u32::from_le_bytes(*b"fbwA");
/// Bytes of every message.
pub const MESSAGE_BYTES: usize = 64;
/// Bytes of the argument of [`CONTROL`].
pub const CONTROL_BYTES: usize = 32;
/// Number of the ioctl: `_IOWR(0xFB, 1, struct forebay_window)`.
pub const CONTROL: u32 = 3 << 30 | (CONTROL_BYTES as u32) << 16 | 0xfb << 8 | 1;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum MessageKind {
    /// Program: asks to be registered.
    Hello = 1,
    /// Agent: the program is registered; the page is attached.
    Welcome = 2,
    /// Program: asks for the ring of a token.
    Fetch = 3,
    /// Agent: ring and sequence counter are attached.
    Ring = 4,
    /// Agent: refuses, with the reason in `status`.
    Refused = 5,
    // 6 and 7 asked for the page of truncations, and are not used again.
    /// Program: asks whether the agent answers. Agent: it does.
    Here = 8,
}

/// Message. Fields that its kind does not use are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowMessage {
    /// Kind of the message.
    pub kind: MessageKind,
    /// Errno of a `Refused`.
    pub status: i32,
    /// Token of one attachment; valid once.
    pub token: u64,
    /// Id of the ring.
    pub ring: RingId,
    /// Capacity of the ring for records, bytes.
    pub capacity: u64,
    /// Number of the medium. 0: does not survive a crash of the machine. 1: survives it. 2: does not, but is written as
    /// if it did.
    pub medium: u32,
}

/// Reason why bytes are not a message of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAMessage {
    /// The length, magic or size is wrong.
    Foreign,
    /// The message has another version.
    Version(u16),
    /// The kind is unknown in this version.
    Kind(u16),
}

impl WindowMessage {
    /// Makes a message with only its kind.
    pub fn new(kind: MessageKind) -> WindowMessage {
        WindowMessage { kind, status: 0, token: 0, ring: RingId(0), capacity: 0, medium: 0 }
    }

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC.to_le_bytes());
        put(4, &VERSION.to_le_bytes());
        put(6, &(self.kind as u16).to_le_bytes());
        put(8, &(MESSAGE_BYTES as u32).to_le_bytes());
        put(12, &self.status.to_le_bytes());
        put(16, &self.token.to_le_bytes());
        put(24, &self.ring.0.to_le_bytes());
        put(40, &self.capacity.to_le_bytes());
        put(48, &self.medium.to_le_bytes());
        bytes
    }

    /// Decodes a message.
    pub fn from_bytes(bytes: &[u8]) -> Result<WindowMessage, NotAMessage> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().map_err(|_| NotAMessage::Foreign)?;
        if u32_at(bytes, 0) != MAGIC {
            return Err(NotAMessage::Foreign);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(NotAMessage::Version(version));
        }
        if u32_at(bytes, 8) as usize != MESSAGE_BYTES {
            return Err(NotAMessage::Foreign);
        }
        let kind = u16::from_le_bytes([bytes[6], bytes[7]]);
        use MessageKind::{Fetch, Hello, Here, Refused, Ring, Welcome};
        let kinds = [Hello, Welcome, Fetch, Ring, Refused, Here];
        let kind = kinds.into_iter().find(|known| *known as u16 == kind).ok_or(NotAMessage::Kind(kind))?;
        Ok(WindowMessage {
            kind,
            status: u32_at(bytes, 12) as i32,
            token: u64_at(bytes, 16),
            ring: RingId(u128::from(u64_at(bytes, 24)) | u128::from(u64_at(bytes, 32)) << 64),
            capacity: u64_at(bytes, 40),
            medium: u32_at(bytes, 48),
        })
    }
}

/// Command of a [`CONTROL`] call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Change nothing; return `state` and `bytes`.
    Get = 0,
    /// Allow the open file a window, and read-ahead of its reads.
    On = 1,
    /// Forbid the open file a window. A window that it has ends after its records are applied. Also ends read-ahead of
    /// its reads, but not with [`state::ENDS`].
    Off = 2,
    /// Give the next window the size `bytes`. The present window ends after its records are applied.
    Size = 3,
    /// Ask for a token for [`MessageKind::Fetch`].
    Attach = 4,
    // 5 asked for a replica that programs map, and is not used again.
    /// Tell how the program will read the open file; `state` is one of [`advice`]. For bytes needed soon, `token` is
    /// the first byte and `bytes` their number, 0 for all up to the end.
    Advise = 6,
    /// Make all data written to files of the agent survive a crash of the machine (`syncfs`).
    SyncAll = 7,
}

/// Values of [`Command::Advise`], numbered as for `posix_fadvise` on Linux.
pub mod advice {
    /// No advice.
    pub const NORMAL: u32 = 0;
    /// Random reads.
    pub const RANDOM: u32 = 1;
    /// Sequential reads.
    pub const SEQUENTIAL: u32 = 2;
    /// These bytes will be needed soon.
    pub const WILL_NEED: u32 = 3;
}

/// Bits of [`Control::state`].
pub mod state {
    /// The open file may have a window now.
    pub const MAY: u32 = 1;
    /// The open file has a window.
    pub const HAS: u32 = 2;
    /// All acknowledged writes of the window survive a crash of the machine without a sync.
    pub const DURABLE: u32 = 4;
    /// Input, from the library: only the window ends; nothing else is switched off.
    pub const ENDS: u32 = 8;
}

/// Argument of [`CONTROL`]: `struct forebay_window` of `docs/window.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Input: the command.
    pub command: Command,
    /// Input: the wanted size of the window in bytes, 0 for the policy's. Output: the window's size, 0 if there is
    /// none.
    pub bytes: u64,
    /// Output of `Attach`: the token. Input of `Advise`: the first byte.
    pub token: u64,
    /// Output: bits of [`state`]. Input of `Advise`: one of [`advice`]. Input of `Off`: [`state::ENDS`] or nothing.
    pub state: u32,
}

impl Control {
    /// Makes the argument of a command.
    pub fn new(command: Command, bytes: u64) -> Control {
        Control { command, bytes, token: 0, state: 0 }
    }

    /// Encodes the argument.
    pub fn to_bytes(&self) -> [u8; CONTROL_BYTES] {
        let mut bytes = [0; CONTROL_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &(CONTROL_BYTES as u32).to_le_bytes());
        put(4, &(self.command as u32).to_le_bytes());
        put(8, &self.bytes.to_le_bytes());
        put(16, &self.token.to_le_bytes());
        put(24, &self.state.to_le_bytes());
        put(28, &CONTROL_VERSION.to_le_bytes());
        bytes
    }

    /// Decodes the argument. Returns `None` if its size, version or command is unknown.
    pub fn from_bytes(bytes: &[u8]) -> Option<Control> {
        let bytes: &[u8; CONTROL_BYTES] = bytes.try_into().ok()?;
        if u32_at(bytes, 0) as usize != CONTROL_BYTES || u32_at(bytes, 28) != CONTROL_VERSION {
            return None;
        }
        use Command::{Advise, Attach, Get, Off, On, Size, SyncAll};
        let commands = [Get, On, Off, Size, Attach, Advise, SyncAll];
        let command = commands.into_iter().find(|known| *known as u32 == u32_at(bytes, 4))?;
        Some(Control { command, bytes: u64_at(bytes, 8), token: u64_at(bytes, 16), state: u32_at(bytes, 24) })
    }
}

/// Memory in which threads announce opens: one page per registered process.
///
/// Word 0 holds magic and version. A slot is two words: the thread's id during an open, and the agent's answer.
pub mod page {
    /// Size of the page, bytes.
    pub const BYTES: usize = 4096;
    /// Offset of the first slot, bytes.
    pub const SLOTS_AT: usize = 64;
    /// Size of a slot, bytes.
    pub const SLOT_BYTES: usize = 16;
    /// Number of threads that can open at once. One more opens without a window.
    pub const SLOTS: usize = (BYTES - SLOTS_AT) / SLOT_BYTES;
    /// Bit beside the thread's id: a window only if readers of the file lose nothing. An agent that does not know the
    /// bit takes the announcement for another thread's.
    pub const MILD: u64 = 1 << 62;
    /// Value of the thread's word while the slot is being prepared.
    pub const PREPARING: u64 = 1 << 63;
    /// Answer to an open that may have a window.
    pub const WINDOWED: u64 = 1;

    /// Returns the offset of the thread's word of a slot.
    pub const fn thread_at(slot: usize) -> usize {
        SLOTS_AT + slot * SLOT_BYTES
    }

    /// Returns the offset of the answer of a slot.
    pub const fn answer_at(slot: usize) -> usize {
        thread_at(slot) + 8
    }

    /// Returns the first word of a page.
    pub const fn identification() -> u64 {
        super::MAGIC as u64 | (super::VERSION as u64) << 32
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn messages_have_the_bytes_that_other_builds_know() {
        let ring = WindowMessage {
            kind: MessageKind::Ring,
            status: 0,
            token: 0x1122_3344_5566_7788,
            ring: RingId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
            capacity: 16 << 20,
            medium: 1,
        };
        let golden = "6662774102000400400000000000000088776655443322110001020304050607\
                      08090a0b0c0d0e0f000000010000000001000000000000000000000000000000";
        assert_eq!(hex(&ring.to_bytes()), golden);
        assert_eq!(WindowMessage::from_bytes(&ring.to_bytes()), Ok(ring));
        let refused = WindowMessage { status: -1, ..WindowMessage::new(MessageKind::Refused) };
        assert_eq!(
            hex(&refused.to_bytes()[..24]),
            "66627741020005004000\
                      0000ffffffff0000000000000000"
        );
        assert_eq!(WindowMessage::from_bytes(&refused.to_bytes()), Ok(refused));
        use MessageKind::{Fetch, Hello, Here, Refused, Ring, Welcome};
        for (kind, number) in [(Hello, 1), (Welcome, 2), (Fetch, 3), (Ring, 4), (Refused, 5), (Here, 8)] {
            let golden = format!("666277410200{number:02x}0040{}", "0".repeat(110));
            assert_eq!(hex(&WindowMessage::new(kind).to_bytes()), golden);
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let good = WindowMessage::new(MessageKind::Hello).to_bytes();
        assert_eq!(WindowMessage::from_bytes(&good[..63]), Err(NotAMessage::Foreign));
        for (at, value, error) in [
            (0, 0, NotAMessage::Foreign),
            (4, 1, NotAMessage::Version(1)),
            (4, 9, NotAMessage::Version(9)),
            (6, 77, NotAMessage::Kind(77)),
            (8, 32, NotAMessage::Foreign),
        ] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(WindowMessage::from_bytes(&bytes), Err(error));
        }
    }

    #[test]
    fn the_control_argument_is_the_struct_of_the_documentation() {
        assert_eq!(CONTROL, 0xc020_fb01);
        let size = Control { command: Command::Size, bytes: 1 << 20, token: 7, state: state::MAY | state::HAS };
        let golden = "2000000003000000000010000000000007000000000000000300000001000000";
        assert_eq!(hex(&size.to_bytes()), golden);
        assert_eq!(Control::from_bytes(&size.to_bytes()), Some(size));
        for (at, value) in [(0, 31), (4, 8), (28, 2)] {
            let mut bytes = size.to_bytes();
            bytes[at] = value;
            assert_eq!(Control::from_bytes(&bytes), None);
        }
        assert_eq!(Control::from_bytes(&[0; 16]), None);
    }

    #[test]
    fn a_page_has_room_for_its_slots() {
        assert_eq!((page::SLOTS, page::answer_at(page::SLOTS - 1) + 8), (252, page::BYTES));
        assert_eq!(page::identification(), 0x2_4177_6266);
        assert!(LIBRARY_MARK.ends_with(&format!(", windows {VERSION};")));
    }
}
