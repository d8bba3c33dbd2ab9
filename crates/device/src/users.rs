//! Who still uses a region, so that unregistering can wait for them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Counts the users of one region.
#[derive(Debug, Default)]
pub(crate) struct Users {
    count: Mutex<usize>,
    idle: Condvar,
}

impl Users {
    /// Waits until nobody uses the region; tells how many still do after `patience`.
    pub(crate) fn wait_idle(&self, patience: Duration) -> Result<(), usize> {
        let mut count = self.count.lock();
        self.idle
            .wait_while_for(&mut count, |count| *count > 0, patience);
        match *count {
            0 => Ok(()),
            users => Err(users),
        }
    }
}

/// One use of a region, until it is dropped.
#[derive(Debug)]
pub(crate) struct Use(Arc<Users>);

impl Use {
    pub(crate) fn new(users: &Arc<Users>) -> Self {
        *users.count.lock() += 1;
        Self(Arc::clone(users))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.idle.notify_all();
        }
    }
}
