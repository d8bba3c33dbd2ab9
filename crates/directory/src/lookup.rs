//! Which keys are readable, and where.

use crate::directory::Directory;
use crate::effect::Counter;
use crate::event::RequestId;
use crate::jobs::{REQUEST_SLICE, Work};
use crate::object::{Ix, LifeIx};
use snowskin_types::call::{Existing, Keys, Located, NodeState, Replica, Reply};
use snowskin_types::key::Tenant;
use snowskin_types::object::{Place, Shape, Tier};
use snowskin_types::time::Millis;

/// The table of places of one reply.
#[derive(Debug, Default)]
pub(crate) struct Places {
    lives: Vec<LifeIx>,
    pub(crate) list: Vec<Place>,
}

/// Memory that is used again by every request.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    hashes: Vec<u64>,
    found: Vec<Option<Ix>>,
    /// For each life: the stamp of the request that last named it, and its index in the reply.
    named: Vec<(u32, u16)>,
    stamp: u32,
}

impl Directory {
    /// Whether a reader gets the current version somewhere.
    pub(crate) fn readable(&self, ix: Ix) -> bool {
        let mut claims = self.table.entry(ix).claims();
        claims.any(|c| !c.hidden() && self.visible(c.life))
    }

    pub(crate) fn visible(&self, life: LifeIx) -> bool {
        self.nodes.of_life(life).is_some_and(|(_, n)| n.readable())
    }

    /// Looks keys up in passes (hashes, entries, keys), so that the cache misses of each overlap.
    pub(crate) fn probe(
        &mut self,
        tenant: &Tenant,
        keys: &Keys,
        from: usize,
    ) -> (Vec<Option<Ix>>, Vec<u64>) {
        let mut hashes = std::mem::take(&mut self.scratch.hashes);
        let mut found = std::mem::take(&mut self.scratch.found);
        hashes.clear();
        found.clear();
        let to = keys.len().min(from + REQUEST_SLICE);
        match self.table.tenant_ix(tenant) {
            Some(tenant) => {
                let slice = || (from..to).filter_map(|i| keys.get(i));
                hashes.extend(slice().map(|key| self.table.hash(tenant, key)));
                found.extend(hashes.iter().map(|hash| self.table.candidate(*hash)));
                for ((ix, key), hash) in found.iter_mut().zip(slice()).zip(&hashes) {
                    *ix = ix.and_then(|ix| self.table.confirm(ix, *hash, tenant, key));
                }
            }
            None => found.resize(to.saturating_sub(from), None),
        }
        (found, hashes)
    }

    pub(crate) fn give_back(&mut self, found: Vec<Option<Ix>>, hashes: Vec<u64>) {
        self.scratch.found = found;
        self.scratch.hashes = hashes;
    }

    /// Begins (or goes on with) naming places for one reply.
    pub(crate) fn begin_places(&mut self, places: &Places) {
        let scratch = &mut self.scratch;
        scratch.stamp = scratch.stamp.wrapping_add(1);
        if scratch.stamp == 0 {
            scratch.named.clear();
            scratch.stamp = 1;
        }
        scratch.named.resize(self.nodes.lives().len(), (0, 0));
        for (at, life) in places.lives.iter().enumerate() {
            if let Some(slot) = scratch.named.get_mut(usize::from(*life)) {
                *slot = (scratch.stamp, at as u16);
            }
        }
    }

    /// The index of a life's place in the reply.
    pub(crate) fn place(&mut self, places: &mut Places, life: LifeIx) -> Option<u16> {
        let stamp = self.scratch.stamp;
        let slot = self.scratch.named.get_mut(usize::from(life))?;
        if slot.0 == stamp {
            return Some(slot.1);
        }
        let (_, node) = self.nodes.of_life(life)?;
        let index = u16::try_from(places.list.len()).ok()?;
        places.list.push(Place {
            node: node.id,
            epoch: node.epoch,
            address: node.address.clone(),
        });
        places.lives.push(life);
        *slot = (stamp, index);
        Some(index)
    }

    pub(crate) fn step_exists(&mut self, id: RequestId, work: Work) -> Option<Work> {
        let Work::Exists {
            tenant,
            keys,
            span,
            mut done,
        } = work
        else {
            return None;
        };
        let (found, hashes) = self.probe(&tenant, &keys, done.len());
        let mut capped = 0;
        for ix in &found {
            done.push(match ix {
                Some(ix) if self.readable(*ix) => {
                    let lease = self.grant_for_exists(*ix, span);
                    capped += u64::from(lease == Millis(0) && span != Millis(0));
                    Existing::Yes {
                        lease,
                        size: self.table.entry(*ix).size,
                    }
                }
                _ => Existing::No,
            });
        }
        self.count(Counter::ExistsItems, found.len() as u64);
        self.count(Counter::ExistsCap, capped);
        self.give_back(found, hashes);
        if done.len() < keys.len() {
            return Some(Work::Exists {
                tenant,
                keys,
                span,
                done,
            });
        }
        self.reply(id, Reply::Exists(done));
        None
    }

    pub(crate) fn step_locate(&mut self, id: RequestId, work: Work) -> Option<Work> {
        let Work::Locate {
            tenant,
            keys,
            span,
            mut places,
            mut done,
        } = work
        else {
            return None;
        };
        let (found, hashes) = self.probe(&tenant, &keys, done.len());
        self.begin_places(&places);
        let mut hits = 0;
        for ix in &found {
            let located = match ix {
                Some(ix) => self.locate_one(*ix, span, &mut places),
                None => Located::Missing,
            };
            hits += u64::from(located != Located::Missing);
            done.push(located);
        }
        self.count(Counter::LocateItems, found.len() as u64);
        self.count(Counter::LocateHits, hits);
        self.give_back(found, hashes);
        if done.len() < keys.len() {
            return Some(Work::Locate {
                tenant,
                keys,
                span,
                places,
                done,
            });
        }
        let places = places.list;
        self.reply(
            id,
            Reply::Located {
                places,
                items: done,
            },
        );
        None
    }

    fn locate_one(&mut self, ix: Ix, span: Millis, places: &mut Places) -> Located {
        let entry = self.table.entry(ix);
        let (version, shape) = (
            entry.version,
            Shape {
                size: entry.size,
                checksum: entry.checksum,
            },
        );
        let mut ranked: Vec<(u8, u64, LifeIx, Tier)> = Vec::with_capacity(1);
        for claim in entry.claims().filter(|c| !c.hidden()) {
            let Some((_, node)) = self.nodes.of_life(claim.life) else {
                continue;
            };
            let serving = node.state == NodeState::Alive && !node.withheld;
            let rank = match (node.state, claim.tier()) {
                (NodeState::Gone, _) => continue,
                (_, Tier::Dram) if serving => 0,
                (_, Tier::Ssd) if serving => 1,
                _ => 2,
            };
            ranked.push((rank, 0, claim.life, claim.tier()));
        }
        if ranked.is_empty() {
            return Located::Missing;
        }
        if ranked.len() > 1 {
            // Equal replicas share the load.
            for r in &mut ranked {
                r.1 = self.draw.next();
            }
            ranked.sort_unstable_by_key(|r| (r.0, r.1));
        }
        self.grant_for_locate(ix, span);
        let replicas = ranked.into_iter().filter_map(|(_, _, life, tier)| {
            let place = self.place(places, life)?;
            Some(Replica { place, tier })
        });
        let replicas = replicas.collect();
        Located::Found {
            version,
            shape,
            lease: span,
            replicas,
        }
    }
}
