//! Windows of a node whose burst buffer is behind a server.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use testkit::{ProcessGuard, in_private_namespace, wait_for, wait_until};
use window::attach::{Command as Ask, Control, state};
use window::client::{Registration, Window, control};
use window::{Mapping, Memory, WindowMedium};

use crate::cluster::{BOUND, Cluster};
use crate::ledger::{EndOfAll, RECORD_BYTES, check_acknowledged, record};

const SOCKET: &str = "FOREBAY_WINDOW_SOCKET";
const LEDGER: &str = "FOREBAY_TEST_LEDGER";
const FILE: &str = "FOREBAY_TEST_FILE";

/// Returns an open file of this process with a window. Waits where the kernel has not reported yet that others have
/// closed it.
pub fn windowed(registration: &Registration, path: &Path) -> (File, Window) {
    let file = announced(registration, path);
    let window = registration.attach(file.as_fd(), 0).expect("a window");
    (file, window)
}

/// Returns an open file that may have a window.
fn announced(registration: &Registration, path: &Path) -> File {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    wait_for("a file that may have a window", BOUND, || {
        let announcement = registration.announce(thread);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
        announcement.windowed().then_some(file)
    })
}

pub fn register(cluster: &Cluster) -> Registration {
    Registration::connect(cluster.window_socket(1).as_bytes()).expect("an agent that serves windows")
}

pub fn window_option(cluster: &Cluster) -> String {
    format!("--window={}", cluster.tree.path("rings").display())
}

/// Counts sessions of windows that have not ended.
fn sessions(cluster: &Cluster) -> usize {
    let entries = fs::read_dir(cluster.tree.path("rings")).into_iter().flatten().flatten();
    // The links by which programs load the library stay there.
    entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with("forebay-preload-")).count()
}

#[test] // S46
fn what_a_window_took_is_seen_on_the_node_at_once_and_on_others_when_it_is_closed() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let one = cluster.mount(1, &[&window_option(&cluster)]);
        let registration = register(&cluster);
        let (file, window) = windowed(&registration, &one.join("file"));
        window.append(0, b"hello").unwrap();
        // An agent that lives keeps its windows from one that comes.
        let two = cluster.mount(2, &[&window_option(&cluster)]);
        window.append(5000, b"world").unwrap();
        assert_eq!(fs::metadata(one.join("file")).unwrap().len(), 5005);
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 5000).unwrap();
        assert_eq!(&bytes, b"world");
        window.append(1, b"a").unwrap();
        file.write_all_at(b"J", 0).unwrap();
        window.append(4, b"y").unwrap();
        file.set_len(5).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(two.join("file")).unwrap(), b"Jally");
        let large: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
        for (number, part) in large.chunks(100_000).enumerate() {
            window.append(number as u64 * 100_000, part).unwrap();
        }
        drop((file, window));
        assert!(fs::read(two.join("file")).unwrap() == large, "close has brought it to the server");
        let (again, window) = windowed(&registration, &one.join("file"));
        window.append(0, b"more").unwrap();
        // Somebody else on the node looks past it.
        assert_eq!(&fs::read(one.join("file")).unwrap()[..4], b"more");
        assert!(window.is_revoked());
        drop((again, window, registration));
        cluster.end_server();
        assert_eq!(&fs::read(cluster.data.join("file")).unwrap()[..4], b"more");
    });
}

