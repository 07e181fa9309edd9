//! A program that has more files open than the agent's share for one user.

mod common;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use common::{Bench, Mounted, call, forebay, ok, start};
use rustix::process::{Resource, Rlimit, Uid, setrlimit};
use testkit::in_private_namespace;

/// Most files that the agent may have open.
const LIMIT: u64 = 1024;

/// Mounts with an agent that has no more descriptors, and may not raise the limit.
fn mount(bench: &Bench) -> Mounted<'_> {
    let mut command = forebay();
    command
        .arg("mount")
        .arg(&bench.dir)
        .arg("--burst-buffer")
        .arg(&bench.buffer)
        .args(["--policy", "stage_out=manual"]);
    let limited = || {
        let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
        setrlimit(Resource::Nofile, limit)?;
        const CAP_SYS_RESOURCE: libc::c_ulong = 24;
        // SAFETY: takes a capability from the bounding set; no memory is involved.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) };
        Ok(())
    };
    // SAFETY: two system calls, which are allowed between fork and exec.
    unsafe { command.pre_exec(limited) };
    let done = start(&mut command, "").wait();
    assert_eq!(done.code, 0, "{done:?}");
    bench.mounted()
}

/// New files of a user until one is refused.
fn open_all(bench: &Bench, user: u32) -> (Vec<File>, io::Error) {
    let open = || {
        let user = Uid::from_raw(user);
        // This thread alone.
        rustix::thread::set_thread_res_uid(user, user, user).expect("run the tests as root");
        let mut files = Vec::new();
        loop {
            let name = bench.dir.join(format!("u{}", files.len()));
            match File::options().read(true).write(true).create_new(true).open(name) {
                Ok(file) => files.push(file),
                Err(error) => return (files, error),
            }
        }
    };
    std::thread::scope(|scope| scope.spawn(open).join().unwrap())
}

#[test] // S62
fn a_user_with_too_many_open_files_is_refused_alone_and_what_is_open_works() {
    in_private_namespace(|| {
        let plenty = Rlimit { current: Some(4 * LIMIT), maximum: rustix::process::getrlimit(Resource::Nofile).maximum };
        setrlimit(Resource::Nofile, plenty).unwrap();
        let bench = Bench::new();
        fs::set_permissions(bench.tree.root(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&bench.dir, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(bench.dir.join("old"), "old").unwrap();
        let _mounted = mount(&bench);
        let (files, error) = open_all(&bench, 7001);
        assert_eq!(error.raw_os_error(), Some(libc::ENFILE));
        assert!(files.len() as u64 > LIMIT * 4 / 5, "{} files", files.len());
        assert!(!bench.dir.join(format!("u{}", files.len())).exists(), "what is refused is not created");
        // Others have theirs.
        assert_eq!(bench.read("old"), "old");
        fs::write(bench.dir.join("new"), "new").unwrap();
        assert_eq!(bench.read("new"), "new");
        assert!(ok(call(["status"])).contains("dirty"));
        // All that is open works.
        for (number, file) in files.iter().enumerate() {
            let text = number.to_string();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            let mut found = vec![0; text.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(found, text.as_bytes());
            assert_eq!(file.metadata().unwrap().len(), text.len() as u64);
            if number % 50 == 0 {
                file.sync_all().unwrap();
                file.set_len(text.len() as u64).unwrap();
                assert!(fs::read_dir(&bench.dir).unwrap().count() > files.len());
            }
        }
        let most = files.len();
        drop(files);
        ok(call(["drain", "--wait", bench.dir.to_str().unwrap()]));
        for number in 0..most {
            assert_eq!(bench.read(&format!("u{number}")), number.to_string());
        }
        ok(call(["umount", bench.dir.to_str().unwrap()]));
        assert_eq!(bench.read(&format!("u{}", most - 1)), (most - 1).to_string());
    });
}
