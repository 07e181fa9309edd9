//! Decoders return for any bytes. Bytes that decode to a message are exactly the encoding of that message.

mod samples;

use proptest::prelude::*;
use samples::samples;
use wire::limits::{BODY_BYTES_MAX, DATA_BYTES_MAX, PATH_BYTES_MAX, TEXT_BYTES_MAX};
use wire::{DecodeError, HEADER_BYTES, Header, Message, Path, Text};

fn encoded(message: &Message) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body);
    body
}

fn check(kind: u16, body: &[u8]) {
    if let Ok(message) = Message::decode(kind, body) {
        // An unknown error number decodes to another one; all other fields encode to the same bytes.
        if !matches!(message, Message::Failed { .. } | Message::Stuck { .. }) {
            assert_eq!(encoded(&message), body);
        }
        assert_eq!(Message::decode(kind, &encoded(&message)).unwrap(), message);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_are_a_message_or_refused(
        kind in prop::sample::select(Message::KINDS.iter().map(|(n, _)| *n).collect::<Vec<_>>()),
        body in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        check(kind, &body);
    }

    #[test]
    fn any_forty_bytes_are_a_bounded_header_or_refused(bytes in prop::collection::vec(any::<u8>(), HEADER_BYTES)) {
        if let Ok(header) = Header::decode(bytes.as_slice().try_into().unwrap()) {
            assert!(header.body_bytes <= BODY_BYTES_MAX && header.data_bytes <= DATA_BYTES_MAX);
        }
    }

    /// Decodes real messages with some bytes changed, cut or added. Such near misses find more errors than random
    /// bytes.
    #[test]
    fn a_message_with_changed_bytes_is_another_message_or_refused(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        more in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let samples = samples();
        let message = which.get(&samples);
        let mut body = encoded(message);
        for (at, value) in changes {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = value;
            }
        }
        check(message.kind(), &body);
        check(message.kind(), &body[..cut.index(body.len() + 1)]);
        body.extend(more);
        check(message.kind(), &body);
    }

    #[test]
    fn a_header_with_any_values_comes_back(
        version: u16, kind: u16, request: u64, oldest: u64, body in 0..=BODY_BYTES_MAX, data in 0..=DATA_BYTES_MAX,
    ) {
        let header = Header { version, kind, request, oldest, body_bytes: body, data_bytes: data };
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

#[test]
fn a_cut_or_lengthened_message_is_refused() {
    for message in samples() {
        let mut body = encoded(&message);
        for end in 0..body.len() {
            assert!(Message::decode(message.kind(), &body[..end]).is_err(), "{} of {end}", message.name());
        }
        body.push(0);
        assert_eq!(Message::decode(message.kind(), &body), Err(DecodeError::Length), "{}", message.name());
    }
}

#[test]
fn any_flipped_bit_of_a_header_is_noticed() {
    let header = Header { version: 1, kind: 34, request: 9, oldest: 3, body_bytes: 20, data_bytes: 4096 };
    for bit in 0..HEADER_BYTES * 8 {
        let mut bytes = header.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn lengths_above_their_bounds_are_refused_though_the_checksum_is_right() {
    let small = Header { version: 1, kind: 34, request: 1, oldest: 1, body_bytes: 0, data_bytes: 0 };
    let huge = [Header { body_bytes: BODY_BYTES_MAX + 1, ..small }, Header { data_bytes: u32::MAX, ..small }];
    huge.iter().for_each(|header| assert_eq!(Header::decode(&header.encode()), Err(DecodeError::Length)));
}

#[test]
fn no_message_is_larger_than_a_body_may_be() {
    let identity = types::Identity::new(vec![1; wire::limits::IDENTITY_BYTES_MAX]).unwrap();
    let path = || Path::new(vec![b'x'; PATH_BYTES_MAX]).unwrap();
    let text = Text::cut("y".repeat(10 * TEXT_BYTES_MAX));
    assert_eq!(text.as_str().len(), TEXT_BYTES_MAX);
    let code = wire::Code::Io;
    let largest =
        Message::Stuck { identity, hint: path(), state: 0, orphaned: true, code, reason: text, replica: path() };
    assert!(encoded(&largest).len() <= BODY_BYTES_MAX as usize);
    assert!(Path::new(vec![0; PATH_BYTES_MAX + 1]).is_none());
    assert_eq!(Text::cut("\u{e9}".repeat(TEXT_BYTES_MAX)).as_str().len(), TEXT_BYTES_MAX, "cut between characters");
}
