//! What a bucket log wants done. Shells carry effects out; those on the disk may overlap, since the core
//! waits for the end of one where the order matters.

use crate::event::{FetchId, OpId, ReadId, RemoveId, WriteId};
use crate::format::BucketId;
use crate::format::record::Descriptor;
use crate::format::tombstone::Incarnation;
use std::sync::Arc;

/// What follows a record's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: the given bytes are all.
    None,
    /// The bytes of this append, zeroes up to the end of the write.
    Append(WriteId),
    /// The bytes that this fetch has read, zeroes up to the end of the write.
    Fetched(FetchId),
}

/// Whom bytes are fetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A reader; the shell hands the range over when it is sound.
    Reader(ReadId),
    /// The core, which writes the record anew; the shell keeps the bytes until `Release`.
    Copy,
}

/// What is to be read and how it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// From which bucket. It is pinned until `FetchEnd`.
    pub bucket: BucketId,
    /// Where, a multiple of 4 KiB.
    pub offset: u64,
    /// Bytes to read, a multiple of 4 KiB.
    pub bytes: u64,
    /// Of those, this many belong to the object, whole pieces but for its last one.
    pub object_bytes: u64,
    /// Index of the first piece of them.
    pub first_piece: u64,
    /// Bytes before the wanted range.
    pub skip: u64,
    /// Bytes of the wanted range, cut to the object.
    pub len: u64,
    /// The object; its sums are to be checked with
    /// [`pieces_are_sound`](crate::format::record::pieces_are_sound) before a byte is used.
    pub object: Arc<Descriptor>,
}

/// Why bytes were not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Larger than a bucket can hold.
    #[error("an object of {size} bytes does not fit: at most {largest} do with this name")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The largest size.
        largest: u64,
    },
    /// Its sums do not belong to its size.
    #[error("the checksums do not belong to the object")]
    Incoherent,
    /// The version was retired.
    #[error("the version is retired")]
    Retired,
    /// Too many bytes are on their way; to be tried when one has ended.
    #[error("too much is being written")]
    Busy,
    /// The slot does not write at present.
    #[error("the disk slot is {0:?}")]
    NotWriting(State),
    /// The disk failed. The bytes may be there all the same until the version is removed.
    #[error(transparent)]
    Failed(#[from] crate::event::Fault),
    /// The disk did not answer for 30 s. As `Failed`.
    #[error("the disk does not answer")]
    Hung,
}

/// Why a read was refused. All of them are misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not here.
    #[error("the version is not on this disk slot")]
    Absent,
    /// Found damaged before.
    #[error("the record is damaged")]
    Bad,
    /// The range begins behind the object.
    #[error("the range is not in the object")]
    Range,
    /// The disk does not answer.
    #[error("the disk does not answer")]
    Hung,
    /// Too many reads are under way.
    #[error("too many reads are under way")]
    Busy,
}

/// Condition of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Stopped.
    Off,
    /// Reads and writes.
    Ok,
    /// Reads; writes nothing until the disk is well again.
    Degraded,
    /// Neither: the disk does not answer.
    Quarantined,
}

/// Something worth counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Counter {
    /// Records committed.
    Committed,
    /// Their payload bytes.
    CommittedBytes,
    /// Appends refused for want of room in flight.
    Busy,
    /// Appends refused because the slot does not write.
    NotWriting,
    /// Writes, syncs, creations or deletions that failed.
    DiskFaults,
    /// Reads of the disk that failed.
    ReadFaults,
    /// Records found damaged when read.
    TornRecords,
    /// Operations that took more than 30 s.
    Hung,
    /// Versions whose tombstone became durable.
    Tombstones,
    /// Groups in which they were written.
    TombstoneGroups,
    /// Tombstones written anew because their bucket goes.
    TombstonesMoved,
    /// Buckets sealed.
    Sealed,
    /// Buckets that could not be sealed and are found by scanning after a restart.
    Unsealed,
    /// Buckets deleted by eviction.
    BucketsFreed,
    /// Records written anew because their bucket goes.
    Reinserted,
    /// Evictions that had to write more than half of their bucket anew.
    ReinsertedHeavily,
    /// Completions and verdicts that fit nothing.
    Odd,
}

/// An output of the core.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Effect {
    /// Make the bucket's file with all its bytes allocated. Its existence is durable when it ends.
    Create {
        op: OpId,
        bucket: BucketId,
        bytes: u64,
    },
    /// Write `head`, then the payload, then zeroes, `bytes` in all, as one run at `offset`.
    Write {
        op: OpId,
        bucket: BucketId,
        offset: u64,
        bytes: u64,
        head: Vec<u8>,
        payload: Payload,
    },
    /// Make durable what was written to the bucket and has ended.
    Sync { op: OpId, bucket: BucketId },
    /// Delete the bucket's file. Its absence is durable when it ends.
    Delete { op: OpId, bucket: BucketId },
    /// Read and check; ends with `Event::FetchEnd`.
    Fetch {
        fetch: FetchId,
        purpose: Purpose,
        grant: Grant,
    },
    /// The bytes of this fetch are not needed any more.
    Release { fetch: FetchId },
    /// The end of an append. With `Ok` the record is committed: it can be read, and outlives the process.
    Appended {
        write: WriteId,
        result: Result<(), AppendError>,
    },
    /// The version cannot come back from this slot, not even after a loss of power.
    Removed { remove: RemoveId },
    /// The read is refused, or (`Hung`) given up while the disk still works at it.
    ReadRefused { read: ReadId, error: ReadError },
    /// A record is damaged and is not served any more. To be retracted, then removed.
    Bad { incarnation: Incarnation },
    /// This bucket shall go. To be answered with `Event::Verdict` once what it holds is retracted.
    Victim {
        bucket: BucketId,
        objects: Arc<[Incarnation]>,
    },
    /// The bucket is deleted; these versions are gone from this slot.
    Freed {
        bucket: BucketId,
        objects: Vec<Incarnation>,
    },
    /// The slot's condition has changed.
    StateIs(State),
    /// All is sealed; nothing is under way.
    Stopped,
    /// Counts.
    Count { counter: Counter, by: u64 },
}
