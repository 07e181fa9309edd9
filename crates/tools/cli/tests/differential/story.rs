//! Telling a story to both sides, and printing a failed one.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::mounted::chance::payload;
use crate::op::{Generator, Op};
use crate::outcome::{Outcome, first_difference};
use crate::side::Side;

/// Draws the operations of a seed.
pub fn draw(seed: u64, count: usize, size_max: u64, commands: bool) -> Vec<Op> {
    let mut generator = Generator::new(seed, size_max, commands);
    (0..count).map(|_| generator.next()).collect()
}

/// Creates the files that exist before a story begins. `size_max` bounds the largest.
pub fn first_files(root: &Path, size_max: u64) {
    for directory in ["a", "a/c", "b"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    fs::write(root.join("x0"), payload(1, 3000)).expect("x0");
    fs::write(root.join("x1"), payload(2, size_max as usize / 10)).expect("x1");
    fs::write(root.join("a/x1"), b"").expect("a/x1");
    fs::write(root.join("big"), payload(3, size_max as usize)).expect("big");
    let sparse = fs::File::create(root.join("a/big")).expect("a/big");
    sparse.set_len(size_max / 2).expect("a hole");
    sparse.write_all_at(&payload(4, size_max as usize / 8), size_max / 5).expect("data in the middle");
    fs::hard_link(root.join("x0"), root.join("b/x0")).expect("a hard link");
    std::os::unix::fs::symlink("a/x0", root.join("link")).expect("a symbolic link");
}

/// Tells a story. Errors: where the sides differ.
pub fn tell(one: &mut Side, two: &mut Side, ops: &[Op]) -> Result<(), String> {
    for (index, op) in ops.iter().enumerate() {
        let (first, second) = (one.apply(op), two.apply(op));
        if !first.agrees(&second) {
            let detail = match (&first, &second) {
                (Outcome::Bytes(first), Outcome::Bytes(second)) => first_difference(first, second),
                _ => String::new(),
            };
            return Err(format!("operation {index}: {op:?}\n  first:  {first:?}\n  second: {second:?}\n  {detail}"));
        }
    }
    Ok(())
}

/// Prints the end of a story before its failure, as Rust.
pub fn print(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("        Op::{op:?},\n")).collect()
}
