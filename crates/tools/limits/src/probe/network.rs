//! Limit of this machine's TCP, measured over loopback. A faster link cannot be filled.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use super::peer::{answer, rate, round_trip};
use super::{Component, Measurement, Unit};
use crate::units::counted;

const STREAMS: [usize; 2] = [1, 4];

/// Measures one stream, four streams, and the round trip, as those to a peer on another host.
pub fn measure(time: Duration) -> io::Result<Vec<Measurement>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let connections = STREAMS.iter().sum::<usize>() + 1;
    thread::spawn(move || {
        for stream in listener.incoming().take(connections).flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    let mut found = Vec::new();
    for streams in STREAMS {
        let what = format!("TCP to itself, {}", counted(streams as u64, "stream"));
        let (rate, _) = rate(address, streams, 0, time)?;
        found.push(Measurement::new(Component::Network, what, rate, Unit::BytesPerSecond));
    }
    let what = "TCP to itself, round trip of 1 byte";
    found.push(Measurement::new(Component::Network, what, round_trip(address, time)?, Unit::Nanoseconds));
    Ok(found)
}
