//! Whether what was acknowledged and not synced may be lost: the machine has crashed since.
//!
//! A file in the burst buffer has a number and the life of the machine (the kernel's `boot_id`) in which it is good. A server that
//! starts in the same life takes the number over; so does one that finds that the burst buffer was synced when the last one ended. Any
//! other takes a new number, and clients that wrote under the former one and have not synced since tell their programs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use durable::{Durability, replace, sync_directory};

/// The file in a burst buffer.
const NAME: &str = "life";
/// In the place of the machine's life: everything was synced.
const SYNCED: &str = "synced";

/// A server's, from its start on.
#[derive(Debug)]
pub struct BootVerifier {
    burst_buffer: PathBuf,
    number: u64,
    believed: u64,
}

fn this_boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Never 0, and no earlier server's.
fn fresh() -> u64 {
    concurrency::wall_clock().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64).max(1)
}

/// What the note says: a number, and in which life of the machine it is good. `None`: nothing that can be believed.
fn noted(path: &Path) -> io::Result<Option<(u64, String)>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let number = |text: &str| text.parse().ok().filter(|number| *number != 0);
    let parts = text.strip_suffix('\n').and_then(|line| line.split_once(' '));
    Ok(parts.and_then(|(digits, boot_verifier)| Some((number(digits)?, boot_verifier.to_owned()))))
}

impl BootVerifier {
    /// Begins before anything is acknowledged, and is noted durably. Where that is impossible, as in a burst buffer that is full, it has
    /// a number that no other server finds: clients then tell their programs of more than can be lost.
    pub fn begin(burst_buffer: &Path) -> BootVerifier {
        BootVerifier::begin_in(burst_buffer, this_boot())
    }

    fn begin_in(burst_buffer: &Path, boot: io::Result<String>) -> BootVerifier {
        let unnoted = |error: io::Error| {
            tracing::warn!(%error, "this life of the machine cannot be noted: clients will take it that the machine has crashed");
        };
        let number = fresh();
        let mut boot_verifier = BootVerifier { burst_buffer: burst_buffer.to_owned(), number, believed: number };
        let Ok(boot) = boot.map_err(unnoted) else { return boot_verifier };
        let found = noted(&burst_buffer.join(NAME)).map_err(unnoted).unwrap_or_default();
        let found = found.filter(|(_, boot_verifier)| [&*boot, SYNCED].contains(&boot_verifier.as_str()));
        if let Some((number, _)) = found {
            (boot_verifier.number, boot_verifier.believed) = (number, number);
        }
        let done = match found {
            // It needs no room. Who noted it may not have come to make it durable.
            Some((_, of)) if of == boot => sync_directory(burst_buffer),
            _ => boot_verifier.note(&boot),
        };
        if let Err(error) = done {
            unnoted(error);
            boot_verifier.number = number;
            // A crash from now on must not find that all is synced.
            let _ = fs::remove_file(burst_buffer.join(NAME)).and_then(|()| sync_directory(burst_buffer));
        }
        boot_verifier
    }

    /// One that was noted.
    #[cfg(test)]
    pub(crate) fn numbered(number: u64) -> BootVerifier {
        BootVerifier { burst_buffer: PathBuf::new(), number, believed: number }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number that it would have if it were noted: what another server wrote down under that is so.
    pub(crate) fn believed(&self) -> u64 {
        self.believed
    }

    /// Nothing is acknowledged any more: all is synced there and in the `store` below, and nothing is lost should the machine end now.
    pub fn end(self, store: &Path) -> io::Result<()> {
        for dir in [store, &self.burst_buffer] {
            rustix::fs::syncfs(File::open(dir)?)?;
        }
        self.note(SYNCED)
    }

    fn note(&self, boot_verifier: &str) -> io::Result<()> {
        let line = format!("{} {boot_verifier}\n", self.number);
        replace(&self.burst_buffer.join(NAME), line.as_bytes(), Durability::SyncedName, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempTree;

    use super::*;

    #[test] // S41
    fn a_life_is_another_after_a_crash_of_the_machine_and_after_nothing_else() {
        let tree = TempTree::new();
        let begin = |boot: &str| BootVerifier::begin_in(tree.root(), Ok(boot.to_owned()));
        let first = begin("one").number();
        assert!(first != 0 && begin("one").number() == first, "its process died");
        let second = begin("two").number();
        assert!(![0, first].contains(&second), "the machine did");
        begin("two").end(tree.root()).unwrap();
        assert_eq!(begin("three").number(), second, "all was synced before");
        let third = begin("four").number();
        assert_ne!(third, second, "that was before the server of the third");
        assert_ne!(BootVerifier::begin(tree.root()).number(), third);
        for damaged in ["", "0 five\n", "7", "x five\n", "7 six\n", "\u{0}\u{0}"] {
            fs::write(tree.path(NAME), damaged).unwrap();
            let boot_verifier = begin("five").number();
            assert!(![0, 7, third].contains(&boot_verifier), "{damaged:?}");
        }
    }

    #[test] // S41
    fn a_server_starts_also_where_nothing_can_be_noted() {
        let tree = TempTree::new();
        let first = BootVerifier::begin(tree.root()).number();
        tree.dir("life.new/something");
        assert_eq!(BootVerifier::begin(tree.root()).number(), first, "the same is not noted again");
        fs::write(tree.path(NAME), format!("{first} {SYNCED}\n")).unwrap();
        let unnoted = BootVerifier::begin(tree.root());
        assert!(![0, first].contains(&unnoted.number()), "a crash would be taken for an orderly end");
        assert_eq!(unnoted.believed(), first, "there was none");
        let unknown = BootVerifier::begin_in(tree.root(), Err(io::ErrorKind::NotFound.into()));
        assert!(unknown.number() == unknown.believed() && unknown.number() != first);
        assert!(unnoted.end(tree.root()).is_err());
        fs::remove_dir_all(tree.path("life.new")).unwrap();
        assert_ne!(
            BootVerifier::begin(tree.root()).number(),
            first,
            "a crash since then would be taken for an orderly end"
        );
        fs::remove_file(tree.path(NAME)).unwrap();
        tree.dir(NAME);
        assert_ne!(BootVerifier::begin(tree.root()).number(), 0);
    }
}
