//! One story: an agent and two nodes, their programs, and a server that dies while they work.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use agent::locks::LockTable;
use concurrency::{Instant, Mutex, below};
use global_store::posix::{PosixStore, StoreOptions};
use relay::Relay;
use relay_server::RecoveryRecords;
use remote::RemoteStore;
use server::{BootVerifier, Files};
use transport::{Address, AllowedPeers, Client, Server, Who};

use crate::attached::Process;
use crate::disk::{Disk, Machine};
use crate::kernel::Kernels;
use crate::messages;
use crate::network::{Accepts, Network, Way};
use crate::oracle::Oracle;
use crate::programs::{Kernel, Program, run_over_agent, run_over_relay};

/// Most files that all programs share.
const FILES: usize = 2;
/// Nodes without the global store.
const NODES: u64 = 2;
/// Most programs of each client.
const PROGRAMS: usize = 3;
/// Most strikes.
const STRIKES: usize = 8;
/// Files that each program opens one after the other.
const OPENS: usize = 3;
/// Identity of the directory.
const STORE: &str = "00";
/// Longest grace period, seconds.
const GRACE_S: usize = 10;
/// Simulated time within which everything is closed once the network is whole.
const SETTLES: Duration = Duration::from_secs(120);
/// Simulated time within which the last notices of a client are sent.
const LAST_NOTICES: Duration = Duration::from_secs(10);

/// The server, its machine and the network to it.
struct World {
    machine: Arc<Machine>,
    network: Arc<Network>,
    /// Directory of the server's durable notes.
    dir: PathBuf,
    server: Mutex<Option<(Server, Arc<Process>)>>,
    processes: AtomicU64,
    grace: Duration,
}

impl World {
    fn starts(&self) {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let boot_verifier = BootVerifier::begin(&self.dir);
        let disk = Disk::new(&self.machine, number, FILES as u8);
        let root = PosixStore::new(File::open(&self.dir).unwrap().into(), StoreOptions::default()).unwrap();
        let departed = self.dir.join("departed");
        let files = Files::new(Arc::new(disk.clone()), root, STORE, &departed, &boot_verifier).unwrap();
        let process = Arc::new(Process {
            number,
            machine: Arc::clone(&self.machine),
            disk,
            locks: Arc::new(LockTable::default()),
            records: Arc::new(RecoveryRecords::open(self.dir.join("lockers"), self.grace).unwrap()),
            boot_verifier: boot_verifier.number(),
            clients: AtomicU64::new(1),
        });
        self.machine.starts(number);
        let listener = Box::new(Accepts(Arc::clone(&self.network), number));
        let service = Kernels { process: Arc::clone(&process), files };
        let server = Server::start_on(service, vec![listener], AllowedPeers::default()).unwrap();
        *self.server.lock() = Some((server, process));
        self.network.listens(number);
    }

    /// Kills the server, and its machine if it `crashes`.
    fn dies(&self, crashes: bool) {
        // First: nobody hears what a process that has died still says.
        self.network.listens(0);
        self.machine.dies(crashes);
        if crashes {
            std::fs::remove_file(self.dir.join("life")).unwrap();
        }
        // What is left of its threads ends by itself.
        if let Some(server) = self.server.lock().take() {
            concurrency::spawn("dead", move || drop(server)).unwrap();
        }
    }

    /// Does one thing that clients must survive.
    fn strikes(&self) {
        let oracle = &self.machine.oracle;
        concurrency::sleep(Duration::from_millis(below(800) as u64));
        let away = (below(3) == 0).then(|| below(NODES as usize + 1));
        if let Some(client) = away {
            oracle.counts("client away");
            self.network.leaves(client);
        }
        let (dies, crashes) = (below(2) == 0, below(2) == 0);
        if dies {
            oracle.counts(if crashes { "machine crashes" } else { "process dies" });
            self.dies(crashes);
            concurrency::sleep(Duration::from_millis(below(if below(2) == 0 { 5 } else { 1500 }) as u64));
            self.starts();
        }
        match away {
            None if !dies => self.network.breaks_one(),
            None => {}
            Some(client) => {
                let long = below(2) == 0;
                concurrency::sleep(Duration::from_millis(below(if long { 15_000 } else { 500 }) as u64));
                self.network.returns(client);
            }
        }
    }

