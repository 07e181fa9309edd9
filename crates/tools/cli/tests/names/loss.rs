//! Losses when server, node or network are lost, and what is not lost.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{ProcessGuard, in_private_namespace, wait_until};

use crate::cluster::{BOUND, Cluster};
use crate::ledger::{EndOfAll, Writer};

fn errno<T>(outcome: std::io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

#[test] // S49
fn open_files_and_directories_outlive_a_server_that_is_killed() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (dir, two) = (cluster.mount_names(1, &["--policy", "io_timeout=2s"]), cluster.mount_names(2, &[]));
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/read"), b"acknowledged").unwrap();
        let read = File::open(dir.join("a/read")).unwrap();
        // Nobody may open it so any more.
        let written = File::create(dir.join("a/b/written")).unwrap();
        fs::set_permissions(dir.join("a/b/written"), std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        let mut log = File::options().append(true).create(true).open(dir.join("log")).unwrap();
        let (inside, listed) = (File::open(dir.join("a")).unwrap(), fs::read_dir(dir.join("a")).unwrap());
        fs::rename(dir.join("a/read"), dir.join("a/renamed")).unwrap();
        for round in 0..3_u64 {
            written.write_all_at(format!("round {round}\n").as_bytes(), round * 8).unwrap();
            writeln!(log, "{round}").unwrap();
            cluster.kill_server();
            cluster.start_server();
            let mut bytes = [0; 12];
            read.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"acknowledged", "round {round}");
            let there = rustix::fs::openat(&inside, "renamed", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
            assert!(there.is_ok(), "a directory that was open leads to its files: {there:?}");
            assert_eq!(fs::metadata(dir.join("a/renamed")).unwrap().len(), 12);
            fs::create_dir(dir.join(format!("a/new-{round}"))).unwrap();
        }
        assert_eq!(listed.count(), 5, "what was there and what has come");
        assert_eq!(written.metadata().unwrap().len(), 24);
        drop((written, read, inside, log));
        assert_eq!(fs::read_to_string(two.join("a/b/written")).unwrap(), "round 0\nround 1\nround 2\n");
        assert_eq!(fs::read_to_string(two.join("log")).unwrap(), "0\n1\n2\n");
        cluster.end_server();
        assert_eq!(fs::read(cluster.data.join("a/renamed")).unwrap(), b"acknowledged");
    });
}

#[test] // S49
fn a_program_stays_in_its_working_directory_while_the_server_is_killed() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount_names(1, &[]);
        fs::create_dir_all(dir.join("work/below")).unwrap();
        let (ready, go) = (cluster.tree.path("ready"), cluster.tree.path("go"));
        let script = format!(
            "cd {}; echo >{}; until [ -e {} ]; do :; done; echo relative >../made; pwd -P >file; mkdir sub",
            dir.join("work/below").display(),
            ready.display(),
            go.display()
        );
        let mut shell = ProcessGuard::spawn(std::process::Command::new("sh").args(["-ec", &script]));
        wait_until("it stands there", BOUND, || ready.exists());
        cluster.kill_server();
        cluster.start_server();
        fs::write(&go, "").unwrap();
        assert!(shell.wait(BOUND).success());
        assert_eq!(fs::read_to_string(dir.join("work/made")).unwrap(), "relative\n");
        assert!(fs::metadata(dir.join("work/below/sub")).unwrap().is_dir());
        cluster.end_server();
    });
}

#[test] // S49
fn what_was_removed_is_stale_after_the_server_was_killed() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount_names(1, &[]);
        let [removed, kept] = ["removed", "kept"].map(|name| {
            let file = File::create_new(dir.join(name)).unwrap();
            file.write_all_at(b"acknowledged", 0).unwrap();
            file
        });
        fs::remove_file(dir.join("removed")).unwrap();
        cluster.kill_server();
        cluster.start_server();
        kept.write_all_at(b"A", 0).unwrap();
        assert_eq!(errno(removed.write_at(b"lost", 0)), Some(libc::ESTALE));
        assert_eq!(errno(removed.set_len(0)), Some(libc::ESTALE));
        drop((removed, kept));
        assert_eq!(fs::read(dir.join("kept")).unwrap(), b"Acknowledged");
        cluster.end_server();
    });
}

