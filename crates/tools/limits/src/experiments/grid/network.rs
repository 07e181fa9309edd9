//! Nodes on one machine and the wires between them. Each node has a network namespace. There are two switches with a
//! trunk between them, and on every wire a token bucket in each direction (`tc`, tbf).
//!
//! ```text
//!   client 0 ---+                        +--- I/O node 0
//!   client 1 ---+ front ==== core ==== back --- I/O node 1
//!      ...   ---+                        +--- ...
//! ```

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::bed::Bed;
use super::super::place::{Place, wait};
use crate::failure::Failure;
use crate::workload::Launcher;

/// Addresses of the switches, at which the peers of the probe also listen.
const FRONT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 254);
const BACK: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 253);
const PEER: u16 = 7117;
/// Size of a bucket in bytes, and the longest wait of a packet in front of it in seconds. The wait covers all data that
/// the processes of a cell have in progress.
///
/// The networks of such clusters delay a sender and drop nothing. With a buffer of 0.1 s, 32 simultaneous replies to
/// one client lost a third of their packets. The last replies then came only after TCP timeouts, each twice as long as
/// the previous one.
const BURST: u64 = 32 << 10;
const WAIT: f64 = 2.0;

/// One wire: the places of its two ends, and the names of the interfaces.
#[derive(Debug, Clone)]
pub struct Wire {
    near: (Place, String),
    far: (Place, String),
}

impl Wire {
    /// Limits the rate in each direction to `rate` bytes per second, including headers.
    pub fn cap(&self, rate: f64) -> Result<(), Failure> {
        for (place, interface) in [&self.near, &self.far] {
            let bits = (rate * 8.0).round();
            place.script(&[format!(
                "tc qdisc replace dev {interface} root tbf rate {bits}bit burst {BURST}b latency {:.0}ms",
                WAIT * 1e3
            )])?;
        }
        Ok(())
    }

    /// Returns the bytes that have passed so far: towards the storage, and back.
    pub fn passed(&self) -> Result<[u64; 2], Failure> {
        let (place, interface) = &self.near;
        let [received, sent] = place.passed(interface)?;
        Ok(if interface == PORT_OF_IO { [received, sent] } else { [sent, received] })
    }
}

/// Names of a node's interface: on a client, and on an I/O node. Bytes received on the latter flow towards the storage.
const PORT: &str = "eth0";
const PORT_OF_IO: &str = "io0";
const TRUNK: &str = "trunk";

pub struct Network {
    pub clients: Vec<Place>,
    pub io_nodes: Vec<Place>,
    pub client_links: Vec<Wire>,
    pub io_links: Vec<Wire>,
    pub core: Wire,
    pub front: Place,
}

impl Network {
    /// Creates nodes and wires without rate limits. `keep` is a directory for the switches' files.
    pub fn new(bed: &mut Bed, keep: &Path, clients: u64, io_nodes: u64) -> Result<Network, Failure> {
        let [front, back] = [bed.network(&keep.join("front"))?, bed.network(&keep.join("back"))?];
        let clients = (0..clients).map(|_| node(bed, true)).collect::<Result<Vec<_>, _>>()?;
        let io_nodes = (0..io_nodes).map(|_| node(bed, false)).collect::<Result<Vec<_>, _>>()?;
        for (switch, address) in [(&front, FRONT), (&back, BACK)] {
            switch.script(&["ip link add bridge type bridge".to_string()])?;
            switch.up("bridge", address)?;
        }
        let behind = back.file();
        front.script(&[format!("ip link add {TRUNK} type veth peer name {TRUNK} netns {}", behind.display())])?;
        for switch in [&front, &back] {
            switch.script(&[format!("ip link set {TRUNK} master bridge up")])?;
        }
        let core = Wire { near: (front.clone(), TRUNK.to_string()), far: (back.clone(), TRUNK.to_string()) };
        let wire = |switch: &Place,
                    node: &Place,
                    interface: &str,
                    number: usize,
                    address: Ipv4Addr|
         -> Result<Wire, Failure> {
            let Place::Node(process) = node else { return Err(Failure::defect("a node is a node")) };
            let far = format!("to{number}");
            switch.script(&[
                format!("ip link add {far} type veth peer name {interface} netns {process}"),
                format!("ip link set {far} master bridge up"),
            ])?;
            node.up(interface, address)?;
            Ok(Wire { near: (node.clone(), interface.to_string()), far: (switch.clone(), far) })
        };
        let each = |nodes: &[Place], switch: &Place, interface: &str, address: fn(usize) -> Ipv4Addr| {
            let wires = nodes.iter().enumerate();
            wires.map(|(at, node)| wire(switch, node, interface, at, address(at))).collect::<Result<Vec<_>, _>>()
        };
        let client_links = each(&clients, &front, PORT, |at| Ipv4Addr::new(10, 78, 0, 1 + at as u8))?;
        let io_links = each(&io_nodes, &back, PORT_OF_IO, io_node)?;
        let launcher = Launcher::own()?;
        for (switch, address) in [(&front, FRONT), (&back, BACK)] {
            let mut peer = switch.command(launcher.program());
            peer.args(launcher.stage("peer")).arg("--listen").arg(format!("{address}:{PEER}"));
            bed.start(peer.stdout(Stdio::null()))?;
        }
        Ok(Network { clients, io_nodes, client_links, io_links, core, front })
    }

    /// Returns the addresses of the peers at the clients' switch and at the I/O nodes' switch.
    pub fn peers() -> [SocketAddr; 2] {
        [(FRONT, PEER).into(), (BACK, PEER).into()]
    }
}

pub fn io_node(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, 101 + number as u8)
}

/// Creates a network namespace, and for a client a mount namespace, kept by a sleeping process.
fn node(bed: &mut Bed, with_mounts: bool) -> Result<Place, Failure> {
    let mut command = Command::new("unshare");
    command.arg("--net").stdin(Stdio::null());
    if with_mounts {
        // State that its agents keep under /run ends with the namespace.
        let script = "mount -t tmpfs none /run && exec sleep infinity";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    } else {
        command.args(["sleep", "infinity"]);
    }
    let process = bed.start(&mut command)?;
    let runs = || fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name == "sleep\n");
    wait("a node", || "it does not come up".to_string(), runs)?;
    Ok(Place::Node(process))
}

#[cfg(test)]
mod tests {
    use super::super::tests::grid;
    use super::*;

    #[test]
    fn nothing_is_dropped_before_a_wire_whoever_answers_whom_at_once() {
        let grid = grid();
        let most = |counts: &[u64]| counts.iter().max().copied().unwrap() as f64;
        // Includes headers.
        let of_one = most(&grid.processes) * grid.transfer as f64 * 1.05;
        let of_all = of_one * most(&grid.groups);
        for (who, bytes, rate) in [
            ("a client", of_one, grid.client_link),
            ("the trunk", of_all, grid.core),
            ("an I/O node", of_all / grid.io_nodes as f64, grid.io_link),
        ] {
            assert!(bytes / rate < WAIT, "{who} is sent {bytes} bytes at {rate} a second");
        }
    }
}
