//! Tests on a real mount, served by a process of its own and used through system calls. Each test runs in a private
//! mount namespace.

mod basics;
mod exclusive;
mod exclusive_names;
mod last_access;
mod locks;
mod model;
mod names;
mod open_modes;
mod rights;
mod round_trips;
mod set_id;
mod stand;
mod who;
mod windows;
