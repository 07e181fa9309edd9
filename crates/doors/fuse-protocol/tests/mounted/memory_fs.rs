//! File system of one directory in memory, with a few files that misbehave on purpose.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fuse_protocol::*;
use types::Timestamp;

const ROOT: NodeId = 1;
const VALID: Duration = Duration::from_secs(1);

/// Name of a file whose reads wait until they are interrupted.
pub const BLOCKED: &str = "blocked";
/// Name of a file whose reads panic in the handler.
pub const PANIC: &str = "panic";
/// Name of a file that contains the counts of requests, one `name number` per line.
pub const COUNTS: &str = "counts";
/// Name of a file that is opened with passthrough to the lower file.
pub const PASSTHROUGH: &str = "passthrough";

#[derive(Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Owner of the flock.
    locked_by: Option<u64>,
    waiters: VecDeque<(u64, Parked)>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeId, Node>,
    names: BTreeMap<OsString, NodeId>,
}

#[derive(Default)]
pub struct MemoryFs {
    state: Mutex<State>,
    reads: AtomicU64,
    writes: AtomicU64,
    blocked: AtomicU64,
    lock_waiters: AtomicU64,
    lower: PathBuf,
    pub notifier: OnceLock<Notifier>,
}

impl MemoryFs {
    pub fn new(lower: PathBuf) -> MemoryFs {
        let fs = MemoryFs { lower, ..MemoryFs::default() };
        {
            let mut state = fs.state.lock().unwrap();
            let attr = Attr { ino: ROOT, mode: libc::S_IFDIR | 0o755, nlink: 2, ..Attr::default() };
            state.nodes.insert(ROOT, Node { attr, ..Node::default() });
        }
        for name in [BLOCKED, PANIC, COUNTS, PASSTHROUGH] {
            let node = fs.add(OsStr::new(name), 0o644).unwrap().node;
            fs.state.lock().unwrap().nodes.get_mut(&node).unwrap().attr.size = 4096;
        }
        fs
    }

    fn add(&self, name: &OsStr, mode: u32) -> Result<Entry, Errno> {
        let mut state = self.state.lock().unwrap();
        if state.names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let node = state.nodes.keys().next_back().unwrap() + 1;
        let attr = Attr { ino: node, mode: libc::S_IFREG | mode, nlink: 1, blksize: 4096, ..Attr::default() };
        state.nodes.insert(node, Node { attr, ..Node::default() });
        state.names.insert(name.to_owned(), node);
        Ok(entry(node, attr))
    }

    fn name_of(&self, node: NodeId) -> OsString {
        let state = self.state.lock().unwrap();
        state.names.iter().find(|(_, id)| **id == node).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    fn with<T>(&self, node: NodeId, act: impl FnOnce(&mut Node) -> T) -> Result<T, Errno> {
        self.state.lock().unwrap().nodes.get_mut(&node).map(act).ok_or(Errno::ESTALE)
    }

    fn counts(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        format!(
            "reads {}\nwrites {}\nblocked {}\nlock_waiters {}\n",
            count(&self.reads),
            count(&self.writes),
            count(&self.blocked),
            count(&self.lock_waiters)
        )
    }
}

fn entry(node: NodeId, attr: Attr) -> Entry {
    Entry { node, attr, entry_valid: VALID, attr_valid: VALID }
}

impl Filesystem for MemoryFs {
    fn init(&self, kernel: &KernelConfig) -> Result<InitReply, Errno> {
        use init_flags::*;
        assert!(kernel.minor >= 31);
        let flags = FLOCK_LOCKS | DO_READDIRPLUS | READDIRPLUS_AUTO | ATOMIC_O_TRUNC | PARALLEL_DIROPS | ASYNC_READ;
        Ok(InitReply { flags, max_stack_depth: 2, ..InitReply::default() })
    }

