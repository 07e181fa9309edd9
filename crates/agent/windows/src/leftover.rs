//! List of windows that killed agents of this user left in a directory, for administrators. Nothing is changed here.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::directory;
use crate::place::FilePlace;
use crate::session::{FILES, SOCKET};

pub(crate) const PREFIX: &str = "forebay-";
/// Time after which a session without a socket is no longer just starting.
const BEGINS: Duration = Duration::from_secs(10);

/// A session directory that no agent serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftWindows {
    pub path: PathBuf,
    /// Bytes allocated to the directory.
    pub bytes: u64,
    /// Files with records, by the paths below the accelerated directory where they were last seen.
    pub files: Vec<PathBuf>,
    /// Whether the session could not be recovered and is kept for administrators. If not, the next agent replays it to
    /// its burst buffer.
    pub set_aside: bool,
}

/// Lists the sessions that killed agents of this user left in `dir`, by name. Empty if `dir` does not exist. Errors:
/// those of reading it.
pub fn left_windows(dir: &Path) -> io::Result<Vec<LeftWindows>> {
    let mut left = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(left);
        }
        entries => entries?,
    };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(session) = name.to_str().and_then(session_of) else { continue };
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if !directory::is_ours_alone(&found) {
            continue;
        }
        let set_aside = session.is_set_aside;
        if set_aside || !is_served(&dir.join(session.first), &found) {
            let places = if set_aside { vec![path.clone()] } else { below(&path.join(FILES)) };
            let places = places.into_iter().map(|path| FilePlace::of(path, false)).filter(FilePlace::may_hold);
            let files: Vec<PathBuf> = places.map(|place| hint(&place)).collect();
            // A session that ended between two steps holds no records.
            if set_aside || !files.is_empty() {
                left.push(LeftWindows { bytes: allocated(&path), path, files, set_aside });
            }
        }
    }
    left.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(left)
}

/// Parts of a session directory's name.
struct Named<'a> {
    /// The session with the socket of its process; agents of several directories share one.
    first: &'a str,
    is_set_aside: bool,
}

fn session_of(name: &str) -> Option<Named<'_>> {
    const DIGITS: usize = 16;
    let (digits, rest) = name.strip_prefix(PREFIX)?.split_at_checked(DIGITS)?;
    let is_set_aside = rest.contains(".damaged-");
    let is_another = rest.strip_prefix('-').is_some_and(|number| number.parse::<u64>().is_ok());
    (digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && (is_set_aside || is_another || rest.is_empty()))
        .then(|| Named { first: &name[..PREFIX.len() + DIGITS], is_set_aside })
}

/// Whether a live agent has `first` as its first session. True if that cannot be determined.
fn is_served(first: &Path, found: &fs::Metadata) -> bool {
    let young = || found.modified().ok().and_then(|made| made.elapsed().ok()).is_none_or(|age| age < BEGINS);
    let answers = SocketAddrUnix::new(first.join(SOCKET)).and_then(|address| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        connect(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?, &address)
    });
    match answers {
        Err(rustix::io::Errno::CONNREFUSED) => false,
        Err(rustix::io::Errno::NOENT) => young(),
        _ => true,
    }
}

fn hint(place: &FilePlace) -> PathBuf {
    place.owner().ok().flatten().map_or_else(|| "unknown file".into(), |(_, hint)| hint)
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let mut below: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    below.sort();
    below
}

fn allocated(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    let within = if found.is_dir() { below(path) } else { Vec::new() };
    found.blocks() * 512 + within.iter().map(|path| allocated(path)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::time::SystemTime;

    use types::Identity;
    use window::layout::RingId;

    use super::*;
    use crate::place::{RingRecord, make};

    const SESSION: &str = "forebay-0123456789abcdef";

    /// Creates a session with a ring of a file.
    fn session(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        make(&path, 0o711).unwrap();
        make(&path.join(FILES), 0o700).unwrap();
        let identity = Identity::new(vec![1]).unwrap();
        let place = FilePlace::make(&path.join(FILES), 1, false, &identity, Path::new("a/b")).unwrap();
        place.grant(0, &RingRecord::new(RingId(5), 64 << 10)).unwrap();
        fs::write(place.ring(0), vec![1; 100_000]).unwrap();
        path
    }

    fn age(path: &Path) {
        fs::File::open(path).unwrap().set_modified(SystemTime::now() - 2 * BEGINS).unwrap();
    }

    #[test] // S38
    fn what_no_agent_serves_is_told_with_its_files_and_bytes() {
        let tree = tempfile::tempdir().unwrap();
        let dir = tree.path();
        assert_eq!(left_windows(&dir.join("none")).unwrap(), []);
        let one = session(dir, SESSION);
        assert_eq!(left_windows(dir).unwrap(), [], "it begins, perhaps");
        age(&one);
        let [left] = &left_windows(dir).unwrap()[..] else { panic!("one") };
        assert_eq!((&left.path, &left.files[..], left.set_aside), (&one, &["a/b".into()][..], false));
        assert!((100_000..200_000).contains(&left.bytes), "{left:?}");
        let second = session(dir, &format!("{SESSION}-1"));
        age(&second);
        assert_eq!(left_windows(dir).unwrap().len(), 2);
        let aside = dir.join(format!("{SESSION}.damaged-1-00"));
        fs::create_dir(&aside).unwrap();
        assert!(left_windows(dir).unwrap()[2].set_aside);
        fs::remove_dir(&aside).unwrap();
        // Directories that are no sessions, or not ours.
        for name in ["forebay-test", "forebay-0123456789abcdeg", &format!("{SESSION}x"), "other"] {
            age(&session(dir, name));
        }
        symlink(&one, dir.join("forebay-fedcba9876543210")).unwrap();
        let open = session(dir, "forebay-0000000000000000");
        age(&open);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let empty = dir.join("forebay-0000000000000001");
        make(&empty, 0o711).unwrap();
        age(&empty);
        assert_eq!(left_windows(dir).unwrap().len(), 2);
    }

    #[test] // S38
    fn agents_that_live_have_left_nothing() {
        let tree = tempfile::tempdir().unwrap();
        let (one, second) = (session(tree.path(), SESSION), session(tree.path(), &format!("{SESSION}-2")));
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(one.join(SOCKET)).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        age(&one);
        age(&second);
        assert_eq!(left_windows(tree.path()).unwrap(), []);
        drop(socket);
        assert_eq!(left_windows(tree.path()).unwrap().len(), 2, "nobody listens");
        fs::remove_file(one.join(SOCKET)).unwrap();
        let _listener = UnixListener::bind(one.join(SOCKET)).unwrap();
        assert_eq!(left_windows(tree.path()).unwrap(), [], "a socket of another kind: nobody can tell");
    }
}
