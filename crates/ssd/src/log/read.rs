//! Reads: what may be read where, and the pins that keep buckets from going meanwhile.

use super::table::incarnation;
use super::{Log, count};
use crate::effect::{Counter, Effect, Grant, Purpose, ReadError, State};
use crate::event::{FetchId, Fetched, ReadId};
use crate::format::BucketId;
use crate::format::record::{Descriptor, Position};
use crate::format::tombstone::Incarnation;
use crate::sizing::blocks;
use snowskin_types::limits::PIECE_BYTES;
use snowskin_types::time::Now;
use std::sync::Arc;

/// A read of the disk under way.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) at: Position,
    pub(super) object: Arc<Descriptor>,
    /// `None` once the reader was told that the disk does not answer.
    pub(super) purpose: Option<Purpose>,
    pub(super) since: Now,
    pub(super) hung: bool,
}

impl Log {
    pub(super) fn read(
        &mut self,
        read: ReadId,
        wanted: &Incarnation,
        offset: u64,
        len: u64,
        effects: &mut Vec<Effect>,
    ) {
        match self.grant(wanted, offset, len) {
            Ok((at, grant)) => {
                self.fetch(at, grant, Purpose::Reader(read), effects);
            }
            Err(error) => effects.push(Effect::ReadRefused { read, error }),
        }
    }

    fn grant(
        &self,
        wanted: &Incarnation,
        offset: u64,
        len: u64,
    ) -> Result<(Position, Grant), ReadError> {
        if self.state == State::Quarantined {
            return Err(ReadError::Hung);
        }
        let live = self.table.get(wanted).and_then(|e| e.live.as_ref());
        let live = live.ok_or(ReadError::Absent)?;
        if live.bad {
            return Err(ReadError::Bad);
        }
        if self.fetches.len() >= self.config.fetches_max {
            return Err(ReadError::Busy);
        }
        if offset > live.object.shape.size {
            return Err(ReadError::Range);
        }
        Ok((live.at, grant(live.at, &live.object, offset, len)))
    }

    pub(super) fn fetch(
        &mut self,
        at: Position,
        grant: Grant,
        purpose: Purpose,
        effects: &mut Vec<Effect>,
    ) -> FetchId {
        self.next_fetch += 1;
        let fetch = FetchId(self.next_fetch);
        if let Some(bucket) = self.buckets.get_mut(&at.bucket) {
            bucket.pins += 1;
        }
        self.fetches.insert(
            fetch,
            Fetch {
                at,
                object: Arc::clone(&grant.object),
                purpose: Some(purpose),
                since: self.now,
                hung: false,
            },
        );
        effects.push(Effect::Fetch {
            fetch,
            purpose,
            grant,
        });
        fetch
    }

    pub(super) fn fetch_end(
        &mut self,
        fetch: FetchId,
        outcome: Fetched,
        effects: &mut Vec<Effect>,
    ) {
        let Some(ended) = self.fetches.remove(&fetch) else {
            count(effects, Counter::Odd, 1);
            return;
        };
        if let Some(bucket) = self.buckets.get_mut(&ended.at.bucket) {
            bucket.pins = bucket.pins.saturating_sub(1);
        }
        match outcome {
            Fetched::Corrupt => {
                count(effects, Counter::TornRecords, 1);
                self.found_bad(&ended, effects);
            }
            Fetched::Failed(_) => count(effects, Counter::ReadFaults, 1),
            Fetched::Sound | Fetched::Abandoned => {}
        }
        if ended.purpose == Some(Purpose::Copy) {
            self.copy_fetched(fetch, &ended, outcome, effects);
        }
    }

    /// The record is not served any more. It stays known, since its owner still has to retract it.
    pub(super) fn found_bad(&mut self, ended: &Fetch, effects: &mut Vec<Effect>) {
        let id = incarnation(&ended.object);
        let entry = self.table.get_mut(&id);
        let Some(live) = entry.and_then(|e| e.live.as_mut()) else {
            return;
        };
        if live.at == ended.at && !live.bad {
            live.bad = true;
            effects.push(Effect::Bad { incarnation: id });
        }
    }

    pub(super) fn pins(&self, bucket: BucketId) -> u32 {
        self.buckets.get(&bucket).map_or(0, |b| b.pins)
    }
}

/// Whole pieces around the wanted range.
pub(super) fn grant(at: Position, object: &Arc<Descriptor>, offset: u64, len: u64) -> Grant {
    let size = object.shape.size;
    let end = offset.saturating_add(len).min(size);
    let first_piece = offset / PIECE_BYTES;
    let from = (first_piece * PIECE_BYTES).min(size);
    let to = if end == offset {
        from
    } else {
        end.next_multiple_of(PIECE_BYTES).min(size)
    };
    Grant {
        bucket: at.bucket,
        offset: at.offset + object.head_bytes() + from,
        bytes: blocks(to - from),
        object_bytes: to - from,
        first_piece,
        skip: if to == from { 0 } else { offset - from },
        len: end - offset,
        object: Arc::clone(object),
    }
}
