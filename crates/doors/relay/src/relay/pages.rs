//! Page cache of files that are shared with other nodes: dropping pages, and writing back only changed parts.

use std::ops::Range;

use fuse_protocol::view::{ReadView, WriteView, is_success};
use fuse_protocol::{Envelope, Errno, NodeId, Opcode, Parked, drops_pages, part_of_write, written};
use wire::Piece;

use super::{Got, Relay, RelayedRequest};
use crate::manner;

impl Relay {
    /// Makes the kernel write and drop a file's pages. Done around locks and syncs, as in the kernel's NFS client.
    /// Other nodes then see changes made through mappings here, and mappings here see changes of others.
    pub(super) fn drop_pages(&self, node: NodeId) {
        self.pass(&drops_pages(node));
    }

    /// Drops the pages of the file that a request is about, in the request's handler.
    pub(super) fn drop_pages_of(&self, envelope: &Envelope) {
        self.dropping.lock().insert(envelope.unique);
        self.drop_pages(envelope.node);
        self.dropping.lock().remove(&envelope.unique);
    }

    /// Remembers the bytes that the kernel reads and writes of files that are locked here.
    pub(super) fn follow_pages(&self, envelope: &Envelope, message: &[u8], head: &[u8], read: &[u8]) {
        let node = envelope.node;
        match envelope.opcode.filter(|_| is_success(head)) {
            Some(Opcode::Read) => {
                ReadView::parse(message).iter().for_each(|asked| self.pages.read(node, asked.offset(), read));
            }
            Some(Opcode::Write) => {
                let write = WriteView::parse(message);
                write.iter().for_each(|write| self.pages.written(node, write.offset(), write.data()));
            }
            _ => {}
        }
    }

    /// Sends only the parts of a written-back page that this node has changed, and answers as if all of it had been
    /// sent.
    pub(super) fn write_parts(&self, envelope: &Envelope, message: &[u8], parts: Vec<Range<usize>>, reply: Parked) {
        let manner = manner::of(envelope, message, true);
        for part in parts {
            let Some((head, data)) = part_of_write(message, part) else { continue };
            let number = self.open.begin();
            let asked = RelayedRequest { envelope, number, groups: Piece::default(), message: &head, data, manner };
            let outcome = self.ask_attached(&asked, &mut [], &|| reply.is_over(), &|| false);
            match outcome {
                Ok(Got::Answer(answer, ..)) if is_success(&answer) => self.open.end(number),
                Err(error) => return self.give_up(envelope, &head, (number, reply), &error),
                Ok(_) => {
                    self.open.end(number);
                    self.waiting.end(envelope.unique);
                    return reply.error(Errno::EIO);
                }
            }
        }
        if let Some(write) = WriteView::parse(message) {
            self.pages.written(envelope.node, write.offset(), write.data());
            self.waiting.end(envelope.unique);
            reply.bytes(&written(envelope.unique, write.data().len()), &[]);
        }
    }
}
