//! Versions: every put, replace and remove is an incarnation of its key.

use crate::id::Term;
use serde::{Deserialize, Serialize};
use std::fmt;

const COUNTER_BITS: u32 = 40;

/// Orders the incarnations of a key: (master term, counter), packed with the term in the upper
/// 24 bits, so that plain comparison is the order. Zero means 'none'.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Version(u64);

impl Version {
    /// No version: below every real one.
    pub const NONE: Version = Version(0);
    /// Highest term that fits.
    pub const TERM_MAX: u32 = (1 << (64 - COUNTER_BITS)) - 1;
    /// Highest counter that fits.
    pub const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;

    /// Makes a version; `None` when the term or the counter does not fit.
    pub const fn new(term: Term, counter: u64) -> Option<Self> {
        if term.0 > Self::TERM_MAX || counter > Self::COUNTER_MAX {
            return None;
        }
        Some(Version(((term.0 as u64) << COUNTER_BITS) | counter))
    }

    /// The packed form, as it stands on the wire.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Takes the packed form back.
    pub const fn from_raw(raw: u64) -> Self {
        Version(raw)
    }

    /// The leadership that gave it out.
    pub const fn term(self) -> Term {
        Term((self.0 >> COUNTER_BITS) as u32)
    }

    /// The counter within the term.
    pub const fn counter(self) -> u64 {
        self.0 & Self::COUNTER_MAX
    }

    /// True for [`Version::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.term().0, self.counter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_term_orders_above_every_counter_of_an_earlier_one() {
        let old = Version::new(Term(3), Version::COUNTER_MAX).unwrap();
        let new = Version::new(Term(4), 0).unwrap();
        assert!(new > old);
        assert_eq!(Version::from_raw(new.raw()), new);
        assert_eq!((old.term(), old.counter()), (Term(3), Version::COUNTER_MAX));
        assert!(Version::new(Term(1 << 24), 0).is_none());
    }
}
