//! Formatting of a store's description as options, the inverse of [`crate::planned`].

use clap::ValueEnum;

use crate::model::{Ns, Spec};

/// Returns the options that describe the store. The bandwidth that a mount may make up for (`burst`) is a property of
/// the mount and not included.
pub fn options(spec: &Spec) -> Vec<String> {
    let mut words = Vec::new();
    let mut say = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    let rates = [
        ("bandwidth", spec.bandwidth),
        ("stream-bandwidth", spec.stream),
        ("client-cpu", spec.client_cpu),
        ("client-link", spec.client_link),
        ("server-link", spec.server_link),
        ("target-bandwidth", spec.target),
    ];
    for (name, rate) in rates {
        if let Some(rate) = rate {
            say(name, rate.to_string());
        }
    }
    let times: [(&str, Ns); 9] = [
        ("latency", spec.latency),
        ("jitter", spec.jitter),
        ("seek", spec.seek),
        ("adjacent", spec.adjacent),
        ("write-seek", spec.write_seek),
        ("round-trip", spec.round_trip),
        ("metadata-time", spec.metadata),
        ("lock-time", spec.lock_service),
        ("atime-time", spec.atime),
    ];
    for (name, ns) in times {
        say(name, format!("{}us", ns as f64 / 1e3));
    }
    let counts = [
        ("servers", spec.servers as u64),
        ("targets", spec.targets as u64),
        ("stripe", spec.stripe),
        ("message", spec.message),
        ("metadata-threads", spec.metadata_concurrency as u64),
        ("lock-granularity", spec.lock_granularity),
    ];
    for (name, count) in counts {
        say(name, count.max(1).to_string());
    }
    for (name, slow) in [("slow-server", spec.slow_server), ("slow-target", spec.slow_target)] {
        if let Some((number, part)) = slow {
            say(name, format!("{number}={part}"));
        }
    }
    if spec.cheat > 0 {
        say("cheat", spec.cheat.to_string());
    }
    say("seed", spec.seed.to_string());
    if let Some(lock) = spec.lock.to_possible_value() {
        say("lock", lock.get_name().to_string());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;

    #[test]
    fn a_store_is_the_same_after_it_was_described() {
        let odd = Spec {
            bandwidth: Some(16e6 / 3.0),
            latency: 1_234_567,
            jitter: 1,
            seed: 77,
            stream: Some(1e9 / 7.0),
            client_cpu: Some(4_000_001.5),
            client_link: Some(4e6),
            servers: 4,
            server_link: Some(5e6),
            slow_server: Some((3, 1.0 / 2.7)),
            targets: 8,
            target: Some(2e6),
            slow_target: Some((7, 0.3)),
            stripe: 12_345,
            seek: 8_000_000,
            adjacent: 200_000,
            write_seek: 7_999_999,
            round_trip: 2_000_001,
            message: 65_536,
            metadata: 4_321_987,
            metadata_concurrency: 2,
            lock: Protocol::Central,
            lock_service: 10_000,
            lock_granularity: 4096,
            atime: 3,
            cheat: 12_000_000,
            burst: 0,
        };
        for spec in [odd, Spec::default()] {
            let read = crate::planned(&options(&spec)).unwrap();
            assert_eq!(Spec { burst: 0, ..read }, spec);
        }
    }
}
