//! Writing records: where each goes, and what its end means.

use super::bucket::{Item, Phase, index_bytes, largest_payload};
use super::table::{Live, Tomb, incarnation};
use super::{Log, Task, answer, count};
use crate::effect::{AppendError, Counter, Effect, Payload, State};
use crate::event::{Fault, FetchId, WriteId};
use crate::format::BucketId;
use crate::format::record::{Descriptor, HEAD_BYTES_MAX, Position, encode_object};
use snowskin_types::time::Now;
use std::sync::Arc;

/// Where a record's bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// An append of the shell.
    Append(WriteId),
    /// A record of a bucket that goes.
    Copy(FetchId),
}

/// A record that waits for a bucket.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) source: Source,
    pub(super) object: Arc<Descriptor>,
    pub(super) since: Now,
}

/// A record whose write has ended.
pub(super) struct RecordEnd {
    pub(super) bucket: BucketId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) source: Source,
    pub(super) object: Arc<Descriptor>,
    pub(super) given_up: bool,
}

/// What a new bucket would be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Appends stay within the limit.
    Append,
    /// Copies and tombstones, which lead to space, may take one bucket above it.
    Upkeep,
}

impl Log {
    pub(super) fn append(
        &mut self,
        write: WriteId,
        object: Arc<Descriptor>,
        effects: &mut Vec<Effect>,
    ) {
        if let Err(error) = self.admit(&object) {
            match error {
                AppendError::Busy => count(effects, Counter::Busy, 1),
                AppendError::NotWriting(_) => count(effects, Counter::NotWriting, 1),
                _ => {}
            }
            answer(effects, write, Err(error));
            return;
        }
        if self.holds(&incarnation(&object)) {
            answer(effects, write, Ok(()));
            return;
        }
        let entry = self.table.entry(&object.name, object.version);
        entry.appending = true;
        self.pending_bytes += object.record_bytes();
        self.waiting.push_back(Waiting {
            source: Source::Append(write),
            object,
            since: self.now,
        });
    }

    fn admit(&self, object: &Arc<Descriptor>) -> Result<(), AppendError> {
        let largest = largest_payload(object, self.config.sizing.bucket_bytes);
        if object.shape.size > largest || object.head_bytes() > HEAD_BYTES_MAX {
            let size = object.shape.size;
            return Err(AppendError::TooLarge { size, largest });
        }
        if !object.is_coherent() {
            return Err(AppendError::Incoherent);
        }
        if let Some(entry) = self.table.get(&incarnation(object)) {
            if entry.tomb != Tomb::None {
                return Err(AppendError::Retired);
            }
            if entry.appending {
                return Err(AppendError::Busy);
            }
        }
        if self.stopping || self.state != State::Ok {
            let state = if self.stopping {
                State::Off
            } else {
                self.state
            };
            return Err(AppendError::NotWriting(state));
        }
        if !self.accepts(object.record_bytes()) {
            return Err(AppendError::Busy);
        }
        Ok(())
    }

    /// Gives waiting records their places, in order; copies are put in front by their makers.
    pub(super) fn place_waiting(&mut self, effects: &mut Vec<Effect>) {
        while let Some(front) = self.waiting.front() {
            let (source, object) = (front.source, Arc::clone(&front.object));
            let purpose = match source {
                Source::Append(_) if !self.writes_appends() => return,
                Source::Append(_) => Use::Append,
                Source::Copy(_) => Use::Upkeep,
            };
            let bytes = object.record_bytes();
            let Some(bucket) = self.place(purpose, bytes, index_bytes(&object), effects) else {
                let making = self.buckets.values().any(|b| b.phase == Phase::Creating);
                if purpose == Use::Upkeep && self.writes_upkeep() && !making {
                    self.copies_are_stuck(effects);
                }
                return;
            };
            self.waiting.pop_front();
            self.write_record(bucket, source, object, effects);
        }
    }

    /// A bucket with room. When there is none, one is closed and made as far as the limit allows;
    /// the record waits.
    pub(super) fn place(
        &mut self,
        purpose: Use,
        bytes: u64,
        index: u64,
        effects: &mut Vec<Effect>,
    ) -> Option<BucketId> {
        if !self.writes_upkeep() {
            return None;
        }
        let limit = self.config.sizing.limit_bytes;
        let over = self.disk_bytes > limit;
        if !(over && purpose == Use::Append) {
            let open = self.buckets.values().filter(|b| b.phase == Phase::Open);
            let fits = open.filter(|b| b.fits(bytes, index));
            if let Some(bucket) = fits.min_by_key(|b| b.writing_bytes) {
                return Some(bucket.id);
            }
        }
        if self.buckets.values().any(|b| b.phase == Phase::Creating) {
            return None;
        }
        let new = self.config.sizing.bucket_bytes;
        let allowed = match purpose {
            Use::Append => self.disk_bytes.saturating_add(new) <= limit,
            Use::Upkeep => self.disk_bytes <= limit,
        };
        if allowed {
            self.close_fullest();
            self.create(effects);
        }
        None
    }

