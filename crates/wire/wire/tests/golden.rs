//! The bytes of every message are kept in `tests/golden`, one file each: messages that were once sent are understood
//! for ever.
//!
//! `FOREBAY_WRITE_GOLDEN=1` writes the files of new messages. A change of an existing file needs a new protocol
//! version.

mod samples;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use samples::samples;
use wire::{HEADER_BYTES, Header, Message};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn frame(message: &Message) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body);
    let header = Header {
        version: 1,
        kind: message.kind(),
        request: 0x0102_0304_0506_0708,
        oldest: 0x0102_0304_0506_0700,
        body_bytes: body.len() as u32,
        data_bytes: 7,
    };
    [header.encode().as_slice(), &body].concat()
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n");
    lines.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn every_message_is_the_bytes_that_it_always_was() {
    for message in samples() {
        let file = directory().join(format!("{:03}-{}.hex", message.kind(), message.name()));
        let ours = frame(&message);
        if std::env::var_os("FOREBAY_WRITE_GOLDEN").is_some() && !file.exists() {
            fs::write(&file, hex(&ours)).unwrap();
        }
        let kept = bytes(&fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())));
        assert_eq!(hex(&ours), hex(&kept), "{}", message.name());
        let (head, body) = kept.split_at(HEADER_BYTES);
        let header = Header::decode(head.try_into().unwrap()).unwrap();
        assert_eq!(
            (header.request, header.oldest, header.data_bytes),
            (0x0102_0304_0506_0708, 0x0102_0304_0506_0700, 7)
        );
        assert_eq!(Message::decode(header.kind, body).unwrap(), message);
    }
}

#[test]
fn every_kind_has_its_sample_and_its_file_and_a_number_of_its_own() {
    let numbers: BTreeSet<u16> = Message::KINDS.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers.len(), Message::KINDS.len());
    let sampled: BTreeSet<u16> = samples().iter().map(Message::kind).collect();
    assert_eq!(sampled, numbers);
    let wanted: BTreeSet<String> = Message::KINDS.iter().map(|(n, name)| format!("{n:03}-{name}.hex")).collect();
    let there: BTreeSet<String> =
        fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, wanted);
}
