//! One run of one agent with windows: its directory, and the burst buffer's list of unfinished sessions.
//!
//! The burst buffer lists the sessions that have not ended (`windows`, one line `SESSION BOOT:DEVICE DIR` each). The
//! next agent replays them before it serves, whether it has windows or not. So records are never replayed later, over
//! newer data.
//!
//! - BOOT is the machine's boot id. After a crash, a directory that is not on a tmpfs may hold any mixture of old and
//!   new rings, which must not be replayed. On persistent memory BOOT is [`DURABLE`]: everything is on the medium
//!   before it is relied upon, so a crash changes nothing.
//! - DEVICE is the file system of DIR (`st_dev`). A container or job may have another file system at that path, where a
//!   missing session is not proof of its end. Earlier versions wrote no DEVICE.

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use types::{Identity, Shown};
use window::WindowMedium;

use crate::directory;
use crate::out_of_sight::OutOfSight;
use crate::own_tmpfs::{self, OWN_TMPFS};
use crate::place::{FilePlace, make, put, sync};

const SESSIONS: &str = "windows";
/// File in a session's directory that holds the agent's name at its server.
const CLIENT: &str = "client";
/// Socket in a session's directory.
pub(crate) const SOCKET: &str = "socket";
/// Directory in a session's directory that holds one directory for each file.
pub(crate) const FILES: &str = "files";
/// BOOT value for persistent memory, where rings survive a reboot.
const DURABLE: &str = "durable";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentRun {
    name: String,
    boot: String,
    device: Option<u64>,
    dir: PathBuf,
}

#[derive(Default)]
struct List {
    sessions: Vec<AgentRun>,
    /// Lines that cannot be parsed. They are kept, because their meaning is unknown.
    strange: Vec<Vec<u8>>,
}

impl List {
    fn of(burst_buffer: &Path) -> io::Result<List> {
        let bytes = match fs::read(burst_buffer.join(SESSIONS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(List::default()),
            bytes => bytes?,
        };
        let mut list = List::default();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match AgentRun::from_line(line) {
                Some(session) => list.sessions.push(session),
                None => list.strange.push(line.to_owned()),
            }
        }
        Ok(list)
    }

    fn note(&self, burst_buffer: &Path) -> io::Result<()> {
        let lines = self.sessions.iter().map(AgentRun::line).chain(self.strange.iter().cloned());
        let bytes: Vec<u8> = lines.flat_map(|line| line.into_iter().chain([b'\n'])).collect();
        put(&burst_buffer.join(SESSIONS), &bytes, true)
    }
}

