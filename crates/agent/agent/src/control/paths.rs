//! Paths that a command has still to visit, shared by several threads. Staging mostly waits for disks and networks, so
//! threads help.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use concurrency::{Condvar, Mutex};

use crate::node::Node;

/// A path to visit.
#[derive(Clone)]
pub(super) struct Named {
    pub path: PathBuf,
    /// Directory in which the path was found; `None` if the command named the path.
    pub directory: Option<Arc<Node>>,
}

/// Paths named by a command and found below them.
pub(super) struct Paths {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Stack of paths; the next one is last.
    left: Vec<Named>,
    visited_now: usize,
    ended: bool,
}

/// One path while it is visited. Paths found below it are visited next.
pub(super) struct Visit<'a> {
    paths: &'a Paths,
    named: Named,
    below: Vec<Named>,
}

impl Paths {
    pub(super) fn new(named: &[PathBuf]) -> Paths {
        let left = named.iter().rev().map(|path| Named { path: path.clone(), directory: None }).collect();
        Paths { state: Mutex::new(State { left, visited_now: 0, ended: false }), changed: Condvar::new() }
    }

    /// Takes the next path. `None`: all were visited, or `end` was called.
    pub(super) fn next(&self) -> Option<Visit<'_>> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(named) = state.left.pop() {
                state.visited_now += 1;
                return Some(Visit { paths: self, named, below: Vec::new() });
            }
            if state.visited_now == 0 {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Ends the command: no further path is visited.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Number of paths known and not yet visited.
    pub(super) fn left(&self) -> u64 {
        self.state.lock().left.len() as u64
    }
}

impl Visit<'_> {
    pub(super) fn path(&self) -> &Path {
        &self.named.path
    }

    /// Directory in which the path was found.
    pub(super) fn directory(&self) -> Option<&Arc<Node>> {
        self.named.directory.as_ref()
    }

    /// Adds the paths found below, in the order in which they are to be visited.
    pub(super) fn found(&mut self, below: Vec<Named>) {
        self.below = below;
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut state = self.paths.state.lock();
        state.visited_now -= 1;
        state.left.extend(self.below.drain(..).rev());
        if !state.left.is_empty() || state.visited_now == 0 {
            self.paths.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    fn found(names: &[&str]) -> Vec<Named> {
        named(names).into_iter().map(|path| Named { path, directory: None }).collect()
    }

    #[test]
    fn what_is_found_below_a_path_comes_before_its_neighbours() {
        let paths = Paths::new(&named(&["a", "b"]));
        let mut order = Vec::new();
        while let Some(mut visit) = paths.next() {
            if visit.path() == Path::new("a") {
                visit.found(found(&["a/1", "a/2"]));
            }
            order.push(visit.path().to_owned());
        }
        assert_eq!(order, named(&["a", "a/1", "a/2", "b"]));
    }

    #[test]
    fn one_waits_for_what_another_finds_and_an_end_is_the_end() {
        let paths = Paths::new(&named(&["a"]));
        let mut first = paths.next().unwrap();
        std::thread::scope(|scope| {
            let others = [0, 1].map(|_| scope.spawn(|| paths.next().map(|visit| visit.path().to_owned())));
            first.found(found(&["a/1"]));
            drop(first);
            let mut got = others.map(|other| other.join().unwrap());
            got.sort();
            assert_eq!(got, [None, Some("a/1".into())]);
        });
        let paths = Paths::new(&named(&["a", "b"]));
        let _visit = paths.next().unwrap();
        paths.end();
        assert!(paths.is_ended() && paths.next().is_none());
        assert_eq!(paths.left(), 1);
    }
}
