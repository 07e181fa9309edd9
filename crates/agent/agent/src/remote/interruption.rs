//! Whether the program for which this thread works has been interrupted: it may be waiting for a server that is gone.

use std::cell::RefCell;
use std::rc::Rc;

/// Asked about every tick of a wait.
pub type Interruption = Rc<dyn Fn() -> bool>;

thread_local! {
    static CURRENT: RefCell<Option<Interruption>> = const { RefCell::new(None) };
}

/// From now on this thread works for another program, or for none.
pub fn set_interruption(ask: Option<Interruption>) {
    CURRENT.set(ask);
}

/// Whether the program for which this thread works has been interrupted.
pub fn is_interrupted() -> bool {
    CURRENT.with_borrow(|ask| ask.as_ref().is_some_and(|ask| ask()))
}
