//! The file that an answer is about. The node needs its identity, to claim it from the next server.

use fuse_protocol::view::{EntryView, is_success};
use fuse_protocol::{Envelope, Given, NodeId};

/// Returns the file that the node is told with an answer: one that was opened, or cut, or a directory that was found or made.
pub(crate) fn file_of(envelope: &Envelope, answer: &[u8]) -> Option<NodeId> {
    if envelope.sets_size() && is_success(answer) {
        return Some(envelope.node);
    }
    let given = Given::by(envelope, answer)?;
    let found = (given.looked_up != 0 && is_directory(answer)).then_some(given.looked_up);
    given.opened.map(|(node, _)| node).or(found)
}

fn is_directory(answer: &[u8]) -> bool {
    EntryView::parse(answer).is_some_and(|entry| entry.is_directory())
}

#[cfg(test)]
mod tests {
    use fuse_protocol::Opcode;

    use super::*;

    #[test]
    fn hostile_bytes_never_panic() {
        let mut random = testkit::Random(11);
        let mut found = 0;
        use Opcode as O;
        for opcode in [O::Lookup, O::Create, O::Open, O::Opendir, O::Mkdir, O::Link, O::Tmpfile, O::Setattr] {
            for _ in 0..300 {
                let len = random.below(200) as usize;
                let mut bytes = random.bytes(len);
                if random.below(2) == 0 {
                    // Of an answer that says that it is done.
                    bytes.iter_mut().take(16).skip(4).for_each(|byte| *byte = 0);
                }
                let (opcode, first) = (Some(opcode), random.next());
                let envelope = Envelope { opcode, unique: 2, node: 1, uid: 0, gid: 0, pid: 1, first };
                found += usize::from(file_of(&envelope, &bytes).is_some());
                _ = Given::by(&envelope, &bytes);
            }
        }
        assert!(found > 100, "{found}");
    }
}
