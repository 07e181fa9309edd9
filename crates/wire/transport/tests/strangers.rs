//! Peers that should not be served, and peers that try to make the server hang, grow or crash.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use support::*;
use testkit::wait_until;
use transport::limits::{HANDSHAKE, STRANGERS_MAX};
use transport::{Address, AllowedPeers, Call, CallError, Client, Server, Who};
use wire::limits::BODY_BYTES_MAX;
use wire::{HEADER_BYTES, Header, Message, Text, Versions};

/// Protocol versions of a peer that has none in common with this crate.
const THEIRS: Versions = Versions { min: 900, max: 901 };

fn refusal(outcome: Result<Client, CallError>) -> i32 {
    match outcome {
        Err(CallError::Refused { errno, .. }) => errno,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was let in"),
    }
}

fn socket(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0].to_string().trim_start_matches("tcp:")).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream
}

/// Reads all that the server sends before it closes the connection; fails if it does not close it.
fn last_words(mut stream: TcpStream) -> Vec<u8> {
    let mut words = Vec::new();
    match stream.read_to_end(&mut words) {
        Ok(_) => words,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => words,
        Err(error) => panic!("the connection stays open: {error}"),
    }
}

/// Encodes a frame without data whose header names `version`.
fn frame(version: u16, message: &Message) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body);
    let (kind, body_bytes) = (message.kind(), body.len() as u32);
    let header = Header { version, kind, request: 1, oldest: 1, body_bytes, data_bytes: 0 };
    [header.encode().as_slice(), &body].concat()
}

/// Decodes the single message in `words`.
fn only_message(words: &[u8]) -> Message {
    let (head, body) = words.split_first_chunk::<HEADER_BYTES>().expect("nothing was said");
    Message::decode(Header::decode(head).unwrap().kind, body).unwrap()
}

fn hello(Versions { min, max }: Versions) -> Message {
    let (store, agent) = (Text::cut("store"), Text::cut("stranger"));
    Message::Hello { min, max, session: [7; 16], nonce: [9; 32], store, agent }
}

fn reason(Versions { min, max }: Versions, client: Versions) -> String {
    format!("the server speaks versions {min} to {max}, the client {} to {}", client.min, client.max)
}

/// Runs a server that answers every greeting with `answer`. After `connections` connections it ends and returns the
/// bytes received after the answers.
fn answering(answer: Message, connections: usize) -> (Address, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let serve = move || {
        let mut said = Vec::new();
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(BOUND)).unwrap();
            let mut head = [0; HEADER_BYTES];
            stream.read_exact(&mut head).unwrap();
            let header = Header::decode(&head).unwrap();
            let mut body = vec![0; header.body_bytes as usize];
            stream.read_exact(&mut body).unwrap();
            let greeting = Message::decode(header.kind, &body).unwrap();
            let Message::Hello { min, max, .. } = greeting else { panic!("{greeting:?}") };
            assert_eq!(Versions { min, max }, Versions::OURS);
            stream.write_all(&frame(THEIRS.max, &answer)).unwrap();
            said.extend(last_words(stream));
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "it came again");
        said
    };
    (address, std::thread::spawn(serve))
}

#[test] // S44
fn the_network_needs_a_secret_unless_it_is_said_otherwise() {
    let log = Arc::new(Log::default());
    let start = |access| Server::start(Served(Arc::clone(&log)), &[any_port()], access);
    assert_eq!(start(AllowedPeers::default()).err().unwrap().kind(), std::io::ErrorKind::PermissionDenied);
    let server = start(AllowedPeers { secret: Some(secret("right")), anonymous: false }).unwrap();
    let connect = |secret| Client::connect(server.addresses()[0].clone(), secret, who(), BOUND);
    assert!(connect(Some(secret("right"))).is_ok());
    assert_eq!(refusal(connect(Some(secret("wrong")))), libc::EACCES);
    assert_eq!(refusal(connect(None)), libc::EACCES);
    let open = serve(&log);
    let outcome = Client::connect(open.addresses()[0].clone(), Some(secret("right")), who(), BOUND);
    assert_eq!(refusal(outcome), libc::EACCES, "a server that asks for no proof gives none");
}

