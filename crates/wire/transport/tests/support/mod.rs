//! A service that counts its every effect, and a cable between client and server that can be cut.
#![allow(dead_code, reason = "every test binary uses some of it")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use transport::{Address, AllowedPeers, Client, Secret, Server, Service, Targets, Who};
use wire::{Code, Message, Text};

/// Longest duration that a test allows a call.
pub const BOUND: Duration = Duration::from_secs(30);

/// A log: one file in memory.
#[derive(Default)]
pub struct Log {
    pub bytes: Mutex<Vec<u8>>,
    pub reads: AtomicU64,
    pub sessions: AtomicUsize,
    /// Whether requests with much data stand still.
    held: Mutex<bool>,
    released: Condvar,
    pub standing: AtomicUsize,
}

impl Log {
    pub fn hold(&self) {
        *self.held.lock() = true;
    }

    pub fn release(&self) {
        *self.held.lock() = false;
        self.released.notify_all();
    }

    fn stand(&self) {
        let mut held = self.held.lock();
        self.standing.fetch_add(1, Ordering::SeqCst);
        while *held {
            self.released.wait(&mut held);
        }
        self.standing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// State of one client of the log.
pub struct Guest(Arc<Log>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Service of the log.
pub struct Served(pub Arc<Log>);

impl Service for Served {
    type Session = Guest;

    fn begin(&self, _: &[u8; 16], store: &str, _agent: &str) -> Result<Guest, (i32, String)> {
        if store != "store" {
            return Err((libc::EXDEV, "another directory".into()));
        }
        self.0.sessions.fetch_add(1, Ordering::SeqCst);
        Ok(Guest(Arc::clone(&self.0)))
    }

    fn targets(&self, _session: &Guest, message: &Message) -> Option<Targets> {
        matches!(message, Message::Write { .. } | Message::Append { .. } | Message::SetLen { .. }).then_some([1, 1])
    }

    fn remembers(&self, message: &Message) -> bool {
        matches!(message, Message::Append { .. })
    }

    fn handle(&self, _session: &Guest, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message {
        match message {
            Message::Append { .. } => {
                let mut bytes = self.0.bytes.lock();
                let offset = bytes.len() as u64;
                bytes.extend_from_slice(data);
                Message::Written { offset }
            }
            Message::Write { offset, .. } => {
                self.0.stand();
                let mut bytes = self.0.bytes.lock();
                let end = offset as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[offset as usize..end].copy_from_slice(data);
                Message::Written { offset }
            }
            Message::Read { offset, len, .. } => {
                self.0.reads.fetch_add(1, Ordering::SeqCst);
                let bytes = self.0.bytes.lock();
                let from = bytes.len().min(offset as usize);
                let to = bytes.len().min(from + len as usize);
                out.extend_from_slice(&bytes[from..to]);
                Message::Bytes {}
            }
            Message::Ping {} => Message::Done {},
            Message::SetLen { .. } => panic!("as every test that sends this wants it"),
            _ => Message::Failed { code: Code::NotImplemented, reason: Text::cut("not in this test") },
        }
    }
}

/// Returns a rule by which every client may connect.
pub fn anonymous() -> AllowedPeers {
    AllowedPeers { secret: None, anonymous: true }
}

pub fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes())
}

pub fn who() -> Who {
    Who { store: "store".into(), agent: "test".into() }
}

pub fn any_port() -> Address {
    Address::Tcp("127.0.0.1:0".into())
}

/// Serves the log on a port of its own.
pub fn serve(log: &Arc<Log>) -> Server {
    Server::start(Served(Arc::clone(log)), &[any_port()], anonymous()).unwrap()
}

pub fn client_of(address: &Address) -> Client {
    Client::connect(address.clone(), None, who(), BOUND).unwrap()
}

/// Cable: forwards connections to a server until it is cut.
pub struct Cable {
    pub address: Address,
    shared: Arc<Ends>,
    accept: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Ends {
    to: Mutex<String>,
    end: AtomicBool,
    /// Whether the next answer and its connection are to be lost.
    lose_answer: AtomicBool,
    /// Number of answers lost so far.
    lost: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

fn place(address: &Address) -> String {
    address.to_string().trim_start_matches("tcp:").to_owned()
}

impl Cable {
    pub fn to(server: &Address) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        let shared = Arc::new(Ends { to: Mutex::new(place(server)), ..Ends::default() });
        let ends = Arc::clone(&shared);
        let accept = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ends.end.load(Ordering::SeqCst) {
                    return;
                }
                ends.join(stream);
            }
        });
        Cable { address, shared, accept: Some(accept) }
    }

    /// Forwards new connections to another server.
    pub fn lead_to(&self, server: &Address) {
        *self.shared.to.lock() = place(server);
    }

    /// Breaks every connection.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn lose_next_answer(&self) {
        self.shared.lose_answer.store(true, Ordering::SeqCst);
    }

    /// Returns the number of connections made through the cable and not cut.
    pub fn connections(&self) -> usize {
        self.shared.open.lock().len() / 2
    }

    pub fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::SeqCst);
        self.cut();
        let _ = TcpStream::connect(place(&self.address));
        let _ = self.accept.take().unwrap().join();
    }
}

impl Ends {
    fn join(self: &Arc<Self>, near: TcpStream) {
        let Ok(far) = TcpStream::connect(self.to.lock().as_str()) else { return };
        self.open.lock().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
        let (near_in, far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || forward(near_in, far_out, || false));
        let ends = Arc::clone(self);
        let lose = move || {
            let lost = ends.lose_answer.swap(false, Ordering::SeqCst);
            ends.lost.fetch_add(usize::from(lost), Ordering::SeqCst);
            lost
        };
        std::thread::spawn(move || forward(far, near, lose));
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, lose: impl Fn() -> bool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(got) = from.read(&mut buffer) {
        if got == 0 || lose() || to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
