//! Empty 32-bit shared library for x86. Programs that cannot load ours load this one and print no error.

/// Sizes in bytes, by the System V ABI for i386.
const HEADER: u32 = 52;
const SEGMENT: u32 = 32;
const ENTRY: u32 = 8;
const SYMBOL: u32 = 16;
const HASH_WORDS: u32 = 4;

const READ_WRITE: u32 = 6;

/// Returns the bytes of the library. It is written where its dynamic section lies, as loaders do, and has no code, so
/// that a file system without programs (`noexec`) suffices.
pub fn empty_library() -> Vec<u8> {
    let dynamic = HEADER + 3 * SEGMENT;
    let hash = dynamic + 6 * ENTRY;
    let symbols = hash + 4 * HASH_WORDS;
    let strings = symbols + SYMBOL;
    let end = strings + 4;

    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    let mut halves = |words: &[u16]| file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let (shared, i386) = (3, 3);
    halves(&[shared, i386]);
    let mut words = |words: &[u32]| file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let (version, entry, sections, flags) = (1, 0, 0, 0);
    words(&[version, entry, HEADER, sections, flags]);
    let mut halves = |words: &[u16]| file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    halves(&[HEADER as u16, SEGMENT as u16, 3, 0, 0, 0]);

    let mut words = |words: &[u32]| file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    // Kind, offset, two addresses, two lengths, rights, alignment.
    words(&[libc::PT_LOAD, 0, 0, 0, end, end, READ_WRITE, 4096]);
    words(&[libc::PT_DYNAMIC, dynamic, dynamic, dynamic, hash - dynamic, hash - dynamic, READ_WRITE, 4]);
    // Without it the loader makes the program's stack executable.
    words(&[libc::PT_GNU_STACK, 0, 0, 0, 0, 0, READ_WRITE, 16]);
    let (tag_hash, tag_strings, tag_symbols, tag_strings_bytes, tag_symbol_bytes) = (4, 5, 6, 10, 11);
    words(&[tag_hash, hash, tag_strings, strings, tag_symbols, symbols]);
    words(&[tag_strings_bytes, 1, tag_symbol_bytes, SYMBOL, 0, 0]);
    // One bucket, one symbol, and that is none.
    words(&[1, 1, 0, 0]);
    words(&[0; (SYMBOL / 4) as usize]);
    words(&[0]);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_where_the_headers_say() {
        let file = empty_library();
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!((word(28), file[44], word(52 + 16) as usize), (HEADER, 3, file.len()));
        let dynamic = word(52 + 32 + 4) as usize;
        assert_eq!((word(dynamic), word(dynamic + 4)), (4, (dynamic + 48) as u32));
    }
}
