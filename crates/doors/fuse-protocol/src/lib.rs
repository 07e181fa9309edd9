//! Our own thin FUSE protocol layer: the kernel's structures, the session, notifications, passthrough, the mount.

mod filesystem;
mod types;