#[test] // S49
fn a_server_of_names_that_is_killed_again_and_again_under_load_loses_nothing() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let mut writers: Vec<Writer> =
            [&one, &two, &one].iter().enumerate().map(|(number, dir)| Writer::new(dir, number as u64)).collect();
        let counts: Vec<_> = writers.iter().map(Writer::count).collect();
        let end = AtomicBool::new(false);
        let now = || counts.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<u64>>();
        let more = |than: &[u64]| now().iter().zip(than).all(|(now, than)| *now > than + 20);
        std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            for writer in &mut writers {
                scope.spawn(|| writer.run(&end));
            }
            for _ in 0..5 {
                let before = now();
                wait_until("all write on by themselves", BOUND, || more(&before));
                cluster.kill_server();
                cluster.start_server();
            }
            let before = now();
            wait_until("all write on by themselves", BOUND, || more(&before));
        });
        writers.iter_mut().for_each(Writer::close);
        writers.iter().for_each(|writer| writer.check(&two));
        cluster.end_server();
        writers.iter().for_each(|writer| writer.check(&cluster.data));
    });
}

#[test] // S49
fn while_the_server_of_names_is_gone_looks_time_out_writes_wait_and_killed_programs_die() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount_names(1, &["--policy", "io_timeout=1s"]);
        fs::write(dir.join("file"), b"some bytes").unwrap();
        let file = File::open(dir.join("file")).unwrap();
        let written = File::create(dir.join("waited")).unwrap();
        let (ready, go) = (cluster.tree.path("ready"), cluster.tree.path("go"));
        let script = format!(
            "exec 3>{}; echo >{}; until [ -e {} ]; do :; done; echo waits >&3",
            dir.join("killed").display(),
            ready.display(),
            go.display()
        );
        let mut shell = ProcessGuard::spawn(std::process::Command::new("sh").args(["-c", &script]));
        wait_until("it has the file open", BOUND, || ready.exists());
        cluster.stop_server();
        let mut outcomes = Vec::new();
        for _ in 0..2 {
            let began = Instant::now();
            let looks = [
                errno(file.read_at(&mut [0; 4], 0)),
                errno(fs::metadata(dir.join("file"))),
                errno(fs::metadata(dir.join("none"))),
            ];
            outcomes.push((looks, began.elapsed()));
        }
        fs::write(&go, "").unwrap();
        wait_until("it waits in the kernel", BOUND, || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", shell.pid())).unwrap_or_default();
            stat.contains("(sh) D ") || stat.contains("(sh) S ")
        });
        shell.signal(Signal::KILL);
        let died = Instant::now();
        shell.wait(BOUND);
        let died = died.elapsed();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                written.write_all_at(b"it waits", 0).unwrap();
                done.store(true, Ordering::SeqCst);
            });
            let away = Instant::now();
            wait_until("more than the patience of looks has passed", BOUND, || away.elapsed() > Duration::from_secs(2));
            let too_early = done.load(Ordering::SeqCst);
            // Before anything is found wrong: the program waits for it.
            cluster.continue_server();
            assert!(!too_early, "no change is reported that no server has");
        });
        for (looks, took) in outcomes {
            assert_eq!(looks, [Some(libc::ETIMEDOUT); 3]);
            assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(20), "{took:?}");
        }
        assert!(died < Duration::from_secs(10), "{died:?}");
        let mut bytes = [0; 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"some bytes", "the server has not forgotten this node");
        assert_eq!(fs::read_to_string(dir.join("waited")).unwrap(), "it waits");
        drop((file, written));
        cluster.end_server();
    });
}

#[test] // S49
fn a_program_that_ends_by_any_signal_waits_for_no_server_of_names() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let dir = cluster.mount_names(1, &[]);
        cluster.any_signal_ends_a_program_without_server(&dir);
        cluster.end_server();
    });
}

