//! The complete model: all resources, and the path of an operation through them.

use std::collections::{HashMap, VecDeque};

use super::disk::{Costs, Disk};
use super::locks::{Locks, Wanted};
use super::pipe::{Pipe, Service};
use super::stripe::pieces;
use super::{ClientId, FileId, Kind, Ns, Spec, Use, share};

#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    pub file: FileId,
    /// The open file description, to which the limit per stream applies.
    pub stream: u64,
    pub client: ClientId,
    pub offset: u64,
    pub bytes: u64,
    pub write: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Transfer(Transfer),
    Metadata,
    /// Any other operation that is one message and its reply: fsync, flush, locks.
    Message,
}

#[derive(Debug)]
struct Client {
    number: usize,
    cpu: Option<Pipe>,
    link: Option<Pipe>,
}

#[derive(Debug)]
pub struct Bed {
    spec: Spec,
    operations: u64,
    streams: HashMap<u64, Pipe>,
    clients: HashMap<ClientId, Client>,
    core: Option<Pipe>,
    servers: Vec<Pipe>,
    targets: Vec<Disk>,
    metadata: Service,
    locks: Locks,
    /// Data that is acknowledged but has not passed: the time when it will have, and its bytes.
    cheated: VecDeque<(Ns, u64)>,
}

impl Bed {
    pub fn new(spec: Spec) -> Bed {
        let servers = match spec.server_link {
            Some(rate) => (0..spec.servers.max(1)).map(|at| Pipe::new(rate * part(spec.slow_server, at))).collect(),
            None => Vec::new(),
        };
        let targets = (0..spec.targets.max(1)).map(|at| target(&spec, part(spec.slow_target, at))).collect();
        Bed {
            operations: 0,
            streams: HashMap::new(),
            clients: HashMap::new(),
            core: spec.bandwidth.map(Pipe::new),
            servers,
            targets,
            metadata: Service::new(spec.metadata_concurrency),
            locks: Locks::new(&spec),
            cheated: VecDeque::new(),
            spec,
        }
    }

    /// Returns the end of an operation that begins at `now`. `now` must not decrease from call to call.
    pub fn operate(&mut self, now: Ns, operation: Operation) -> Ns {
        let least = now + self.latency();
        let trip = self.spec.round_trip;
        let (to, back) = (trip / 2, trip.div_ceil(2));
        let end = match operation {
            Operation::Transfer(transfer) => self.transfer(now, transfer),
            Operation::Metadata if self.spec.metadata > 0 => self.metadata.serve(now + to, self.spec.metadata) + back,
            Operation::Metadata | Operation::Message => now + trip,
        };
        end.max(least)
    }

    fn transfer(&mut self, now: Ns, transfer: Transfer) -> Ns {
        let trip = self.spec.round_trip;
        let further = transfer.bytes.div_ceil(self.spec.message.max(1)).saturating_sub(1) * trip;
        let Transfer { file, client, offset, bytes, write, .. } = transfer;
        let wanted = Wanted { file, client, start: offset, bytes, write };
        let granted = self.locks.acquire(now, wanted);
        let mut passed = self.pass(granted + trip / 2 + further, transfer);
        if self.spec.atime > 0 && !write {
            passed = passed.max(self.metadata.serve(granted + trip / 2, self.spec.atime));
        }
        let end = passed + trip.div_ceil(2);
        self.locks.used(wanted, end);
        if write && self.spec.cheat > 0 { self.cheat(now, passed, bytes) } else { end }
    }

    /// Passes data through all resources in parallel, and returns the end of the slowest.
    fn pass(&mut self, at: Ns, transfer: Transfer) -> Ns {
        let (spec, Transfer { bytes, file, offset, write, .. }) = (&self.spec, transfer);
        let mut end = at;
        if let Some(rate) = spec.stream {
            let stream = self.streams.entry(transfer.stream).or_insert_with(|| Pipe::new(rate));
            end = end.max(stream.pass(at, bytes, spec.burst));
        }
        // Tracked only if clients have own resources: there may be as many clients as opens, and none is ever removed.
        if spec.client_cpu.is_some() || spec.client_link.is_some() {
            let number = self.clients.len();
            let client = self.clients.entry(transfer.client).or_insert_with(|| Client {
                number,
                cpu: spec.client_cpu.map(Pipe::new),
                link: spec.client_link.map(Pipe::new),
            });
            for pipe in [&mut client.cpu, &mut client.link].into_iter().flatten() {
                end = end.max(pipe.pass(at, bytes, spec.burst));
            }
        }
        if let Some(core) = &mut self.core {
            end = end.max(core.pass(at, bytes, spec.burst));
        }
        for piece in pieces(file, offset, bytes, spec.stripe.max(1), self.targets.len()) {
            let servers = self.servers.len().max(1);
            if let Some(server) = self.servers.get_mut(piece.target % servers) {
                end = end.max(server.pass(at, piece.bytes, spec.burst));
            }
            end = end.max(self.targets[piece.target].work(at, file, piece, write, spec.burst));
        }
        end
    }

