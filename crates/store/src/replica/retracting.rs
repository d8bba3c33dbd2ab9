use super::{Committed, Hold, Published, Retracted};
use snowskin_types::id::Session;

/// Whether a replica goes because its bytes are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Its bytes are sound; it goes for space.
    Sound,
    /// Its bytes are damaged: it is not served, and no lease holds it.
    Bad,
}

/// The directory was asked to stop naming it. Until it grants that, the bytes stay.
#[must_use]
#[derive(Debug)]
pub(crate) struct Retracting {
    pub(super) hold: Hold,
    pub(super) damage: Damage,
}

impl Retracting {
    /// Why it goes.
    pub(crate) fn damage(&self) -> Damage {
        self.damage
    }

    /// It was found damaged while it was on its way out.
    pub(crate) fn damaged(self) -> Retracting {
        Retracting {
            hold: self.hold,
            damage: Damage::Bad,
        }
    }

    /// The directory of this session has stopped naming it.
    pub(crate) fn granted(self) -> Retracted {
        Retracted(self.hold)
    }

    /// The directory of this session keeps naming it.
    pub(crate) fn refused(self, session: Session) -> Published {
        Published {
            hold: self.hold,
            session,
        }
    }

    /// The session ended before the answer: nothing is known, so it is told anew.
    pub(crate) fn session_lost(self) -> Committed {
        Committed(self.hold)
    }

    /// The directory ordered it to go, so it no longer names it.
    pub(crate) fn retired(self) -> Retracted {
        Retracted(self.hold)
    }

    /// Plants a fault: its bytes go before the grant.
    #[cfg(known_bugs)]
    pub(crate) fn steal(&mut self, arena: &mut crate::arena::Arena) {
        self.hold.steal(arena);
    }
}
