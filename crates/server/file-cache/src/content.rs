//! The bytes of a global copy, where its fingerprint does not tell whose they are.

use std::io;
use std::os::fd::OwnedFd;

use catalogue::Record;
use global_store::{Access, Anchor, OpenFile};

use crate::cache::Inner;
use crate::limits::BLOCK_BYTES;
use crate::replica::{How, read_full};
use crate::side::here;
use crate::sums::{self, Sums};

impl Inner {
    /// Whether a global copy of `size` bytes holds what it held when it was recorded, or what the replica holds: then only
    /// its times were moved, and writing over it costs nobody's bytes. False also where nothing tells what it held. Reads it
    /// whole; the gate need not be held.
    pub(crate) fn is_nobodys(&self, record: &Record, anchor: &dyn Anchor, size: u64) -> io::Result<bool> {
        if size == 0 && record.base.size == 0 {
            return Ok(true);
        }
        let global = anchor.open(Access::Read)?;
        let sums = Sums::load(&self.replicas.sums_path(record.version));
        let sums = sums.filter(|sums| sums.size == size && record.base.size == size);
        if sums.is_some() && sums == Some(self.sums_below(&*global, size)?) {
            return Ok(true);
        }
        let replica = self.replicas.open_as(record.version, How::Read).map_err(here)?;
        Ok(rustix::fs::fstat(&replica)?.st_size as u64 == size && self.is_equal(&replica, &*global, size)?)
    }

    fn sums_below(&self, global: &dyn OpenFile, size: u64) -> io::Result<Sums> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut blocks = Vec::with_capacity(sums::blocks_of(size) as usize);
        for index in 0..sums::blocks_of(size) {
            let range = sums::block_range(index, size);
            let read = global.read_at(&mut block[..range.len() as usize], range.start)?;
            blocks.push(sums::sum(&block[..read]));
            self.go_on()?;
        }
        Ok(Sums { size, blocks })
    }

    /// Whether a replica has the bytes of the global copy, which has the same size.
    pub(crate) fn is_equal(&self, replica: &OwnedFd, global: &dyn OpenFile, size: u64) -> io::Result<bool> {
        let (mut ours, mut theirs) = (vec![0; BLOCK_BYTES as usize], vec![0; BLOCK_BYTES as usize]);
        for index in 0..sums::blocks_of(size) {
            let range = sums::block_range(index, size);
            let len = range.len() as usize;
            let read = read_full(replica, &mut ours[..len], range.start).map_err(here)?;
            if read != global.read_at(&mut theirs[..len], range.start)? || ours[..read] != theirs[..read] {
                return Ok(false);
            }
            self.go_on()?;
        }
        Ok(true)
    }

    fn go_on(&self) -> io::Result<()> {
        if self.is_dead() { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(()) }
    }
}
