//! What an acked remove ended is never named again.
//!
//! Scope: all versions given out before the remove first reached the master, from its ack on, over
//! master restarts and returns of nodes. Reads are judged by the oracle under the same name; here,
//! the directory's claims.

use super::{Invariant, State, Verdict, who};
use crate::world::World;

/// See the module.
#[derive(Debug, Default)]
pub struct RemovedStaysRemoved;

impl Invariant for RemovedStaysRemoved {
    fn name(&self) -> &'static str {
        "removed_stays_removed"
    }

    fn sweep(&mut self, world: &World, state: &State) -> Verdict {
        let Some(directory) = &state.directory else {
            return Ok(());
        };
        for entry in &directory.entries {
            let key = world.oracle.index(&entry.name.key);
            let removed = world.oracle.history[key].removed;
            if entry.current.is_none() || entry.current > removed {
                continue;
            }
            if let Some(claim) = entry.claims.iter().find(|c| !c.hidden) {
                return Err(format!(
                    "the directory names {} for {} version {}, but all up to {removed} were removed",
                    who(world, claim.node),
                    entry.name,
                    entry.current
                ));
            }
        }
        Ok(())
    }
}
