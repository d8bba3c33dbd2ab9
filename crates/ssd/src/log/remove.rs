//! Removing versions: tombstones are written in groups and synced before a removal is answered.

use super::append::{Source, Use};
use super::table::{Tomb, incarnation};
use super::{Log, Task, count};
use crate::effect::{AppendError, Counter, Effect, Payload};
use crate::event::{Fault, RemoveId};
use crate::format::BucketId;
use crate::format::footer;
use crate::format::record::{Position, encode_tombstones};
use crate::format::tombstone::{self, Incarnation, LIST_BYTES_MAX};
use crate::sizing::blocks;
use snowskin_types::time::{Millis, Now};
use std::collections::VecDeque;

/// A removal waits so long for others to share its write and sync, at most.
pub const GROUP_DELAY: Millis = Millis(5);
/// Removals that share a write do not wait for more than this many.
const GROUP_FULL: usize = 256;
/// Most versions of one group.
const GROUP_MAX: usize = 1024;

/// Tombstones on their way.
#[derive(Debug, Default)]
pub(super) struct Tombs {
    pub(super) queue: VecDeque<Incarnation>,
    /// When the next group is to be written.
    pub(super) due: Option<Now>,
    group: Option<Vec<Incarnation>>,
}

impl Tombs {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.group.is_none()
    }
}

impl Log {
    pub(super) fn remove(
        &mut self,
        remove: RemoveId,
        incarnation: Incarnation,
        effects: &mut Vec<Effect>,
    ) {
        self.stop_waiting(&incarnation, effects);
        // A bucket that could not be read may hold any version.
        if self.opaque > 0 {
            self.table.entry(&incarnation.name, incarnation.version);
        }
        let Some(entry) = self.table.get_mut(&incarnation) else {
            effects.push(Effect::Removed { remove });
            return;
        };
        entry.live = None;
        match entry.tomb {
            Tomb::Durable(_) => effects.push(Effect::Removed { remove }),
            Tomb::Queued => entry.removes.push(remove),
            Tomb::None => {
                entry.removes.push(remove);
                self.queue_tombstone(incarnation);
            }
        }
    }

    /// An append or a copy of the version that has no place yet is not written.
    fn stop_waiting(&mut self, removed: &Incarnation, effects: &mut Vec<Effect>) {
        let place = self
            .waiting
            .iter()
            .position(|w| incarnation(&w.object) == *removed);
        if let Some(waiting) = place.and_then(|i| self.waiting.remove(i)) {
            if let Source::Copy(_) = waiting.source
                && let Some(entry) = self.table.get_mut(removed)
            {
                entry.live = None;
            }
            self.drop_waiting(&waiting, AppendError::Retired, effects);
        }
    }

    pub(super) fn queue_tombstone(&mut self, incarnation: Incarnation) {
        let entry = self.table.entry(&incarnation.name, incarnation.version);
        entry.tomb = Tomb::Queued;
        self.tombs.queue.push_back(incarnation);
        let due = self.now + GROUP_DELAY;
        self.tombs.due.get_or_insert(due);
    }

    /// Writes the next group when its time has come. One group is on its way at a time, and groups
    /// keep the order of the removals: an older version's tombstone is never behind its successor's.
    pub(super) fn flush_tombstones(&mut self, effects: &mut Vec<Effect>) {
        let Some(due) = self.tombs.due else {
            return;
        };
        let early = self.now < due && self.tombs.queue.len() < GROUP_FULL && !self.stopping;
        if self.tombs.group.is_some() || early {
            return;
        }
        let (mut bytes, mut index, mut members) = (0u64, 0u64, 0usize);
        for next in self.tombs.queue.iter().take(GROUP_MAX) {
            let one = tombstone::entry_bytes(&next.name);
            if bytes + one > LIST_BYTES_MAX {
                break;
            }
            bytes += one;
            index += footer::entry_bytes(&footer::Entry::Tombstone(next.clone()));
            members += 1;
        }
        if members == 0 {
            self.tombs.due = None;
            return;
        }
        let record = blocks(1) + blocks(bytes);
        let Some(bucket) = self.place(Use::Upkeep, record, index, effects) else {
            return;
        };
        let group: Vec<_> = self.tombs.queue.drain(..members).collect();
        let mut list = Vec::with_capacity(bytes as usize);
        for member in &group {
            tombstone::encode(member, &mut list);
        }
        let Some(found) = self.buckets.get_mut(&bucket) else {
            return;
        };
        let offset = found.take(record, index);
        let head = encode_tombstones(self.config.disk, Position { bucket, offset }, &list);
        self.tombs.group = Some(group);
        self.tombs.due = (!self.tombs.queue.is_empty()).then_some(self.now);
        let op = self.op(bucket, Task::Tombstones { bytes: record });
        effects.push(Effect::Write {
            op,
            bucket,
            offset,
            bytes: record,
            head,
            payload: Payload::None,
        });
    }

    pub(super) fn group_written(
        &mut self,
        bucket: BucketId,
        bytes: u64,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        if result.is_err() {
            self.group_again();
            return;
        }
        let op = self.op(bucket, Task::GroupSync { bytes });
        effects.push(Effect::Sync { op, bucket });
    }

    pub(super) fn group_synced(
        &mut self,
        bucket: BucketId,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        if result.is_err() {
            // What the disk has kept is not known: nothing more goes there.
            self.poison(bucket, effects);
            self.group_again();
            return;
        }
        let group = self.tombs.group.take().unwrap_or_default();
        count(effects, Counter::TombstoneGroups, 1);
        count(effects, Counter::Tombstones, group.len() as u64);
        for member in group {
            self.tombstone_durable(bucket, member, effects);
        }
    }

    fn tombstone_durable(
        &mut self,
        bucket: BucketId,
        member: Incarnation,
        effects: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.table.get_mut(&member) else {
            return;
        };
        entry.tomb = Tomb::Durable(bucket);
        for remove in std::mem::take(&mut entry.removes) {
            effects.push(Effect::Removed { remove });
        }
        if std::mem::take(&mut entry.superseded) {
            self.superseded = self.superseded.saturating_sub(1);
        }
        let waits = std::mem::take(&mut entry.victim_waits);
        let needless = entry.copies.is_empty() && !entry.appending && self.opaque == 0;
        if needless {
            self.table.forget(&member);
        } else if let Some(found) = self.buckets.get_mut(&bucket) {
            found.tombs.push(member);
        }
        if waits && let Some(eviction) = self.eviction.as_mut() {
            eviction.waits = eviction.waits.saturating_sub(1);
        }
    }

    /// The group failed: its members are first in the next one.
    fn group_again(&mut self) {
        for member in self
            .tombs
            .group
            .take()
            .unwrap_or_default()
            .into_iter()
            .rev()
        {
            self.tombs.queue.push_front(member);
        }
        self.tombs.due = Some(self.now + GROUP_DELAY);
    }
}
