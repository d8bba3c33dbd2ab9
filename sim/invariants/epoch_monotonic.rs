//! The directory never takes a node's former process life for its present one: what it knows of a
//! node's epoch, in memory and on disk, only moves forward. Terms only rise.
//!
//! Scope: per node, over the whole run, master restarts included.

use super::{Invariant, Seen, State, Verdict};
use crate::world::World;
use snowskin_types::Epoch;
use snowskin_types::id::Term;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct EpochMonotonic {
    /// In which order the lives of each node began.
    lives: BTreeMap<usize, Vec<Epoch>>,
    known: BTreeMap<usize, usize>,
    term: Term,
}

impl Invariant for EpochMonotonic {
    fn name(&self) -> &'static str {
        "epoch_monotonic"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::NodeStarted { node } => {
                let lives = self.lives.entry(*node).or_default();
                lives.push(world.nodes[*node].epoch);
            }
            // The disk may lag behind the memory of the master that died.
            Seen::MasterDied => self.known.clear(),
            _ => {}
        }
        Ok(())
    }

    fn sweep(&mut self, world: &World, state: &State) -> Verdict {
        let Some(directory) = &state.directory else {
            return Ok(());
        };
        if directory.term < self.term {
            return Err(format!("term {} follows {}", directory.term.0, self.term.0));
        }
        self.term = directory.term;
        for seen in &directory.nodes {
            let Some(node) = world.nodes.iter().position(|n| n.id == seen.node) else {
                continue;
            };
            let lives = self.lives.entry(node).or_default();
            let Some(life) = lives.iter().position(|e| *e == seen.epoch) else {
                return Err(format!("node{node} is known with an epoch it never had"));
            };
            let known = self.known.entry(node).or_default();
            if life < *known {
                return Err(format!(
                    "node{node}: the directory went back from its life {known} to life {life}"
                ));
            }
            *known = life;
        }
        Ok(())
    }
}
