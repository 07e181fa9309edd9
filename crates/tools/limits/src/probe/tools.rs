//! Measurement of the network with external tools, where installed: `iperf3` for streams, `fi_pingpong` for the time of
//! a message. Their figures are shown beside our own. If another host does not run `forebay limits peer`, only those of
//! iperf3 are available.

use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Component, Measurement, Unit};
use crate::bounds::{TOOL_EXTRA, TOOL_START, TOOL_START_PAUSE};
use crate::units::counted;

const IPERF3_PORT: u16 = 5201;
/// Number of round trips of `fi_pingpong`: about half a second on a slow machine.
const PINGS: &str = "2000";

type Found = (Vec<Measurement>, Vec<String>);

/// Measures this machine's network to itself.
pub fn to_itself(time: Duration) -> Found {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    if is_installed("iperf3") {
        for streams in [1, 4] {
            let what = format!("iperf3 to itself, {}", counted(streams, "stream"));
            match streams_to_itself(streams, time) {
                Ok(rate) => found.push(Measurement::new(Component::Network, what, rate, Unit::BytesPerSecond)),
                Err(why) => findings.push(format!("iperf3 said nothing of the network: {why}")),
            }
        }
    }
    if is_installed("fi_pingpong") {
        match message_to_itself() {
            Ok(ns) => {
                let what = "fi_pingpong (tcp) to itself, message of 1 byte, one way";
                found.push(Measurement::new(Component::Network, what, ns, Unit::Nanoseconds));
            }
            Err(why) => findings.push(format!("fi_pingpong said nothing of the network: {why}")),
        }
    }
    (found, findings)
}

/// Measures the wire to another host that runs `iperf3 -s`. Returns `None` if iperf3 is not installed here.
pub fn to_peer(peer: &str, time: Duration) -> Option<Result<Vec<Measurement>, String>> {
    is_installed("iperf3").then(|| {
        let (host, port) = match peer.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => {
                (host, port.parse().map_err(|_| format!("{port} is no port"))?)
            }
            _ => (peer, IPERF3_PORT),
        };
        let mut found = Vec::new();
        for (streams, back) in [(1, false), (1, true), (4, false), (4, true)] {
            let direction = if back { "from" } else { "to" };
            let what = format!("{peer}: iperf3 {direction} it, {}", counted(streams, "stream"));
            let rate = client(host, port, streams, back, time)?;
            found.push(Measurement::new(Component::Peer, what, rate, Unit::BytesPerSecond));
        }
        Ok(found)
    })
}

fn is_installed(name: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|directory| directory.join(name).is_file()))
}

struct Server(Child);

impl Server {
    fn start(name: &str, words: &[String]) -> Result<Server, String> {
        let mut command = Command::new(name);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Server).map_err(|error| error.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    listener.and_then(|listener| listener.local_addr()).map(|address| address.port()).map_err(|error| error.to_string())
}

fn once_it_listens<T>(mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let deadline = Instant::now() + TOOL_START;
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => thread::sleep(TOOL_START_PAUSE),
            outcome => return outcome,
        }
    }
}

fn streams_to_itself(streams: u64, time: Duration) -> Result<f64, String> {
    let port = free_port()?;
    let words = ["-s", "-B", "127.0.0.1", "-p", &port.to_string()].map(String::from);
    let _server = Server::start("iperf3", &words)?;
    once_it_listens(|| client("127.0.0.1", port, streams, false, time))
}

/// Returns the bytes per second that arrived.
fn client(host: &str, port: u16, streams: u64, back: bool, time: Duration) -> Result<f64, String> {
    let seconds = time.as_secs_f64().ceil().max(1.0);
    let mut words = vec!["-J".to_string(), "-c".to_string(), host.to_string()];
    words.extend(["-p".to_string(), port.to_string(), "-P".to_string(), streams.to_string()]);
    words.extend(["-t".to_string(), seconds.to_string()]);
    words.extend(back.then(|| "-R".to_string()));
    received(&said("iperf3", &words, Duration::from_secs_f64(seconds) + TOOL_EXTRA)?)
}

fn message_to_itself() -> Result<f64, String> {
    let port = free_port()?.to_string();
    let common = ["-p", "tcp", "-e", "msg", "-I", PINGS, "-S", "1"].map(String::from);
    let with = |more: &[&str]| common.iter().cloned().chain(more.iter().map(ToString::to_string)).collect::<Vec<_>>();
    let _server = Server::start("fi_pingpong", &with(&["-B", &port]))?;
    once_it_listens(|| one_way_ns(&said("fi_pingpong", &with(&["-P", &port, "127.0.0.1"]), TOOL_EXTRA)?))
}

/// Returns the output of a program that is stopped after `bound`.
fn said(name: &str, words: &[String], bound: Duration) -> Result<String, String> {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=1").arg(bound.as_secs_f64().to_string()).arg(name).args(words).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("timeout (coreutils): {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(124 | 137) => Err(format!("it had not ended after {} s", bound.as_secs())),
        _ if text.trim().is_empty() => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        _ => Ok(text),
    }
}

/// Parses iperf3's JSON: bytes per second that the receiver got.
fn received(text: &str) -> Result<f64, String> {
    let told: Value = serde_json::from_str(text).map_err(|error| format!("its JSON: {error}"))?;
    if let Some(error) = told["error"].as_str() {
        return Err(error.to_string());
    }
    let bits = told["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 8.0).ok_or_else(|| "it told no end.sum_received.bits_per_second".to_string())
}

/// Parses fi_pingpong's table: nanoseconds of a transfer.
fn one_way_ns(text: &str) -> Result<f64, String> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let at = lines.find_map(|heading| heading.iter().position(|word| *word == "usec/xfer"));
    let row = lines.find(|row| row.first().is_some_and(|size| *size == "1"));
    let value = at.zip(row).and_then(|(at, row)| row.get(at)?.parse::<f64>().ok());
    value.map(|microseconds| microseconds * 1e3).ok_or_else(|| "it told no usec/xfer of 1 byte".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_print_is_understood() {
        let table = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                     1       2k      =2k      3.9k        0.07s      0.03      35.96       0.03\n";
        assert_eq!(one_way_ns(table), Ok(35_960.0));
        assert!(one_way_ns("fi_getinfo: -61\n").unwrap_err().contains("usec/xfer"));
        let told = r#"{"start":{},"end":{"sum_received":{"bytes":9,"bits_per_second":16058402165.4}}}"#;
        assert_eq!(received(told), Ok(16_058_402_165.4 / 8.0));
        let refused = r#"{"end":{},"error":"unable to connect to server: Connection refused"}"#;
        assert!(received(refused).unwrap_err().contains("refused"));
        assert!(received("iperf3: parameter error").unwrap_err().contains("JSON"));
    }

    #[test]
    fn a_tool_that_hangs_is_ended() {
        let why = said("sleep", &["60".to_string()], Duration::from_millis(100)).unwrap_err();
        assert!(why.contains("had not ended"), "{why}");
    }
}
