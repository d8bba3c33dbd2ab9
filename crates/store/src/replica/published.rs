use super::{Committed, Damage, Hold, Retracted, Retracting};
use snowskin_types::id::Session;

/// The directory accepted it in `session`, and may name it.
#[must_use]
#[derive(Debug)]
pub(crate) struct Published {
    pub(super) hold: Hold,
    pub(super) session: Session,
}

impl Published {
    /// Which session accepted it.
    pub(crate) fn session(&self) -> Session {
        self.session
    }

    /// It has to be told anew (another session, or a reader's report hid it).
    pub(crate) fn untold(self) -> Committed {
        Committed(self.hold)
    }

    /// Starts asking the directory to stop naming it.
    pub(crate) fn retract(self, damage: Damage) -> Retracting {
        Retracting {
            hold: self.hold,
            damage,
        }
    }

    /// The directory ordered it to go, so it no longer names it.
    pub(crate) fn retired(self) -> Retracted {
        Retracted(self.hold)
    }
}
