//! Search of all orders of events of a few threads, in which any handler may block for ever. The rules hold in each
//! state.

use std::collections::HashSet;

use super::*;

const RHYTHM: Rhythm = Rhythm { eager: 1, quiet: 1, follow: 1, turns: 1, proud: 1, patience: 2 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Reading,
    Running,
    Spare,
    Gone,
}

/// Counts of a shift, beside the real role of each thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    shift: Shift,
    roles: Vec<Role>,
    /// Requests that wait for a thread; one fills the space.
    waiting: usize,
    /// Whether the exception of S3 was made and nobody has returned to reading.
    overloaded: bool,
}

/// Situations seen at least once, which shows that the search reaches them.
#[derive(Default)]
struct Seen {
    alone: bool,
    taken_over: bool,
    asleep: bool,
    left: bool,
    overloaded: bool,
    ended_meanwhile: bool,
    held_up: bool,
}

impl World {
    fn new(max: usize, readers: usize) -> World {
        let mut shift = Shift::new(max, readers, RHYTHM);
        shift.watch();
        shift.started();
        let mut roles = vec![Role::Gone; max];
        roles[0] = Role::Reading;
        World { shift, roles, waiting: 0, overloaded: false }
    }

    fn count(&self, role: Role) -> usize {
        self.roles.iter().filter(|is| **is == role).count()
    }

    fn check(&self) {
        let (shift, reading) = (&self.shift, self.shift.reading);
        assert_eq!(reading, self.count(Role::Reading) + shift.woken, "{self:?}");
        assert_eq!(shift.spares + shift.woken, self.count(Role::Spare), "{self:?}");
        assert_eq!(shift.total, self.roles.len() - self.count(Role::Gone), "{self:?}");
        assert!(self.waiting == 0 || shift.spares == 0, "a request waits beside a thread without work: {self:?}");
        let alone = shift.alone.is_some() && shift.spares > 0 && !shift.watch_sleeps;
        assert!(reading > 0 || alone || self.overloaded, "S1: {self:?}");
        if reading == 0 && !self.overloaded {
            for (ready, ticks) in [(false, 2), (true, 1 + RHYTHM.patience)] {
                let mut later = self.clone();
                (0..ticks).for_each(|_| _ = later.shift.tick(true, ready));
                assert!(later.shift.reading > 0, "S2, {ready}: {self:?}");
            }
        }
    }

    fn received(&self, thread: usize, caller: u32, brief: bool, can_start: bool) -> World {
        let full = self.waiting > 0;
        let (mut next, take) = self.taken(thread, caller, brief, can_start, full);
        next.waiting += usize::from(take == Take::Leave);
        next
    }

    /// Receives an interrupt or a forget, which cannot be left.
    fn at_once(&self, thread: usize, can_start: bool) -> World {
        self.taken(thread, 0, true, can_start, false).0
    }

    fn taken(&self, thread: usize, caller: u32, brief: bool, can_start: bool, full: bool) -> (World, Take) {
        let mut next = self.clone();
        next.shift.rouses_watch();
        let mut take = next.shift.take(thread as i32 + 1, caller, brief, full);
        if take == Take::Start {
            match next.roles.iter().position(|role| *role == Role::Gone).filter(|_| can_start) {
                Some(free) => {
                    next.shift.started();
                    next.roles[free] = Role::Reading;
                    take = next.shift.take_for_started();
                }
                None => take = next.shift.take_without_thread(full),
            }
        }
        if take != Take::Leave {
            next.roles[thread] = Role::Running;
        }
        next.overloaded = take == Take::Run && next.shift.reading == 0;
        (next, take)
    }

    fn ended(&self, thread: usize) -> World {
        let mut next = self.clone();
        if next.waiting > 0 {
            next.waiting -= 1;
            return next;
        }
        next.roles[thread] = match next.shift.done(thread as i32 + 1) {
            Done::Read => Role::Reading,
            Done::Spare => Role::Spare,
        };
        next.overloaded &= next.shift.reading == 0;
        next
    }

    fn spare_looks(&self, thread: usize) -> World {
        let mut next = self.clone();
        if next.shift.is_called() {
            next.roles[thread] = Role::Reading;
        } else if next.shift.spare_may_go() {
            next.roles[thread] = Role::Gone;
            next.shift.total -= 1;
        }
        next
    }

