//! Time of this machine since it started, suspended time included: a lease runs on while a laptop
//! sleeps or a virtual machine is paused by its own kernel.

use rustix::time::{ClockId, clock_gettime};
use snowskin_types::time::{Millis, Now};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tells the time.
pub trait Clock: Debug + Send + Sync {
    /// The current moment; never runs backwards.
    fn now(&self) -> Now;

    /// Time left until `deadline`, zero when it has passed.
    fn left(&self, deadline: Now) -> Duration {
        self.now().until(deadline).duration()
    }
}

/// The machine's clock (`CLOCK_BOOTTIME`). All processes of a host agree on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let time = clock_gettime(ClockId::Boottime);
        // Neither part is negative on this clock.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Now(seconds
            .saturating_mul(1_000)
            .saturating_add(nanos / 1_000_000))
    }
}

/// A clock that moves only when told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Stands at `now`.
    pub fn new(now: Now) -> Self {
        ManualClock(AtomicU64::new(now.0))
    }

    /// Moves ahead.
    pub fn advance(&self, span: Millis) {
        self.0.fetch_add(span.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        Now(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(Now(5));
        assert_eq!((clock.now(), clock.now()), (Now(5), Now(5)));
        clock.advance(Millis(7));
        assert_eq!(clock.now(), Now(12));
        assert_eq!(clock.left(Now(20)), Duration::from_millis(8));
        assert_eq!(clock.left(Now(3)), Duration::ZERO);
    }

    #[test]
    fn the_system_clock_does_not_run_backwards() {
        let moments: Vec<Now> = (0..1000).map(|_| SystemClock.now()).collect();
        assert!(moments.is_sorted());
        assert!(moments[0] > Now(0));
    }
}
