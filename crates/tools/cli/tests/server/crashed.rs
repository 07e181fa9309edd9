//! A machine that crashes: the server's, whose nodes live on, or a node, whose windows lie on persistent memory.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::process::Signal;
use testkit::in_private_namespace;

use crate::cluster::Cluster;
use crate::windows::{register, window_option, windowed};

/// What stands in for persistent memory.
const EMULATED: &[(&str, &str)] = &[("FOREBAY_EMULATE_PERSISTENT_MEMORY", "yes")];

/// The server's machine crashes and is there again. What it had not synced its kernel has all the same, here.
fn crash_server(cluster: &mut Cluster) {
    cluster.kill_server();
    let note = cluster.tree.path("bb").join("life");
    let life = fs::read_to_string(&note).unwrap();
    fs::write(&note, format!("{} another-life\n", life.split_once(' ').unwrap().0)).unwrap();
    cluster.start_server();
}

fn eio(done: std::io::Result<()>) -> bool {
    done.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
}

#[test]
fn who_wrote_what_a_crash_of_the_servers_machine_may_have_taken_is_told_once() {
    in_private_namespace(|| told_once(|cluster| cluster.mount(1, &[])));
}

#[test]
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
    assert!(eio(lost.sync_all()), "a sync that said nothing would be believed");
    lost.sync_all().expect("it was told");
    assert!(eio(mate.sync_all()), "each who may have written is");
    reads.sync_all().expect("who has not written is not");
    let own = fs::read_dir("/run/forebay-agents-0").unwrap().map(|entry| entry.unwrap().path());
    let log: String = own.filter_map(|dir| fs::read_to_string(dir.join("agent.log")).ok()).collect();
    assert_eq!(log.matches("the server's machine has crashed").count(), 1, "{log}");
    // Where all was synced when it ended the machine may do what it likes.
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
    assert_eq!(fs::read(one.join("lost")).unwrap(), b"last");
}

#[test]
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
                // What the node had in memory is gone.
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

#[test]
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
