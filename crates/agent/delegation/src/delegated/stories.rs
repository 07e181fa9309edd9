//! Stories of a few threads, in thousands of their orders: changes, syncs and cleaning of one tree.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use concurrency::{Mutex, explore, spawn_joined, yield_now};
use global_store::{Access, StoreFile};
use namespace::{Caller, FileSystemSpace, NameKind, Names, NewFile, NewMode};

use super::{DelegatedTree, DelegationSettings, FilesBelow};
use crate::log::{LogDirectory, LogFile, read_log};
use crate::state::{Moment, NodeKind, NodeNumber, NodeState};
use crate::tree::Tree;

const USER: Caller = Caller { uid: 0, gid: 0, pid: 0 };
/// Bytes of a log file: two transactions fill it.
const FILE_BYTES: u64 = 400;

fn orders() -> usize {
    std::env::var("FOREBAY_ORDERS").ok().and_then(|orders| orders.parse().ok()).unwrap_or(2_000)
}

/// A directory of log files that lets other threads run in each call.
#[derive(Clone, Default)]
struct Medium(Arc<Mutex<Files>>);

#[derive(Default)]
struct Files {
    now: BTreeMap<u32, Content>,
    /// Names that a crash of the machine leaves.
    durable: BTreeMap<u32, Content>,
    syncs: u32,
    /// The sync that fails.
    fails: Option<u32>,
}

type Content = Arc<Mutex<[Vec<u8>; 2]>>;

impl Medium {
    fn sync_call(&self) -> io::Result<()> {
        yield_now();
        let mut files = self.0.lock();
        files.syncs += 1;
        if files.fails == Some(files.syncs) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    /// Returns the tree that a crash of the machine leaves, which loses all that it may.
    fn after_crash(&self) -> (u64, Tree) {
        let left = Medium::default();
        for (number, content) in &self.0.lock().durable {
            let durable = content.lock()[1].clone();
            left.0.lock().now.insert(*number, Arc::new(Mutex::new([durable.clone(), durable])));
        }
        let content = read_log(&left).unwrap();
        (content.states.last, Tree::try_from(content.states).unwrap())
    }
}

impl LogDirectory for Medium {
    fn list(&self) -> io::Result<Vec<u32>> {
        Ok(self.0.lock().now.keys().copied().collect())
    }

    fn create(&self, number: u32, _: u64) -> io::Result<Arc<dyn LogFile>> {
        let content = Content::default();
        self.0.lock().now.insert(number, Arc::clone(&content));
        Ok(Arc::new(MediumFile(self.clone(), content)))
    }

    fn read(&self, number: u32) -> io::Result<Vec<u8>> {
        Ok(self.0.lock().now[&number].lock()[0].clone())
    }

    fn cut(&self, _: u32, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, number: u32) -> io::Result<()> {
        yield_now();
        // The worst case: the removal is durable at once.
        let mut files = self.0.lock();
        files.durable.remove(&number);
        files.now.remove(&number).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn keep_damaged(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_call()?;
        let mut files = self.0.lock();
        files.durable = files.now.clone();
        Ok(())
    }
}

struct MediumFile(Medium, Content);

impl LogFile for MediumFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        yield_now();
        let (mut content, end) = (self.1.lock(), offset as usize + data.len());
        let length = content[0].len().max(end);
        content[0].resize(length, 0);
        content[0][offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // Written while the sync runs: may or may not be durable. Here it is not.
        let now = self.1.lock()[0].clone();
        self.0.sync_call()?;
        self.1.lock()[1] = now;
        Ok(())
    }
}

struct NothingBelow;

impl FilesBelow for NothingBelow {
    fn open(&self, _: NodeNumber, _: Access) -> io::Result<Box<dyn StoreFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        Ok(FileSystemSpace::default())
    }
}

fn open(medium: &Medium) -> Arc<DelegatedTree> {
    let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o755, 0, 0), Moment(1));
    let settings = DelegationSettings { log_file_bytes: FILE_BYTES, ..DelegationSettings::default() };
    let (tree, _) = DelegatedTree::open(Box::new(medium.clone()), Arc::new(NothingBelow), settings, root).unwrap();
    tree.sync().unwrap();
    Arc::new(tree)
}

fn create(tree: &DelegatedTree, name: &str) -> io::Result<()> {
    let mode = NewMode { mode: 0o600, umask: 0 };
    let new = NewFile { name: Some(name.as_ref()), mode, exclusive: true };
    tree.create(&USER, &tree.root()?, new).map(drop)
}

/// Creates files, each of which must be there after a crash once a sync has succeeded.
fn create_and_sync(tree: &DelegatedTree, medium: &Medium, of: u32) {
    for number in 0..2 {
        let name = format!("{of} {number}");
        if create(tree, &name).is_err() {
            continue;
        }
        let end = tree.log().end();
        if tree.sync().is_ok() {
            let (last, left) = medium.after_crash();
            assert!(last >= end, "{last} of {end}");
            let root = left.slot_of(NodeNumber::ROOT).unwrap();
            assert!(left.child(root, name.as_bytes()).is_some(), "{name} was synced");
        }
    }
}

fn tell(fails: Option<u32>, cleans: bool) {
    explore(orders(), move || {
        let medium = Medium::default();
        let tree = open(&medium);
        let syncs = medium.0.lock().syncs;
        medium.0.lock().fails = fails.map(|nth| syncs + nth);
        let threads: Vec<_> = (0..2)
            .map(|of| {
                let (tree, medium) = (Arc::clone(&tree), medium.clone());
                spawn_joined("creator", move || create_and_sync(&tree, &medium, of)).unwrap()
            })
            .collect();
        let (churning, churned) = (
            Arc::clone(&tree),
            spawn_joined("churner", {
                let tree = Arc::clone(&tree);
                move || {
                    for _ in 0..3 {
                        let _ = create(&tree, "churn");
                        let _ = tree.remove(&USER, &tree.root().unwrap(), "churn".as_ref(), NameKind::File);
                        if cleans {
                            let _ = tree.clean();
                        }
                    }
                }
            }),
        );
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        churned.unwrap().join().unwrap();
        churning.assert_invariants();
    });
}

#[test]
fn a_sync_that_succeeds_keeps_what_was_appended_before_in_any_order() {
    tell(None, false);
}

#[test]
fn a_sync_that_fails_is_a_success_for_nobody() {
    (1..4).for_each(|nth| tell(Some(nth), false));
}

#[test]
fn cleaning_takes_nothing_away_that_was_synced_whatever_runs_beside_it() {
    tell(None, true);
    tell(Some(3), true);
}
