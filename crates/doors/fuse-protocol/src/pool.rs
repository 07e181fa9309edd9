//! The threads of a session.
use std::io;
use std::sync::Arc;
use crate::init::Agreed;
use crate::reply::Channel;
use crate::{Filesystem, Threads};
pub(crate) struct Pool;
impl Pool {
    pub fn new(_fs: Arc<dyn Filesystem>, _channel: Arc<Channel>, _agreed: Agreed, _threads: Threads) -> Pool { Pool }
    pub fn run(&self) -> io::Error { io::Error::from_raw_os_error(libc::ENODEV) }
}
