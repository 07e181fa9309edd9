//! Flags of opens, as the kernel passes them.

/// Mode of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Opened by the kernel for execution. The user need not have read permission.
    pub execute: bool,
    /// Opened with `O_APPEND`. The program may change this later, so each write carries its own flag.
    pub append: bool,
    /// Whether every write is durable when it returns (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
    /// Whether I/O bypasses the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Whether reads leave the access time unchanged (`O_NOATIME`).
    pub noatime: bool,
    /// Whether the open truncates the file (`O_TRUNC`).
    pub truncate: bool,
    /// With `truncate`: the caller may not keep the set-id bits.
    pub clear_set_id: bool,
}

/// The kernel's `__FMODE_EXEC`, which it does not remove from the flags.
const FLAG_EXECUTE: i32 = 0x20;

impl Mode {
    /// Converts the flags of open(2), as the kernel passes them on.
    pub fn from_flags(flags: i32) -> Mode {
        let access = flags & libc::O_ACCMODE;
        Mode {
            read: access != libc::O_WRONLY,
            write: access != libc::O_RDONLY,
            execute: flags & FLAG_EXECUTE != 0,
            append: flags & libc::O_APPEND != 0,
            sync: flags & libc::O_DSYNC != 0,
            direct: flags & libc::O_DIRECT != 0,
            noatime: flags & libc::O_NOATIME != 0,
            truncate: flags & libc::O_TRUNC != 0,
            clear_set_id: false,
        }
    }

    /// Whether every write through this open file appends, and no mapping can store into the file.
    pub fn appends_alone(&self) -> bool {
        self.write && self.append && !self.read
    }
}
