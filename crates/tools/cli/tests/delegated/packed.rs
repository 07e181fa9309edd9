//! Small files that lie together in the burst buffer, as programs see them.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::*;

const FILES: usize = 300;
/// Files are packed after ten quiet seconds.
const PACKED_WITHIN: Duration = Duration::from_secs(60);

fn name(file: usize) -> String {
    format!("d/file-{file}")
}

fn content(file: usize) -> Vec<u8> {
    format!("{file};").into_bytes().into_iter().cycle().take(1 + file * 97 % 9000).collect()
}

/// A shared mapping of a file.
struct Mapping(*mut u8, usize);

impl Mapping {
    fn of(file: &File, bytes: usize, may: ProtFlags) -> Mapping {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, may, MapFlags::SHARED, file, 0) };
        Mapping(at.unwrap().cast(), bytes)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is there as long as this, and nobody truncates the file.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }

    fn store(&self, byte: u8) {
        // SAFETY: the first byte of the mapping, which is writable.
        unsafe { self.0.write_volatile(byte) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody uses the mapping any more.
        let _ = unsafe { munmap(self.0.cast(), self.1) };
    }
}

impl Bed {
    fn packed(&self) -> u64 {
        self.status()["packed_files"].as_u64().unwrap()
    }

    fn wait_packed(&self, files: usize) {
        wait_until("small files are packed", PACKED_WITHIN, || self.packed() == files as u64);
    }

    /// Reads all files twice: the second time from the kernel's pages, perhaps.
    fn assert_content(&self, changed: &[(usize, Vec<u8>)]) {
        for file in (0..FILES).chain(0..FILES) {
            let expected =
                changed.iter().find(|(one, _)| *one == file).map_or_else(|| content(file), |(_, new)| new.clone());
            let found = fs::read(self.path(&name(file))).unwrap();
            assert!(found == expected, "{file}: {} bytes instead of {}", found.len(), expected.len());
        }
    }
}

#[test] // S71
fn packed_files_are_read_written_run_and_brought_as_all_others() {
    in_private_namespace(|| {
        let bed = Bed::new();
        let mounted = bed.mount();
        fs::create_dir(bed.path("d")).unwrap();
        (0..FILES).for_each(|file| fs::write(bed.path(&name(file)), content(file)).unwrap());
        let script = bed.path("d/run");
        fs::write(&script, "#!/bin/sh\necho packed\n").unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        let before = fs::metadata(bed.path(&name(7))).unwrap();
        bed.wait_packed(FILES + 1);
        bed.assert_content(&[]);
        assert_eq!(Command::new(&script).output().unwrap().stdout, b"packed\n");
        let after = fs::metadata(bed.path(&name(7))).unwrap();
        assert_eq!((after.len(), after.mtime_nsec(), after.ino()), (before.len(), before.mtime_nsec(), before.ino()));

        // Whoever has a file open sees what others write.
        let reader = File::open(bed.path(&name(7))).unwrap();
        let mapping = Mapping::of(&reader, content(7).len(), ProtFlags::READ);
        assert!(mapping.bytes() == content(7));
        let mut bytes = vec![0; content(7).len()];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        File::options().append(true).open(bed.path(&name(7))).unwrap().write_all(b"appended").unwrap();
        let writer = File::options().write(true).open(bed.path(&name(7))).unwrap();
        writer.write_all_at(b"begin", 0).unwrap();
        let mut new = [&content(7)[..], b"appended"].concat();
        new[..5].copy_from_slice(b"begin");
        bytes.resize(new.len(), 0);
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == new, "the reader sees old bytes");
        assert!(mapping.bytes() == &new[..content(7).len()], "the mapping has old bytes");
        drop((reader, writer, mapping));
        // An open for writing alone leaves a file where it is; a truncation does not.
        drop(File::options().read(true).write(true).open(bed.path(&name(8))).unwrap());
        assert_eq!(bed.packed(), FILES as u64);
        fs::write(bed.path(&name(9)), "short").unwrap();
        let mut stored = content(11);
        stored[0] = b'!';
        let file = File::options().read(true).write(true).open(bed.path(&name(11))).unwrap();
        Mapping::of(&file, stored.len(), ProtFlags::READ | ProtFlags::WRITE).store(b'!');
        drop(file);
        File::options().write(true).open(bed.path(&name(10))).unwrap().set_len(3).unwrap();
        let changed = [(7, new), (9, b"short".to_vec()), (11, stored), (10, content(10)[..3].to_vec())];
        bed.assert_content(&changed);

        bed.crash(&mounted);
        drop(mounted);
        let _mounted = bed.mount();
        bed.assert_content(&changed);
        assert_eq!(bed.packed(), FILES as u64 - 3);
        bed.theirs([&*name(5)]);
        assert_eq!(bed.drain().code, 75);
        let saved = ok(bed.resolve(bed.path(&name(5)), "both"));
        assert_eq!(fs::read(saved.trim()).unwrap(), content(5));
        let stays = (0..FILES).filter(|file| *file != 5 && changed.iter().all(|(one, _)| one != file));
        stays.for_each(|file| assert!(fs::read(bed.below.join(name(file))).unwrap() == content(file), "{file}"));
        assert_eq!(fs::read(bed.below.join(name(9))).unwrap(), b"short");
        ok(bed.umount());
        has(&ok(bed.check()), &[", 0 dirty, 0 need a decision"]);
        assert_eq!(fs::read_dir(bed.bench.buffer.join("trees")).unwrap().count(), 0);
    });
}
