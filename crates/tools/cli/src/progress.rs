//! How far a drain is: a bar on a terminal, a line now and then elsewhere, nothing with `--quiet`.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::say;
use crate::limits::{PROGRESS_DRAW, PROGRESS_LINE};

/// What is shown: counts of this drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Files staged out.
    pub files_done: u64,
    /// Files to stage out in all.
    pub files_all: u64,
    /// Bytes staged out.
    pub bytes_done: u64,
    /// Bytes to stage out in all.
    pub bytes_all: u64,
}

/// Shows the progress of one task.
pub struct Progress {
    title: &'static str,
    bar: Option<ProgressBar>,
    quiet: bool,
    started: Instant,
    told: Instant,
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
        Progress { title, bar, quiet, started: now, told: now, last: State::default() }
    }

    /// Shows where the task is.
    pub fn update(&mut self, state: State) {
        self.last = state;
        if let Some(bar) = &self.bar {
            bar.set_length(state.bytes_all);
            bar.set_position(state.bytes_done);
            bar.set_message(format!("{} {}/{} files", self.title, state.files_done, state.files_all));
        } else if !self.quiet && self.told.elapsed() >= PROGRESS_LINE {
            self.told = Instant::now();
            say!("forebay: {}", self.line());
        }
    }

    /// Removes the bar. Returns what was shown last and how long it took.
    pub fn finish(self) -> (State, Duration) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        (self.last, self.started.elapsed())
    }

    fn line(&self) -> String {
        let (done, all) = (HumanBytes(self.last.bytes_done), HumanBytes(self.last.bytes_all));
        format!("{} {}/{} files, {done} of {all}", self.title, self.last.files_done, self.last.files_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let mut progress = Progress::new("draining", true);
        progress.update(State { files_done: 1, files_all: 3, bytes_done: 1 << 20, bytes_all: 3 << 20 });
        assert_eq!(progress.line(), "draining 1/3 files, 1.00 MiB of 3.00 MiB");
        assert_eq!(progress.finish().0.files_all, 3);
    }
}