#[test] // S46
fn a_file_has_no_window_at_a_server_until_the_open_file_by_which_it_may_be_mapped_is_closed() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &[&window_option(&cluster)]);
        let registration = register(&cluster);
        let (file, window) = windowed(&registration, &one.join("file"));
        let (other, beside) = windowed(&registration, &one.join("file"));
        window.append(0, b"mapped").unwrap();
        beside.append(6, b"!").unwrap();
        let ask = |file: &File, command| control(file.as_fd(), &Control::new(command, 0)).unwrap();
        assert_eq!(ask(&file, Ask::Off).state & state::HAS, 0);
        assert!(window.is_revoked() && beside.is_revoked(), "those of all who have it open");
        let mut bytes = [0; 7];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"mapped!");
        ask(&file, Ask::On);
        let refused = |open: &File| registration.attach(open.as_fd(), 0).unwrap_err().raw_os_error();
        assert_eq!((refused(&file), refused(&other)), (Some(libc::EOPNOTSUPP), Some(libc::EAGAIN)));
        let mapped = |file: &File| Mapping::handed(file.try_clone().unwrap().into(), WindowMedium::Volatile).unwrap();
        let mapping = mapped(&file);
        drop(file);
        mapping.write(0, b"M");
        assert_eq!(refused(&other), Some(libc::EAGAIN), "a mapping keeps it open");
        drop(mapping);
        // A program may have the file open still, or has opened it again; the kernel reports that a moment later.
        let attached = |open: &File| wait_for("a window", BOUND, || registration.attach(open.as_fd(), 0).ok());
        let window = attached(&other);
        window.append(6, b"?").unwrap();
        ask(&other, Ask::Off);
        let mapping = mapped(&other);
        mapping.read(0, &mut bytes);
        assert_eq!(&bytes, b"Mapped?", "no page of the former mapping is left");
        drop((other, mapping));
        let again = announced(&registration, &one.join("file"));
        attached(&again).append(0, b"m").unwrap();
        assert_eq!(&fs::read(one.join("file")).unwrap(), b"mapped?");
    });
}

/// Not a test: a program that is killed. Word 0 of the ledger counts what was acknowledged.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn writer() {
    let Some(ledger) = std::env::var_os(LEDGER) else { return };
    let ledger = Mapping::open(ledger.as_ref(), WindowMedium::Volatile).unwrap();
    let file = std::env::var_os(FILE).expect("a file");
    let registration = Registration::connect(std::env::var_os(SOCKET).expect("windows").as_encoded_bytes()).unwrap();
    let (_file, window) = windowed(&registration, file.as_ref());
    let last = std::env::var("FOREBAY_TEST_WRITES").map_or(u64::MAX, |writes| writes.parse().unwrap());
    for number in 0..last {
        if window.append(number * RECORD_BYTES as u64, &record(1, number)).is_err() {
            return;
        }
        ledger.word(0).store(number + 1, Ordering::SeqCst);
    }
}

fn program(ledger: &Path, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "windows::writer", "--ignored"]).env(LEDGER, ledger).env(FILE, file);
    command
}

#[test] // S46
fn what_windows_at_a_server_acknowledged_survives_the_death_of_program_agent_and_server() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let two = cluster.mount(2, &[]);
        // Which of program and server die with the agent, and whether the server is there when the next agent comes.
        for (round, (program_dies, server_dies)) in
            [(false, false), (true, false), (false, true), (true, true)].into_iter().enumerate()
        {
            let one = cluster.mount(1, &[&window_option(&cluster)]);
            let path = cluster.tree.path(format!("ledger-{round}"));
            let ledger = Mapping::create(&path, 4096, WindowMedium::Volatile).unwrap();
            let name = format!("file-{round}");
            let mut command = program(&path, &one.join(&name));
            let mut writer = ProcessGuard::spawn(command.env(SOCKET, cluster.window_socket(1)));
            let acknowledged = || ledger.word(0).load(Ordering::SeqCst);
            wait_until("records are written", BOUND, || {
                assert!(writer.ended().is_none(), "the program has ended");
                acknowledged() > 300 + 170 * round as u64
            });
            if server_dies {
                // Its window is empty when the server dies: one that is full takes no more.
                writer.signal(rustix::process::Signal::STOP);
                let drained = || fs::metadata(two.join(&name)).map_or(0, |found| found.len()) / RECORD_BYTES as u64;
                wait_until("the server has it", BOUND, || drained() >= acknowledged());
                cluster.kill_server();
                let before = acknowledged();
                writer.signal(rustix::process::Signal::CONT);
                wait_until("the program writes into its window", BOUND, || acknowledged() > before + 20);
            }
            cluster.kill_agent(1);
            if program_dies {
                writer.kill();
            }
            cluster.unmount(1);
            if server_dies {
                cluster.start_server();
            }
            let one = cluster.mount(1, &[]);
            if !program_dies {
                // Its window has been taken, and its descriptor is dead.
                writer.wait(BOUND);
            }
            for dir in [&one, &two] {
                check_acknowledged(&dir.join(&name), 1, acknowledged());
            }
            assert_eq!(sessions(&cluster), 0, "no session is left");
            cluster.kill_agent(1);
            cluster.unmount(1);
        }
    });
}

