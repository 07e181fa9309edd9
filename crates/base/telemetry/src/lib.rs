//! The metrics of an accelerated directory.
//!
//! [`METRICS`] is the one table behind `forebay status`, the keys of its `--json`, and `docs/metrics.md`. A number without a row is not shown,
//! and a row that nothing shows fails a test of the `forebay` command.

mod document;
mod metric;
mod table;

pub use document::metrics_page;
pub use metric::{Metric, Stability, Unit};
pub use table::*;
