//! The mark that a dirty file carries on a shared global store, so that two agents do not both change it.

use std::io;
use std::time::Duration;

use concurrency::Instant;
use config::Policy;
use global_store::Anchor;
use types::{Epoch, Shown};

use crate::errors::os;
use crate::limits::{NAME_ASKED, POLL};

fn text(agent: &str, epoch: Epoch) -> Vec<u8> {
    format!("{agent} {}", epoch.0).into_bytes()
}

fn owner(mark: &[u8]) -> &[u8] {
    mark.rsplit(|&byte| byte == b' ').next().map_or(mark, |last| &mark[..mark.len() - last.len()]).trim_ascii_end()
}

/// Returns the owner of another agent's mark on the file, if there is one.
pub(crate) fn foreign(anchor: &dyn Anchor, agent: &str) -> io::Result<Option<String>> {
    Ok(anchor
        .mark()?
        .filter(|mark| owner(mark) != agent.as_bytes())
        .map(|mark| String::from_utf8_lossy(&mark).into_owned()))
}

/// Waits until no other agent's mark is on the file. Returns whether our own is on it. Errors: `ETIMEDOUT` after the
/// policy's `remote_wait`, `EINTR` if `interrupted` says so, `ESTALE` if the file lost its name.
pub(crate) fn wait(
    anchor: &dyn Anchor,
    agent: &str,
    policy: &Policy,
    interrupted: &dyn Fn() -> bool,
) -> io::Result<bool> {
    let start = Instant::now();
    let mut looked = None;
    loop {
        let Some(mark) = anchor.mark()? else { return Ok(false) };
        if owner(&mark) == agent.as_bytes() {
            return Ok(true);
        }
        if looked.is_none_or(|then: Instant| then.elapsed() >= NAME_ASKED) {
            looked = Some(Instant::now());
            if anchor.attributes()?.links == 0 {
                // Nobody removes the mark any more. The kernel looks the name up again, which another file may have.
                return os(libc::ESTALE);
            }
        }
        let whose = String::from_utf8_lossy(&mark);
        if start.elapsed() >= policy.remote_wait {
            tracing::warn!(file = %anchor.path_hint().shown(), %whose, "the file is dirty at another agent");
            return os(libc::ETIMEDOUT);
        }
        if interrupted() {
            return os(libc::EINTR);
        }
        concurrency::sleep(POLL.max(Duration::from_millis(1)));
    }
}

pub(crate) fn set(anchor: &dyn Anchor, agent: &str, epoch: Epoch) -> io::Result<()> {
    anchor.set_mark(Some(&text(agent, epoch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_mark_is_all_but_the_epoch() {
        assert_eq!(owner(&text("node a-1", Epoch(7))), b"node a-1");
    }
}
