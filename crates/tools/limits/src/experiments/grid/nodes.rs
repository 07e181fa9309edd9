//! The test bed: a network of clients and I/O nodes.
//!
//! Each I/O node has a disk (a slowfs over memory) and runs `forebay serve` with its burst buffer on that disk. Each
//! client mounts every I/O node's directory (`forebay mount --names server`). Every byte and every name that a program
//! on a client uses crosses the wires.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::super::bed::{Bed, Slow};
use super::super::beside;
use super::Grid;
use super::network::{Network, failed, io_node};
use crate::bounds::PATIENCE;
use crate::failure::Failure;

const PORT: u16 = 4711;
/// Pause between two checks whether a server serves or a file system is mounted.
const POLL: Duration = Duration::from_millis(5);

/// Properties of the disks.
#[derive(Debug, Clone, Copy)]
pub struct Disk {
    /// Rate in bytes per second.
    pub rate: f64,
    /// Bytes that a cache acknowledges before they reach the disk.
    pub cheat: u64,
}

/// The complete bed.
pub struct Nodes {
    pub network: Network,
    pub disks: Vec<Slow>,
    /// Directory that the clients see, with a subdirectory for each I/O node.
    pub target: PathBuf,
    pub across: Vec<String>,
    /// Directory for documents and results.
    pub scratch: PathBuf,
    bed: Bed,
}

impl Nodes {
    /// Creates the bed as planned, but with the given disks.
    pub fn new(grid: &Grid, disk: Disk) -> Result<Nodes, Failure> {
        let mut bed = Bed::new()?;
        let [target, scratch, stores] = [bed.memory("target")?, bed.memory("scratch")?, bed.memory("stores")?];
        let across: Vec<String> = (0..grid.io_nodes).map(|number| format!("io{number}")).collect();
        for name in &across {
            for directory in [target.join(name), stores.join(name)] {
                fs::create_dir(&directory)
                    .map_err(|error| failed(&format!("cannot create {}", directory.display()), error))?;
            }
        }
        let network = Network::new(&mut bed, &scratch, grid.clients, grid.io_nodes)?;
        network.client_links.iter().try_for_each(|wire| wire.cap(grid.client_link))?;
        network.io_links.iter().try_for_each(|wire| wire.cap(grid.io_link))?;
        network.core.cap(grid.core)?;
        let mut options = vec!["--target-bandwidth".to_string(), disk.rate.to_string()];
        if disk.cheat > 0 {
            options.extend(["--cheat".to_string(), disk.cheat.to_string()]);
        }
        let disks = across.iter().map(|name| bed.slow(name, &options)).collect::<Result<Vec<_>, _>>()?;
        let mut nodes = Nodes { network, disks, target, across, scratch, bed };
        nodes.serve(&stores)?;
        nodes.mount()?;
        Ok(nodes)
    }

    fn serve(&mut self, stores: &Path) -> Result<(), Failure> {
        let log = |name: &str| self.scratch.join(format!("{name}.log"));
        for (number, name) in self.across.iter().enumerate() {
            let said = File::create(log(name)).map_err(|error| failed("a server's log", error))?;
            let also = said.try_clone().map_err(|error| failed("a server's log", error))?;
            let mut server = self.network.io_nodes[number].command(beside("forebay")?);
            server.arg("serve").arg(stores.join(name)).arg("--burst-buffer").arg(&self.disks[number].shown);
            server.args(["--anonymous", "--policy", "stage_out=manual", "--listen"]);
            server.arg(format!("tcp:{}:{PORT}", io_node(number)));
            self.bed.start(server.stdout(said).stderr(also))?;
        }
        for name in &self.across {
            let said = || fs::read_to_string(log(name)).unwrap_or_default();
            wait(&format!("{name} does not serve"), said, || said().contains("serving"))?;
        }
        Ok(())
    }

    /// Mounts on all clients at the same time.
    fn mount(&mut self) -> Result<(), Failure> {
        for (client, place) in self.network.clients.iter().enumerate() {
            for (number, name) in self.across.iter().enumerate() {
                let said = File::create(self.scratch.join(format!("client{client}.{name}.log")));
                let said = said.map_err(|error| failed("an agent's log", error))?;
                let mut agent = place.command(beside("forebay")?);
                agent.arg("mount").arg(self.target.join(name)).arg("--server");
                agent.arg(format!("tcp:{}:{PORT}", io_node(number))).args(["--names", "server", "--foreground"]);
                self.bed.start(agent.stdout(Stdio::null()).stderr(said))?;
            }
        }
        for (client, place) in self.network.clients.iter().enumerate() {
            for name in &self.across {
                let log = self.scratch.join(format!("client{client}.{name}.log"));
                let said = || fs::read_to_string(&log).unwrap_or_default();
                let is_there = || place.mounts().contains(&format!(" {} ", self.target.join(name).display()));
                wait(&format!("client {client} does not mount {name}"), said, is_there)?;
            }
        }
        Ok(())
    }
}

fn wait(what: &str, said: impl Fn() -> String, is_there: impl Fn() -> bool) -> Result<(), Failure> {
    let began = Instant::now();
    while !is_there() {
        if began.elapsed() > PATIENCE {
            return Err(failed(what, said().trim()));
        }
        thread::sleep(POLL);
    }
    Ok(())
}
