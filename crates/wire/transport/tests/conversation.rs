//! A client and a server that converse, lose their connection and find each other again.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::*;
use testkit::wait_until;
use transport::{Address, Call, CallError, Client, Data, Lane, Server, limits};
use wire::Message;
use wire::limits::DATA_BYTES_MAX;

const APPEND: Message = Message::Append { handle: 1, end: 0, again: false };

fn append(client: &Client, data: &[u8]) -> Result<u64, CallError> {
    let call = Call { data: data.into(), once: true, within: Some(BOUND), ..Call::new(&APPEND) };
    match client.call(call)?.message {
        Message::Written { offset } => Ok(offset),
        other => panic!("{other:?}"),
    }
}

fn write(client: &Client, offset: u64, data: &[u8]) {
    let message = Message::Write { handle: 1, offset };
    client.call(Call { data: data.into(), within: Some(BOUND), ..Call::new(&message) }).unwrap();
}

fn read(client: &Client, offset: u64, into: &mut [u8], within: Duration) -> Result<usize, CallError> {
    let message = Message::Read { handle: 1, offset, len: into.len() as u32 };
    client.call(Call { into, within: Some(within), ..Call::new(&message) }).map(|answer| answer.data_bytes)
}

#[test]
fn requests_of_any_size_are_answered_over_unix_and_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let unix = Address::Unix(directory.path().join("socket"));
    let log = Arc::new(Log::default());
    let server = Server::start(Served(Arc::clone(&log)), &[unix, any_port()], anonymous()).unwrap();
    for address in server.addresses() {
        let client = client_of(address);
        for bytes in [1_usize, 100, 8 << 10, 25 << 10, 128 << 10, 1 << 20] {
            let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
            write(&client, 3, &data);
            let mut back = vec![0; bytes];
            assert_eq!(read(&client, 3, &mut back, BOUND).unwrap(), bytes);
            assert!(back == data, "{address} {bytes}");
        }
        let mut past = [0; 8];
        assert_eq!(read(&client, 2 << 20, &mut past, BOUND).unwrap(), 0, "past the end");
    }
}

#[test] // S41
fn an_append_whose_answer_was_lost_is_not_done_again() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let cable = Cable::to(&server.addresses()[0]);
    let client = client_of(&cable.address);
    for round in 0..20_u8 {
        cable.lose_next_answer();
        assert_eq!(append(&client, &[round; 3]).unwrap(), u64::from(round) * 3);
        assert_eq!(cable.lost(), usize::from(round) + 1);
    }
    assert_eq!(log.bytes.lock().len(), 60);
}

#[test] // S41, S43
fn threads_that_append_over_a_cable_that_is_cut_again_and_again_append_each_once() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let cable = Cable::to(&server.addresses()[0]);
    let client = client_of(&cable.address);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6_u8)
            .map(|thread| {
                let client = &client;
                scope.spawn(move || {
                    for number in 0..200_u16 {
                        let [low, high] = number.to_le_bytes();
                        append(client, &[thread, low, high]).unwrap();
                    }
                })
            })
            .collect();
        let done = &done;
        let (cable, log) = (&cable, &log);
        scope.spawn(move || {
            let mut seen = 0;
            while !done.load(Ordering::SeqCst) {
                // The cable is cut whenever something got through.
                let now = log.bytes.lock().len();
                if now > seen + 100 {
                    seen = now;
                    cable.cut();
                }
                std::thread::yield_now();
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::SeqCst);
    });
    let bytes = log.bytes.lock().clone();
    let mut records: Vec<[u8; 3]> = bytes.chunks(3).map(|record| record.try_into().unwrap()).collect();
    records.sort_unstable();
    let all = records.len();
    records.dedup();
    assert_eq!((all, records.len()), (1200, 1200));
}

#[test]
fn writes_wait_for_a_server_that_is_started_again_and_what_must_not_be_done_twice_is_asked_about() {
    let log = Arc::new(Log::default());
    let first = serve(&log);
    let cable = Cable::to(&first.addresses()[0]);
    let client = client_of(&cable.address);
    write(&client, 0, b"before");
    cable.lose_next_answer();
    // The append is executed; its answer and the server are lost.
    log.hold();
    std::thread::scope(|scope| {
        let append = scope.spawn(|| append(&client, b"tail"));
        wait_until("the answer is lost", BOUND, || cable.lost() == 1);
        log.release();
        drop(first);
        let second = serve(&log);
        cable.cut();
        cable.lead_to(&second.addresses()[0]);
        let outcome = append.join().unwrap();
        // Either the first server got it again, or the second one says that it does not know.
        assert!(matches!(outcome, Ok(6) | Err(CallError::Lost)), "{outcome:?}");
        write(&client, 0, b"BEFORE");
        assert_eq!(*log.bytes.lock(), b"BEFOREtail");
        drop(second);
    });
}

