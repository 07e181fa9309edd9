//! Model test of programs with windows of one file, other users of the file through the kernel, and the thread that
//! applies records. The test runs many orders of their steps under locks. They attach, append, apply, read, truncate,
//! switch off, bar and close, while the burst buffer is sometimes full.
//!
//! The file consists of registers of eight bytes. The value of each register must come from an order of the
//! acknowledged writes that keeps their order in time. This holds also for all reads in between, and for direct reads
//! of the replica once these are allowed. At the end all resources are released.

mod history;
mod replica;

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use concurrency::{below, explore, spawn, yield_now};
use testkit::TempTree;
use types::{ByteRange, Identity};
use window::WindowMedium;
use window::ring::AppendRefused;

use super::recorder::{Program, program};
use crate::right::{WindowRight, WindowRules};
use crate::service::WindowService;
use crate::{WindowSettings, Windows};
use history::History;
use replica::Replica;

/// Number of places in the file that are written.
const CELLS: usize = 3;
/// Distance between places, bytes.
const CELL: u64 = 128 << 10;
/// Length of a long write, more than 64 KiB: its offset is set after its bytes are in the ring.
const LONG: usize = (64 << 10) + 8;
/// Ring size: two long writes.
const RING: u64 = 512 << 10;
const BUDGET: u64 = 8 * RING;
/// Most polls for an expected event, more than any order needs.
const WAITS: u32 = 100_000;
/// Number of steps of each thread.
const DEEDS: usize = 5;
/// Number of waits for room after which a program writes through the kernel.
const PATIENCE: u32 = 3;
/// The burst buffer is full initially in one of so many stories, and becomes full in one of so many changes.
const FULL: usize = 4;

/// State shared by the threads.
struct Story {
    windows: Arc<Windows>,
    service: Arc<WindowService>,
    replica: Arc<Replica>,
    history: History,
    identity: Identity,
    lazy: bool,
    /// Number of threads still running.
    left: AtomicU64,
    _tree: TempTree,
}

/// One open file, and its program's window.
struct Opened<'a> {
    story: &'a Story,
    right: WindowRight,
    ring: Option<Program>,
    pid: u32,
    /// Whether windows are switched off.
    is_off: bool,
    /// Whether the replica may be read directly.
    looks_past: bool,
}

fn head(cell: usize) -> u64 {
    cell as u64 * CELL
}

/// Returns the registers of a write at a place: the first one and, for a long write, one in the middle and the last.
fn registers(cell: usize, long: bool) -> Vec<u64> {
    let all = [head(cell), head(cell) + LONG as u64 / 16 * 8, tail(cell)];
    all[..if long { 3 } else { 1 }].to_vec()
}

/// Returns all registers of the file.
fn all_registers() -> impl Iterator<Item = u64> {
    (0..CELLS).flat_map(|cell| registers(cell, true))
}

fn tail(cell: usize) -> u64 {
    head(cell) + LONG as u64 - 8
}

/// Waits for an expected event.
fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..WAITS {
        if holds() {
            return;
        }
        concurrency::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain: {what}");
}

impl Story {
    fn new(behind_server: bool, lazy: bool) -> Arc<Story> {
        let tree = TempTree::new();
        let service = WindowService::new(BUDGET);
        let settings = WindowSettings::new(tree.path("w"), tree.path("")).unwrap();
        let settings = WindowSettings { medium: Some(WindowMedium::Volatile), window_bytes: RING, ..settings };
        let windows = Windows::begin(settings, &service, behind_server.then_some([1; 16])).unwrap();
        let (replica, history) = (Arc::default(), History::default());
        let identity = Identity::new(vec![7]).unwrap();
        Arc::new(Story { windows, service, replica, history, identity, lazy, left: AtomicU64::new(0), _tree: tree })
    }

    fn open(&self, pid: u32) -> Opened<'_> {
        let rules = WindowRules { wish: None, lazy: self.lazy, patience: Duration::from_secs(30), read_ends: false };
        let right = WindowRight::new(&self.windows, &self.identity, rules, true);
        Opened { story: self, right, ring: None, pid, is_off: false, looks_past: false }
    }

    /// Reads a register as a program does through the kernel.
    fn look(&self, at: u64) {
        let began = self.history.tick();
        let found = self.windows.look(&self.identity, &mut |pending| {
            let mut register = [0; 8];
            let read = self.replica.get(&mut register, at);
            if let Some(pending) = pending {
                pending.lay_over(&mut register, at, read)?;
            }
            Ok(u64::from_le_bytes(register))
        });
        match found {
            Ok(found) => self.history.check(at, found, began, "a read"),
            Err(error) => assert!(self.replica.was_full(), "{error}"),
        }
    }

    /// Reads the replica directly, as a mapping does.
    fn look_past(&self, how: &str) {
        for at in all_registers() {
            let began = self.history.tick();
            self.history.check(at, self.replica.register(at), began, how);
        }
    }

    /// Writes through the kernel.
    fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let settled = self.windows.apply_within(&self.identity, ByteRange::at(at, bytes.len() as u64));
        settled.is_ok() && self.replica.put(bytes, at).is_ok()
    }

    fn truncate(&self, len: u64) {
        let zeroed: Vec<u64> = all_registers().filter(|at| *at >= len).collect();
        let id = self.history.ask(&zeroed, 0);
        let done = self.windows.cut(&self.identity, len, &mut || {
            self.replica.cut(len);
            Ok(())
        });
        self.history.end(&zeroed, id, done.is_ok());
    }

    /// Checks that all resources were released.
    fn ended(&self) {
        self.replica.set_full(false);
        until("the last window is over", || !self.windows.is_windowed(&self.identity));
        assert!(self.windows.tokens.lock().is_empty(), "a token is left");
        assert_eq!(self.service.budget.left(), BUDGET);
        self.look_past("at the end");
        // A thread that found the windows over may still hold them.
        until("its files are gone", || self.windows.session.left().unwrap().is_empty());
        self.windows.session.end(&self.windows.settings.burst_buffer).unwrap();
    }
}

