//! A read returns the bytes of exactly one put, of the version it names; what the owner says that
//! it sends is of that put too.
//!
//! Scope: every read, always, without the help of checksums. What a client got is judged by the
//! oracle ([`crate::oracle`]), which reports under this name; here, what an owner begins to serve.

use super::{Invariant, Seen, Verdict};
use crate::world::World;
use snowskin_store::effect::Effect;
use snowskin_store::event::{Event, ReadId};
use snowskin_types::Version;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct ReadReturnsAPut {
    asked: BTreeMap<(usize, ReadId), Version>,
}

impl Invariant for ReadReturnsAPut {
    fn name(&self) -> &'static str {
        "read_returns_a_put"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::StoreEvent {
                node,
                event: Event::ReadStart { read, request },
            } => {
                self.asked.insert((*node, *read), request.version);
            }
            Seen::StoreEffect {
                node,
                effect: Effect::Refuse { read, .. },
            } => {
                self.asked.remove(&(*node, *read));
            }
            Seen::StoreEffect {
                node,
                effect: Effect::Serve { read, grant },
            } => {
                let Some(version) = self.asked.remove(&(*node, *read)) else {
                    return Err(format!(
                        "node{node} serves read {} that nobody asked",
                        read.0
                    ));
                };
                let Some((_, put)) = world.oracle.put_of(version) else {
                    return Err(format!(
                        "node{node} serves version {version}, never written"
                    ));
                };
                let extents: u64 = grant.extents.iter().map(|e| e.len).sum();
                if grant.shape.size != put.size || extents != put.size {
                    return Err(format!(
                        "node{node} serves {} bytes as version {version}, which has {}",
                        grant.shape.size, put.size
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
