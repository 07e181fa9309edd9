//! A change of the document ("double the I/O nodes"), and the limit that binds then.

use serde::{Deserialize, Serialize};

use super::{Direction, Plan, Symbol};
use crate::cluster::{Cluster, Link, StorageKind};
use crate::failure::Failure;
use crate::units::Rate;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scenario {
    pub change: String,
    #[serde(flatten)]
    pub write: Outcome,
    /// Result for programs that read; none in files of earlier versions.
    #[serde(default)]
    pub read: Option<Outcome>,
    /// Parts that are added or removed: a section's name and the number, links counted separately. Parts replaced by
    /// others of another rate are `other links` and `other media`.
    #[serde(default)]
    pub adds: Vec<(String, i64)>,
    /// Difference of the prices, in the document's currency; none if no price in the document covers the change.
    pub cost: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub binding: Symbol,
    /// Smallest limit after the change, bytes per second.
    pub minimum_bytes_per_s: f64,
    /// Smallest limit less known losses, bytes per second.
    pub attainable_bytes_per_s: f64,
    /// Formula 6 after the change.
    pub parallelism: f64,
    /// Cost of each additional attainable GB/s; none without a cost or a gain.
    pub cost_per_gigabyte_per_s: Option<f64>,
}

impl Outcome {
    fn of(after: &Direction, before: &Direction, cost: Option<f64>) -> Outcome {
        let gain = after.attainable_bytes_per_s - before.attainable_bytes_per_s;
        Outcome {
            binding: after.binding,
            minimum_bytes_per_s: after.minimum_bytes_per_s,
            attainable_bytes_per_s: after.attainable_bytes_per_s,
            parallelism: after.parallelism,
            cost_per_gigabyte_per_s: cost.filter(|cost| *cost > 0.0 && gain > 0.0).map(|cost| cost / (gain / 1e9)),
        }
    }
}

pub(super) const OTHER: &str = "other ";

const SYNTAX: &str = "write for example io_nodes*=2, io_nodes.oss.links*=2, clients.rate=200 Gbit/s, media+=24 or storage_network=separate";

pub fn scenario(cluster: &Cluster, before: &Plan, text: &str) -> Result<Scenario, Failure> {
    let fail = |problem: String| Failure::usage(format!("--what-if `{text}`: {problem}"));
    let mut changed = cluster.clone();
    if text.split(',').all(|part| part.trim().is_empty()) {
        return Err(fail(format!("changes nothing: {SYNTAX}")));
    }
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        apply(&mut changed, part).map_err(fail)?;
    }
    if let Some((field, problem)) = changed.fault() {
        return Err(fail(format!("{field} {problem}")));
    }
    let after = Plan::bare(&changed);
    // A change without a price in the document (a faster link, an additional network) is not free: its cost is unknown.
    let cost = Some(changed.price() - cluster.price()).filter(|cost| *cost != 0.0);
    let adds = cluster.units().into_iter().zip(changed.units());
    let adds = adds.map(|((name, before), (_, after))| (name.to_string(), after as i64 - before as i64));
    let adds = adds.filter(|(_, more)| *more != 0).chain(others(cluster, &changed)).collect();
    Ok(Scenario {
        change: text.to_string(),
        write: Outcome::of(after.write(), before.write(), cost),
        read: Some(Outcome::of(after.read(), before.read(), cost)),
        adds,
        cost,
    })
}

/// Returns the parts whose rate changed, which are therefore other products.
fn others(before: &Cluster, after: &Cluster) -> Vec<(String, i64)> {
    let changed = |old: &Link, new: &Link| (old.rate, old.lanes) != (new.rate, new.lanes);
    let links = |(old, new, count): (&Link, &Link, u64)| if changed(old, new) { count * new.count } else { 0 };
    let clients = before.clients.iter().zip(&after.clients).map(|(old, new)| (&old.link, &new.link, new.count));
    let nodes = before.io_nodes.iter().zip(&after.io_nodes).map(|(old, new)| (&old.link, &new.link, new.count));
    let switches = before.switches.iter().zip(&after.switches).map(|(old, new)| (&old.link, &new.link, new.count));
    let media = before.media.iter().zip(&after.media);
    let media = media.filter(|(old, new)| (old.read, old.write) != (new.read, new.write)).map(|(_, new)| new.count);
    let all = [("links", clients.chain(nodes).chain(switches).map(links).sum::<u64>()), ("media", media.sum())];
    all.into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (format!("{OTHER}{name}"), count as i64))
        .collect()
}

#[derive(Clone, Copy)]
enum Operator {
    Times,
    Plus,
    Set,
}

