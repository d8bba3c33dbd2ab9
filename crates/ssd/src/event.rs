//! What can happen to a bucket log.

use crate::format::BucketId;
use crate::format::record::Descriptor;
use crate::format::tombstone::Incarnation;
use std::sync::Arc;

/// The shell's token for an append. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// The shell's token for the removal of a version. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoveId(pub u64);

/// The shell's token for a read. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// The core's token for a disk operation that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// The core's token for a read of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// Why the disk did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// ENOSPC, EDQUOT.
    #[error("no space is left on the disk")]
    NoSpace,
    /// EROFS, EACCES, EPERM.
    #[error("the disk is read-only")]
    ReadOnly,
    /// EIO and everything else, short transfers included.
    #[error("the disk reports an error")]
    Io,
}

/// How a read of the disk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// All bytes came and have their checksums.
    Sound,
    /// All bytes came, a checksum is wrong.
    Corrupt,
    /// The disk failed.
    Failed(Fault),
    /// The reader went away before the disk was asked.
    Abandoned,
}

/// An input of the core.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Event {
    /// Write a version's bytes. Leads to `Appended`; until then the shell keeps the bytes.
    Append {
        write: WriteId,
        object: Arc<Descriptor>,
    },
    /// A version is retired for good. Leads to `Removed` as soon as it cannot come back. To be said of
    /// every version that was ever appended or recovered, before its absence is confirmed to anybody;
    /// the loss of a whole bucket by eviction (`Freed`) says it as well.
    Remove {
        remove: RemoveId,
        incarnation: Incarnation,
    },
    /// Read a range of a version. Leads to `Fetch` or `ReadRefused`.
    Read {
        read: ReadId,
        incarnation: Incarnation,
        offset: u64,
        len: u64,
    },
    /// A `Fetch` has ended; nothing reads the bucket for it any more.
    FetchEnd { fetch: FetchId, outcome: Fetched },
    /// A `Create`, `Write`, `Sync` or `Delete` has ended.
    Done { op: OpId, result: Result<(), Fault> },
    /// Answer to `Victim`: everything in the bucket has been retracted but `keep` (leased, hot, pinned,
    /// or refused), which is written anew.
    Verdict {
        bucket: BucketId,
        keep: Vec<Incarnation>,
    },
    /// Space of the file system, told every second or so.
    Space { free: u64, total: u64 },
    /// Time has passed. To be fed at [`Log::next_deadline`](crate::Log::next_deadline), and every second.
    Tick,
    /// Seal everything and end. Leads to `Stopped`.
    Stop,
}
