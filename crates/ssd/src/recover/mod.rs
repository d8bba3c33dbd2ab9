//! What is on a slot after a restart: sealed buckets from their indexes, others by scanning.
//!
//! Sans-IO like the rest: the shell lists the directory, then carries out the reads that
//! [`Recovery::poll`] wants and hands the bytes to [`Recovery::read_done`]. Nothing here fails: a file
//! that is not what it seems costs what is wrong in it, and is counted.

mod scan;

use crate::event::Fault;
use crate::format::bucket::parse_file_name;
use crate::format::record::Descriptor;
use crate::format::tombstone::Incarnation;
use crate::format::{BucketId, DiskId};
use crate::sizing::is_bucket_size;
use scan::{Scan, Step};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Reads under way at a time, one per bucket.
pub const READS_MAX: usize = 32;
/// Bytes of reads under way at a time; one read is always allowed.
pub const READ_BYTES_MAX: u64 = 32 << 20;

/// What a directory entry is. Links are not followed to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// Anything else: directory, symbolic link, device.
    Other,
}

/// An entry of the slot's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Its length.
    pub bytes: u64,
}

/// A read that recovery wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// From which bucket. There is at most one read of a bucket at a time.
    pub bucket: BucketId,
    /// Where, a multiple of 4 KiB.
    pub offset: u64,
    /// How much, a multiple of 4 KiB that ends within the file.
    pub bytes: u64,
}

/// What happened, for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Buckets found by their index.
    pub sealed: u64,
    /// Buckets that were scanned.
    pub scanned: u64,
    /// Indexes that were damaged, so that their buckets were scanned.
    pub damaged_indexes: u64,
    /// Records that were torn or damaged and are left out, now or when their bucket was sealed.
    pub damaged_records: u64,
    /// Reads that failed.
    pub read_faults: u64,
    /// Entries of other names or kinds, left alone.
    pub foreign: u64,
    /// Files named like a bucket whose length no bucket has, left alone.
    pub misfits: u64,
}

/// What one bucket holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBucket {
    /// Which.
    pub bucket: BucketId,
    /// Bytes of its file.
    pub bytes: u64,
    /// It has a sound index, so that all it names was synced.
    pub sealed: bool,
    /// Some of it could not be read now: it may hold anything.
    pub opaque: bool,
    /// Records left out.
    pub damaged: u32,
    /// Where the last record ends.
    pub end: u64,
    /// Records, and where they begin.
    pub objects: Vec<(u64, Arc<Descriptor>)>,
    /// Versions of which a record may be there that does not count.
    pub voids: Vec<Incarnation>,
    /// Versions retired here.
    pub tombstones: Vec<Incarnation>,
}

/// What a slot holds, to be given to [`Log::adopt`](crate::Log::adopt).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Buckets in the order of their numbers.
    pub buckets: Vec<FoundBucket>,
    /// Number of the next new bucket.
    pub next_bucket: u64,
    /// Empty files that a creation left behind; the shell deletes them.
    pub leftovers: Vec<BucketId>,
    /// What happened.
    pub counts: Counts,
}

/// Recovery of one slot under way.
#[derive(Debug)]
pub struct Recovery {
    disk: DiskId,
    queue: VecDeque<(BucketId, u64)>,
    /// Buckets in hand, each with the bytes of its read under way.
    active: BTreeMap<BucketId, (Scan, Option<Wanted>)>,
    reading: u64,
    found: Recovered,
}

impl Recovery {
    /// Begins with the entries of the slot's directory.
    pub fn new(disk: DiskId, listing: impl IntoIterator<Item = Listed>) -> Self {
        let mut found = Recovered::default();
        let mut queue = Vec::new();
        for entry in listing {
            let ours = entry.name == crate::format::superblock::FILE_NAME.as_bytes();
            match (parse_file_name(&entry.name), entry.kind) {
                (Some(bucket), kind) => {
                    found.next_bucket = found.next_bucket.max(bucket.0 + 1);
                    match (kind, entry.bytes) {
                        (FileKind::Other, _) => found.counts.foreign += 1,
                        (FileKind::File, 0) => found.leftovers.push(bucket),
                        (FileKind::File, bytes) if is_bucket_size(bytes) => {
                            queue.push((bucket, bytes));
                        }
                        (FileKind::File, _) => found.counts.misfits += 1,
                    }
                }
                (None, FileKind::File) if ours => {}
                (None, _) => found.counts.foreign += 1,
            }
        }
        queue.sort_unstable();
        queue.dedup_by_key(|(bucket, _)| *bucket);
        Recovery {
            disk,
            queue: queue.into(),
            active: BTreeMap::new(),
            reading: 0,
            found,
        }
    }

    /// Appends the reads that may be begun now. None, and none under way, means the end.
    pub fn poll(&mut self, wanted: &mut Vec<Wanted>) {
        while self.active.len() < READS_MAX
            && let Some((bucket, bytes)) = self.queue.pop_front()
        {
            let scan = Scan::new(self.disk, bucket, bytes);
            self.active.insert(bucket, (scan, None));
        }
        for (bucket, (scan, under_way)) in &mut self.active {
            if under_way.is_some() {
                continue;
            }
            let (offset, bytes) = scan.wants();
            if self.reading > 0 && self.reading.saturating_add(bytes) > READ_BYTES_MAX {
                break;
            }
            self.reading += bytes;
            let next = Wanted {
                bucket: *bucket,
                offset,
                bytes,
            };
            *under_way = Some(next);
            wanted.push(next);
        }
    }

    /// Takes the end of a read; fewer bytes than wanted count as a fault.
    pub fn read_done(&mut self, bucket: BucketId, result: Result<&[u8], Fault>) {
        let Some((scan, under_way)) = self.active.get_mut(&bucket) else {
            return;
        };
        let Some(wanted) = under_way.take() else {
            return;
        };
        self.reading -= wanted.bytes;
        let whole = result.and_then(|bytes| {
            let len = usize::try_from(wanted.bytes).map_err(|_| Fault::Io)?;
            bytes.get(..len).ok_or(Fault::Io)
        });
        if scan.take(whole, &mut self.found.counts) != Step::Done {
            return;
        }
        if let Some((scan, _)) = self.active.remove(&bucket) {
            let found = scan.finish();
            let counts = &mut self.found.counts;
            counts.damaged_records += u64::from(found.damaged);
            if found.sealed {
                counts.sealed += 1;
            } else {
                counts.scanned += 1;
            }
            self.found.buckets.push(found);
        }
    }

    /// Whether nothing is left to be read.
    pub fn is_complete(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty()
    }

    /// What was found; complete when [`Recovery::is_complete`].
    pub fn finish(mut self) -> Recovered {
        self.found.buckets.sort_by_key(|b| b.bucket);
        self.found
    }
}
