//! Random operations, executed on an accelerated directory and on a plain one, must have equal outcomes. Results and
//! errors are compared at once; all names and contents at the end, above and below.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags, fallocate, getxattr, renameat_with, setxattr};
use testkit::{PATIENCE, TempTree, in_private_namespace, wait_until};

use crate::stand::{CACHED, DIRECT, EXCLUSIVE, How, PASSTHROUGH, Stand};

/// Operations per story.
const STEPS: u32 = 1500;
/// Most files open at once.
const OPEN_MAX: usize = 8;
/// Longest file, bytes.
const LENGTH_MAX: u64 = 300_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Draws one of a few names in a few directories, so that operations meet.
    fn name(&mut self) -> PathBuf {
        let file = format!("f{}", self.below(5));
        match self.below(4) {
            0 => file.into(),
            directory => Path::new(&format!("d{directory}")).join(file),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let (first, len) = (self.below(256) as u8, 1 + self.below(50_000) as usize);
        (0..len).map(|at| first.wrapping_add((at / 7) as u8)).collect()
    }
}

/// Outcome of an operation, for comparison.
type Outcome = Result<String, i32>;

fn outcome<T: std::fmt::Debug>(result: std::io::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(|error| error.raw_os_error().unwrap_or(-1))
}

fn described(stat: &fs::Metadata) -> (u32, u64, u32, u64) {
    (stat.mode(), stat.nlink(), stat.uid(), if stat.is_dir() { 0 } else { stat.len() })
}

/// Operation with all its arguments drawn, to be executed on both sides.
enum Operation {
    Create(PathBuf, Vec<u8>),
    Open(PathBuf, bool),
    Write(usize, u64, Vec<u8>),
    Read(usize, u64, usize),
    SetLen(usize, u64),
    Truncate(PathBuf, u64),
    Rename(PathBuf, PathBuf, RenameFlags),
    Link(PathBuf, PathBuf),
    Unlink(PathBuf),
    MakeDirectory(u64),
    RemoveDirectory(u64),
    Chmod(PathBuf, u32),
    Stat(PathBuf),
    StatOpen(usize),
    Close(usize),
    Symlink(PathBuf, PathBuf),
    Punch(usize, u64, u64),
    ReadWhole(PathBuf),
    List(u64),
    Sync(usize),
    SetAttribute(PathBuf, Vec<u8>),
    GetAttribute(PathBuf),
    SetTime(PathBuf, u64),
    Copy(PathBuf, PathBuf),
}

impl Operation {
    fn draw(random: &mut Random) -> Operation {
        use Operation::*;
        let flags = [RenameFlags::empty(), RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
        let open = random.below(OPEN_MAX as u64) as usize;
        let offset = random.below(LENGTH_MAX);
        match random.below(28) {
            0 | 1 => Create(random.name(), random.bytes()),
            2 | 3 => Open(random.name(), random.below(3) == 0),
            4..=6 => Write(open, offset, random.bytes()),
            7 => Read(open, offset, random.below(100_000) as usize),
            8 => SetLen(open, offset),
            9 => Truncate(random.name(), offset),
            10 | 11 => Rename(random.name(), random.name(), flags[random.below(4) as usize]),
            12 => Link(random.name(), random.name()),
            13 => Unlink(random.name()),
            14 => MakeDirectory(random.below(4)),
            15 => RemoveDirectory(random.below(4)),
            16 => Chmod(random.name(), random.below(0o1000) as u32),
            17 => Stat(random.name()),
            18 => StatOpen(open),
            19 => Close(open),
            20 => Symlink(random.name(), random.name()),
            21 => Punch(open, offset, 1 + random.below(50_000)),
            22 => ReadWhole(random.name()),
            23 => List(random.below(4)),
            24 => Sync(open),
            25 => SetAttribute(random.name(), random.bytes()[..1].to_vec()),
            26 if random.below(2) == 0 => GetAttribute(random.name()),
            26 => SetTime(random.name(), random.below(1_000_000_000)),
            _ => Copy(random.name(), random.name()),
        }
    }
}

/// One of the two directories, with its open files.
struct Side {
    root: PathBuf,
    open: Vec<Option<File>>,
}

impl Side {
    fn new(root: PathBuf) -> Side {
        Side { root, open: (0..OPEN_MAX).map(|_| None).collect() }
    }

    fn with(&self, at: usize, act: impl FnOnce(&File) -> std::io::Result<String>) -> Outcome {
        self.open[at].as_ref().map_or(Ok("not open".into()), |file| outcome(act(file)))
    }

