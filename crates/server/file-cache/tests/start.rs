//! Cost of a start and an end: nothing grows with the number of replicas.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use catalogue::{Catalogue, Change, Durability, Error, Record};
use file_cache::FileCache;
use models::{DataStoreExt, MemoryCatalogue};
use support::World;
use types::Identity;

/// Counts the records that one thread reads.
struct Counting {
    catalogue: MemoryCatalogue,
    of: ThreadId,
    records: Arc<AtomicU64>,
}

impl Counting {
    fn count(&self) {
        self.records.fetch_add(u64::from(thread::current().id() == self.of), Ordering::Relaxed);
    }
}

impl Catalogue for Counting {
    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error> {
        self.count();
        self.catalogue.get(identity)
    }

    fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error> {
        self.catalogue.commit(changes, durability)
    }

    fn unclean(&self, each: &mut dyn FnMut(Identity, Record)) -> Result<(), Error> {
        self.catalogue.unclean(&mut |identity, record| {
            self.count();
            each(identity, record)
        })
    }

    fn scan(
        &self,
        each: &mut dyn FnMut(Identity, Record) -> bool,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<(), Error> {
        let counted = &mut |identity, record| {
            self.count();
            each(identity, record)
        };
        self.catalogue.scan(counted, damaged)
    }
}

#[test]
fn a_start_and_an_end_with_clean_replicas_read_no_record() {
    let world = World::new();
    const FILES: u64 = 50;
    for number in 0..FILES {
        world.write_new(&format!("f{number}"), b"data");
    }
    world.drain();
    world.cache.shutdown();
    let records = Arc::new(AtomicU64::new(0));
    let (catalogue, of) = (world.catalogue.clone(), thread::current().id());
    let mut settings = world.settings.clone();
    settings.catalogue = Some(Arc::new(Counting { catalogue, of, records: Arc::clone(&records) }));
    settings.background = true;
    let cache = FileCache::open(settings).unwrap();
    assert!(cache.drain_all().is_empty());
    assert_eq!(cache.activity().files, 0);
    cache.shutdown();
    assert_eq!(records.load(Ordering::Relaxed), 0);
    assert_eq!(cache.counters().clean, FILES);
    assert_eq!(records.load(Ordering::Relaxed), FILES, "the count counts");
}
