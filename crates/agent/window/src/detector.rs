//! What to fetch next, judged by what was read.
//!
//! [`Reference`] is Algorithm 1 of the paper, corrected, or as printed for the ablation. [`Detector`] is what the window
//! uses: several streams in one open file, runs with gaps, strides in both directions, noise between them.
//! The program `ablation` puts them side by side.

mod reference;
mod streams;

pub use reference::{Reference, Variant};
pub use streams::{Advice, Detector, RequestOutcome};
