use super::{Filled, Hold, Retracted};
use crate::arena::Extents;

/// Space for a version whose bytes are still being written.
#[must_use]
#[derive(Debug)]
pub(crate) struct Reserved(Hold);

impl Reserved {
    /// Takes the right to fresh space.
    pub(crate) fn new(extents: Extents) -> Self {
        Reserved(Hold::new(extents))
    }

    /// All bytes are there and have their checksums.
    pub(crate) fn filled(self) -> Filled {
        Filled(self.0)
    }

    /// The write came to nothing and its I/O has ended; the version was never named.
    pub(crate) fn abandon(self) -> Retracted {
        Retracted(self.0)
    }
}
