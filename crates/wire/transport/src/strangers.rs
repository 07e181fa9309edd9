//! Connections that have not said who they are. Anybody who reaches the port can make them, as many as he likes.
//!
//! There are at most [`STRANGERS_MAX`]. One that comes when there are as many takes the place of another, of the address that has the most:
//! of the one that has said nothing for longest, else of the first whose handshake lasts longer than [`STRANGER_SPOKEN`]. So clients that
//! come all at once do not throw each other out, and who says nothing keeps nobody out who speaks at once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use concurrency::{Instant, Mutex};
use rustix::io::ioctl_fionread;
use rustix::net::{Shutdown, shutdown};

use crate::limits::{STRANGER_SPOKEN, STRANGERS_MAX};

/// From where a connection comes: an address of the network without its port; `None`: this machine.
pub(crate) type From = Option<std::net::IpAddr>;

struct Stranger {
    number: u64,
    from: From,
    since: Instant,
    /// Its socket, to end it from here.
    socket: OwnedFd,
    /// Its greeting has come.
    has_spoken: bool,
}

impl Stranger {
    /// Whether its greeting has come, or is there to be read.
    fn has_spoken(&self) -> bool {
        self.has_spoken || ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes > 0)
    }
}

#[derive(Default)]
struct State {
    last: u64,
    /// The longest ago first.
    all: Vec<Stranger>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<State>);

impl Strangers {
    /// Another one; returns its number. One of those that are there may be closed for it. `None`: there is no place for it now.
    pub fn come(&self, from: From, socket: OwnedFd) -> Option<u64> {
        let mut state = self.0.lock();
        if state.all.len() >= STRANGERS_MAX {
            let gone = state.one_too_many(from)?;
            let gone = state.all.remove(gone);
            tracing::debug!(from = ?gone.from, "too many connections that have not said who they are: one is closed");
            // Its thread sees the end; nothing else comes of a failure.
            let _ = shutdown(&gone.socket, Shutdown::Both);
        }
        state.last += 1;
        let number = state.last;
        state.all.push(Stranger { number, from, since: Instant::now(), socket, has_spoken: false });
        Some(number)
    }

    /// Its greeting has come.
    pub fn spoke(&self, number: u64) {
        self.0.lock().all.iter_mut().filter(|one| one.number == number).for_each(|one| one.has_spoken = true);
    }

    /// It has said who it is, or has gone.
    pub fn leave(&self, number: u64) {
        self.0.lock().all.retain(|one| one.number != number);
    }

    /// Ends all.
    pub fn close(&self) {
        self.0.lock().all.iter().for_each(|one| _ = shutdown(&one.socket, Shutdown::Both));
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
        // Whoever has fewer gets the place of one that has most, whatever that has said.
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
            (strangers.come(from, near.into()).unwrap(), far)
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
            (strangers.come(None, near.into()), far)
        };
        let mut clients: Vec<_> = (0..STRANGERS_MAX).map(|_| come()).collect();
        assert!(come().0.is_none(), "who comes later comes again");
        assert!(clients.iter_mut().all(|(number, stream)| number.is_some() && is_open(stream)));
        std::thread::sleep(STRANGER_SPOKEN);
        assert!(come().0.is_some() && !is_open(&mut clients[0].1), "a greeting alone keeps no place for long");
    }
}
