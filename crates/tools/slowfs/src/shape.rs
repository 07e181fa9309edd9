//! The model in real time: the same slowness for the same arguments, whatever the machine is.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuse_protocol::{Errno, Handle, Request};
use parking_lot::Mutex;

use crate::faults::{Fault, Faults};
use crate::model::{Bed, ClientId, FileId, Ns, Operation, Spec, Transfer};

/// What tells clients apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientIs {
    /// Each open description is one
    Open,
    /// The process that opened
    Process,
    /// That process's parent: a group of `forebay limits sweep`, a shell
    Parent,
    /// The user
    User,
}

/// Operations, as fault points name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Lookup,
    Getattr,
    Statx,
    Setattr,
    Readlink,
    Make,
    Remove,
    Rename,
    Link,
    Open,
    Create,
    Read,
    Write,
    Flush,
    Release,
    Fsync,
    Opendir,
    Readdir,
    Statfs,
    Xattr,
    Allocate,
    Seek,
}

const CALLS: [(Call, &str); 22] = [
    (Call::Lookup, "lookup"),
    (Call::Getattr, "getattr"),
    (Call::Statx, "statx"),
    (Call::Setattr, "setattr"),
    (Call::Readlink, "readlink"),
    (Call::Make, "make"),
    (Call::Remove, "remove"),
    (Call::Rename, "rename"),
    (Call::Link, "link"),
    (Call::Open, "open"),
    (Call::Create, "create"),
    (Call::Read, "read"),
    (Call::Write, "write"),
    (Call::Flush, "flush"),
    (Call::Release, "release"),
    (Call::Fsync, "fsync"),
    (Call::Opendir, "opendir"),
    (Call::Readdir, "readdir"),
    (Call::Statfs, "statfs"),
    (Call::Xattr, "xattr"),
    (Call::Allocate, "allocate"),
    (Call::Seek, "seek"),
];

impl Call {
    pub fn named(name: &str) -> Option<Call> {
        CALLS.iter().find(|(_, known)| *known == name).map(|(call, _)| *call)
    }

    pub fn names() -> String {
        CALLS.map(|(_, name)| name).join(", ")
    }

    /// Whether a fault point for `named` is one for this call too: `getattr` means any question for attributes, and `readdir` the
    /// opening of a directory as well.
    pub fn is_one_of(self, named: Call) -> bool {
        self == named || matches!((self, named), (Call::Statx, Call::Getattr) | (Call::Opendir, Call::Readdir))
    }

    fn operation(self) -> Operation {
        match self {
            Call::Flush | Call::Fsync | Call::Allocate | Call::Seek | Call::Read | Call::Write => Operation::Message,
            _ => Operation::Metadata,
        }
    }
}

/// What a read or write moved.
pub struct Moved {
    pub file: FileId,
    pub handle: Handle,
    pub client: ClientId,
    pub offset: u64,
    pub bytes: u64,
}

/// Keeps the promise.
pub struct Shape {
    origin: Instant,
    /// Requests of each kind so far, in the order of [`CALLS`].
    requests: [AtomicU64; CALLS.len()],
    bed: Mutex<Bed>,
    faults: Faults,
    client_is: ClientIs,
}

impl Shape {
    pub fn new(spec: Spec, faults: &[Fault], client_is: ClientIs) -> Shape {
        let faults = Faults::new(faults, spec.seed);
        Shape {
            origin: Instant::now(),
            requests: Default::default(),
            bed: Mutex::new(Bed::new(spec)),
            faults,
            client_is,
        }
    }

    pub fn now(&self) -> Ns {
        self.origin.elapsed().as_nanos() as Ns
    }

    /// Counts a request.
    pub fn count(&self, call: Call) {
        self.requests[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation that begins, and meets its fault points.
    pub fn begin(&self, call: Call) -> Result<(), Errno> {
        self.count(call);
        let longer = self.faults.meet(call)?;
        if !longer.is_zero() {
            self.sleep_until(self.now() + longer.as_nanos() as Ns);
        }
        Ok(())
    }

    /// Waits until an operation that began at `begun` may end. Holds no lock while it sleeps.
    pub fn wait(&self, begun: Ns, call: Call) {
        let end = self.bed.lock().operate(begun, call.operation());
        self.sleep_until(end);
    }

    /// The same for a read or write.
    pub fn wait_for(&self, begun: Ns, call: Call, moved: Moved) {
        let Moved { file, handle: stream, client, offset, bytes } = moved;
        let write = call == Call::Write;
        let transfer = Operation::Transfer(Transfer { file, stream, client, offset, bytes, write });
        // The end of a file and a failed operation move nothing, but a message they are.
        let operation = if bytes == 0 { Operation::Message } else { transfer };
        let end = self.bed.lock().operate(begun, operation);
        self.sleep_until(end);
    }

    fn sleep_until(&self, end: Ns) {
        while let Some(rest) = end.checked_sub(self.now()).filter(|rest| *rest > 0) {
            std::thread::sleep(Duration::from_nanos(rest));
        }
    }

    pub fn closed(&self, file: FileId, handle: Handle, client: ClientId) {
        self.bed.lock().closed(file, handle, client);
    }

    /// Whose open this is. Handles are not known yet when a file is opened: the request's number, which is as unique.
    pub fn client(&self, req: &Request) -> ClientId {
        match self.client_is {
            ClientIs::Open => req.unique,
            ClientIs::Process => req.pid.into(),
            ClientIs::Parent => parent(req.pid).unwrap_or(req.pid).into(),
            ClientIs::User => req.uid.into(),
        }
    }

    /// A line for each resource, with names of what follows; then how often each fault point was hit; then how many requests of each
    /// kind have come.
    pub fn statistics(&self) -> String {
        let now = self.now();
        let uses = self.bed.lock().uses(now);
        let mut text = format!("now_ns {now}\n");
        for told in uses {
            let _ = writeln!(text, "{told}");
        }
        for (number, hits) in self.faults.hits().enumerate() {
            let _ = writeln!(text, "fault {number} hits {hits}");
        }
        text.push_str("requests");
        for ((_, name), count) in CALLS.iter().zip(&self.requests) {
            let _ = write!(text, " {name} {}", count.load(Ordering::Relaxed));
        }
        text.push('\n');
        text
    }
}

/// The parent of a process that is asking us and therefore alive.
fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_under_their_own_names() {
        for (at, (call, name)) in CALLS.iter().enumerate() {
            assert_eq!((*call as usize, Call::named(name)), (at, Some(*call)));
        }
    }
}
