//! Detector: decides which bytes to fetch next, from the reads so far.
//!
//! [`Reference`] is Algorithm 1 of the paper, corrected, or as printed for the ablation. [`Detector`] is used by the
//! window. It knows several streams in one open file, runs with gaps, strides in both directions, and noise between
//! them. The program `ablation` compares them.

mod reference;
mod streams;

pub use reference::{Reference, Variant};
pub use streams::{Advice, Detector, RequestOutcome};
