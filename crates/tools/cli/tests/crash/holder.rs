//! A program that continues storing after the agent has died: through a passthrough descriptor, and through mappings.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use testkit::wait_until;

use crate::mounted::chance::payload;

/// Size of the file that is held open, bytes.
pub const HELD_BYTES: usize = 256 << 10;
/// Longest wait of the holder for permission to continue.
const BOUND: Duration = Duration::from_secs(100);

/// Returns offsets and seeds of a round's stores. The last one is stored through the mapping.
pub fn stores(round: u64) -> [(usize, u64); 2] {
    let at = 4096 * (3 + 5 * round as usize) + 17;
    [(at, 100 + round), (at + 128 * 1024, 200 + round)]
}
/// Length of each store, bytes.
pub const STORE_BYTES: usize = 6000;

/// Applies a round to a model of the file.
pub fn apply(content: &mut [u8], round: u64) {
    for (at, seed) in stores(round) {
        content[at..at + STORE_BYTES].copy_from_slice(&payload(seed, STORE_BYTES));
    }
}

/// Opens and maps the file, reports that in `ready`, and stores a round each time that `go` has grown by a byte.
/// There are three rounds. Before the last one it closes the descriptor, and only the mapping holds the file.
pub fn hold(path: &Path, ready: &Path, go: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open the held file");
    let mapping = map(&file);
    let mut file = Some(file);
    let say = |text: &str| std::fs::write(ready, text).expect("say ready");
    say("0");
    for round in 1..=3 {
        wait_until("the word to go on", BOUND, || go.metadata().is_ok_and(|meta| meta.len() >= round));
        let [(at, seed), (mapped_at, mapped_seed)] = stores(round);
        match &file {
            Some(file) => file.write_all_at(&payload(seed, STORE_BYTES), at as u64).expect("write past the agent"),
            None => poke(mapping, at, &payload(seed, STORE_BYTES)),
        }
        poke(mapping, mapped_at, &payload(mapped_seed, STORE_BYTES));
        if round == 2 {
            // The agent is dead: what close says does not matter.
            file = None;
        }
        say(&round.to_string());
    }
    wait_until("the word to end", BOUND, || go.metadata().is_ok_and(|meta| meta.len() >= 4));
}

fn map(file: &File) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file of HELD_BYTES; it is never unmapped while the process lives.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), HELD_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert!(address != libc::MAP_FAILED, "map the held file: {}", std::io::Error::last_os_error());
    address.cast()
}

fn poke(mapping: *mut u8, at: usize, bytes: &[u8]) {
    assert!(at + bytes.len() <= HELD_BYTES);
    // SAFETY: the range lies in the mapping, and nobody else in this process touches it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.add(at), bytes.len()) };
}