#[test] // S46
fn a_lazy_close_of_a_window_asks_no_server_and_one_of_a_file_that_never_had_one_does() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &["--policy", "close=lazy", &window_option(&cluster)]);
        let path = one.join("file");
        let registration = register(&cluster);
        let (file, window) = windowed(&registration, &path);
        let without = announced(&registration, &one.join("without"));
        window.append(0, b"some bytes").unwrap();
        cluster.kill_server();
        // The close of `without` would report a failed stage-out.
        let asking = std::thread::spawn(move || drop(without));
        let closing = std::thread::spawn(move || drop((window, file)));
        wait_until("it is closed", BOUND, || closing.is_finished());
        let asked = !asking.is_finished();
        cluster.start_server();
        assert!(asked, "a close that nobody heard of");
        wait_until("it is closed as well", BOUND, || asking.is_finished());
        wait_until("the bytes are there", BOUND, || fs::read(&path).is_ok_and(|bytes| bytes == b"some bytes"));
    });
}

#[test] // S37
fn a_file_has_the_time_at_which_its_window_was_written_however_long_its_server_was_away() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &["--policy", "close=lazy", &window_option(&cluster)]);
        let path = one.join("file");
        let registration = register(&cluster);
        let (file, window) = windowed(&registration, &path);
        let asked = SystemTime::now();
        cluster.kill_server();
        window.append(0, b"some bytes").unwrap();
        let written = SystemTime::now();
        drop((window, file));
        std::thread::sleep(Duration::from_secs(3));
        cluster.start_server();
        wait_until("the bytes are there", BOUND, || fs::read(&path).is_ok_and(|bytes| bytes == b"some bytes"));
        // The request was made when it was first sent, and waits for the server since.
        let late = fs::metadata(&path).unwrap().modified().unwrap().duration_since(written).unwrap_or_default();
        assert!(late < Duration::from_secs(2), "{late:?} later than it was written");
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > asked - Duration::from_secs(1));
    });
}

#[test] // S46
fn while_the_server_is_gone_programs_write_until_their_windows_are_full_and_go_on_by_themselves() {
    const WINDOW: u64 = 256 << 10;
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let rules = ["--policy", "io_timeout=1s", "--policy", "window=256KiB"];
        let one = cluster.mount(1, &[&rules[..], &[&window_option(&cluster)]].concat());
        let two = cluster.mount(2, &[]);
        fs::write(one.join("read"), b"some bytes").unwrap();
        let read = File::open(one.join("read")).unwrap();
        let registration = register(&cluster);
        let windows = [0_u64, 1].map(|number| (number, windowed(&registration, &one.join(format!("file-{number}")))));
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let end = AtomicBool::new(false);
        let now = || counts.each_ref().map(|count| count.load(Ordering::SeqCst));
        let more = |than: [u64; 2], by: u64| now().iter().zip(than).all(|(now, than)| *now > than + by);
        let append = |(number, (_, window)): &(u64, (File, Window))| {
            let count = &counts[*number as usize];
            while !end.load(Ordering::SeqCst) {
                let at = count.load(Ordering::SeqCst);
                let appended = window.append(at * RECORD_BYTES as u64, &record(*number, at));
                assert_eq!(appended, Ok(()), "its window has ended");
                count.store(at + 1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            windows.iter().for_each(|window| drop(scope.spawn(|| append(window))));
            wait_until("all write", BOUND, || more([0; 2], 200));
            cluster.kill_server();
            let at_death = now();
            let (mut last, mut since) = (now(), Instant::now());
            wait_until("the windows are full", BOUND, || {
                if now() != last {
                    (last, since) = (now(), Instant::now());
                }
                since.elapsed() > Duration::from_secs(1)
            });
            let (gone, mut outcomes) = (Instant::now(), Vec::new());
            while gone.elapsed() < crate::away() {
                let outcome = |what: &dyn Fn() -> std::io::Result<()>| {
                    let began = Instant::now();
                    (what().err().and_then(|error| error.raw_os_error()), began.elapsed())
                };
                let file = &windows[0].1.0;
                outcomes.push(outcome(&|| read.read_at(&mut [0; 4], 0).map(drop)));
                outcomes.push(outcome(&|| file.read_at(&mut [0; 4], 0).map(drop)));
                outcomes.push(outcome(&|| fs::metadata(one.join("file-1")).map(drop)));
            }
            let full = now();
            // Before anything is found wrong: the writers wait for it.
            cluster.start_server();
            assert_eq!(full, last, "nothing is acknowledged that has no place");
            for (full, before) in full.iter().zip(at_death) {
                let bytes = (full - before) * RECORD_BYTES as u64;
                assert!(bytes <= WINDOW + 2 * RECORD_BYTES as u64, "{bytes} bytes in a window of {WINDOW}");
            }
            for (errno, took) in outcomes {
                assert_eq!(errno, Some(libc::ETIMEDOUT));
                assert!(took < Duration::from_secs(10), "{took:?}");
            }
            wait_until("all go on by themselves", BOUND, || more(full, 200));
        });
        let counted = now();
        drop(windows);
        for (number, count) in counted.into_iter().enumerate() {
            for dir in [&one, &two] {
                check_acknowledged(&dir.join(format!("file-{number}")), number as u64, count);
            }
        }
        assert_eq!(&fs::read(one.join("read")).unwrap(), b"some bytes");
    });
}

