//! Every function that the library takes the place of: the whole of it, and nothing else is exported.
//!
//! The table is expanded twice: by the library, which makes a function of each row, and by the test of the built
//! file, which compares the names with its dynamic symbols.
//!
//! * `by_descriptor`: the first argument is a descriptor.
//! * `always`: what opens, duplicates, closes or names several descriptors.
//! * `departures`: the program copies or replaces itself. Their arguments are nobody's business here, some are variadic.
//!
//! Fixed arguments stand for variadic ones where the kernel's calling convention passes both alike, as it does for up to six words
//! on x86-64. `off_t` is `off64_t` there, so both names of a call have one row each and one meaning.
//!
//! Left to the kernel on purpose: what reaches the agent as a request of its own (`fsync`, `ftruncate`, `fallocate`,
//! `stat`), `io_uring`, `libaio`, `syscall(2)`, and what the C library calls inside itself, such as the writes of stdio.

/// Invokes a macro with the rows.
macro_rules! table {
    ($then:ident) => {
        $then! {
            by_descriptor {
                read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t;
                __read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t;
                __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t;
                pread(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t) -> ssize_t;
                pread64(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t) -> ssize_t;
                __pread64(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t) -> ssize_t;
                __pread_chk(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t;
                __pread64_chk(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t;
                readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
                preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
                preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
                preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
                preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
                write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t;
                __write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t;
                pwrite(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t;
                pwrite64(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t;
                __pwrite64(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t;
                writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
                pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
                pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
                pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
                pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
                lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
                lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
                __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
                fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
                dup(fd: c_int) -> c_int;
                fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
                fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
                __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
                close(fd: c_int) -> c_int;
                __close(fd: c_int) -> c_int;
            }
            always {
                open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
                open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
                __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
                __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
                __open_2(path: *const c_char, flags: c_int) -> c_int;
                __open64_2(path: *const c_char, flags: c_int) -> c_int;
                openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
                openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
                __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
                __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
                creat(path: *const c_char, mode: mode_t) -> c_int;
                creat64(path: *const c_char, mode: mode_t) -> c_int;
                fopen(path: *const c_char, mode: *const c_char) -> *mut c_void;
                fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void;
                fclose(stream: *mut c_void) -> c_int;
                dup2(from: c_int, to: c_int) -> c_int;
                __dup2(from: c_int, to: c_int) -> c_int;
                dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
                close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
                closefrom(first: c_int) -> ();
                mmap(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
                mmap64(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
                sendfile(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t;
                sendfile64(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t;
                splice(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, length: size_t, flags: c_uint) -> ssize_t;
                copy_file_range(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, length: size_t, flags: c_uint) -> ssize_t;
                sendmsg(socket: c_int, message: *const c_void, flags: c_int) -> ssize_t;
                sendmmsg(socket: c_int, messages: *mut c_void, count: c_uint, flags: c_int) -> c_int;
            }
            departures {
                fork
                __fork
                _Fork
                vfork
                __vfork
                clone
                __clone
                daemon
                forkpty
                posix_spawn
                posix_spawnp
                system
                popen
                execve
                execveat
                fexecve
                execv
                execvp
                execvpe
                execl
                execle
                execlp
            }
        }
    };
}

pub(crate) use table;
