//! Test that most applied data of a large file is on the medium before a sync.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use testkit::Disk;

use super::*;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const FILE: u64 = 72 * MIB;
const SYS_CACHESTAT: libc::c_long = 451;

/// Returns how many MiB of the replicas are on the medium, and how many are not yet; `None` before Linux 6.5.
fn on_medium(root: &Path) -> Option<(u64, u64)> {
    let mut sums = (0, 0);
    for part in std::fs::read_dir(root.join("buffer/replicas")).unwrap() {
        for replica in std::fs::read_dir(part.unwrap().path()).unwrap() {
            let replica = File::open(replica.unwrap().path()).unwrap();
            let whole = [0_u64; 2];
            let mut pages = [0_u64; 5];
            // SAFETY: a descriptor that is open, and arrays of the sizes that the call reads and writes.
            if unsafe { libc::syscall(SYS_CACHESTAT, replica.as_raw_fd(), &raw const whole, &raw mut pages, 0) } != 0 {
                eprintln!("skipped: no cachestat");
                return None;
            }
            let [cached, dirty, under_way, ..] = pages;
            sums = (sums.0 + cached.saturating_sub(dirty + under_way), sums.1 + dirty + under_way);
        }
    }
    Some((sums.0 * PAGE / MIB, sums.1 * PAGE / MIB))
}

fn write_through_a_window(stand: &Stand, bytes: u64) -> (OpenFile, Window) {
    let open = stand.windowed("file");
    let window = stand.attach(&open);
    let data = vec![7; 64 << 10];
    (0..bytes).step_by(data.len()).for_each(|at| window.append(at, &data).unwrap());
    stand.agent.attributes(open.node()).unwrap();
    (open, window)
}

#[test]
fn most_of_a_large_file_is_on_the_medium_before_it_is_synced_and_nothing_where_that_is_the_kernels() {
    in_private_namespace(|| {
        for early in [true, false] {
            let tree = TempTree::new();
            let Some(disk) = Disk::new(tree.path("image"), tree.dir("disk"), 256 * MIB) else { return };
            let stand = Stand::new(disk.place(), if early { &[] } else { &["write_back=kernel"] });
            let (open, window) = write_through_a_window(&stand, FILE);
            let Some((_, waiting)) = on_medium(disk.place()) else { return };
            if early {
                // By itself, the kernel begins after half a minute.
                let mut state = (0, 0);
                wait_until("what lies behind is on the medium", Duration::from_secs(20), || {
                    state = on_medium(disk.place()).unwrap();
                    state.0 >= 40
                });
                assert!(state.0 <= 40 && state.1 >= 30, "{state:?}: what may be written again was not left");
            } else {
                assert!(waiting >= 70, "{waiting} MiB wait");
            }
            // Nothing must prevent the close, the removal, or the unmount of the disk.
            drop((open, window));
            drop(stand);
        }
    });
}
