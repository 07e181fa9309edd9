//! Random data at almost no cost: a random buffer, of which each transfer uses another part, with a stamp of owner and
//! position on every page.
//!
//! No two pages are equal, so neither compression nor deduplication helps. A reader detects at once a page of another
//! owner or an old page.

const PAGE: usize = 4096;
/// Number of different pages of the buffer at which transfers start. Small, so that small transfers come from the
/// processor cache, as a program's own buffer does.
const STRETCHES: usize = 16;
const STAMP: usize = 16;
/// Distance between the positions of neighbouring pages' stamps within their pages. At equal positions they would all
/// use one set of each processor cache, and evict each other and the program.
const LINE: usize = 64;

pub struct Block {
    bytes: Vec<u8>,
    /// Start of the first page, aligned for O_DIRECT.
    start: usize,
    transfer: usize,
}

impl Block {
    /// Creates a buffer for transfers of up to `transfer` bytes, filled from `seed`.
    pub fn new(transfer: u64, seed: u64) -> Block {
        let transfer = transfer as usize;
        let length = transfer.next_multiple_of(PAGE) + (STRETCHES + 1) * PAGE;
        let mut bytes = Vec::with_capacity(length);
        let mut state = seed;
        while bytes.len() < length {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            bytes.extend_from_slice(&mix(state).to_le_bytes());
        }
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Block { bytes, start, transfer }
    }

    /// Returns the data of the `index`-th transfer, for the range of `owner`'s file that starts at `offset`.
    pub fn fill(&mut self, owner: u64, offset: u64, index: u64) -> &[u8] {
        let from = self.start + (index as usize % STRETCHES) * PAGE;
        let data = &mut self.bytes[from..from + self.transfer];
        let owner = owner_mark(owner);
        for (page, chunk) in data.chunks_mut(PAGE).enumerate().filter(|(_, chunk)| chunk.len() >= STAMP) {
            let position = offset + (page * PAGE) as u64;
            let at = place(position, chunk.len());
            chunk[at..at + STAMP].copy_from_slice(&stamp(owner, position));
        }
        data
    }

    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.transfer]
    }

    /// Returns whether the data read into [`Block::room`] is what [`Block::fill`] returned.
    pub fn is(&self, length: usize, owner: u64, offset: u64) -> bool {
        let owner = owner_mark(owner);
        let pages = self.bytes[self.start..self.start + length].chunks(PAGE).enumerate();
        let mut stamped = pages.filter(|(_, chunk)| chunk.len() >= STAMP);
        stamped.all(|(page, chunk)| {
            let position = offset + (page * PAGE) as u64;
            let at = place(position, chunk.len());
            chunk[at..at + STAMP] == stamp(owner, position)
        })
    }
}

/// Returns the position of a stamp within its page. An incomplete page has the stamp at its start.
fn place(position: u64, length: usize) -> usize {
    if length == PAGE { (position / PAGE as u64) as usize % (PAGE / LINE) * LINE } else { 0 }
}

fn owner_mark(owner: u64) -> u64 {
    mix(owner ^ 0x464F_5245_4241_5953)
}

/// Returns the stamp of a page. Uses one multiplication, because stamping must cost less than accessing the memory.
fn stamp(owner_mark: u64, position: u64) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&owner_mark.to_le_bytes());
    stamp[8..].copy_from_slice(&(position ^ owner_mark).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    stamp
}

/// Returns a pseudorandom permutation of 64-bit values (splitmix64's finaliser).
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_place_or_owner_is_noticed() {
        let mut block = Block::new(3 * 4096, 1);
        let sent = block.fill(7, 8192, 5).to_vec();
        block.room().copy_from_slice(&sent);
        assert!(block.is(sent.len(), 7, 8192));
        assert!(!block.is(sent.len(), 7, 4096));
        assert!(!block.is(sent.len(), 8, 8192));
        // The third page is the fifth of the file.
        block.room()[2 * 4096 + 4 * LINE] ^= 1;
        assert!(!block.is(sent.len(), 7, 8192));
        assert!(block.is(2 * 4096, 7, 8192));
    }

    #[test]
    fn a_reader_of_single_pages_knows_what_was_written_in_large_transfers() {
        let (mut writer, mut reader) = (Block::new(64 * 4096 + 100, 1), Block::new(4096, 2));
        let sent = writer.fill(3, 1 << 20, 9).to_vec();
        for (page, data) in sent.chunks(4096).enumerate() {
            reader.room()[..data.len()].copy_from_slice(data);
            assert!(reader.is(data.len(), 3, (1 << 20) + page as u64 * 4096), "page {page}");
        }
    }

    #[test]
    fn transfers_differ_and_start_on_pages() {
        let mut block = Block::new(4096, 1);
        assert_eq!(block.fill(0, 0, 3).as_ptr() as usize % 4096, 0);
        let (one, other) = (block.fill(0, 0, 0)[STAMP..].to_vec(), block.fill(0, 0, 1)[STAMP..].to_vec());
        assert_ne!(one, other);
    }
}
