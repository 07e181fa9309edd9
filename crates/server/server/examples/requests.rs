//! How fast a server takes requests, beside what plain sockets can do, in one run on one machine.
//!
//! `cargo run --release -p server --example requests -- [DIRECTORY [SECONDS [ROUNDS]]]`: the burst buffer, the global store
//! and the plain program's files are made in the directory (default `/dev/shm`). Every measure takes so many seconds (default
//! 1); each round (default 5) runs all of them, turn about. One line a round and measure, as `benches/all.sh server` wants them; the
//! medians go to stderr.
//!
//! * *copy*: two senders stream 128 KiB blocks to two receivers, which write them into files.
//! * *128 KiB*: two threads write 128 KiB with a request each, one after the other, into files of the server, which has written them
//!   to its replicas when it answers. When the time is up all of it is read again and compared, here as below.
//! * *ping-pong*: one thread sends 8 KiB and waits for 40 bytes, over and over.
//! * *8 KiB*: one thread writes 8 KiB with a request each.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use config::{Policy, PolicySet};
use file_cache::{FileCache, Settings};
use global_store::posix::{PosixStore, StoreOptions};
use server::{BootVerifier, Files};
use transport::{Address, AllowedPeers, Call, Client, Server, Who};
use wire::{Message, Path as WirePath, Text, open};

const LARGE: usize = 128 << 10;
const SMALL: usize = 8 << 10;
const STREAMS: usize = 2;
/// Where writers begin again: what is measured is moving bytes, not finding room for them.
const FILE_BYTES: u64 = 64 << 20;

/// Runs `work` in so many threads until time is up; bytes (or requests) a second.
fn rate(threads: usize, seconds: f64, work: impl Fn(usize, &AtomicBool, &AtomicU64) + Sync) -> f64 {
    let (end, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (work, end, done) = (&work, &end, &done);
            scope.spawn(move || work(thread, end, done));
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        end.store(true, Ordering::Relaxed);
    });
    done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let far = listener.accept().expect("a connection").0;
    near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).expect("a socket option");
    (near, far)
}

fn copy(directory: &Path, seconds: f64) -> f64 {
    rate(STREAMS, seconds, |thread, end, done| {
        let (mut near, mut far) = pair();
        // As the server's: what was written in an earlier round is written over.
        let path = directory.join(format!("plain-{thread}"));
        let file = File::options().create(true).truncate(false).write(true).open(path).expect("a file");
        let receiver = std::thread::spawn(move || {
            let (mut block, mut at) = (vec![0; LARGE], 0);
            while far.read_exact(&mut block).is_ok() {
                file.write_all_at(&block, at).expect("a write");
                at = (at + LARGE as u64) % FILE_BYTES;
            }
        });
        let block = vec![7; LARGE];
        while !end.load(Ordering::Relaxed) {
            near.write_all(&block).expect("a send");
            done.fetch_add(LARGE as u64, Ordering::Relaxed);
        }
        drop(near);
        receiver.join().expect("a receiver");
    })
}

fn ping_pong(seconds: f64) -> f64 {
    rate(1, seconds, |_, end, done| {
        let (mut near, mut far) = pair();
        let receiver = std::thread::spawn(move || {
            let mut block = vec![0; SMALL];
            while far.read_exact(&mut block).is_ok() && far.write_all(&[1; 40]).is_ok() {}
        });
        let (block, mut answer) = (vec![7; SMALL], [0; 40]);
        while !end.load(Ordering::Relaxed) {
            near.write_all(&block).and_then(|()| near.read_exact(&mut answer)).expect("a round trip");
            done.fetch_add(1, Ordering::Relaxed);
        }
        drop(near);
        receiver.join().expect("a receiver");
    })
}

/// Writes, each with its number at both ends; then what the server has of all that was written is read again and compared.
fn requests(client: &Client, threads: usize, bytes: usize, seconds: f64) -> f64 {
    let written = [const { AtomicU64::new(0) }; STREAMS];
    let rate = rate(threads, seconds, |thread, end, done| {
        let (mut block, mut at, mut number) = (vec![7; bytes], 0, 0u64);
        while !end.load(Ordering::Relaxed) {
            stamp(&mut block, number);
            let message = Message::Write { handle: thread as u64, offset: at };
            client.call(Call { data: block.as_slice().into(), ..Call::new(&message) }).expect("a write");
            at = (at + bytes as u64) % FILE_BYTES;
            number += 1;
            done.fetch_add(if bytes == LARGE { LARGE as u64 } else { 1 }, Ordering::Relaxed);
        }
        written[thread].store(number, Ordering::Relaxed);
    });
    for (handle, written) in written.iter().enumerate() {
        compare(client, handle as u64, bytes, written.load(Ordering::Relaxed));
    }
    rate
}

fn stamp(block: &mut [u8], number: u64) {
    let end = block.len() - 8;
    block[..8].copy_from_slice(&number.to_le_bytes());
    block[end..].copy_from_slice(&number.to_le_bytes());
}