#[test] // S37
fn a_file_opened_to_read_and_write_at_a_server_has_a_window() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &[&window_option(&cluster)]);
        fs::write(one.join("database"), "page one, page two").unwrap();
        let registration = register(&cluster);
        let (file, window) = wait_for("a file that may have a window", BOUND, || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let announcement = registration.announce_mildly(thread);
            let file = File::options().read(true).write(true).open(one.join("database")).expect("a file");
            announcement.windowed().then_some(())?;
            let window = registration.attach(file.as_fd(), 0).expect("a window");
            Some((file, window))
        });
        window.append(5, b"two").unwrap();
        let mut bytes = [0; 18];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"page two, page two");
        drop((file, window, registration));
        cluster.end_server();
        assert_eq!(fs::read(cluster.data.join("database")).unwrap(), b"page two, page two");
    });
}

/// Returns the bytes lost in windows of node 1, as `forebay status` counts them.
fn lost(cluster: &Cluster) -> u64 {
    let said = cluster.command(1, &["status", cluster.node(1).to_str().unwrap(), "--json"]).stdout;
    let said = String::from_utf8(said).unwrap();
    let (_, rest) = said.split_once("\"lost_bytes\":").unwrap_or_else(|| panic!("{said}"));
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test] // S46
fn what_a_killed_agents_window_held_of_a_file_is_told_as_lost_if_others_removed_that_and_not_if_this_node_did() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        for removed_here in [true, false] {
            let one = cluster.mount(1, &[&window_option(&cluster)]);
            let registration = register(&cluster);
            let (file, window) = windowed(&registration, &one.join("file"));
            window.append(0, b"at the server").unwrap();
            file.sync_all().unwrap();
            if removed_here {
                fs::remove_file(one.join("file")).unwrap();
            }
            cluster.kill_server();
            window.append(100, b"only here").unwrap();
            cluster.kill_agent(1);
            if !removed_here {
                fs::remove_file(cluster.data.join("file")).unwrap();
            }
            drop((file, window, registration));
            cluster.unmount(1);
            cluster.start_server();
            let log = cluster.tree.path("node1.log");
            let before = fs::read_to_string(&log).unwrap().len();
            cluster.mount(1, &[&window_option(&cluster)]);
            let said = fs::read_to_string(&log).unwrap().split_off(before);
            let told = "file: acknowledged writes are lost: bytes 100 to 109: the file was removed elsewhere";
            assert_eq!(said.contains(told), !removed_here, "{said}");
            assert_eq!(lost(&cluster), if removed_here { 0 } else { 9 });
            assert_eq!(sessions(&cluster), 1, "that of the agent that runs");
            cluster.kill_agent(1);
            cluster.unmount(1);
        }
    });
}

