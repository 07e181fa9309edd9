//! Request numbers of the kernel.

use super::{IoctlIn, take};

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// Kind of a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the kernel's own names")]
        pub enum Opcode { $($name),* }

        impl Opcode {
            /// All requests that are decoded.
            pub(crate) const ALL: &[(Opcode, u32)] = &[$((Opcode::$name, $number)),*];

            /// Returns the kernel's number of the request.
            pub fn number(self) -> u32 {
                Opcode::ALL[self as usize].1
            }

            /// Returns the request with this number, or `None` if this layer does not know it.
            pub fn of(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, Getattr = 3, Setattr = 4, Readlink = 5, Symlink = 6, Mknod = 8, Mkdir = 9, Unlink = 10,
    Rmdir = 11, Rename = 12, Link = 13, Open = 14, Read = 15, Write = 16, Statfs = 17, Release = 18, Fsync = 20,
    Setxattr = 21, Getxattr = 22, Listxattr = 23, Removexattr = 24, Flush = 25, Init = 26, Opendir = 27, Readdir = 28,
    Releasedir = 29, Fsyncdir = 30, Getlk = 31, Setlk = 32, Setlkw = 33, Access = 34, Create = 35, Interrupt = 36,
    Destroy = 38, Ioctl = 39, BatchForget = 42, Fallocate = 43, Readdirplus = 44, Rename2 = 45, Lseek = 46,
    CopyFileRange = 47, Syncfs = 50, Tmpfile = 51, Statx = 52, CopyFileRange64 = 53,
}

impl Opcode {
    /// Returns whether the handler usually waits for no disk and copies little. `body`: what follows the request's header.
    pub(crate) fn is_brief(self, body: &[u8]) -> bool {
        use Opcode as O;
        match self {
            O::Fsync | O::Fsyncdir | O::Syncfs | O::Fallocate | O::CopyFileRange | O::CopyFileRange64 => false,
            // Programs ask whether a file that they opened is a terminal: Python does so for each.
            O::Ioctl => take::<IoctlIn>(body).is_some_and(|(ioctl, _)| kind_of_ioctl(ioctl.cmd) == b'T'),
            _ => true,
        }
    }

    /// Returns whether a request changes nothing where it is run, not even what is remembered there.
    pub fn is_pure(self) -> bool {
        use Opcode as O;
        matches!(
            self,
            O::Getattr
                | O::Statx
                | O::Readlink
                | O::Read
                | O::Statfs
                | O::Getxattr
                | O::Listxattr
                | O::Readdir
                | O::Access
                | O::Getlk
                | O::Lseek
                | O::Interrupt
        )
    }
}

/// Returns the letter of an ioctl's number, which says for which driver it is (`_IOC_TYPE`).
fn kind_of_ioctl(command: u32) -> u8 {
    command.to_le_bytes()[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_a_terminal_is_brief_and_other_ioctls_are_not() {
        let body = |command: u32| {
            let mut body = [0; size_of::<IoctlIn>()];
            body[std::mem::offset_of!(IoctlIn, cmd)..][..4].copy_from_slice(&command.to_le_bytes());
            body
        };
        for (command, brief) in [(libc::TCGETS as u32, true), (libc::FICLONE as u32, false), (0xC018_FB01, false)] {
            assert_eq!(Opcode::Ioctl.is_brief(&body(command)), brief, "{command:x}");
        }
        assert!(!Opcode::Ioctl.is_brief(&[]) && !Opcode::Fsync.is_brief(&[]) && Opcode::Create.is_brief(&[]));
    }
}
