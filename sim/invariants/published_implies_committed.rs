//! What the directory names, its owner can serve.
//!
//! Scope: at every moment, for claims of a node's running process (its current epoch), hidden or
//! not. After a crash the directory lags until it hears of the new epoch; reads of the old one are
//! refused by number. A replica that its owner found damaged is out of scope until its retract.

use super::{Invariant, Seen, State, Verdict, who};
use crate::world::World;
use snowskin_store::event::Event;
use snowskin_types::Epoch;
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default)]
pub struct PublishedImpliesCommitted {
    /// Owners that have found damage: all they hold is out of scope, which is rare enough.
    damaged: BTreeSet<Epoch>,
}

impl Invariant for PublishedImpliesCommitted {
    fn name(&self) -> &'static str {
        "published_implies_committed"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        if let Seen::StoreEvent {
            node,
            event: Event::Scrubbed { sound: false, .. },
        } = seen
        {
            self.damaged.insert(world.nodes[*node].epoch);
        }
        Ok(())
    }

    fn sweep(&mut self, world: &World, state: &State) -> Verdict {
        let Some(directory) = &state.directory else {
            return Ok(());
        };
        for entry in &directory.entries {
            for claim in &entry.claims {
                let serves =
                    state.serves(world, claim.node, claim.epoch, &entry.name, entry.current);
                if serves == Some(false) && !self.damaged.contains(&claim.epoch) {
                    return Err(format!(
                        "the directory names {} for {} version {}, which its owner cannot serve",
                        who(world, claim.node),
                        entry.name,
                        entry.current
                    ));
                }
            }
        }
        Ok(())
    }
}