#[test] // S44
fn a_client_of_another_directory_is_refused() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let other = Who { store: "other".into(), ..who() };
    assert_eq!(refusal(Client::connect(server.addresses()[0].clone(), None, other, BOUND)), libc::EXDEV);
}

#[test] // S44
fn a_process_of_another_user_is_refused_whatever_the_sockets_mode() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("socket");
    let log = Arc::new(Log::default());
    let address = Address::Unix(path.clone());
    let _server =
        Server::start(Served(Arc::clone(&log)), std::slice::from_ref(&address), AllowedPeers::default()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(Client::connect(address.clone(), None, who(), BOUND).is_ok(), "its own user is let in");
    let stranger = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        // Sets the ids of this thread alone.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("run the tests as root");
        Client::connect(address, None, who(), Duration::from_millis(500)).err()
    });
    let outcome = stranger.join().unwrap();
    assert!(matches!(outcome, Some(CallError::TimedOut)), "{outcome:?}");
    assert_eq!(log.sessions.load(Ordering::SeqCst), 1);
}

#[test]
fn garbage_and_impossible_lengths_end_the_connection() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let mut seed = 1_u64;
    for _ in 0..50 {
        let mut stream = socket(&server);
        let noise: Vec<u8> = (0..400)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        let _ = stream.write_all(&noise);
        last_words(stream);
    }
    for (body_bytes, data_bytes) in [(u32::MAX, 0), (0, u32::MAX), (16 << 10, 1 << 20)] {
        let header = Header { version: 1, kind: 1, request: 1, oldest: 1, body_bytes, data_bytes };
        let mut stream = socket(&server);
        let _ = stream.write_all(&header.encode());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        last_words(stream);
    }
    assert!(Client::connect(server.addresses()[0].clone(), None, who(), BOUND).is_ok());
}

#[test]
fn requests_before_the_handshake_are_not_served() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let mut stream = socket(&server);
    stream.write_all(&frame(1, &Message::Append { handle: 1, end: 0, again: false })).unwrap();
    let answer = only_message(&last_words(stream));
    assert!(matches!(&answer, Message::Failed { code, .. } if code.errno() == libc::EPROTO), "{answer:?}");
    assert!(log.bytes.lock().is_empty());
}

#[test]
fn who_says_nothing_or_speaks_a_byte_at_a_time_is_closed_and_holds_up_nobody() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let mut silent: Vec<TcpStream> = (0..60).map(|_| socket(&server)).collect();
    let mut stopped = socket(&server);
    stopped.write_all(b"FB").unwrap();
    let (mut slow, mut said) = (socket(&server), 0);
    let greeting = Header { version: 1, kind: 1, request: 0, oldest: 0, body_bytes: BODY_BYTES_MAX, data_bytes: 0 };
    slow.write_all(&greeting.encode()).unwrap();
    let client = client_of(&server.addresses()[0]);
    drop(client);
    wait_until("who speaks a byte at a time is closed", BOUND, || {
        said += 1;
        slow.write_all(&[0]).is_err()
    });
    assert!(said < BODY_BYTES_MAX, "it was closed for its time, not for what it said");
    last_words(stopped);
    last_words(silent.pop().unwrap());
}