    /// Returns the time of the acknowledgement, as soon as at most the configured bytes have been acknowledged but not
    /// passed.
    fn cheat(&mut self, now: Ns, passed: Ns, bytes: u64) -> Ns {
        while self.cheated.front().is_some_and(|(end, _)| *end <= now) {
            self.cheated.pop_front();
        }
        self.cheated.push_back((passed, bytes));
        let mut held: u64 = self.cheated.iter().map(|(_, bytes)| bytes).sum();
        let mut until = now;
        while held > self.spec.cheat
            && let Some((end, bytes)) = self.cheated.pop_front()
        {
            (held, until) = (held - bytes, until.max(end));
        }
        until
    }

    fn latency(&mut self) -> Ns {
        if self.spec.jitter == 0 {
            return self.spec.latency;
        }
        let share = share(self.spec.seed.wrapping_add(self.operations));
        self.operations += 1;
        self.spec.latency + (self.spec.jitter as f64 * share) as Ns
    }

    /// Closes an open file description. Also releases its client's locks on the file, including those that other
    /// descriptions requested.
    pub fn closed(&mut self, file: FileId, stream: u64, client: ClientId) {
        self.streams.remove(&stream);
        self.locks.closed(file, client);
    }

    /// Returns the activity of every resource until `now`.
    pub fn uses(&self, now: Ns) -> Vec<Use> {
        let pipe = |kind, number, pipe: &Pipe| pipe.counters.told(kind, number, pipe.behind(now));
        let mut uses = Vec::new();
        for client in self.clients.values() {
            uses.extend(client.cpu.as_ref().map(|cpu| pipe(Kind::ClientCpu, client.number, cpu)));
            uses.extend(client.link.as_ref().map(|link| pipe(Kind::ClientLink, client.number, link)));
        }
        uses.extend(self.core.as_ref().map(|core| pipe(Kind::Core, 0, core)));
        uses.extend(self.servers.iter().enumerate().map(|(at, link)| pipe(Kind::ServerLink, at, link)));
        uses.extend(self.targets.iter().enumerate().map(|(at, disk)| pipe(Kind::Target, at, &disk.pipe)));
        uses.push(self.metadata.counters.told(Kind::Metadata, 0, self.metadata.behind(now)));
        uses.push(self.locks.manager.counters.told(Kind::Lock, 0, self.locks.manager.behind(now)));
        uses.sort_by_key(|told| (told.kind, told.number));
        uses
    }
}

fn part(slow: Option<(usize, f64)>, number: usize) -> f64 {
    slow.filter(|(slow, _)| *slow == number).map_or(1.0, |(_, part)| part)
}

