//! Comparison of documented rates with measured ones.

use super::{Component, Probe, Promise, Unit};
use crate::bounds::{PROMISE_EXCEEDED, PROMISE_KEPT};
use crate::cluster::{Cluster, Link};
use crate::counters::interface_speeds;
use crate::units::{format_rate, format_share};

pub fn compare(probe: &mut Probe, cluster: &Cluster) {
    media(probe, cluster);
    let speeds = interface_speeds();
    let links = cluster.clients.iter().map(|c| ("clients.link", c.link));
    let links: Vec<(&str, Link)> =
        links.chain(cluster.io_nodes.iter().map(|node| ("io_nodes.link", node.link))).collect();
    wires(probe, &links);
    for (field, link) in links {
        interfaces(probe, &speeds, field, &link);
    }
    let broken: Vec<String> = probe.promises.iter().filter_map(|promise| promise.finding.clone()).collect();
    probe.differences.extend(broken);
}

fn media(probe: &mut Probe, cluster: &Cluster) {
    for medium in &cluster.media {
        let Some(directory) = &medium.dir else { continue };
        let Some(found) = probe.media.iter().find(|found| found.directory == *directory) else { continue };
        let name = if medium.name.is_empty() { "media".to_string() } else { format!("media.{}", medium.name) };
        for (what, promised, measured) in
            [("write", medium.write, found.write_bytes_per_s), ("read", medium.read, found.read_bytes_per_s)]
        {
            probe.promises.push(promise(&format!("{name}.{what}"), promised.bytes_per_s(), measured, CACHE));
        }
    }
}

