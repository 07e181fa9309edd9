//! Stage 1: the limits of the hardware according to its data sheets alone.
//!
//! `B_c = sum C_i` (1), `B_s = N_s S` (2), `B_net` (3) less service traffic, `B_d` (4); efficiency `eta = B / min(B_c,
//! B_s, B_net, B_d)` (5); parallelism `P = min(B_s, B_net, B_d) / C` (6).
//!
//! Formula (6) depends on the number of processes that share a link. The measured `P_meas = B_max / B(1,1)` is
//! therefore given as well.

mod ceiling;
mod documented;
mod show;
mod what_if;

use serde::{Deserialize, Serialize};

use crate::bounds::MEDIUM_DOUBTED_BYTES_PER_S;
use crate::cluster::{Cluster, Figures, Link, StorageKind};
use crate::failure::Failure;
pub use ceiling::{Ceiling, Symbol};
pub use show::render;
pub use what_if::{Outcome, Scenario};

use crate::units::{Rate, format_rate};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Direction {
    /// Name: `write` or `read`, seen from the programs.
    pub name: String,
    /// Limits in the order B_c, B_s, B_net, B_d.
    pub ceilings: Vec<Ceiling>,
    /// Limit that binds; the first of equal ones in data-path order from the I/O nodes outwards.
    pub binding: Symbol,
    pub minimum_bytes_per_s: f64,
    /// Smallest limit less known losses: reverse traffic on shared interfaces.
    pub attainable_bytes_per_s: f64,
    /// Formula 6: number of processes that fill the smallest of B_s, B_net and B_d, at their share `C` of a link.
    pub parallelism: f64,
    /// Formula 5 for the figure measured in this direction, if the document contains one. A value above 1 means a cache
    /// or a wrong test.
    pub eta: Option<f64>,
    /// Ratio `B_max / B(1,1)` of the figures measured in this direction.
    #[serde(default)]
    pub parallelism_measured: Option<f64>,
}

impl Direction {
    pub fn ceiling(&self, symbol: Symbol) -> &Ceiling {
        &self.ceilings[symbol as usize]
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub name: String,
    pub currency: String,
    /// Total price of everything with a price; 0 without prices.
    pub price: f64,
    pub directions: Vec<Direction>,
    /// One process's share `C` of its client's link, bytes per second, averaged over all.
    pub per_process_bytes_per_s: f64,
    /// Rate of one client node's link, bytes per second, averaged over all.
    pub client_link_bytes_per_s: f64,
    pub findings: Vec<String>,
    pub scenarios: Vec<Scenario>,
}

impl Plan {
    /// Computes the limits of a cluster and of each what-if (`io_nodes*=2`, several joined by commas).
    pub fn of(cluster: &Cluster, what_ifs: &[String]) -> Result<Plan, Failure> {
        let mut plan = Plan::bare(cluster);
        plan.scenarios =
            what_ifs.iter().map(|text| what_if::scenario(cluster, &plan, text)).collect::<Result<Vec<_>, _>>()?;
        Ok(plan)
    }

    fn bare(cluster: &Cluster) -> Plan {
        let processes: f64 = cluster.clients.iter().map(|c| (c.count * c.processes) as f64).sum();
        let b_c: f64 = cluster.clients.iter().map(|c| c.count as f64 * c.link.data_bytes_per_s()).sum();
        let per_process = b_c / processes;
        let nodes: f64 = cluster.clients.iter().map(|c| c.count as f64).sum();
        let mut directions = ["write", "read"].map(|name| direction(cluster, name, per_process)).to_vec();
        measure(cluster, &mut directions);
        let mut plan = Plan {
            name: cluster.name.clone(),
            currency: cluster.currency.clone(),
            price: cluster.price(),
            directions,
            per_process_bytes_per_s: per_process,
            client_link_bytes_per_s: b_c / nodes,
            findings: Vec::new(),
            scenarios: Vec::new(),
        };
        plan.findings = findings(cluster, &plan);
        plan
    }

    pub fn write(&self) -> &Direction {
        &self.directions[0]
    }

    pub fn read(&self) -> &Direction {
        &self.directions[1]
    }

