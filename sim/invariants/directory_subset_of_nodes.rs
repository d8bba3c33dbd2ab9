//! The directory names nobody for what was never written there: each claim of a running process is
//! of a version whose bytes that very process has taken in.
//!
//! Scope: claims of running processes. Claims of dead ones are judged when their node is back: none
//! of an older epoch may be left then, beyond the slices in which they are dropped (they are not
//! counted as claims any more).

use super::{Invariant, Seen, State, Verdict, who};
use crate::world::World;
use snowskin_store::effect::Effect;
use snowskin_store::event::{Event, WriteId};
use snowskin_types::{Epoch, Version};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct DirectorySubsetOfNodes {
    writes: BTreeMap<(usize, WriteId), Version>,
    taken: BTreeSet<(Epoch, Version)>,
}

impl Invariant for DirectorySubsetOfNodes {
    fn name(&self) -> &'static str {
        "directory_subset_of_nodes"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::NodeDied { node } => {
                let epoch = world.nodes[*node].epoch;
                self.taken.retain(|(of, _)| *of != epoch);
                self.writes.retain(|(of, _), _| of != node);
            }
            Seen::StoreEvent {
                node,
                event: Event::WriteStart { write, request },
            } => {
                self.writes.insert((*node, *write), request.version);
            }
            Seen::StoreEffect {
                node,
                effect: Effect::Grant { write, .. },
            } => {
                if let Some(version) = self.writes.remove(&(*node, *write)) {
                    self.taken.insert((world.nodes[*node].epoch, version));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sweep(&mut self, world: &World, state: &State) -> Verdict {
        let Some(directory) = &state.directory else {
            return Ok(());
        };
        for entry in &directory.entries {
            for claim in &entry.claims {
                let running = world
                    .nodes
                    .iter()
                    .any(|n| n.core.is_some() && n.id == claim.node && n.epoch == claim.epoch);
                if running && !self.taken.contains(&(claim.epoch, entry.current)) {
                    return Err(format!(
                        "the directory names {} for {} version {}, which was never written there",
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
