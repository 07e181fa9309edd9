//! Features agreed with the kernel. A server that has forgotten this node must agree to the same ones.

use std::sync::atomic::Ordering;

use fuse_protocol::Errno;
use transport::{Call, CallError};
use wire::limits::PIECE_BYTES_MAX;
use wire::{Message, Text};

use super::{Relay, piece, unexpected};
use crate::limits::{ATTACH, LOOK};

/// INIT and its answer: the kernel does not ask for them again.
#[derive(Default)]
pub(super) struct Agreement {
    init: Vec<u8>,
    answer: Vec<u8>,
}

impl Relay {
    /// Attaches the kernel whose INIT this is. Returns the answer to INIT.
    pub(super) fn agree(&self, init: &[u8]) -> Result<Vec<u8>, Errno> {
        if init.len() > PIECE_BYTES_MAX {
            return Err(Errno(libc::EPROTO));
        }
        self.agreement.lock().init = init.to_vec();
        self.attach(0, &|| self.has_ended()).map_err(|error| {
            tracing::error!(%error, "the server does not serve names");
            *self.refusal.lock() = Some(error.to_string());
            Errno(error.errno())
        })?;
        Ok(self.agreement.lock().answer.clone())
    }

    /// Attaches the kernel, unless another thread has done so since the count of attachments was `seen`.
    pub(super) fn attach(&self, seen: u64, interrupted: &dyn Fn() -> bool) -> Result<(), CallError> {
        // The lock's holder may be waiting for the server, and others queue behind it. A killed caller must not wait
        // for them.
        let mut agreement = loop {
            match self.agreement.try_lock_for(LOOK) {
                Some(agreement) => break agreement,
                None if interrupted() => return Err(CallError::Interrupted),
                None => {}
            }
        };
        if self.attached.load(Ordering::SeqCst) != seen {
            return Ok(());
        }
        let (machine, init) = (Text::cut(std::env::consts::ARCH), piece(&agreement.init));
        let message = if seen > 0 { Message::AttachAgain { machine, init } } else { Message::Attach { machine, init } };
        let answer = self.client.call(Call { within: Some(ATTACH), interrupted, ..Call::new(&message) })?;
        let Message::Relayed { head } = &answer.message else { return Err(unexpected(&answer.message)) };
        if seen > 0 && agreement.answer != head.as_slice() {
            let reason = "the server agrees to something else than before: mount anew".to_owned();
            return Err(CallError::Refused { errno: libc::ESTALE, reason });
        }
        agreement.answer = head.as_slice().to_vec();
        self.meet(interrupted)?;
        match seen {
            0 => self.kernel.meets(answer.memory),
            _ => self.reclaim(answer.memory, interrupted)?,
        }
        self.attached.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Asks for the server's boot verifier, before the kernel may send requests. If the server's machine has crashed,
    /// unsynced changes may be lost.
    fn meet(&self, interrupted: &dyn Fn() -> bool) -> Result<(), CallError> {
        let asked = Message::AskBootVerifier {};
        let answer = self.client.call(Call { within: Some(ATTACH), interrupted, ..Call::new(&asked) })?;
        let Message::BootVerifierIs { boot_verifier } = answer.message else { return Err(unexpected(&answer.message)) };
        let lost = self.changes.meets(answer.memory, boot_verifier);
        if lost > 0 {
            tracing::error!(
                files = lost,
                "the server's machine has crashed: what was written to files since they were last synced may be lost"
            );
        }
        Ok(())
    }
}
