//! Decoders return for any bytes. Bytes that decode are exactly the encoding of the result, except for unused bytes of
//! a message, which become zero.

use proptest::prelude::*;
use window::attach::{
    CONTROL_BYTES, CONTROL_VERSION, Command, Control, MAGIC, MESSAGE_BYTES, MessageKind, NotAMessage, VERSION,
    WindowMessage,
};
use window::layout::RingId;

/// Bytes of a message that have a meaning.
const MEANT: usize = 52;

const KINDS: [MessageKind; 6] = [
    MessageKind::Hello,
    MessageKind::Welcome,
    MessageKind::Fetch,
    MessageKind::Ring,
    MessageKind::Refused,
    MessageKind::Here,
];

const COMMANDS: [Command; 7] =
    [Command::Get, Command::On, Command::Off, Command::Size, Command::Attach, Command::Advise, Command::SyncAll];

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn check_message(bytes: &[u8]) {
    let decoded = WindowMessage::from_bytes(bytes);
    if bytes.len() != MESSAGE_BYTES || word(bytes, 0) != MAGIC {
        return assert_eq!(decoded, Err(NotAMessage::Foreign));
    }
    let (version, kind) = (word(bytes, 4) as u16, (word(bytes, 4) >> 16) as u16);
    if version != VERSION {
        // Another version is reported with its number, whatever the other bytes mean.
        return assert_eq!(decoded, Err(NotAMessage::Version(version)));
    }
    if word(bytes, 8) as usize != MESSAGE_BYTES {
        return assert_eq!(decoded, Err(NotAMessage::Foreign));
    }
    if !KINDS.iter().any(|known| *known as u16 == kind) {
        return assert_eq!(decoded, Err(NotAMessage::Kind(kind)));
    }
    let message = decoded.unwrap();
    let encoded = message.to_bytes();
    assert_eq!((&encoded[..MEANT], &encoded[MEANT..]), (&bytes[..MEANT], [0; MESSAGE_BYTES - MEANT].as_slice()));
    assert_eq!(WindowMessage::from_bytes(&encoded), Ok(message));
}

fn check_control(bytes: &[u8]) {
    let is_one = bytes.len() == CONTROL_BYTES
        && word(bytes, 0) as usize == CONTROL_BYTES
        && COMMANDS.iter().any(|known| *known as u32 == word(bytes, 4))
        && word(bytes, 28) == CONTROL_VERSION;
    let encoded = Control::from_bytes(bytes).map(|control| control.to_bytes().to_vec());
    assert_eq!(encoded, is_one.then(|| bytes.to_vec()));
}

/// Checks valid bytes with some of them changed, cut, or followed by more.
fn check_near_misses(check: fn(&[u8]), mut bytes: Vec<u8>, changes: &Changes) {
    check(&bytes);
    for (at, value) in &changes.values {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    check(&bytes);
    check(&bytes[..changes.cut.index(bytes.len())]);
    bytes.extend(&changes.more);
    check(&bytes);
}

#[derive(Debug)]
struct Changes {
    values: Vec<(prop::sample::Index, u8)>,
    cut: prop::sample::Index,
    more: Vec<u8>,
}

fn changes() -> impl Strategy<Value = Changes> {
    // Small values are kinds, commands and versions more often than arbitrary values.
    let value = prop_oneof![any::<u8>(), 0..10_u8];
    let values = prop::collection::vec((any::<prop::sample::Index>(), value), 0..4);
    let more = prop::collection::vec(any::<u8>(), 1..70);
    (values, any::<prop::sample::Index>(), more).prop_map(|(values, cut, more)| Changes { values, cut, more })
}

prop_compose! {
    fn message()(
        kind in prop::sample::select(&KINDS), status: i32, token: u64, ring: u128, capacity: u64, medium: u32,
    ) -> WindowMessage {
        WindowMessage { kind, status, token, ring: RingId(ring), capacity, medium }
    }
}

prop_compose! {
    fn control()(command in prop::sample::select(&COMMANDS), bytes: u64, token: u64, state: u32) -> Control {
        Control { command, bytes, token, state }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_are_a_message_and_an_argument_or_refused(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(any::<u8>(), MESSAGE_BYTES),
            prop::collection::vec(any::<u8>(), CONTROL_BYTES),
        ],
    ) {
        check_message(&bytes);
        check_control(&bytes);
    }

    #[test]
    fn what_is_encoded_comes_back(message in message(), control in control()) {
        prop_assert_eq!(WindowMessage::from_bytes(&message.to_bytes()), Ok(message));
        prop_assert_eq!(Control::from_bytes(&control.to_bytes()), Some(control));
    }

    #[test]
    fn a_message_with_changed_bytes_is_another_message_or_refused(message in message(), changes in changes()) {
        check_near_misses(check_message, message.to_bytes().to_vec(), &changes);
    }

    #[test]
    fn an_argument_with_changed_bytes_is_another_argument_or_refused(control in control(), changes in changes()) {
        check_near_misses(check_control, control.to_bytes().to_vec(), &changes);
    }
}

#[test]
fn every_kind_and_every_command_that_there_is_and_no_other_is_known() {
    for number in 0..=u16::MAX {
        let mut bytes = WindowMessage::new(MessageKind::Hello).to_bytes();
        bytes[6..8].copy_from_slice(&number.to_le_bytes());
        check_message(&bytes);
        let mut bytes = Control::new(Command::Get, 0).to_bytes();
        bytes[4..8].copy_from_slice(&u32::from(number).to_le_bytes());
        check_control(&bytes);
    }
}
