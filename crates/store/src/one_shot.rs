//! Versions that may never be written again in this process life.
//!
//! A version freed, aborted or retired is refused for ever; remembering each one for ever would not
//! be bounded. So two things together refuse: a set of versions, and a *floor* below which every
//! version that is not held is refused. The floor is a version that the master had accepted at
//! least one reservation's life ago; versions come from one counter, so everything at or below
//! it was reserved even earlier and the master has given it up by now. Only versions that the master
//! accepted raise the floor: one that a confused client made up cannot.

use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::collections::{BTreeSet, VecDeque};

/// Most versions remembered one by one.
const REMEMBERED_MAX: usize = 1 << 18;
/// Samples of the highest accepted version per memory span.
const SAMPLES: u64 = 16;

/// The memory of ended versions.
#[derive(Debug)]
pub(crate) struct OneShot {
    ended: BTreeSet<Version>,
    order: VecDeque<(Now, Version)>,
    samples: VecDeque<(Now, Version)>,
    accepted: Version,
    floor: Version,
    span: Millis,
    forgotten: u64,
}

impl OneShot {
    /// `span`: no reservation lives longer.
    pub(crate) fn new(span: Millis) -> Self {
        OneShot {
            ended: BTreeSet::new(),
            order: VecDeque::new(),
            samples: VecDeque::new(),
            accepted: Version::NONE,
            floor: Version::NONE,
            span,
            forgotten: 0,
        }
    }

    /// Changes the longest life of a reservation; it only ever grows.
    pub(crate) fn set_span(&mut self, span: Millis) {
        self.span = self.span.max(span);
    }

    /// Another term began: writes of the former one are refused as a whole.
    pub(crate) fn new_term(&mut self) {
        let (span, forgotten) = (self.span, self.forgotten);
        *self = OneShot::new(span);
        self.forgotten = forgotten;
    }

    /// True when a version that is not held must be refused.
    pub(crate) fn refuses(&self, version: Version) -> bool {
        version <= self.floor || self.ended.contains(&version)
    }

    /// True when this very version has ended here.
    pub(crate) fn has_ended(&self, version: Version) -> bool {
        self.ended.contains(&version)
    }

    /// The master accepted this version.
    pub(crate) fn accepted(&mut self, now: Now, version: Version) {
        self.accepted = self.accepted.max(version);
        let step = Millis(self.span.0 / SAMPLES);
        if self.samples.back().is_none_or(|(at, _)| *at + step <= now) {
            self.samples.push_back((now, self.accepted));
        }
    }

    /// The version has ended here.
    pub(crate) fn end(&mut self, now: Now, version: Version) {
        if self.ended.insert(version) {
            self.order.push_back((now, version));
        }
        self.expire(now);
    }

    /// Raises the floor and forgets what lies below it.
    pub(crate) fn expire(&mut self, now: Now) {
        while let Some(&(at, version)) = self.samples.front() {
            if at + self.span >= now {
                break;
            }
            self.floor = self.floor.max(version);
            self.samples.pop_front();
        }
        // At most two leave for one that came, so no call takes long.
        for _ in 0..2 {
            let Some(&(at, version)) = self.order.front() else {
                return;
            };
            let full = self.order.len() > REMEMBERED_MAX;
            if !full && at + self.span >= now {
                return;
            }
            self.order.pop_front();
            if version <= self.floor {
                self.ended.remove(&version);
            } else if !full {
                // Not provably outdated (the master accepted nothing later so far): once more.
                self.order.push_back((now, version));
            } else {
                self.ended.remove(&version);
                self.forgotten += 1;
                if version <= self.accepted {
                    // Refuses late writes of that age, which is safe: they reserve again.
                    self.floor = self.floor.max(version);
                }
            }
        }
    }

    /// Versions that had to be forgotten early.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Versions remembered one by one.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ended.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowskin_types::id::Term;

    fn v(n: u64) -> Version {
        Version::new(Term(1), n).unwrap()
    }

    #[test]
    fn an_ended_version_is_refused_for_ever_in_bounded_memory() {
        let mut ended = OneShot::new(Millis(1_000));
        for n in 1..=200_000u64 {
            let now = Now(n);
            if n % 2 == 0 {
                ended.accepted(now, v(n));
            }
            ended.end(now, v(n));
            assert!(ended.refuses(v(n)) && ended.refuses(v(1)));
            assert!(!ended.refuses(v(n + 1)));
        }
        assert!(ended.len() < 3_000, "{}", ended.len());
        assert!((1..=200_000).all(|n| ended.refuses(v(n))));
        assert_eq!(ended.forgotten(), 0);
    }

    #[test]
    fn a_made_up_version_does_not_raise_the_floor() {
        let mut ended = OneShot::new(Millis(1_000));
        ended.end(Now(0), v(Version::COUNTER_MAX));
        for n in 1..100 {
            ended.accepted(Now(n * 1_000), v(n));
            ended.end(Now(n * 1_000), v(n));
        }
        assert!(!ended.refuses(v(1_000)));
        assert!(ended.refuses(v(Version::COUNTER_MAX)));
    }

    #[test]
    fn a_reservation_within_its_life_is_not_refused() {
        let mut ended = OneShot::new(Millis(1_000));
        ended.accepted(Now(5_000), v(50));
        ended.end(Now(5_900), v(60));
        ended.expire(Now(5_999));
        assert!(!ended.refuses(v(40)));
        ended.expire(Now(6_001));
        assert!(ended.refuses(v(40)) && ended.refuses(v(60)) && !ended.refuses(v(61)));
    }
}
