//! Test of the effect of switching windows off on other open files of the file.

use super::*;

#[test] // S40
fn while_one_open_file_is_switched_off_no_other_of_the_file_has_or_gets_a_window() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let (one, other) = (stand.windowed("file"), stand.windowed("file"));
    let switch = |open: &OpenFile, command| stand.control(open, Control::new(command, 0)).unwrap();
    let refused = |open: &OpenFile| stand.control(open, Control::new(Command::Attach, 0)).unwrap_err();
    let window = stand.attach(&other);
    window.append(0, b"appended").unwrap();
    switch(&one, Command::Off);
    assert!(window.is_revoked(), "whoever maps the one misses nothing that is written by the other");
    assert_eq!(stand.agent.window_status().unwrap().waiting_bytes, 0);
    assert_eq!(switch(&one, Command::Off).state, 0, "once more is not twice");
    assert_eq!((refused(&other), refused(&one)), (libc::EAGAIN, libc::EOPNOTSUPP));
    assert_eq!(switch(&other, Command::Get).state, 0);
    switch(&one, Command::On);
    assert_eq!(switch(&other, Command::Get).state, state::MAY);
    stand.attach(&other).append(8, b" again").unwrap();
    switch(&one, Command::Off);
    assert_eq!(refused(&other), libc::EAGAIN);
    switch(&one, Command::On);
    drop(one);
    assert_eq!(refused(&other), libc::EAGAIN, "a mapping of it may be left, which would not show what a ring holds");
    assert_eq!(stand.content(&other), b"appended again");
    drop(other);
    stand.attach(&stand.windowed("file")).append(0, b"A").unwrap();
}
