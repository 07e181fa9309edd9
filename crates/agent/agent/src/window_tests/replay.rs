//! Tests of replay: records that can be replayed later stay, and damaged ones are reported and kept.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use catalogue::{Catalogue, Change, Durability, Error, FjallCatalogue, Record};
use rustix::thread::CapabilitySet;
use types::Identity;

use super::killed::{left_with_records, only};
use super::{agent_over, agent_with};
use crate::{Agent, Replayed};

/// Runs a replay and returns all outcomes.
pub(super) fn recovered(agent: &Agent, burst_buffer: &Path) -> io::Result<Vec<Replayed>> {
    let mut all = Vec::new();
    agent.recover_windows(burst_buffer, &mut |file| all.push(file))?;
    Ok(all)
}

/// A catalogue whose writes fail on demand.
struct Failing {
    catalogue: FjallCatalogue,
    fails: AtomicBool,
}

impl Catalogue for Failing {
    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error> {
        self.catalogue.get(identity)
    }

    fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error> {
        if self.fails.load(Relaxed) {
            return Err(Error::Io { step: "commit", reason: "no space left".into() });
        }
        self.catalogue.commit(changes, durability)
    }

    fn unclean(&self, each: &mut dyn FnMut(Identity, Record)) -> Result<(), Error> {
        self.catalogue.unclean(each)
    }

    fn scan(
        &self,
        each: &mut dyn FnMut(Identity, Record) -> bool,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<(), Error> {
        self.catalogue.scan(each, damaged)
    }
}

#[test] // S38
fn rings_stay_while_the_burst_buffer_answers_with_errors() {
    let story = left_with_records(500, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    // The files become clean, so that the next open has to record that the file is dirty.
    let agent = agent_over(root, &[]);
    assert!(agent.data().drain(None, &mut |_| {}, &|| false).is_empty());
    agent.data().shutdown();
    let catalogue = FjallCatalogue::open(buffer.join("catalogue")).unwrap();
    let failing = Arc::new(Failing { catalogue, fails: AtomicBool::new(false) });
    let agent = agent_with(root, &[], Some(Arc::clone(&failing) as _));
    failing.fails.store(true, Relaxed);
    let refused = recovered(&agent, &buffer).unwrap_err();
    assert!(refused.to_string().contains("Input/output error"), "{refused}");
    failing.fails.store(false, Relaxed);
    let [file] = &recovered(&agent, &buffer).unwrap()[..] else { panic!("one file") };
    assert!(file.records > 0 && file.lost.is_empty(), "{file:?}");
    agent.data().shutdown();
    failing.catalogue.close().unwrap();
    drop((agent, failing));
    story.check(500);
}

#[test] // S38
fn rings_of_a_file_whose_replica_is_lost_are_told_and_kept() {
    let story = left_with_records(501, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    fs::remove_dir_all(buffer.join("replicas")).unwrap();
    let agent = agent_over(root, &[]);
    let [file] = &recovered(&agent, &buffer).unwrap()[..] else { panic!("one file") };
    assert!(recovered(&agent, &buffer).unwrap().is_empty());
    agent.data().shutdown();
    let aside = only(&root.join("w"));
    assert!(aside.to_str().unwrap().contains(".damaged-") && aside.join("0").exists(), "{aside:?}");
    let [lost] = &file.lost[..] else { panic!("{file:?}") };
    assert!(lost.contains("its data in the burst buffer is lost") && lost.contains(aside.to_str().unwrap()), "{lost}");
}

#[test] // S38
fn a_ring_that_cannot_be_opened_now_stops_the_start_and_is_replayed_another_time() {
    let story = left_with_records(502, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let ring = only(&only(&root.join("w")).join("files")).join("0");
    fs::rename(&ring, root.join("ring")).unwrap();
    symlink(&ring, &ring).unwrap();
    let agent = agent_over(root, &[]);
    let refused = recovered(&agent, &buffer).unwrap_err().to_string();
    assert!(refused.contains(ring.to_str().unwrap()), "{refused}");
    agent.data().shutdown();
    fs::rename(root.join("ring"), &ring).unwrap();
    story.check(502);
}

/// An agent without root privilege cannot open files by handle.
#[test] // S37
fn a_file_that_was_renamed_is_found_where_the_store_finds_none_by_identity() {
    let story = left_with_records(503, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let [name, new_name] = ["data/file", "data/renamed"].map(|name| root.join(name));
    fs::rename(&name, &new_name).unwrap();
    std::thread::scope(|scope| {
        let without_handles = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_READ_SEARCH);
            rustix::thread::set_capabilities(None, sets).unwrap();
            let agent = agent_over(root, &[]);
            assert!(!agent.names.store().finds_by_identity(), "the test is worth nothing");
            let left = recovered(&agent, &buffer).unwrap();
            agent.data().shutdown();
            left
        });
        let left = without_handles.join().unwrap();
        let [file] = &left[..] else { panic!("one file: {left:?}") };
        assert!(file.records > 0 && file.lost.is_empty(), "{file:?}");
    });
    fs::rename(&new_name, &name).unwrap();
    story.check(503);
}

#[test] // S38
fn what_is_lost_is_told_before_the_start_stops_at_another_file_and_nobody_can_be_in_its_way() {
    let story = left_with_records(503, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let session = only(&root.join("w"));
    let place = only(&session.join("files"));
    let other = session.join("files/9999");
    fs::create_dir(&other).unwrap();
    fs::copy(place.join("0.grant"), other.join("0.grant")).unwrap();
    let record = fs::read_to_string(place.join("file")).unwrap();
    fs::write(other.join("file"), record.replace("\"format\":3", "\"format\":4")).unwrap();
    fs::write(place.join("0.grant"), "{").unwrap();
    // Every user may do this in /dev/shm.
    let number = place.file_name().unwrap().to_str().unwrap();
    fs::create_dir_all(format!("{}.damaged-{number}/in the way", session.display())).unwrap();
    fs::OpenOptions::new().append(true).open(buffer.join("windows")).unwrap().write_all(b"who wrote this\n").unwrap();
    let agent = agent_over(root, &[]);
    let mut told = Vec::new();
    let refused = agent.recover_windows(&buffer, &mut |file| told.push(file)).unwrap_err().to_string();
    assert!(refused.contains(other.to_str().unwrap()), "{refused}");
    let [list, file] = &told[..] else { panic!("{told:?}") };
    assert!(list.path.ends_with("buffer/windows") && list.lost[0].contains("who wrote this"), "{list:?}");
    assert!(file.lost.iter().any(|lost| lost.contains("0.grant")), "{file:?}");
    assert!(!place.exists());
    agent.data().shutdown();
}