    /// Opens a file, and leaves it open if there is room.
    fn open(&mut self, path: &Path, append: bool) -> Outcome {
        let opened =
            OpenOptions::new().read(true).write(!append).append(append).create(true).truncate(false).open(path);
        outcome(opened.map(|file| {
            if let Some(slot) = self.open.iter_mut().find(|slot| slot.is_none()) {
                *slot = Some(file);
            }
        }))
    }

    fn run(&mut self, operation: &Operation) -> Outcome {
        use Operation::*;
        let root = self.root.clone();
        let path = |name: &PathBuf| root.join(name);
        match operation {
            Create(name, data) => outcome(
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(path(name))
                    .and_then(|file| file.write_all_at(data, 0)),
            ),
            Open(name, append) => self.open(&path(name), *append),
            Write(at, offset, data) => self.with(*at, |file| file.write_at(data, *offset).map(|n| n.to_string())),
            Read(at, offset, len) => self.with(*at, |file| {
                let mut buffer = vec![0; *len];
                file.read_at(&mut buffer, *offset).map(|n| format!("{n} {:?}", fingerprint(&buffer[..n])))
            }),
            SetLen(at, len) => self.with(*at, |file| file.set_len(*len).map(|()| String::new())),
            Truncate(name, len) => outcome(truncate(&path(name), *len)),
            Rename(from, to, flags) => {
                outcome(renameat_with(CWD, path(from), CWD, path(to), *flags).map_err(Into::into))
            }
            Link(from, to) => outcome(fs::hard_link(path(from), path(to))),
            Unlink(name) => outcome(fs::remove_file(path(name))),
            MakeDirectory(at) => outcome(fs::create_dir(self.root.join(format!("d{at}")))),
            RemoveDirectory(at) => outcome(fs::remove_dir(self.root.join(format!("d{at}")))),
            Chmod(name, mode) => outcome(fs::set_permissions(path(name), PermissionsExt::from_mode(*mode))),
            Stat(name) => outcome(fs::symlink_metadata(path(name)).map(|stat| described(&stat))),
            StatOpen(at) => self.with(*at, |file| file.metadata().map(|stat| format!("{:?}", described(&stat)))),
            Close(at) => {
                self.open[*at] = None;
                Ok(String::new())
            }
            Symlink(name, target) => {
                let up = if name.components().count() > 1 { ".." } else { "." };
                outcome(symlink(Path::new(up).join(target), path(name)))
            }
            Punch(at, offset, len) => self.with(*at, |file| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(file, flags, *offset, *len).map(|()| String::new())?)
            }),
            ReadWhole(name) => outcome(fs::read(path(name)).map(|data| fingerprint(&data))),
            List(at) => outcome(list(&self.root.join(format!("d{at}")))),
            Sync(at) => self.with(*at, |file| file.sync_all().map(|()| String::new())),
            SetAttribute(name, value) => {
                outcome(setxattr(path(name), "user.colour", value, XattrFlags::empty()).map_err(Into::into))
            }
            GetAttribute(name) => outcome(getxattr(path(name), "user.colour", &mut [0u8; 16][..]).map_err(Into::into)),
            SetTime(name, seconds) => outcome(set_time(&path(name), *seconds)),
            Copy(from, to) => outcome(fs::copy(path(from), path(to))),
        }
    }
}

fn truncate(path: &Path, len: u64) -> std::io::Result<()> {
    let c_path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string that lives through the call.
    match unsafe { libc::truncate(c_path.as_ptr(), len as i64) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn list(directory: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
    let mut names =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn set_time(path: &Path, seconds: u64) -> std::io::Result<i64> {
    let file = File::open(path)?;
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))?;
    Ok(file.metadata()?.mtime())
}

/// Returns length and a sum: enough to compare, short enough to read.
fn fingerprint(data: &[u8]) -> (usize, u64) {
    let sum =
        data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (data.len(), sum)
}

/// Lists every name below a directory with its type and content.
fn manifest(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let content = match () {
                () if stat.is_file() => format!("{:?}", fingerprint(&fs::read(&path).unwrap())),
                () if stat.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                () => String::new(),
            };
            lines.push(format!("{:?} {:?} {content}", path.strip_prefix(root).unwrap(), described(&stat)));
            if stat.is_dir() {
                left.push(path);
            }
        }
    }
    lines.sort();
    lines
}