    fn lookup(&self, _: &Request, _: NodeId, name: &OsStr) -> Result<Entry, Errno> {
        let state = self.state.lock().unwrap();
        let node = *state.names.get(name).ok_or(Errno::ENOENT)?;
        Ok(entry(node, state.nodes[&node].attr))
    }

    fn getattr(&self, _: &Request, node: NodeId, _: Option<Handle>) -> Result<AttrReply, Errno> {
        self.with(node, |node| AttrReply { attr: node.attr, valid: VALID })
    }

    fn statx(
        &self,
        req: &Request,
        node: NodeId,
        handle: Option<Handle>,
    ) -> Result<(AttrReply, Option<Timestamp>), Errno> {
        Ok((self.getattr(req, node, handle)?, Some(Timestamp { seconds: -3, nanos: 7 })))
    }

    fn setattr(&self, _: &Request, node: NodeId, set: &SetAttr) -> Result<AttrReply, Errno> {
        self.with(node, |node| {
            if let Some(size) = set.size {
                node.data.resize(size as usize, 0);
                node.attr.size = size;
            }
            node.attr.mode = set.mode.unwrap_or(node.attr.mode);
            AttrReply { attr: node.attr, valid: VALID }
        })
    }

    fn create(
        &self,
        _: &Request,
        _: NodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
    ) -> Result<(Entry, OpenReply), Errno> {
        Ok((self.add(name, mode & 0o7777 & !umask)?, OpenReply::default()))
    }

    fn unlink(&self, _: &Request, _: NodeId, name: &OsStr) -> Result<(), Errno> {
        self.state.lock().unwrap().names.remove(name).map(|_| ()).ok_or(Errno::ENOENT)
    }

    fn rename(&self, _: &Request, _: NodeId, name: &OsStr, _: NodeId, new: &OsStr, flags: u32) -> Result<(), Errno> {
        let mut state = self.state.lock().unwrap();
        if flags & libc::RENAME_NOREPLACE != 0 && state.names.contains_key(new) {
            return Err(Errno::EEXIST);
        }
        let node = state.names.remove(name).ok_or(Errno::ENOENT)?;
        state.names.insert(new.to_owned(), node);
        Ok(())
    }

    fn open(&self, _: &Request, node: NodeId, flags: i32, _: bool) -> Result<OpenReply, Errno> {
        let name = self.name_of(node);
        if name == PASSTHROUGH {
            let lower = File::options().read(true).write(true).open(&self.lower)?;
            let id = self.notifier.get().unwrap().backing_open(lower.as_fd())?;
            return Ok(OpenReply { handle: id.0 as u64, flags: 0, backing: Some(id) });
        }
        if flags & libc::O_TRUNC != 0 {
            self.with(node, |node| {
                node.data.clear();
                node.attr.size = 0;
            })?;
        }
        let direct = [BLOCKED, PANIC, COUNTS].iter().any(|special| name == *special);
        Ok(OpenReply { flags: if direct { fopen::DIRECT_IO } else { 0 }, ..OpenReply::default() })
    }

