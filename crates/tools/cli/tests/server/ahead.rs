//! Read-ahead from a server into memory of a node.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::{Random, in_private_namespace, wait_until};

use crate::cluster::{BOUND, Cluster};

const REQUEST: usize = 128 << 10;

/// Returns the entry of a run's only directory in its report.
fn directory_of(report: &Path) -> serde_json::Value {
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    report["directories"][0].clone()
}

/// Reads that hit, that came too late and that missed.
fn reads_of(directory: &serde_json::Value) -> [u64; 3] {
    ["read_hits", "read_late", "read_misses"].map(|name| directory["counters"][name].as_u64().unwrap())
}

#[test] // S47
fn a_sequential_reader_at_a_server_finds_its_bytes_in_memory_of_its_node() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let bytes = Random(5).bytes(48 << 20);
        fs::write(cluster.data.join("file"), &bytes).unwrap();
        let (address, secret) = (cluster.address(), cluster.secret.display().to_string());
        let report = cluster.tree.path("report");
        let reads = |rule: &str| {
            let (file, copy) = (report.display().to_string(), cluster.tree.path("copy"));
            let options = ["--server", &address, "--secret", &secret, "--report", &file, "--policy", rule];
            let done = cluster.run(1, &options, &format!("dd if=file of={} bs=128k status=none", copy.display()));
            assert!(done.status.success(), "{done:?}");
            assert!(fs::read(copy).unwrap() == bytes, "the same bytes");
            reads_of(&directory_of(&report))
        };
        assert_eq!(reads("read_ahead=off"), [0; 3]);
        let [hits, late, misses] = reads("read_ahead=auto");
        let all = (bytes.len() / REQUEST) as u64;
        // The last one finds the end of the file.
        assert!(
            (all..=all + 1).contains(&(hits + late + misses)),
            "{hits} hits, {late} late, {misses} misses of {all}"
        );
        // The first reads cannot be foreseen, and on a busy machine some come before a thread has begun to fetch for
        // them.
        assert!(misses * 5 < all, "{hits} hits, {late} late, {misses} misses");
    });
}

/// By `posix_fadvise`, of which the library tells the agent, and by the ioctl, which needs no library.
#[test] // S47
fn who_says_how_he_will_read_is_believed() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let len = 8 << 20;
        fs::write(cluster.data.join("file"), Random(7).bytes(len)).unwrap();
        let (address, secret) = (cluster.address(), cluster.secret.display().to_string());
        let (report, window) = (cluster.tree.path("report"), format!("--window={}", cluster.tree.path("w").display()));
        let all = (len / REQUEST) as u64;
        for library in ["--window", "--no-preload"] {
            let fares = |before: &str, backwards: bool| {
                let options = ["--server", &address, "--secret", &secret, "--report", report.to_str().unwrap()];
                let more = ["--policy", "revalidate=60s", &window, "--no-preload"];
                let more = if library == "--window" { &more[..3] } else { &more[..] };
                let script = format!(
                    r#"python3 -c '
import fcntl, os, struct
fd = os.open("file", os.O_RDONLY)
def advise(advice, start=0, len=0):
    if "{library}" == "--window":
        os.posix_fadvise(fd, start, len, advice)
    else:
        fcntl.ioctl(fd, 0xC020FB01, struct.pack("<IIQQII", 32, 6, len, start, advice, 1))
def window(command): fcntl.ioctl(fd, 0xC020FB01, struct.pack("<IIQQII", 32, command, 0, 0, 0, 1))
{before}
places = range(0, {len}, {REQUEST})
for at in reversed(places) if {backwards} else places:
    assert len(os.pread(fd, {REQUEST}, at)) == {REQUEST}
'"#,
                    backwards = if backwards { "True" } else { "False" },
                );
                let done = cluster.run(1, &[&options[..], more].concat(), &script);
                assert!(done.status.success(), "{done:?}");
                reads_of(&directory_of(&report))
            };
            assert_eq!(fares("advise(os.POSIX_FADV_RANDOM)", false), [0, 0, all], "{library}");
            assert_eq!(fares("window(2); advise(os.POSIX_FADV_NORMAL)", false), [0; 3], "{library}: switched off");
            let [_, _, misses] = fares("window(2); window(1)", false);
            assert!(misses * 5 < all, "{library}: {misses} misses");
            let [_, _, misses] = fares("advise(os.POSIX_FADV_RANDOM); advise(os.POSIX_FADV_NORMAL)", false);
            assert!(misses * 5 < all, "{library}: {misses} misses");
            let [_, _, misses] = fares("advise(os.POSIX_FADV_SEQUENTIAL)", false);
            assert!(misses * 5 < all, "{library}: {misses} misses");
            let need = "advise(os.POSIX_FADV_RANDOM); advise(os.POSIX_FADV_WILLNEED)";
            let [hits, late, misses] = fares(need, true);
            assert_eq!((hits + late, misses), (all, 0), "{library}: {late} late");
        }
    });
}

