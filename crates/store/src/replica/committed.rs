use super::{Damage, Hold, Published, Retracted, Retracting};
use snowskin_types::id::Session;

/// Served by the index; the directory of the present session does not name it for sure.
#[must_use]
#[derive(Debug)]
pub(crate) struct Committed(pub(super) Hold);

impl Committed {
    /// The directory accepted it in this session.
    pub(crate) fn published(self, session: Session) -> Published {
        Published {
            hold: self.0,
            session,
        }
    }

    /// Starts taking it back: only damage is a reason while it is not known to be published.
    pub(crate) fn retract(self) -> Retracting {
        Retracting {
            hold: self.0,
            damage: Damage::Bad,
        }
    }

    /// The directory ordered it to go, so it no longer names it.
    pub(crate) fn retired(self) -> Retracted {
        Retracted(self.0)
    }

    /// Plants a fault: it goes without the directory's word.
    #[cfg(known_bugs)]
    pub(crate) fn rolled_back(self) -> Retracted {
        Retracted(self.0)
    }
}