#[test]
fn a_read_from_a_server_that_stands_still_or_is_gone_times_out() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let cable = Cable::to(&server.addresses()[0]);
    let client = client_of(&cable.address);
    let wait = Duration::from_millis(300);
    log.hold();
    let message = Message::Write { handle: 1, offset: 0 };
    let began = Instant::now();
    let outcome = client.call(Call { data: Data::Bytes(&[1; 64]), within: Some(wait), ..Call::new(&message) });
    assert!(matches!(outcome, Err(CallError::TimedOut)), "{outcome:?}");
    assert_eq!(outcome.unwrap_err().errno(), libc::ETIMEDOUT);
    log.release();
    drop(server);
    cable.cut();
    let outcome = read(&client, 0, &mut [0; 8], wait);
    assert!(matches!(outcome, Err(CallError::TimedOut)), "{outcome:?}");
    assert!(began.elapsed() < BOUND);
    let interrupted = client.call(Call { interrupted: &|| true, ..Call::new(&message) });
    assert!(matches!(interrupted, Err(CallError::Interrupted)), "{interrupted:?}");
}

#[test] // S41
fn a_write_that_was_given_up_changes_nothing_after_a_later_one() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    log.hold();
    let message = Message::Write { handle: 1, offset: 0 };
    let given_up = client.call(Call {
        data: Data::Bytes(b"old"),
        within: Some(Duration::from_millis(200)),
        ..Call::new(&message)
    });
    assert!(matches!(given_up, Err(CallError::TimedOut)));
    assert_eq!(log.standing.load(Ordering::SeqCst), 1, "it still runs on the server");
    std::thread::scope(|scope| {
        let later = scope.spawn(|| write(&client, 0, b"new"));
        log.release();
        later.join().unwrap();
    });
    assert_eq!(*log.bytes.lock(), b"new");
}

#[test] // S41
fn a_write_that_was_given_up_changes_nothing_after_a_later_one_while_an_older_one_hangs() {
    for _ in 0..20 {
        let log = Arc::new(Log::default());
        let server = serve(&log);
        let client = client_of(&server.addresses()[0]);
        log.hold();
        std::thread::scope(|scope| {
            scope.spawn(|| write(&client, 100, b"older"));
            wait_until("the older one runs", BOUND, || log.standing.load(Ordering::SeqCst) == 1);
            let (message, within) = (Message::Write { handle: 1, offset: 0 }, Some(Duration::from_millis(50)));
            let given_up = client.call(Call { data: Data::Bytes(b"old"), within, ..Call::new(&message) });
            assert!(matches!(given_up, Err(CallError::TimedOut)));
            wait_until("it runs as well", BOUND, || log.standing.load(Ordering::SeqCst) == 2);
            let later = scope.spawn(|| write(&client, 0, b"new"));
            // It waits for the request on its own file and not for the other one, or has not arrived yet.
            let mut beside = 0;
            for _ in 0..20 {
                beside += usize::from(log.standing.load(Ordering::SeqCst) > 2);
                std::thread::sleep(Duration::from_millis(1));
            }
            log.release();
            later.join().unwrap();
            assert_eq!(beside, 0);
        });
        assert_eq!(log.bytes.lock()[..3], *b"new");
    }
}

#[test]
fn a_small_request_does_not_wait_behind_large_ones() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    log.hold();
    std::thread::scope(|scope| {
        let large = limits::LANE_CONNECTIONS[Lane::Large as usize];
        for thread in 0..large as u64 + 4 {
            let client = &client;
            scope.spawn(move || write(client, thread << 20, &vec![1; 256 << 10]));
        }
        let taken = || log.standing.load(Ordering::SeqCst) == large;
        wait_until("every connection for large requests is taken", BOUND, taken);
        assert_eq!(read(&client, 0, &mut [0; 512], BOUND).unwrap(), 0);
        log.release();
    });
}

#[test]
fn what_was_connected_ahead_carries_requests_while_nobody_can_connect() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let cable = Cable::to(&server.addresses()[0]);
    let client = Arc::new(client_of(&cable.address));
    client.prepare(Lane::Large, 3);
    // Connections made ahead exist or are being made.
    client.prepare(Lane::Large, 2);
    wait_until("three are connected ahead", BOUND, || cable.connections() == 4);
    cable.lead_to(&Address::Tcp("127.0.0.1:1".to_owned()));
    log.hold();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let client = &client;
            scope.spawn(move || write(client, thread << 20, &vec![1; 256 << 10]));
        }
        wait_until("three write at once", BOUND, || log.standing.load(Ordering::SeqCst) == 3);
        log.release();
    });
    assert_eq!(cable.connections(), 4);
    // A connection that could not be made ahead is made when needed.
    client.prepare(Lane::Small, limits::LANE_CONNECTIONS[Lane::Small as usize] + 1);
    assert!(matches!(read(&client, 0, &mut [0; 8], Duration::from_millis(300)), Err(CallError::TimedOut)));
    cable.lead_to(&server.addresses()[0]);
    assert_eq!(read(&client, 0, &mut [0; 8], BOUND).unwrap(), 8);
}

