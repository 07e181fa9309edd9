//! Strangers: connections whose peer has not said who it is. Anybody who reaches the port can make any number of
//! them.
//!
//! There are at most [`STRANGERS_MAX`]. A further one replaces another of the address that has the most. The longest
//! silent one is replaced, else the first whose handshake lasts longer than [`STRANGER_SPOKEN`]. So clients that
//! arrive all at once do not replace each other. A silent peer does not keep out one that speaks at once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use concurrency::{Instant, Mutex};
use rustix::io::ioctl_fionread;
use rustix::net::{Shutdown, shutdown};

use crate::limits::{STRANGER_SPOKEN, STRANGERS_MAX};

/// Origin of a connection: a network address without port. `None`: this machine.
pub(crate) type From = Option<std::net::IpAddr>;

struct Stranger {
    number: u64,
    from: From,
    since: Instant,
    /// Socket of the connection, by which another thread can end it, if it has one.
    socket: Option<OwnedFd>,
    /// Whether the greeting was received.
    has_spoken: bool,
}

impl Stranger {
    /// Returns whether the greeting was received or is ready to be read.
    fn has_spoken(&self) -> bool {
        self.has_spoken || self.socket.as_ref().is_some_and(|it| ioctl_fionread(it).is_ok_and(|bytes| bytes > 0))
    }

    /// Ends the connection. Its thread sees the end; a failure has no further effect.
    fn close(&self) {
        self.socket.iter().for_each(|socket| _ = shutdown(socket, Shutdown::Both));
    }
}

#[derive(Default)]
struct State {
    last: u64,
    /// All strangers, oldest first.
    all: Vec<Stranger>,
}

/// All connections whose peer has not said who it is.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<State>);

impl Strangers {
    /// Adds a stranger and returns its number. May close another one to make room. Returns `None` if no slot can be
    /// freed now.
    pub fn come(&self, from: From, socket: Option<OwnedFd>) -> Option<u64> {
        let mut state = self.0.lock();
        if state.all.len() >= STRANGERS_MAX {
            let gone = state.one_too_many(from)?;
            let gone = state.all.remove(gone);
            tracing::debug!(from = ?gone.from, "too many connections in their handshake: closed one");
            gone.close();
        }
        state.last += 1;
        let number = state.last;
        state.all.push(Stranger { number, from, since: Instant::now(), socket, has_spoken: false });
        Some(number)
    }

    /// Notes that the stranger's greeting was received.
    pub fn spoke(&self, number: u64) {
        self.0.lock().all.iter_mut().filter(|one| one.number == number).for_each(|one| one.has_spoken = true);
    }

    /// Removes a stranger that has said who it is, or has disconnected.
    pub fn leave(&self, number: u64) {
        self.0.lock().all.retain(|one| one.number != number);
    }

    /// Closes all strangers' connections.
    pub fn close(&self) {
        self.0.lock().all.iter().for_each(Stranger::close);
    }
}

impl State {
    fn one_too_many(&self, newcomer: From) -> Option<usize> {
        let mut each: HashMap<From, usize> = HashMap::new();
        self.all.iter().for_each(|one| *each.entry(one.from).or_default() += 1);
        let most = each.values().copied().max().unwrap_or(0);
        let among = || self.all.iter().enumerate().filter(|(_, one)| each[&one.from] == most);
        let silent = among().find(|(_, one)| !one.has_spoken());
        let slow = || among().find(|(_, one)| one.since.elapsed() >= STRANGER_SPOKEN);
        // A newcomer from an address with fewer strangers replaces one of the address that has most, even one that
        // has spoken.
        let is_modest = each.get(&newcomer).copied().unwrap_or(0) + 1 < most;
        let oldest = || among().next().filter(|_| is_modest);
        silent.or_else(slow).or_else(oldest).map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    fn is_open(stream: &mut UnixStream) -> bool {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    #[test] // S63
    fn a_flood_from_one_address_closes_its_own_connections_and_no_others() {
        let (strangers, flood) = (Strangers::default(), Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))));
        let come = |from| {
            let (near, far) = UnixStream::pair().unwrap();
            (strangers.come(from, Some(near.into())).unwrap(), far)
        };
        let mut first = come(flood);
        let mut others: Vec<_> =
            (1..=3).map(|host| come(Some(IpAddr::V4(Ipv4Addr::new(198, 51, 100, host))))).collect();
        let mut local = come(None);
        let mut last: Vec<_> = (0..3 * STRANGERS_MAX).map(|_| come(flood)).collect();
        assert!(!is_open(&mut first.1), "the one that has waited longest");
        assert!(others.iter_mut().all(|(_, stream)| is_open(stream)) && is_open(&mut local.1));
        let open = last.iter_mut().filter_map(|(_, stream)| is_open(stream).then_some(())).count();
        assert_eq!(open, STRANGERS_MAX - 4);
        strangers.leave(local.0);
        assert!(is_open(&mut come(flood).1), "there is room again");
    }

    #[test] // S63
    fn clients_that_come_all_at_once_do_not_throw_each_other_out() {
        let strangers = Strangers::default();
        let come = || {
            let (near, far) = UnixStream::pair().unwrap();
            (&far).write_all(b"FB").unwrap();
            (strangers.come(None, Some(near.into())), far)
        };
        let mut clients: Vec<_> = (0..STRANGERS_MAX).map(|_| come()).collect();
        assert!(come().0.is_none(), "who comes later comes again");
        assert!(clients.iter_mut().all(|(number, stream)| number.is_some() && is_open(stream)));
        std::thread::sleep(STRANGER_SPOKEN);
        assert!(come().0.is_some() && !is_open(&mut clients[0].1), "a greeting alone keeps no place for long");
    }
}