    fn all_next(&self, seen: &mut Seen) -> Vec<World> {
        let mut all = Vec::new();
        for thread in 0..self.roles.len() {
            match self.roles[thread] {
                Role::Reading => {
                    for (caller, brief, can_start) in
                        [(1, true, true), (1, true, false), (1, false, true), (2, true, true), (0, false, false)]
                    {
                        all.push(self.received(thread, caller, brief, can_start));
                        seen.left |= all.last().is_some_and(|next| next.waiting > self.waiting);
                    }
                    all.extend([true, false].map(|can_start| self.at_once(thread, can_start)));
                }
                Role::Running => all.push(self.ended(thread)),
                Role::Spare => all.push(self.spare_looks(thread)),
                Role::Gone => {}
            }
        }
        if !self.shift.watch_sleeps {
            let late = self.shift.late().is_some();
            for (waits, ready) in [(true, false), (true, late), (false, false)] {
                let mut next = self.clone();
                seen.held_up |= next.shift.is_held_up(waits);
                let tick = next.shift.tick(waits, ready);
                seen.taken_over |= tick == Tick::WakeSpare;
                assert!(waits || tick != Tick::WakeSpare, "nobody waits: {self:?}");
                seen.ended_meanwhile |= waits && late && !ready && tick == Tick::Go;
                seen.asleep |= tick == Tick::Sleep;
                all.push(next);
            }
        }
        all
    }
}

fn explore(max: usize, readers: usize) -> Seen {
    let (mut seen, mut known) = (Seen::default(), HashSet::new());
    let mut open = vec![World::new(max, readers)];
    while let Some(world) = open.pop() {
        if !known.insert(world.clone()) {
            continue;
        }
        world.check();
        seen.alone |= world.shift.alone.is_some();
        seen.overloaded |= world.overloaded;
        open.extend(world.all_next(&mut seen));
    }
    assert!(known.len() > 100, "{} states", known.len());
    seen
}

#[test]
fn whatever_blocks_somebody_reads_within_two_ticks() {
    for (max, readers) in [(2, 1), (3, 1), (3, 2), (4, 3)] {
        let seen = explore(max, readers);
        assert!(seen.alone && seen.taken_over && seen.asleep && seen.left && seen.overloaded, "{max} {readers}");
        assert!(seen.held_up, "{max} {readers}");
        assert!(max == 2 || seen.ended_meanwhile);
    }
}

#[test]
fn a_lone_program_is_served_by_one_thread_and_a_slow_handler_ends_that() {
    let mut world = World::new(4, 3).received(0, 7, true, true).ended(0);
    assert_eq!(world.roles[..2], [Role::Spare, Role::Reading]);
    for _ in 0..3 {
        world = world.received(1, 7, true, true);
        assert_eq!((world.shift.alone.is_some(), world.roles[1]), (true, Role::Running));
        world = world.ended(1);
        assert_eq!(world.roles[1], Role::Reading);
    }
    world = world.received(1, 7, true, true);
    let ticks = [false, false, true].map(|waits| world.shift.tick(waits, false));
    assert_eq!(ticks, [Tick::Go, Tick::Go, Tick::WakeSpare]);
    world = world.spare_looks(0);
    assert_eq!(world.roles[..2], [Role::Reading, Role::Running]);
    // Eager: the reader does not run alone; another thread takes its place.
    world = world.received(0, 7, true, true);
    assert_eq!(world.roles[..3], [Role::Running, Role::Running, Role::Reading]);
    assert!(world.shift.alone.is_none());
}

#[test]
fn a_handler_that_only_lacks_a_processor_has_more_ticks() {
    let mut world = World::new(4, 3).received(0, 7, true, true).ended(0).received(1, 7, true, true);
    let ticks = [true; 3].map(|waits| world.shift.tick(waits, true));
    assert_eq!(ticks, [Tick::Go, Tick::Go, Tick::WakeSpare]);
    world = World::new(4, 3).received(0, 7, true, true).ended(0).received(1, 7, true, true);
    let ticks = [true, true, false, true, true].map(|waits| world.shift.tick(waits, true));
    assert_eq!(ticks, [Tick::Go; 5]);
}

#[test]
fn without_a_watch_nothing_is_run_alone() {
    let mut world = World::new(3, 1);
    world.shift.unwatch();
    let world = world.received(0, 7, true, true).ended(0).received(1, 7, true, true);
    assert!(world.shift.alone.is_none() && world.shift.reading > 0);
}

#[test]
fn a_reader_that_leaves_a_request_lying_is_not_modest_for_some_time() {
    let mut world = World::new(4, 3).received(0, 7, true, true).ended(0).received(1, 7, true, true).ended(1);
    let modest = |world: &mut World| loop {
        world.shift.tick(false, false);
        if let Follow::Caller { modest, .. } = world.shift.follows() {
            return modest;
        }
    };
    assert!(modest(&mut world));
    // A message taken since the last tick shows that the reader runs.
    world = world.received(1, 7, true, true).ended(1);
    let found = [true, true, false, true, true].map(|waits| world.shift.is_held_up(waits));
    assert_eq!(found, [false, false, false, false, true]);
    assert!(!modest(&mut world));
    assert!(!world.shift.is_held_up(false));
    assert!(modest(&mut world));
}