    fn client(&self, number: usize, store: &str) -> Client {
        let who = Who { store: store.into(), agent: number.to_string() };
        let way = Box::new(Way(Arc::clone(&self.network), number));
        let address = Address::Tcp("server:1".into());
        Client::connect_over(way, address, None, who, Duration::from_secs(3600)).unwrap()
    }
}

/// Waits for a condition, in simulated time.
fn comes_true(within: Duration, condition: impl Fn() -> bool) -> bool {
    let until = Instant::now() + within;
    while !condition() {
        if Instant::now() > until {
            return false;
        }
        concurrency::sleep(Duration::from_millis(100));
    }
    true
}

/// Runs one story in the directory `dir`.
pub fn run(dir: &Path, oracle: &Arc<Oracle>) {
    let machine = Machine::new(Arc::clone(oracle));
    let world = Arc::new(World {
        machine: Arc::clone(&machine),
        network: Arc::default(),
        dir: dir.to_owned(),
        server: Mutex::default(),
        processes: AtomicU64::new(1),
        grace: Duration::from_secs(1 + below(GRACE_S) as u64),
    });
    world.starts();
    let store = Arc::new(RemoteStore::new(world.client(0, STORE), Duration::from_secs(5)));
    let kernels: Vec<_> = (1..=NODES)
        .map(|node| {
            let relay = Relay::new(world.client(node as usize, ""), Duration::from_secs(5));
            let threads = relay.start(|_| Ok(())).unwrap();
            fuse_protocol::Raw::init(&*relay, &messages::request(messages::INIT, 2, 0, &[])).unwrap();
            (Arc::new(Kernel { relay, node, uniques: AtomicU64::new(4) }), threads)
        })
        .collect();
    let (left, files) = (Arc::new(AtomicUsize::new(0)), 1 + below(FILES) as u8);
    let begin = |number: u64, client: u64, run: Box<dyn FnOnce(&Program) + Send>| {
        let program = Program { number, client, files, machine: Arc::clone(&machine) };
        let left = Arc::clone(&left);
        left.fetch_add(1, Ordering::SeqCst);
        let run = move || {
            run(&program);
            left.fetch_sub(1, Ordering::SeqCst);
        };
        concurrency::spawn_joined("program", run).unwrap()
    };
    world.network.is_rough(true);
    let mut programs = Vec::new();
    for _ in 0..=below(PROGRAMS) {
        let store = Arc::clone(&store);
        programs.push(begin(
            1 + programs.len() as u64,
            0,
            Box::new(move |program| run_over_agent(program, &store, 2 * OPENS)),
        ));
        for (kernel, _) in &kernels {
            let (kernel, node) = (Arc::clone(kernel), kernel.node);
            let run = move |program: &Program| run_over_relay(program, &kernel, OPENS);
            programs.push(begin(1 + programs.len() as u64, node, Box::new(run)));
        }
    }
    let mut strikes = 1 + below(STRIKES);
    while left.load(Ordering::SeqCst) > 0 && strikes > 0 {
        world.strikes();
        strikes -= 1;
    }
    world.network.is_rough(false);
    programs.into_iter().for_each(|program| program.join().unwrap());
    settles(&world);
    for (kernel, threads) in kernels {
        fuse_protocol::Raw::destroy(&*kernel.relay);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    drop(store);
    // A notice may still be under way, and waits for its server however long that takes.
    concurrency::sleep(LAST_NOTICES);
    let server = world.server.lock().take();
    drop(server);
}

/// Checks what is left when all programs have ended.
fn settles(world: &World) {
    let machine = &world.machine;
    let nothing_open = || machine.open_files() == 0;
    if !comes_true(SETTLES, nothing_open) {
        machine.oracle.violated(format!("{} closed files stay open at the server", machine.open_files()));
    }
    let locks = world.server.lock().as_ref().map(|(_, process)| Arc::clone(&process.locks));
    if !comes_true(SETTLES, || locks.as_ref().is_none_or(|locks| locks.is_empty())) {
        machine.oracle.violated("locks that nobody holds stay at the server".to_owned());
    }
}