    /// Makes room among the open buckets for one more.
    fn close_fullest(&mut self) {
        let open = || self.buckets.values().filter(|b| b.phase == Phase::Open);
        if open().count() < self.config.open_max.max(1) {
            return;
        }
        let fullest = open().min_by_key(|b| b.room()).map(|b| b.id);
        if let Some(bucket) = fullest.and_then(|id| self.buckets.get_mut(&id)) {
            bucket.phase = Phase::Closing;
        }
    }

    fn write_record(
        &mut self,
        bucket: BucketId,
        source: Source,
        object: Arc<Descriptor>,
        effects: &mut Vec<Effect>,
    ) {
        let bytes = object.record_bytes();
        let Some(found) = self.buckets.get_mut(&bucket) else {
            return;
        };
        let offset = found.take(bytes, index_bytes(&object));
        found.items.push(Item {
            offset,
            object: Arc::clone(&object),
            written: false,
        });
        // From here on the record may be on the disk, however the write ends.
        let entry = self.table.entry(&object.name, object.version);
        entry.copies.push(bucket);
        let head = encode_object(self.config.disk, Position { bucket, offset }, &object);
        let payload = match source {
            _ if object.shape.size == 0 => Payload::None,
            Source::Append(write) => Payload::Append(write),
            Source::Copy(fetch) => Payload::Fetched(fetch),
        };
        let task = Task::Record {
            offset,
            bytes,
            source,
            object,
            given_up: false,
        };
        let op = self.op(bucket, task);
        effects.push(Effect::Write {
            op,
            bucket,
            offset,
            bytes,
            head,
            payload,
        });
    }

    /// The write of a record has ended: only now, and only when it ended well, it can be read.
    pub(super) fn record_written(
        &mut self,
        end: RecordEnd,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        self.pending_bytes = self.pending_bytes.saturating_sub(end.bytes);
        let at = Position {
            bucket: end.bucket,
            offset: end.offset,
        };
        let bucket = self.buckets.get_mut(&end.bucket);
        let sound = result.is_ok() && !end.given_up;
        if let Some(item) = bucket.and_then(|b| b.item_mut(end.offset)) {
            item.written = sound;
        }
        let size = end.object.shape.size;
        let entry = self.table.entry(&end.object.name, end.object.version);
        let retired = entry.tomb != Tomb::None;
        let copied_from = entry.live.as_ref().map(|l| l.at.bucket);
        let wanted = match end.source {
            Source::Append(_) => {
                entry.appending &= end.given_up;
                true
            }
            // Its first place may have been found damaged, or given up, meanwhile.
            Source::Copy(_) => copied_from.is_some(),
        };
        if sound && wanted && !retired {
            let object = Arc::clone(&end.object);
            let bad = false;
            entry.live = Some(Live { at, object, bad });
        }
        match end.source {
            Source::Append(write) => {
                if end.given_up {
                    return;
                }
                let result = match result {
                    Ok(()) if retired => Err(AppendError::Retired),
                    Ok(()) => Ok(()),
                    Err(fault) => Err(AppendError::Failed(fault)),
                };
                if result.is_ok() {
                    count(effects, Counter::Committed, 1);
                    count(effects, Counter::CommittedBytes, size);
                }
                answer(effects, write, result);
            }
            Source::Copy(fetch) => self.copy_ended(fetch, &end.object, result.is_ok(), effects),
        }
    }

    /// Ends the appends that have waited since before a moment; copies stay.
    pub(super) fn fail_waiting(
        &mut self,
        before: Now,
        error: AppendError,
        effects: &mut Vec<Effect>,
    ) {
        for waiting in std::mem::take(&mut self.waiting) {
            if matches!(waiting.source, Source::Append(_)) && waiting.since < before {
                self.drop_waiting(&waiting, error, effects);
            } else {
                self.waiting.push_back(waiting);
            }
        }
    }

    /// What waited is not written.
    pub(super) fn drop_waiting(
        &mut self,
        waiting: &Waiting,
        error: AppendError,
        effects: &mut Vec<Effect>,
    ) {
        let bytes = waiting.object.record_bytes();
        self.pending_bytes = self.pending_bytes.saturating_sub(bytes);
        match waiting.source {
            Source::Append(write) => {
                self.end_of_append(&waiting.object);
                answer(effects, write, Err(error));
            }
            Source::Copy(fetch) => self.copy_ended(fetch, &waiting.object, false, effects),
        }
    }

    /// The version's append is over without a record.
    fn end_of_append(&mut self, object: &Descriptor) {
        let id = incarnation(object);
        let Some(entry) = self.table.get_mut(&id) else {
            return;
        };
        entry.appending = false;
        if entry.live.is_none() && entry.copies.is_empty() && entry.tomb == Tomb::None {
            self.table.forget(&id);
        }
    }
}