    /// Returns whether both directions have equal limits.
    pub fn is_alike(&self) -> bool {
        is_alike(&self.directions)
    }
}

fn is_alike(directions: &[Direction]) -> bool {
    let rates = |direction: &Direction| direction.ceilings.iter().map(|limit| limit.bytes_per_s).collect::<Vec<_>>();
    directions.iter().all(|direction| rates(direction) == rates(&directions[0]))
}

/// Adds measured figures to the limits of their direction. Figures without a direction are used only if both directions
/// have equal limits.
fn measure(cluster: &Cluster, directions: &mut [Direction]) {
    let Some(measured) = cluster.measured else { return };
    let unsaid = measured.unsaid().filter(|_| is_alike(directions));
    for (direction, own) in directions.iter_mut().zip([measured.write, measured.read]) {
        let Some(Figures { best, single, .. }) = own.or(unsaid) else { continue };
        direction.eta = Some(best.bytes_per_s() / direction.minimum_bytes_per_s);
        direction.parallelism_measured = single.map(|single| best.bytes_per_s() / single.bytes_per_s());
    }
}

fn direction(cluster: &Cluster, name: &str, per_process: f64) -> Direction {
    let ceilings = ceiling::ceilings(cluster, name == "write");
    let rate = |symbol: Symbol| ceilings[symbol as usize].bytes_per_s;
    // From the inside out: in a non-blocking network B_net equals B_s or B_c, and the cause is more useful than its
    // consequence.
    let order = [Symbol::Nodes, Symbol::Clients, Symbol::Storage, Symbol::Network];
    let binding = order.into_iter().fold(Symbol::Nodes, |best, next| if rate(next) < rate(best) { next } else { best });
    let minimum = rate(binding);
    let servers = rate(Symbol::Nodes).min(rate(Symbol::Network)).min(rate(Symbol::Storage));
    let losses = if matches!(binding, Symbol::Clients) { 0.0 } else { ceiling::reverse_loss(cluster) };
    Direction {
        name: name.to_string(),
        binding,
        minimum_bytes_per_s: minimum,
        attainable_bytes_per_s: minimum - losses,
        parallelism: servers / per_process,
        eta: None,
        parallelism_measured: None,
        ceilings,
    }
}

/// Returns the links of the transport network.
fn links(cluster: &Cluster) -> impl Iterator<Item = &Link> {
    cluster.clients.iter().map(|clients| &clients.link).chain(cluster.io_nodes.iter().map(|node| &node.link))
}

/// Returns whether a rate in GB/s has the number of a common link rate in Gbit/s.
fn is_slip(bytes_per_s: f64) -> bool {
    [10.0, 40.0, 56.0, 100.0, 200.0, 400.0, 800.0].iter().any(|giga| (bytes_per_s / 1e9 - giga).abs() < 1e-6)
}

/// Returns warnings about values that are possible but unlikely.
fn absurd(cluster: &Cluster, plan: &Plan) -> Vec<String> {
    let mut found = Vec::new();
    if plan.write().ceiling(Symbol::Network).bytes_per_s <= 0.0 {
        let constant = cluster.service.constant.map_or(0.0, Rate::bytes_per_s);
        found.push(format!("service.constant ({}) leaves nothing of B_net: is a unit wrong?", format_rate(constant)));
    }
    let share = cluster.service.per_load;
    if share > 1.0 {
        found.push(format!(
            "service.per_load is {share}: more bytes of service than of data; {share} % is {}",
            share / 100.0
        ));
    }
    for medium in &cluster.media {
        for (does, rate) in [("reads", medium.read), ("writes", medium.write)] {
            if rate.bytes_per_s() >= MEDIUM_DOUBTED_BYTES_PER_S {
                found.push(format!("A medium that {does} {rate}: is MB/s meant?"));
            }
        }
    }
    found
}

fn findings(cluster: &Cluster, plan: &Plan) -> Vec<String> {
    let mut found = documented::slips(cluster, plan);
    let (b_c, b_s) = (plan.write().ceiling(Symbol::Clients), plan.write().ceiling(Symbol::Nodes));
    if b_c.bytes_per_s < b_s.bytes_per_s {
        found.push("B_c is below B_s: more clients would gain before more I/O nodes do, and P says less.".to_string());
    }
    found.extend(absurd(cluster, plan));
    if cluster.media.is_empty() {
        found
            .push("No [[media]] in the document: B_d counts the storage network only, the media as ideal.".to_string());
    }
    for link in links(cluster) {
        let data_rates = [10e9, 25e9, 40e9, 50e9, 100e9, 200e9, 400e9, 800e9].map(|bits| bits / 8.0);
        let round = data_rates.iter().any(|rate| (link.rate.bytes_per_s() - rate).abs() < 1.0);
        if link.lanes == 1 && round && link.encoding.payload == 64 {
            let raw = link.rate.bytes_per_s() * 8e-9;
            found.push(format!(
                "A link of {raw} Gbit/s with encoding {}: vendors usually give the data rate, which has the encoding taken \
                 off already ({:.4} Gbit/s on the wire). If so, write encoding = \"none\": the limits are {:.1} % higher.",
                link.encoding,
                raw / link.encoding.share(),
                (1.0 / link.encoding.share() - 1.0) * 100.0
            ));
            break;
        }
    }
    if let Some(link) = links(cluster).find(|link| link.lanes == 1 && is_slip(link.rate.bytes_per_s())) {
        let giga = link.rate.bytes_per_s() / 1e9;
        found.push(format!(
            "A link of {} is one of {} Gbit/s: if {giga} Gbit/s is meant, every limit here is eight times too high.",
            link.rate,
            giga * 8.0
        ));
    }
    if cluster.storage_network.kind == StorageKind::Shared {
        found.push(
            "Transport and storage share their interfaces: a separate storage network stops the reverse traffic."
                .into(),
        );
    }
    found
}

#[cfg(test)]
mod tests;
