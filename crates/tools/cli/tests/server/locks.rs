//! Locks and syncs of programs on several nodes: what they exclude, and what is seen after them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::in_private_namespace;

use crate::cluster::Cluster;

/// Increments of each program.
const TURNS: u64 = 60;

/// Program that repeatedly adds 1 to a number in a file, under a lock taken for each turn. Arguments: the file, `fcntl`
/// or `flock`, `calls` or `mapping`, turns, index of the number. `fcntl` locks only that number.
const COUNTER: &str = "
import fcntl, mmap, os, struct, sys
path, lock, how, turns, number = sys.argv[1:6]
at = 8 * int(number)
fd = os.open(path, os.O_RDWR)
set = (lambda to: fcntl.lockf(fd, to, 8, at)) if lock == 'fcntl' else (lambda to: fcntl.flock(fd, to))
m = mmap.mmap(fd, 4096) if how == 'mapping' else None
for turn in range(int(turns)):
    set(fcntl.LOCK_EX)
    now = struct.unpack('<Q', m[at:at + 8] if m else os.pread(fd, 8, at))[0]
    if m: m[at:at + 8] = struct.pack('<Q', now + 1)
    else: os.pwrite(fd, struct.pack('<Q', now + 1), at)
    set(fcntl.LOCK_UN)
";

fn counter(dir: &Path, lock: &str, how: &str, number: usize) -> Child {
    let (file, turns) = (dir.join("counter"), TURNS.to_string());
    let mut command = Command::new("python3");
    command.args(["-c", COUNTER, file.to_str().unwrap(), lock, how, &turns, &number.to_string()]);
    command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(counters: Vec<Child>) {
    for counter in counters {
        let done = counter.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test] // S68
fn a_counter_under_a_lock_is_exact_on_nodes_that_mount_the_store_and_on_nodes_that_do_not() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(3);
        let dirs = [cluster.mount(1, &[]), cluster.mount(2, &[]), cluster.mount_names(3, &[])];
        for (lock, how) in [("fcntl", "calls"), ("flock", "calls"), ("fcntl", "mapping")] {
            fs::write(dirs[0].join("counter"), [0; 4096]).unwrap();
            let counters: Vec<Child> = dirs.iter().map(|dir| counter(dir, lock, how, 0)).collect();
            end(counters);
            let bytes = fs::read(dirs[1].join("counter")).unwrap();
            let count = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(count, 3 * TURNS, "{lock}, {how}");
        }
        let said = cluster.status(1);
        assert!(!said.contains("of this node alone"), "{said}");
        cluster.end_server();
    });
}

#[test] // S68
fn counters_in_one_mapped_page_under_a_lock_each_are_exact_on_several_nodes() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(4);
        let stores = [cluster.mount(1, &[]), cluster.mount(2, &[])];
        let dirs = stores.into_iter().chain([cluster.mount_names(3, &[]), cluster.mount_names(4, &[])]);
        let dirs: Vec<_> = dirs.collect();
        fs::write(dirs[0].join("counter"), [0; 4096]).unwrap();
        end(dirs.iter().enumerate().map(|(number, dir)| counter(dir, "fcntl", "mapping", number)).collect());
        let bytes = fs::read(dirs[1].join("counter")).unwrap();
        let (counts, _) = bytes[..8 * dirs.len()].as_chunks::<8>();
        let counts: Vec<u64> = counts.iter().map(|count| u64::from_le_bytes(*count)).collect();
        assert_eq!(counts, vec![TURNS; dirs.len()]);
        cluster.end_server();
    });
}

#[test] // S68
fn what_one_node_synced_another_sees_after_its_own_sync() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount(1, &[]), cluster.mount(2, &[]));
        fs::write(one.join("file"), vec![0; 1 << 20]).unwrap();
        let open = |dir: &Path| File::options().read(true).write(true).open(dir.join("file")).unwrap();
        let (first, second) = (open(&one), open(&two));
        let mut sight = vec![0; 1 << 16];
        for turn in 1..=20_u8 {
            // In sequence, so that the node reads ahead of it.
            for at in 0..4 {
                second.read_exact_at(&mut sight, at << 16).unwrap();
            }
            first.write_all_at(&vec![turn; 1 << 20], 0).unwrap();
            first.sync_all().unwrap();
            second.sync_all().unwrap();
            second.read_exact_at(&mut sight, 4 << 16).unwrap();
            assert!(sight.iter().all(|byte| *byte == turn), "turn {turn}: {}", sight[0]);
        }
        drop((first, second));
        cluster.end_server();
    });
}
