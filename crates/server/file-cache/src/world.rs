//! Test world of this crate's unit tests: a cache over a memory store and a memory catalogue.

use std::io;
use std::path::Path;
use std::sync::Arc;

use config::Policy;
use models::global::MemoryStore;
use models::{DataStoreExt, MemoryCatalogue, OpenDataExt};

use crate::handle::FileHandle;
use crate::{FileCache, Settings};
use data_store::{OpenHow, Residency};

pub(crate) struct World {
    _dir: tempfile::TempDir,
    pub(crate) store: MemoryStore,
    pub(crate) catalogue: MemoryCatalogue,
    settings: Settings,
    pub(crate) cache: FileCache,
}

impl World {
    pub(crate) fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let (store, catalogue) = (MemoryStore::new(), MemoryCatalogue::new());
        let mut settings = Settings::new(dir.path(), Arc::new(store.clone()), "facts");
        settings.catalogue = Some(Arc::new(catalogue.clone()));
        settings.background = false;
        settings.ballast_bytes = 0;
        let cache = FileCache::open(settings.clone()).unwrap();
        World { _dir: dir, store, catalogue, settings, cache }
    }

    /// Opens `f`.
    pub(crate) fn open(&self, write: bool, truncate: bool) -> io::Result<FileHandle> {
        self.open_named("f", write, truncate)
    }

    pub(crate) fn open_named(&self, name: &str, write: bool, truncate: bool) -> io::Result<FileHandle> {
        let policy = Arc::new(Policy::default());
        let how = OpenHow { read: true, write, truncate, policy, ..OpenHow::default() };
        self.cache.inner.open_file(&self.store.anchor(name).unwrap(), how, &|| false)
    }

    pub(crate) fn write(&self, data: &[u8]) {
        self.open(true, false).unwrap().write(data, 0).unwrap();
    }

    /// Stages everything out. Returns how many files are still dirty.
    pub(crate) fn drain(&self) -> usize {
        self.cache.drain_all().len()
    }

    pub(crate) fn state(&self) -> Residency {
        self.cache.residency(&self.store.identity("f").unwrap())
    }

    /// Kills and restarts the agent.
    pub(crate) fn crash(&mut self) {
        self.restart(false, |_| {});
    }

    /// Ends the agent, in order or not, runs `meanwhile` on the newest file's replica, and starts the agent again.
    pub(crate) fn restart(&mut self, orderly: bool, meanwhile: impl FnOnce(&Path)) {
        if orderly {
            assert!(self.cache.shutdown());
        } else {
            self.cache.abandon();
        }
        let mut newest = None;
        let replicas = &self.cache.inner.replicas;
        replicas
            .each(&mut |version| {
                newest = Some(version);
                true
            })
            .unwrap();
        if let Some(version) = newest {
            meanwhile(&replicas.path(version));
        }
        self.cache = FileCache::open(self.settings.clone()).unwrap();
    }

    /// Kills the agent, loses the catalogue, and starts again.
    pub(crate) fn lose_catalogue(&mut self) {
        self.catalogue = MemoryCatalogue::new();
        self.settings.catalogue = Some(Arc::new(self.catalogue.clone()));
        self.settings.thorough = true;
        self.crash();
        self.cache.sweep().unwrap();
    }
}
