//! The burst buffer's lock and its first page: which agent uses it, whose data it holds, and which versions are used.

mod page;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use concurrency::{Instant, Mutex};
use rustix::fs::FlockOperation;
use types::Version;

use crate::errors::is_full;
use crate::limits::{CLEANED_POLL, CLEANED_WAIT, VERSIONS_RESERVED};
use crate::settings::OpenError;
use page::{Page, keep_room, new_page, read_page, start_page, write_page};

/// Files that other users may not read, among those that an earlier version made readable for everybody.
const PRIVATE: [&str; 5] = ["agent.log", "agent.log.1", "catalogue", "directory", "policies.toml"];

/// Bytes of the lock file that another process may have written: a process id and a boot id.
const LOCK_BYTES: usize = 64;

pub(crate) struct Superblock {
    path: PathBuf,
    lock: File,
    state: Mutex<State>,
    /// First version of this agent: all below were given out by earlier agents.
    pub(crate) first: Version,
    /// Whether there was a page before, so that the burst buffer is not new.
    pub(crate) existed: bool,
    pub(crate) before: Before,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// In order, or the agent died and the machine did not: everything it had written is there.
    End,
    Crash,
}

struct State {
    page: Page,
    next: u64,
}

/// Returns the id of the store whose data a burst buffer holds; `None` if the superblock is missing or cannot be read.
pub fn store_of(burst_buffer: &Path) -> Option<String> {
    let bytes = std::fs::read(burst_buffer.join("superblock")).ok()?;
    let page: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    page["store_id"].as_str().map(str::to_owned)
}

/// Returns the version below which replicas must be searched by the next start: they were made before a start of the
/// machine that no orderly end of the agent preceded. Returns 0 if nothing must be searched.
pub fn first_after_crash(burst_buffer: &Path) -> Version {
    let path = burst_buffer.join("superblock");
    let page = || read_page(&path, &std::fs::read(&path).ok()?, &store_of(burst_buffer)?).ok();
    Version(page().map_or(0, |page| match page.boot_id == boot_id() {
        false if !page.settled => page.reserved,
        _ if page.unsearched => page.trusted_from,
        _ => 0,
    }))
}

/// Takes from other users the right to read files that an earlier version made readable. The files name others in
/// directories that such a user may not search. Files of other owners, or that cannot be changed, stay as they are.
pub fn keep_private(burst_buffer: &Path) {
    for name in PRIVATE {
        let path = burst_buffer.join(name);
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        let ours = (meta.is_file() || name == "catalogue") && meta.uid() == rustix::process::geteuid().as_raw();
        if ours && meta.mode() & 0o077 != 0 {
            let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(meta.mode() & 0o700));
        }
    }
}