fn story(stand: &Stand, plain: &Path, name: &str, seed: u64) {
    // The tests run one level down, since moved links may lead one level up.
    fs::create_dir_all(stand.path(name).join("inner")).unwrap();
    fs::create_dir_all(plain.join(name).join("inner")).unwrap();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut ours, mut theirs) = (Side::new(stand.path(name).join("inner")), Side::new(plain.join(name).join("inner")));
    for step in 0..STEPS {
        let operation = Operation::draw(&mut random);
        let (have, want) = (ours.run(&operation), theirs.run(&operation));
        assert_eq!(have, want, "seed {seed}, step {step}: {}", told(&operation));
    }
    drop((ours, theirs));
    let wanted = manifest(&plain.join(name));
    assert_eq!(manifest(&stand.path(name)), wanted, "seed {seed}");
    wait_until("everything below", PATIENCE, || manifest(&stand.below(name)) == wanted);
    fs::remove_dir_all(stand.path(name)).unwrap();
    fs::remove_dir_all(plain.join(name)).unwrap();
}

fn told(operation: &Operation) -> String {
    use Operation::*;
    match operation {
        Create(name, data) => format!("create {name:?} of {}", data.len()),
        Open(name, append) => format!("open {name:?}, append {append}"),
        Write(at, offset, data) => format!("write {at} at {offset}, {}", data.len()),
        Read(at, offset, len) => format!("read {at} at {offset}, {len}"),
        SetLen(at, len) => format!("set length {at} to {len}"),
        Truncate(name, len) => format!("truncate {name:?} to {len}"),
        Rename(from, to, flags) => format!("rename {from:?} {to:?} {flags:?}"),
        Link(from, to) => format!("link {from:?} {to:?}"),
        Unlink(name) => format!("unlink {name:?}"),
        MakeDirectory(at) | RemoveDirectory(at) | List(at) => format!("directory {at}"),
        Chmod(name, mode) => format!("chmod {name:?} {mode:o}"),
        Stat(name) | ReadWhole(name) | GetAttribute(name) => format!("look at {name:?}"),
        StatOpen(at) | Close(at) | Sync(at) => format!("stat, close or sync {at}"),
        Symlink(name, target) => format!("symlink {name:?} to {target:?}"),
        Punch(at, offset, len) => format!("punch {at} at {offset}, {len}"),
        SetAttribute(name, _) => format!("set attribute of {name:?}"),
        SetTime(name, seconds) => format!("set time of {name:?} to {seconds}"),
        Copy(from, to) => format!("copy {from:?} {to:?}"),
    }
}

/// Number of concurrent stories.
const THREADS: u64 = 4;

/// Environment variable with the number of stories, for long runs.
const STORIES: &str = "FUSE_TEST_STORIES";

fn stories(how: How, first: u64, count: u64) {
    let count = std::env::var(STORIES).ok().and_then(|count| count.parse().ok()).unwrap_or(count);
    let seeds = first..first + count;
    let stand = Stand::new(how);
    let tree = TempTree::new();
    let plain = tree.mount_tmpfs("plain", 128 << 20);
    // SAFETY: umask cannot fail; this process runs one test.
    unsafe { libc::umask(0o022) };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (stand, plain, seeds) = (&stand, &plain, seeds.clone());
            scope.spawn(move || {
                for seed in seeds.filter(|seed| seed % THREADS == thread) {
                    story(stand, plain, &format!("story-{seed}"), seed);
                }
            });
        }
    });
    assert_eq!(manifest(&stand.below("")), [""; 0]);
}

#[test]
fn random_operations_have_the_same_outcomes_as_in_a_plain_directory() {
    in_private_namespace(|| stories(PASSTHROUGH, 1, 8));
}

#[test]
fn random_operations_without_passthrough_have_the_same_outcomes_too() {
    in_private_namespace(|| stories(DIRECT, 1001, 4));
}

#[test]
fn random_operations_on_files_that_nobody_else_changes_have_the_same_outcomes_too() {
    if !EXCLUSIVE.is_served() {
        return;
    }
    in_private_namespace(|| stories(EXCLUSIVE, 3001, 8));
    in_private_namespace(|| stories(How { exclusive: true, ..DIRECT }, 4001, 4));
}

#[test]
fn random_operations_on_such_files_have_the_same_outcomes_as_an_older_kernel_serves_them() {
    in_private_namespace(|| stories(How { exclusive: true, ..CACHED }, 5001, 4));
}
