//! Crashes of a machine: the server's, whose nodes live on, or a node's, whose windows lie on persistent memory.

use std::fs::{self, File};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread::Scope;

use rustix::process::Signal;
use testkit::{in_private_namespace, wait_for, wait_until};

use crate::cluster::{BOUND, Cluster};
use crate::windows::{register, window_option, windowed};

/// Environment that makes memory count as persistent.
const EMULATED: &[(&str, &str)] = &[("FOREBAY_EMULATE_PERSISTENT_MEMORY", "yes")];

/// Crashes the server's machine and restarts it. The test's kernel still has data that was not synced.
fn crash_server(cluster: &mut Cluster) {
    cluster.kill_server();
    after_crash(cluster);
}

/// Restarts a dead server after a crash of its machine.
fn after_crash(cluster: &mut Cluster) {
    let note = cluster.tree.path("bb").join("life");
    let life = fs::read_to_string(&note).unwrap();
    fs::write(&note, format!("{} another-life\n", life.split_once(' ').unwrap().0)).unwrap();
    cluster.start_server();
}

/// Crashes the server's machine at a fault point while `act` is under way.
fn crash_at<T: Send>(cluster: &mut Cluster, point: &str, act: impl FnOnce() -> T + Send) -> T {
    cluster.kill_server();
    cluster.start_server_with(&format!("FOREBAY_FAULT={point}"));
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        wait_for("the fault point", BOUND, || cluster.server_status());
        after_crash(cluster);
        acting.join().unwrap()
    })
}

/// Runs `act`, which waits for the server, in a thread of its own. Returns once it is under way.
fn under_way<'a, T: Send + 'a>(
    scope: &'a Scope<'a, '_>,
    act: impl FnOnce() -> T + Send + 'a,
) -> std::thread::ScopedJoinHandle<'a, T> {
    let (tell, told) = std::sync::mpsc::channel();
    let acting = scope.spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        act()
    });
    let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    wait_until("it waits", BOUND, || fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") R ")));
    acting
}

/// Closes another descriptor of the same open file.
fn close_another(file: &File) -> std::io::Result<()> {
    let another = file.try_clone()?.into_raw_fd();
    // SAFETY: nobody else has it.
    if unsafe { libc::close(another) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn eio(done: std::io::Result<()>) -> bool {
    done.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
}

#[test] // S41
fn who_wrote_what_a_crash_of_the_servers_machine_may_have_taken_is_told_once() {
    in_private_namespace(|| told_once(|cluster| cluster.mount(1, &[])));
}

#[test] // S41
fn who_wrote_what_a_crash_of_the_servers_machine_may_have_taken_is_told_once_on_a_node_without_the_global_store() {
    in_private_namespace(|| told_once(|cluster| cluster.mount_names(1, &[])));
}

fn told_once(mount: fn(&mut Cluster) -> PathBuf) {
    let mut cluster = Cluster::new(1);
    let one = mount(&mut cluster);
    let open = |name: &str| File::options().read(true).write(true).create(true).truncate(false).open(one.join(name));
    let durable =
        File::options().write(true).create(true).custom_flags(libc::O_DSYNC).open(one.join("durable")).unwrap();
    let (synced, lost, mate, reads) =
        (open("synced").unwrap(), open("lost").unwrap(), open("lost").unwrap(), File::open(one.join("lost")).unwrap());
    for file in [&synced, &lost] {
        file.write_all_at(b"before", 0).unwrap();
        file.sync_all().unwrap();
    }
    lost.write_all_at(b"after", 0).unwrap();
    // Its process may die.
    cluster.kill_server();
    cluster.start_server();
    assert!(synced.sync_all().is_ok() && lost.sync_all().is_ok());
    lost.set_len(3).unwrap();
    durable.write_all_at(b"there when it is answered", 0).unwrap();
    crash_server(&mut cluster);
    durable.write_all_at(b"THERE", 0).expect("nothing of it may be lost");
    durable.sync_all().unwrap();
    synced.sync_all().unwrap();
    for _ in 0..2 {
        assert!(eio(close_another(&lost)), "nobody may look at what a close says");
    }
    assert!(eio(lost.sync_all()), "a sync that said nothing would be believed");
    close_another(&lost).expect("it was told");
    lost.sync_all().expect("it was told");
    assert!(eio(mate.sync_all()), "each who may have written is");
    reads.sync_all().expect("who has not written is not");
    let own = fs::read_dir("/run/forebay-agents-0").unwrap().map(|entry| entry.unwrap().path());
    let log: String = own.filter_map(|dir| fs::read_to_string(dir.join("agent.log")).ok()).collect();
    assert_eq!(log.matches("the server's machine has crashed").count(), 1, "{log}");
    // If everything was synced when the server ended, a crash of the machine loses nothing.
    lost.write_all_at(b"more", 0).unwrap();
    cluster.end_server();
    let note = cluster.tree.path("bb").join("life");
    assert!(fs::read_to_string(&note).unwrap().ends_with(" synced\n"));
    cluster.start_server();
    lost.sync_all().unwrap();
    lost.write_all_at(b"last", 0).unwrap();
    crash_server(&mut cluster);
    // The write that finds out, or the next one.
    let told = [(); 4].into_iter().filter(|()| eio(lost.write_all_at(b"last", 0))).count();
    assert_eq!(told, 1);
    assert!(eio(lost.sync_all()), "who heard of it may have been told that a part was written");
    lost.sync_all().unwrap();
    assert_eq!(fs::read(one.join("lost")).unwrap(), b"last");
    // A large write is several requests. If a later one is refused, the writer is told how much was written.
    lost.write_all_at(b"once more", 0).unwrap();
    crash_server(&mut cluster);
    let large = vec![7; 4 << 20];
    let parts = [0, 1, 2].map(|_| lost.write_at(&large, 0));
    assert!(parts.iter().any(|part| !matches!(part, Ok(written) if *written == large.len())), "{parts:?}");
    assert!(eio(lost.sync_all()), "{parts:?}");
    lost.write_all_at(&large, 0).unwrap();
    lost.sync_all().unwrap();
}

#[test] // S41
fn what_is_under_way_when_the_servers_machine_crashes_is_made_and_nobody_is_told() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &[&window_option(&cluster)]);
        let registration = register(&cluster);
        let (file, ring) = windowed(&registration, &one.join("file"));
        for round in 1..4u8 {
            file.sync_all().unwrap();
            cluster.stop_server();
            // Several at once.
            (0..8).for_each(|part| ring.append(part << 20, &vec![round; 50_000]).unwrap());
            std::thread::scope(|scope| {
                let synced = under_way(scope, || file.sync_all());
                crash_server(&mut cluster);
                synced.join().unwrap().unwrap();
            });
        }
        drop(ring);
        assert_eq!(fs::read(one.join("file")).unwrap()[7 << 20..], [3; 50_000]);
    });
}

