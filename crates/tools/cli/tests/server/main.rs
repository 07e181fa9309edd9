//! One burst buffer behind a server, with nodes in network namespaces, and the state of their files when server,
//! network or programs are lost.

mod ahead;
mod cluster;
mod crashed;
mod ledger;
mod locks;
mod traffic;
mod windows;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{BOUND, Cluster};
use ledger::{Appender, EndOfAll, Writer};
use rustix::process::Signal;
use testkit::{in_private_namespace, wait_until};

/// Checks acknowledged data of the writers on nodes 1 and 2 and the appender on node 2. The other node must see it,
/// and so must the global store once the server has ended.
fn check_here_and_below(cluster: &mut Cluster, writers: &mut [Writer], appender: &mut Appender) {
    let (one, two) = (cluster.node(1), cluster.node(2));
    writers.iter().for_each(|writer| writer.check(&two));
    appender.check(&one);
    writers.iter_mut().for_each(Writer::close);
    appender.close();
    cluster.end_server();
    writers.iter().for_each(|writer| writer.check(&cluster.data));
    appender.check(&cluster.data);
}

#[test] // S42
fn files_are_shared_between_nodes_from_close_to_open() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount(1, &[]), cluster.mount(2, &[]));
        for round in 0..30 {
            let (from, to) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let text = format!("round {round} ").repeat(round * 40 + 1);
            fs::write(from.join("file"), &text).unwrap();
            assert_eq!(fs::metadata(to.join("file")).unwrap().len(), text.len() as u64, "round {round}");
            assert!(fs::read_to_string(to.join("file")).unwrap() == text, "round {round}");
        }
        fs::create_dir(one.join("dir")).unwrap();
        fs::rename(two.join("file"), two.join("dir/moved")).unwrap();
        let open = fs::File::open(two.join("dir/moved")).unwrap();
        fs::remove_file(one.join("dir/moved")).unwrap();
        let mut start = [0; 5];
        open.read_exact_at(&mut start, 0).unwrap();
        assert_eq!(&start, b"round", "an open file outlives its name");
        drop(open);
        let large: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(one.join("large"), &large).unwrap();
        assert!(fs::read(two.join("large")).unwrap() == large);
        cluster.end_server();
        assert!(fs::read(cluster.data.join("large")).unwrap() == large, "it is in the global store");
    });
}

#[test] // S41
fn a_server_that_is_killed_again_and_again_under_load_loses_nothing() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount(1, &[]), cluster.mount(2, &[]));
        let mut writers: Vec<Writer> =
            [&one, &two, &one].iter().enumerate().map(|(number, dir)| Writer::new(dir, number as u64)).collect();
        let mut appender = Appender::new(&two);
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            for writer in &mut writers {
                scope.spawn(|| writer.run(&end));
            }
            let (appended, appender) = (appender.acknowledged(), &mut appender);
            scope.spawn(|| appender.run(&end));
            for round in 0..6 {
                let before = appended.load(Ordering::SeqCst);
                // Some work between two deaths, and another number of requests each time.
                wait_until("appends go on", BOUND, || appended.load(Ordering::SeqCst) > before + 50 + round * 7);
                cluster.kill_server();
                cluster.start_server();
            }
            let before = appended.load(Ordering::SeqCst);
            wait_until("appends go on by themselves", BOUND, || appended.load(Ordering::SeqCst) > before + 50);
        });
        let records: u64 = writers.iter().map(Writer::acknowledged).sum();
        assert!(records > 100, "{records}");
        check_here_and_below(&mut cluster, &mut writers, &mut appender);
    });
}