impl Opened<'_> {
    /// Requests a window and fetches it. The window may end in between.
    fn attach(&mut self) {
        let replica = Arc::clone(&self.story.replica);
        let make = || Ok((replica.file(), PathBuf::from("file")));
        let attached = self.story.windows.attach(&self.right, self.pid, &make);
        if let Ok((token, bytes)) = attached {
            assert!(!self.is_off, "a window although they are off");
            assert_eq!(bytes, RING);
            assert!(self.story.windows.fetch(token, self.pid + 1).is_none(), "another process has it");
            self.ring = self.story.windows.fetch(token, self.pid).map(program);
        }
    }

    fn write(&mut self, cell: usize, long: bool) {
        let story = self.story;
        let (value, at) = (story.history.fresh(), head(cell));
        let registers = &registers(cell, long);
        let bytes = value.to_le_bytes().repeat(if long { LONG / 8 } else { 1 });
        let id = story.history.ask(registers, value);
        if let Some(ring) = &self.ring {
            let mut waits = 0;
            let place = || {
                // In the middle of a long write.
                yield_now();
                Some(at)
            };
            let patience = &mut || {
                yield_now();
                waits += 1;
                waits < PATIENCE
            };
            match ring.append_where(&[IoSlice::new(&bytes)], place, patience) {
                Ok(()) => return story.history.end(registers, id, true),
                Err(AppendRefused::Revoked) => self.ring = None,
                Err(_) => {}
            }
        }
        let done = story.write(at, &bytes);
        story.history.end(registers, id, done);
    }

    /// Switches windows off, as before a mapping, or on again.
    fn switch(&mut self) {
        if self.is_off {
            self.right.switch(false);
            (self.is_off, self.looks_past) = (false, false);
            return;
        }
        self.right.switch(true);
        let ended = self.story.windows.end(&self.story.identity, None);
        (self.is_off, self.looks_past) = (true, ended.is_ok());
    }

    fn deed(&mut self) {
        let cell = below(CELLS);
        match below(16) {
            0..3 if self.ring.is_none() => self.attach(),
            0..8 => self.write(cell, below(2) == 0),
            8..10 => self.story.look(registers(cell, true)[below(3)]),
            10 => self.switch(),
            11 => drop(self.story.windows.apply(&self.story.identity)),
            12 if below(3) == 0 => drop(self.story.windows.bar(&self.story.identity)),
            13 => self.story.truncate(head(cell)),
            14 => self.story.replica.set_full(below(FULL) == 0),
            _ => self.attach(),
        }
        if self.looks_past {
            self.story.look_past("with windows switched off");
        }
    }
}

/// Runs one story: several programs, each of which opens the file, does random steps, and closes it, once or twice.
fn told(programs: u32, behind_server: bool, lazy: bool) {
    let story = Story::new(behind_server, lazy);
    story.replica.set_full(below(FULL) == 0);
    story.left.store(programs.into(), Ordering::Relaxed);
    for number in 0..programs {
        let story = Arc::clone(&story);
        let run = move || {
            for _ in 0..1 + below(2) {
                let mut opened = story.open(100 + 10 * number);
                (0..DEEDS).for_each(|_| opened.deed());
            }
            story.left.fetch_sub(1, Ordering::Relaxed);
        };
        spawn("program", run).unwrap();
    }
    until("the programs have ended", || story.left.load(Ordering::Relaxed) == 0);
    story.ended();
}

fn orders() -> usize {
    std::env::var("FOREBAY_ORDERS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

#[test]
fn programs_with_windows_of_one_file_agree_with_the_kernel_in_every_order() {
    explore(orders(), || told(2, false, false));
    explore(orders() / 2, || told(3, false, false));
}

#[test]
fn so_they_do_where_close_does_not_wait() {
    explore(orders(), || told(2, false, true));
}

#[test]
fn so_they_do_behind_a_server() {
    explore(orders(), || told(2, true, false));
}
