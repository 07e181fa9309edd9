//! How far a drain is: a bar on a terminal, a line now and then elsewhere, nothing with `--quiet`.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::say;
use crate::limits::{PROGRESS_AFTER, PROGRESS_DRAW, PROGRESS_LINE};

/// What is shown: counts of this drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Files staged out.
    pub files_done: u64,
    /// Files still to go.
    pub files_left: u64,
    /// Bytes of the files still to go.
    pub bytes_left: u64,
}

/// Shows the progress of one task.
pub struct Progress {
    title: &'static str,
    bar: Option<ProgressBar>,
    quiet: bool,
    started: Instant,
    told: Instant,
    /// The most bytes that were ever left: the length of the bar.
    bytes_all: u64,
    last: State,
}

impl Progress {
    /// A display on stderr; silent until something is to be told.
    pub fn new(title: &'static str, quiet: bool) -> Progress {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let bar = (terminal && !quiet).then(|| {
            let hz = (1000 / PROGRESS_DRAW.as_millis()) as u8;
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(hz));
            let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        let now = Instant::now();
        Progress { title, bar, quiet, started: now, told: now, bytes_all: 0, last: State::default() }
    }

    /// Shows where the task is.
    pub fn update(&mut self, state: State) {
        self.last = state;
        self.bytes_all = self.bytes_all.max(state.bytes_left);
        if self.started.elapsed() < PROGRESS_AFTER {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_length(self.bytes_all);
            bar.set_position(self.bytes_all - state.bytes_left);
            bar.set_message(format!("{}: {} files left", self.title, state.files_left));
        } else if !self.quiet && self.told.elapsed() >= PROGRESS_LINE {
            self.told = Instant::now();
            say!("forebay: {}", self.line());
        }
    }

    /// Removes the bar. Returns what was shown last and how long it took.
    pub fn finish(self) -> (State, Duration) {
        if let Some(bar) = self.bar.as_ref().filter(|bar| bar.position() > 0 || bar.length() > Some(0)) {
            bar.finish_and_clear();
        }
        (self.last, self.started.elapsed())
    }

    fn line(&self) -> String {
        let left = HumanBytes(self.last.bytes_left);
        format!("{}: {} files done, {} files with {left} left", self.title, self.last.files_done, self.last.files_left)
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
        assert_eq!(progress.line(), "draining: 1 files done, 2 files with 2.00 MiB left");
        assert_eq!(progress.finish().0.files_left, 2);
    }
}
