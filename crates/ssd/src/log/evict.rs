//! Eviction: the oldest bucket goes as a whole, once what it holds is retracted, what is kept has been
//! written anew, tombstones that are still needed have moved, and nobody reads it.

use super::append::{Source, Waiting};
use super::bucket::Phase;
use super::read::{Fetch, grant};
use super::table::{Tomb, incarnation};
use super::{Log, Task, count};
use crate::effect::{AppendError, Counter, Effect, Purpose};
use crate::event::{Fault, FetchId, Fetched};
use crate::format::BucketId;
use crate::format::record::Descriptor;
use crate::format::tombstone::Incarnation;
use snowskin_types::time::{Millis, Now};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Records read at a time to be written anew.
const COPIES_MAX: usize = 2;
/// Time between attempts of what the disk or the lack of room stopped.
const AGAIN_AFTER: Millis = Millis(1_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `Victim` was told.
    Asked,
    /// The verdict is being carried out.
    Going,
    /// What shall be kept finds no room: the question is put again.
    AskAgain(Now),
}

/// The bucket that goes.
#[derive(Debug)]
pub(super) struct Eviction {
    bucket: BucketId,
    stage: Stage,
    /// Versions that its deletion takes away.
    retracted: Vec<Incarnation>,
    /// To be written anew.
    copies: VecDeque<Incarnation>,
    /// Of those, under way.
    copying: usize,
    /// Tombstones that must be durable elsewhere first.
    pub(super) waits: u32,
    delete_at: Now,
}

impl Log {
    pub(super) fn evict(&mut self, effects: &mut Vec<Effect>) {
        match self.eviction.as_ref().map(|e| e.stage) {
            None if self.needs_room() => self.choose_victim(effects),
            Some(Stage::Going) => {
                self.start_copies(effects);
                self.delete_victim(effects);
            }
            Some(Stage::AskAgain(at)) if self.now >= at => self.ask(effects),
            _ => {}
        }
    }

    /// One bucket's space is kept free ahead of need.
    fn needs_room(&self) -> bool {
        let sizing = self.config.sizing;
        let ahead = sizing.bucket_bytes.saturating_mul(2);
        self.writes_upkeep()
            && !self.stopping
            && self.now >= self.evict_after
            && self.disk_bytes.saturating_add(ahead) > sizing.limit_bytes
    }

    fn choose_victim(&mut self, effects: &mut Vec<Effect>) {
        let settled = |phase| matches!(phase, Phase::Sealed | Phase::Unsealed);
        let mut old = self.buckets.values_mut();
        let Some(victim) = old.find(|b| settled(b.phase) && b.writes == 0) else {
            return;
        };
        victim.phase = Phase::Evicting;
        self.eviction = Some(Eviction {
            bucket: victim.id,
            stage: Stage::Asked,
            retracted: Vec::new(),
            copies: VecDeque::new(),
            copying: 0,
            waits: 0,
            delete_at: Now::default(),
        });
        self.ask(effects);
    }

    fn ask(&mut self, effects: &mut Vec<Effect>) {
        let Some(eviction) = self.eviction.as_mut() else {
            return;
        };
        eviction.stage = Stage::Asked;
        eviction.copies.clear();
        let bucket = eviction.bucket;
        let objects = self.live_in(bucket).into();
        effects.push(Effect::Victim { bucket, objects });
    }

    fn live_in(&self, bucket: BucketId) -> Vec<Incarnation> {
        let items = self.buckets.get(&bucket).map(|b| b.items.as_slice());
        let mut live = Vec::new();
        for item in items.unwrap_or_default() {
            let id = incarnation(&item.object);
            let at = self.table.get(&id).and_then(|e| e.live.as_ref());
            if at.is_some_and(|l| l.at.bucket == bucket && l.at.offset == item.offset) {
                live.push(id);
            }
        }
        live
    }

