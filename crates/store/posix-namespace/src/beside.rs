//! Two queries to the global store at once. One runs on another thread, which is reused for later queries.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};

use concurrency::Mutex;
use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::limits::HELPER_REST;

type Job = Box<dyn FnOnce() + Send>;

/// Idle threads. There are as many as were needed at once within the last [`HELPER_REST`].
static IDLE: Mutex<Vec<(ThreadId, Sender<Job>)>> = Mutex::new(Vec::new());

/// Runs `ask` on another thread, which has the process's own credentials. The receiver gets the answer. If no thread
/// can be started, the receiver is closed.
pub(crate) fn beside<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (told, answer) = channel();
    let mut job: Job = Box::new(move || {
        // The receiver may have been dropped.
        let _ = told.send(ask());
    });
    loop {
        let idle = IDLE.lock().pop();
        let Some((_, helper)) = idle else { break };
        match helper.send(job) {
            Ok(()) => return answer,
            Err(refused) => job = refused.0,
        }
    }
    let _ = concurrency::spawn("beside", move || help(job));
    answer
}

fn help(first: Job) {
    run_as_usual();
    let (jobs, comes) = channel();
    let mut job = first;
    loop {
        job();
        IDLE.lock().push((thread::current().id(), jobs.clone()));
        let Some(next) = comes.recv_timeout(HELPER_REST).ok().or_else(|| retire(&comes)) else { return };
        job = next;
    }
}

/// Ends a thread that had no job for [`HELPER_REST`], unless a job is being sent at this moment, which is returned.
fn retire(comes: &Receiver<Job>) -> Option<Job> {
    let was_idle = IDLE.lock().extract_if(.., |(helper, _)| *helper == thread::current().id()).next().is_some();
    if was_idle { None } else { comes.recv().ok() }
}

/// Resets processor affinity and scheduling. The thread that starts this one may be bound to one processor with the
/// lowest priority while it serves a request.
fn run_as_usual() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives through the call, which only reads it.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) };
    if let Ok(all) = sched_getaffinity(Some(getpid())) {
        let _ = sched_setaffinity(None, &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_at_once_is_answered_each_by_its_own_and_threads_are_kept() {
        let answers: Vec<_> = (0..50_u32).map(|number| (number, beside(move || number))).collect();
        answers.into_iter().for_each(|(number, answer)| assert_eq!(answer.recv(), Ok(number)));
        let broken = beside(|| -> u32 { panic!("a test that does so on purpose") });
        assert!(broken.recv().is_err());
        assert_eq!(beside(|| 7).recv(), Ok(7));
        // A thread that ends because it has no job, and is given one at that moment.
        let (jobs, comes) = channel::<Job>();
        IDLE.lock().push((thread::current().id(), jobs.clone()));
        assert!(retire(&comes).is_none(), "it was idle");
        jobs.send(Box::new(|| {})).unwrap();
        assert!(retire(&comes).is_some());
    }
}
