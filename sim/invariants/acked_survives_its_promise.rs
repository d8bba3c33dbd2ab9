//! A put that was acked stays readable until something that may end it does: eviction (a granted
//! retract), a remove, a newer version, the death of an owner, a reader's report.
//!
//! Scope: answers 'missing' and 'no' of a master that has all its nodes' inventories and considers
//! none of them gone. A restart of the master ends nothing (except where a node was away while
//! something changed: that node's older content is given up by design).

use super::{Invariant, Seen, Verdict};
use crate::world::World;
use snowskin_directory::effect::Effect;
use snowskin_types::call::{Existing, Located, NodeState, Reply};

/// See the module.
#[derive(Debug, Default)]
pub struct AckedSurvivesItsPromise;

impl Invariant for AckedSurvivesItsPromise {
    fn name(&self) -> &'static str {
        "acked_survives_its_promise"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        let Seen::DirectoryEffect(Effect::Reply { id, reply }) = seen else {
            return Ok(());
        };
        let Some(asking) = world.watch.asking.get(id) else {
            return Ok(());
        };
        let missing: Vec<usize> = match reply {
            Reply::Located { items, .. } => (asking.keys.iter().zip(items))
                .filter(|(_, item)| **item == Located::Missing)
                .map(|(key, _)| *key)
                .collect(),
            Reply::Exists(items) => (asking.keys.iter().zip(items))
                .filter(|(_, item)| **item == Existing::No)
                .map(|(key, _)| *key)
                .collect(),
            _ => return Ok(()),
        };
        for key in missing {
            let version = world.oracle.history[key].acked;
            if version.is_none() || world.oracle.excuse(key, version).is_some() {
                continue;
            }
            let Some(core) = &world.master.core else {
                continue;
            };
            let view = core.inspect();
            let settled = view
                .nodes
                .iter()
                .all(|n| n.inventoried && n.state != NodeState::Gone);
            if settled && view.nodes.len() == world.nodes.len() {
                return Err(format!(
                    "k{key} is said to be missing, but version {version} was acked and nothing ended it"
                ));
            }
        }
        Ok(())
    }
}
