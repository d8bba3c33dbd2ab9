//! A process grants space to a version once: what it freed, aborted or retired is never written
//! again in that life.
//!
//! Scope: per process life.

use super::{Invariant, Seen, Verdict};
use crate::world::World;
use snowskin_store::effect::Effect;
use snowskin_store::event::{Event, WriteId};
use snowskin_types::{Epoch, Version};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct WriteIsOneShot {
    writes: BTreeMap<(usize, WriteId), Version>,
    granted: BTreeSet<(Epoch, Version)>,
}

impl Invariant for WriteIsOneShot {
    fn name(&self) -> &'static str {
        "write_is_one_shot"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::StoreEvent {
                node,
                event: Event::WriteStart { write, request },
            } => {
                self.writes.insert((*node, *write), request.version);
            }
            Seen::StoreEffect {
                node,
                effect: Effect::Answer { write, .. },
            } => {
                self.writes.remove(&(*node, *write));
            }
            Seen::StoreEffect {
                node,
                effect: Effect::Grant { write, .. },
            } => {
                let Some(version) = self.writes.get(&(*node, *write)) else {
                    return Err(format!("node{node} grants a write that nobody asked"));
                };
                if !self.granted.insert((world.nodes[*node].epoch, *version)) {
                    return Err(format!("node{node} takes version {version} a second time"));
                }
            }
            Seen::NodeDied { node } => {
                let epoch = world.nodes[*node].epoch;
                self.granted.retain(|(of, _)| *of != epoch);
                self.writes.retain(|(of, _), _| of != node);
            }
            _ => {}
        }
        Ok(())
    }
}
