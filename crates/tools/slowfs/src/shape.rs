//! The model in real time: the same slowness for the same arguments, whatever the machine is.

use std::fmt::Write;
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
    Fsync,
    Readdir,
    Statfs,
    Xattr,
    Allocate,
    Seek,
}

const CALLS: [(Call, &str); 19] = [
    (Call::Lookup, "lookup"),
    (Call::Getattr, "getattr"),
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
    (Call::Fsync, "fsync"),
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
    bed: Mutex<Bed>,
    faults: Faults,
    client_is: ClientIs,
}

impl Shape {
    pub fn new(spec: Spec, faults: &[Fault], client_is: ClientIs) -> Shape {
        let faults = Faults::new(faults, spec.seed);
        Shape { origin: Instant::now(), bed: Mutex::new(Bed::new(spec)), faults, client_is }
    }

    pub fn now(&self) -> Ns {
        self.origin.elapsed().as_nanos() as Ns
    }

    /// Meets the fault points of an operation that begins.
    pub fn fault(&self, call: Call) -> Result<(), Errno> {
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

    /// A line for each resource, with names of what follows; then how often each fault point was hit.
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
        text
    }
}

/// The parent of a process that is asking us and therefore alive.
fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
