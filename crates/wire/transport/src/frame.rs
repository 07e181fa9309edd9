//! Whole frames over a link, with deadlines.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use types::Gathered;
use wire::{HEADER_BYTES, Header, Message};

use crate::data::InFile;
use crate::limits::{BUFFER_BYTES, FRAME};
use crate::link::Link;
use crate::wait_limit::WaitLimit;

/// Received frame without its data. The data is still to be taken from the connection.
#[derive(Debug)]
pub struct Frame {
    /// Header of the frame. The data that follows must be taken before the next frame is received.
    pub header: Header,
    /// Message of the frame.
    pub message: Message,
}

/// Link on which frames are sent and received.
pub struct Framed {
    link: Box<dyn Link>,
    buffer: Box<[u8]>,
    /// Range of the buffer whose bytes were received and not yet taken.
    filled: std::ops::Range<usize>,
    body: Vec<u8>,
    /// Protocol version; [`wire::VERSION_MIN`] until the handshake has agreed on one.
    pub(crate) version: u16,
}

fn broken(error: wire::DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
        && error.raw_os_error() != Some(libc::ETIMEDOUT)
}

impl Framed {
    /// Returns a framed connection over a new link.
    pub fn new(link: Box<dyn Link>) -> Framed {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Framed { link, buffer, filled: 0..0, body: Vec::new(), version: wire::VERSION_MIN }
    }

    pub(crate) fn link(&self) -> &dyn Link {
        &*self.link
    }

    /// Sends one frame. `numbers`: the header's `request` and `oldest`.
    pub(crate) fn send(
        &mut self,
        numbers: (u64, u64),
        message: &Message,
        data: &[u8],
        patience: &WaitLimit<'_>,
    ) -> io::Result<()> {
        self.send_frame(numbers, message, (data.len(), data), patience)
    }

    /// Sends one frame whose data is read from a file. Errors: `UnexpectedEof` if the file became shorter; the frame
    /// is then incomplete.
    pub(crate) fn send_in_file(
        &mut self,
        numbers: (u64, u64),
        message: &Message,
        data: &InFile,
        patience: &WaitLimit<'_>,
    ) -> io::Result<()> {
        self.send_frame(numbers, message, (data.bytes, &[]), patience)?;
        self.send_behind(data.bytes, patience, |link, done| {
            link.send_file(data.file.as_fd(), data.offset + done as u64, data.bytes - done)
        })
    }

    /// Sends one frame whose data is gathered from memory. Errors: `EFAULT` if the memory is gone; the frame is then
    /// incomplete.
    pub(crate) fn send_gathered(
        &mut self,
        numbers: (u64, u64),
        message: &Message,
        data: &dyn Gathered,
        patience: &WaitLimit<'_>,
    ) -> io::Result<()> {
        self.send_frame(numbers, message, (data.bytes(), &[]), patience)?;
        self.send_behind(data.bytes(), patience, |link, done| link.send_gathered(data, done))
    }

    /// Sends a frame's data after its head, by calls of `send` with the number of bytes sent so far.
    fn send_behind(
        &mut self,
        bytes: usize,
        patience: &WaitLimit<'_>,
        mut send: impl FnMut(&mut dyn Link, usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < bytes {
            match send(&mut *self.link, done) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => done += sent,
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(error),
            }
            if done < bytes {
                patience.check()?;
            }
        }
        Ok(())
    }

    /// Sends header, message and `data` of a frame that has `data_bytes` bytes of data. `data` is all of them, or
    /// empty if the caller sends them afterwards.
    fn send_frame(
        &mut self,
        (request, oldest): (u64, u64),
        message: &Message,
        (data_bytes, data): (usize, &[u8]),
        patience: &WaitLimit<'_>,
    ) -> io::Result<()> {
        self.body.clear();
        message.encode(&mut self.body);
        let length = |bytes: usize| u32::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let header = Header {
            version: self.version,
            kind: message.kind(),
            request,
            oldest,
            body_bytes: length(self.body.len())?,
            data_bytes: length(data_bytes)?,
        };
        let head = header.encode();
        let mut parts = [IoSlice::new(&head), IoSlice::new(&self.body), IoSlice::new(data)];
        let mut parts = parts.as_mut_slice();
        while !parts.is_empty() {
            match self.link.send(parts, data.len() < data_bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(error),
            }
            // Checked after progress too: a peer that takes one byte at a time could otherwise prolong the wait for
            // ever.
            if !parts.is_empty() {
                patience.check()?;
            }
        }
        Ok(())
    }

    /// Waits until the first bytes of the next frame have arrived.
    pub(crate) fn wait(&mut self, patience: &WaitLimit<'_>) -> io::Result<()> {
        while self.filled.is_empty() {
            self.fill(patience)?;
        }
        Ok(())
    }

    /// Waits for the next frame as long as `patience` lasts, and receives the rest of it within [`FRAME`]. Errors:
    /// `UnexpectedEof` if the peer has closed the connection, `InvalidData` if it does not speak this protocol.
    pub(crate) fn receive(&mut self, patience: &WaitLimit<'_>) -> io::Result<Frame> {
        self.wait(patience)?;
        let rest = patience.at_most(FRAME);
        let mut head = [0; HEADER_BYTES];
        self.take(&mut head, &rest)?;
        let header = Header::decode(&head).map_err(broken)?;
        // Bounded by the header's own check.
        let mut body = std::mem::take(&mut self.body);
        body.resize(header.body_bytes as usize, 0);
        let taken = self.take(&mut body, &rest);
        let message = taken.and_then(|()| Message::decode(header.kind, &body).map_err(broken));
        self.body = body;
        Ok(Frame { header, message: message? })
    }

    /// Receives `into.len()` bytes of the frame's data.
    pub(crate) fn take(&mut self, mut into: &mut [u8], patience: &WaitLimit<'_>) -> io::Result<()> {
        while !into.is_empty() {
            let part = if self.filled.is_empty() && into.len() >= self.buffer.len() {
                self.receive_some(into, patience)?
            } else {
                self.take_filled(into, patience)?
            };
            into = &mut into[part..];
            // Checked after progress too, as in `send`.
            if !into.is_empty() {
                patience.check()?;
            }
        }
        Ok(())
    }

    /// Copies received bytes out of the buffer, and fills it first if it is empty. Returns the number of bytes.
    fn take_filled(&mut self, into: &mut [u8], patience: &WaitLimit<'_>) -> io::Result<usize> {
        if self.filled.is_empty() {
            self.fill(patience)?;
        }
        let part = into.len().min(self.filled.len());
        into[..part].copy_from_slice(&self.buffer[self.filled.start..self.filled.start + part]);
        self.filled.start += part;
        Ok(part)
    }

    fn fill(&mut self, patience: &WaitLimit<'_>) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let got = self.receive_some(&mut buffer, patience);
        self.buffer = buffer;
        self.filled = 0..got?;
        Ok(())
    }

    fn receive_some(&mut self, into: &mut [u8], patience: &WaitLimit<'_>) -> io::Result<usize> {
        loop {
            match self.link.receive(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => return Ok(got),
                Err(error) if is_wait(&error) => patience.check()?,
                Err(error) => return Err(error),
            }
        }
    }
}
