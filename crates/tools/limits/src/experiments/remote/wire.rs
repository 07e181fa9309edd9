//! A wire between two network namespaces, as a process that forwards every connection to the far side's loopback.
//!
//! A request, that is the first bytes after a reply, is delayed. All bytes of all connections together pass no faster
//! than the wire. Besides the server, a plain copy program is reachable, which measures the wire without Forebay.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};
use serde::{Deserialize, Serialize};

use crate::clock::{now_ns, wait_until};

/// Bytes that pass at once: as much as a pipe may hold.
const PIECE: usize = 256 << 10;
/// Bytes of a plain copy's reads and writes, and of the file that is overwritten cyclically. The file is bounded so
/// that no copy fills the medium.
const COPY: usize = 128 << 10;
const COPIED: u64 = 32 << 20;
/// Bytes of a request whose round trip is measured.
pub const QUESTION: usize = 8 << 10;

/// Kinds of connections to the copy program.
pub const WRITE: u8 = b'w';
pub const READ: u8 = b'r';
pub const ASK: u8 = b'a';

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wire {
    /// Listening addresses, each with the port on the far side's loopback.
    pub ways: Vec<(SocketAddr, u16)>,
    /// Delay of a request, microseconds.
    pub delay_us: u64,
    /// Rate in bytes per second, both directions together.
    pub bandwidth: f64,
    /// Port of the copy program, and the directory of its files.
    pub copies: (u16, PathBuf),
}

/// Capacity of the wire: users wait until their bytes have passed.
struct Capacity {
    free_at_ns: Mutex<u64>,
    ns_per_byte: f64,
}

impl Capacity {
    fn occupy(&self, bytes: usize) {
        let end = {
            let mut free_at = self.free_at_ns.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at = now_ns().max(*free_at) + (bytes as f64 * self.ns_per_byte) as u64;
            *free_at
        };
        thread::sleep(Duration::from_nanos(end.saturating_sub(now_ns())));
    }
}

/// Serves until the process is killed.
pub fn serve(wire: &Wire) -> io::Result<()> {
    let capacity = Arc::new(Capacity { free_at_ns: Mutex::new(0), ns_per_byte: 1e9 / wire.bandwidth });
    let copies = TcpListener::bind((Ipv4Addr::LOCALHOST, wire.copies.0))?;
    let directory = wire.copies.1.clone();
    let mut serving = vec![thread::spawn(move || {
        each(&copies, move |client, number| copy(client, &directory.join(number.to_string())))
    })];
    for (at, port) in wire.ways.iter().copied() {
        let (listener, capacity) = (TcpListener::bind(at)?, Arc::clone(&capacity));
        let delay = Duration::from_micros(wire.delay_us);
        serving.push(thread::spawn(move || {
            each(&listener, move |client, _| {
                pass_on(&client, &TcpStream::connect((Ipv4Addr::LOCALHOST, port))?, delay, &capacity)
            })
        }));
    }
    serving
        .into_iter()
        .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
}

