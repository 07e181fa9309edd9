//! Requests that are decoded, refused, or made of hostile bytes.

use super::*;
use crate::abi::bytes_of;

const AGREED: Agreed = Agreed { flags: init_flags::SETXATTR_EXT, max_write: limits::WRITE_MAX };

/// Returns the bytes of a request.
fn message(opcode: u32, body: &[&[u8]]) -> Vec<u8> {
    let len = size_of::<InHeader>() + body.iter().map(|part| part.len()).sum::<usize>();
    let header = InHeader { len: len as u32, opcode, unique: 2, nodeid: 1, ..Default::default() };
    let mut message = bytes_of(&header).to_vec();
    body.iter().for_each(|part| message.extend_from_slice(part));
    message
}

#[test]
fn a_rename_has_both_names_and_its_flags() {
    let fixed = abi::Rename2In { newdir: 9, flags: 2, padding: 0 };
    let message = message(45, &[bytes_of(&fixed), b"old\0", b"new\0"]);
    let (header, operation) = decode(&message, &[], &AGREED).unwrap();
    assert_eq!((header.unique, header.nodeid), (2, 1));
    let Operation::Rename { name, to, new_name, flags } = operation else { panic!("{operation:?}") };
    assert_eq!((name, to, new_name, flags), (OsStr::new("old"), 9, OsStr::new("new"), 2));
}

#[test]
fn a_write_has_exactly_the_bytes_it_announces() {
    let flags = (libc::O_WRONLY | libc::O_DSYNC | libc::O_APPEND).cast_unsigned();
    let fixed = abi::WriteIn { fh: 3, offset: 5, size: 4, write_flags: 4, flags, ..Default::default() };
    let whole = message(16, &[bytes_of(&fixed), b"data"]);
    let (_, operation) = decode(&whole, &[], &AGREED).unwrap();
    let Operation::Write { handle: 3, offset: 5, data: b"data", how } = operation else { panic!("{operation:?}") };
    assert_eq!(how, WriteFlags { kill_suidgid: true, cached: false, sync: true, append: true });
    let short = message(16, &[bytes_of(&fixed), b"dat"]);
    assert_eq!(decode(&short, &[], &AGREED).unwrap_err(), NotARequest::Answer { unique: 2, errno: Errno::EIO });
}

#[test]
fn the_data_of_a_write_may_lie_apart_and_that_of_nothing_else() {
    let fixed = abi::WriteIn { size: 4, ..Default::default() };
    let whole = message(16, &[bytes_of(&fixed), b"data"]);
    let (head, data) = whole.split_at(whole.len() - 4);
    let (_, operation) = decode(head, data, &AGREED).unwrap();
    let Operation::Write { data: written, .. } = operation else { panic!("{operation:?}") };
    assert_eq!((written, written.as_ptr()), (data, data.as_ptr()), "it is not copied");
    let refused = NotARequest::Answer { unique: 2, errno: Errno::EIO };
    for cut in (size_of::<InHeader>()..whole.len()).filter(|&cut| cut != head.len()) {
        let (head, data) = whole.split_at(cut);
        assert_eq!(decode(head, data, &AGREED).unwrap_err(), refused, "cut at {cut}");
    }
    assert_eq!(decode(head, b"dat", &AGREED).unwrap_err(), refused);
    let extended = |units: u16| {
        let mut bytes = message(16, &[bytes_of(&fixed), b"data", &[0xff; 8]]);
        bytes[36..38].copy_from_slice(&units.to_ne_bytes());
        bytes
    };
    let is_decoded = |message: Vec<u8>| decode(&message[..head.len()], &message[head.len()..], &AGREED).is_ok();
    assert!(is_decoded(extended(1)) && !is_decoded(extended(2)), "an extension is behind the data");
    let other = message(15, &[bytes_of(&fixed), b"data"]);
    let (head, data) = other.split_at(head.len());
    assert_eq!(decode(head, data, &AGREED).unwrap_err(), refused);
}

#[test]
fn setxattr_is_read_in_the_form_that_was_agreed() {
    let long = abi::SetxattrIn { size: 3, flags: 1, setxattr_flags: 1, padding: 0 };
    let long = message(21, &[bytes_of(&long), b"user.a\0", b"val"]);
    let (_, operation) = decode(&long, &[], &AGREED).unwrap();
    assert!(matches!(operation, Operation::Setxattr { value: b"val", flags: 1, kill_sgid: true, .. }));
    let short = abi::SetxattrCompatIn { size: 3, flags: 2 };
    let short = message(21, &[bytes_of(&short), b"user.a\0", b"val"]);
    let (_, operation) = decode(&short, &[], &Agreed::default()).unwrap();
    assert!(matches!(operation, Operation::Setxattr { value: b"val", flags: 2, kill_sgid: false, .. }));
}

