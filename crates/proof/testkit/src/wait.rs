//! Waiting for conditions instead of fixed times.

use std::time::{Duration, Instant};

/// How long a test waits for an event that should happen at once. Generous, because a busy machine may pause for
/// seconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(2);

/// Waits until `condition` holds.
///
/// # Panics
///
/// If `condition` does not hold within `bound`; the message contains `what`.
#[track_caller]
pub fn wait_until(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, bound, || condition().then_some(()));
}

/// Waits until `look` finds something and returns it.
///
/// # Panics
///
/// If nothing is found within `bound`; the message contains `what`.
#[track_caller]
pub fn wait_for<T>(what: &str, bound: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < bound, "waited {bound:?} in vain: {what}");
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_comes_true_ends_the_wait() {
        let mut looks = 0;
        let found = wait_for("the third look", PATIENCE, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "in vain: nothing")]
    fn a_condition_that_never_comes_is_named() {
        wait_until("nothing", Duration::from_millis(5), || false);
    }
}
