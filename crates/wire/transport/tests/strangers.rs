//! Peers that should not be served, and peers that try to make the server hang, swell or fall.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use support::*;
use testkit::wait_until;
use transport::{Access, Address, CallError, Client, Server, Who};
use wire::limits::BODY_BYTES_MAX;
use wire::{HEADER_BYTES, Header, Message};

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

/// What the server says before it closes the connection; fails if it does not close it.
fn last_words(mut stream: TcpStream) -> Vec<u8> {
    let mut words = Vec::new();
    match stream.read_to_end(&mut words) {
        Ok(_) => words,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => words,
        Err(error) => panic!("the connection stays open: {error}"),
    }
}

#[test]
fn the_network_needs_a_secret_unless_it_is_said_otherwise() {
    let log = Arc::new(Log::default());
    let start = |access| Server::start(Served(Arc::clone(&log)), &[any_port()], access);
    assert_eq!(start(Access::default()).err().unwrap().kind(), std::io::ErrorKind::PermissionDenied);
    let server = start(Access { secret: Some(secret("right")), anonymous: false }).unwrap();
    let connect = |secret| Client::connect(server.addresses()[0].clone(), secret, who(), BOUND);
    assert!(connect(Some(secret("right"))).is_ok());
    assert_eq!(refusal(connect(Some(secret("wrong")))), libc::EACCES);
    assert_eq!(refusal(connect(None)), libc::EACCES);
    let open = serve(&log);
    let outcome = Client::connect(open.addresses()[0].clone(), Some(secret("right")), who(), BOUND);
    assert_eq!(refusal(outcome), libc::EACCES, "a server that asks for no proof gives none");
}

#[test]
fn a_client_of_another_directory_is_refused() {
    let log = Arc::new(Log::default());
    let server = serve(&log);
    let other = Who { store: "other".into(), ..who() };
    assert_eq!(refusal(Client::connect(server.addresses()[0].clone(), None, other, BOUND)), libc::EXDEV);
}

#[test]
fn a_process_of_another_user_is_refused_whatever_the_sockets_mode() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("socket");
    let log = Arc::new(Log::default());
    let address = Address::Unix(path.clone());
    let _server = Server::start(Served(Arc::clone(&log)), std::slice::from_ref(&address), Access::default()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(Client::connect(address.clone(), None, who(), BOUND).is_ok(), "its own user is let in");
    let stranger = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        // This thread alone.
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
    let mut body = Vec::new();
    let message = Message::Append { handle: 1, end: 0, again: false };
    message.encode(&mut body);
    let header = Header {
        version: 1,
        kind: message.kind(),
        request: 1,
        oldest: 1,
        body_bytes: body.len() as u32,
        data_bytes: 0,
    };
    let mut stream = socket(&server);
    stream.write_all(&[header.encode().as_slice(), &body].concat()).unwrap();
    let words = last_words(stream);
    let answer = Header::decode(words[..HEADER_BYTES].try_into().unwrap()).unwrap();
    assert_eq!(answer.kind, Message::failed(libc::EPROTO, "").kind());
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
