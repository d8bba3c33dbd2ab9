//! Growing pauses between attempts, with jitter so that many callers do not come back together.

use rand::Rng;
use snowskin_types::limits::{RECONNECT_BACKOFF_MAX, RECONNECT_BACKOFF_MIN};
use snowskin_types::time::Millis;

/// Pauses that double from a least to a most.
#[derive(Debug, Clone)]
pub struct Backoff {
    min: Millis,
    max: Millis,
    next: Millis,
}

impl Backoff {
    /// Starts at `min`; later pauses double up to `max`.
    pub fn new(min: Millis, max: Millis) -> Self {
        let min = Millis(min.0.max(1));
        Backoff {
            min,
            max: max.max(min),
            next: min,
        }
    }

    /// The pauses of a reconnect.
    pub fn reconnect() -> Self {
        Self::new(RECONNECT_BACKOFF_MIN, RECONNECT_BACKOFF_MAX)
    }

    /// The next pause: between half and all of the current step.
    pub fn pause(&mut self, random: &mut impl Rng) -> Millis {
        let step = self.next;
        self.next = Millis(step.0.saturating_mul(2).min(self.max.0));
        Millis(random.random_range(step.0.div_ceil(2)..=step.0))
    }

    /// Starts anew, after a success.
    pub fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_up_to_the_most() {
        let mut random = crate::rng::seeded(1);
        let mut backoff = Backoff::new(Millis(50), Millis(1000));
        for step in [50, 100, 200, 400, 800, 1000, 1000] {
            let pause = backoff.pause(&mut random).0;
            assert!((step / 2..=step).contains(&pause), "{pause} of {step}");
        }
        backoff.reset();
        assert!(backoff.pause(&mut random).0 <= 50);
    }
}
