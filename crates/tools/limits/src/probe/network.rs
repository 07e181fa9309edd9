//! Limit of this machine's TCP, measured over loopback. A faster link cannot be filled.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::{Component, Measurement, Unit};
use crate::clock::now_ns;
use crate::workload::Histogram;

/// Bytes of one send.
const MESSAGE: usize = 256 << 10;
/// Time without data after which the peer, which is on this machine, counts as failed.
const SILENCE: Duration = Duration::from_secs(60);

/// Measures one stream, four streams, and the round trip.
pub fn measure(time: Duration) -> io::Result<Vec<Measurement>> {
    let stream = |streams: u64| -> io::Result<Measurement> {
        let what = format!("TCP to itself, {streams} stream{}", if streams == 1 { "" } else { "s" });
        let value = streams_rate(streams, time)?;
        Ok(Measurement { component: Component::Network, directory: None, what, value, unit: Unit::BytesPerSecond })
    };
    let latency = Measurement {
        component: Component::Network,
        directory: None,
        what: "TCP to itself, round trip of 1 byte".to_string(),
        value: round_trip_ns(time)?,
        unit: Unit::Nanoseconds,
    };
    Ok(vec![stream(1)?, stream(4)?, latency])
}

fn pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
    }
    Ok((near, far))
}

/// Returns the bytes per second received by all streams together.
fn streams_rate(streams: u64, time: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let pairs = (0..streams).map(|_| pair(&listener)).collect::<io::Result<Vec<_>>>()?;
    let started = Instant::now();
    let received = thread::scope(|scope| {
        let mut receivers = Vec::new();
        for (mut near, mut far) in pairs {
            scope.spawn(move || {
                let message = vec![7u8; MESSAGE];
                while started.elapsed() < time && near.write_all(&message).is_ok() {}
                // Dropping the stream ends the other side.
            });
            receivers.push(scope.spawn(move || {
                let mut room = vec![0u8; MESSAGE];
                let mut bytes = 0u64;
                loop {
                    match far.read(&mut room)? {
                        0 => return Ok::<u64, io::Error>(bytes),
                        read => bytes += read as u64,
                    }
                }
            }));
        }
        let sum = receivers.into_iter().map(|thread| thread.join().unwrap_or(Ok(0)));
        sum.sum::<io::Result<u64>>()
    })?;
    Ok(received as f64 / started.elapsed().as_secs_f64())
}

/// Returns the median round trip in nanoseconds.
fn round_trip_ns(time: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (mut near, mut far) = pair(&listener)?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let mut trips = Histogram::default();
    let started = Instant::now();
    while trips.count() == 0 || started.elapsed() < time {
        let before = now_ns();
        near.write_all(&[1])?;
        near.read_exact(&mut [0])?;
        trips.add(now_ns() - before);
    }
    drop(near);
    let _ = echo.join();
    Ok(trips.quantile(0.5) as f64)
}
