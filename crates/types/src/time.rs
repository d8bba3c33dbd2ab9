//! Time as the cores see it: an argument, never a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A span of time in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// As a standard duration.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl From<Duration> for Millis {
    fn from(d: Duration) -> Self {
        Millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A moment on the local monotonic clock of one process (milliseconds since an origin of its own).
/// Moments of different processes must never be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Now(pub u64);

impl Now {
    /// Later than every moment.
    pub const NEVER: Now = Now(u64::MAX);

    /// Time since `earlier`, zero when it lies ahead.
    pub const fn since(self, earlier: Now) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// Time until `later`, zero when it has passed.
    pub const fn until(self, later: Now) -> Millis {
        Millis(later.0.saturating_sub(self.0))
    }
}

impl Add<Millis> for Now {
    type Output = Now;
    fn add(self, span: Millis) -> Now {
        Now(self.0.saturating_add(span.0))
    }
}

impl Sub<Millis> for Now {
    type Output = Now;
    fn sub(self, span: Millis) -> Now {
        Now(self.0.saturating_sub(span.0))
    }
}