#[test] // S43
fn while_the_server_is_gone_reads_time_out_and_writes_wait_for_it() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount(1, &["--policy", "io_timeout=1s"]);
        fs::write(dir.join("read"), b"some bytes").unwrap();
        let (read, written) =
            (fs::File::open(dir.join("read")).unwrap(), fs::File::create(dir.join("written")).unwrap());
        cluster.kill_server();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                written.write_all_at(b"it waits", 0).unwrap();
                done.store(true, Ordering::SeqCst);
            });
            let read_once = || (Instant::now(), read.read_at(&mut [0; 4], 0), Instant::now());
            let outcomes = [read_once(), read_once(), read_once()];
            let too_early = done.load(Ordering::SeqCst);
            // Before anything is found wrong: the writer waits for it.
            cluster.start_server();
            assert!(!too_early, "no write is reported that no server has");
            for (began, outcome, ended) in outcomes {
                assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
                assert!(ended - began >= Duration::from_secs(1));
            }
        });
        let mut bytes = [0; 10];
        read.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"some bytes");
        drop(written);
        cluster.end_server();
        assert_eq!(fs::read(cluster.data.join("written")).unwrap(), b"it waits");
    });
}

/// Seconds for which the server is gone under load; what it keeps of silent agents it has forgotten long before.
fn away() -> Duration {
    let seconds = std::env::var("FOREBAY_AWAY_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(12))
}

#[test] // S43
fn a_server_that_is_gone_for_long_under_load_costs_time_and_nothing_else() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let options = ["--policy", "io_timeout=1s"];
        let (one, two) = (cluster.mount(1, &options), cluster.mount(2, &options));
        fs::write(one.join("read"), b"some bytes").unwrap();
        let read = fs::File::open(one.join("read")).unwrap();
        let mut writers: Vec<Writer> =
            [&one, &two, &one].iter().enumerate().map(|(number, dir)| Writer::new(dir, number as u64)).collect();
        let mut counts: Vec<_> = writers.iter().map(Writer::count).collect();
        let mut appender = Appender::new(&two);
        counts.push(appender.acknowledged());
        let end = AtomicBool::new(false);
        let now = || counts.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<u64>>();
        let more = |than: &[u64]| now().iter().zip(than).all(|(now, than)| *now > than + 20);
        std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            for writer in &mut writers {
                scope.spawn(|| writer.run(&end));
            }
            scope.spawn(|| appender.run(&end));
            wait_until("all write", BOUND, || more(&[0; 4]));
            cluster.kill_server();
            let (gone, mut outcomes) = (Instant::now(), Vec::new());
            while gone.elapsed() < away() {
                let began = Instant::now();
                let (bytes, found) = (read.read_at(&mut [0; 4], 0).err(), fs::metadata(one.join("read")).err());
                let errors = [bytes, found].map(|error| error.and_then(|error| error.raw_os_error()));
                outcomes.push((errors, began.elapsed()));
            }
            let said = cluster.status(1);
            // Before anything is found wrong: the writers wait for it.
            cluster.start_server();
            for (errors, took) in outcomes {
                assert_eq!(errors, [Some(libc::ETIMEDOUT); 2]);
                // A second each; the rest is for a busy machine.
                assert!(took < Duration::from_secs(10), "{took:?}");
            }
            assert!(said.contains("does not answer, for "), "{said}");
            let before = now();
            wait_until("all go on by themselves", BOUND, || more(&before));
        });
        let mut bytes = [0; 10];
        read.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"some bytes");
        let said = cluster.status(1);
        assert!(said.contains(" answers"), "{said}");
        check_here_and_below(&mut cluster, &mut writers, &mut appender);
    });
}

#[test] // S43
fn a_server_that_stands_still_is_no_hang_for_readers() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount(1, &["--policy", "io_timeout=1s"]);
        fs::write(dir.join("file"), b"some bytes").unwrap();
        let file = fs::File::open(dir.join("file")).unwrap();
        cluster.stop_server();
        // The second needs a new connection, which the kernel makes for a process that stands still.
        let read = || {
            let began = Instant::now();
            (file.read_at(&mut [0; 4], 0), began.elapsed())
        };
        let outcomes = [read(), read(), read()];
        cluster.continue_server();
        for (outcome, took) in outcomes {
            assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
            assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(6), "{took:?}");
        }
        wait_until("it is read again", BOUND, || file.read_at(&mut [0; 4], 0).is_ok());
        drop(file);
        cluster.end_server();
    });
}