#[test] // S63
fn a_flood_of_silent_connections_keeps_no_client_out() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let before = client_of(&server.addresses()[0]);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..STRANGERS_MAX + 40 {
            scope.spawn(|| {
                // The peers connect again as soon as they are closed.
                while !ends.load(Ordering::SeqCst) {
                    let mut stream = socket(&server);
                    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                    let mut is_open =
                        || stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
                    while !ends.load(Ordering::SeqCst) && is_open() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let began = Instant::now();
        let ping = |client: &Client| client.call(Call { within: Some(BOUND), ..Call::new(&Message::Ping {}) });
        let through = (0..10).all(|_| {
            let new = Client::connect(server.addresses()[0].clone(), None, who(), BOUND);
            ping(&before).is_ok() && new.is_ok_and(|new| ping(&new).is_ok())
        });
        ends.store(true, Ordering::SeqCst);
        assert!(through && began.elapsed() < BOUND, "{:?}", began.elapsed());
    });
}

#[test]
fn clients_without_a_version_of_ours_are_told_what_we_speak_and_hold_up_nobody() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let before = client_of(&server.addresses()[0]);
    let began = Instant::now();
    // More peers than may be in their handshake at once; none keeps its slot.
    for turn in 0..=STRANGERS_MAX as u16 {
        let theirs = [THEIRS, Versions { min: 0, max: 0 }, Versions { min: 2, max: 1 }][usize::from(turn % 3)];
        let mut stream = socket(&server);
        stream.write_all(&frame(theirs.max, &hello(theirs))).unwrap();
        let answer = only_message(&last_words(stream));
        assert_eq!(answer, Message::failed(libc::EPROTO, reason(Versions::OURS, theirs)));
    }
    assert!(began.elapsed() < HANDSHAKE, "they waited");
    assert_eq!(log.sessions.load(Ordering::SeqCst), 1, "that of the client from before");
    assert!(before.call(Call::new(&Message::Ping {})).is_ok());
    assert!(client_of(&server.addresses()[0]).call(Call::new(&Message::Ping {})).is_ok());

    let mut newer = socket(&server);
    newer.write_all(&frame(Versions::OURS.min, &hello(Versions { min: Versions::OURS.max, ..THEIRS }))).unwrap();
    newer.shutdown(std::net::Shutdown::Write).unwrap();
    let answer = only_message(&last_words(newer));
    assert!(matches!(answer, Message::Challenge { version, .. } if version == Versions::OURS.max), "{answer:?}");
}

#[test]
fn a_server_without_a_version_of_ours_is_told_as_that_at_once_and_not_tried_again() {
    let refused = reason(THEIRS, Versions::OURS);
    let chosen = Message::Challenge { version: THEIRS.min, nonce: [3; 32], secret: true };
    for (answer, expected) in [
        (Message::failed(libc::EPROTO, &refused), refused.as_str()),
        (chosen, "the server chose version 900, which we do not speak"),
    ] {
        let (address, server) = answering(answer, 1);
        let began = Instant::now();
        let error = Client::connect(address, Some(secret("right")), who(), BOUND).err().expect("it was let in");
        assert!(began.elapsed() < HANDSHAKE, "it waited");
        assert_eq!((error.errno(), error.to_string()), (libc::EPROTO, format!("the server refuses: {expected}")));
        assert_eq!(server.join().unwrap(), [], "nothing is proved to a server that is not understood");
    }
}

#[test]
fn a_client_whose_server_comes_back_in_another_version_is_refused_until_its_own_is_there_again() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let cable = Cable::to(&server.addresses()[0]);
    let client = client_of(&cable.address);
    let ping = || client.call(Call { within: Some(BOUND), ..Call::new(&Message::Ping {}) });
    let refused = reason(THEIRS, Versions::OURS);
    let (other, upgraded) = answering(Message::failed(libc::EPROTO, &refused), 2);
    cable.lead_to(&other);
    cable.cut();
    for _ in 0..2 {
        let error = ping().expect_err("it was served");
        assert!(
            matches!(&error, CallError::Refused { errno: libc::EPROTO, reason } if *reason == refused),
            "{error:?}"
        );
    }
    assert_eq!(upgraded.join().unwrap(), []);
    cable.lead_to(&server.addresses()[0]);
    assert!(ping().is_ok());
}
