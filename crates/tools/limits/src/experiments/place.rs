//! The network namespaces of a bed, and what is started and waited for in them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::bounds::PATIENCE;
use crate::counters::Counters;
use crate::failure::{Failure, failed};

/// Pause between two checks whether something has started.
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Network namespace of a node, identified by the process that keeps it. A client also has a mount namespace.
    Node(u32),
    /// Network namespace of a switch, identified by the file that keeps it.
    Switch(PathBuf),
}

impl Place {
    /// Returns a command that runs there, with the node's mounts.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        match self {
            Place::Node(process) => command.args(["--net", "--mount", "--target"]).arg(process.to_string()),
            Place::Switch(file) => command.arg(format!("--net={}", file.display())),
        };
        command.arg(program).stdin(Stdio::null());
        command
    }

    /// Returns the name for `forebay limits sweep --hosts`.
    pub fn host(&self) -> String {
        match self {
            Place::Node(process) => format!("pid:{process}"),
            Place::Switch(file) => file.display().to_string(),
        }
    }

    /// Returns the file by which the network namespace is entered.
    pub fn file(&self) -> PathBuf {
        match self {
            Place::Node(process) => PathBuf::from(format!("/proc/{process}/ns/net")),
            Place::Switch(file) => file.clone(),
        }
    }

    /// Runs a function in this network namespace, on a separate thread.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let entered = || {
            let network = File::open(self.file())?;
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            act()
        };
        let outcome = thread::scope(|scope| scope.spawn(entered).join());
        outcome.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    }

    /// Returns the bytes that an interface has received and sent so far.
    pub fn passed(&self, interface: &str) -> Result<[u64; 2], Failure> {
        let counters = self.inside(Counters::of_this_thread).map_err(|error| failed("a network", error))?;
        let passed = counters.interfaces.get(interface).copied().unwrap_or_default();
        Ok([passed.received_bytes, passed.sent_bytes])
    }

    /// Returns the mount table that programs there see.
    pub fn mounts(&self) -> String {
        match self {
            Place::Node(process) => fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default(),
            Place::Switch(_) => String::new(),
        }
    }

    /// Gives an interface its address, and sets it up beside loopback.
    pub fn up(&self, interface: &str, address: Ipv4Addr) -> Result<(), Failure> {
        self.script(&[
            "ip link set lo up".to_string(),
            format!("ip address add {address}/24 dev {interface}"),
            format!("ip link set {interface} up"),
        ])
    }

    /// Runs shell commands there, until one fails.
    pub fn script(&self, lines: &[String]) -> Result<(), Failure> {
        let said = self.command("sh").args(["-e", "-c", &lines.join("\n")]).output();
        let said = said.map_err(|error| failed("nsenter (util-linux)", error))?;
        if said.status.success() {
            return Ok(());
        }
        Err(failed("the network (iproute2)", String::from_utf8_lossy(&said.stderr).trim()))
    }
}

/// Waits until something is there. Errors: `what`, with what it `said`, if it is not there in time.
pub fn wait(what: &str, said: impl Fn() -> String, is_there: impl Fn() -> bool) -> Result<(), Failure> {
    let began = Instant::now();
    while !is_there() {
        if began.elapsed() > PATIENCE {
            return Err(failed(what, said().trim()));
        }
        thread::sleep(POLL);
    }
    Ok(())
}
