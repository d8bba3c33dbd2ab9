//! Simulated time, and the clock each process makes of it.

use snowskin_types::Now;

/// Simulated time in microseconds since the start of the run.
pub type Micros = u64;

/// Microseconds in a millisecond.
pub const MS: Micros = 1_000;
/// Microseconds in a second.
pub const SECOND: Micros = 1_000_000;

/// The monotonic clock of one process life: an origin of its own and a rate that is a little off.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin_ms: u64,
    born: Micros,
    drift_ppm: i64,
}

impl Clock {
    /// A clock that starts at `born` with a given reading and error of rate.
    pub fn new(origin_ms: u64, born: Micros, drift_ppm: i64) -> Self {
        Clock {
            origin_ms,
            born,
            drift_ppm,
        }
    }

    /// What it shows.
    pub fn now(&self, time: Micros) -> Now {
        let elapsed = time.saturating_sub(self.born) as i64;
        let shown = elapsed + elapsed / 1_000_000 * self.drift_ppm;
        Now(self.origin_ms + (shown.max(0) as u64) / MS)
    }

    /// The first simulated moment at which it shows `now` or more.
    pub fn reaches(&self, now: Now) -> Micros {
        if now == Now::NEVER {
            return Micros::MAX;
        }
        let mut time = self.born + now.0.saturating_sub(self.origin_ms) * MS;
        // A drift of some hundred ppm moves the answer by less than this per pass.
        while self.now(time) < now {
            time += MS;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reaches_what_it_shows() {
        for drift in [-500, 0, 500] {
            let clock = Clock::new(77, 5 * SECOND, drift);
            for ms in [77, 78, 1000, 60_077] {
                let at = clock.reaches(Now(ms));
                assert!(clock.now(at) >= Now(ms), "{drift} {ms}");
            }
        }
    }
}