fn apply(cluster: &mut Cluster, part: &str) -> Result<(), String> {
    let operators = [("*=", Operator::Times), ("+=", Operator::Plus), ("=", Operator::Set)];
    let halves = operators.into_iter().find_map(|(sign, operator)| Some((part.split_once(sign)?, operator)));
    let ((key, value), operator) = halves.ok_or_else(|| format!("no `=`: {SYNTAX}"))?;
    let (key, value) = (key.trim(), value.trim());
    if key == "storage_network" {
        return separate(cluster, value);
    }
    let mut words = key.split('.');
    let section = words.next().unwrap_or("");
    let rest: Vec<&str> = words.collect();
    let names = names(cluster, section).ok_or_else(|| format!("`{section}` is no section: {SYNTAX}"))?;
    let (name, field) = match rest.as_slice() {
        [] => (None, "count"),
        [one] if names.iter().any(|name| name == one) => (Some(*one), "count"),
        [one] => (None, *one),
        [name, field] if names.iter().any(|known| known == name) => (Some(*name), *field),
        [name, ..] => return Err(format!("no {section} is named `{name}`: the document has {}", names.join(", "))),
    };
    change(cluster, section, name, field, operator, value)
}

fn names(cluster: &Cluster, section: &str) -> Option<Vec<String>> {
    Some(match section {
        "clients" => cluster.clients.iter().map(|c| c.name.clone()).collect(),
        "io_nodes" => cluster.io_nodes.iter().map(|node| node.name.clone()).collect(),
        "switches" => cluster.switches.iter().map(|switch| switch.name.clone()).collect(),
        "media" => cluster.media.iter().map(|medium| medium.name.clone()).collect(),
        _ => return None,
    })
}

fn separate(cluster: &mut Cluster, value: &str) -> Result<(), String> {
    cluster.storage_network.kind = match value {
        "separate" => StorageKind::Separate,
        "shared" => StorageKind::Shared,
        "direct" => StorageKind::Direct,
        other => return Err(format!("storage_network is separate, shared or direct, not `{other}`")),
    };
    // By default the new network equals the one that carried the data so far.
    for node in &mut cluster.io_nodes {
        node.storage_link.get_or_insert(node.link);
    }
    Ok(())
}

fn change(
    cluster: &mut Cluster,
    section: &str,
    name: Option<&str>,
    field: &str,
    operator: Operator,
    value: &str,
) -> Result<(), String> {
    let wanted = |known: &str| name.is_none_or(|name| name == known);
    let mut found = false;
    let mut links: Vec<&mut Link> = Vec::new();
    let mut counts: Vec<&mut u64> = Vec::new();
    let mut rates: Vec<&mut Rate> = Vec::new();
    for clients in cluster.clients.iter_mut().filter(|c| section == "clients" && wanted(&c.name)) {
        found = true;
        match field {
            "count" => counts.push(&mut clients.count),
            "processes" => counts.push(&mut clients.processes),
            _ => links.push(&mut clients.link),
        }
    }
    for node in cluster.io_nodes.iter_mut().filter(|node| section == "io_nodes" && wanted(&node.name)) {
        found = true;
        if field == "count" { counts.push(&mut node.count) } else { links.push(&mut node.link) }
    }
    for switch in cluster.switches.iter_mut().filter(|switch| section == "switches" && wanted(&switch.name)) {
        found = true;
        if field == "count" { counts.push(&mut switch.count) } else { links.push(&mut switch.link) }
    }
    for medium in cluster.media.iter_mut().filter(|medium| section == "media" && wanted(&medium.name)) {
        found = true;
        match field {
            "count" => counts.push(&mut medium.count),
            "replicas" => counts.push(&mut medium.replicas),
            "read" => rates.push(&mut medium.read),
            "write" => rates.push(&mut medium.write),
            _ => return Err(format!("media have count, replicas, read and write, not `{field}`")),
        }
    }
    if !found {
        return Err(format!("the document has no [[{section}]]"));
    }
    for link in links {
        match field {
            "links" => counts.push(&mut link.count),
            "lanes" => counts.push(&mut link.lanes),
            "rate" => rates.push(&mut link.rate),
            _ => return Err(format!("{section} have count, links, lanes and rate, not `{field}`")),
        }
    }
    counts.into_iter().try_for_each(|count| change_count(count, operator, value))?;
    rates.into_iter().try_for_each(|rate| change_rate(rate, operator, value))
}

fn change_count(count: &mut u64, operator: Operator, value: &str) -> Result<(), String> {
    let number: f64 = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    let result = match operator {
        Operator::Times => *count as f64 * number,
        Operator::Plus => *count as f64 + number,
        Operator::Set => number,
    };
    if !(0.0..1e15).contains(&result) || result.fract() != 0.0 {
        let shown = if result < 1e15 { format!("{result}") } else { format!("{result:e}") };
        return Err(format!("gives a count of {shown}: counts are whole numbers that are not negative"));
    }
    *count = result as u64;
    Ok(())
}

fn change_rate(rate: &mut Rate, operator: Operator, value: &str) -> Result<(), String> {
    *rate = match operator {
        Operator::Times => {
            let factor: f64 = value.parse().map_err(|_| format!("`{value}` is no number"))?;
            Rate::new(rate.bytes_per_s() * factor).map_err(|why| format!("the rate {why}"))?
        }
        Operator::Plus => Rate::new(rate.bytes_per_s() + Rate::parse(value)?.bytes_per_s())?,
        Operator::Set => Rate::parse(value)?,
    };
    Ok(())
}
