//! Test stand: a directory, a burst buffer, and a process that serves one over the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, PolicyTable, WindowSettings};
use config::{Policy, PolicySet};
use file_cache::{FileCache, Settings};
use fuse_protocol::{Opcode, RequestCounts, mount};
use global_store::posix::{PosixStore, StoreOptions};
use models::DataStoreExt;
use namespace::{Exclusivity, Namespace};
use posix_namespace::PosixNamespace;
use rustix::mount::{OpenTreeFlags, UnmountFlags, mount_bind, open_tree, unmount};
use rustix::process::Signal;
use testkit::{PATIENCE, ProcessGuard, TempTree, kernel_has, wait_until};

use crate::exclusive_names::ExclusiveNames;

/// Environment variable that tells the serving process what to serve.
const SERVE: &str = "FUSE_TEST_SERVE";
const WITHOUT_PASSTHROUGH: &str = "FUSE_TEST_WITHOUT_PASSTHROUGH";
const WITHOUT_DIRECT_MMAP: &str = "FUSE_TEST_WITHOUT_DIRECT_MMAP";
const EXCLUSIVELY: &str = "FUSE_TEST_EXCLUSIVE";
const RULE: &str = "FUSE_TEST_RULE";
/// Name of the windows' session.
const SESSION: &str = "session";
const NODES_MAX: &str = "FUSE_TEST_NODES_MAX";
/// File that asks the server for its counts of requests, and the file with the answer.
const ASKED: &str = "count-requests";
const TOLD: &str = "requests-counted";
/// File that asks the server to end the exclusivity, and that it then removes.
const END: &str = "end-exclusivity";

/// Mounted directory. When dropped, it is unmounted and the server's end awaited.
pub struct Stand {
    tree: TempTree,
    server: ProcessGuard,
}

/// Setup of a stand.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Whether to give replicas to the kernel.
    pub passthrough: bool,
    /// Without passthrough: whether to bypass the page cache.
    pub direct_mmap: bool,
    /// Most nodes that the kernel may know.
    pub nodes_max: Option<usize>,
    /// A rule of the policy, `KEY=VALUE`.
    pub rule: Option<&'static str>,
    /// Whether nobody else changes what is below the top.
    pub exclusive: bool,
}

pub const PASSTHROUGH: How =
    How { passthrough: true, direct_mmap: true, nodes_max: None, rule: None, exclusive: false };
/// Nobody else changes anything below the top.
pub const EXCLUSIVE: How = How { exclusive: true, ..PASSTHROUGH };
pub const DIRECT: How = How { passthrough: false, ..PASSTHROUGH };
/// Setup as on a kernel before 6.6.
pub const CACHED: How = How { direct_mmap: false, ..DIRECT };

impl How {
    /// Returns whether this kernel supports the setup. If not, files are served as on old kernels.
    pub fn is_served(&self) -> bool {
        (!self.passthrough || kernel_has((6, 9), "passthrough"))
            && (!self.direct_mmap || kernel_has((6, 6), "a mapping of direct files"))
    }
}

impl Stand {
    pub fn new(how: How) -> Stand {
        let tree = TempTree::new();
        tree.mount_tmpfs("data", 256 << 20);
        tree.mount_tmpfs("burst-buffer", 256 << 20);
        std::fs::set_permissions(tree.path("data"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::set_permissions(tree.root(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        mount_bind(tree.path("data"), tree.dir("below")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "stand::serve", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(SERVE, tree.root()).stdin(Stdio::null());
        if !how.passthrough {
            command.env(WITHOUT_PASSTHROUGH, "1");
        }
        if !how.direct_mmap {
            command.env(WITHOUT_DIRECT_MMAP, "1");
        }
        if how.exclusive {
            command.env(EXCLUSIVELY, "1");
        }
        if let Some(rule) = how.rule {
            command.env(RULE, rule);
        }
        if let Some(most) = how.nodes_max {
            command.env(NODES_MAX, most.to_string());
        }
        let server = ProcessGuard::spawn(&mut command);
        let mut stand = Stand { tree, server };
        wait_until("the mount", PATIENCE, || {
            assert!(stand.server.ended().is_none(), "the server ended");
            stand.tree.path("ready").exists()
        });
        stand
    }

    /// Returns the directory as programs see it, or a path in it.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.tree.path("data").join(relative)
    }

    /// Returns a path below, not through the agent.
    pub fn below(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.tree.path("below").join(relative)
    }

    /// Returns the socket at which programs register for windows.
    pub fn window_socket(&self) -> PathBuf {
        self.tree.path("windows").join(SESSION).join("socket")
    }

    /// Returns a path that is not accelerated.
    pub fn beside(&self, relative: &str) -> PathBuf {
        self.tree.path(relative)
    }

    /// Returns how many requests of each kind the server has had, once no more come.
    pub fn requests(&self) -> BTreeMap<Opcode, u64> {
        let told = self.tree.path(TOLD);
        let ask = || {
            let _ = std::fs::remove_file(&told);
            std::fs::write(self.tree.path(ASKED), b"").unwrap();
            wait_until("the counts", PATIENCE, || told.exists());
            std::fs::read_to_string(&told).unwrap()
        };
        let (mut before, mut now) = (ask(), ask());
        while before != now {
            before = std::mem::replace(&mut now, ask());
        }
        let pair = |line: &str| {
            let (number, count) = line.split_once(' ')?;
            Some((Opcode::of(number.parse().ok()?)?, count.parse().ok()?))
        };
        now.lines().map(|line| pair(line).unwrap()).collect()
    }

    /// Ends the exclusivity, and returns when the kernel was told to forget.
    pub fn end_exclusivity(&self) {
        std::fs::write(self.tree.path(END), b"").unwrap();
        wait_until("the end of the exclusivity", PATIENCE, || !self.tree.path(END).exists());
    }

    /// Stops the server, as if its machine were under load.
    pub fn pause(&self) {
        self.server.signal(Signal::STOP);
    }

    /// Continues the server.
    pub fn resume(&self) {
        self.server.signal(Signal::CONT);
    }

    /// Returns the number of descriptors that the server has open.
    pub fn server_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.server.pid())).unwrap().count()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = unmount(self.path(""), UnmountFlags::DETACH | UnmountFlags::FORCE);
            return;
        }
        wait_until("unmounting", PATIENCE, || unmount(self.path(""), UnmountFlags::empty()).is_ok());
        let status = self.server.wait(PATIENCE);
        assert!(status.success(), "the server ended with {status}");
        unmount(self.tree.path("below"), UnmountFlags::DETACH).unwrap();
    }
}