/// The paper's exclusion rule: no window, and no reading ahead either, of a file that is written and read.
#[test]
fn a_file_that_is_written_and_read_is_not_read_ahead_where_these_exclude_each_other() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let bytes = Random(11).bytes(8 << 20);
        fs::write(cluster.data.join("file"), &bytes).unwrap();
        let (address, secret) = (cluster.address(), cluster.secret.display().to_string());
        let (report, window) = (cluster.tree.path("report"), format!("--window={}", cluster.tree.path("w").display()));
        let script = format!(
            r#"python3 -c '
import os
fd = os.open("file", os.O_RDWR)
for part in range(4): os.pwrite(fd, b"new", 3 * part)
for at in range(0, {}, {REQUEST}): assert len(os.pread(fd, {REQUEST}, at)) == {REQUEST}'"#,
            bytes.len()
        );
        for (rule, looked) in [("rw_conflict=disable", false), ("rw_conflict=invalidate", true)] {
            let options = ["--server", &address, "--secret", &secret, "--report", report.to_str().unwrap()];
            let done = cluster.run(1, &[&options[..], &["--policy", rule, &window]].concat(), &script);
            assert!(done.status.success(), "{done:?}");
            let directory = directory_of(&report);
            let reads = reads_of(&directory);
            assert_eq!(reads != [0; 3], looked, "{rule}: {reads:?}");
            assert!(directory["windows"]["acknowledged_writes"].as_u64().unwrap() > 0, "{directory}");
        }
        assert_eq!(&fs::read(cluster.data.join("file")).unwrap()[..12], b"newnewnewnew");
    });
}

/// More readers than threads that fetch: what a reader waits for has often not been begun.
#[test] // S47
fn readers_that_outrun_what_is_fetched_for_them_still_ask_for_large_parts() {
    in_private_namespace(|| {
        let cluster = Cluster::new(1);
        let (readers, len) = (16, 12 << 20);
        for number in 0..readers {
            fs::write(cluster.data.join(number.to_string()), Random(number).bytes(len)).unwrap();
        }
        let (address, secret) = (cluster.address(), cluster.secret.display().to_string());
        let report = cluster.tree.path("report");
        let options = ["--server", &address, "--secret", &secret, "--report", report.to_str().unwrap()];
        let copies = cluster.tree.path("copies");
        fs::create_dir(&copies).unwrap();
        let script = format!(
            "for n in $(seq 0 {}); do dd if=$n of={}/$n bs=128k status=none & all=\"$all $!\"; done; for one in $all; do wait $one || exit 1; done",
            readers - 1,
            copies.display()
        );
        let done = cluster.run(1, &options, &script);
        assert!(done.status.success(), "{done:?}");
        for number in 0..readers {
            let copy = fs::read(copies.join(number.to_string())).unwrap();
            assert!(copy == Random(number).bytes(len), "the same bytes");
        }
        let [hits, late, misses] = reads_of(&directory_of(&report));
        let all = readers * (len / REQUEST) as u64;
        assert!((all..=all + readers).contains(&(hits + late + misses)), "{hits} hits, {late} late, {misses} misses");
        // Nobody can foresee the first two.
        assert!(misses <= 4 * readers, "{hits} hits, {late} late, {misses} misses of {all}");
    });
}

#[test] // S47
fn what_this_node_writes_is_read_at_once_however_far_it_has_read_ahead() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(1);
        let one = cluster.mount(1, &[]);
        let mut random = Random(3);
        let mut model = random.bytes(8 << 20);
        fs::write(one.join("file"), &model).unwrap();
        let (reader, writer) =
            (File::open(one.join("file")).unwrap(), File::options().write(true).open(one.join("file")).unwrap());
        for round in 0..4 {
            let mut at = 0;
            while at < model.len() {
                let mut bytes = vec![0; REQUEST.min(model.len() - at)];
                reader.read_exact_at(&mut bytes, at as u64).unwrap();
                assert!(bytes == model[at..at + bytes.len()], "round {round}, byte {at}");
                // Somewhere ahead, which is here already or on its way.
                let place = (at + random.below(3 << 20) as usize).min(model.len() - 1);
                let len = 1 + random.below(9000) as usize;
                let written = random.bytes(len);
                let written = &written[..written.len().min(model.len() - place)];
                model[place..place + written.len()].copy_from_slice(written);
                writer.write_all_at(written, place as u64).unwrap();
                at += bytes.len();
            }
            let len = model.len() - (random.below(1 << 20) as usize);
            model.truncate(len);
            writer.set_len(len as u64).unwrap();
            assert_eq!(reader.read_at(&mut [0; 10], len as u64).unwrap(), 0);
            model.extend(random.bytes(50_000));
            writer.write_all_at(&model[len..], len as u64).unwrap();
        }
    });
}

#[test] // S47
fn what_another_node_wrote_is_read_by_the_next_open_at_once_and_by_others_soon() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let (one, two) = (cluster.mount(1, &[]), cluster.mount(2, &[]));
        let len = 4 << 20;
        fs::write(one.join("file"), vec![0; len]).unwrap();
        let before = File::open(two.join("file")).unwrap();
        let mut bytes = vec![0; REQUEST];
        for round in 1..=10_u8 {
            // So that the rest is read ahead.
            for at in 0..8 {
                before.read_exact_at(&mut bytes, (at * REQUEST) as u64).unwrap();
            }
            let writer = File::options().write(true).open(one.join("file")).unwrap();
            writer.write_all_at(&vec![round; len], 0).unwrap();
            drop(writer);
            let after = File::open(two.join("file")).unwrap();
            let mut all = vec![0; len];
            after.read_exact_at(&mut all, 0).unwrap();
            assert!(all.iter().all(|byte| *byte == round), "round {round}");
        }
        for at in 8..16 {
            before.read_exact_at(&mut bytes, (at * REQUEST) as u64).unwrap();
        }
        let writer = File::options().write(true).open(one.join("file")).unwrap();
        writer.write_all_at(&vec![77; len], 0).unwrap();
        wait_until("an open file is read as it is now", BOUND, || {
            before.read_exact_at(&mut bytes, (17 * REQUEST) as u64).unwrap();
            bytes.iter().all(|byte| *byte == 77)
        });
    });
}
