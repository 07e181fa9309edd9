//! The four limits, each with its formula.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Duplex, RedundancyAt, StorageKind};
use crate::units::format_rate;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Symbol {
    /// Formula 1: the clients' links.
    #[serde(rename = "B_c")]
    Clients,
    /// Formula 2: the I/O nodes' links.
    #[serde(rename = "B_s")]
    Nodes,
    /// Formula 3: the network between them, less service traffic.
    #[serde(rename = "B_net")]
    Network,
    /// Formula 4: the storage network and the media.
    #[serde(rename = "B_d")]
    Storage,
}

impl Symbol {
    pub fn words(self) -> &'static str {
        match self {
            Symbol::Clients => "the clients' links",
            Symbol::Nodes => "the I/O nodes' links",
            Symbol::Network => "the network between clients and I/O nodes",
            Symbol::Storage => "the storage behind the I/O nodes",
        }
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Symbol::Clients => "B_c",
            Symbol::Nodes => "B_s",
            Symbol::Network => "B_net",
            Symbol::Storage => "B_d",
        })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ceiling {
    pub symbol: Symbol,
    /// Rate of program data, bytes per second.
    pub bytes_per_s: f64,
    pub from: String,
}

/// Returns B_c, B_s, B_net and B_d.
pub fn ceilings(cluster: &Cluster, write: bool) -> Vec<Ceiling> {
    let (clients, nodes) = (clients(cluster, write), nodes(cluster, write));
    let network = network(cluster, clients.bytes_per_s.min(nodes.bytes_per_s), write);
    let storage = storage(cluster, write);
    vec![clients, nodes, network, storage]
}

/// Returns the bytes that links carry for a byte of data if redundancy is computed at one of the places `at`.
fn amplification(cluster: &Cluster, write: bool, at: &[RedundancyAt]) -> f64 {
    let crossing = cluster.media.iter().filter(|medium| write && at.contains(&medium.redundancy_at));
    crossing.map(|medium| medium.write_amplification()).fold(1.0, f64::max)
}

fn amplified(from: String, factor: f64) -> String {
    if factor > 1.0 { format!("{from} / {factor:.3} for redundancy") } else { from }
}

fn clients(cluster: &Cluster, write: bool) -> Ceiling {
    let factor = amplification(cluster, write, &[RedundancyAt::Client]);
    let sum: f64 = cluster.clients.iter().map(|c| c.count as f64 * c.link.data_bytes_per_s()).sum();
    let from = cluster.clients.iter().map(|c| format!("{} x {}", c.count, c.link.formula())).collect::<Vec<_>>();
    Ceiling { symbol: Symbol::Clients, bytes_per_s: sum / factor, from: amplified(from.join(" + "), factor) }
}

fn nodes(cluster: &Cluster, write: bool) -> Ceiling {
    let shared = cluster.storage_network.kind == StorageKind::Shared;
    let mut factor = amplification(cluster, write, &[RedundancyAt::Client]);
    let mut from: Vec<String> =
        cluster.io_nodes.iter().map(|node| format!("{} x {}", node.count, node.link.formula())).collect();
    // On a half-duplex interface that also carries the storage traffic, each byte passes twice.
    let halved = shared && cluster.io_nodes.iter().any(|node| node.link.duplex == Duplex::Half);
    if halved {
        factor *= 2.0;
        from.push("each byte twice over half-duplex links".to_string());
    }
    let sum: f64 = cluster.io_nodes.iter().map(|node| node.count as f64 * node.link.data_bytes_per_s()).sum();
    Ceiling { symbol: Symbol::Nodes, bytes_per_s: sum / factor, from: amplified(from.join(" + "), factor) }
}

fn network(cluster: &Cluster, non_blocking: f64, write: bool) -> Ceiling {
    let factor = amplification(cluster, write, &[RedundancyAt::Client]);
    let narrowest = cluster
        .switches
        .iter()
        .map(|switch| (switch.count as f64 * switch.link.data_bytes_per_s() / factor, switch))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rate, mut from) = match narrowest {
        Some((rate, switch)) => (rate, amplified(format!("{} x {}", switch.count, switch.link.formula()), factor)),
        None => (non_blocking, "non-blocking: min(B_c, B_s)".to_string()),
    };
    let service = &cluster.service;
    if !service.separate {
        // The data gets the rest after the service traffic: B + constant + per_load * B = B_net.
        if let Some(constant) = service.constant {
            rate = (rate - constant.bytes_per_s()).max(0.0);
            from.push_str(&format!(" - {constant} of service traffic"));
        }
        if service.per_load > 0.0 {
            rate /= 1.0 + service.per_load;
            from.push_str(&format!(" / {:.3} for service traffic", 1.0 + service.per_load));
        }
    }
    Ceiling { symbol: Symbol::Network, bytes_per_s: rate, from }
}

fn storage(cluster: &Cluster, write: bool) -> Ceiling {
    let media: f64 = cluster.media.iter().map(|medium| medium.data_bytes_per_s(write)).sum();
    let media_from = cluster.media.iter().map(|medium| medium.formula(write)).collect::<Vec<_>>().join(" + ");
    let factor = amplification(cluster, write, &[RedundancyAt::IoNode, RedundancyAt::Client]);
    let network = match cluster.storage_network.kind {
        StorageKind::Direct => None,
        StorageKind::Shared => {
            let nodes = nodes(cluster, write);
            let client = amplification(cluster, write, &[RedundancyAt::Client]);
            Some((nodes.bytes_per_s * client / factor, "the I/O nodes' links, the other way".to_string()))
        }
        StorageKind::Separate => {
            let links = cluster.io_nodes.iter().filter_map(|node| Some((node.count, node.storage_link?)));
            let rate: f64 = links.clone().map(|(count, link)| count as f64 * link.data_bytes_per_s()).sum();
            let from = links.map(|(count, link)| format!("{count} x {}", link.formula())).collect::<Vec<_>>();
            Some((rate / factor, amplified(from.join(" + "), factor)))
        }
    };
    let (bytes_per_s, from) = match network {
        Some((rate, from)) if cluster.media.is_empty() || rate < media => (rate, from),
        Some((rate, _)) => (media, format!("{media_from} (its network: {})", format_rate(rate))),
        None if cluster.media.is_empty() => {
            (nodes(cluster, write).bytes_per_s, "media inside the I/O nodes, as ideal".into())
        }
        None => (media, media_from),
    };
    Ceiling { symbol: Symbol::Storage, bytes_per_s, from }
}

/// Returns the rate that traffic against the data's direction takes from shared interfaces, bytes per second.
pub fn reverse_loss(cluster: &Cluster) -> f64 {
    if cluster.storage_network.kind != StorageKind::Shared {
        return 0.0;
    }
    let raw: f64 = cluster.io_nodes.iter().map(|node| node.count as f64 * node.link.raw_bytes_per_s()).sum();
    raw * cluster.storage_network.reverse
}