/// Not a test: runs the serving process.
#[test]
#[ignore = "the server of the other tests"]
fn serve() {
    let Some(root) = std::env::var_os(SERVE).map(PathBuf::from) else { return };
    let data = root.join("data");
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let below: OwnedFd = open_tree(rustix::fs::CWD, &data, clone).unwrap();
    let (flags, _) = mount::flags_of(below.as_fd()).unwrap();
    let store = PosixStore::new(below, StoreOptions::default()).unwrap();
    let cache = FileCache::open(Settings::new(root.join("burst-buffer"), Arc::new(store.clone()), "test")).unwrap();
    let rule = std::env::var(RULE).ok();
    let policies = PolicyTable::new(PolicySet::parse(rule.as_deref()).unwrap().apply(Policy::default()));
    let (names, exclusivity) = (PosixNamespace::new(store).unwrap(), Arc::new(Exclusivity::default()));
    let names: Arc<dyn Namespace> = match std::env::var_os(EXCLUSIVELY) {
        Some(_) => Arc::new(ExclusiveNames::new(names, exclusivity.clone())),
        None => Arc::new(names),
    };
    let agent = Arc::new(Agent::new(Arc::new(cache.clone()), names, policies).unwrap());
    let windows = WindowSettings::new(root.join("windows"), root.join("burst-buffer")).unwrap();
    agent.serve_windows(WindowSettings { session: SESSION.into(), ..windows }).unwrap();
    let serves = agent.clone();
    let device = mount::device().unwrap();
    let options = mount::MountOptions {
        source: "test".into(),
        subtype: "forebay".into(),
        allow_other: true,
        default_permissions: true,
        read_only: false,
        flags,
        max_read: 0,
    };
    mount::mount(&data, device.as_fd(), &options).unwrap();
    let options = fuse::DoorOptions {
        passthrough: std::env::var_os(WITHOUT_PASSTHROUGH).is_none(),
        direct_mmap: std::env::var_os(WITHOUT_DIRECT_MMAP).is_none(),
        nodes_max: std::env::var(NODES_MAX).ok().and_then(|most| most.parse().ok()),
        ..fuse::DoorOptions::default()
    };
    let session = Arc::new(fuse::serve(agent, device, options));
    tell_requests(root.clone(), session.requests());
    end_when_asked(root.join(END), exclusivity, session.clone());
    std::fs::write(root.join("ready"), b"").unwrap();
    session.run().unwrap();
    serves.stop_windows();
    let stuck = cache.drain_all();
    assert!(stuck.is_empty(), "{stuck:?}");
    cache.shutdown();
}

/// Writes the counts of requests into a file whenever another file asks for them.
fn tell_requests(root: PathBuf, requests: Arc<RequestCounts>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(10));
            if std::fs::remove_file(root.join(ASKED)).is_ok() {
                let lines: String =
                    requests.all().iter().map(|(kind, count)| format!("{} {count}\n", kind.number())).collect();
                std::fs::write(root.join("counts"), lines).unwrap();
                std::fs::rename(root.join("counts"), root.join(TOLD)).unwrap();
            }
        }
    });
}

/// Ends the exclusivity when a file asks for it.
fn end_when_asked(asked: PathBuf, exclusivity: Arc<Exclusivity>, session: Arc<fuse::MountedAgent>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(10));
            if asked.exists() {
                exclusivity.end();
                session.forget_exclusive();
                std::fs::remove_file(&asked).unwrap();
            }
        }
    });
}

/// Returns a path that leads to the descriptor.
pub fn proc_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