#[test]
fn setattr_keeps_only_what_is_valid() {
    let fixed = abi::SetattrIn {
        valid: fattr::SIZE | fattr::MTIME | fattr::ATIME | fattr::ATIME_NOW,
        size: 7,
        mtime: (-2i64).cast_unsigned(),
        mtimensec: 5,
        mode: 0o777,
        ..Default::default()
    };
    let message = message(4, &[bytes_of(&fixed)]);
    let (_, Operation::Setattr { set }) = decode(&message, &[], &AGREED).unwrap() else { panic!() };
    assert_eq!((set.size, set.mode, set.handle), (Some(7), None, None));
    assert_eq!(set.mtime, Some(TimeOrNow::At(Timestamp { seconds: -2, nanos: 5 })));
    assert_eq!(set.atime, Some(TimeOrNow::Now));
}

#[test]
fn an_unknown_request_is_enosys_and_a_malformed_one_eio() {
    let answer = |errno| NotARequest::Answer { unique: 2, errno };
    assert_eq!(decode(&message(9999, &[]), &[], &AGREED).unwrap_err(), answer(Errno::ENOSYS));
    assert_eq!(decode(&message(1, &[b"no end"]), &[], &AGREED).unwrap_err(), answer(Errno::EIO));
    assert_eq!(decode(&message(1, &[b"a/b\0"]), &[], &AGREED).unwrap_err(), answer(Errno::EIO));
    assert_eq!(decode(&message(1, &[b"\0"]), &[], &AGREED).unwrap_err(), answer(Errno::EIO));
    let mut longer = message(1, &[b"a\0"]);
    longer.push(0);
    assert_eq!(decode(&longer, &[], &AGREED).unwrap_err(), answer(Errno::EIO));
    assert_eq!(decode(&[0; 39], &[], &AGREED).unwrap_err(), NotARequest::Headless);
}

#[test]
fn an_extension_is_cut_off_and_one_that_is_too_long_refused() {
    let with_extension = |units: u16| {
        let mut bytes = message(1, &[b"a\0", &[0xff; 8]]);
        bytes[36..38].copy_from_slice(&units.to_ne_bytes());
        bytes
    };
    assert!(matches!(decode(&with_extension(1), &[], &AGREED), Ok((_, Operation::Lookup { .. }))));
    assert!(decode(&with_extension(2), &[], &AGREED).is_err());
}

#[test]
fn a_batch_of_forgets_that_claims_more_than_it_has_is_refused() {
    let fixed = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
    assert!(decode(&message(42, &[bytes_of(&fixed), &[0; 32]]), &[], &AGREED).is_err());
}

/// Random bodies of every request, and all their truncations, are refused or decoded and never cause a panic.
#[test]
fn hostile_bytes_never_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut decoded, mut refused) = (0, 0);
    for &(_, number) in Opcode::ALL {
        for round in 0..400 {
            let len = next() as usize % 160;
            // Small values make lengths and names that sometimes fit.
            let body: Vec<u8> = (0..len).map(|_| next() as u8 & if round % 2 == 0 { 0xff } else { 0x03 }).collect();
            let mut bytes = message(number, &[&body]);
            if round % 5 == 0 {
                bytes[36..38].copy_from_slice(&(next() as u16 % 8).to_ne_bytes());
            }
            let flags = if round % 3 == 0 { 0 } else { init_flags::SETXATTR_EXT };
            let agreed = Agreed { flags, max_write: limits::WRITE_MAX };
            match decode(&bytes, &[], &agreed) {
                Ok(_) => decoded += 1,
                Err(_) => refused += 1,
            }
            for cut in 0..bytes.len() {
                _ = decode(&bytes[..cut], &[], &agreed);
                let mut header_agrees = bytes[..cut].to_vec();
                if let Some(len) = header_agrees.first_chunk_mut::<4>() {
                    *len = (cut as u32).to_ne_bytes();
                }
                _ = decode(&header_agrees, &[], &agreed);
            }
        }
    }
    assert!(decoded > 1000 && refused > 1000, "{decoded} decoded, {refused} refused");
}

/// Sizes from `sizeof` in C over the kernel's header.
#[test]
fn layouts_have_the_kernels_sizes() {
    assert_eq!(size_of::<InHeader>(), 40);
    assert_eq!(size_of::<abi::OutHeader>(), 16);
    assert_eq!(size_of::<abi::EntryOut>(), 128);
    assert_eq!(size_of::<abi::AttrOut>(), 104);
    assert_eq!(size_of::<abi::SetattrIn>(), 88);
    assert_eq!(size_of::<abi::InitOut>(), 64);
    assert_eq!(size_of::<abi::LkIn>(), 48);
    assert_eq!(size_of::<abi::StatfsOut>(), 80);
    assert_eq!(size_of::<abi::Dirent>(), 24);
    assert_eq!(size_of::<abi::CopyFileRangeIn>(), 56);
    assert_eq!(size_of::<abi::BackingMap>(), 16);
    assert_eq!(abi::IOC_BACKING_OPEN, 0x4010_e501);
    assert_eq!(abi::IOC_BACKING_CLOSE, 0x4004_e502);
}
