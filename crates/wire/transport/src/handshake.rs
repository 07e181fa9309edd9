//! The first four frames of a connection: `Hello`, `Challenge`, `Proof`, `Welcome`; `Failed` ends it at any point.

use std::io;

use wire::{Code, Message, Text, Versions};

use crate::frame::Framed;
use crate::limits::HANDSHAKE;
use crate::link::Peer;
use crate::secret::{Role, Secret, equal, random};
use crate::wait_limit::WaitLimit;

/// Claims of a client about itself, from its `Hello`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Session number of the client.
    pub session: [u8; 16],
    /// Identity of the client's accelerated directory, in hex.
    pub store: Text,
    /// Name of the client, for messages.
    pub agent: Text,
}

/// Refusal by this side or the peer. Another try would be refused again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Error number.
    pub errno: i32,
    /// Why, for people.
    pub reason: String,
}

/// Reason why a handshake ended without a connection.
#[derive(Debug)]
pub enum HandshakeFailure {
    /// One side refused the other.
    Refused(Refused),
    /// The network failed.
    Broken(io::Error),
}

impl From<io::Error> for HandshakeFailure {
    fn from(error: io::Error) -> HandshakeFailure {
        if error.kind() == io::ErrorKind::InvalidData {
            let reason = error.to_string();
            return HandshakeFailure::Refused(Refused { errno: libc::EPROTO, reason });
        }
        HandshakeFailure::Broken(error)
    }
}

fn refuse(errno: i32, reason: impl Into<String>) -> HandshakeFailure {
    HandshakeFailure::Refused(Refused { errno, reason: reason.into() })
}

fn spoken(version: u16, session: &[u8; 16]) -> Vec<u8> {
    [version.to_le_bytes().as_slice(), session].concat()
}

/// Waits for the peer's next handshake message. Errors: `Refused` if that is `Failed` or carries data.
fn next(framed: &mut Framed, patience: &WaitLimit<'_>) -> Result<Message, HandshakeFailure> {
    let frame = framed.receive(patience)?;
    match frame.message {
        _ if frame.header.data_bytes != 0 => Err(refuse(libc::EPROTO, "data in a handshake")),
        Message::Failed { code, reason } => Err(refuse(code.errno(), reason.as_str())),
        message => Ok(message),
    }
}

/// Performs the client's side of the handshake. Returns the session instance at the server. Waits as long as
/// `patience` lasts, at most [`HANDSHAKE`].
pub(crate) fn greet(
    framed: &mut Framed,
    greeting: &Greeting,
    secret: Option<&Secret>,
    patience: &WaitLimit<'_>,
) -> Result<[u8; 16], HandshakeFailure> {
    let patience = patience.at_most(HANDSHAKE);
    let ours: [u8; 32] = random()?;
    let Versions { min, max } = Versions::OURS;
    let (session, store, agent) = (greeting.session, greeting.store.clone(), greeting.agent.clone());
    framed.send((0, 0), &Message::Hello { min, max, session, nonce: ours, store, agent }, &[], &patience)?;
    let Message::Challenge { version, nonce: theirs, secret: wanted } = next(framed, &patience)? else {
        return Err(refuse(libc::EPROTO, "the server did not answer a greeting"));
    };
    if !(min..=max).contains(&version) {
        return Err(refuse(libc::EPROTO, format!("the server chose version {version}, which we do not speak")));
    }
    let spoken = spoken(version, &session);
    let secret = match (secret, wanted) {
        (None, true) => return Err(refuse(libc::EACCES, "the server wants a secret: name its file with --secret")),
        (Some(_), false) if !matches!(framed.link().peer()?, Peer::Local { .. }) => {
            return Err(refuse(libc::EACCES, "the server does not prove that it has the secret"));
        }
        (secret, _) => secret.filter(|_| wanted),
    };
    let proof = |role| secret.map_or([0; 32], |secret| secret.proof(role, &ours, &theirs, &spoken));
    framed.send((0, 0), &Message::Proof { proof: proof(Role::Client) }, &[], &patience)?;
    let Message::Welcome { instance, proof: shown } = next(framed, &patience)? else {
        return Err(refuse(libc::EPROTO, "the server did not end the handshake"));
    };
    if secret.is_some() && !equal(&shown, &proof(Role::Server)) {
        return Err(refuse(libc::EACCES, "the server does not have the secret"));
    }
    framed.version = version;
    Ok(instance)
}

/// Performs the server's side of the handshake. `admit` is called once the client's proof is right, and returns the
/// session instance or a refusal. A refusal is sent to the client.
pub fn receive(
    framed: &mut Framed,
    secret: Option<&Secret>,
    admit: impl FnOnce(&Greeting) -> Result<[u8; 16], Refused>,
) -> Result<Greeting, HandshakeFailure> {
    let result = converse(framed, secret, admit);
    if let Err(HandshakeFailure::Refused(Refused { errno, reason })) = &result {
        let last = Message::Failed { code: Code::from_errno(*errno), reason: Text::cut(reason.as_str()) };
        // The client may have disconnected already.
        let _ = framed.send((0, 0), &last, &[], &WaitLimit::within(HANDSHAKE));
    }
    result
}

fn converse(
    framed: &mut Framed,
    secret: Option<&Secret>,
    admit: impl FnOnce(&Greeting) -> Result<[u8; 16], Refused>,
) -> Result<Greeting, HandshakeFailure> {
    let patience = WaitLimit::within(HANDSHAKE);
    let Message::Hello { min, max, session, nonce: theirs, store, agent } = next(framed, &patience)? else {
        return Err(refuse(libc::EPROTO, "a connection begins with a greeting"));
    };
    let Versions { min: oldest, max: newest } = Versions::OURS;
    let version = Versions::OURS.agree(Versions { min, max }).ok_or_else(|| {
        refuse(libc::EPROTO, format!("the server speaks versions {oldest} to {newest}, the client {min} to {max}"))
    })?;
    let ours: [u8; 32] = random()?;
    framed.send((0, 0), &Message::Challenge { version, nonce: ours, secret: secret.is_some() }, &[], &patience)?;
    let Message::Proof { proof: shown } = next(framed, &patience)? else {
        return Err(refuse(libc::EPROTO, "no proof"));
    };
    let spoken = spoken(version, &session);
    let proof = |role| secret.map_or([0; 32], |secret| secret.proof(role, &theirs, &ours, &spoken));
    if secret.is_some() && !equal(&shown, &proof(Role::Client)) {
        return Err(refuse(libc::EACCES, "the client does not have the secret"));
    }
    let greeting = Greeting { session, store, agent };
    let instance = admit(&greeting).map_err(HandshakeFailure::Refused)?;
    framed.send((0, 0), &Message::Welcome { instance, proof: proof(Role::Server) }, &[], &patience)?;
    framed.version = version;
    Ok(greeting)
}
