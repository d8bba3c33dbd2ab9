//! Bytes are given to a new write only when nobody may still need the old ones: the directory has
//! let the old version go (granted its retract, ordered it to be retired, refused it), or it was
//! never committed; and no transfer still touches them.
//!
//! Scope: within one process life; with the process its memory goes.

use super::{Invariant, Seen, Verdict};
use crate::world::World;
use snowskin_store::effect::Effect;
use snowskin_store::event::{Event, Filled, WriteId};
use snowskin_types::access::Extent;
use snowskin_types::{Epoch, Version};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct RetractedBeforeReclaimed {
    writes: BTreeMap<(usize, WriteId), Version>,
    /// Last version that was given each piece of a segment: (epoch, extent) in order of granting.
    given: BTreeMap<(Epoch, u64), (u64, Version)>,
    committed: BTreeSet<(Epoch, Version)>,
    /// The write whose end is being handled: refused at once, it was not committed.
    ending: Option<(usize, WriteId)>,
}

fn overlap(a: &Extent, offset: u64, len: u64) -> bool {
    a.offset < offset + len && offset < a.offset + a.len
}

impl Invariant for RetractedBeforeReclaimed {
    fn name(&self) -> &'static str {
        "retracted_before_reclaimed"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::NodeDied { node } => {
                let epoch = world.nodes[*node].epoch;
                self.given.retain(|(of, _), _| *of != epoch);
                self.committed.retain(|(of, _)| *of != epoch);
                self.writes.retain(|(of, _), _| of != node);
            }
            Seen::StoreEvent { node, event } => match event {
                _ if self.ending.take().is_some() => return self.observe(world, seen),
                Event::WriteStart { write, request } => {
                    self.writes.insert((*node, *write), request.version);
                }
                Event::WriteEnd { write, filled } => {
                    if let Some(version) = self.writes.get(&(*node, *write))
                        && *filled == Filled::Sound
                    {
                        let epoch = world.nodes[*node].epoch;
                        self.committed.insert((epoch, *version));
                        self.ending = Some((*node, *write));
                    }
                }
                _ => {}
            },
            Seen::StoreEffect {
                node,
                effect: Effect::Grant { write, extents },
            } => return self.granted(world, *node, *write, extents),
            Seen::StoreEffect {
                node,
                effect: Effect::Answer { write, result },
            } => {
                let version = self.writes.remove(&(*node, *write));
                if result.is_err() && self.ending == Some((*node, *write)) {
                    let epoch = world.nodes[*node].epoch;
                    self.committed.remove(&(epoch, version.unwrap_or_default()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl RetractedBeforeReclaimed {
    fn granted(
        &mut self,
        world: &World,
        node: usize,
        write: WriteId,
        extents: &[Extent],
    ) -> Verdict {
        let host = &world.nodes[node];
        let epoch = host.epoch;
        let version = self.writes.get(&(node, write)).copied().unwrap_or_default();
        for extent in extents {
            for (read, busy) in host.extents_being_read() {
                if busy.iter().any(|b| overlap(extent, b.offset, b.len)) {
                    return Err(format!(
                        "node{node} gives {extent:?} to version {version} while read {} runs",
                        read.0
                    ));
                }
            }
            for (other, busy) in host.extents_being_written() {
                if other != write && busy.iter().any(|b| overlap(extent, b.offset, b.len)) {
                    return Err(format!(
                        "node{node} gives {extent:?} to version {version} while write {} runs",
                        other.0
                    ));
                }
            }
            let old: Vec<(u64, Version)> = self
                .given
                .range((epoch, 0)..(epoch, extent.offset + extent.len))
                .filter(|((_, offset), (len, _))| overlap(extent, *offset, *len))
                .map(|((_, offset), (_, version))| (*offset, *version))
                .collect();
            for (offset, old) in old {
                let released = world.watch.released.contains(&(epoch, old))
                    || !self.committed.contains(&(epoch, old));
                if !released {
                    return Err(format!(
                        "node{node} gives the bytes of version {old} to version {version} before \
                         the directory let it go"
                    ));
                }
                self.given.remove(&(epoch, offset));
            }
            self.given
                .insert((epoch, extent.offset), (extent.len, version));
        }
        Ok(())
    }
}
