//! Error codes on the wire. An errno has different numbers on different architectures, so the protocol has codes of its
//! own.

macro_rules! codes {
    ($($code:ident = $number:literal, $errno:ident;)*) => {
        /// Reason why a request failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "errno(3) documents them")]
        pub enum Code { $($code = $number,)* }

        impl Code {
            /// All codes.
            pub const ALL: &[Code] = &[$(Code::$code),*];

            /// Returns the code's number on the wire.
            pub fn number(self) -> u16 {
                self as u16
            }

            /// Returns the code with this number. A number that only a newer program knows becomes [`Code::Io`].
            pub fn from_number(number: u16) -> Code {
                match number { $($number => Code::$code,)* _ => Code::Io }
            }

            /// Returns the errno that a program on this machine is given.
            pub fn errno(self) -> i32 {
                match self { $(Code::$code => libc::$errno,)* }
            }

            /// Returns the code of an errno of this machine. An errno without a code becomes [`Code::Io`].
            pub fn from_errno(errno: i32) -> Code {
                match errno { $(libc::$errno => Code::$code,)* _ => Code::Io }
            }
        }
    };
}

codes! {
    Io = 1, EIO;
    NotPermitted = 2, EPERM;
    NotFound = 3, ENOENT;
    Interrupted = 4, EINTR;
    NoDeviceOrAddress = 5, ENXIO;
    BadDescriptor = 6, EBADF;
    TryAgain = 7, EAGAIN;
    NoMemory = 8, ENOMEM;
    AccessDenied = 9, EACCES;
    Busy = 10, EBUSY;
    Exists = 11, EEXIST;
    CrossDevice = 12, EXDEV;
    NoDevice = 13, ENODEV;
    NotDirectory = 14, ENOTDIR;
    IsDirectory = 15, EISDIR;
    Invalid = 16, EINVAL;
    TableFull = 17, ENFILE;
    ManyFiles = 18, EMFILE;
    TextBusy = 19, ETXTBSY;
    FileTooLarge = 20, EFBIG;
    NoSpace = 21, ENOSPC;
    ReadOnly = 22, EROFS;
    ManyLinks = 23, EMLINK;
    Range = 24, ERANGE;
    Deadlock = 25, EDEADLK;
    NameTooLong = 26, ENAMETOOLONG;
    NotImplemented = 27, ENOSYS;
    NotEmpty = 28, ENOTEMPTY;
    Loop = 29, ELOOP;
    Overflow = 30, EOVERFLOW;
    NotSupported = 31, EOPNOTSUPP;
    NotConnected = 32, ENOTCONN;
    TimedOut = 33, ETIMEDOUT;
    ConnectionRefused = 34, ECONNREFUSED;
    Stale = 35, ESTALE;
    Quota = 36, EDQUOT;
    Remote = 37, EREMOTEIO;
    Shutdown = 38, ESHUTDOWN;
    Protocol = 39, EPROTO;
    TooBig = 40, E2BIG;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_number_and_one_errno() {
        for &code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), code);
            assert_eq!(Code::from_errno(code.errno()), code);
        }
        assert_eq!(Code::from_number(u16::MAX), Code::Io);
        assert_eq!(Code::from_errno(libc::ECHILD), Code::Io);
    }
}
