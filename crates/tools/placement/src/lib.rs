//! Where replicas lie: which directory has which place in a burst buffer, who claims it, and what former agents left there.
//!
//! The `forebay` command asks here before it opens a burst buffer. A refusal is a [`failure::Failure`], which says what the user can do.

pub mod aside;
pub mod choice;
pub mod claim;
pub mod count;
pub mod dead;
pub mod failure;
pub mod left;
pub mod limits;
pub mod lock;
pub mod mounts;
pub mod neighbours;
pub mod place;
pub mod replaced;
pub mod served;
