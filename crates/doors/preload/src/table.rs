//! Table of all functions that the library replaces. Nothing else is exported.
//!
//! The table is expanded twice: by the library, which makes a function of each row, and by the test of the built
//! file, which compares the names with its dynamic symbols.
//!
//! - `by_descriptor`: the first argument is a descriptor; an unknown one goes straight to the C library.
//! - `opens`: calls that open, with their flags. The opened descriptor may become known.
//! - `always`: calls that close, replace, map, pass on or advise about descriptors that may be known.
//! - `departures`: the program copies or replaces itself. Their arguments do not matter here; some are variadic.
//! - `looked_at`: the program bypasses the other functions. The function behind the arrow sees the arguments first.
//! - `own`: the call is exactly one system call, whichever library it comes from.
//!
//! Behind the arrow stands the function that handles known descriptors. Calls without a row are left to the C library:
//! reads (the agent applies records before it answers the kernel), `lseek`, `dup`.
//!
//! Fixed arguments stand for variadic ones. The calling convention of x86-64 passes both alike, up to six words.
//! `off_t` is `off64_t` there, so both names of a call have one row each and one meaning.
//!
//! Deliberately left to the kernel: calls that reach the agent as a request (`fsync`, `ftruncate`, `fallocate`,
//! `stat`), and calls made by `io_uring`, `libaio` and `syscall(2)`. Also calls inside the C library, such as the
//! writes of stdio.

macro_rules! table {
    ($then:ident) => {
        $then! {
            by_descriptor {
                write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t => data::write;
                __write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t => data::write;
                pwrite(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t => data::pwrite;
                pwrite64(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t => data::pwrite;
                __pwrite64(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t => data::pwrite;
                writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t => data::writev;
                pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t => data::pwritev;
                pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t => data::pwritev;
                pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t => data::pwritev2;
                pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t => data::pwritev2;
            }
            opens {
                open(path: *const c_char, flags: c_int, mode: mode_t) => flags;
                open64(path: *const c_char, flags: c_int, mode: mode_t) => flags;
                __open(path: *const c_char, flags: c_int, mode: mode_t) => flags;
                __open64(path: *const c_char, flags: c_int, mode: mode_t) => flags;
                __open_2(path: *const c_char, flags: c_int) => flags;
                __open64_2(path: *const c_char, flags: c_int) => flags;
                openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) => flags;
                openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) => flags;
                __openat_2(dir: c_int, path: *const c_char, flags: c_int) => flags;
                __openat64_2(dir: c_int, path: *const c_char, flags: c_int) => flags;
                creat(path: *const c_char, mode: mode_t) => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
                creat64(path: *const c_char, mode: mode_t) => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
            }
            always {
                fdopen(fd: c_int, mode: *const c_char) -> *mut c_void => lifetime::fdopen;
                close(fd: c_int) -> c_int => lifetime::close;
                __close(fd: c_int) -> c_int => lifetime::close;
                fopen(path: *const c_char, mode: *const c_char) -> *mut c_void => lifetime::fopen;
                fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void => lifetime::fopen;
                fclose(stream: *mut c_void) -> c_int => stdio::fclose;
                dup2(from: c_int, to: c_int) -> c_int => lifetime::dup2;
                __dup2(from: c_int, to: c_int) -> c_int => lifetime::dup2;
                dup3(from: c_int, to: c_int, flags: c_int) -> c_int => lifetime::dup3;
                fcntl(fd: c_int, command: c_int, argument: usize) -> c_int => lifetime::fcntl;
                fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int => lifetime::fcntl;
                __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int => lifetime::fcntl;
                close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int => lifetime::close_range;
                closefrom(first: c_int) -> () => lifetime::closefrom;
                mmap(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void => lifetime::mmap;
                mmap64(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void => lifetime::mmap;
                sendfile(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t => lifetime::sendfile;
                sendfile64(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t => lifetime::sendfile;
                splice(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, length: size_t, flags: c_uint) -> ssize_t => lifetime::splice;
                copy_file_range(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, length: size_t, flags: c_uint) -> ssize_t => lifetime::splice;
                sendmsg(socket: c_int, message: *const c_void, flags: c_int) -> ssize_t => lifetime::sendmsg;
                sendmmsg(socket: c_int, messages: *mut c_void, count: c_uint, flags: c_int) -> c_int => lifetime::sendmmsg;
                syncfs(fd: c_int) -> c_int => lifetime::syncfs;
                posix_fadvise(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int => advice::advise;
                posix_fadvise64(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int => advice::advise;
                setrlimit(resource: c_int, limit: *const c_void) -> c_int => lifetime::setrlimit;
                setrlimit64(resource: c_int, limit: *const c_void) -> c_int => lifetime::setrlimit;
                prlimit(process: c_int, resource: c_int, limit: *const c_void, before: *mut c_void) -> c_int => lifetime::prlimit;
                prlimit64(process: c_int, resource: c_int, limit: *const c_void, before: *mut c_void) -> c_int => lifetime::prlimit;
            }
            departures {
                vfork __vfork posix_spawn posix_spawnp system popen execve execveat fexecve execv execvp execvpe execl execle execlp
            }
            looked_at {
                syscall => asynchronous::before_system_call;
                fork => unfinished::before_fork;
                __fork => unfinished::before_fork;
                _Fork => unfinished::before_fork;
                daemon => unfinished::before_fork;
                forkpty => unfinished::before_fork;
                clone => sharing::before_clone;
                __clone => sharing::before_clone;
                unshare => sharing::before_unshare;
                prctl => asynchronous::before_prctl;
            }
            own {
                io_submit(context: usize, count: c_long, requests: *mut c_void) -> c_int => asynchronous::io_submit;
            }
        }
    };
}

pub(crate) use table;
