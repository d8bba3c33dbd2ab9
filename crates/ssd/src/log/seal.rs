//! From open to sealed: writes end, then what they wrote is synced, then the index is written and synced.

use super::bucket::Phase;
use super::table::{Tomb, incarnation};
use super::{Log, Task, count};
use crate::effect::{Counter, Effect, Payload};
use crate::event::Fault;
use crate::format::BucketId;
use crate::format::footer::{self, Entry};
use std::sync::Arc;

/// A bucket with less room than this is not worth keeping open.
const ROOM_MIN: u64 = 16 << 10;

impl Log {
    pub(super) fn seal(&mut self, effects: &mut Vec<Effect>) {
        if !self.writes_upkeep() {
            return;
        }
        let mut syncs = Vec::new();
        let idle = self.tombs.is_idle();
        for bucket in self.buckets.values_mut() {
            let full = bucket.room() < ROOM_MIN || (self.stopping && idle);
            if bucket.phase == Phase::Open && full && self.waiting.is_empty() {
                bucket.phase = Phase::Closing;
            }
            if bucket.phase == Phase::Closing && bucket.writes == 0 {
                bucket.phase = Phase::SyncingRecords;
                syncs.push(bucket.id);
            }
        }
        for bucket in syncs {
            let op = self.op(bucket, Task::RecordsSync);
            effects.push(Effect::Sync { op, bucket });
        }
    }

    pub(super) fn seal_step(
        &mut self,
        bucket: BucketId,
        ended: &Task,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        if result.is_err() {
            self.poison(bucket, effects);
            return;
        }
        match ended {
            Task::RecordsSync => self.write_index(bucket, effects),
            Task::Index => {
                self.set_phase(bucket, Phase::SyncingIndex);
                let op = self.op(bucket, Task::IndexSync);
                effects.push(Effect::Sync { op, bucket });
            }
            _ => {
                self.set_phase(bucket, Phase::Sealed);
                count(effects, Counter::Sealed, 1);
            }
        }
    }

    fn write_index(&mut self, bucket: BucketId, effects: &mut Vec<Effect>) {
        let Some(found) = self.buckets.get(&bucket) else {
            return;
        };
        let mut entries = Vec::with_capacity(found.items.len() + found.tombs.len());
        for item in &found.items {
            let id = incarnation(&item.object);
            let entry = self.table.get(&id);
            let counts = entry.is_some_and(|e| e.tomb == Tomb::None && !e.superseded);
            entries.push(if item.written && counts {
                Entry::Object {
                    offset: item.offset,
                    descriptor: Arc::clone(&item.object),
                }
            } else {
                Entry::Void(id)
            });
        }
        entries.extend(found.voids.iter().cloned().map(Entry::Void));
        entries.extend(found.tombs.iter().cloned().map(Entry::Tombstone));
        let (end, bytes, damaged) = (found.next, found.bytes, found.damaged);
        let disk = self.config.disk;
        match footer::encode(disk, bucket, bytes, end, damaged, &entries) {
            Some((offset, head)) => {
                self.set_phase(bucket, Phase::WritingIndex);
                let bytes = head.len() as u64;
                let op = self.op(bucket, Task::Index);
                effects.push(Effect::Write {
                    op,
                    bucket,
                    offset,
                    bytes,
                    head,
                    payload: Payload::None,
                });
            }
            None => self.poison(bucket, effects),
        }
    }

    /// The bucket takes nothing more and gets no index; its records prove themselves all the same.
    pub(super) fn poison(&mut self, bucket: BucketId, effects: &mut Vec<Effect>) {
        let Some(found) = self.buckets.get_mut(&bucket) else {
            return;
        };
        let passed = matches!(
            found.phase,
            Phase::Unsealed | Phase::Sealed | Phase::Evicting | Phase::Deleting
        );
        if !passed {
            found.phase = Phase::Unsealed;
            count(effects, Counter::Unsealed, 1);
        }
    }

    fn set_phase(&mut self, bucket: BucketId, phase: Phase) {
        if let Some(found) = self.buckets.get_mut(&bucket) {
            found.phase = phase;
        }
    }
}
