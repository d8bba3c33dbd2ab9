//! Whatever happens to a replica in its owner's hands (other writes, moves between tiers), its
//! bytes stay those that were put.
//!
//! Scope: every replica that a running store would serve, in the tier where it says they are;
//! sampled. Memory is the only tier so far.

use super::{Invariant, State, Verdict};
use crate::content;
use crate::world::World;

/// One look in so many sweeps.
const SAMPLE: u32 = 10;

/// See the module.
#[derive(Debug, Default)]
pub struct OffloadKeepsBytes {
    sweeps: u32,
    bytes: Vec<u8>,
}

impl Invariant for OffloadKeepsBytes {
    fn name(&self) -> &'static str {
        "offload_keeps_bytes"
    }

    fn sweep(&mut self, world: &World, state: &State) -> Verdict {
        self.sweeps += 1;
        if !self.sweeps.is_multiple_of(SAMPLE) {
            return Ok(());
        }
        for (node, view) in state.stores.iter().enumerate() {
            let Some(view) = view else { continue };
            for replica in view.replicas.iter().filter(|r| r.state.is_served()) {
                let Some((put, record)) = world.oracle.put_of(replica.version) else {
                    return Err(format!(
                        "node{node} holds {} version {}, which nobody wrote",
                        replica.name, replica.version
                    ));
                };
                self.bytes.clear();
                let memory = &world.nodes[node].memory;
                memory.read(&replica.extents, 0, record.size, &mut self.bytes);
                let wrong = content::first_difference(put, 0, &self.bytes);
                if self.bytes.len() as u64 != record.size || wrong.is_some() {
                    let at = wrong.unwrap_or(0);
                    return Err(format!(
                        "node{node} holds {} version {} of put {} with wrong bytes from {at} on: {}",
                        replica.name,
                        replica.version,
                        put.0,
                        content::describe(&self.bytes, at)
                    ));
                }
            }
        }
        Ok(())
    }
}
