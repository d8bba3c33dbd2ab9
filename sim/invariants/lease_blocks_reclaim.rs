//! While a lease runs, the directory grants no retract of the leased version.
//!
//! Scope: leases given by the running master (a restart loses them; its grace covers the rest as
//! far as it goes). A forced remove, a newer version, a report, and damage end a lease.

use super::{Invariant, Seen, Verdict};
use crate::clock::Micros;
use crate::watch::What;
use crate::world::World;
use snowskin_directory::effect::Effect;
use snowskin_types::call::{Existing, Located, Reply};
use snowskin_types::link::{ItemResult, ToNode};
use snowskin_types::{Now, Version};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct LeaseBlocksReclaim {
    /// Until when, on the master's clock, and when it was given.
    leases: BTreeMap<(usize, Version), (Now, Micros)>,
}

impl Invariant for LeaseBlocksReclaim {
    fn name(&self) -> &'static str {
        "lease_blocks_reclaim"
    }

    fn observe(&mut self, world: &World, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::MasterDied => self.leases.clear(),
            Seen::DirectoryEffect(Effect::Reply { id, reply }) => {
                let Some(asking) = world.watch.asking.get(id) else {
                    return Ok(());
                };
                let now = world.master_now();
                let mut lease = |key: usize, version: Version, span| {
                    let until = now + span;
                    let lease = self.leases.entry((key, version)).or_default();
                    if until > lease.0 {
                        *lease = (until, world.time);
                    }
                };
                match reply {
                    Reply::Located { items, .. } => {
                        for (key, item) in asking.keys.iter().zip(items) {
                            if let Located::Found {
                                version, lease: l, ..
                            } = item
                            {
                                lease(*key, *version, *l);
                            }
                        }
                    }
                    Reply::Exists(items) => {
                        for (key, item) in asking.keys.iter().zip(items) {
                            if let Existing::Yes { lease: l, .. } = item
                                && let Some(version) = world.current(*key)
                            {
                                lease(*key, version, *l);
                            }
                        }
                    }
                    _ => {}
                }
            }
            Seen::DirectoryEffect(Effect::Send {
                message: ToNode::Ack { .. },
                ..
            }) => {
                let now = world.master_now();
                for (_, told, result) in &world.watch.answered {
                    if (told.what, *result) != (What::Retract, ItemResult::Ok) {
                        continue;
                    }
                    let Some((until, since)) = self.leases.get(&(told.key, told.version)) else {
                        continue;
                    };
                    let history = &world.oracle.history[told.key];
                    let ended = world.oracle.leases_voided_at(told.key) >= *since
                        || history.removes_open > 0
                        || history.published > told.version;
                    if *until > now && !ended {
                        return Err(format!(
                            "the retract of k{} version {} was granted with {} ms of its lease left",
                            told.key,
                            told.version,
                            now.until(*until).0
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