#[test] // S41
fn agent_and_server_killed_together_lose_nothing_that_was_acknowledged() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        for round in 0..4_u64 {
            let dir = cluster.mount(1, &[]);
            let mut writers = [Writer::new(&dir, 2 * round), Writer::new(&dir, 2 * round + 1)];
            let counts = [writers[0].count(), writers[1].count()];
            let end = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _ends = EndOfAll(&end);
                for writer in &mut writers {
                    scope.spawn(|| writer.run_to_its_death(&end));
                }
                let enough = 10 + round * 37;
                let all = || counts.iter().all(|count| count.load(Ordering::SeqCst) > enough);
                wait_until("records are written", BOUND, all);
                if round % 2 == 0 {
                    cluster.kill_server();
                }
                cluster.kill_agent(1);
                if round % 2 == 1 {
                    cluster.kill_server();
                }
            });
            writers.iter_mut().for_each(Writer::close);
            cluster.unmount(1);
            cluster.start_server();
            let dir = cluster.mount(1, &[]);
            writers.iter().for_each(|writer| writer.check_acknowledged(&dir));
            cluster.kill_agent(1);
            cluster.unmount(1);
            if round == 3 {
                cluster.end_server();
                writers.iter().for_each(|writer| writer.check_acknowledged(&cluster.data));
            }
        }
    });
}

/// The first byte of a file, by a mapping that stays.
fn mapped(file: &fs::File) -> impl Fn() -> u8 + use<> {
    let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: a new mapping of a file that nobody shortens.
    let mapping = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, read, shared, file, 0) }.unwrap();
    move || {
        // SAFETY: it is mapped, and no reference is made to what others change.
        unsafe { mapping.cast::<u8>().read_volatile() }
    }
}

/// The kernel must not take it for another file, whose pages and size would be its own.
#[test] // S41
fn a_file_that_is_open_when_the_server_dies_and_is_opened_once_more_is_one_file() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let file = cluster.mount(1, &[]).join("file");
        let open = || fs::File::options().read(true).write(true).create(true).truncate(false).open(&file).unwrap();
        let one = open();
        one.write_all_at(&[1; 8192], 0).unwrap();
        cluster.kill_server();
        cluster.start_server();
        let other = open();
        let first = mapped(&other);
        assert_eq!(first(), 1);
        one.write_all_at(&[2; 100], 0).unwrap();
        assert_eq!(first(), 2);
        drop((one, other));
        cluster.end_server();
    });
}

/// A program that opens the file later uses the newest version, with the others that have it.
#[test] // S41
fn a_file_of_two_versions_when_the_server_dies_is_one_file_with_the_newer() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let file = cluster.mount(1, &["--policy", "revalidate=100ms"]).join("file");
        let elsewhere = cluster.mount(2, &["--policy", "revalidate=100ms"]).join("file");
        fs::write(cluster.data.join("file"), [1; 8192]).unwrap();
        let old = fs::File::open(&file).unwrap();
        fs::write(cluster.data.join("file"), [2; 8192]).unwrap();
        wait_until("the new version", BOUND, || fs::read(&elsewhere).unwrap()[0] == 2);
        let open = || fs::File::options().read(true).write(true).open(&file).unwrap();
        let new = open();
        let first_of_new = mapped(&new);
        assert_eq!((mapped(&old)(), first_of_new()), (1, 2));
        cluster.kill_server();
        cluster.start_server();
        let newest = open();
        let first = mapped(&newest);
        newest.write_all_at(&[3; 100], 0).unwrap();
        assert_eq!((first(), first_of_new()), (3, 3));
        new.write_all_at(&[4; 100], 0).unwrap();
        assert_eq!((first(), first_of_new()), (4, 4));
        drop((old, new, newest));
        cluster.end_server();
    });
}

