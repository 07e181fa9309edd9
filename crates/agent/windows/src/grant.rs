//! Granting a ring to an open file, and a token for it to the program.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use data_store::WindowFile;
use types::{Identity, Shown};

use crate::counters::WindowCounters;
use crate::drain::{Drain, Granted};
use crate::file::FileWindow;
use crate::limits;
use crate::right::WindowRight;
use crate::session;
use crate::table::{FileEntry, Token, Windows};

fn not_now() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

impl Windows {
    /// Makes a ring for an open file of the process `pid`. Returns the token to fetch it, and its bytes. `EAGAIN` if
    /// the node's budget is spent, the open file has a ring, a window of the file is switched off, or records of the
    /// file cannot be applied now.
    pub fn attach(
        self: &Arc<Windows>,
        right: &WindowRight,
        pid: u32,
        make: &dyn Fn() -> io::Result<(WindowFile, PathBuf)>,
    ) -> io::Result<(u64, u64)> {
        if let Some(refusal) = self.refusal(&right.identity) {
            return Err(refusal);
        }
        for _ in 0..limits::WINDOW_ATTACH_TRIES {
            let window = self.window_of(&right.identity, make)?;
            let mut slot = self.rings(&window)?;
            let Some(drain) = slot.as_mut() else {
                // The windows ended meanwhile and their thread has not removed them yet. Another try makes new ones.
                drop(slot);
                self.forget(&window);
                continue;
            };
            let granted = self.grant(drain, right);
            let over = drain.is_over();
            if over {
                drop(slot.take());
            }
            drop(slot);
            if over {
                self.forget(&window);
            } else if let Err(error) = FileWindow::start(&window, self) {
                // Without a thread no record would be applied.
                self.end(&right.identity, None)?;
                return Err(error);
            }
            let granted = granted?;
            let token = session::random()? as u64 | 1;
            let (identity, open, bytes) = (right.identity.clone(), right.id, granted.capacity);
            self.tokens.lock().insert(token, Token { identity, open, pid, granted });
            return Ok((token, bytes));
        }
        Err(not_now())
    }

    /// Grants one more ring to an open file that has none.
    fn grant(&self, drain: &mut Drain, right: &WindowRight) -> io::Result<Granted> {
        if drain.capacity_of(right.id).is_some() || !drain.takes_rings() {
            return Err(not_now());
        }
        let share = self.service.budget.take(right.bytes()).ok_or_else(|| {
            // The program asks again from time to time, so the refusal is counted once.
            WindowCounters::add(&self.counters.without_memory, (!right.denied.swap(true, Ordering::Relaxed)).into());
            not_now()
        });
        let granted = share.and_then(|share| drain.add(right.id, share));
        if let Some(refusal) = self.refusal(&right.identity) {
            // Checked again after the grant: whoever bars the file or switches it off later finds the ring.
            drain.end(Some(right.id));
            drain.sweep();
            return Err(refusal);
        }
        granted
    }

    /// Returns why open files of a file get no window. `EOPNOTSUPP`: the file was read. `EAGAIN`: an open file is
    /// switched off or may be mapped. Either ends at the latest when all have closed the file.
    pub fn refusal(&self, identity: &Identity) -> Option<io::Error> {
        let table = self.table.lock();
        let entry = table.get(identity)?;
        let errno = if entry.barred { libc::EOPNOTSUPP } else { libc::EAGAIN };
        (entry.barred || entry.left_mapped || entry.off > 0 || entry.mapped > 0)
            .then(|| io::Error::from_raw_os_error(errno))
    }

    /// Returns the windows of a file. New ones have no ring and no thread yet.
    pub(crate) fn window_of(
        self: &Arc<Windows>,
        identity: &Identity,
        make: &dyn Fn() -> io::Result<(WindowFile, PathBuf)>,
    ) -> io::Result<Arc<FileWindow>> {
        let there = |table: &HashMap<Identity, FileEntry>| table.get(identity).and_then(|entry| entry.window.clone());
        if let Some(window) = there(&self.table.lock()) {
            return Ok(window);
        }
        let (file, hint) = make()?;
        let place = self.session.add(self.number(), identity, &hint);
        let damages = self.table.lock().entry(identity.clone()).or_default().damages.clone();
        let hint = hint.shown().to_string();
        let drain = place.and_then(|place| Drain::new(place, self.medium, hint, file, damages, &self.counters));
        let drain = drain.map_err(|error| self.counters.without_place(error))?;
        let window = FileWindow::new(identity.clone(), drain);
        {
            let mut table = self.table.lock();
            if let Some(other) = there(&table) {
                drop(table);
                return Ok(other); // the new one is empty
            }
            table.entry(identity.clone()).or_default().window = Some(Arc::clone(&window));
            self.known.store(table.len(), Ordering::Release);
        }
        Ok(window)
    }

    /// Returns the ring of a token. Succeeds once, and only for the process that the ring was made for.
    pub(crate) fn fetch(&self, token: u64, pid: u32) -> Option<Granted> {
        let mut tokens = self.tokens.lock();
        if tokens.get(&token)?.pid != pid {
            return None;
        }
        tokens.remove(&token).map(|token| token.granted)
    }
}
