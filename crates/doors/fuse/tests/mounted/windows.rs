//! Programs with windows on a real mount, beside programs without.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;

use testkit::{PATIENCE, ProcessGuard, in_private_namespace, wait_until};
use window::attach::{Command as Ask, Control, state};
use window::client::{Registration, Window, control};
use window::{Mapping, Memory, WindowMedium};

use crate::stand::{CACHED, DIRECT, How, PASSTHROUGH, Stand};

const WRITER: &str = "FUSE_TEST_WINDOW_WRITER";

fn register(socket: &Path) -> Registration {
    Registration::connect(socket.as_os_str().as_encoded_bytes()).unwrap()
}

/// Opens a file as a preloaded program does.
fn open(registration: &Registration, path: &Path) -> (File, bool) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let announcement = registration.announce(thread);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    (file, announcement.windowed())
}

fn attach(registration: &Registration, file: &File) -> Window {
    registration.attach(file.as_fd(), 0).unwrap()
}

#[test] // S37
fn a_program_with_a_window_and_one_without_see_the_same_bytes() {
    in_private_namespace(|| {
        if !PASSTHROUGH.is_served() {
            return;
        }
        let stand = Stand::new(PASSTHROUGH);
        let path = stand.path("file");
        let registration = register(&stand.window_socket());
        let (file, windowed) = open(&registration, &path);
        assert!(windowed);
        let window = attach(&registration, &file);
        window.append(0, b"by the window").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 13);
        window.append(100, b"!").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 101, "by name as well");
        let mut bytes = [0; 13];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"by the window");
        file.write_all_at(b"BY", 0).unwrap();
        window.append(3, b"THE").unwrap();
        assert!(!window.is_revoked(), "its own descriptor ends no window");
        // A read by another program, without windows.
        let seen = fs::read(&path).unwrap();
        assert_eq!((&seen[..13], seen.len()), (&b"BY THE window"[..], 101));
        assert!(window.is_revoked());
        assert!(window.append(0, b"xx").is_err());
        file.write_all_at(b"xx", 0).unwrap();
        assert_eq!(&fs::read(&path).unwrap()[..3], b"xx ");
        // A mapping of the file may be left, so this descriptor gets no window.
        assert_eq!(registration.attach(file.as_fd(), 0).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        drop(file);
        let (file, _) = wait_windowed(&registration, &path);
        let window = attach(&registration, &file);
        window.append(0, b"yy").unwrap();
        file.set_len(2).unwrap();
        drop((file, window));
        assert_eq!(fs::read(&path).unwrap(), b"yy");
    });
}

#[test] // S37
fn who_has_a_file_open_already_is_not_passed_by() {
    in_private_namespace(|| {
        if !PASSTHROUGH.is_served() {
            return;
        }
        let stand = Stand::new(PASSTHROUGH);
        let path = stand.path("file");
        fs::write(&path, b"old").unwrap();
        let registration = register(&stand.window_socket());
        let other = File::open(&path).unwrap();
        let (file, windowed) = open(&registration, &path);
        assert!(!windowed);
        assert_eq!(registration.attach(file.as_fd(), 0).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        file.write_all_at(b"new", 0).unwrap();
        let mut bytes = [0; 3];
        other.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"new");
        drop((file, other));
        let (file, _) = wait_windowed(&registration, &path);
        let window = attach(&registration, &file);
        window.append(0, b"win").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"win");
    });
}

/// Opens until a window is allowed: the kernel reports a last close with some delay.
fn wait_windowed(registration: &Registration, path: &Path) -> (File, bool) {
    let mut opened = None;
    wait_until("the last close", PATIENCE, || {
        opened = Some(open(registration, path)).filter(|(_, windowed)| *windowed);
        opened.is_some()
    });
    opened.unwrap()
}

