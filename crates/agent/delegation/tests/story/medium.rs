//! A directory of log files in memory, which fails and crashes on demand.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use delegation::log::{LogDirectory, LogFile};
use testkit::Random;

/// A directory of log files that can be looked at, and crash.
#[derive(Clone, Default)]
pub struct Medium(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: BTreeMap<u32, Content>,
    /// Files whose names survive a crash of the machine, removed ones included.
    durable_names: BTreeMap<u32, Content>,
    calls: u64,
    /// The call that fails, counted from 1.
    fails: Option<u64>,
    damaged: u64,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Arc<Mutex<Vec<u8>>>,
    durable: Arc<Mutex<Vec<u8>>>,
}

const BLOCK: usize = 64;

impl Medium {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Makes the nth call from now on fail.
    pub fn fail(&self, nth: u64) {
        let mut state = self.state();
        state.fails = Some(state.calls + nth);
    }

    /// Whether the call that was to fail was made.
    pub fn has_failed(&self) -> bool {
        let state = self.state();
        state.fails.is_some_and(|fails| state.calls >= fails)
    }

    /// Number of files of which a damaged copy was kept.
    pub fn damaged(&self) -> u64 {
        self.state().damaged
    }

    fn call(&self) -> io::Result<()> {
        let mut state = self.state();
        state.calls += 1;
        if state.fails == Some(state.calls) { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    /// Returns the files' content.
    pub fn files(&self) -> BTreeMap<u32, Vec<u8>> {
        self.state().files.iter().map(|(number, file)| (*number, file.bytes.lock().unwrap().clone())).collect()
    }

    pub fn of_files(files: BTreeMap<u32, Vec<u8>>) -> Medium {
        let medium = Medium::default();
        for (number, bytes) in files {
            let content = Content { durable: Arc::new(Mutex::new(bytes.clone())), bytes: Arc::new(Mutex::new(bytes)) };
            medium.state().durable_names.insert(number, content.clone());
            medium.state().files.insert(number, content);
        }
        medium
    }

    /// Returns what a crash of the machine leaves: what was synced, and by chance some of the rest.
    pub fn crash(&self, random: &mut Random) -> Medium {
        let state = self.state();
        let mut left = BTreeMap::new();
        let mut names: Vec<(u32, &Content)> =
            state.durable_names.iter().map(|(number, file)| (*number, file)).collect();
        names.retain(|(number, _)| state.files.contains_key(number) || random.below(2) == 0);
        names.extend(
            state
                .files
                .iter()
                .filter(|(number, _)| !state.durable_names.contains_key(number) && random.below(2) == 0)
                .map(|(number, file)| (*number, file)),
        );
        for (number, file) in names {
            let (new, mut bytes) = (file.bytes.lock().unwrap().clone(), file.durable.lock().unwrap().clone());
            bytes.resize(new.len(), 0);
            for at in (0..new.len()).step_by(BLOCK) {
                let end = (at + BLOCK).min(new.len());
                if random.below(2) == 0 {
                    bytes[at..end].copy_from_slice(&new[at..end]);
                }
            }
            left.insert(number, bytes);
        }
        drop(state);
        Medium::of_files(left)
    }
}

struct MediumFile {
    medium: Medium,
    content: Content,
}

impl LogDirectory for Medium {
    fn list(&self) -> io::Result<Vec<u32>> {
        Ok(self.state().files.keys().copied().rev().collect())
    }

    fn create(&self, number: u32, bytes: u64) -> io::Result<Arc<dyn LogFile>> {
        self.call()?;
        let content = Content { bytes: Arc::new(Mutex::new(vec![0; bytes as usize])), ..Content::default() };
        let former = self.state().files.insert(number, content.clone());
        assert!(former.is_none(), "a file is made once");
        Ok(Arc::new(MediumFile { medium: self.clone(), content }))
    }

    fn read(&self, number: u32) -> io::Result<Vec<u8>> {
        let state = self.state();
        let file = state.files.get(&number).ok_or(io::ErrorKind::NotFound)?;
        Ok(file.bytes.lock().unwrap().clone())
    }

    fn cut(&self, number: u32, bytes: u64) -> io::Result<()> {
        self.call()?;
        let state = self.state();
        let mut content = state.files[&number].bytes.lock().unwrap();
        content.resize(bytes as usize, 0);
        *state.files[&number].durable.lock().unwrap() = content.clone();
        Ok(())
    }

    fn remove(&self, number: u32) -> io::Result<()> {
        self.call()?;
        self.state().files.remove(&number).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn keep_damaged(&self, _: u32) -> io::Result<()> {
        self.state().damaged += 1;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.call()?;
        let mut state = self.state();
        state.durable_names = state.files.clone();
        Ok(())
    }
}

impl LogFile for MediumFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let (failed, mut bytes) = (self.medium.call(), self.content.bytes.lock().unwrap());
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        // A write that fails may have written all.
        bytes[offset as usize..end].copy_from_slice(data);
        failed
    }

    fn sync(&self) -> io::Result<()> {
        self.medium.call()?;
        *self.content.durable.lock().unwrap() = self.content.bytes.lock().unwrap().clone();
        Ok(())
    }
}