    pub(super) fn verdict(
        &mut self,
        bucket: BucketId,
        keep: &[Incarnation],
        effects: &mut Vec<Effect>,
    ) {
        let asked = |e: &Eviction| e.bucket == bucket && e.stage == Stage::Asked;
        let Some(mut eviction) = self.eviction.take_if(|e| asked(e)) else {
            count(effects, Counter::Odd, 1);
            return;
        };
        eviction.stage = Stage::Going;
        let keep: BTreeSet<&Incarnation> = keep.iter().collect();
        let mut kept_bytes = 0;
        for id in self.live_in(bucket) {
            let Some(entry) = self.table.get_mut(&id) else {
                continue;
            };
            if keep.contains(&id) {
                kept_bytes += entry.live.as_ref().map_or(0, |l| l.object.record_bytes());
                eviction.copies.push_back(id);
                continue;
            }
            entry.live = None;
            eviction.retracted.push(id.clone());
            // Another record of it elsewhere would be found after a restart.
            if entry.has_copy_outside(bucket) && entry.tomb == Tomb::None {
                entry.victim_waits = true;
                eviction.waits += 1;
                self.queue_tombstone(id);
            }
        }
        let tombs = self
            .buckets
            .get_mut(&bucket)
            .map(|b| std::mem::take(&mut b.tombs));
        let opaque_elsewhere = self.opaque_outside(bucket);
        for id in tombs.unwrap_or_default() {
            let Some(entry) = self.table.get_mut(&id) else {
                continue;
            };
            let needed = entry.has_copy_outside(bucket) || opaque_elsewhere;
            let away = !matches!(entry.tomb, Tomb::Durable(host) if host != bucket);
            if needed && away {
                eviction.waits += u32::from(!entry.victim_waits);
                entry.victim_waits = true;
                count(effects, Counter::TombstonesMoved, 1);
                // Or it is on its way already.
                if entry.tomb != Tomb::Queued {
                    self.queue_tombstone(id);
                }
            } else if let Some(found) = self.buckets.get_mut(&bucket) {
                found.tombs.push(id);
            }
        }
        if kept_bytes > self.buckets.get(&bucket).map_or(0, |b| b.bytes) / 2 {
            // Little is won, and the next bucket may be the same: not at the disk's full speed.
            count(effects, Counter::ReinsertedHeavily, 1);
            self.evict_after = self.now + AGAIN_AFTER;
        }
        self.eviction = Some(eviction);
    }

    fn opaque_outside(&self, bucket: BucketId) -> bool {
        let here = self.buckets.get(&bucket).is_some_and(|b| b.opaque);
        self.opaque > usize::from(here)
    }

    fn start_copies(&mut self, effects: &mut Vec<Effect>) {
        if !self.writes_upkeep() {
            return;
        }
        while let Some(eviction) = self.eviction.as_mut() {
            if eviction.copying >= COPIES_MAX {
                return;
            }
            let bucket = eviction.bucket;
            let Some(id) = eviction.copies.pop_front() else {
                return;
            };
            let live = self.table.get(&id).and_then(|e| e.live.as_ref());
            let Some(live) = live.filter(|l| l.at.bucket == bucket && !l.bad) else {
                continue;
            };
            let grant = grant(live.at, &live.object, 0, live.object.shape.size);
            let at = live.at;
            eviction.copying += 1;
            self.fetch(at, grant, Purpose::Copy, effects);
        }
    }

    pub(super) fn copy_fetched(
        &mut self,
        fetch: FetchId,
        ended: &Fetch,
        outcome: Fetched,
        effects: &mut Vec<Effect>,
    ) {
        let id = incarnation(&ended.object);
        let entry = self.table.get(&id);
        let wanted = entry.is_some_and(|e| e.is_live_in(ended.at.bucket));
        if outcome == Fetched::Sound && wanted {
            self.pending_bytes += ended.object.record_bytes();
            self.waiting.push_front(Waiting {
                source: Source::Copy(fetch),
                object: Arc::clone(&ended.object),
                since: self.now,
            });
            return;
        }
        if let Fetched::Failed(_) = outcome {
            // It cannot be read and so not be kept; its owner has to give it up first.
            self.found_bad(ended, effects);
        }
        self.copy_ended(fetch, &ended.object, true, effects);
    }

