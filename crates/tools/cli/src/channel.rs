//! Short messages between a process and the child it forked, with at most one descriptor each.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::exit::{self, Failure};
use crate::limits::MESSAGE_BYTES_MAX;

#[derive(Debug)]
pub struct Channel(OwnedFd);

/// A message; its first byte on the wire is its kind.
#[derive(Debug)]
pub enum Message {
    Go,
    Descriptor(OwnedFd),
    Failed(Failure),
}

/// Creates both ends. They close on exec, which is how the other side sees a successful exec.
pub fn pair() -> io::Result<(Channel, Channel)> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Channel(one), Channel(other)))
}

impl Channel {
    /// Sends a message. Errors: `EPIPE` when the other end is gone.
    pub fn send(&self, message: &Message) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let mut bytes = Vec::new();
        let fds;
        match message {
            Message::Go => bytes.push(b'G'),
            Message::Descriptor(fd) => {
                bytes.push(b'D');
                fds = [fd.as_fd()];
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            Message::Failed(failure) => {
                bytes.extend([b'F', failure.code]);
                bytes.extend(failure.message.bytes().chain([0]).chain(failure.remedy.bytes()));
                bytes.truncate(MESSAGE_BYTES_MAX);
            }
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for a message. Returns `None` when the other end is gone.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received.bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let mut fds = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<OwnedFd>>(),
            _ => Vec::new(),
        });
        match bytes[..received].split_first() {
            None => Ok(None),
            Some((b'G', _)) => Ok(Some(Message::Go)),
            Some((b'D', _)) => Ok(fds.next().map(Message::Descriptor)),
            Some((_, rest)) => Ok(Some(Message::Failed(failure(rest)))),
        }
    }
}

fn failure(bytes: &[u8]) -> Failure {
    let (code, text) = bytes.split_first().map_or((exit::SOFTWARE, bytes), |(code, text)| (*code, text));
    let text = String::from_utf8_lossy(text);
    let (message, remedy) = text.split_once('\0').unwrap_or((&text, ""));
    Failure::new(code, message).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_and_a_failure_arrive_as_sent_and_a_closed_end_shows() {
        let (here, there) = pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        here.send(&Message::Go).unwrap();
        here.send(&Message::Descriptor(null.into())).unwrap();
        let sent = Failure::new(exit::NOT_FOUND, "no such command").remedy("look for it");
        here.send(&Message::Failed(sent.clone())).unwrap();
        drop(here);
        assert!(matches!(there.receive().unwrap(), Some(Message::Go)));
        assert!(matches!(there.receive().unwrap(), Some(Message::Descriptor(_))));
        assert!(matches!(there.receive().unwrap(), Some(Message::Failed(failure)) if failure == sent));
        assert!(there.receive().unwrap().is_none());
        assert!(there.send(&Message::Go).is_err());
    }
}
