//! The life of a replica as tickets: one move-only struct per state.
//!
//! `Reserved -> Filled -> Committed -> Published -> Retracting -> Retracted`. A ticket is the right
//! to the bytes. The only way to give bytes back is [`Retracted::reclaim`], and a `Retracted` comes
//! only from a granted retract, from an order to retire, or from bytes that were never named to the
//! directory; so reclaiming before retracting does not compile. The tickets have no `Drop`: the
//! index owns them, and a ticket that is lost leaks its bytes until the segment goes, which
//! [`crate::invariant`] finds.

mod committed;
mod filled;
mod published;
mod reserved;
mod retracted;
mod retracting;

pub(crate) use committed::Committed;
pub(crate) use filled::Filled;
pub(crate) use published::Published;
pub(crate) use reserved::Reserved;
pub(crate) use retracted::Retracted;
pub(crate) use retracting::{Damage, Retracting};

use crate::arena::{Arena, Extents};

/// The bytes behind a ticket.
#[derive(Debug)]
pub(crate) struct Hold {
    #[cfg(not(known_bugs))]
    extents: Extents,
    #[cfg(known_bugs)]
    extents: Option<Extents>,
}

impl Hold {
    fn new(extents: Extents) -> Self {
        #[cfg(known_bugs)]
        let extents = Some(extents);
        Hold { extents }
    }

    fn give_back(self, arena: &mut Arena) {
        #[cfg(not(known_bugs))]
        arena.free(self.extents);
        #[cfg(known_bugs)]
        if let Some(extents) = self.extents {
            arena.free(extents);
        }
    }

    /// Plants a fault: the bytes go although the ticket lives on.
    #[cfg(known_bugs)]
    fn steal(&mut self, arena: &mut Arena) {
        if let Some(extents) = self.extents.take() {
            arena.free(extents);
        }
    }
}
