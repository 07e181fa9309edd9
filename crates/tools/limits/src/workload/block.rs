//! Random data that costs next to nothing: a random buffer from which each transfer takes another stretch, and a stamp of
//! owner and position on every page. No two pages are alike, so neither compression nor deduplication helps, and a
//! reader sees at once when it gets somebody else's or an old page.

/// One stamp in this many bytes.
const PAGE: usize = 4096;
/// Transfers start at this many different pages of the buffer: few, so that small transfers come from the processor's
/// cache as a program's own buffer does.
const STRETCHES: usize = 16;
const STAMP: usize = 16;
/// Stamps of neighbouring pages lie so far apart within their pages. At one place in all of them they would share one set of each of
/// the processor's caches, and drive each other and the program out of it.
const LINE: usize = 64;

/// The buffer of one process.
pub struct Block {
    bytes: Vec<u8>,
    /// Where the first page begins, so that O_DIRECT takes it.
    start: usize,
    transfer: usize,
}

impl Block {
    /// A buffer for transfers of up to `transfer` bytes, filled from `seed`.
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

    /// The `index`-th transfer's data for the stretch of `owner`'s file that begins at `offset`.
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

    /// Room for one transfer to read into.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.transfer]
    }

    /// Whether what was read into [`Block::room`] is what [`Block::fill`] gave.
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

/// Where in its page the stamp of a position lies. What is no whole page has it at its beginning.
fn place(position: u64, length: usize) -> usize {
    if length == PAGE { (position / PAGE as u64) as usize % (PAGE / LINE) * LINE } else { 0 }
}

fn owner_mark(owner: u64) -> u64 {
    mix(owner ^ 0x464F_5245_4241_5953)
}

/// One multiplication: stamping must cost less than the memory it touches.
fn stamp(owner_mark: u64, position: u64) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&owner_mark.to_le_bytes());
    stamp[8..].copy_from_slice(&(position ^ owner_mark).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    stamp
}

/// A bijection that scatters (splitmix64's finaliser).
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
