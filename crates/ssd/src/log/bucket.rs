//! One bucket as the planner sees it.

use crate::format::footer::{Entry, INDEX_BYTES_MAX, entry_bytes};
use crate::format::record::Descriptor;
use crate::format::tombstone::Incarnation;
use crate::format::{BLOCK_BYTES, BucketId};
use crate::sizing::blocks;
use std::sync::Arc;

/// Where a bucket is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its file is being made.
    Creating,
    /// Takes records.
    Open,
    /// Takes no more; waits for the ends of its writes.
    Closing,
    /// What it holds is being synced.
    SyncingRecords,
    /// Its index is being written.
    WritingIndex,
    /// Its index is being synced.
    SyncingIndex,
    /// Found by its index after a restart.
    Sealed,
    /// Could not be sealed; found by scanning after a restart.
    Unsealed,
    /// Shall go; waits for its verdict, copies, tombstones and pins.
    Evicting,
    /// Its file is being deleted.
    Deleting,
}

/// An object's record in it.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) offset: u64,
    pub(crate) object: Arc<Descriptor>,
    /// Its write has ended well.
    pub(crate) written: bool,
}

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) id: BucketId,
    pub(crate) bytes: u64,
    pub(crate) phase: Phase,
    /// Where the next record begins.
    pub(crate) next: u64,
    /// Writes under way.
    pub(crate) writes: u32,
    /// Bytes of them.
    pub(crate) writing_bytes: u64,
    /// Bytes of the index so far.
    pub(crate) index_bytes: u64,
    /// Records, written or not, in the order of their offsets.
    pub(crate) items: Vec<Item>,
    /// Versions named by the durable index or a scan that have no place to be read from here.
    pub(crate) voids: Vec<Incarnation>,
    /// Tombstones that were written here.
    pub(crate) tombs: Vec<Incarnation>,
    /// Reads under way.
    pub(crate) pins: u32,
    /// Damaged records that recovery left out.
    pub(crate) damaged: u32,
    /// Some of it could not be read: it may hold anything.
    pub(crate) opaque: bool,
}

impl Bucket {
    pub(crate) fn new(id: BucketId, bytes: u64) -> Self {
        Bucket {
            id,
            bytes,
            phase: Phase::Creating,
            next: BLOCK_BYTES,
            writes: 0,
            writing_bytes: 0,
            index_bytes: 0,
            items: Vec::new(),
            voids: Vec::new(),
            tombs: Vec::new(),
            pins: 0,
            damaged: 0,
            opaque: false,
        }
    }

    /// Whether a record of so many bytes, and as many of index, still fit.
    pub(crate) fn fits(&self, record: u64, index: u64) -> bool {
        let index = self.index_bytes.saturating_add(index);
        let end = self.next.saturating_add(record);
        index <= INDEX_BYTES_MAX && end.saturating_add(blocks(index) + BLOCK_BYTES) <= self.bytes
    }

    /// Bytes that records can still take.
    pub(crate) fn room(&self) -> u64 {
        let tail = blocks(self.index_bytes) + BLOCK_BYTES;
        self.bytes.saturating_sub(self.next.saturating_add(tail))
    }

    /// Takes the place of a record.
    pub(crate) fn take(&mut self, record: u64, index: u64) -> u64 {
        let offset = self.next;
        self.next += record;
        self.index_bytes += index;
        self.writes += 1;
        self.writing_bytes += record;
        offset
    }

    pub(crate) fn item_mut(&mut self, offset: u64) -> Option<&mut Item> {
        let place = self
            .items
            .binary_search_by_key(&offset, |i| i.offset)
            .ok()?;
        self.items.get_mut(place)
    }
}

/// Bytes of index that a record takes.
pub(crate) fn index_bytes(object: &Arc<Descriptor>) -> u64 {
    entry_bytes(&Entry::Object {
        offset: 0,
        descriptor: Arc::clone(object),
    })
}

/// Largest payload of an object with this head in a bucket of so many bytes.
pub(crate) fn largest_payload(object: &Arc<Descriptor>, bucket_bytes: u64) -> u64 {
    let overhead = BLOCK_BYTES + object.head_bytes() + blocks(index_bytes(object)) + BLOCK_BYTES;
    bucket_bytes.saturating_sub(overhead)
}
