//! Access advice of a program (`posix_fadvise`). The kernel does not pass it on, but an agent that reads ahead should
//! know it.

use core::ffi::c_int;

use libc::off_t;
use window::attach::{Command, Control};

use crate::agent;

type Advise = unsafe extern "C-unwind" fn(c_int, off_t, off_t, c_int) -> c_int;

/// Replacement of `posix_fadvise`. Data announced as needed is fetched by the agent. If the agent leaves that to the
/// kernel, whose own page cache serves such reads, the kernel reads the data.
pub unsafe fn advise(original: Advise, fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int {
    if advice == libc::POSIX_FADV_WILLNEED && told(fd, offset, length, advice) {
        return 0;
    }
    // SAFETY: the call is forwarded unchanged.
    let result = unsafe { original(fd, offset, length, advice) };
    if result == 0 && matches!(advice, libc::POSIX_FADV_NORMAL | libc::POSIX_FADV_RANDOM | libc::POSIX_FADV_SEQUENTIAL)
    {
        told(fd, offset, length, advice);
    }
    result
}

/// Sends the advice to the agent. Returns whether an agent has the file and was told.
#[cold]
fn told(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> bool {
    let said = Control { token: offset as u64, state: advice as u32, ..Control::new(Command::Advise, length as u64) };
    offset >= 0 && length >= 0 && agent::is_offered() && agent::tell(fd, &said)
}
