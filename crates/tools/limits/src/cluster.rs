//! A cluster as its data sheets describe it: the TOML document that `plan` and `probe` read.
//!
//! Each section is a list, because real clusters have several kinds of each part (formula 1 of the method is a sum).
//! Unknown keys are errors: a misspelt key must not silently mean its default.

mod link;
mod measured;
mod media;

use std::fs;
use std::path::Path;

use serde::Deserialize;

pub use link::{Duplex, Link};
pub use measured::{Figures, Measured};
pub use media::{Media, RedundancyAt};

use crate::bounds::{COUNT_MAX, DOCUMENT_MAX};
use crate::failure::Failure;
use crate::units::Rate;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Title of the tables.
    #[serde(default)]
    pub name: String,
    /// Unit of every `price`; default `units`.
    #[serde(default = "default_currency")]
    pub currency: String,
    /// Nodes that run programs.
    pub clients: Vec<Clients>,
    pub io_nodes: Vec<IoNodes>,
    /// Cuts through the network between clients and I/O nodes. None means non-blocking: every pair can communicate at
    /// full rate.
    #[serde(default)]
    pub switches: Vec<Switches>,
    /// Media that store the data. None means that the media are no limit.
    #[serde(default)]
    pub media: Vec<Media>,
    /// Connection between I/O nodes and media.
    #[serde(default)]
    pub storage_network: StorageNetwork,
    /// Service traffic, which shares the network with the data: locks, metadata, monitoring.
    #[serde(default)]
    pub service: Service,
    /// Results of a test, for efficiency and measured parallelism.
    pub measured: Option<Measured>,
    /// Figures that a document or vendor states, to be checked against the computed ones.
    #[serde(default)]
    pub documented: Documented,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Name for `--what-if`.
    #[serde(default)]
    pub name: String,
    pub count: u64,
    /// Processes that do I/O on each node.
    #[serde(default = "one")]
    pub processes: u64,
    /// The network interface of one node.
    pub link: Link,
    /// Price of one node.
    pub price: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoNodes {
    /// Name for `--what-if`.
    #[serde(default)]
    pub name: String,
    pub count: u64,
    /// The transport-network interface of one node.
    pub link: Link,
    /// The storage-network interface of one node, for `storage_network.kind = "separate"`.
    pub storage_link: Option<Link>,
    /// Price of one node.
    pub price: Option<f64>,
}

/// A cut through the network that all data crosses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switches {
    /// Name for `--what-if`.
    #[serde(default)]
    pub name: String,
    /// Number of parallel links, or switches, in this cut.
    pub count: u64,
    /// One of these links.
    pub link: Link,
    /// Price of one of these links.
    pub price: Option<f64>,
}

/// Connection between the I/O nodes and the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageKind {
    /// The media are inside the I/O nodes.
    #[default]
    Direct,
    /// The interfaces that also carry the clients' data.
    Shared,
    /// A separate network, `io_nodes.storage_link`.
    Separate,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageNetwork {
    /// Network that carries the storage traffic.
    #[serde(default)]
    pub kind: StorageKind,
    /// Share of an interface's raw rate taken by traffic against the data's direction while both use it, `0.0..1.0`.
    #[serde(default)]
    pub reverse: f64,
}

/// Service traffic: locks, metadata synchronisation, monitoring.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Traffic that is independent of the load, for the whole network.
    pub constant: Option<Rate>,
    /// Bytes of service traffic per byte of data.
    #[serde(default)]
    pub per_load: f64,
    /// Whether service traffic has a separate network, and so does not reduce the data rate.
    #[serde(default)]
    pub separate: bool,
}

/// Stated figures to be checked; a ratio of eight is reported as a confusion of bits and bytes.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documented {
    /// Limit of the clients.
    #[serde(rename = "B_c")]
    pub b_c: Option<Rate>,
    /// Limit of the I/O nodes.
    #[serde(rename = "B_s")]
    pub b_s: Option<Rate>,
    /// Limit of the network.
    #[serde(rename = "B_net")]
    pub b_net: Option<Rate>,
    /// Limit of the storage.
    #[serde(rename = "B_d")]
    pub b_d: Option<Rate>,
}

fn one() -> u64 {
    1
}

/// Replaces Rust type names in the parser's message with plain words.
fn plain(message: &str) -> String {
    message
        .replace("expected u64", "expected a whole number that is not negative")
        .replace("expected f64", "expected a number")
}

fn default_currency() -> String {
    "units".to_string()
}

impl Cluster {
    /// Reads and checks a document. Errors: the path, with the line and key, or the value and a correct example.
    pub fn read(path: &Path) -> Result<Cluster, Failure> {
        let failed = |error: std::io::Error| Failure::input(format!("cannot read {}: {error}", path.display()));
        if fs::metadata(path).map_err(failed)?.len() > DOCUMENT_MAX {
            return Err(failed(std::io::Error::other("it is too large for a cluster document")));
        }
        Cluster::parse(&fs::read_to_string(path).map_err(failed)?, path)
    }

    /// Checks the text of a document; `path` is used in messages.
    pub fn parse(text: &str, path: &Path) -> Result<Cluster, Failure> {
        let wrong = |what: String| Failure::input(format!("{}: {what}", path.display()));
        let cluster: Cluster = toml::from_str(text).map_err(|error| wrong(plain(&error.to_string())))?;
        match cluster.fault() {
            Some((field, problem)) => Err(wrong(format!("{field} {problem}"))),
            None => Ok(cluster),
        }
    }

