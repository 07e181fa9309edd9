//! States of rings on persistent memory after a crash of the machine: each cache line has any of its contents since it
//! was last flushed and fenced. The replica is any mixture of pages since it was synced.

#![allow(clippy::arc_with_non_send_sync, reason = "one thread plays all; the seam is shared by Arc")]

mod common;
mod media;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use common::{COUNTER, Drain, FILE, grant, ring_bytes};
use media::{Image, Kind, Lines, Machine, Omitted};
use testkit::Random;
use window::drained::Drained;
use window::memory::Heap;
use window::recover::{Bounds, Replay, recover};
use window::ring::{AppendRefused, RingReader, Stop, Writer};
use window::sequence::Sequence;

const CAPACITY: u64 = 64 << 10;
const RINGS: usize = 3;
/// Writes of one story.
const WRITES: usize = 60;

type Agent = Rc<RefCell<Drain<Arc<Lines>>>>;

fn id(ring: usize) -> u128 {
    ring as u128 * 7919 + 1
}

/// Runs one story: three programs write one file. Between any two of their accesses the agent may apply records or end
/// a ring. Returns images of the machine at some of its moments.
fn story(seed: u64, omitted: Omitted) -> Vec<Image> {
    let mut rng = Random(seed);
    let machine = Machine::new(seed, omitted);
    let rings: Vec<_> = (0..RINGS).map(|_| Arc::new(machine.memory(ring_bytes(CAPACITY)))).collect();
    let sequence = Arc::new(Arc::new(machine.memory(COUNTER)));
    let drained = Arc::new(machine.memory(COUNTER));
    let new = |ring: usize| RingReader::create(rings[ring].clone(), grant(id(ring), CAPACITY)).unwrap();
    let readers = (0..RINGS).map(new).collect();
    let program = |ring: usize| {
        let sequence = Sequence::new(sequence.clone());
        Writer::new(rings[ring].clone(), grant(id(ring), CAPACITY).ring, CAPACITY, sequence).unwrap()
    };
    let writers: Vec<_> = (0..RINGS).map(program).collect();
    let agent: Agent = Rc::new(RefCell::new(Drain::new(readers, sequence.clone(), drained)));
    machine.granted();
    for _ in 0..WRITES {
        // Lengths that only the flush of a payload has.
        let len = [9 + rng.below(50), 65 + rng.below(15 << 10)][rng.below(2) as usize] as usize;
        let offset = rng.below((FILE - len) as u64) as usize;
        let bytes = rng.bytes(len);
        let writer = &writers[rng.below(RINGS as u64) as usize];
        machine.begins(offset, &bytes);
        if rng.below(3) == 0 {
            let (agent, ends, seed) = (agent.clone(), rng.below(12) == 0, rng.below(1 << 40));
            let work = move |machine: &Machine| pump(&agent, machine, &mut Random(seed), ends);
            machine.interrupt_after(rng.below(80), Box::new(work));
        }
        let patient = rng.below(16) != 0;
        let done = writer.append(offset as u64, &bytes, &mut || {
            (0..4).for_each(|_| pump(&agent, &machine, &mut rng, false));
            patient
        });
        if let Err(refused) = done {
            assert!(matches!(refused, AppendRefused::Impatient | AppendRefused::Revoked), "{refused:?}");
        }
        machine.ended(done.is_ok());
    }
    machine.images()
}

/// Makes one turn of the agent, unless it is at work already: examines one ring, ends it if it must, and applies a
/// batch.
fn pump(agent: &Agent, machine: &Machine, rng: &mut Random, ends: bool) {
    let Ok(mut drain) = agent.try_borrow_mut() else { return };
    let ring = rng.below(RINGS as u64) as usize;
    if drain.take(ring) == Stop::Revoke || ends {
        drain.end(ring);
    }
    drain.batch_to(rng.below(2) == 0, &mut machine.replica());
}

/// Checks the result of recovery from the image. Errors: a description of the difference.
fn wrong(image: &Image) -> Result<(), String> {
    let mut readers = Vec::new();
    for ring in 0..RINGS {
        let memory = Heap::from_image(&image.memories[ring]);
        let reader = RingReader::left_behind(memory, grant(id(ring), CAPACITY));
        readers.push(reader.map_err(|error| format!("a ring that was granted: {error}"))?);
    }
    let drained = Drained::left_behind(Heap::from_image(&image.memories[RINGS + 1]));
    let mut replica = common::Replica(image.replica.clone());
    let report = recover(&mut readers, &drained, Bounds::NONE, &mut replica).map_err(|error| error.to_string())?;
    replica.sync().map_err(|error| error.to_string())?;
    if !report.lost.is_empty() {
        return Err(format!("told as lost: {:?}", report.lost));
    }
    let whole = replica.0 == image.acknowledged;
    let under_way = image.under_way.as_ref().is_some_and(|(offset, bytes)| {
        let mut with = image.acknowledged.clone();
        with[*offset..offset + bytes.len()].copy_from_slice(bytes);
        replica.0 == with
    });
    if whole || under_way { Ok(()) } else { Err("the file is neither with nor without the write under way".into()) }
}

#[test] // S50
fn after_a_crash_of_the_machine_every_acknowledged_write_is_there_and_nothing_else_whatever_lines_were_lost() {
    let mut images = 0;
    for seed in 0..60 {
        for image in story(seed, Omitted::Nothing) {
            wrong(&image).unwrap_or_else(|wrong| panic!("seed {seed}, step {}: {wrong}", image.step));
            images += 1;
        }
    }
    assert!(images > 1000, "{images} images");
}

#[test] // S50
fn a_flush_a_fence_or_a_sync_that_is_left_out_is_noticed() {
    let mut unnoticed = Vec::new();
    for omitted in Omitted::ALL {
        let mut seeds = 0..400;
        let noticed = seeds.find(|seed| story(*seed, omitted).iter().any(|image| wrong(image).is_err()));
        match noticed {
            Some(seed) => println!("{omitted:?}: noticed by seed {seed}"),
            None => unnoticed.push(omitted),
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}

#[test]
fn a_machine_tells_its_flushes_apart() {
    let seen = (0..40).flat_map(|seed| story(seed, Omitted::Nothing)).flat_map(|image| image.flushed);
    let seen: std::collections::BTreeSet<Kind> = seen.collect();
    assert!(Kind::ALL.iter().all(|kind| seen.contains(kind)), "{seen:?}");
}