/// Accepts connections, each served by a separate thread. Errors of one connection are ignored, because that is how
/// programs disconnect.
fn each(
    listener: &TcpListener,
    serve: impl Fn(TcpStream, u64) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<()> {
    for number in 0.. {
        let (client, _) = listener.accept()?;
        client.set_nodelay(true)?;
        let serve = serve.clone();
        thread::spawn(move || serve(client, number));
    }
    Ok(())
}

fn pass_on(client: &TcpStream, server: &TcpStream, delay: Duration, capacity: &Capacity) -> io::Result<()> {
    server.set_nodelay(true)?;
    let (out, into) = pipe()?;
    fcntl_setpipe_size(&into, 4 * PIECE)?;
    // Data is passed on without a copy to user space.
    let pass = |from: &TcpStream, to: &TcpStream| -> io::Result<bool> {
        let got = splice(from, None, &into, None, PIECE, SpliceFlags::MOVE)?;
        capacity.occupy(got);
        let mut left = got;
        while left > 0 {
            left -= splice(&out, None, to, None, left, SpliceFlags::MOVE)?;
        }
        Ok(got > 0)
    };
    let (mut asked, mut goes_on) = (false, true);
    while goes_on {
        let mut both = [PollFd::new(client, PollFlags::IN), PollFd::new(server, PollFlags::IN)];
        poll(&mut both, None)?;
        let [says, answers] = [0, 1].map(|end: usize| !both[end].revents().is_empty());
        if answers {
            asked = false;
            goes_on = pass(server, client)?;
        }
        if goes_on && says {
            if !asked {
                thread::sleep(delay);
            }
            asked = true;
            if !pass(client, server)? {
                // The client has sent everything, and may still receive replies.
                server.shutdown(Shutdown::Write)?;
                while pass(server, client)? {}
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Serves one connection of [`rate`] or [`round_trip_us`].
fn copy(mut client: TcpStream, path: &Path) -> io::Result<()> {
    let mut kind = [0];
    client.read_exact(&mut kind)?;
    if kind == [ASK] {
        let mut question = [0; QUESTION];
        while client.read_exact(&mut question).is_ok() {
            client.write_all(&[1])?;
        }
        return Ok(());
    }
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    fs::remove_file(path)?;
    let (mut room, mut bytes) = (vec![7; COPY], 0u64);
    if kind == [WRITE] {
        client.write_all(&[1])?;
        loop {
            match client.read(&mut room)? {
                0 => return client.write_all(&bytes.to_le_bytes()),
                got => {
                    file.write_all_at(&room[..got], bytes % COPIED)?;
                    bytes += got as u64;
                }
            }
        }
    }
    while bytes < COPIED {
        file.write_all_at(&room, bytes)?;
        bytes += COPY as u64;
    }
    client.write_all(&[1])?;
    client.read_exact(&mut [0])?;
    loop {
        file.read_exact_at(&mut room, bytes % COPIED)?;
        client.write_all(&room)?;
        bytes += COPY as u64;
    }
}

/// Measures plain streams to or from files of the far side. Returns their total rate in bytes per second.
pub fn rate(at: SocketAddr, kind: u8, streams: u64, time: Duration) -> io::Result<f64> {
    let mut ends = (0..streams).map(|_| TcpStream::connect(at)).collect::<io::Result<Vec<_>>>()?;
    for end in &mut ends {
        end.set_nodelay(true)?;
        end.write_all(&[kind])?;
    }
    for end in &mut ends {
        end.read_exact(&mut [0])?; // the other side is ready
    }
    let began = now_ns();
    let until = began + time.as_nanos() as u64;
    let stream = |mut end: TcpStream| -> io::Result<u64> {
        let mut room = vec![7; COPY];
        let mut bytes = 0;
        if kind == READ {
            end.write_all(&[1])?;
            while now_ns() < until {
                bytes += end.read(&mut room)? as u64;
            }
            return Ok(bytes);
        }
        while now_ns() < until {
            end.write_all(&room)?;
        }
        end.shutdown(Shutdown::Write)?;
        let mut counted = [0; 8];
        end.read_exact(&mut counted)?;
        Ok(u64::from_le_bytes(counted))
    };
    let bytes = thread::scope(|scope| {
        let stream = &stream;
        let running: Vec<_> = ends.into_iter().map(|end| scope.spawn(move || stream(end))).collect();
        running
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
            .sum::<io::Result<u64>>()
    })?;
    Ok(bytes as f64 / ((now_ns() - began) as f64 / 1e9))
}

/// Returns the median round trip of `count` requests of 8 KiB, in microseconds.
pub fn round_trip_us(at: SocketAddr, count: u64) -> io::Result<f64> {
    let mut end = TcpStream::connect(at)?;
    end.set_nodelay(true)?;
    end.write_all(&[ASK])?;
    let mut trips = Vec::new();
    for _ in 0..count {
        let before = now_ns();
        end.write_all(&[7; QUESTION])?;
        end.read_exact(&mut [0])?;
        trips.push((now_ns() - before) as f64 / 1e3);
    }
    Ok(crate::sweep::median(&trips))
}

/// Waits until a server listens. Errors: that of the last attempt, after `patience`.
pub fn wait_for(at: SocketAddr, patience: Duration) -> io::Result<()> {
    let until = now_ns() + patience.as_nanos() as u64;
    loop {
        match TcpStream::connect(at) {
            Ok(_) => return Ok(()),
            Err(error) if now_ns() > until => return Err(error),
            Err(_) => wait_until(now_ns() + 5_000_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_port() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    /// Checks that requests are delayed as configured, that bytes pass at the configured rate and no faster, and that
    /// data arrives unchanged.
    #[test]
    fn a_request_waits_and_bytes_pass_no_faster_than_the_wire() {
        let directory = tempfile::tempdir().unwrap();
        let (at, far) = (SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())), free_port());
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let beside = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let ways = vec![(at, far), (beside, echo.local_addr().unwrap().port())];
        let copies = (far, directory.path().to_path_buf());
        let wire = Wire { ways, delay_us: 3000, bandwidth: 40e6, copies };
        thread::spawn(move || serve(&wire));
        thread::spawn(move || {
            let (mut end, _) = echo.accept().unwrap();
            let mut question = [0; 100_000];
            while end.read_exact(&mut question).is_ok() {
                end.write_all(&question).unwrap();
            }
        });
        wait_for(at, Duration::from_secs(10)).unwrap();
        let trip = round_trip_us(at, 9).unwrap();
        assert!((3200.0..100_000.0).contains(&trip), "{trip} us");
        for kind in [WRITE, READ] {
            for streams in [1, 3] {
                let found = rate(at, kind, streams, Duration::from_millis(400)).unwrap();
                // Data in the sockets' buffers when a reader ends has passed too.
                assert!((10e6..44e6).contains(&found), "{found} bytes a second by {streams}");
            }
        }
        let mut end = TcpStream::connect(beside).unwrap();
        let (mut sent, mut got) = (vec![0; 100_000], vec![0; 100_000]);
        for turn in 0..5u8 {
            sent.iter_mut().enumerate().for_each(|(place, byte)| *byte = (place % 251) as u8 ^ turn);
            end.write_all(&sent).unwrap();
            end.read_exact(&mut got).unwrap();
            assert!(sent == got, "turn {turn}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