#[test]
fn any_descriptor_answers_the_ioctl_and_only_ours() {
    in_private_namespace(|| {
        if !PASSTHROUGH.is_served() {
            return;
        }
        let stand = Stand::new(PASSTHROUGH);
        let registration = register(&stand.window_socket());
        let (file, _) = open(&registration, &stand.path("file"));
        let ask = |file: &File, what, bytes| control(file.as_fd(), &Control::new(what, bytes));
        assert_eq!(ask(&file, Ask::Get, 0).unwrap().state, state::MAY);
        ask(&file, Ask::Size, 128 << 10).unwrap();
        let window = attach(&registration, &file);
        let now = ask(&file, Ask::Get, 0).unwrap();
        assert_eq!((now.state, now.bytes), (state::MAY | state::HAS, 128 << 10));
        window.append(0, b"x").unwrap();
        assert_eq!(ask(&file, Ask::Off, 0).unwrap().state, 0);
        assert!(window.is_revoked());
        let plain = File::create(stand.path("plain")).unwrap();
        assert_eq!(ask(&plain, Ask::On, 0).unwrap().state, 0, "what it reads may be read ahead");
        assert_eq!(ask(&plain, Ask::Size, 0).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        let elsewhere = File::create(stand.beside("elsewhere")).unwrap();
        assert_eq!(ask(&elsewhere, Ask::Get, 0).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    });
}

#[test] // S40
fn without_passthrough_who_writes_alone_has_a_window_and_others_see_what_it_writes_past_their_page_cache() {
    in_private_namespace(|| {
        for how in [DIRECT, CACHED].into_iter().filter(How::is_served) {
            let (stand, direct_mmap) = (Stand::new(how), how.direct_mmap);
            let path = stand.path("file");
            fs::write(&path, [b'.'; 8192]).unwrap();
            let registration = register(&stand.window_socket());
            let (both, windowed) = open(&registration, &path);
            assert!(!windowed, "it could be mapped");
            drop(both);
            let (mut writer, thread) = (None, rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            wait_until("the last close", PATIENCE, || {
                let announcement = registration.announce(thread);
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                writer = announcement.windowed().then_some(file);
                writer.is_some()
            });
            let writer = writer.unwrap();
            let window = attach(&registration, &writer);
            window.append(0, b"by the window").unwrap();
            let reader = File::open(&path).unwrap();
            assert!(window.is_revoked());
            let seen = map(&reader, libc::PROT_READ).unwrap();
            let other = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            // Stores through this mapping would overwrite writes that bypass the page cache.
            let refused = map(&other, libc::PROT_READ | libc::PROT_WRITE).err().map(|refused| refused.raw_os_error());
            assert_eq!(refused, (!direct_mmap).then_some(Some(libc::ENODEV)));
            let expect = |at: u64, expected: [u8; 2]| {
                let mut by_call = [0; 2];
                reader.read_exact_at(&mut by_call, at).unwrap();
                let by_memory = [seen.at(at as usize), seen.at(at as usize + 1)];
                assert_eq!((by_call, by_memory), (expected, expected));
            };
            expect(0, *b"by");
            for round in 0..50u8 {
                writer.write_all_at(&[round; 2], 0).unwrap();
                expect(0, [round; 2]);
                other.write_all_at(&[round ^ 255; 2], 4096).unwrap();
                expect(4096, [round ^ 255; 2]);
            }
            drop((writer, other));
            wait_until("the last close", PATIENCE, || {
                let later = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                map(&later, libc::PROT_READ | libc::PROT_WRITE).is_ok()
            });
        }
    });
}

/// Shared mapping of a file's first two pages.
struct Pages(*mut libc::c_void);

impl Pages {
    fn at(&self, at: usize) -> u8 {
        assert!(at < 8192);
        // SAFETY: within the mapping, which lives as long as this.
        unsafe { self.0.cast::<u8>().add(at).read_volatile() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made by `map`, of that length.
        unsafe { libc::munmap(self.0, 8192) };
    }
}

fn map(file: &File, access: i32) -> std::io::Result<Pages> {
    let fd = std::os::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 8192, access, libc::MAP_SHARED, fd, 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(Pages(at)) }
}

/// Returns offset and bytes of the killed program's write `number`.
fn write(number: u64) -> (u64, Vec<u8>) {
    let len = 1 + (number * 7919 % 9000) as usize;
    (number * 104_729 % 500_000, vec![(number % 251) as u8; len])
}

/// Not a test: runs the program that is killed.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn writer() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let socket = std::env::var_os("FOREBAY_WINDOW_SOCKET").unwrap();
    let ledger = Mapping::open(std::env::var_os("LEDGER").unwrap().as_ref(), WindowMedium::Volatile).unwrap();
    let registration = register(socket.as_ref());
    let (file, _) = wait_windowed(&registration, path.as_ref());
    let window = attach(&registration, &file);
    for number in ledger.word(0).load(SeqCst).. {
        let (offset, bytes) = write(number);
        window.append(offset, &bytes).unwrap();
        ledger.word(0).store(number + 1, SeqCst);
    }
}

#[test] // S38
fn what_a_killed_program_was_told_is_in_the_file() {
    in_private_namespace(|| {
        if !PASSTHROUGH.is_served() {
            return;
        }
        let stand = Stand::new(PASSTHROUGH);
        let (path, place) = (stand.path("file"), stand.beside("ledger"));
        let ledger = Mapping::create(&place, 4096, WindowMedium::Volatile).unwrap();
        let mut expected: Vec<u8> = Vec::new();
        let mut applied = 0;
        for round in 1..=10 {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "windows::writer", "--ignored"]).stdout(Stdio::null());
            command.env(WRITER, &path).env("FOREBAY_WINDOW_SOCKET", stand.window_socket()).env("LEDGER", &place);
            let mut program = ProcessGuard::spawn(&mut command);
            wait_until("writes", PATIENCE, || {
                assert!(program.ended().is_none(), "the program ended");
                ledger.word(0).load(SeqCst) >= applied + round * 97
            });
            program.kill();
            let acknowledged = ledger.word(0).load(SeqCst);
            let found = fs::read(&path).unwrap();
            (applied..acknowledged).for_each(|number| apply(&mut expected, number));
            if found != expected {
                apply(&mut expected, acknowledged); // published, and not yet in the ledger
                ledger.word(0).store(acknowledged + 1, SeqCst);
            }
            assert!(found == expected, "round {round}: {acknowledged} acknowledged writes");
            applied = ledger.word(0).load(SeqCst);
        }
        println!("{applied} acknowledged writes, none lost");
    });
}

fn apply(file: &mut Vec<u8>, number: u64) {
    let (offset, bytes) = write(number);
    let end = offset as usize + bytes.len();
    file.resize(file.len().max(end), 0);
    file[offset as usize..end].copy_from_slice(&bytes);
}