/// Of so many writes the last at each place is there.
fn compare(client: &Client, handle: u64, bytes: usize, written: u64) {
    let laps = FILE_BYTES / bytes as u64;
    let (mut expected, mut found) = (vec![7; bytes], vec![0; bytes]);
    for number in written.saturating_sub(laps)..written {
        stamp(&mut expected, number);
        let message = Message::Read { handle, offset: number % laps * bytes as u64, len: bytes as u32 };
        let answer = client.call(Call { into: &mut found, ..Call::new(&message) }).expect("a read");
        assert!(answer.data_bytes == bytes && found == expected, "write {number} of file {handle} is not there");
    }
}

/// A server over fresh directories, and a client with a file open for each thread.
fn serve(directory: &Path) -> (Server, Client, FileCache) {
    let data = directory.join("data");
    fs::create_dir_all(&data).expect("a directory");
    let root: std::os::fd::OwnedFd = File::open(&data).expect("the directory").into();
    let store_id = PosixStore::identity_of(std::os::fd::AsFd::as_fd(&root)).expect("an identity").to_string();
    let store = PosixStore::new(root, StoreOptions::default()).expect("a store");
    let settings = Settings::new(directory.join("bb"), Arc::new(store.clone()), store_id.clone());
    let cache = FileCache::open(settings).expect("a burst buffer");
    let boot = BootVerifier::begin(directory);
    let files = Files::new(Arc::new(cache.clone()), store, store_id.clone(), &directory.join("departed"), &boot)
        .expect("a service");
    let access = AllowedPeers { secret: None, anonymous: true };
    let server = Server::start(files, &[Address::Tcp("127.0.0.1:0".into())], access).expect("a server");
    let who = Who { store: store_id, agent: "bench".into() };
    let client =
        Client::connect(server.addresses()[0].clone(), None, who, Duration::from_secs(10)).expect("a connection");
    for handle in 0..STREAMS as u64 {
        let path = data.join(format!("file-{handle}"));
        let file: std::os::fd::OwnedFd = File::create(&path).expect("a file").into();
        let message = Message::Open {
            handle,
            flags: open::READ | open::WRITE,
            identity: PosixStore::identity_of(std::os::fd::AsFd::as_fd(&file)).expect("an identity"),
            hint: WirePath::new(format!("file-{handle}")).expect("a short path"),
            policy: Text::cut(PolicySet::of(&Policy::default()).to_toml()),
        };
        client.call(Call::new(&message)).expect("an open");
    }
    (server, client, cache)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut words = std::env::args().skip(1);
    let base = PathBuf::from(words.next().unwrap_or_else(|| "/dev/shm".into()));
    let seconds = words.next().map_or(1.0, |word| word.parse().expect("seconds"));
    let count: usize = words.next().map_or(5, |word| word.parse().expect("a number of rounds"));
    let directory = base.join(format!("forebay-requests-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let (server, client, cache) = serve(&directory);
    let mut rounds = [const { Vec::new() }; 4];
    // Every file has its pages before anything is measured.
    copy(&directory, seconds);
    requests(&client, STREAMS, LARGE, seconds);
    for _ in 0..count {
        rounds[0].push(copy(&directory, seconds));
        rounds[1].push(requests(&client, STREAMS, LARGE, seconds));
        rounds[2].push(ping_pong(seconds));
        rounds[3].push(requests(&client, 1, SMALL, seconds));
    }
    let sides = ["bare", "forebay", "bare", "forebay"];
    for (number, values) in rounds.iter().enumerate() {
        for value in values {
            let (what, value) = match number {
                0 | 1 => ("128 KiB writes to a server, two threads MB/s", value / 1e6),
                _ => ("8 KiB writes to a server, one thread 1/s", *value),
            };
            println!("{what} more {} {value:.1}", sides[number]);
        }
    }
    let worst_and_best = |values: &[f64]| (values[0], values[values.len() - 1]);
    let [copied, large, pings, small] = rounds.each_mut().map(|values| median(values));
    let [of_copy, of_large, of_pings, of_small] = rounds.each_ref().map(|values| worst_and_best(values));
    let mb = |(worst, best): (f64, f64)| format!("({:.0} to {:.0})", worst / 1e6, best / 1e6);
    let per_s = |(worst, best): (f64, f64)| format!("({worst:.0} to {best:.0})");
    eprintln!("copy      {:8.0} MB/s {}", copied / 1e6, mb(of_copy));
    eprintln!("128 KiB   {:8.0} MB/s {}: {:.2} of the copy", large / 1e6, mb(of_large), large / copied);
    eprintln!("ping-pong {pings:8.0} /s {}", per_s(of_pings));
    eprintln!("8 KiB     {small:8.0} /s {}: {:.2} of the ping-pong", per_s(of_small), small / pings);
    drop(client);
    drop(server);
    cache.abandon();
    fs::remove_dir_all(&directory).expect("the directory goes");
}
