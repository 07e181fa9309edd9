//! Whether the global store keeps what a tree would tell it: tried out with one hidden file.

use std::io;

use global_store::hidden;
use namespace::{Caller, Inode, NameKind, Namespace};
use rustix::io::Errno;
use types::{NewTime, Timestamp, reported};

/// A time with all digits, which a store that rounds does not keep.
const TIME: Timestamp = Timestamp { seconds: 1_234_567_890, nanos: 123_456_789 };
/// A mode that no umask gives.
const MODE: u32 = 0o754;

/// Checks in `directory` that a file of the caller comes back with its owner, group, mode and times. Errors: why not, in words.
pub fn try_out(namespace: &dyn Namespace, caller: &Caller, directory: &Inode, agent: &str) -> io::Result<()> {
    let name = hidden::name(agent, u64::MAX);
    let hidden = namespace.hidden_files();
    let (found, file) = hidden.create_hidden(caller, directory, &name, 0o600)?;
    let told = (|| {
        namespace.identify(&found.inode, &|_| true)?;
        drop(file);
        namespace.set_mode(caller, &found.inode, MODE)?;
        namespace.set_times(caller, &found.inode, [Some(NewTime::At(TIME)); 2])?;
        namespace.attributes(&found.inode)
    })();
    hidden.remove_hidden(caller, directory, &name, NameKind::File)?;
    let told = told?;
    let differs =
        |what: &str| Err(reported(Errno::OPNOTSUPP.raw_os_error(), &format!("the store does not keep {what}")));
    match told {
        _ if told.uid != caller.uid => differs("the owners of files"),
        _ if told.gid != caller.gid && found.attributes.gid != told.gid => differs("the groups of files"),
        _ if told.mode & 0o7777 != MODE => differs("the modes of files"),
        _ if told.mtime != TIME || told.atime != TIME => differs("times to the nanosecond"),
        _ => Ok(()),
    }
}