fn this_boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Returns the file system of a directory, or of its nearest existing ancestor.
fn device_of(dir: &Path) -> io::Result<u64> {
    for dir in dir.ancestors() {
        match fs::metadata(dir) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            found => return Ok(found?.dev()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    let mut file = fs::File::open("/dev/urandom")?;
    io::Read::read_exact(&mut file, &mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}

impl AgentRun {
    /// Begins a session in the window directory `dir`, which is created if missing, and lists it durably in the burst
    /// buffer. The medium is as given, or detected. Errors: `PermissionDenied` if other users may replace files in the
    /// directory; `InvalidInput` if its path has a line break.
    pub fn begin(
        dir: &Path,
        name: &str,
        burst_buffer: &Path,
        medium: Option<WindowMedium>,
    ) -> io::Result<(AgentRun, WindowMedium)> {
        let meta = directory::provide(dir)?;
        let dir = fs::canonicalize(dir)?;
        if dir.as_os_str().as_bytes().contains(&b'\n') {
            let why = format!("{}: a path with a line break cannot be noted", dir.shown());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut session = AgentRun { name: name.to_owned(), boot: this_boot()?, device: Some(meta.dev()), dir };
        make(&session.path(), 0o711)?;
        let begun = session.begin_in_its_directory(burst_buffer, medium);
        if begun.is_err() && List::of(burst_buffer).is_ok_and(|list| !list.sessions.contains(&session)) {
            // The session is not listed, so its directory would never be found.
            let _ = fs::remove_dir_all(session.path());
        }
        Ok((session, begun?))
    }

    fn begin_in_its_directory(
        &mut self,
        burst_buffer: &Path,
        medium: Option<WindowMedium>,
    ) -> io::Result<WindowMedium> {
        make(&self.files(), 0o700)?;
        let medium = medium.map_or_else(|| WindowMedium::of(&self.files()), Ok)?;
        if medium.is_durable() {
            (self.boot, self.device) = (DURABLE.to_owned(), None);
            sync(&self.path())?;
            sync(&self.dir)?;
            self.dir.parent().map_or(Ok(()), sync)?;
        }
        let noted = List::of(burst_buffer).and_then(|mut all| {
            all.sessions.push(self.clone());
            all.note(burst_buffer)
        });
        noted.map_err(|error| {
            let list = burst_buffer.join(SESSIONS);
            io::Error::new(error.kind(), format!("{} cannot be written: {error}", list.shown()))
        })?;
        Ok(medium)
    }

    /// Records the agent's name at its server. Call this before any ring has records for that server.
    pub fn note_client(&self, client: [u8; 16]) -> io::Result<()> {
        put(&self.path().join(CLIENT), &client, self.is_durable())
    }

    /// Name of the session's agent at its server; `None` without a server.
    pub fn client(&self) -> io::Result<Option<[u8; 16]>> {
        match fs::read(self.path().join(CLIENT)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(read?.try_into().ok()),
        }
    }

    /// Returns the sessions of a burst buffer that have not ended.
    pub fn unfinished(burst_buffer: &Path) -> io::Result<Vec<AgentRun>> {
        Ok(List::of(burst_buffer)?.sessions)
    }

    /// Returns the path of the list, and its lines that cannot be parsed.
    pub fn strange(burst_buffer: &Path) -> io::Result<(PathBuf, Vec<String>)> {
        let strange = List::of(burst_buffer)?.strange;
        let lines = strange.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        Ok((burst_buffer.join(SESSIONS), lines))
    }

    fn from_line(line: &[u8]) -> Option<AgentRun> {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let mut word = || {
            let word = String::from_utf8(words.next()?.to_vec()).ok()?;
            (!word.is_empty() && !word.contains('/')).then_some(word)
        };
        let (name, boot_verifier) = (word()?, word()?);
        let (boot, device) = match boot_verifier.split_once(':') {
            Some((boot, device)) => (boot.to_owned(), Some(device.parse().ok()?)),
            None => (boot_verifier, None),
        };
        let dir = PathBuf::from(std::ffi::OsString::from_vec(words.next()?.to_vec()));
        dir.is_absolute().then_some(AgentRun { name, boot, device, dir })
    }

    fn line(&self) -> Vec<u8> {
        let device = self.device.map(|device| format!(":{device}")).unwrap_or_default();
        let mut line = format!("{} {}{device} ", self.name, self.boot).into_bytes();
        line.extend_from_slice(self.dir.as_os_str().as_bytes());
        line
    }

    /// Ends a session whose records are all applied. Removes it from the list, then its directory.
    pub fn end(&self, burst_buffer: &Path) -> io::Result<()> {
        self.forget(burst_buffer)?;
        if !self.is_there()? {
            return Ok(());
        }
        match fs::remove_dir_all(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the rings are valid: they exist, and the machine has not crashed since, or a crash makes no difference.
    /// `ENOENT` with an [`OutOfSight`]: they may exist where they are not visible from here.
    pub fn is_whole(&self) -> io::Result<bool> {
        if !self.is_durable() && self.boot != this_boot()? {
            return Ok(false);
        }
        if self.is_there()? {
            return Ok(true);
        }
        if self.is_durable() {
            return Err(OutOfSight::of(self, "is not there: mount the persistent memory that it lies on", true).into());
        }
        if self.dir == Path::new(OWN_TMPFS) {
            if own_tmpfs::sees_mounts_of_the_machine() {
                return Ok(false);
            }
            let why = "is not seen from here: do this outside of containers and jobs, among the mounts of the machine's \
                       process 1";
            return Err(OutOfSight::of(self, why, false).into());
        }
        let here = device_of(&self.dir)?;
        if self.device.is_none_or(|noted| noted == here) {
            return Ok(false);
        }
        let why = "is not seen from here, where its directory is on another file system: do this where it is that of the \
                   agent that was killed, inside or outside of containers and jobs";
        Err(OutOfSight::of(self, why, true).into())
    }

    /// Whether the session's directory exists and belongs to this user alone. If it is gone, other users may have made
    /// something with its name, as in `/dev/shm`; such a thing is neither opened, followed nor removed.
    fn is_there(&self) -> io::Result<bool> {
        let dir = self.path();
        let found = match fs::symlink_metadata(&dir) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            found => directory::is_ours_alone(&found?),
        };
        if !found {
            tracing::error!(
                dir = %dir.shown(),
                "another user created this in place of a killed agent's windows: it is not opened or removed"
            );
        }
        Ok(found)
    }

    /// Removes the session from the burst buffer's list, durably.
    pub fn forget(&self, burst_buffer: &Path) -> io::Result<()> {
        let mut all = List::of(burst_buffer)?;
        all.sessions.retain(|one| one != self);
        all.note(burst_buffer)
    }

    /// Whether `path` is the session's directory or its parent.
    pub fn is_in(&self, path: &Path) -> bool {
        self.dir == path || self.path() == path
    }

    /// Whether the rings were removed although the machine was not rebooted.
    pub fn is_wiped(&self) -> io::Result<bool> {
        Ok(!self.is_durable() && self.boot == this_boot()? && !self.is_there()?)
    }

    /// Whether the session's files survive a crash of the machine.
    pub fn is_durable(&self) -> bool {
        self.boot == DURABLE
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join(SOCKET)
    }

    fn files(&self) -> PathBuf {
        self.path().join(FILES)
    }

    /// Returns the files' directories; empty if the session's directory is gone.
    pub fn left(&self) -> io::Result<Vec<FilePlace>> {
        let mut left = Vec::new();
        let entries = match fs::read_dir(self.files()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(left),
            entries => entries?,
        };
        for entry in entries {
            left.push(FilePlace::of(entry?.path(), self.is_durable()));
        }
        left.sort_by(|a, b| a.path().cmp(b.path()));
        Ok(left)
    }

    /// Returns a path to which the directory of a file that cannot be replayed may be moved. The name is new and
    /// unpredictable each time, because other users may create files there. A name that no agent made is shortened, so
    /// that the path is never too long.
    pub fn aside(&self, place: &FilePlace) -> io::Result<PathBuf> {
        let name = place.path().file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().filter(char::is_ascii_graphic).take(32).collect();
        Ok(self.dir.join(format!("{}.damaged-{name}-{:032x}", self.name, random()?)))
    }

    /// Moves the directory of a file to `aside`, where it outlives the session. Errors: those of the rename.
    pub fn set_aside(&self, place: &FilePlace, aside: &Path) -> io::Result<()> {
        fs::rename(place.path(), aside)?;
        if self.is_durable() { sync(&self.dir).and_then(|()| sync(&self.files())) } else { Ok(()) }
    }

    pub fn add(&self, number: u64, identity: &Identity, hint: &Path) -> io::Result<FilePlace> {
        let place = FilePlace::make(&self.files(), number, self.is_durable(), identity, hint)?;
        if self.is_durable() {
            sync(&self.files())?;
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use window::layout::RingId;

    use super::*;
    use crate::place::RingRecord;
    use crate::windows_left;

    #[test]
    fn a_session_is_noted_until_it_ends() {
        let tree = tempfile::tempdir().unwrap();
        let (dir, buffer) = (tree.path().join("with space"), tree.path().join("buffer"));
        fs::create_dir(&buffer).unwrap();
        assert_eq!(AgentRun::unfinished(&buffer).unwrap(), []);
        let (session, medium) = AgentRun::begin(&dir, "one", &buffer, None).unwrap();
        assert_eq!(medium, WindowMedium::Volatile);
        assert_eq!(AgentRun::unfinished(&buffer).unwrap(), std::slice::from_ref(&session));
        let identity = Identity::new(vec![1, 2]).unwrap();
        let place = session.add(7, &identity, Path::new("a/b")).unwrap();
        assert!(windows_left(&buffer).unwrap().is_empty(), "no ring was granted");
        let record = RingRecord::new(RingId(3 << 64 | 5), 1 << 20);
        place.grant(0, &record).unwrap();
        assert_eq!(windows_left(&buffer).unwrap(), [session.path()]);
        let left = session.left().unwrap();
        assert_eq!(left[0].owner().unwrap(), Some((identity, "a/b".into())));
        assert_eq!(left[0].grants().unwrap(), [(0, Ok(record))]);
        assert_eq!(record.ring(), RingId(3 << 64 | 5));
        place.remove();
        assert!(session.is_whole().unwrap() && !session.is_wiped().unwrap());
        assert!(!AgentRun { boot: "another".into(), ..session.clone() }.is_whole().unwrap());
        let elsewhere = AgentRun { name: "two".into(), ..session.clone() };
        assert!(elsewhere.is_wiped().unwrap());
        assert!(!AgentRun { boot: "another".into(), ..elsewhere }.is_wiped().unwrap(), "the machine crashed");
        session.end(&buffer).unwrap();
        assert!(AgentRun::unfinished(&buffer).unwrap().is_empty() && !session.path().exists());
    }

    /// Even root must not follow what other users made.
    #[test]
    fn what_others_make_where_a_session_was_is_not_looked_into() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: it takes another user");
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        let (session, _) = AgentRun::begin(&tree.path().join("w"), "one", tree.path(), None).unwrap();
        let identity = Identity::new(vec![1, 2]).unwrap();
        let place = session.add(7, &identity, Path::new("a")).unwrap();
        place.grant(0, &RingRecord::new(RingId(5), 1 << 20)).unwrap();
        assert_eq!(windows_left(tree.path()).unwrap(), [session.path()]);
        let belongs_to = |uid: u32| std::os::unix::fs::lchown(session.path(), Some(uid), None).unwrap();
        belongs_to(12345);
        assert!(!session.is_whole().unwrap() && session.is_wiped().unwrap());
        assert!(windows_left(tree.path()).unwrap().is_empty());
        belongs_to(0);
        assert!(session.is_whole().unwrap());
        fs::rename(session.path(), tree.path().join("w/moved")).unwrap();
        std::os::unix::fs::symlink(tree.path().join("w/moved"), session.path()).unwrap();
        assert!(!session.is_whole().unwrap() && session.is_wiped().unwrap());
        session.end(tree.path()).unwrap();
        assert!(AgentRun::unfinished(tree.path()).unwrap().is_empty());
        assert!(session.path().is_symlink() && tree.path().join("w/moved/files/7/file").exists());
    }

    #[test]
    fn a_session_on_persistent_memory_is_whole_in_another_life_of_the_machine_and_missed_if_it_is_not_there() {
        let tree = tempfile::tempdir().unwrap();
        let (session, medium) =
            AgentRun::begin(&tree.path().join("w"), "one", tree.path(), Some(WindowMedium::Emulated)).unwrap();
        assert!(medium.is_durable() && session.is_durable());
        let [noted] = &AgentRun::unfinished(tree.path()).unwrap()[..] else { panic!("one session") };
        assert!(noted.is_whole().unwrap());
        fs::rename(tree.path().join("w"), tree.path().join("elsewhere")).unwrap();
        let missed = noted.is_whole().unwrap_err();
        assert!(missed.kind() == io::ErrorKind::NotFound && missed.to_string().contains("mount"), "{missed}");
    }

    #[test] // S38
    fn a_session_is_missed_where_its_directory_is_on_another_file_system() {
        let tree = testkit::TempTree::new();
        let dir = tree.mount_tmpfs("w", 1 << 20);
        let (session, _) = AgentRun::begin(&dir, "one", tree.root(), Some(WindowMedium::Volatile)).unwrap();
        let [noted] = &AgentRun::unfinished(tree.root()).unwrap()[..] else { panic!("one session") };
        assert!(*noted == session && noted.is_whole().unwrap());
        let of_before = AgentRun { device: None, ..noted.clone() };
        let hide = || {
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("another", &dir, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
        };
        let unmount = || rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).unwrap();
        hide();
        let missed = noted.is_whole().unwrap_err();
        assert!(
            missed.kind() == io::ErrorKind::NotFound && missed.to_string().contains("another file system"),
            "{missed}"
        );
        assert!(windows_left(tree.root()).is_err());
        assert!(!of_before.is_whole().unwrap(), "an earlier version wrote its line");
        assert!(!AgentRun { boot: "another".into(), ..noted.clone() }.is_whole().unwrap(), "the machine crashed");
        unmount();
        assert!(noted.is_whole().unwrap());
        fs::remove_dir_all(session.path()).unwrap();
        assert!(!noted.is_whole().unwrap() && noted.is_wiped().unwrap(), "taken away where it was");
        unmount();
        assert!(noted.is_whole().is_err(), "nobody knows what the file system held");
    }

    #[test] // S38
    fn lines_that_nobody_understands_stay_and_none_is_made_by_a_path() {
        let tree = tempfile::tempdir().unwrap();
        let list = tree.path().join(SESSIONS);
        let strange = b"what is this\n\xff\xff x /y\nname boot:device /dir\n";
        fs::write(&list, [b"old boot /dir with space\n", &strange[..]].concat()).unwrap();
        let old = AgentRun { name: "old".into(), boot: "boot".into(), device: None, dir: "/dir with space".into() };
        assert_eq!(AgentRun::unfinished(tree.path()).unwrap(), std::slice::from_ref(&old));
        let (session, _) = AgentRun::begin(&tree.path().join("w"), "one", tree.path(), None).unwrap();
        assert_eq!(AgentRun::unfinished(tree.path()).unwrap(), [old, session.clone()]);
        session.end(tree.path()).unwrap();
        assert!(fs::read(&list).unwrap().ends_with(strange));
        assert_eq!(AgentRun::strange(tree.path()).unwrap().1.len(), 3);
        let refused = AgentRun::begin(&tree.path().join("two\nlines"), "one", tree.path(), None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(!tree.path().join("two\nlines/one").exists());
    }

    #[test]
    fn a_directory_in_which_others_can_replace_things_is_refused() {
        let tree = tempfile::tempdir().unwrap();
        let dir = tree.path().join("open");
        make(&dir, 0o777).unwrap();
        let refused = AgentRun::begin(&dir, "one", tree.path(), None).unwrap_err();
        assert!(
            refused.kind() == io::ErrorKind::PermissionDenied && refused.to_string().contains("mode 777"),
            "{refused}"
        );
        make(&tree.path().join("sticky"), 0o1777).unwrap();
        assert!(AgentRun::begin(&tree.path().join("sticky"), "one", tree.path(), None).is_ok());
    }
}
