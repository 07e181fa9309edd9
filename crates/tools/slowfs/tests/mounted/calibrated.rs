//! Measurements with fio agree with the options within 5 %. On a busy machine one try may be slower, but never faster.
//! The rates are low enough for any machine that is not overloaded.

use super::*;

/// Largest relative difference of a try from the configured rate.
const TOLERANCE: f64 = 0.05;

/// Runs fio and returns bytes and operations per second, summed over all jobs.
fn fio(slow: &Slow, words: &[&str]) -> (f64, f64) {
    let mut fio = Command::new("fio");
    fio.args(["--name=job", "--ioengine=psync", "--direct=1", "--time_based", "--runtime=2s", "--group_reporting"]);
    fio.args(["--fallocate=none", "--output-format=terse", "--terse-version=3"]).args(words).current_dir(&slow.shown);
    let output = fio.stdin(Stdio::null()).output().expect("fio is installed by scripts/bootstrap.sh");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find(|line| line.starts_with("3;")).expect("a line of results");
    let field = |at: usize| line.split(';').nth(at).and_then(|field| field.parse::<f64>().ok()).unwrap();
    // Terse fields 7 and 8 are the rate of reads in KiB/s and operations, 48 and 49 that of writes.
    ((field(6) + field(47)) * 1024.0, field(7) + field(48))
}

/// Repeats a measurement until it agrees with the configured rate; none may be faster.
fn reaches(promised: f64, mut measure: impl FnMut() -> f64) {
    wait_until("a try is as promised", 2 * PATIENCE, || {
        let share = measure() / promised;
        assert!(share <= 1.0 + TOLERANCE, "{share} of the promise");
        share >= 1.0 - TOLERANCE
    });
}

/// Creates a mount with one file of `bytes`, for reading.
fn with_file(arguments: &[&str], bytes: u64) -> Slow {
    let slow = Slow::new(arguments);
    fs::write(slow.lower.join("file"), vec![7; bytes as usize]).unwrap();
    slow
}

#[test]
fn k_targets_give_k_times_one_and_a_stream_no_more_than_its_cap() {
    in_private_namespace_within(6 * PATIENCE, || {
        let slow = Slow::new(&["--targets", "4", "--target-bandwidth", "5MB/s", "--stripe", "64KiB"]);
        reaches(20e6, || fio(&slow, &["--rw=write", "--bs=512k", "--size=8m", "--numjobs=2"]).0);
        slow.end();
        let slow = Slow::new(&["--stream-bandwidth", "4MB/s"]);
        reaches(16e6, || fio(&slow, &["--rw=write", "--bs=256k", "--size=8m", "--numjobs=4"]).0);
        slow.end();
    });
}

#[test]
fn a_disk_of_eight_milliseconds_gives_125_random_reads_a_second_and_two_give_250() {
    in_private_namespace_within(6 * PATIENCE, || {
        for (targets, promised) in [("1", 125.0), ("2", 250.0)] {
            let slow = with_file(&["--targets", targets, "--seek", "8ms", "--adjacent", "200us"], 64 << 20);
            reaches(promised, || fio(&slow, &["--rw=randread", "--bs=8k", "--filename=file", "--numjobs=16"]).1);
            slow.end();
        }
    });
}

#[test]
fn a_round_trip_and_a_latency_are_what_a_lone_reader_waits_for() {
    in_private_namespace_within(6 * PATIENCE, || {
        for arguments in [["--round-trip", "40ms"], ["--latency", "40ms"]] {
            let slow = with_file(&arguments, 1 << 20);
            // Not with fio: the kernel's request for an attribute once a second would be one operation in twenty-five.
            reaches(25.0, || 1.0 / median_read(&slow).as_secs_f64());
            slow.end();
        }
    });
}

fn median_read(slow: &Slow) -> Duration {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(slow.shown.join("file")).unwrap();
    let mut page = [0; 4096];
    let mut times: Vec<Duration> = (0..15)
        .map(|at| {
            let begun = Instant::now();
            file.read_exact_at(&mut page, at * 4096).unwrap();
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

#[test]
fn the_metadata_server_does_as_many_operations_at_a_time_as_promised() {
    in_private_namespace_within(6 * PATIENCE, || {
        let slow = Slow::new(&["--metadata-time", "10ms", "--metadata-threads", "2"]);
        reaches(200.0, || {
            let begun = Instant::now();
            std::thread::scope(|scope| {
                for thread in 0..8 {
                    let shown = &slow.shown;
                    scope.spawn(move || {
                        (0..50).for_each(|at| assert!(!shown.join(format!("missing {thread} {at}")).exists()));
                    });
                }
            });
            400.0 / begun.elapsed().as_secs_f64()
        });
        slow.end();
    });
}

/// Returns the time that four open file descriptions need to write one file in turn.
fn in_turn(protocol: &str) -> Duration {
    use std::os::unix::fs::OpenOptionsExt;
    let slow = Slow::new(&["--lock", protocol, "--round-trip", "4ms", "--lock-granularity", "4KiB"]);
    let path = slow.shown.join("shared");
    // Direct I/O, so that each write is one operation.
    let open = || File::options().create(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let files = [open(), open(), open(), open()];
    let begun = Instant::now();
    for at in 0..80u64 {
        files[at as usize % 4].write_all_at(&[at as u8; 4096], at * 4096).unwrap();
    }
    let took = begun.elapsed();
    drop(files);
    slow.end();
    took
}

#[test]
fn writers_in_turn_fight_over_a_file_lock_and_not_over_exact_ranges() {
    in_private_namespace_within(6 * PATIENCE, || {
        // One round trip for the write, one for the lock, and one more to take the lock from another client.
        assert!(in_turn("exact") >= Duration::from_millis(80 * 8));
        assert!(in_turn("file") >= Duration::from_millis(79 * 12));
        assert!(in_turn("none") >= Duration::from_millis(80 * 4));
        wait_until("exact ranges are cheaper", 2 * PATIENCE, || in_turn("exact") < Duration::from_millis(79 * 12));
    });
}

#[test]
fn fault_points_fail_what_they_name_and_the_statistics_tell() {
    in_private_namespace(|| {
        let faults = ["--fault", "write:2:EIO", "--fault", "fsync:1:ENOSPC", "--fault", "lookup:9999:EIO"];
        let slow = Slow::new(&faults);
        let mut file = File::create(slow.shown.join("file")).unwrap();
        file.write_all(b"first").unwrap();
        assert_eq!(file.write_all(b"second").unwrap_err().raw_os_error(), Some(libc::EIO));
        file.write_all(b"third").unwrap();
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        file.sync_all().unwrap();
        assert_eq!(fs::read(slow.lower.join("file")).unwrap(), b"firstthird");
        let mut text = vec![0; 4096];
        let length = rustix::fs::getxattr(&slow.shown, "user.slowfs.statistics", &mut text[..]).unwrap();
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        for line in ["fault 0 hits 1", "fault 1 hits 1", "fault 2 hits 0", "target 0 operations 2 bytes 10 "] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        drop(file);
        slow.end();
    });
}

#[test]
fn a_cache_that_cheats_acknowledges_at_once_and_the_target_receives_later() {
    in_private_namespace(|| {
        let slow = Slow::new(&["--target-bandwidth", "1MB/s", "--cheat", "64MiB"]);
        let begun = Instant::now();
        let mut file = File::create(slow.shown.join("file")).unwrap();
        file.write_all(&vec![1; 32 << 20]).unwrap();
        file.sync_all().unwrap();
        // The target alone would need thirty-three seconds.
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        drop(file);
        slow.end();
    });
}