#[test] // S41
fn what_several_files_wait_for_when_the_servers_machine_crashes_is_made_on_a_node_without_the_global_store() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount_names(1, &[]);
        let files: Vec<File> = (0..4).map(|number| File::create(one.join(format!("{number}"))).unwrap()).collect();
        for round in 1..4u8 {
            files.iter().for_each(|file| file.sync_all().unwrap());
            cluster.stop_server();
            std::thread::scope(|scope| {
                let all: Vec<_> =
                    files.iter().map(|file| under_way(scope, move || file.write_all_at(&[round; 100], 0))).collect();
                crash_server(&mut cluster);
                all.into_iter().for_each(|one| one.join().unwrap().unwrap());
            });
        }
        assert!(files.iter().all(|file| file.sync_all().is_ok()));
        assert_eq!(fs::read(one.join("3")).unwrap(), [3; 100]);
    });
}

#[test] // S41
fn a_write_that_is_to_be_synced_is_told_if_the_servers_machine_crashes_before_it_is() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &[]);
        let mut options = File::options();
        let file = options.write(true).create(true).custom_flags(libc::O_DSYNC).open(one.join("file")).unwrap();
        file.write_all_at(b"one", 0).unwrap();
        let written = crash_at(&mut cluster, "serve.synced", || file.write_all_at(b"two", 0));
        assert!(eio(written), "nobody knows whether it was synced before");
        file.write_all_at(b"three", 0).unwrap();
        assert!(eio(file.sync_all()), "it may have been a part of a larger one");
        file.sync_all().unwrap();
    });
}

#[test] // S41
fn a_file_that_is_cut_by_its_name_is_changed_like_others() {
    in_private_namespace(|| cut_by_name(|cluster| cluster.mount(1, &[])));
}

#[test] // S41
fn a_file_that_is_cut_by_its_name_is_changed_like_others_on_a_node_without_the_global_store() {
    in_private_namespace(|| cut_by_name(|cluster| cluster.mount_names(1, &[])));
}