#[test] // S46
fn what_a_killed_agents_window_held_does_not_come_over_what_others_wrote_since_whichever_server_that_came_to() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let two = cluster.mount(2, &[]);
        let names =
            [("partly", false), ("begun anew", true), ("partly at servers", false), ("begun anew at servers", true)];
        for (name, cuts) in names {
            let again = |cluster: &mut Cluster| {
                if name.ends_with("servers") {
                    cluster.kill_server();
                    cluster.start_server();
                }
            };
            let one = cluster.mount(1, &[&window_option(&cluster)]);
            let registration = register(&cluster);
            let (file, window) = windowed(&registration, &one.join(name));
            window.append(0, &[1; 1000]).unwrap();
            file.sync_all().unwrap();
            // Older than what comes.
            let other = File::options().write(true).open(two.join(name)).unwrap();
            other.write_all_at(&[9; 300], 500).unwrap();
            other.sync_all().unwrap();
            // Nothing is applied any more.
            cluster.signal_agent(1, rustix::process::Signal::STOP);
            window.append(200, &[2; 600]).unwrap();
            window.append(5000, &[3; 100]).unwrap();
            cluster.kill_agent(1);
            drop((file, window, registration));
            again(&mut cluster);
            cluster.unmount(1);
            match cuts {
                false => other.write_all_at(&[4; 50], 400).unwrap(),
                true => fs::write(two.join(name), [4; 500]).unwrap(),
            }
            drop(other);
            again(&mut cluster);
            let log = cluster.tree.path("node1.log");
            let before = fs::read_to_string(&log).unwrap().len();
            // Killed after all records are applied, before the bytes that were held back are saved.
            cluster.mount_dies(1, &[&window_option(&cluster)], "window.drained");
            again(&mut cluster);
            cluster.mount(1, &[&window_option(&cluster)]);
            let said = fs::read_to_string(&log).unwrap().split_off(before);
            let mut expected = [vec![1; 200], vec![2; 200], vec![4; 50], vec![2; 350], vec![1; 200]].concat();
            expected.resize(5000, 0);
            expected.resize(5100, 3);
            let (expected, range, bytes) =
                if cuts { (vec![4; 500], "bytes 200 to 800", 700) } else { (expected, "bytes 400 to 450", 50) };
            assert!(fs::read(two.join(name)).unwrap() == expected, "{name}");
            assert!(fs::read(one.join(name)).unwrap() == expected, "{name}");
            assert_eq!(lost(&cluster), bytes);
            let why = "others have written there since, or cut the file";
            assert!(said.contains(&format!("{name}: acknowledged writes are lost: {range}: {why}")), "{said}");
            assert!(said.contains(".damaged-"), "what is left is kept: {said}");
            cluster.kill_agent(1);
            cluster.unmount(1);
        }
    });
}

#[test] // S46
fn what_a_window_holds_of_a_file_that_others_removed_while_the_server_was_away_is_told_as_lost() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &[&window_option(&cluster)]);
        let registration = register(&cluster);
        let (file, window) = windowed(&registration, &one.join("file"));
        window.append(0, b"at the server").unwrap();
        file.sync_all().unwrap();
        assert_eq!(lost(&cluster), 0);
        cluster.kill_server();
        window.append(100, b"only here").unwrap();
        fs::remove_file(cluster.data.join("file")).unwrap();
        cluster.start_server();
        wait_until("the window's end", BOUND, || window.is_revoked());
        let told = file.sync_all().unwrap_err();
        assert_eq!(told.raw_os_error(), Some(libc::ESTALE), "its program is told");
        wait_until("the count", BOUND, || lost(&cluster) == 9);
    });
}

#[test] // S46
fn the_end_of_a_run_with_windows_at_a_server_means_that_its_files_are_in_the_global_store() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let (address, secret) = (cluster.address(), cluster.secret.display().to_string());
        let path = cluster.tree.path("ledger");
        let ledger = Mapping::create(&path, 4096, WindowMedium::Volatile).unwrap();
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "{LEDGER}={} {FILE}=file FOREBAY_TEST_WRITES=3000 {} --exact windows::writer --ignored",
            path.display(),
            exe.display()
        );
        let window = window_option(&cluster);
        let done = cluster.run(1, &["--no-preload", "--server", &address, "--secret", &secret, &window], &script);
        assert!(done.status.success(), "{done:?}");
        assert_eq!(ledger.word(0).load(Ordering::SeqCst), 3000, "{done:?}");
        check_acknowledged(&cluster.data.join("file"), 1, 3000);
        assert_eq!(sessions(&cluster), 0, "no session is left");
    });
}
