//! Bytes of a ring file, as a golden test.

use std::sync::Arc;

use types::{ByteRange, Epoch};

use super::*;
use crate::layout::HEADER_BYTES;
use crate::limits::CAPACITY_MIN;
use crate::memory::Heap;
use crate::sequence::{Sequence, WORD_BYTES};
use crate::sync::Ordering::Relaxed;

/// On persistent memory a ring outlives the build that made it: a change of these bytes needs a new version.
#[test]
fn a_ring_file_has_the_bytes_that_other_builds_know() {
    let ring = RingId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let writable = ByteRange { start: 0, end: 1 << 20 };
    let grant = RingGrant { ring, capacity: CAPACITY_MIN, epochs: Epoch(1)..=Epoch(1), writable };
    let memory = Arc::new(Heap::zeroed(HEADER_BYTES + CAPACITY_MIN as usize));
    let _reader = RingReader::create(memory.clone(), grant).unwrap();
    let program = Writer::new(memory.clone(), ring, CAPACITY_MIN, Sequence::new(Heap::zeroed(WORD_BYTES))).unwrap();
    program.append(100, b"one write", &mut || false).unwrap();
    program.append(200, b"another", &mut || false).unwrap();
    let words = (0..memory.len()).step_by(8).map(|at| (at, memory.word(at).load(Relaxed)));
    let told: Vec<String> = words.filter(|(_, word)| *word != 0).map(|(at, word)| format!("{at}:{word:x}")).collect();
    // Magic, version, id, capacity, head and epoch. Then of each record: commit word, sequence, epoch, offset, length
    // and kind, checksums, position, time, payload.
    let golden = "0:5779616265726f66 8:5 16:11223344556677 24:123456789abcdef 32:10000 128:100 280:1 \
                  4096:1326754cdfeaba1 4112:1 4120:64 4128:100000009 4136:6c68e127ed49aef9 4152:18ebbdd5452bcd15 \
                  4160:7469727720656e6f 4168:65 \
                  4224:1326754cdfeab21 4232:1 4240:1 4248:c8 4256:100000007 4264:7d6bd34de1b8b2a 4272:80 4280:18ebbdd5452bcd15 \
                  4288:726568746f6e61";
    assert_eq!(told.join(" "), golden);
}
