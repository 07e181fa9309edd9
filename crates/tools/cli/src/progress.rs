//! Progress of a drain: a bar on a terminal, occasional lines elsewhere, nothing with `--quiet`.

use std::time::{Duration, Instant};

use agent::control::Reply;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::count::files;
use crate::exit::say;
use crate::limits::{PROGRESS_AFTER, PROGRESS_DRAW, PROGRESS_LINE};

/// State of a drain, as shown: counts of this drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    pub files_done: u64,
    pub files_left: u64,
    pub bytes_left: u64,
}

impl State {
    /// Returns the state in an agent's reply, if the reply has one.
    pub fn of(reply: &Reply) -> Option<State> {
        match *reply {
            Reply::Progress { files_done, files_left, bytes_left } => {
                Some(State { files_done, files_left, bytes_left })
            }
            _ => None,
        }
    }
}

pub struct Progress {
    title: &'static str,
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Whether files are counted, since the number of bytes is unknown.
    files: bool,
    started: Instant,
    told: Instant,
    /// Most bytes that were ever left: the length of the bar.
    bytes_all: u64,
    last: State,
}

impl Progress {
    /// Creates a display on stderr, which is silent until there is progress to show.
    pub fn new(title: &'static str, quiet: bool) -> Progress {
        Progress::with(title, quiet, "{msg} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}")
    }

    /// Creates a display for a task that does not know how many bytes are left.
    pub fn of_files(title: &'static str, quiet: bool) -> Progress {
        Progress { files: true, ..Progress::with(title, quiet, "{msg} [{bar:30}] {pos}/{len} files known") }
    }

    fn with(title: &'static str, quiet: bool, template: &str) -> Progress {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let bar = (terminal && !quiet).then(|| {
            let hz = (1000 / PROGRESS_DRAW.as_millis()) as u8;
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(hz));
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        let now = Instant::now();
        Progress { title, bar, quiet, files: false, started: now, told: now, bytes_all: 0, last: State::default() }
    }

    pub fn update(&mut self, state: State) {
        self.last = state;
        self.bytes_all = self.bytes_all.max(state.bytes_left);
        if self.started.elapsed() < PROGRESS_AFTER {
            return;
        }
        if let Some(bar) = self.bar.as_ref().filter(|_| self.files) {
            bar.set_message(self.title);
            bar.set_length(state.files_done + state.files_left);
            bar.set_position(state.files_done);
        } else if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {} left", self.title, files(state.files_left)));
            bar.set_length(self.bytes_all);
            bar.set_position(self.bytes_all - state.bytes_left);
        } else if !self.quiet && self.told.elapsed() >= PROGRESS_LINE {
            self.told = Instant::now();
            say!("forebay: {}", self.line());
        }
    }

    /// Shows other output above the bar; that output stays.
    pub fn aside(&self, show: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(show),
            None => show(),
        }
    }

    /// Removes the bar. Returns the state that was shown last, and the duration.
    pub fn finish(self) -> (State, Duration) {
        if let Some(bar) = self.bar.as_ref().filter(|bar| bar.position() > 0 || bar.length() > Some(0)) {
            bar.finish_and_clear();
        }
        (self.last, self.started.elapsed())
    }

    fn line(&self) -> String {
        if self.files {
            return format!(
                "{}: {} done, {} known to be left",
                self.title,
                files(self.last.files_done),
                self.last.files_left
            );
        }
        let left = HumanBytes(self.last.bytes_left);
        let (done, waiting) = (files(self.last.files_done), files(self.last.files_left));
        format!("{}: {done} done, {waiting} with {left} left", self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let mut progress = Progress::new("draining", true);
        progress.update(State { files_done: 0, files_left: 3, bytes_left: 3 << 20 });
        progress.update(State { files_done: 1, files_left: 2, bytes_left: 2 << 20 });
        assert_eq!(progress.line(), "draining: 1 file done, 2 files with 2.00 MiB left");
        assert_eq!(progress.finish().0.files_left, 2);
        let mut files = Progress::of_files("staging", true);
        files.update(State { files_done: 4, files_left: 1, bytes_left: 0 });
        assert_eq!(files.line(), "staging: 4 files done, 1 known to be left");
    }
}