#[test]
fn what_is_known_of_a_file_is_told_though_every_small_request_hangs() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    log.hold();
    std::thread::scope(|scope| {
        let small = limits::LANE_CONNECTIONS[Lane::Small as usize];
        for thread in 0..small as u64 + 4 {
            let client = &client;
            scope.spawn(move || write(client, thread << 10, &[1; 100]));
        }
        let taken = || log.standing.load(Ordering::SeqCst) == small;
        wait_until("every connection for small requests is taken", BOUND, taken);
        client.call(Call { within: Some(BOUND), ..Call::new(&Message::Ping {}) }).unwrap();
        log.release();
    });
}

#[test] // S43
fn a_server_that_accepts_and_says_nothing_costs_no_more_than_the_callers_patience() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    // As with a stopped server: the kernel accepts connections for it until the queue is full.
    let mute = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp_address = Address::Tcp(tcp.local_addr().unwrap().to_string());
    for address in [Address::Unix(socket), tcp_address] {
        let began = Instant::now();
        let outcome = Client::connect(address, None, who(), Duration::from_millis(300)).err();
        assert!(matches!(outcome, Some(CallError::TimedOut)), "{outcome:?}");
        assert!(began.elapsed() < limits::HANDSHAKE / 2, "{:?}", began.elapsed());
    }
    drop((mute, tcp));
}

#[test]
fn a_unix_socket_whose_queue_is_full_is_no_hang() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let mute = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    let place = rustix::net::SocketAddrUnix::new(&socket).unwrap();
    rustix::net::bind(&mute, &place).unwrap();
    rustix::net::listen(&mute, 0).unwrap();
    let first = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let outcome = Client::connect(Address::Unix(socket), None, who(), Duration::from_millis(300)).err();
    assert!(matches!(outcome, Some(CallError::TimedOut)), "{outcome:?}");
    drop(first);
}

#[test]
fn what_a_client_had_is_closed_soon_after_it_is_gone() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    append(&client, b"x").unwrap();
    assert_eq!(log.sessions.load(Ordering::SeqCst), 1);
    drop(client);
    wait_until("the session is forgotten", BOUND, || log.sessions.load(Ordering::SeqCst) == 0);
    let again = client_of(&server.addresses()[0]);
    append(&again, b"y").unwrap();
    drop(server);
    assert_eq!(log.sessions.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_ends_though_its_clients_always_ask() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    let (ended, began) = (AtomicBool::new(false), Instant::now());
    let asks = || {
        let within = Some(Duration::from_millis(500));
        client.call(Call { within, ..Call::new(&Message::Ping {}) }).is_ok()
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while began.elapsed() < BOUND && asks() {});
        }
        scope.spawn(|| {
            drop(server);
            ended.store(true, Ordering::SeqCst);
        });
        wait_until("the server has ended", BOUND, || ended.load(Ordering::SeqCst));
    });
}

#[test]
fn a_request_that_only_waited_is_not_taken_for_one_that_was_forgotten() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    let connections = limits::LANE_CONNECTIONS[Lane::Large as usize];
    log.hold();
    std::thread::scope(|scope| {
        // The last request finds no free connection, and is not sent while others fill the server's memory.
        for _ in 0..=connections {
            let client = &client;
            scope.spawn(move || write(client, 1 << 20, &vec![1; 256 << 10]));
        }
        wait_until("no connection is left", BOUND, || log.standing.load(Ordering::SeqCst) == connections);
        let appended = (0..limits::ANSWERS_MAX + 50).try_for_each(|_| append(&client, b"x").map(drop));
        log.release();
        appended.unwrap();
    });
}

#[test]
fn a_handler_that_panics_fails_its_request_and_no_other() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    for _ in 0..20 {
        let message = Message::SetLen { handle: 1, len: 0 };
        let outcome = client.call(Call { within: Some(BOUND), ..Call::new(&message) });
        assert!(matches!(outcome, Err(CallError::Failed { errno: libc::EIO, .. })), "{outcome:?}");
    }
    assert_eq!(append(&client, b"after").unwrap(), 0);
    drop((client, server));
    assert_eq!(log.sessions.load(Ordering::SeqCst), 0);
}

#[test]
fn what_does_not_fit_is_refused_and_not_tried_again() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    write(&client, 0, &[1; 64]);
    let more = Message::Read { handle: 1, offset: 0, len: 64 };
    let outcome = client.call(Call { into: &mut [0; 8], within: Some(BOUND), ..Call::new(&more) });
    assert!(matches!(outcome, Err(CallError::Failed { errno: libc::EPROTO, .. })), "{outcome:?}");
    let (data, message) = (vec![0; DATA_BYTES_MAX as usize + 1], Message::Write { handle: 1, offset: 0 });
    let outcome = client.call(Call { data: Data::Bytes(&data), within: Some(BOUND), ..Call::new(&message) });
    assert!(matches!(outcome, Err(CallError::Failed { errno: libc::EINVAL, .. })), "{outcome:?}");
}