fn failed(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { path, step, source }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

impl Superblock {
    /// Takes the lock, reads or makes the page, and reserves versions. The page keeps the `agent_id` of the first use,
    /// and later uses get that one.
    pub(crate) fn open(root: &Path, store_id: &str, agent_id: &str) -> Result<Superblock, OpenError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(root).map_err(failed(root, "make the directory"))?;
        check_owner(root, true)?;
        let lock = lock(root)?;
        keep_private(root);
        page::release_room(root);
        sign(&lock).map_err(failed(&root.join("forebay.lock"), "write the lock file"))?;
        let path = root.join("superblock");
        let boot = boot_id();
        let (mut page, existed) = match std::fs::read(&path) {
            Ok(bytes) => (read_page(&path, &bytes, store_id)?, true),
            // The versions would be given out again, and nothing says whose data it is.
            Err(error) if error.kind() == io::ErrorKind::NotFound && holds_data(root) => {
                return Err(OpenError::Superblock { path: root.to_owned(), what: "is missing" });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (new_page(store_id, &boot), false),
            Err(error) => return Err(failed(&path, "read the superblock")(error)),
        };
        let first = page.reserved;
        // A start after a crash may have died before it searched.
        let before =
            if !page.settled && (page.boot_id != boot || page.unsearched) { Before::Crash } else { Before::End };
        if page.boot_id != boot && !page.settled {
            page.trusted_from = first;
            page.unsearched = true;
        }
        page.boot_id = boot;
        if page.agent_id.is_empty() {
            page.agent_id = agent_id.to_owned();
        }
        page.settled = false;
        page.reserved = first + VERSIONS_RESERVED;
        start_page(root, &path, &page).map_err(failed(&path, "write the superblock"))?;
        let state = Mutex::new(State { page, next: first });
        Ok(Superblock { path, lock, state, first: Version(first), existed, before })
    }

    /// Keeps room for the next start, if enough of the `free` bytes is left for work that frees more.
    pub(crate) fn keep_room(&self, free: u64) {
        if let Some(root) = self.path.parent()
            && let Err(error) = keep_room(root, free)
        {
            tracing::debug!(%error, "could not keep room for the next start");
        }
    }

    /// Returns a version that was never used.
    pub(crate) fn next_version(&self) -> io::Result<Version> {
        let mut state = self.state.lock();
        if state.next >= state.page.reserved {
            // Only what is on disk is reserved: the next start begins behind it.
            let reserved = state.next + VERSIONS_RESERVED;
            write_page(&self.path, &Page { reserved, ..state.page.clone() })?;
            state.page.reserved = reserved;
        }
        state.next += 1;
        Ok(Version(state.next - 1))
    }

    /// Returns this agent's name in marks, which the burst buffer keeps.
    pub(crate) fn agent_id(&self) -> String {
        self.state.lock().page.agent_id.clone()
    }

    /// Returns whether the machine may have lost data of this replica: it was made before a start of the machine that
    /// no orderly end preceded.
    pub(crate) fn is_suspect(&self, version: Version) -> bool {
        version.0 < self.state.lock().page.trusted_from
    }

    /// Returns whether unsaved data must be searched: the machine started again without an orderly end of the last
    /// agent, or the catalogue was lost, and no agent has completed a search since.
    pub(crate) fn is_unsearched(&self) -> bool {
        self.state.lock().page.unsearched
    }

    /// Notes that unsaved data must be searched, or that this was done and its outcome is durable.
    pub(crate) fn set_unsearched(&self, unsearched: bool) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.page.unsearched == unsearched {
            return Ok(());
        }
        let page = Page { unsearched, ..state.page.clone() };
        write_page(&self.path, &page)?;
        state.page = page;
        Ok(())
    }

    /// Notes an orderly end, as its last act after everything was written to the medium.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.page.settled = true;
        write_page(&self.path, &state.page)
    }

    pub(crate) fn unlock(&self) {
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Refuses a directory that another user may change. `shared`: it may be a sticky directory of root, in which
/// everybody has files of his own. Errors: `Unsafe` for such a directory, `Io` if it cannot be checked.
pub fn check_owner(path: &Path, shared: bool) -> Result<(), OpenError> {
    let stat = rustix::fs::stat(path).map_err(|error| failed(path, "look at the directory")(error.into()))?;
    let (uid, mode) = (rustix::process::geteuid().as_raw(), rustix::fs::Mode::from_raw_mode(stat.st_mode));
    let sticky = shared && mode.contains(rustix::fs::Mode::SVTX);
    let reason = if stat.st_uid != uid && !(stat.st_uid == 0 && shared) {
        format!("it belongs to user {}", stat.st_uid)
    } else if mode.contains(rustix::fs::Mode::WOTH) && !sticky {
        "every user may write in it".to_owned()
    } else {
        return Ok(());
    };
    Err(OpenError::Unsafe { path: path.to_owned(), reason, uid })
}

/// Takes the lock that an agent holds on its burst buffer, until the file is closed. A process that only drops clean
/// data holds the lock without a name in it, and is waited for. Errors: `InUse` while an agent has the lock.
pub fn lock(root: &Path) -> Result<File, OpenError> {
    let path = root.join("forebay.lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let lock = options.open(&path).map_err(failed(&path, "open the lock file"))?;
    let until = Instant::now() + CLEANED_WAIT;
    while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut owner = [0; LOCK_BYTES];
        let read = lock.read_at(&mut owner, 0).unwrap_or(0);
        let owner = String::from_utf8_lossy(&owner[..read]);
        let pid = owner.split_whitespace().next().unwrap_or("(unknown)");
        let is_dead = || pid.bytes().all(|byte| byte.is_ascii_digit()) && !Path::new("/proc").join(pid).exists();
        if !is_dead() || Instant::now() >= until {
            return Err(OpenError::InUse { path: root.to_owned(), pid: pid.to_owned() });
        }
        concurrency::sleep(CLEANED_POLL);
    }
    Ok(lock)
}

/// Writes the owner into the held lock file. Overwriting takes no room.
fn sign(lock: &File) -> io::Result<()> {
    let mut words = format!("{} {}\n", std::process::id(), boot_id()).into_bytes();
    let former = usize::try_from(lock.metadata()?.len()).unwrap_or(0).min(LOCK_BYTES);
    // Line breaks mean nothing.
    words.resize(words.len().max(former), b'\n');
    match lock.write_all_at(&words, 0) {
        // A process that finds the lock held then has no name for us.
        Err(error) if is_full(&error) => Ok(()),
        written => written,
    }
}

/// Returns whether there is more than a superblock would leave: an agent has been here.
fn holds_data(root: &Path) -> bool {
    ["replicas", "catalogue"].iter().any(|name| root.join(name).exists())
}

/// Returns whether a burst buffer needs [`remake`] before it can be opened.
pub fn is_damaged(burst_buffer: &Path) -> bool {
    match std::fs::read(burst_buffer.join("superblock")) {
        Ok(bytes) => {
            matches!(read_page(&burst_buffer.join("superblock"), &bytes, ""), Err(OpenError::Superblock { .. }))
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound && holds_data(burst_buffer),
    }
}

/// Makes a superblock for a burst buffer that lost its own and holds data of the store `store_id`. Versions up to
/// `last` count as given out. Every clean replica is compared with its checksums before it is used again.
pub fn remake(burst_buffer: &Path, store_id: &str, last: Version) -> Result<(), OpenError> {
    let _lock = lock(burst_buffer)?;
    let path = burst_buffer.join("superblock");
    if !is_damaged(burst_buffer) {
        return Ok(());
    }
    let reserved = last.0 + 1;
    let page = Page { reserved, settled: false, ..new_page(store_id, "unknown") };
    write_page(&path, &page).map_err(failed(&path, "write the superblock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_version_is_given_twice_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let mut last = Version(0);
        for _ in 0..3 {
            let block = Superblock::open(dir.path(), "a", "agent").unwrap();
            for _ in 0..10 {
                let version = block.next_version().unwrap();
                assert!(version > last);
                last = version;
            }
        }
    }

    #[test]
    fn no_version_is_given_that_could_not_be_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let block = Superblock::open(dir.path(), "a", "agent").unwrap();
        {
            let mut state = block.state.lock();
            state.next = state.page.reserved;
        }
        let in_the_way = dir.path().join("superblock.new");
        std::fs::remove_file(&in_the_way).unwrap();
        std::fs::create_dir(&in_the_way).unwrap();
        assert!(block.next_version().is_err());
        assert!(block.next_version().is_err());
        std::fs::remove_dir(&in_the_way).unwrap();
        let given = block.next_version().unwrap();
        drop(block);
        assert!(Superblock::open(dir.path(), "a", "agent").unwrap().next_version().unwrap() > given);
    }

    /// Only the first two pages take room: later ones overwrite what exists.
    #[test]
    fn a_page_takes_no_room() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let files = || {
            let inode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().ino();
            [inode("superblock"), inode("superblock.new")]
        };
        drop(Superblock::open(dir.path(), "a", "agent").unwrap());
        let [page, spare] = files();
        let block = Superblock::open(dir.path(), "a", "agent").unwrap();
        assert_eq!(files(), [spare, page]);
        block.finish().unwrap();
        assert_eq!(files(), [page, spare]);
    }

    #[test]
    fn a_second_agent_is_refused_and_told_whose_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let _block = Superblock::open(dir.path(), "a", "agent").unwrap();
        let error = Superblock::open(dir.path(), "a", "agent").err().unwrap();
        let OpenError::InUse { pid, .. } = error else { panic!("{error}") };
        assert_eq!(pid, std::process::id().to_string());
    }

    #[test] // S18
    fn a_directory_that_others_may_change_is_refused_with_the_remedy() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let open = |mode: u32, owner: Option<u32>| {
            let path = dir.path().join(format!("{mode:o}-{owner:?}"));
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&path, owner, None).unwrap();
            Superblock::open(&path, "a", "agent").map(|_| ()).map_err(|error| error.to_string())
        };
        for mode in [0o700, 0o755, 0o775, 0o1777] {
            assert_eq!(open(mode, None), Ok(()), "{mode:o}");
        }
        let refused = open(0o777, None).unwrap_err();
        assert!(refused.contains("every user may write") && refused.contains("chmod 700"), "{refused}");
        if rustix::process::geteuid().is_root() {
            let refused = open(0o700, Some(1234)).unwrap_err();
            assert!(refused.contains("user 1234") && refused.contains("chown 0"), "{refused}");
        }
    }

    #[test] // S18
    fn another_store_or_another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(store_of(dir.path()), None);
        drop(Superblock::open(dir.path(), "a", "agent").unwrap());
        assert_eq!(store_of(dir.path()).as_deref(), Some("a"));
        assert!(matches!(Superblock::open(dir.path(), "b", "agent"), Err(OpenError::OtherStore { .. })));
        let path = dir.path().join("superblock");
        let text = std::fs::read_to_string(&path).unwrap().replace("\"format\": 1", "\"format\": 99");
        std::fs::write(&path, text).unwrap();
        let Err(OpenError::Format { found, .. }) = Superblock::open(dir.path(), "a", "agent") else {
            panic!("accepted")
        };
        assert_eq!(found, "99");
    }

    #[test]
    fn a_lost_or_damaged_superblock_is_refused_and_a_new_one_repeats_no_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("superblock");
        assert!(!is_damaged(dir.path()), "a new directory");
        drop(Superblock::open(dir.path(), "a", "agent").unwrap());
        std::fs::create_dir(dir.path().join("replicas")).unwrap();
        let damages: [&dyn Fn(); 3] =
            [&|| std::fs::remove_file(&path).unwrap(), &|| std::fs::write(&path, "").unwrap(), &|| {
                std::fs::write(&path, "{}").unwrap()
            }];
        for damage in damages {
            damage();
            assert!(is_damaged(dir.path()));
            let refused = Superblock::open(dir.path(), "a", "agent");
            assert!(matches!(refused, Err(OpenError::Superblock { .. })));
            remake(dir.path(), "a", Version(41)).unwrap();
            let block = Superblock::open(dir.path(), "a", "agent").unwrap();
            assert_eq!(block.next_version().unwrap(), Version(42));
            assert!(block.is_suspect(Version(41)));
        }
    }

    #[test]
    fn replicas_from_before_a_crash_of_the_machine_are_suspect_and_after_an_orderly_end_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let pretend_another_boot = || {
            let path = dir.path().join("superblock");
            let text = std::fs::read_to_string(&path).unwrap().replace(&boot_id(), "another boot");
            std::fs::write(&path, text).unwrap();
        };
        let block = Superblock::open(dir.path(), "a", "agent").unwrap();
        let version = block.next_version().unwrap();
        block.finish().unwrap();
        drop(block);
        pretend_another_boot();
        let block = Superblock::open(dir.path(), "a", "agent").unwrap();
        assert!(!block.is_suspect(version) && !block.is_unsearched());
        drop(block);
        pretend_another_boot();
        drop(Superblock::open(dir.path(), "a", "agent").unwrap());
        // That agent died before it had searched.
        let block = Superblock::open(dir.path(), "a", "agent").unwrap();
        assert!(block.is_suspect(version) && block.is_unsearched());
        block.set_unsearched(false).unwrap();
        drop(block);
        let block = Superblock::open(dir.path(), "a", "agent").unwrap();
        assert!(block.is_suspect(version) && !block.is_unsearched());
        assert!(!block.is_suspect(block.next_version().unwrap()));
    }
}