    /// Returns the first impossible value: its key and the problem. Called again after a what-if.
    pub fn fault(&self) -> Option<(String, &'static str)> {
        if self.clients.is_empty() {
            return Some(("[[clients]]".to_string(), "is missing: who uses the storage?"));
        }
        if self.io_nodes.is_empty() {
            return Some(("[[io_nodes]]".to_string(), "is missing: who serves the data?"));
        }
        let measured = || Some(("measured".to_string(), self.measured.as_ref()?.fault()?));
        let faults = self.count_fault().or_else(|| self.link_fault()).or_else(|| self.share_fault());
        faults.or_else(|| self.price_fault()).or_else(measured)
    }

    fn count_fault(&self) -> Option<(String, &'static str)> {
        let clients =
            self.clients.iter().flat_map(|c| [("clients.count", c.count), ("clients.processes", c.processes)]);
        let nodes = self.io_nodes.iter().map(|node| ("io_nodes.count", node.count));
        let switches = self.switches.iter().map(|switch| ("switches.count", switch.count));
        let media = self.media.iter().map(|medium| ("media.count", medium.count));
        let mut counts = clients.chain(nodes).chain(switches).chain(media);
        counts.find_map(|(key, count)| match count {
            0 => Some((key.to_string(), "is zero: leave the section out instead")),
            count if count > COUNT_MAX => Some((key.to_string(), "is above ten million: a digit too many?")),
            _ => None,
        })
    }

    fn link_fault(&self) -> Option<(String, &'static str)> {
        let clients = self.clients.iter().map(|c| ("clients.link", &c.link));
        let nodes = self.io_nodes.iter().map(|node| ("io_nodes.link", &node.link));
        let storage =
            self.io_nodes.iter().filter_map(|node| Some(("io_nodes.storage_link", node.storage_link.as_ref()?)));
        let switches = self.switches.iter().map(|switch| ("switches.link", &switch.link));
        let mut links = clients.chain(nodes).chain(storage).chain(switches);
        let fault = links.find_map(|(key, link)| link.fault().map(|(field, what)| (format!("{key}.{field}"), what)));
        let separate = self.storage_network.kind == StorageKind::Separate;
        fault.or_else(|| {
            let bare = separate && self.io_nodes.iter().any(|node| node.storage_link.is_none());
            bare.then(|| ("io_nodes.storage_link".to_string(), "is missing, and storage_network.kind is \"separate\""))
        })
    }

    fn share_fault(&self) -> Option<(String, &'static str)> {
        let shares = [
            ("storage_network.reverse", self.storage_network.reverse, 1.0),
            ("service.per_load", self.service.per_load, 100.0),
        ];
        let fault = shares.iter().find(|(_, share, below)| !(0.0..*below).contains(share));
        fault
            .map(|(key, ..)| (key.to_string(), "must be a share such as 0.05, not a percentage"))
            .or_else(|| self.media.iter().find_map(Media::fault).map(|(field, what)| (format!("media.{field}"), what)))
    }

    fn price_fault(&self) -> Option<(String, &'static str)> {
        let link = |key: &'static str, link: &Link| (key, link.price);
        let clients =
            self.clients.iter().flat_map(|c| [("clients.price", c.price), link("clients.link.price", &c.link)]);
        let nodes = self.io_nodes.iter().flat_map(|node| {
            let storage = node.storage_link.as_ref().and_then(|link| link.price);
            let own = [("io_nodes.price", node.price), link("io_nodes.link.price", &node.link)];
            own.into_iter().chain([("io_nodes.storage_link.price", storage)])
        });
        let switches = self.switches.iter();
        let switches = switches.flat_map(|s| [("switches.price", s.price), link("switches.link.price", &s.link)]);
        let media = self.media.iter().map(|medium| ("media.price", medium.price));
        let mut prices = clients.chain(nodes).chain(switches).chain(media);
        let wrong = prices.find(|(_, price)| price.is_some_and(|price| !price.is_finite() || price < 0.0));
        wrong.map(|(key, _)| (key.to_string(), "must be zero or more"))
    }

    /// Returns the total price of everything with a price, in `currency`.
    pub fn price(&self) -> f64 {
        let own = |price: Option<f64>| price.unwrap_or(0.0);
        let each = (self.clients.iter().map(|c| (c.count, own(c.price) + c.link.price())))
            .chain(self.io_nodes.iter().map(|node| (node.count, own(node.price) + node.link.price())))
            .chain(self.storage_links().map(|(count, link)| (count, link.price())))
            .chain(self.switches.iter().map(|switch| (switch.count, own(switch.price) + switch.link.price())))
            .chain(self.media.iter().map(|medium| (medium.count, own(medium.price))));
        each.map(|(count, price)| count as f64 * price).sum()
    }

    /// Returns the number of parts in each section, with the section's name.
    pub fn units(&self) -> [(&'static str, u64); 5] {
        let clients = self.clients.iter().map(|c| (c.count, &c.link));
        let nodes = self.io_nodes.iter().map(|node| (node.count, &node.link));
        let switches = self.switches.iter().map(|switch| (switch.count, &switch.link));
        let links = clients.chain(nodes).chain(self.storage_links()).chain(switches);
        [
            ("clients", self.clients.iter().map(|c| c.count).sum()),
            ("io_nodes", self.io_nodes.iter().map(|node| node.count).sum()),
            ("switches", self.switches.iter().map(|switch| switch.count).sum()),
            ("media", self.media.iter().map(|medium| medium.count).sum()),
            ("links", links.map(|(count, link)| count.saturating_mul(link.count)).fold(0, u64::saturating_add)),
        ]
    }

    /// Returns the links of a separate storage network; none without one.
    fn storage_links(&self) -> impl Iterator<Item = (u64, &Link)> {
        let separate = self.storage_network.kind == StorageKind::Separate;
        let nodes = self.io_nodes.iter().filter(move |_| separate);
        nodes.filter_map(|node| Some((node.count, node.storage_link.as_ref()?)))
    }
}
