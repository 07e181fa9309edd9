//! Progress display: a bar on a terminal, occasional lines elsewhere, nothing with `--quiet`.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    told: Instant,
}

impl Progress {
    /// Creates a display that prints nothing until the first update.
    pub fn new(quiet: bool) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed} left {eta}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        Progress { bar, quiet, told: Instant::now() }
    }

    /// Shows that step `done` of `all` begins.
    pub fn update(&mut self, done: u64, all: u64, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(what.to_string());
            bar.tick();
        } else if !self.quiet && self.told.elapsed() >= LINE_EVERY {
            self.told = Instant::now();
            let _ = writeln!(std::io::stderr(), "forebay limits: {done} of {all}, {what}");
        }
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
