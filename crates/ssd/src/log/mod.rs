//! The planner of one disk slot: events in, effects out.
//!
//! The parts, each an `impl Log` of its own: `append` (placing and writing records), `remove` (tombstones in
//! groups), `read` (grants and pins), `seal` (from open to sealed), `evict` (victims, copies, deletion),
//! `health` (faults, space, hanging), `adopt` (what recovery found). Buckets are made, written, sealed,
//! and deleted whole; a version's entry in the `table` outlives its records for as long as one of them
//! may still be on the disk.

mod adopt;
mod append;
mod bucket;
mod evict;
mod health;
mod invariant;
mod read;
mod remove;
mod seal;
mod table;

pub use invariant::Violation;

use crate::effect::{Counter, Effect, Payload, State};
use crate::event::{Event, Fault, FetchId, OpId, WriteId};
use crate::format::bucket::BucketHeader;
use crate::format::record::{Acked, Descriptor};
use crate::format::tombstone::Incarnation;
use crate::format::{BLOCK_BYTES, BucketId, DiskId};
use crate::recover::Recovered;
use crate::sizing::Sizing;
use append::{Source, Waiting};
use bucket::{Bucket, Phase};
use evict::Eviction;
use health::Health;
use read::Fetch;
use remove::Tombs;
use snowskin_types::time::{Millis, Now};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use table::Table;

/// An operation of the disk that takes longer puts the slot under quarantine.
pub const HANG_AFTER: Millis = Millis(30_000);

/// Options of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How the limit is cut.
    pub sizing: Sizing,
    /// Which slot.
    pub disk: DiskId,
    /// The superblock's counter in this life.
    pub opened: u64,
    /// Seed of the table's hash; random outside of tests.
    pub seed: u64,
    /// Buckets that take records at a time, at least 1.
    pub open_max: usize,
    /// Bytes of appends accepted and not yet ended. One append is always accepted.
    pub writing_bytes_max: u64,
    /// Reads of the disk under way.
    pub fetches_max: usize,
}

impl Config {
    /// With the usual bounds.
    pub fn new(sizing: Sizing, disk: DiskId, opened: u64, seed: u64) -> Self {
        Config {
            sizing,
            disk,
            opened,
            seed,
            open_max: 2,
            writing_bytes_max: 64 << 20,
            fetches_max: 1024,
        }
    }
}

/// What an operation under way does.
#[derive(Debug)]
enum Task {
    Create,
    Header,
    Probe,
    Record {
        offset: u64,
        bytes: u64,
        source: Source,
        object: Arc<Descriptor>,
        /// Its writer was told that it hangs.
        given_up: bool,
    },
    Tombstones {
        bytes: u64,
    },
    GroupSync {
        bytes: u64,
    },
    RecordsSync,
    Index,
    IndexSync,
    Delete,
}

#[derive(Debug)]
struct Op {
    bucket: BucketId,
    task: Task,
    since: Now,
    hung: bool,
}

/// Figures of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Buckets there are.
    pub buckets: u64,
    /// Bytes of their files.
    pub disk_bytes: u64,
    /// Versions that the table knows, retired ones included.
    pub versions: u64,
    /// Bytes of appends accepted and not ended.
    pub writing_bytes: u64,
    /// Reads under way.
    pub fetches: u64,
}

/// A version that can be read, for the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The version.
    pub object: Arc<Descriptor>,
    /// Whether it was acknowledged when it was written.
    pub acked: Acked,
}

/// The log of one disk slot.
#[derive(Debug)]
pub struct Log {
    config: Config,
    now: Now,
    table: Table,
    buckets: BTreeMap<BucketId, Bucket>,
    disk_bytes: u64,
    next_bucket: u64,
    next_op: u64,
    next_fetch: u64,
    ops: BTreeMap<OpId, Op>,
    fetches: BTreeMap<FetchId, Fetch>,
    waiting: VecDeque<Waiting>,
    /// Bytes of appends and copies that wait or are being written.
    pending_bytes: u64,
    tombs: Tombs,
    eviction: Option<Eviction>,
    /// The next victim is not chosen before.
    evict_after: Now,
    /// Older versions found beside newer ones, whose tombstones are not durable yet.
    superseded: usize,
    opaque: usize,
    health: Health,
    state: State,
    stopping: bool,
}