#[test] // S49
fn a_node_without_the_store_that_loses_its_network_for_a_while_goes_on_where_it_was() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let mut writer = Writer::new(&one, 1);
        let end = AtomicBool::new(false);
        let acknowledged = writer.count();
        let directories = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            scope.spawn(|| writer.run(&end));
            scope.spawn(|| {
                // Changing names twice fails, and leaving a change out makes the next one fail.
                for number in 0.. {
                    if end.load(Ordering::SeqCst) {
                        break;
                    }
                    fs::create_dir(one.join(format!("d{number}"))).unwrap();
                    fs::rename(one.join(format!("d{number}")), one.join("moved")).unwrap();
                    fs::remove_dir(one.join("moved")).unwrap();
                    directories.store(number, Ordering::SeqCst);
                }
            });
            for _ in 0..2 {
                let before = (acknowledged.load(Ordering::SeqCst), directories.load(Ordering::SeqCst));
                let goes_on = || {
                    acknowledged.load(Ordering::SeqCst) > before.0 + 20
                        && directories.load(Ordering::SeqCst) > before.1 + 5
                };
                wait_until("all goes on", BOUND, goes_on);
                cluster.plug(1, false);
                fs::write(two.join("other"), "the others go on").unwrap();
                let away = Instant::now();
                wait_until("some seconds have passed", BOUND, || away.elapsed() > Duration::from_secs(4));
                cluster.plug(1, true);
            }
            let before = acknowledged.load(Ordering::SeqCst);
            wait_until("it goes on by itself", BOUND, || acknowledged.load(Ordering::SeqCst) > before + 20);
        });
        writer.close();
        writer.check(&two);
    });
}

#[test] // S49
fn what_a_killed_node_had_written_is_at_the_server() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        for round in 0..3_u64 {
            let (one, two) = (cluster.mount_names(1, &[]), cluster.node(2));
            let mut writer = Writer::new(&one, round);
            let (end, acknowledged) = (AtomicBool::new(false), writer.count());
            std::thread::scope(|scope| {
                let _ends = EndOfAll(&end);
                scope.spawn(|| writer.run_to_its_death(&end));
                wait_until("records are written", BOUND, || acknowledged.load(Ordering::SeqCst) > 10 + 37 * round);
                if round == 2 {
                    cluster.kill_server();
                }
                cluster.kill_agent(1);
            });
            writer.close();
            cluster.unmount(1);
            if round == 2 {
                cluster.start_server();
            }
            if round == 0 {
                cluster.mount_names(2, &[]);
            }
            writer.check_acknowledged(&two);
        }
        cluster.end_server();
    });
}

/// Writes one file after the other, and continues with the next when one fails. Returns the numbers of the files
/// written.
fn write_files(
    dir: &std::path::Path,
    name: &str,
    end: &AtomicBool,
    written: &std::sync::atomic::AtomicU64,
) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    for number in 0_u64.. {
        if end.load(Ordering::SeqCst) {
            break;
        }
        match fs::write(dir.join(format!("{name}-{number}")), content(name, number)) {
            Ok(()) => {
                acknowledged.push(number);
                written.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => {
                // Requests left in doubt by a lost server are reported, and nothing else goes wrong.
                let expected = [libc::ESTALE, libc::EIO, libc::ETIMEDOUT];
                assert!(
                    error.raw_os_error().is_some_and(|errno| expected.contains(&errno)),
                    "{name}-{number}: {error}"
                );
            }
        }
    }
    acknowledged
}

fn content(name: &str, number: u64) -> String {
    format!("{name} {number} ").repeat(number as usize % 700 + 1)
}

#[test] // S49
fn files_that_were_written_while_the_server_is_killed_again_and_again_are_whole() {
    in_private_namespace(|| {
        let (mut cluster, one, two) = Cluster::of_two();
        let (end, counts) = (AtomicBool::new(false), [const { std::sync::atomic::AtomicU64::new(0) }; 3]);
        let writers = [(&one, "a"), (&two, "b"), (&one, "c")];
        let written: Vec<(&str, Vec<u64>)> = std::thread::scope(|scope| {
            let _ends = EndOfAll(&end);
            let (end, counts) = (&end, &counts);
            let threads: Vec<_> = writers
                .iter()
                .zip(counts)
                .map(|((dir, name), count)| (*name, scope.spawn(move || write_files(dir, name, end, count))))
                .collect();
            for _ in 0..5 {
                let before: Vec<u64> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
                let more =
                    || counts.iter().zip(&before).all(|(count, before)| count.load(Ordering::SeqCst) > before + 10);
                wait_until("all write on", BOUND, more);
                cluster.kill_server();
                cluster.start_server();
            }
            end.store(true, Ordering::SeqCst);
            threads.into_iter().map(|(name, thread)| (name, thread.join().unwrap())).collect()
        });
        let check = |dir: &std::path::Path| {
            for (name, numbers) in &written {
                for number in numbers {
                    let found = fs::read_to_string(dir.join(format!("{name}-{number}"))).unwrap();
                    assert!(found == content(name, *number), "{name}-{number} in {}", dir.display());
                }
            }
        };
        check(&two);
        cluster.end_server();
        check(&cluster.data);
    });
}