fn cut_by_name(mount: fn(&mut Cluster) -> PathBuf) {
    let mut cluster = Cluster::new(1);
    let path = mount(&mut cluster).join("file");
    let file = File::create(&path).unwrap();
    let cut = |len: i64| {
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends.
        assert_eq!(unsafe { libc::truncate(path.as_ptr(), len) }, 0);
    };
    cut(100);
    // An answer of another server, in the same boot of the machine.
    cluster.kill_server();
    cluster.start_server();
    cut(200);
    file.sync_all().unwrap();
    crash_server(&mut cluster);
    file.sync_all().expect("it was synced");
    cut(300);
    crash_server(&mut cluster);
    assert!(eio(file.sync_all()));
    file.sync_all().unwrap();
}

#[test] // S41
fn what_comes_past_a_window_on_persistent_memory_is_told_if_the_servers_machine_crashes_before_it_is_synced() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount_with(1, &[&window_option(&cluster)], EMULATED);
        let registration = register(&cluster);
        let (file, _ring) = windowed(&registration, &one.join("file"));
        // Through the kernel, which the library leaves to it.
        file.write_all_at(b"past it", 0).unwrap();
        assert!(eio(crash_at(&mut cluster, "serve.synced", || file.write_all_at(b"lost, perhaps", 0))));
        file.write_all_at(b"told", 0).unwrap();
        assert!(eio(crash_at(&mut cluster, "serve.synced", || file.set_len(4))));
    });
}

#[test] // S41
fn the_servers_machine_may_crash_while_what_windows_on_persistent_memory_hold_is_brought_there() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let window = &window_option(&cluster);
        let one = cluster.mount_with(1, &[window], EMULATED);
        let registration = register(&cluster);
        let (file, ring) = windowed(&registration, &one.join("file"));
        file.sync_all().unwrap();
        cluster.signal_agent(1, Signal::STOP);
        ring.append(0, b"no sync came after this").unwrap();
        cluster.kill_agent(1);
        drop((file, ring, registration));
        cluster.unmount(1);
        cluster.kill_server();
        cluster.start_server_with("FOREBAY_FAULT=serve.written");
        let (data, secret, address) = (cluster.data.clone(), cluster.secret.clone(), cluster.address());
        let words =
            ["run", "--dir", data.to_str().unwrap(), "--server", &address, "--secret", secret.to_str().unwrap()];
        let mut run = cluster.spawn(
            1,
            &[&words[..], &[window, "--", "sh", "-c", &format!("cd {0} && cp file copy", data.display())]].concat(),
        );
        wait_for("the fault point", BOUND, || cluster.server_status());
        after_crash(&mut cluster);
        assert!(wait_for("the end of the run", BOUND, || run.ended()).success());
        assert_eq!(fs::read(data.join("copy")).unwrap(), b"no sync came after this");
    });
}

#[test] // S46
fn what_windows_on_persistent_memory_hold_comes_to_the_server_after_a_crash_of_the_node() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let window = &window_option(&cluster);
        for (name, crashes) in [("agent", false), ("node", true)] {
            let one = cluster.mount_with(1, &[window], EMULATED);
            let registration = register(&cluster);
            let (file, ring) = windowed(&registration, &one.join(name));
            ring.append(0, b"in order").unwrap();
            file.sync_all().unwrap();
            cluster.signal_agent(1, Signal::STOP);
            ring.append(3, b"no sync came after this").unwrap();
            cluster.kill_agent(1);
            drop((file, ring, registration));
            cluster.unmount(1);
            let notes = fs::read_dir(cluster.tree.path("rings/forebay-agents-0")).unwrap();
            let noted = notes.filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("windows")).ok());
            assert_eq!(noted.collect::<String>().matches(" durable ").count(), 1, "good in any life of the machine");
            if crashes {
                // The files that the node had in memory are lost.
                fs::remove_dir_all("/run/forebay-agents-0").unwrap();
            }
            // One without windows looks where the machine still knows of some.
            let options: &[&str] = if crashes { &[window] } else { &[] };
            let one = cluster.mount_with(1, options, EMULATED);
            assert_eq!(fs::read(one.join(name)).unwrap(), b"in no sync came after this");
            cluster.kill_agent(1);
            cluster.unmount(1);
        }
    });
}

#[test] // S46
fn what_a_durable_window_keeps_until_it_is_synced_is_not_told_as_lost_with_the_servers_machine() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount_with(1, &[&window_option(&cluster)], EMULATED);
        let registration = register(&cluster);
        let (file, ring) = windowed(&registration, &one.join("file"));
        for number in 0..3u8 {
            ring.append(u64::from(number) * 100, &[number + 1; 100]).unwrap();
            crash_server(&mut cluster);
        }
        file.sync_all().expect("what a ring keeps until it is synced is not lost");
        let bytes: Vec<u8> = (1..=3).flat_map(|number| [number; 100]).collect();
        assert_eq!(fs::read(one.join("file")).unwrap(), bytes);
    });
}
