//! The model in real time: equal delays for equal options, on any machine.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fuse_protocol::{Errno, Handle, Request};
use parking_lot::Mutex;

use crate::faults::{Fault, Faults};
use crate::model::{Bed, ClientId, FileId, Ns, Operation, Spec, Transfer};

/// Definition of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// Kinds of operations, as fault points name them: in small letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

const CALLS: usize = Call::Seek as usize + 1;

impl Call {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }

    pub fn names() -> String {
        Call::value_variants().iter().map(|call| call.name()).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether a fault point for `named` applies to this call. `getattr` includes any request for attributes,
    /// and `readdir` includes opening a directory.
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

pub struct Moved {
    pub file: FileId,
    pub handle: Handle,
    pub client: ClientId,
    pub offset: u64,
    pub bytes: u64,
}

pub struct Shape {
    origin: Instant,
    /// Number of requests of each kind, in the order of [`Call`].
    requests: [AtomicU64; CALLS],
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

    pub fn count(&self, call: Call) {
        self.requests[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation that begins, and applies its fault points.
    pub fn begin(&self, call: Call) -> Result<(), Errno> {
        self.count(call);
        let longer = self.faults.meet(call)?;
        if !longer.is_zero() {
            self.sleep_until(self.now() + longer.as_nanos() as Ns);
        }
        Ok(())
    }

    /// Waits until an operation that began at `begun` may end. Holds no lock while sleeping.
    pub fn wait(&self, begun: Ns, call: Call) {
        let end = self.bed.lock().operate(begun, call.operation());
        self.sleep_until(end);
    }

    /// Waits like [`Shape::wait`], for a read or write.
    pub fn wait_for(&self, begun: Ns, call: Call, moved: Moved) {
        let Moved { file, handle: stream, client, offset, bytes } = moved;
        let write = call == Call::Write;
        let transfer = Operation::Transfer(Transfer { file, stream, client, offset, bytes, write });
        // A read at the end of a file or a failed operation moves no data but is still a message.
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

    /// Returns the client that opens a file. With [`ClientIs::Open`] this is the request's number, because the handle
    /// does not exist yet.
    pub fn client(&self, req: &Request) -> ClientId {
        match self.client_is {
            ClientIs::Open => req.unique,
            ClientIs::Process => req.pid.into(),
            ClientIs::Parent => parent(req.pid).unwrap_or(req.pid).into(),
            ClientIs::User => req.uid.into(),
        }
    }

    /// Returns the statistics as text: a line for each resource, then the hits of each fault point, then the number of
    /// requests of each kind.
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
        for (call, count) in Call::value_variants().iter().zip(&self.requests) {
            let _ = write!(text, " {} {}", call.name(), count.load(Ordering::Relaxed));
        }
        text.push('\n');
        text
    }
}

/// Returns the parent of a process. The process waits for our answer and is therefore alive.
fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_under_their_own_names() {
        assert_eq!(Call::value_variants().len(), CALLS);
        for (at, call) in Call::value_variants().iter().enumerate() {
            assert_eq!((*call as usize, Call::from_str(&call.name(), false)), (at, Ok(*call)));
        }
        assert!(Call::names().starts_with("lookup, getattr, statx, "), "{}", Call::names());
    }
}
