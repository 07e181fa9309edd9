//! `forebay limits`: what a storage system can do, what it does, and where performance is lost.
//!
//! The method is that of Aladyshev et al., Software & Systems 37(4), 2024, pp. 472-486. Its stages are limits from
//! specifications, limits of each part alone, an ideal workload, and a watch over real programs. Each stage can only
//! lower the limit of the previous one. A result above that limit means a cache or a wrong test.

pub mod args;
mod bounds;
mod clock;
mod cluster;
mod counters;
mod diagnosis;
mod experiments;
mod factors;
mod failure;
mod interrupt;
mod kept;
mod plan;
mod probe;
mod progress;
mod report;
mod results;
mod run;
mod sweep;
mod table;
mod units;
mod wanted;
mod watch;
mod workload;

pub use run::run;
