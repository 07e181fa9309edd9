//! Whoever may exceed quotas is not asked for them: what serves a directory may not.

mod common;

use common::{Bench, forebay, start};
use testkit::in_private_namespace;

/// Number of `CAP_SYS_RESOURCE`, which exempts from the quotas of file systems.
const CAP_SYS_RESOURCE: u32 = 24;

/// Of the threads whose status was noted: all, and those that are exempt.
fn exempt(bench: &Bench, note: &str) -> (usize, usize) {
    let statuses = bench.read(note);
    let sets = |line: &str| line.strip_prefix("CapPrm:").map(|hex| u64::from_str_radix(hex.trim(), 16).unwrap());
    let permitted: Vec<u64> = statuses.lines().filter_map(sets).collect();
    (permitted.len(), permitted.iter().filter(|set| **set >> CAP_SYS_RESOURCE & 1 == 1).count())
}

/// Runs a script as root of a user namespace, who may there what root may not be allowed to here. False: there is none.
fn as_root(bench: &Bench, script: &str) -> bool {
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--propagation", "private", "sh", "-ec"]).arg(script);
    command.env("FOREBAY", forebay().get_program()).env("DIR", &bench.dir).env("BUFFER", &bench.buffer);
    let done = start(&mut command, "").wait();
    if done.err.contains("unshare") {
        eprintln!("skipped: it takes a user namespace");
        return false;
    }
    assert_eq!(done.code, 0, "{done:?}");
    true
}

#[test] // S21
fn no_thread_of_an_agent_is_exempt_from_quotas_and_the_command_is_as_it_was() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let script = "cat /proc/self/status > $DIR/caller
            $FOREBAY run --quiet --dir $DIR --burst-buffer $BUFFER -- \
                sh -ec 'cat /proc/self/status > $DIR/command; { cat /proc/$PPID/task/*/status 2>/dev/null || :; } > $DIR/run'
            $FOREBAY mount $DIR --burst-buffer $BUFFER
            { cat /proc/$(cut -d' ' -f1 $BUFFER/forebay.lock)/task/*/status 2>/dev/null || :; } > $DIR/mount
            $FOREBAY umount $DIR";
        if !as_root(&bench, script) {
            return;
        }
        assert_eq!((exempt(&bench, "caller"), exempt(&bench, "command")), ((1, 1), (1, 1)));
        for agent in ["run", "mount"] {
            let (threads, exempt) = exempt(&bench, agent);
            assert!(threads > 8 && exempt == 0, "{agent}: {exempt} of {threads}");
        }
    });
}

#[test] // S21
fn commands_that_open_a_burst_buffer_themselves_are_not_exempt_from_quotas() {
    in_private_namespace(|| {
        let bench = Bench::new();
        // They wait for the rules before they open it.
        let script = "$FOREBAY mount $DIR --burst-buffer $BUFFER
            $FOREBAY umount $DIR
            cat /proc/self/status > $DIR/caller
            mkfifo $BUFFER/policies.toml
            look() {
                exec 3> $BUFFER/policies.toml
                cat /proc/$!/task/*/status > $DIR/$1
                exec 3>&-
                wait $! || :
            }
            $FOREBAY check $BUFFER --repair & look check
            $FOREBAY resolve $DIR/caller --keep global --burst-buffer $BUFFER & look resolve";
        if !as_root(&bench, script) {
            return;
        }
        assert_eq!(exempt(&bench, "caller"), (1, 1));
        assert_eq!((exempt(&bench, "check"), exempt(&bench, "resolve")), ((1, 0), (1, 0)));
    });
}
