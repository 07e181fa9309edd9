//! Long jobs: each runs in its own thread, and the client polls for its end.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use concurrency::{Condvar, Instant, Mutex};
use wire::Message;

use crate::limits::{JOB_FORGOTTEN, JOB_WAIT, JOBS_MAX};

struct State {
    outcome: Option<Message>,
    asked: Instant,
}

/// One job.
pub(crate) struct DrainJob {
    state: Mutex<State>,
    ended: Condvar,
}

impl DrainJob {
    /// Returns whether the client has not polled for `JOB_FORGOTTEN`.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.state.lock().asked.elapsed() >= JOB_FORGOTTEN
    }
}

/// The jobs of one client.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<HashMap<u64, Arc<DrainJob>>>);

impl Jobs {
    /// Starts a job; a job that already has this number continues. Errors: `EAGAIN` if there are too many jobs.
    pub(crate) fn begin(
        &self,
        number: u64,
        work: impl FnOnce(&DrainJob) -> Message + Send + 'static,
    ) -> io::Result<()> {
        let mut jobs = self.0.lock();
        if jobs.contains_key(&number) {
            return Ok(());
        }
        jobs.retain(|_, job| !job.is_forgotten());
        if jobs.len() >= JOBS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let state = Mutex::new(State { outcome: None, asked: Instant::now() });
        let job = Arc::new(DrainJob { state, ended: Condvar::new() });
        let own = Arc::clone(&job);
        concurrency::spawn("job", move || {
            let outcome = work(&own);
            own.state.lock().outcome = Some(outcome);
            own.ended.notify_all();
        })?;
        jobs.insert(number, job);
        Ok(())
    }

    /// Waits at most `JOB_WAIT` for the end of a job, and returns its result, or `Pending`.
    pub(crate) fn poll(&self, number: u64) -> Message {
        let Some(job) = self.0.lock().get(&number).map(Arc::clone) else { return Message::Unknown {} };
        let until = Instant::now() + JOB_WAIT;
        let mut state = job.state.lock();
        state.asked = Instant::now();
        while state.outcome.is_none() {
            if job.ended.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        let outcome = state.outcome.clone();
        drop(state);
        match outcome {
            None => Message::Pending {},
            Some(outcome) => {
                self.0.lock().remove(&number);
                outcome
            }
        }
    }
}
