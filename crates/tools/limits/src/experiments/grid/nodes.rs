//! The test bed: a network of clients and I/O nodes.
//!
//! Each I/O node has a disk (a slowfs over memory) and runs `forebay serve` with its burst buffer on that disk. Each
//! client mounts every I/O node's directory (`forebay mount --names server`). Every byte and every name that a program
//! on a client uses crosses the wires.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::super::bed::{Bed, Slow, wait_for_server};
use super::super::beside;
use super::super::place::wait;
use super::Grid;
use super::network::{Network, io_node};
use crate::failure::{Failure, failed};

const PORT: u16 = 4711;

#[derive(Debug, Clone, Copy)]
pub struct Disk {
    /// Rate in bytes per second.
    pub rate: f64,
    /// Bytes that a cache acknowledges before they reach the disk.
    pub cheat: u64,
}

pub struct Nodes {
    pub network: Network,
    pub disks: Vec<Slow>,
    /// Directory that the clients see, with a subdirectory for each I/O node.
    pub target: PathBuf,
    pub across: Vec<String>,
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
                    .map_err(|error| failed(format_args!("cannot create {}", directory.display()), error))?;
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
            let (place, buffer) = (&self.network.io_nodes[number], &self.disks[number].shown);
            let listen = format!("tcp:{}:{PORT}", io_node(number));
            self.bed.serve(place, [&stores.join(name), buffer, &log(name)], &listen)?;
        }
        self.across.iter().try_for_each(|name| wait_for_server(name, &log(name)))
    }

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
