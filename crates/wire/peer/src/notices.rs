//! Notices to a server that no caller waits for, repeated until the server has them.

use std::collections::VecDeque;

use concurrency::Instant;

/// Queue of notices. Those in order are sent one after the other; those with a time are sent first, once they are due.
#[derive(Debug)]
pub struct Notices<T> {
    timed: VecDeque<(T, Instant)>,
    in_order: VecDeque<T>,
}

/// Next step of the sender of notices.
#[derive(Debug, PartialEq, Eq)]
pub enum NextNotice<T> {
    /// Send this one. If the server does not get it, the sender puts it back.
    Send(T),
    /// Nothing is due before this time.
    NotBefore(Instant),
    /// There are none.
    Nothing,
}

impl<T> Default for Notices<T> {
    fn default() -> Notices<T> {
        Notices { timed: VecDeque::new(), in_order: VecDeque::new() }
    }
}

impl<T> Notices<T> {
    /// Adds a notice after all others.
    pub fn add(&mut self, notice: T) {
        self.in_order.push_back(notice);
    }

    /// Adds a notice that is not sent before `due`. It waits for earlier ones with a time even if it is due before.
    pub fn add_at(&mut self, notice: T, due: Instant) {
        self.timed.push_back((notice, due));
    }

    /// Puts back a notice that the server did not get, before all others in order.
    pub fn put_back(&mut self, notice: T) {
        self.in_order.push_front(notice);
    }

    /// Takes the next notice.
    pub fn next(&mut self, now: Instant) -> NextNotice<T> {
        match (self.timed.front().map(|(_, due)| *due), self.in_order.is_empty()) {
            (Some(due), _) if due <= now => self.timed.pop_front().map(|(notice, _)| notice),
            (Some(due), true) => return NextNotice::NotBefore(due),
            _ => self.in_order.pop_front(),
        }
        .map_or(NextNotice::Nothing, NextNotice::Send)
    }

    /// Drops the notices that mean nothing to a server that has forgotten this client, and returns those in order.
    pub fn forgotten(&mut self, still_means: impl Fn(&T) -> bool) -> Vec<T> {
        self.timed.retain(|(notice, _)| still_means(notice));
        let (kept, dropped): (VecDeque<T>, VecDeque<T>) = self.in_order.drain(..).partition(still_means);
        self.in_order = kept;
        dropped.into()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_due_comes_first_and_the_rest_in_order() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let mut notices = Notices::default();
        assert_eq!(notices.next(now), NextNotice::Nothing);
        [1, 2].into_iter().for_each(|notice| notices.add(notice));
        notices.add_at(8, later);
        assert_eq!(notices.next(now), NextNotice::Send(1));
        notices.put_back(1);
        assert_eq!(notices.next(later), NextNotice::Send(8));
        notices.add_at(9, later);
        assert_eq!((notices.next(now), notices.next(now)), (NextNotice::Send(1), NextNotice::Send(2)));
        assert_eq!(notices.next(now), NextNotice::NotBefore(later));
    }

    #[test]
    fn what_means_nothing_to_the_next_server_is_dropped() {
        let now = Instant::now();
        let mut notices = Notices::default();
        (1..=4).for_each(|notice| notices.add(notice));
        (5..=6).for_each(|notice| notices.add_at(notice, now));
        assert_eq!(notices.forgotten(|notice| notice % 2 == 0), [1, 3]);
        let left = std::iter::from_fn(|| match notices.next(now) {
            NextNotice::Send(notice) => Some(notice),
            _ => None,
        });
        assert_eq!(left.collect::<Vec<_>>(), [6, 2, 4]);
    }
}
