//! Comparison of stated figures with computed ones, and the likely mistakes.

use super::{Plan, Symbol};
use crate::bounds::{DOCUMENTED_TOLERANCE, SLIP_TOLERANCE};
use crate::cluster::{Cluster, Figures};
use crate::units::{Rate, format_rate};

/// Returns a sentence for each stated figure that contradicts the document's own numbers.
pub fn slips(cluster: &Cluster, plan: &Plan) -> Vec<String> {
    let stated = &cluster.documented;
    let limits = [
        (Symbol::Clients, stated.b_c),
        (Symbol::Nodes, stated.b_s),
        (Symbol::Network, stated.b_net),
        (Symbol::Storage, stated.b_d),
    ];
    let limits = limits.into_iter().filter_map(|(symbol, rate)| {
        let computed = plan.write().ceiling(symbol).bytes_per_s;
        difference(&format!("documented.{symbol}"), rate?, computed)
    });
    let measured = cluster.measured.iter().flat_map(|measured| {
        let (write, read) = (plan.write().minimum_bytes_per_s, plan.read().minimum_bytes_per_s);
        let unsaid = measured.unsaid().map(|figures| ("measured", figures, write.max(read)));
        let own = [("measured.write", measured.write, write), ("measured.read", measured.read, read)];
        let own = own.into_iter().filter_map(|(field, figures, limit)| Some((field, figures?, limit)));
        unsaid.into_iter().chain(own)
    });
    let mut found: Vec<String> = limits.collect();
    measured.for_each(|(field, figures, limit)| found.extend(of_test(cluster, field, &figures, limit)));
    if cluster.measured.is_some_and(|measured| measured.unsaid().is_some()) && !plan.is_alike() {
        found.push(
            "measured.best may be of writing or of reading, which have other limits here: write [measured.write] or [measured.read], \
             and eta is told."
                .to_string(),
        );
    }
    found
}

/// Returns sentences about inconsistent figures of a test, given the limit of their direction.
fn of_test(cluster: &Cluster, field: &str, measured: &Figures, limit: f64) -> Vec<String> {
    let mut found = Vec::new();
    let best = measured.best.bytes_per_s();
    if best > limit * (1.0 + DOCUMENTED_TOLERANCE) {
        let cause = if best > limit * 4.0 && best / 8.0 <= limit * (1.0 + DOCUMENTED_TOLERANCE) {
            "it fits if it is bits: Gbit/s written as GB/s"
        } else {
            "a cache answered, or the test or the document is wrong"
        };
        let (best, limit) = (measured.best, format_rate(limit));
        found.push(format!("{field}.best is {best}, above the limit of {limit}: {cause}."));
    }
    if let Some(single) = measured.single.filter(|single| single.bytes_per_s() > best) {
        found.push(format!("{field}.single ({single}) is above {field}.best ({}).", measured.best));
    }
    if let Some(peak) = measured.interface_peak {
        let raw = cluster.io_nodes.iter().map(|node| node.link.raw_bytes_per_s()).fold(0.0, f64::max);
        let data = cluster.io_nodes.iter().map(|node| node.link.data_bytes_per_s()).fold(0.0, f64::max);
        let lost = |whole: f64| (1.0 - peak.bytes_per_s() / whole) * 100.0;
        found.push(if peak.bytes_per_s() > raw {
            let raw = format_rate(raw);
            format!("{field}.interface_peak ({peak}) is above the raw rate of an I/O node's link, {raw}: one of them is wrong.")
        } else {
            format!(
                "An I/O node's interface reached {peak}: {:.1} % below its raw rate, {:.1} % below its data rate.",
                lost(raw),
                lost(data)
            )
        });
    }
    found
}

/// Returns a sentence about the difference between `stated` and `computed`; `None` if they agree.
fn difference(field: &str, stated: Rate, computed: f64) -> Option<String> {
    let ratio = stated.bytes_per_s() / computed;
    if (ratio - 1.0).abs() <= DOCUMENTED_TOLERANCE {
        return None;
    }
    let near = |value: f64| (ratio / value - 1.0).abs() <= SLIP_TOLERANCE;
    let cause = if near(8.0) {
        "eight times as much: Gbit/s written as GB/s"
    } else if near(1.0 / 8.0) {
        "an eighth: GB/s written as Gbit/s"
    } else if near(1000.0) || near(1e-3) {
        "off by a thousand: one prefix too large or too small"
    } else if (ratio / 1.0737 - 1.0).abs() < 0.005 || (ratio * 1.0737 - 1.0).abs() < 0.005 {
        "the ratio of GiB to GB: powers of two and of ten are mixed"
    } else if (ratio / (66.0 / 64.0) - 1.0).abs() < 0.002 {
        "the line encoding was forgotten"
    } else {
        "the specification in this document does not give that"
    };
    Some(format!("{field} says {stated}, but it computes to {}: {cause}.", format_rate(computed)))
}
