//! What this storage can do, what it does, and where it is lost: `forebay limits`.
//!
//! The method is that of Aladyshev et al., Software & Systems 37(4), 2024, pp. 472-486: limits from specifications, limits
//! of each part alone, an ideal workload, and a watch over real ones; each stage can only lower the limit of the one
//! before, and a result above it is a cache or a wrong test.

pub mod args;
mod bounds;
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
