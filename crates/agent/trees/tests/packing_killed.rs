//! An agent that dies at each fault point of packing, and a random story of packed files.

mod support;

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use data_store::{OpenHow, WriteWhere};
use support::{Bed, content_of, reading, writing};
use testkit::Random;

const DIRECTORY: &str = "FOREBAY_CRASH_DIR";
const FILES: u64 = 12;

/// A new process has the lock of another test's pack for a moment, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Content of a file in one of its versions, of a length of its own.
fn content(file: u64, version: u64) -> Vec<u8> {
    let length = 1 + (file * 977 + version * 131) as usize % 9000;
    format!("{file}:{version};").into_bytes().into_iter().cycle().take(length).collect()
}

fn name(file: u64) -> String {
    format!("file-{file}")
}

/// Writes a file anew, or the first version of it.
fn write(bed: &Bed, file: u64, version: u64, is_new: bool) {
    let data = if is_new {
        bed.create(&name(file)).2
    } else {
        bed.open(bed.find(&name(file)).1, &OpenHow { truncate: version.is_multiple_of(2), ..writing() })
    };
    let bytes = content(file, version);
    data.write_at(&bytes, WriteWhere::At(0)).unwrap();
    data.set_len(bytes.len() as u64).unwrap();
}

/// The life of an agent: every version is announced before it is written, and again afterwards.
#[test]
#[ignore = "the test below runs it, to be killed"]
fn child_packs_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let bed = Bed::at(&directory);
    for version in 0..4 {
        for file in 0..FILES {
            eprintln!("begin {file} {version}");
            write(&bed, file, version, version == 0);
            eprintln!("end {file} {version}");
        }
        bed.pack();
        bed.sync_names();
        // Whoever drops local files does it in time.
        let goes = |path: &Path| !path.exists();
        let (_, last) = bed.find(&name(FILES - 1));
        testkit::wait_until("the drop", testkit::PATIENCE, || goes(&bed.local(last)));
    }
    while bed.files.tidy_pack().unwrap() {}
}

/// Runs the child with one point armed, and returns the last version of each file that was begun, and that was ended.
fn run_child(directory: &Path, point: &str, nth: u32) -> BTreeMap<u64, (u64, Option<u64>)> {
    let hits = directory.join("hits");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_packs_until_it_is_killed", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env("FOREBAY_FAULT", format!("{point}:{nth}"))
        .env("FOREBAY_FAULT_LOG", &hits)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(9), "{point}:{nth} was never reached: {said}");
    assert_eq!(std::fs::read_to_string(&hits).unwrap().trim(), point);
    let mut told = BTreeMap::new();
    for line in said.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [what, file, version] = words[..] else { continue };
        let (file, version): (u64, u64) = (file.parse().unwrap(), version.parse().unwrap());
        match what {
            "begin" => told.entry(file).or_insert((version, None)).0 = version,
            _ => told.get_mut(&file).unwrap().1 = Some(version),
        }
    }
    told
}

#[test] // S71
fn an_agent_that_dies_at_any_point_of_packing_loses_nothing_answered() {
    let _alone = ALONE.lock();
    for point in trees::fault::POINTS {
        for nth in [1, 5] {
            let directory = tempfile::tempdir().unwrap();
            let told = run_child(directory.path(), point, nth);
            let mut bed = Bed::at(directory.path());
            assert!(bed.report.lost.is_empty(), "{point}:{nth} {:?}", bed.report);
            for round in 0..2 {
                for (file, (begun, ended)) in &told {
                    let Some(ended) = ended else { continue };
                    let found = bed.read(bed.find(&name(*file)).1);
                    // A version that was begun may be there in parts.
                    let is_whole = begun == ended;
                    let fits = found == content(*file, *ended) || !is_whole;
                    assert!(fits, "{point}:{nth} round {round}: file {file}, version {ended} of {begun}");
                }
                bed.pack();
                bed.sync_names();
                bed = bed.killed();
                assert!(bed.report.lost.is_empty() && bed.report.settled == 0, "{point}:{nth} {:?}", bed.report);
            }
            bed.tree.assert_invariants();
        }
    }
}

/// One step of the random story. `model` has what plain files would have.
fn step(bed: &Bed, random: &mut Random, model: &mut BTreeMap<u64, Vec<u8>>) {
    let file = random.below(FILES);
    let expected = model.entry(file).or_insert_with(|| {
        drop(bed.create(&name(file)));
        Vec::new()
    });
    let number = bed.find(&name(file)).1;
    let offset = random.below(expected.len() as u64 + 1);
    match random.below(10) {
        0 => {
            bed.remove(&name(file), number);
            model.remove(&file);
        }
        1 => {
            let length = random.below(5000);
            bed.files.set_len(number, length).unwrap();
            expected.resize(length as usize, 0);
        }
        2 | 3 => {
            // A reader sees what a later writer writes, through the agent or past it.
            let reader = bed.open(number, &reading());
            let writer = bed.open(number, &writing());
            let bytes = {
                let length = 1 + random.below(3000) as usize;
                random.bytes(length)
            };
            let backing = writer.passthrough().unwrap().backing().filter(|_| random.below(2) == 0);
            if let Some(backing) = backing {
                assert!(writer.passthrough().unwrap().begin());
                let path = format!("/proc/self/fd/{}", backing.as_raw_fd());
                std::fs::File::options().write(true).open(path).unwrap().write_all_at(&bytes, offset).unwrap();
            } else {
                writer.write_at(&bytes, WriteWhere::At(offset)).unwrap();
            }
            let end = offset as usize + bytes.len();
            expected.resize(expected.len().max(end), 0);
            expected[offset as usize..end].copy_from_slice(&bytes);
            assert_eq!(content_of(&*reader), *expected);
        }
        4 => {
            let bytes = {
                let length = random.below(6000) as usize;
                random.bytes(length)
            };
            let data = bed.open(number, &OpenHow { truncate: true, ..writing() });
            data.write_at(&bytes, WriteWhere::End).unwrap();
            *expected = bytes;
        }
        5 => _ = bed.pack(),
        6 => bed.sync_names(),
        7 => _ = bed.files.tidy_pack().unwrap(),
        _ => assert_eq!(bed.read(number), *expected),
    }
}

#[test] // S71
fn packed_files_are_what_plain_files_would_be() {
    let _alone = ALONE.lock();
    for seed in 0..4 {
        let (mut random, mut model, mut bed) = (Random(seed), BTreeMap::new(), Bed::new());
        for _ in 0..20 {
            for _ in 0..60 {
                step(&bed, &mut random, &mut model);
            }
            if random.below(2) == 0 {
                bed = bed.killed();
                assert!(bed.report.lost.is_empty() && bed.report.settled == 0, "{seed} {:?}", bed.report);
            }
            for (file, expected) in &model {
                let (inode, number) = bed.find(&name(*file));
                assert_eq!(bed.read(number), *expected, "seed {seed}, file {file}");
                assert_eq!(bed.stat(&inode).size, expected.len() as u64);
            }
        }
        bed.tree.assert_invariants();
        assert_eq!(bed.files.usage().open, 0);
    }
}
