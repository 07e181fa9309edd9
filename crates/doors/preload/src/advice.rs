//! What a program says of its reads to come: the kernel keeps it to itself, and an agent that reads ahead of the program is to know.

use core::ffi::c_int;

use libc::off_t;
use window::attach::{Command, Control};

use crate::agent;

type Advise = unsafe extern "C-unwind" fn(c_int, off_t, off_t, c_int) -> c_int;

/// `posix_fadvise`. What will be needed the agent fetches, where that is nothing for the kernel's own memory: else the kernel reads it.
pub unsafe fn advise(original: Advise, fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int {
    if advice == libc::POSIX_FADV_WILLNEED && told(fd, offset, length, advice) {
        return 0;
    }
    // SAFETY: the call as it came.
    let result = unsafe { original(fd, offset, length, advice) };
    if result == 0 && matches!(advice, libc::POSIX_FADV_NORMAL | libc::POSIX_FADV_RANDOM | libc::POSIX_FADV_SEQUENTIAL)
    {
        told(fd, offset, length, advice);
    }
    result
}

/// Whether an agent has the file, and heard it.
#[cold]
fn told(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> bool {
    let said = Control { token: offset as u64, state: advice as u32, ..Control::new(Command::Advise, length as u64) };
    offset >= 0 && length >= 0 && agent::is_offered() && agent::tell(fd, &said)
}
