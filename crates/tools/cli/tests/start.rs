//! The start of an agent: beside others, and cut short.

mod common;

use std::fs;
use std::path::Path;

use common::{BOUND, Bench, call, forebay, is_mounted, ok, start};
use testkit::{in_private_namespace_within, wait_until};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test] // S18
fn two_first_agents_that_start_at_once_find_a_place_each() {
    in_private_namespace_within(4 * BOUND, || {
        for round in 0..20 {
            let bench = Bench::new();
            let dirs = ["data", "other"].map(|name| (name, bench.tree.dir(name)));
            // Both live at once, and neither is below when it ends.
            let script =
                "echo $0 > mine; touch ../up-$0; until [ -e ../up-data -a -e ../up-other ]; do sleep 0.01; done";
            let running = dirs.each_ref().map(|(name, dir)| {
                let mut command = forebay();
                command.args(["run", "--quiet", "--burst-buffer", text(&bench.buffer), "--dir", text(dir)]);
                start(command.args(["--", "sh", "-c", script, name]).current_dir(dir), "")
            });
            running.into_iter().for_each(|running| drop(ok(running.wait())));
            for (name, dir) in &dirs {
                assert_eq!(fs::read_to_string(dir.join("mine")).unwrap(), format!("{name}\n"), "round {round}");
            }
            let checked = ok(call(["check", text(&bench.buffer)]));
            assert!(checked.contains("0 dirty"), "round {round}: {checked}");
        }
    });
}

/// The agent looks into its new mount, and through it at the mount points of file systems inside. The test allows
/// less than the program's own time limit: an agent that waits for itself is freed only when its connection ends,
/// which comes later.
#[test] // S32
fn an_agent_killed_while_it_asks_its_own_mount_ends() {
    in_private_namespace_within(BOUND / 2, || {
        for submount in [false, true] {
            let bench = Bench::new();
            if submount {
                bench.tree.mount_tmpfs("data/inside", 1 << 20);
            }
            let log = bench.tree.path("faults");
            let mut command = forebay();
            command.arg("mount").arg(&bench.dir).arg("--burst-buffer").arg(&bench.buffer);
            command.env("FOREBAY_FAULT", "directory.asked").env("FOREBAY_FAULT_LOG", &log);
            let mounting = start(&mut command, "").wait();
            assert_ne!(mounting.code, 0);
            assert_eq!(fs::read_to_string(&log).unwrap(), "directory.asked\n", "submount {submount}: {mounting:?}");
            wait_until("the connection ends", BOUND, || {
                fs::metadata(&bench.dir).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
            });
            ok(call(["umount", text(&bench.dir)]));
            assert!(!is_mounted(&bench.dir));
        }
    });
}
