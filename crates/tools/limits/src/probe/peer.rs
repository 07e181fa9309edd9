//! Measurement of the wire to another host: streams in each direction and in both at once, and a round trip. `forebay
//! limits peer` answers there.
//!
//! A connection starts with eight bytes that name the protocol, and one byte for the request. The reply names the
//! protocol again, so that a wrong port is recognised. The peer counts the bytes it receives and reports them at the
//! end, because data in a buffer has not arrived.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Component, Measurement, Unit};
use crate::bounds::{PEER_CONNECTIONS_MAX, PEER_LASTS, PEER_SILENCE};
use crate::failure::Failure;
use crate::units::{counted, format_rate};
use crate::workload::Histogram;

/// Name of the protocol, version 1.
const HELLO: &[u8; 8] = b"fblimit1";
const MESSAGE: usize = 256 << 10;
pub const PORT: u16 = 7117;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// The client sends until it shuts down; then the server reports how much arrived.
    Sink = b'S' as isize,
    /// The server sends until the client closes.
    Source = b'G' as isize,
    Echo = b'E' as isize,
}

/// Serves until the process is killed. `told` is called with the address, for the case that the system chose the port.
pub fn serve(address: &str, told: &dyn Fn(SocketAddr)) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unavailable(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    told(listener.local_addr().map_err(failed)?);
    let open = Arc::new(AtomicU64::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // For example, no descriptor is free: try again later.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= PEER_CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let open = Arc::clone(&open);
        thread::spawn(move || {
            // Errors of a client that disconnects are ignored.
            let _ = answer(stream);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn prepared(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PEER_SILENCE))?;
    stream.set_write_timeout(Some(PEER_SILENCE))
}

pub(super) fn answer(mut stream: TcpStream) -> io::Result<()> {
    prepared(&stream)?;
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    if head[..8] != *HELLO {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(HELLO)?;
    let (mut room, mut arrived) = (vec![0; MESSAGE], 0u64);
    let began = Instant::now();
    while began.elapsed() < PEER_LASTS {
        match head[8] {
            b'S' => match stream.read(&mut room)? {
                0 => return stream.write_all(&arrived.to_le_bytes()),
                read => arrived += read as u64,
            },
            b'G' => stream.write_all(&room)?,
            b'E' => {
                stream.read_exact(&mut room[..1])?;
                stream.write_all(&room[..1])?;
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn connect(address: SocketAddr, want: Want) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PEER_SILENCE)?;
    prepared(&stream)?;
    stream.write_all(HELLO)?;
    stream.write_all(&[want as u8])?;
    let mut hello = [0; 8];
    stream.read_exact(&mut hello)?;
    if hello != *HELLO {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "something else answers there"));
    }
    Ok(stream)
}

/// Runs all measurements of one peer. Returns the measurements and the findings.
pub fn measure(peer: &str, time: Duration) -> Result<(Vec<Measurement>, Vec<String>), Failure> {
    let failed = |error: io::Error| {
        Failure::unavailable(format!("peer {peer}: {error}; on that host, run: forebay limits peer"))
    };
    let address = resolve(peer).map_err(failed)?;
    let mut found = Vec::new();
    let mut add = |what: String, value: f64, unit: Unit| {
        found.push(Measurement::new(Component::Peer, format!("{peer}: {what}"), value, unit));
    };
    add("round trip of 1 byte".to_string(), round_trip(address, time).map_err(failed)?, Unit::Nanoseconds);
    let (mut to, mut from) = (0.0, 0.0);
    for streams in [1, 4] {
        to = rate(address, streams, 0, time).map_err(failed)?.0;
        from = rate(address, 0, streams, time).map_err(failed)?.1;
        let streams = counted(streams as u64, "stream");
        add(format!("TCP to it, {streams}"), to, Unit::BytesPerSecond);
        add(format!("TCP from it, {streams}"), from, Unit::BytesPerSecond);
    }
    let both = rate(address, 4, 4, time).map_err(failed)?;
    add("TCP to it, 4 streams, with 4 from it".to_string(), both.0, Unit::BytesPerSecond);
    add("TCP from it, 4 streams, with 4 to it".to_string(), both.1, Unit::BytesPerSecond);
    let findings = unequal(peer, to, from).into_iter().collect();
    Ok((found, findings))
}

fn unequal(peer: &str, to: f64, from: f64) -> Option<String> {
    (to.min(from) < to.max(from) * 0.8).then(|| {
        format!("peer {peer}: {} to it and {} from it: one direction is worse", format_rate(to), format_rate(from))
    })
}

fn resolve(peer: &str) -> io::Result<SocketAddr> {
    let found = match peer.to_socket_addrs() {
        Ok(mut addresses) => addresses.next(),
        // The name has no port.
        Err(_) => (peer, PORT).to_socket_addrs()?.next(),
    };
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

/// Measures `to` streams to the peer and `from` streams back, at the same time. Returns the bytes per second received
/// there and here.
pub fn rate(address: SocketAddr, to: usize, from: usize, time: Duration) -> io::Result<(f64, f64)> {
    let sinks = (0..to).map(|_| connect(address, Want::Sink)).collect::<io::Result<Vec<_>>>()?;
    let sources = (0..from).map(|_| connect(address, Want::Source)).collect::<io::Result<Vec<_>>>()?;
    let began = Instant::now();
    thread::scope(|scope| {
        let sent: Vec<_> = sinks.into_iter().map(|stream| scope.spawn(move || send(stream, began, time))).collect();
        let received: Vec<_> =
            sources.into_iter().map(|stream| scope.spawn(move || receive(stream, began, time))).collect();
        let sum = |threads: Vec<thread::ScopedJoinHandle<'_, io::Result<f64>>>| {
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(0.0))).sum::<io::Result<f64>>()
        };
        Ok((sum(sent)?, sum(received)?))
    })
}

fn send(mut stream: TcpStream, began: Instant, time: Duration) -> io::Result<f64> {
    let message = vec![7; MESSAGE];
    while began.elapsed() < time {
        stream.write_all(&message)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut arrived = [0; 8];
    stream.read_exact(&mut arrived)?;
    Ok(u64::from_le_bytes(arrived) as f64 / began.elapsed().as_secs_f64())
}

fn receive(mut stream: TcpStream, began: Instant, time: Duration) -> io::Result<f64> {
    let mut room = vec![0; MESSAGE];
    let mut arrived = 0u64;
    // Read at least once: on a busy machine the time may end before the first byte, which would give no rate.
    while arrived == 0 || began.elapsed() < time {
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => arrived += read as u64,
        }
    }
    Ok(arrived as f64 / began.elapsed().as_secs_f64())
}

/// Returns the median round trip in nanoseconds.
pub(super) fn round_trip(address: SocketAddr, time: Duration) -> io::Result<f64> {
    let mut stream = connect(address, Want::Echo)?;
    Histogram::median_of(time, || {
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const TIME: Duration = Duration::from_millis(20);

    #[test]
    fn a_peer_is_measured_in_both_directions() {
        let (sender, told) = channel();
        thread::spawn(move || serve("127.0.0.1:0", &|address| sender.send(address).unwrap()));
        let address = told.recv().unwrap().to_string();
        let (found, _) = measure(&address, TIME).unwrap();
        assert_eq!(found.len(), 7);
        assert!(found.iter().all(|measurement| measurement.value > 0.0), "{found:?}");
        assert!(found[2].what.ends_with("TCP from it, 1 stream"), "{found:?}");
    }

    #[test]
    fn something_else_and_nobody_are_told_with_what_to_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 9]);
            stream.write_all(b"SSH-2.0-").unwrap();
        });
        let said = measure(&address.to_string(), TIME).unwrap_err().message;
        assert!(said.contains("something else answers there") && said.contains("forebay limits peer"), "{said}");
        other.join().unwrap();
        let said = measure(&address.to_string(), TIME).unwrap_err().message;
        assert!(said.contains("refused"), "{said}");
    }

    #[test]
    fn a_worse_direction_is_found() {
        assert!(unequal("a", 100.0, 70.0).is_some() && unequal("a", 100.0, 90.0).is_none());
    }
}
