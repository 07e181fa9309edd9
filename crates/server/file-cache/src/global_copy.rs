//! The global copy of a file: whose bytes it holds, and its times, marks and changes by others.

pub(crate) mod content;
pub(crate) mod doubt;
pub(crate) mod last_access;
pub(crate) mod marks;
pub(crate) mod times;
