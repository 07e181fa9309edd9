//! How programs open files, and how they write to them: what the kernel's flags say.

/// How a program opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// By the kernel, to execute it: its user need not be allowed to read it.
    pub execute: bool,
    /// Writes go to the end, until its program says otherwise: each write tells ([`WriteHow`]).
    pub append: bool,
    /// Every write is durable when it returns (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Reading moves no time of last access (`O_NOATIME`).
    pub noatime: bool,
    /// The content goes.
    pub truncate: bool,
    /// With `truncate`: by somebody who may not keep set-id bits.
    pub clear_set_id: bool,
}

/// How one write is made. What the descriptor was opened with says nothing of it: flags change (`F_SETFL`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteHow {
    /// At the end, whatever the offset says.
    pub append: bool,
    /// It is durable when it returns.
    pub sync: bool,
    /// The writer may not keep set-id bits.
    pub clear_set_id: bool,
    /// It is what programs stored through mappings, by whomever's descriptor: nobody hears what becomes of it, and it comes once.
    pub cached: bool,
}

/// The kernel's `__FMODE_EXEC`, which it leaves in the flags.
const FLAG_EXECUTE: i32 = 0x20;

impl Mode {
    /// From the flags of open(2), as the kernel passes them on.
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

    /// Whether every write through it goes to the end of the file, whoever makes it, and no mapping can store into the file.
    pub(crate) fn appends_alone(&self) -> bool {
        self.write && self.append && !self.read
    }
}