/// Compares the wires to peers. Between two hosts the slower of two links binds, whichever host the other is.
fn wires(probe: &mut Probe, links: &[(&'static str, Link)]) {
    let rate = |link: &Link| link.data_bytes_per_s();
    let Some((field, link)) = links.iter().min_by(|a, b| rate(&a.1).total_cmp(&rate(&b.1))) else { return };
    let peers = probe.options.iter().flat_map(|options| options.peers.clone()).collect::<Vec<_>>();
    for (peer, way) in peers.iter().flat_map(|peer| [(peer, "to"), (peer, "from")]) {
        let of_way = |what: &str| {
            what.strip_prefix(&format!("{peer}: ")).is_some_and(|rest| rest.contains(&format!(" {way} it, ")))
        };
        let alone = |what: &str| !what.contains(", with ");
        let rates = probe.measurements.iter().filter(|found| {
            found.component == Component::Peer
                && found.unit == Unit::BytesPerSecond
                && of_way(&found.what)
                && alone(&found.what)
        });
        let Some(best) = rates.map(|found| found.value).reduce(f64::max) else { continue };
        probe.promises.push(promise(&format!("{field}, {way} {peer}"), rate(link), best, WRONG));
    }
}

/// Reason why a medium may exceed its documented rate.
const CACHE: &str = "a cache below answers, or the document is wrong";
/// Reason why a wire may exceed its documented rate.
const WRONG: &str = "the document is wrong";

/// Compares a documented rate with the measured one; `above` is the explanation if more was measured.
pub fn promise(field: &str, promised: f64, measured: f64, above: &str) -> Promise {
    let share = measured / promised;
    let finding = if measured <= 0.0 {
        None
    } else if share < PROMISE_KEPT {
        Some(format!(
            "{field} promises {}, the hardware gives {}: {} of it",
            format_rate(promised),
            format_rate(measured),
            format_share(share)
        ))
    } else if share > PROMISE_EXCEEDED {
        Some(format!(
            "{field} promises {}, but {} was measured: {}",
            format_rate(promised),
            format_rate(measured),
            above
        ))
    } else {
        None
    };
    Promise { field: field.to_string(), promised_bytes_per_s: promised, measured_bytes_per_s: measured, finding }
}

fn interfaces(probe: &mut Probe, speeds: &[(String, f64)], field: &str, link: &Link) {
    let data = link.data_bytes_per_s();
    if let Some((name, speed)) = speeds.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
        // An interface reports its data rate.
        if speed * (link.count as f64) < data * PROMISE_KEPT {
            let (promised, speed) = (format_rate(data), format_rate(*speed));
            probe.differences.push(format!(
                "{field} promises {promised}, but the fastest interface of this machine, {name}, runs at {speed}"
            ));
        }
    }
    for (component, what) in [
        (Component::Network, "TCP to itself"),
        (Component::Memory, "memory"),
        (Component::Processor, "checksums on one processor"),
    ] {
        let Some(rate) = probe.best(component).filter(|rate| *rate < data) else { continue };
        let (rate, data) = (format_rate(rate), format_rate(data));
        probe.differences.push(format!(
            "{what} reaches {rate} here: less than the {data} of {field}, so this machine cannot fill it"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::counters::Behind;
    use crate::probe::{Measurement, Medium, Options};

    #[test]
    fn a_document_that_promises_more_than_the_hardware_gives_is_named() {
        let text = "[[clients]]\ncount = 1\nlink = { rate = \"100 GB/s\" }\n[[io_nodes]]\ncount = 1\nlink = { rate = \"1 GB/s\" }\n\
                    [[media]]\nname = \"nvme\"\ncount = 4\nread = \"3 GB/s\"\nwrite = \"2 GB/s\"\ndir = \"/m\"\n";
        let cluster = Cluster::parse(text, Path::new("c.toml")).unwrap();
        let medium = Medium {
            directory: PathBuf::from("/m"),
            behind: Behind::default(),
            write_bytes_per_s: 0.5e9,
            read_bytes_per_s: 30e9,
        };
        let tcp = Measurement {
            component: Component::Network,
            directory: None,
            what: String::new(),
            value: 5e9,
            unit: Unit::BytesPerSecond,
        };
        let mut probe = Probe { media: vec![medium], measurements: vec![tcp], ..Probe::default() };
        compare(&mut probe, &cluster);
        let said = probe.differences.join("\n");
        assert!(
            said.contains("media.nvme.write promises 2.000 GB/s, the hardware gives 500.0 MB/s: 25.0 % of it"),
            "{said}"
        );
        assert!(said.contains("media.nvme.read promises 3.000 GB/s, but 30.000 GB/s was measured: a cache"), "{said}");
        assert!(
            said.contains("TCP to itself reaches 5.000 GB/s here: less than the 100.0 GB/s of clients.link"),
            "{said}"
        );
        assert!(!said.contains("5.000 GB/s here: less than the 1.000"), "{said}");
    }

    /// Each direction is compared separately; the rate of both directions at once is not documented for a link.
    #[test]
    fn a_wire_that_gives_less_than_the_narrower_of_its_links_is_named_with_its_direction() {
        let text = "[[clients]]\ncount = 1\nlink = { rate = \"4 GB/s\" }\n[[io_nodes]]\ncount = 1\nlink = { rate = \"2 GB/s\" }\n";
        let cluster = Cluster::parse(text, Path::new("c.toml")).unwrap();
        let tcp = |what: &str, value: f64| Measurement {
            component: Component::Peer,
            directory: None,
            what: what.to_string(),
            value,
            unit: Unit::BytesPerSecond,
        };
        let measurements = vec![
            tcp("n7: TCP to it, 1 stream", 0.9e9),
            tcp("n7: TCP to it, 4 streams", 1.0e9),
            tcp("n7: TCP from it, 4 streams", 1.9e9),
            tcp("n7: TCP from it, 4 streams, with 4 to it", 0.5e9),
            tcp("n77: TCP to it, 4 streams", 9e9),
        ];
        let options =
            Options { media: Vec::new(), devices: Vec::new(), peers: vec!["n7".into()], seconds: 1.0, size_max: 1 };
        let mut probe = Probe { options: Some(options), measurements, ..Probe::default() };
        compare(&mut probe, &cluster);
        assert_eq!(probe.promises.len(), 2, "{:?}", probe.promises);
        let said = probe.differences.join("\n");
        assert!(
            said.contains("io_nodes.link, to n7 promises 2.000 GB/s, the hardware gives 1.000 GB/s: 50.0 %"),
            "{said}"
        );
        assert!(!said.contains("from n7"), "{said}");
        let more = promise("clients.link, to n7", 1e9, 2e9, WRONG).finding.unwrap();
        assert!(more.ends_with("2.000 GB/s was measured: the document is wrong"), "{more}");
    }

    #[test]
    fn a_promise_that_is_kept_is_no_finding() {
        assert_eq!(promise("media.write", 1e9, 0.95e9, CACHE).finding, None);
        assert_eq!(promise("media.write", 1e9, 1.05e9, CACHE).finding, None);
    }
}
