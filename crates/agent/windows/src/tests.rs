//! Tests of rings without an agent: their records are applied to a replica that a test holds.

mod apply;
mod bring;
mod durable;
mod recorder;
#[cfg(feature = "shuttle")]
mod stories;
mod times;
mod turns;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use testkit::{PATIENCE, Random, wait_until};
use window::WindowMedium;

use crate::{WindowService, WindowSettings, Windows};