impl Log {
    /// Takes up a slot with what recovery found in it (nothing, when it is new).
    pub fn adopt(
        now: Now,
        config: Config,
        recovered: Recovered,
        effects: &mut Vec<Effect>,
    ) -> Self {
        let mut log = Log {
            config,
            now,
            table: Table::new(config.seed),
            buckets: BTreeMap::new(),
            disk_bytes: 0,
            next_bucket: recovered.next_bucket,
            next_op: 0,
            next_fetch: 0,
            ops: BTreeMap::new(),
            fetches: BTreeMap::new(),
            waiting: VecDeque::new(),
            pending_bytes: 0,
            tombs: Tombs::default(),
            eviction: None,
            evict_after: Now::default(),
            superseded: 0,
            opaque: 0,
            health: Health::default(),
            state: State::Ok,
            stopping: false,
        };
        log.take_up(recovered);
        log.advance(effects);
        log
    }

    /// Takes an event.
    pub fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.now = now;
        match event {
            Event::Append { write, object } => self.append(write, object, effects),
            Event::Remove {
                remove,
                incarnation,
            } => self.remove(remove, incarnation, effects),
            Event::Read {
                read,
                incarnation,
                offset,
                len,
            } => self.read(read, &incarnation, offset, len, effects),
            Event::FetchEnd { fetch, outcome } => self.fetch_end(fetch, outcome, effects),
            Event::Done { op, result } => self.done(op, result, effects),
            Event::Verdict { bucket, keep } => self.verdict(bucket, &keep, effects),
            Event::Space { free, total } => self.space(free, total),
            Event::Tick => self.tick(effects),
            Event::Stop => self.stopping = true,
        }
        self.advance(effects);
        self.check_in_debug();
    }

    /// When `Tick` is due, besides its every second.
    pub fn next_deadline(&self) -> Now {
        self.tombs.due.unwrap_or(Now::NEVER)
    }

    /// Whether an append of so many bytes would be accepted now.
    pub fn accepts(&self, bytes: u64) -> bool {
        let pending = self.pending_bytes;
        self.state == State::Ok
            && !self.stopping
            && (pending == 0 || pending.saturating_add(bytes) <= self.config.writing_bytes_max)
    }

    /// The slot's condition.
    pub fn state(&self) -> State {
        self.state
    }

    /// Figures.
    pub fn figures(&self) -> Figures {
        Figures {
            buckets: self.buckets.len() as u64,
            disk_bytes: self.disk_bytes,
            versions: self.table.len() as u64,
            writing_bytes: self.pending_bytes,
            fetches: self.fetches.len() as u64,
        }
    }

    /// Everything that can be read, bucket by bucket.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.buckets.values().flat_map(|bucket| {
            bucket.items.iter().filter_map(|item| {
                let entry = self.table.get(&table::incarnation(&item.object))?;
                let live = entry.live.as_ref()?;
                let here = live.at.bucket == bucket.id && live.at.offset == item.offset;
                (here && !live.bad).then(|| Held {
                    object: Arc::clone(&item.object),
                    acked: item.object.acked,
                })
            })
        })
    }

    /// Whether a version can be read.
    pub fn holds(&self, incarnation: &Incarnation) -> bool {
        let live = self.table.get(incarnation).and_then(|e| e.live.as_ref());
        live.is_some_and(|l| !l.bad)
    }

    fn advance(&mut self, effects: &mut Vec<Effect>) {
        self.flush_tombstones(effects);
        self.place_waiting(effects);
        self.evict(effects);
        self.seal(effects);
        self.tell_state(effects);
        self.end(effects);
    }

    fn op(&mut self, bucket: BucketId, task: Task) -> OpId {
        self.next_op += 1;
        let op = OpId(self.next_op);
        let since = self.now;
        let hung = false;
        self.ops.insert(
            op,
            Op {
                bucket,
                task,
                since,
                hung,
            },
        );
        op
    }

    fn create(&mut self, effects: &mut Vec<Effect>) {
        let bucket = BucketId(self.next_bucket);
        self.next_bucket += 1;
        let bytes = self.config.sizing.bucket_bytes;
        self.buckets.insert(bucket, Bucket::new(bucket, bytes));
        self.disk_bytes += bytes;
        let op = self.op(bucket, Task::Create);
        effects.push(Effect::Create { op, bucket, bytes });
    }

    /// Writes the bucket's first block; the same bytes every time.
    fn write_header(&mut self, bucket: BucketId, task: Task, effects: &mut Vec<Effect>) {
        let Some(found) = self.buckets.get_mut(&bucket) else {
            return;
        };
        found.writes += 1;
        let header = BucketHeader {
            bucket,
            bytes: found.bytes,
            opened: self.config.opened,
        };
        let head = header.encode(self.config.disk);
        let op = self.op(bucket, task);
        effects.push(Effect::Write {
            op,
            bucket,
            offset: 0,
            bytes: BLOCK_BYTES,
            head,
            payload: Payload::None,
        });
    }

    fn done(&mut self, id: OpId, result: Result<(), Fault>, effects: &mut Vec<Effect>) {
        let Some(op) = self.ops.remove(&id) else {
            count(effects, Counter::Odd, 1);
            return;
        };
        let bucket = op.bucket;
        self.note_result(id, &op.task, result, effects);
        let written = |log: &mut Self, bytes: u64| {
            if let Some(found) = log.buckets.get_mut(&bucket) {
                found.writes = found.writes.saturating_sub(1);
                found.writing_bytes = found.writing_bytes.saturating_sub(bytes);
            }
        };
        match op.task {
            Task::Create => self.created(bucket, result, effects),
            Task::Header | Task::Probe => written(self, 0),
            Task::Record {
                offset,
                bytes,
                source,
                object,
                given_up,
            } => {
                written(self, bytes);
                let end = append::RecordEnd {
                    bucket,
                    offset,
                    bytes,
                    source,
                    object,
                    given_up,
                };
                self.record_written(end, result, effects);
            }
            Task::Tombstones { bytes } => {
                // The write counts until it is synced: a bucket is not sealed before its index can
                // name the tombstones.
                if result.is_err() {
                    written(self, bytes);
                }
                self.group_written(bucket, bytes, result, effects);
            }
            Task::GroupSync { bytes } => {
                written(self, bytes);
                self.group_synced(bucket, result, effects);
            }
            Task::RecordsSync | Task::Index | Task::IndexSync => {
                self.seal_step(bucket, &op.task, result, effects);
            }
            Task::Delete => self.deleted(bucket, result, effects),
        }
    }

    fn created(&mut self, bucket: BucketId, result: Result<(), Fault>, effects: &mut Vec<Effect>) {
        match result {
            Ok(()) => {
                if let Some(found) = self.buckets.get_mut(&bucket) {
                    found.phase = Phase::Open;
                }
                self.write_header(bucket, Task::Header, effects);
            }
            // A creation that fails leaves no file behind.
            Err(_) => {
                if let Some(gone) = self.buckets.remove(&bucket) {
                    self.disk_bytes -= gone.bytes;
                }
            }
        }
    }

    fn end(&mut self, effects: &mut Vec<Effect>) {
        if !self.stopping || self.health.ended || !self.ops.is_empty() {
            return;
        }
        // A disk that does not write is left as it is: the next start scans.
        if self.writes_upkeep() && !self.tombs.is_idle() {
            return;
        }
        let open =
            |b: &Bucket| !matches!(b.phase, Phase::Sealed | Phase::Unsealed | Phase::Evicting);
        if self.writes_upkeep() && self.buckets.values().any(open) {
            return;
        }
        self.health.ended = true;
        effects.push(Effect::Stopped);
        self.tell_state(effects);
    }
}

/// Counts.
fn count(effects: &mut Vec<Effect>, counter: Counter, by: u64) {
    effects.push(Effect::Count { counter, by });
}

/// Answers an append.
fn answer(
    effects: &mut Vec<Effect>,
    write: WriteId,
    result: Result<(), crate::effect::AppendError>,
) {
    effects.push(Effect::Appended { write, result });
}
