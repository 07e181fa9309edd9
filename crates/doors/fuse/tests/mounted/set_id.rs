//! Set-id bits and capabilities, which writes remove.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use rustix::fs::{Gid, Uid, XattrFlags, chown, getxattr, setxattr};
use testkit::{PATIENCE, in_private_namespace, wait_until};

use crate::stand::{DIRECT, PASSTHROUGH, Stand};
use crate::who::as_user;

/// Creates a program that everybody may write to, with both set-id bits.
fn privileged(stand: &Stand, name: &str) {
    fs::write(stand.path(name), b"program").unwrap();
    fs::set_permissions(stand.path(name), PermissionsExt::from_mode(0o6777)).unwrap();
}

fn bits(stand: &Stand, name: &str) -> u32 {
    fs::metadata(stand.path(name)).unwrap().mode() & 0o7777
}

#[test] // S6
fn a_users_write_truncation_or_allocation_takes_set_id_bits_away() {
    in_private_namespace(|| {
        for how in [PASSTHROUGH, DIRECT] {
            let stand = Stand::new(how);
            ["write", "truncate", "open", "allocate", "size"].iter().for_each(|name| privileged(&stand, name));
            as_user(1234, &[], || {
                let open = |name: &str| OpenOptions::new().write(true).open(stand.path(name)).unwrap();
                open("write").write_all(b"x").unwrap();
                open("truncate").set_len(1).unwrap();
                File::create(stand.path("open")).unwrap();
                rustix::fs::fallocate(open("allocate"), rustix::fs::FallocateFlags::empty(), 0, 4096).unwrap();
                let path = std::ffi::CString::new(stand.path("size").to_str().unwrap()).unwrap();
                // SAFETY: a C string that lives through the call.
                assert_eq!(unsafe { libc::truncate(path.as_ptr(), 3) }, 0);
            });
            for name in ["write", "truncate", "open", "allocate", "size"] {
                assert_eq!(bits(&stand, name), 0o777, "{name} {how:?}");
                assert_eq!(fs::metadata(stand.below(name)).unwrap().mode() & 0o7777, 0o777, "{name} below");
            }
        }
    });
}

#[test] // S6
fn roots_write_leaves_set_id_bits() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        privileged(&stand, "file");
        OpenOptions::new().write(true).open(stand.path("file")).unwrap().write_all(b"x").unwrap();
        assert_eq!(bits(&stand, "file"), 0o6777);
    });
}

#[test]
fn a_second_write_after_roots_takes_them_too() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        privileged(&stand, "file");
        let file = OpenOptions::new().write(true).open(stand.path("file")).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        assert_eq!(bits(&stand, "file"), 0o6777);
        as_user(1234, &[], || file.write_all_at(b"y", 0).unwrap());
        assert_eq!(bits(&stand, "file"), 0o777);
    });
}

/// Returns a capability attribute: version 2, effective, CAP_NET_RAW.
fn capability() -> Vec<u8> {
    [0x0200_0001u32, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat()
}

#[test]
fn privileges_given_before_the_stage_out_outlive_it() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        for at in 0..50 {
            let name = format!("program-{at}");
            fs::write(stand.path(&name), [b'x'; 100_000]).unwrap();
            setxattr(stand.path(&name), "security.capability", &capability(), XattrFlags::empty()).unwrap();
            fs::set_permissions(stand.path(&name), PermissionsExt::from_mode(0o6755)).unwrap();
        }
        for at in 0..50 {
            let name = format!("program-{at}");
            wait_until("the stage-out", PATIENCE, || fs::read(stand.below(&name)).unwrap() == [b'x'; 100_000]);
            let kept = getxattr(stand.below(&name), "security.capability", &mut [0u8; 64][..]);
            assert_eq!(kept, Ok(capability().len()), "{name}");
            assert_eq!(bits(&stand, &name), 0o6755);
        }
    });
}

#[test] // S6
fn writing_takes_capabilities_away() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::write(stand.path("file"), b"program").unwrap();
        wait_until("the stage-out", PATIENCE, || fs::read(stand.below("file")).unwrap() == b"program");
        setxattr(stand.path("file"), "security.capability", &capability(), XattrFlags::empty()).unwrap();
        OpenOptions::new().write(true).open(stand.path("file")).unwrap().write_all(b"x").unwrap();
        let left = getxattr(stand.below("file"), "security.capability", &mut [0u8; 64][..]);
        assert_eq!(left, Err(rustix::io::Errno::NODATA));
    });
}

/// An attribute that a new file cannot have yet is answered without a look below, but only until one may have been
/// set.
#[test] // S7
fn a_capability_given_to_a_new_file_is_there_at_once() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        let _new = File::create(stand.path("file")).unwrap();
        setxattr(stand.path("file"), "security.capability", &capability(), XattrFlags::empty()).unwrap();
        let there = getxattr(stand.path("file"), "security.capability", &mut [0u8; 64][..]);
        assert_eq!(there, Ok(capability().len()));
        let _other = File::create(stand.path("other")).unwrap();
        let none = || getxattr(stand.path("other"), "security.capability", &mut [0u8; 64][..]);
        assert_eq!((none(), none()), (Err(rustix::io::Errno::NODATA), Err(rustix::io::Errno::NODATA)));
        setxattr(stand.below("other"), "security.capability", &capability(), XattrFlags::empty()).unwrap();
        assert_eq!(none(), Ok(capability().len()), "given below");
    });
}

#[test] // S6
fn a_change_of_owner_takes_set_id_bits_away() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        privileged(&stand, "file");
        chown(stand.path("file"), Some(Uid::from_raw(1234)), Some(Gid::from_raw(1234))).unwrap();
        assert_eq!(bits(&stand, "file"), 0o777);
    });
}

#[test]
fn a_file_made_in_a_set_group_id_directory_has_its_group_and_not_the_bit() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        fs::create_dir(stand.path("dir")).unwrap();
        chown(stand.path("dir"), None, Some(Gid::from_raw(77))).unwrap();
        fs::set_permissions(stand.path("dir"), PermissionsExt::from_mode(0o2777)).unwrap();
        as_user(1234, &[], || {
            OpenOptions::new().write(true).create_new(true).mode(0o2775).open(stand.path("dir/file")).unwrap();
            fs::create_dir(stand.path("dir/inner")).unwrap();
        });
        let file = fs::metadata(stand.below("dir/file")).unwrap();
        assert_eq!((file.gid(), file.mode() & 0o2000), (77, 0));
        assert_eq!(fs::metadata(stand.below("dir/inner")).unwrap().mode() & 0o2000, 0o2000);
    });
}

#[test]
fn a_mapping_and_a_write_of_a_set_id_file_agree() {
    in_private_namespace(|| {
        let stand = Stand::new(PASSTHROUGH);
        privileged(&stand, "file");
        let reader = File::open(stand.path("file")).unwrap();
        let writer = OpenOptions::new().write(true).open(stand.path("file")).unwrap();
        writer.write_all_at(b"PROGRAM", 0).unwrap();
        let mut text = [0; 7];
        reader.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"PROGRAM");
    });
}
