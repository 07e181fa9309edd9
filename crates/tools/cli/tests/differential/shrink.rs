//! Makes a failed story short.

use std::time::{Duration, Instant};

use crate::op::Op;
use crate::story::print;

/// How long a short story is looked for.
const BUDGET: Duration = Duration::from_secs(60);

/// Leaves out parts, ever smaller ones, while the story still fails. Only with `FOREBAY_TEST_SHRINK`: it takes long.
/// Returns what to print.
pub fn shrink(ops: &[Op], attempt: impl Fn(&[Op]) -> Result<(), String>) -> String {
    if std::env::var_os("FOREBAY_TEST_SHRINK").is_none() {
        return "FOREBAY_TEST_SHRINK=1 looks for a short story".to_owned();
    }
    let start = Instant::now();
    let mut ops = ops.to_vec();
    let mut last = String::new();
    let mut part = ops.len() / 2;
    while part > 0 && start.elapsed() < BUDGET {
        let mut at = 0;
        while at < ops.len() && start.elapsed() < BUDGET {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + part).min(ops.len()));
            match attempt(&fewer) {
                Ok(()) => at += part,
                Err(why) => (ops, last) = (fewer, why),
            }
        }
        part /= 2;
    }
    format!("a short story:\n{}\nends with {last}", print(&ops))
}
