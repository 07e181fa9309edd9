//! Memory cost of known files. Alone in its process: other tests' memory would be counted.

mod support;

use support::World;

#[test]
fn a_known_file_that_nobody_uses_takes_two_kilobytes_at_most_in_memory_stores() {
    let resident = || -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let world = World::new();
    // The stores of the test are in memory too: their share is measured first, with as many files.
    for number in 0..8_000 {
        world.store.put(format!("f{number}"), b"");
    }
    let before = resident();
    for number in 0..8_000 {
        drop(world.open(&format!("f{number}"), false));
    }
    let (records, taken) = (world.catalogue.len(), resident().saturating_sub(before));
    println!("{} bytes a file", taken / 8_000);
    assert_eq!(records, 8_000);
    assert!(taken < 8_000 * 2000, "{} bytes a file, catalogue in memory and all", taken / 8_000);
}
