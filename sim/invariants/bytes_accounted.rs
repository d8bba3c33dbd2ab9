//! Every byte of a segment is free or belongs to exactly one replica that the index knows.
//!
//! Scope: every running store, always.

use super::{Invariant, State, Verdict};
use crate::setup::UNIT;
use crate::world::World;

/// See the module.
#[derive(Debug, Default)]
pub struct BytesAccounted;

impl Invariant for BytesAccounted {
    fn name(&self) -> &'static str {
        "bytes_accounted"
    }

    fn sweep(&mut self, _world: &World, state: &State) -> Verdict {
        for (node, view) in state.stores.iter().enumerate() {
            let Some(view) = view else { continue };
            let mut pieces = Vec::new();
            for replica in &view.replicas {
                for extent in replica.extents.iter() {
                    let whole = extent.len.div_ceil(UNIT) * UNIT;
                    pieces.push((extent.offset, whole, replica.version));
                }
            }
            pieces.sort_unstable();
            let held: u64 = pieces.iter().map(|(_, len, _)| len).sum::<u64>() + view.cut;
            if held != view.used || view.used > view.capacity {
                return Err(format!(
                    "node{node}: {held} bytes belong to replicas, {} of {} are taken",
                    view.used, view.capacity
                ));
            }
            for pair in pieces.windows(2) {
                if let [(offset, len, one), (next, _, other)] = pair
                    && offset + len > *next
                {
                    return Err(format!(
                        "node{node}: versions {one} and {other} share the bytes from {next} on"
                    ));
                }
            }
        }
        Ok(())
    }
}
