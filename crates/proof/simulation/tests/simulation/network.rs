//! A network in memory. Bytes of one link arrive in order and late; those of two links overtake each other. Links break
//! in the middle of a frame, and a client or the server may be unreachable.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex, below};
use transport::limits::TICK;
use transport::{Dial, Link, Listener, NewConnection, Peer, WaitLimit};
use types::Gathered;

/// Longest time that bytes are on their way, microseconds: mostly, and of one in so many parts.
const DELAY_US: usize = 3000;
const DELAY_LONG_US: usize = 1_000_000;
const LONG: usize = 40;
/// One of so many sends is the last of its link.
const LOSS: usize = 60;

#[derive(Default)]
struct Flow {
    /// Bytes on their way, each part with the time of its arrival.
    parts: VecDeque<(Instant, Vec<u8>)>,
    /// Whether the link is broken: what is on its way arrives, and nothing more is sent.
    broken: bool,
}

/// One direction of a link.
#[derive(Default)]
struct Pipe {
    flow: Mutex<Flow>,
    changed: Condvar,
}

impl Pipe {
    fn breaks(&self) {
        self.flow.lock().broken = true;
        self.changed.notify_all();
    }
}

/// One end of a link.
struct End {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    network: Arc<Network>,
}

fn broken<T>() -> io::Result<T> {
    Err(io::ErrorKind::ConnectionReset.into())
}

impl End {
    fn breaks(&self) {
        [&self.incoming, &self.outgoing].into_iter().for_each(|pipe| pipe.breaks());
    }
}

impl Link for End {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let until = Instant::now() + TICK;
        let mut flow = self.incoming.flow.lock();
        loop {
            let now = Instant::now();
            let due = flow.parts.front().map(|(due, _)| *due);
            if due.is_some_and(|due| due <= now)
                && let Some((_, part)) = flow.parts.front_mut()
            {
                let count = part.len().min(buffer.len());
                buffer[..count].copy_from_slice(&part[..count]);
                part.drain(..count);
                if part.is_empty() {
                    flow.parts.pop_front();
                }
                return Ok(count);
            }
            if due.is_none() && flow.broken {
                return broken();
            }
            if now >= until {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.incoming.changed.wait_until(&mut flow, due.map_or(until, |due| due.min(until)));
        }
    }

    fn send(&mut self, parts: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let (count, lost, delay) = (bytes.len(), self.network.loses(), self.network.delay());
        {
            let mut flow = self.outgoing.flow.lock();
            if flow.broken {
                return broken();
            }
            if lost {
                bytes.truncate(below(count + 1));
            }
            let last = flow.parts.back().map(|(due, _)| *due);
            let due = Instant::now() + delay;
            if !bytes.is_empty() {
                flow.parts.push_back((last.map_or(due, |last| last.max(due)), bytes));
            }
        }
        self.outgoing.changed.notify_all();
        if lost {
            self.breaks();
        }
        Ok(count)
    }

    fn send_file(&mut self, _: BorrowedFd<'_>, _: u64, _: usize) -> io::Result<usize> {
        broken()
    }

    fn send_gathered(&mut self, _: &dyn Gathered, _: usize) -> io::Result<usize> {
        broken()
    }

    fn peer(&self) -> io::Result<Peer> {
        Ok(Peer::Local { uid: rustix::process::geteuid().as_raw(), pid: 1 })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.breaks();
    }
}

#[derive(Default)]
struct Links {
    /// Server process that listens; 0: none.
    listens: u64,
    /// Links that the server has not accepted yet.
    waiting: VecDeque<End>,
    /// All links, with the client of each.
    all: Vec<(usize, [Arc<Pipe>; 2])>,
    /// Clients that reach nobody.
    away: BTreeSet<usize>,
    /// Whether links break by themselves, and some bytes are on their way for long.
    rough: bool,
}

/// The network between all clients and the server.
#[derive(Default)]
pub struct Network {
    links: Mutex<Links>,
    changed: Condvar,
}

impl Network {
    fn loses(&self) -> bool {
        below(LOSS) == 0 && self.links.lock().rough
    }

    fn delay(&self) -> Duration {
        let long = below(LONG) == 0 && self.links.lock().rough;
        Duration::from_micros(below(if long { DELAY_LONG_US } else { DELAY_US }) as u64)
    }

    fn break_those(&self, which: impl Fn(usize) -> bool) {
        let mut links = self.links.lock();
        let broken: Vec<_> = links.all.extract_if(.., |(client, _)| which(*client)).collect();
        drop(links);
        broken.iter().flat_map(|(_, pipes)| pipes).for_each(|pipe| pipe.breaks());
    }

    /// Breaks all links. From now on a server process listens, or none (0).
    pub fn listens(&self, process: u64) {
        {
            let mut links = self.links.lock();
            links.listens = process;
            links.waiting.clear();
        }
        self.break_those(|_| true);
        self.changed.notify_all();
    }

    /// Breaks the links of one client, which reaches nobody until it is back.
    pub fn leaves(&self, client: usize) {
        self.links.lock().away.insert(client);
        self.break_those(|other| other == client);
    }

    /// Lets a client reach the server again.
    pub fn returns(&self, client: usize) {
        self.links.lock().away.remove(&client);
    }

    /// Breaks one link.
    pub fn breaks_one(&self) {
        let mut links = self.links.lock();
        if links.all.is_empty() {
            return;
        }
        let one = below(links.all.len());
        let (_, pipes) = links.all.swap_remove(one);
        drop(links);
        pipes.iter().for_each(|pipe| pipe.breaks());
    }

    /// Begins to lose and delay, or ends to.
    pub fn is_rough(&self, rough: bool) {
        let mut links = self.links.lock();
        links.rough = rough;
        links.away.clear();
    }
}

/// Way of one client to the server.
pub struct Way(pub Arc<Network>, pub usize);

impl Dial for Way {
    fn dial(&self, _: Duration, patience: &WaitLimit<'_>) -> io::Result<Box<dyn Link>> {
        let Way(network, client) = self;
        concurrency::sleep(network.delay());
        patience.check()?;
        let mut links = network.links.lock();
        if links.listens == 0 || links.away.contains(client) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (there, back) = (Arc::<Pipe>::default(), Arc::<Pipe>::default());
        let end = |incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>| End {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            network: Arc::clone(network),
        };
        links.all.push((*client, [Arc::clone(&there), Arc::clone(&back)]));
        links.waiting.push_back(end(&there, &back));
        drop(links);
        network.changed.notify_all();
        Ok(Box::new(end(&back, &there)))
    }
}

/// Connections that one server process accepts.
pub struct Accepts(pub Arc<Network>, pub u64);

impl Listener for Accepts {
    fn next(&self) -> io::Result<Option<NewConnection>> {
        let until = Instant::now() + TICK;
        let mut links = self.0.links.lock();
        loop {
            if links.listens == self.1
                && let Some(end) = links.waiting.pop_front()
            {
                return Ok(Some(NewConnection { link: Box::new(end), socket: None, from: None }));
            }
            if self.0.changed.wait_until(&mut links, until).timed_out() {
                return Ok(None);
            }
        }
    }
}