fn target(spec: &Spec, part: f64) -> Disk {
    let longer = |time: Ns| (time as f64 / part) as Ns;
    let costs = Costs { seek: longer(spec.seek), adjacent: longer(spec.adjacent), write_seek: longer(spec.write_seek) };
    Disk::new(spec.target.unwrap_or(f64::INFINITY) * part, costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;
    const MB: u64 = 1_000_000;

    fn write(stream: u64, offset: u64, bytes: u64) -> Operation {
        Operation::Transfer(Transfer { file: 1, stream, client: stream, offset, bytes, write: true })
    }

    fn read(stream: u64, offset: u64, bytes: u64) -> Operation {
        Operation::Transfer(Transfer { file: 1, stream, client: stream, offset, bytes, write: false })
    }

    /// Returns bytes per second of `streams` writers in closed loops, each in its own part of the file.
    fn rate(spec: Spec, streams: u64, bytes: u64, count: u64) -> f64 {
        let mut bed = Bed::new(spec);
        let mut next: Vec<(Ns, u64)> = (0..streams).map(|_| (0, 0)).collect();
        let mut last = 0;
        for _ in 0..streams * count {
            let stream = (0..next.len()).min_by_key(|at| next[*at].0).unwrap();
            let (now, done) = next[stream];
            let offset = (stream as u64 * count + done) * bytes;
            next[stream] = (bed.operate(now, write(stream as u64, offset, bytes)), done + 1);
            last = last.max(next[stream].0);
        }
        (streams * count * bytes) as f64 / (last as f64 / 1e9)
    }

    fn close(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 0.02, "{found} is not {wanted}");
    }

    #[test]
    fn each_bound_alone_is_what_is_reached() {
        let none = Spec::default;
        close(rate(Spec { bandwidth: Some(100e6), ..none() }, 4, MB, 100), 100e6);
        close(rate(Spec { stream: Some(30e6), ..none() }, 4, MB, 100), 120e6);
        close(rate(Spec { client_link: Some(25e6), ..none() }, 4, MB, 100), 100e6);
        close(rate(Spec { client_cpu: Some(10e6), ..none() }, 2, MB, 100), 20e6);
        let four = || Spec { targets: 4, stripe: 1 << 16, ..none() };
        close(rate(Spec { target: Some(30e6), ..four() }, 1, 4 << 20, 50), 120e6);
        close(rate(Spec { servers: 2, server_link: Some(40e6), ..four() }, 4, 1 << 20, 100), 80e6);
        // A file striped over all targets is as slow as the slowest one.
        close(rate(Spec { target: Some(30e6), slow_target: Some((2, 0.5)), ..four() }, 1, 4 << 20, 50), 60e6);
    }

    #[test]
    fn a_round_trip_is_paid_for_each_message_and_side_by_side_streams_hide_it() {
        let spec = || Spec { round_trip: 10 * MS, bandwidth: Some(100e6), ..Spec::default() };
        close(rate(spec(), 1, MB, 50), 50e6);
        close(rate(spec(), 4, MB, 50), 100e6);
        close(rate(Spec { message: MB / 4, ..spec() }, 1, MB, 50), 1e6 / 0.05);
    }

    #[test]
    fn random_reads_cost_a_seek_each_and_targets_seek_side_by_side() {
        let spec = Spec { targets: 4, seek: 8 * MS, adjacent: MS / 5, target: Some(100e6), ..Spec::default() };
        let mut bed = Bed::new(spec);
        let end = (0..40).map(|at| bed.operate(0, read(at, (at * 7 % 40) << 20, 8192))).max().unwrap();
        close(end as f64, 10.0 * (8e6 + 81_920.0));
        let mut now = end;
        for at in 0..100 {
            let after = bed.operate(now, read(1, (100 << 20) + at * 4096, 4096));
            assert!(at == 0 || after - now == MS / 5 + 40_960, "{}", after - now);
            now = after;
        }
    }

    #[test]
    fn metadata_is_served_as_many_at_a_time_as_promised_and_reads_pay_for_their_access_time() {
        let spec = Spec { metadata: MS, metadata_concurrency: 2, atime: 3 * MS, ..Spec::default() };
        let mut bed = Bed::new(spec);
        let ends: Vec<Ns> = (0..4).map(|_| bed.operate(0, Operation::Metadata)).collect();
        assert_eq!(ends, [MS, MS, 2 * MS, 2 * MS]);
        assert_eq!(bed.operate(10 * MS, read(1, 0, 10)), 13 * MS);
        assert_eq!(bed.operate(20 * MS, write(1, 0, 10)), 20 * MS);
    }

    #[test]
    fn a_cheating_cache_acknowledges_what_the_targets_have_not_received() {
        let spec = Spec { target: Some(1e6), cheat: 10 * MB, ..Spec::default() };
        let mut bed = Bed::new(spec);
        assert_eq!((0..10).map(|at| bed.operate(0, write(1, at * MB, MB))).max(), Some(0));
        assert_eq!(bed.operate(0, write(1, 10 * MB, MB)), 1000 * MS);
        let target = |bed: &Bed, now| bed.uses(now).into_iter().find(|told| told.kind == Kind::Target).unwrap();
        assert_eq!(target(&bed, 2000 * MS).bytes / 1000, 2000);
        assert_eq!(target(&bed, 20_000 * MS).bytes, 11 * MB);
    }

    #[test]
    fn the_same_operations_take_the_same_time_and_jitter_follows_from_the_seed() {
        let spec = |seed| Spec { latency: 2 * MS, jitter: MS, seed, ..Spec::default() };
        let times = |seed| {
            let mut bed = Bed::new(spec(seed));
            (0..1000).map(|_| bed.operate(0, Operation::Message)).collect::<Vec<_>>()
        };
        assert_eq!(times(7), times(7));
        assert_ne!(times(7), times(8));
        assert!(times(7).iter().all(|time| (2 * MS..=3 * MS).contains(time)));
    }
}
