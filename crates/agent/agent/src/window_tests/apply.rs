//! Tests of what requests about a file wait for.

use std::time::Duration;
use types::HasErrno;

use windows::testing::WindowedFile;

use super::killed::only;
use super::*;

#[test] // S37
fn each_who_writes_a_file_is_told_once_what_was_damaged_in_a_window_that_is_over_by_then() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let (open, other) = (stand.windowed("file"), stand.windowed("file"));
    let window = stand.attach(&open);
    window.append(0, &[7; 50_000]).unwrap();
    let windows = stand.agent.windows.get().unwrap();
    let ring = only(&only(&tree.path().join("w")).join("files")).join("0");
    std::fs::OpenOptions::new().write(true).open(ring).unwrap().set_len(5000).unwrap();
    let reader = stand.open("file", Mode { write: false, ..WRITE });
    stand.agent.stat(open.node()).expect("who only looks is not told");
    reader.sync(false).expect("nor who has written nothing");
    wait_until("its thread finds out", PATIENCE, || WindowedFile::of(windows, open.node().identity()).is_none());
    let told = |error: std::io::Result<()>| error.unwrap_err().errno() == Some(libc::EIO);
    assert!(told(open.sync(false)));
    open.sync(false).expect("it was told");
    assert!(told(other.flush()), "each is, by whatever it asks first");
    other.sync(false).unwrap();
    assert!(window.is_revoked(), "its program would go on, and wait for room for ever");
    std::mem::forget(window); // the memory is gone
}

#[test] // S40
fn who_waits_for_room_behind_an_append_that_nobody_finishes_goes_to_the_kernel() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let open = stand.windowed("file");
    let window = stand.attach_sized(&open, 1 << 20);
    let (mut acknowledged, mut waited) = (0, Duration::ZERO);
    // As a signal handler that interrupted an append and writes more than there is room for.
    let never = window.append_where(&[std::io::IoSlice::new(&[1; 100_000])], || {
        let began = Instant::now();
        while acknowledged < 1000 && window.append(acknowledged * 10_000, &[7; 10_000]).is_ok() {
            acknowledged += 1;
        }
        waited = began.elapsed();
        Some(acknowledged * 10_000)
    });
    assert!(acknowledged < 110, "there was no room for more");
    assert_eq!(never, Err(AppendRefused::Revoked));
    assert!(waited > limits::WINDOW_STUCK_WAIT && waited < PATIENCE, "{waited:?}");
    assert!(stand.content(&open) == vec![7; 10_000 * acknowledged as usize]);
}
