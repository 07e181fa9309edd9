//! Measurement in real network namespaces: the traffic is read from the interfaces of the client, of the server that
//! holds the data, and of a node that holds none.

use std::process::Command;

use serde_json::Value;
use testkit::in_private_namespace;

use crate::cluster::Cluster;

const MIB: u64 = 1 << 20;

fn bytes(run: &Value, hosts: &str, host: &str, way: &str) -> u64 {
    let seen = run[hosts].as_array().unwrap().iter().find(|seen| seen["host"] == host);
    seen.unwrap_or_else(|| panic!("{host} is not in {run}"))[way].as_u64().unwrap()
}

#[test]
fn a_sweep_reads_what_crossed_the_interfaces_of_client_and_io_nodes() {
    in_private_namespace(|| {
        let mut cluster = Cluster::new(2);
        let dir = cluster.mount(1, &[]);
        let results = cluster.tree.path("sweep.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["limits", "sweep", "--quiet", "-M", "1", "-N", "2", "--repeat", "3", "--warm-up", "0", "--read"]);
        command.args(["--size", "128MiB", "--time", "60s", "--hosts", "netns:node1"]);
        command.args(["--io-nodes", "netns:node0,netns:node2", "--target"]).arg(&dir).arg("-o").arg(&results);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let found: Value = serde_json::from_slice(&std::fs::read(&results).unwrap()).unwrap();
        let runs = found["results"]["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 6, "{said}");
        for run in runs {
            let data = run["amount"].as_u64().unwrap();
            assert_eq!(data, 256 * MIB, "{run}");
            // A writer's data leaves the client and reaches the server that holds it, a reader's goes the other way.
            let (from, to) = if run["kind"] == "write" {
                (("clients", "netns:node1"), ("io_nodes", "netns:node0"))
            } else {
                (("io_nodes", "netns:node0"), ("clients", "netns:node1"))
            };
            let (sent, received) = (bytes(run, from.0, from.1, "sent_bytes"), bytes(run, to.0, to.1, "received_bytes"));
            // Both ends of a wire count the same, but for what is under way when they are looked at.
            assert!((data..data + data / 4).contains(&sent), "{sent} for {data}: {run}");
            assert!(sent.abs_diff(received) < MIB, "{sent} sent, {received} received: {run}");
            let idle = bytes(run, "io_nodes", "netns:node2", "received_bytes");
            assert!(idle < MIB / 4, "{idle} bytes at a node that serves nothing: {run}");
        }
        assert!(said.contains("bytes left the clients for each of data"), "{said}");
        assert!(said.contains("I/O node netns:node2 carried 100.0 % less"), "{said}");
        assert!(said.contains("constant service traffic"), "{said}");
    });
}