    fn read(&self, req: &Request, node: NodeId, _: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let name = self.name_of(node);
        let counts;
        let mut state;
        let data = if name == COUNTS {
            counts = self.counts();
            counts.as_bytes()
        } else if name == PANIC {
            panic!("as asked");
        } else if name == BLOCKED {
            self.blocked.fetch_add(1, Ordering::SeqCst);
            while !req.interrupted() {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.blocked.fetch_sub(1, Ordering::SeqCst);
            return Err(Errno::EINTR);
        } else {
            self.reads.fetch_add(1, Ordering::SeqCst);
            state = self.state.lock().unwrap();
            state.nodes.get_mut(&node).ok_or(Errno::ESTALE)?.data.as_slice()
        };
        let rest = data.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write(&self, _: &Request, node: NodeId, _: Handle, at: u64, data: &[u8], _: WriteFlags) -> Result<usize, Errno> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let at = at as usize;
        self.with(node, |node| {
            node.data.resize(node.data.len().max(at + data.len()), 0);
            node.data[at..at + data.len()].copy_from_slice(data);
            node.attr.size = node.data.len() as u64;
            data.len()
        })
    }

    fn release(&self, _: &Request, node: NodeId, handle: Handle, _: i32, flock_owner: Option<u64>) {
        if self.name_of(node) == PASSTHROUGH {
            self.notifier.get().unwrap().backing_close(BackingId(handle as i32)).unwrap();
        }
        if let Some(owner) = flock_owner {
            self.unlock(node, owner);
        }
    }

    fn opendir(&self, _: &Request, _: NodeId, _: i32) -> Result<OpenReply, Errno> {
        Ok(OpenReply::default())
    }

    fn readdir(
        &self,
        _: &Request,
        _: NodeId,
        _: Handle,
        offset: u64,
        plus: bool,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        let state = self.state.lock().unwrap();
        for (at, (name, node)) in state.names.iter().enumerate().skip(offset as usize) {
            let (next, attr) = (at as u64 + 1, state.nodes[node].attr);
            let taken = if plus {
                sink.add_plus(&entry(*node, attr), next, name)
            } else {
                sink.add(*node, next, u32::from(libc::DT_REG), name)
            };
            if !taken {
                break;
            }
        }
        Ok(())
    }

    fn setxattr(&self, _: &Request, node: NodeId, name: &CStr, value: &[u8], _: i32, _: bool) -> Result<(), Errno> {
        self.with(node, |node| _ = node.xattrs.insert(name.to_bytes().to_vec(), value.to_vec()))
    }

    fn getxattr(&self, _: &Request, node: NodeId, name: &CStr) -> Result<Vec<u8>, Errno> {
        self.with(node, |node| node.xattrs.get(name.to_bytes()).cloned())?.ok_or(Errno::ENODATA)
    }

    fn setlk(&self, _: &Request, node: NodeId, _: Handle, lock: LockArgs, wait: bool, reply: Parked) {
        if lock.kind == libc::F_UNLCK {
            self.unlock(node, lock.owner);
            return reply.done();
        }
        let mut state = self.state.lock().unwrap();
        let held = state.nodes.get_mut(&node).unwrap();
        match held.locked_by {
            None => held.locked_by = Some(lock.owner),
            Some(_) if wait => {
                self.lock_waiters.fetch_add(1, Ordering::SeqCst);
                held.waiters.push_back((lock.owner, reply));
                return;
            }
            Some(_) => return reply.error(Errno::EAGAIN),
        }
        reply.done();
    }
}

impl MemoryFs {
    fn unlock(&self, node: NodeId, owner: u64) {
        let mut state = self.state.lock().unwrap();
        let Some(held) = state.nodes.get_mut(&node).filter(|node| node.locked_by == Some(owner)) else { return };
        held.locked_by = None;
        if let Some((next, reply)) = held.waiters.pop_front() {
            held.locked_by = Some(next);
            self.lock_waiters.fetch_sub(1, Ordering::SeqCst);
            reply.done();
        }
    }
}

/// Mounts at `dir` and serves to the end. Returns how the session ended.
pub fn serve(dir: &std::path::Path, lower: PathBuf, threads: ThreadCounts) -> SessionEnd {
    let device = mount::device().unwrap();
    let options = mount::MountOptions {
        source: "memory".into(),
        subtype: "memory".into(),
        allow_other: true,
        default_permissions: true,
        read_only: false,
        flags: mount::flags_of(File::open(dir).unwrap().as_fd()).unwrap().0,
        max_read: 0,
    };
    mount::mount(dir, device.as_fd(), &options).unwrap();
    let fs = Arc::new(MemoryFs::new(lower));
    let session = Session::new(Arc::clone(&fs), device, threads);
    fs.notifier.set(session.notifier()).unwrap();
    session.run().unwrap()
}