    /// A copy has been written, or will not be.
    pub(super) fn copy_ended(
        &mut self,
        fetch: FetchId,
        object: &Descriptor,
        well: bool,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Release { fetch });
        let Some(eviction) = self.eviction.as_mut() else {
            return;
        };
        eviction.copying = eviction.copying.saturating_sub(1);
        let id = incarnation(object);
        if well {
            let entry = self.table.get(&id);
            let moved = entry.is_some_and(|e| e.live.is_some() && !e.is_live_in(eviction.bucket));
            count(effects, Counter::Reinserted, u64::from(moved));
        } else {
            eviction.copies.push_back(id);
        }
    }

    /// What shall be kept finds no room although the bucket in hand is the last one allowed.
    pub(super) fn copies_are_stuck(&mut self, effects: &mut Vec<Effect>) {
        for waiting in std::mem::take(&mut self.waiting) {
            if matches!(waiting.source, Source::Copy(_)) {
                self.drop_waiting(&waiting, AppendError::Busy, effects);
            } else {
                self.waiting.push_back(waiting);
            }
        }
        let again = self.now + AGAIN_AFTER;
        if let Some(eviction) = self.eviction.as_mut() {
            eviction.stage = Stage::AskAgain(again);
        }
    }

    fn delete_victim(&mut self, effects: &mut Vec<Effect>) {
        let Some(eviction) = self.eviction.as_ref() else {
            return;
        };
        let bucket = eviction.bucket;
        let going = !eviction.copies.is_empty() || eviction.copying > 0 || eviction.waits > 0;
        if going || self.now < eviction.delete_at || !self.writes_upkeep() {
            return;
        }
        // The tombstones of what newer versions here have outdated must be durable first.
        if self.superseded > 0 || self.pins(bucket) > 0 || !self.live_in(bucket).is_empty() {
            return;
        }
        let Some(found) = self.buckets.get_mut(&bucket) else {
            return;
        };
        if found.phase != Phase::Evicting {
            return;
        }
        found.phase = Phase::Deleting;
        let op = self.op(bucket, Task::Delete);
        effects.push(Effect::Delete { op, bucket });
    }

    pub(super) fn deleted(
        &mut self,
        bucket: BucketId,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        if result.is_err() {
            if let Some(found) = self.buckets.get_mut(&bucket) {
                found.phase = Phase::Evicting;
            }
            if let Some(eviction) = self.eviction.as_mut() {
                eviction.delete_at = self.now + AGAIN_AFTER;
            }
            return;
        }
        let Some(gone) = self.buckets.remove(&bucket) else {
            return;
        };
        self.disk_bytes -= gone.bytes;
        self.opaque -= usize::from(gone.opaque);
        let items = gone.items.iter().map(|i| incarnation(&i.object));
        let all = items.chain(gone.voids).chain(gone.tombs);
        for id in all {
            let Some(entry) = self.table.get_mut(&id) else {
                continue;
            };
            entry.forget_copy(bucket);
            let unknown = entry.copies.is_empty() && entry.live.is_none() && !entry.appending;
            let done = match entry.tomb {
                Tomb::None => true,
                // Its waiters are answered when the group ends.
                Tomb::Queued => false,
                Tomb::Durable(host) => self.opaque == 0 || host == bucket,
            };
            if unknown && done {
                self.table.forget(&id);
            }
        }
        let eviction = self.eviction.take_if(|e| e.bucket == bucket);
        if let Some(eviction) = eviction {
            count(effects, Counter::BucketsFreed, 1);
            let objects = eviction.retracted;
            effects.push(Effect::Freed { bucket, objects });
        }
    }
}