/// Another version must not become the current one, whoever of those that had it open has used it since.
#[test] // S41
fn a_file_that_is_open_when_the_server_dies_and_changes_below_afterwards_is_two_files() {
    in_private_namespace(|| {
        for uses_it in [true, false] {
            let mut cluster = Cluster::new(2);
            let file = cluster.mount(1, &["--policy", "revalidate=100ms"]).join("file");
            let elsewhere = cluster.mount(2, &["--policy", "revalidate=100ms"]).join("file");
            fs::write(cluster.data.join("file"), [1; 8192]).unwrap();
            let open = || fs::File::open(&file).unwrap();
            let first = |file: &fs::File| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, 0).unwrap();
                byte[0]
            };
            let one = open();
            assert_eq!(first(&one), 1);
            cluster.kill_server();
            cluster.start_server();
            let second = (!uses_it).then(open);
            assert!(!uses_it || first(&one) == 1);
            fs::write(cluster.data.join("file"), [2; 8192]).unwrap();
            wait_until("the new version", BOUND, || fs::read(&elsewhere).unwrap()[0] == 2);
            let new = open();
            let (of_old, of_new) = (mapped(&one), mapped(&new));
            assert_eq!((of_old(), of_new()), (1, 2), "used at once: {uses_it}");
            assert!(second.is_none_or(|second| first(&second) == 1));
            assert_eq!((first(&one), first(&new)), (1, 2), "used at once: {uses_it}");
            drop((one, new));
            cluster.end_server();
        }
    });
}

#[test] // S43
fn a_program_that_waits_for_the_server_can_be_killed() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount(1, &[]);
        fs::write(dir.join("file"), "x").unwrap();
        cluster.kill_server();
        let script = format!("exec 3<>{}; echo waits >&3", dir.join("file").display());
        let mut shell = std::process::Command::new("sh");
        let mut shell = testkit::ProcessGuard::spawn(shell.args(["-c", &script]));
        // The open waits already: nothing is acknowledged without a server.
        wait_until("the program waits in the kernel", BOUND, || {
            let state = fs::read_to_string(format!("/proc/{}/stat", shell.pid())).unwrap_or_default();
            state.contains(") D ") || state.contains(") S ")
        });
        shell.signal(Signal::KILL);
        shell.wait(BOUND);
        cluster.start_server();
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"x");
    });
}

#[test] // S43
fn a_program_that_ends_by_any_signal_waits_for_no_server() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount(1, &[]);
        cluster.any_signal_ends_a_program_without_server(&dir);
        cluster.end_server();
    });
}

#[test] // S44
fn the_end_of_a_run_at_a_server_means_that_its_files_are_in_the_global_store() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let (address, secret) = (cluster.address(), cluster.secret.display().to_string());
        let script = "mkdir d && for i in 1 2 3 4 5; do seq 1 $((i * 1000)) >d/$i; done && sort -n d/5 | tail -n 1";
        let done = cluster.run(1, &["--server", &address, "--secret", &secret], script);
        assert!(done.status.success(), "{done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "5000\n");
        let last = fs::read_to_string(cluster.data.join("d/3")).unwrap();
        assert_eq!(last.lines().count(), 3000);
    });
}

#[test] // S36, S44
fn a_server_on_the_network_asks_for_a_secret() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let (address, data) = (cluster.address(), cluster.data.display().to_string());
        let wrong = cluster.tree.file("wrong", "another secret of sixteen bytes");
        fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
        for secret in [None, Some(wrong.to_str().unwrap())] {
            let named = secret.map_or(vec![], |secret| vec!["--secret", secret]);
            let refused = cluster.run(1, &[&["--server", address.as_str()][..], &named].concat(), "true");
            assert_eq!(refused.status.code(), Some(77), "{refused:?}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains("secret"), "{refused:?}");
        }
        // Read-ahead through the server would count as a read.
        let secret = cluster.secret.display().to_string();
        let refused = cluster.run(1, &["--server", &address, "--secret", &secret, "--policy", "atime=strict"], "true");
        assert_eq!(refused.status.code(), Some(69), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("--names server"), "{refused:?}");
        let other = cluster.tree.dir("other").display().to_string();
        let open = cluster.command(0, &["serve", &data, "--burst-buffer", &other, "--listen", "tcp:127.0.0.1:0"]);
        assert_eq!(open.status.code(), Some(64), "{open:?}");
        assert!(String::from_utf8_lossy(&open.stderr).contains("--anonymous"), "{open:?}");
    });
}
