//! A log on a simulated disk, and an oracle that knows what may be read.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

pub mod disk;

use disk::{Change, Cut, Disk, Pending};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snowskin_ssd::effect::{AppendError, Counter, Effect, Grant, Payload, Purpose, State};
use snowskin_ssd::event::{Event, Fault, FetchId, Fetched, ReadId, RemoveId, WriteId};
use snowskin_ssd::format::record::{Acked, Descriptor, pieces_are_sound};
use snowskin_ssd::format::tombstone::Incarnation;
use snowskin_ssd::format::{BucketId, DiskId};
use snowskin_ssd::recover::{Recovered, Recovery};
use snowskin_ssd::sizing::Sizing;
use snowskin_ssd::{Config, Log};
use snowskin_types::checksum::{PieceSums, crc64};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::object::{Attributes, Shape};
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const DISK: DiskId = DiskId([7; 16]);
pub const LIMIT: u64 = 16 << 20;
pub const BUCKET: u64 = 1 << 20;

/// What the log answered, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Appended(Incarnation, Result<(), AppendError>),
    Removed(Incarnation),
    Read(Incarnation, Option<Vec<u8>>),
    Bad(Incarnation),
    Victim(BucketId, Vec<Incarnation>),
    Freed(BucketId, Vec<Incarnation>),
    State(State),
    Stopped,
}

/// What may be read, whatever happens.
#[derive(Debug, Default)]
pub struct Oracle {
    pub bytes: BTreeMap<Incarnation, Vec<u8>>,
    pub committed: BTreeSet<Incarnation>,
    /// Removal was asked for, or the version was retracted.
    pub doomed: BTreeSet<Incarnation>,
    /// The log said that it cannot come back.
    pub gone: BTreeSet<Incarnation>,
}

pub struct Rig {
    pub log: Log,
    /// What could not come back when the log was taken up.
    gone_before: BTreeSet<Incarnation>,
    doomed_before: BTreeSet<Incarnation>,
    /// What the log held when it was taken up, before anything else happened.
    taken_up: BTreeSet<Incarnation>,
    pub disk: Disk,
    pub oracle: Oracle,
    pub rng: ChaCha8Rng,
    pub now: Now,
    pub pending: Vec<Pending>,
    pub fetches: Vec<(FetchId, Purpose, Grant)>,
    pub told: Vec<Told>,
    pub counts: BTreeMap<Counter, u64>,
    /// Answers victims at once, keeping about this share of their records.
    pub keep_share: Option<f64>,
    /// The fault that changes meet from now on.
    pub fault: Option<Fault>,
    /// Disk operations that have ended.
    pub done: u64,
    copies: BTreeMap<FetchId, Vec<u8>>,
    writes: BTreeMap<WriteId, Incarnation>,
    removes: BTreeMap<RemoveId, Incarnation>,
    reads: BTreeMap<ReadId, Incarnation>,
    judged: BTreeSet<BucketId>,
    next: u64,
    opened: u64,
    /// Damage was done on purpose, so checksums may not fit.
    pub damaged: bool,
}

pub fn name(key: &str) -> ObjectName {
    ObjectName::new(Tenant::default(), Key::new(key.as_bytes()).unwrap())
}

pub fn version(counter: u64) -> Version {
    Version::from_raw(counter)
}

pub fn incarnation(key: &str, counter: u64) -> Incarnation {
    Incarnation {
        name: name(key),
        version: version(counter),
    }
}

pub fn describe(id: &Incarnation, bytes: &[u8]) -> Arc<Descriptor> {
    Arc::new(Descriptor {
        name: id.name.clone(),
        version: id.version,
        shape: Shape {
            size: bytes.len() as u64,
            checksum: crc64(bytes),
        },
        attributes: Attributes {
            hard_pin: id.version.raw().is_multiple_of(2),
            soft_pin: (id.version.raw().is_multiple_of(3)).then_some(Millis(7)),
            group: (id.version.raw().is_multiple_of(5)).then(|| "group".into()),
            data_type: id.version.raw() as u32 % 4,
        },
        sums: PieceSums::of(bytes),
        acked: Acked::Yes,
    })
}

pub fn recover(disk: &Disk) -> Recovered {
    let mut recovery = Recovery::new(DISK, disk.listing());
    let mut wanted = Vec::new();
    loop {
        wanted.clear();
        recovery.poll(&mut wanted);
        if wanted.is_empty() {
            break;
        }
        // The last asked for comes first.
        for read in wanted.drain(..).rev() {
            let bytes = disk.read(read.bucket, read.offset, read.bytes);
            recovery.read_done(read.bucket, bytes.ok_or(Fault::Io));
        }
    }
    assert!(recovery.is_complete());
    recovery.finish()
}

impl Rig {
    pub fn new(seed: u64) -> Self {
        let mut rig = Rig {
            log: Log::adopt(Now(0), config(0), Recovered::default(), &mut Vec::new()),
            taken_up: BTreeSet::new(),
            gone_before: BTreeSet::new(),
            doomed_before: BTreeSet::new(),
            disk: Disk::default(),
            oracle: Oracle::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: Now(0),
            pending: Vec::new(),
            fetches: Vec::new(),
            told: Vec::new(),
            counts: BTreeMap::new(),
            keep_share: Some(0.3),
            fault: None,
            done: 0,
            copies: BTreeMap::new(),
            writes: BTreeMap::new(),
            removes: BTreeMap::new(),
            reads: BTreeMap::new(),
            judged: BTreeSet::new(),
            next: 0,
            opened: 0,
            damaged: false,
        };
        rig.start();
        rig
    }

    /// A new process takes the slot up.
    pub fn start(&mut self) -> Recovered {
        let found = recover(&self.disk);
        assert_eq!(found, recover(&self.disk), "a second scan gives the same");
        for leftover in &found.leftovers {
            self.disk.files.remove(leftover);
        }
        self.opened += 1;
        let mut effects = Vec::new();
        self.log = Log::adopt(self.now, config(self.opened), found.clone(), &mut effects);
        self.taken_up = self.held();
        self.gone_before = self.oracle.gone.clone();
        self.doomed_before = self.oracle.doomed.clone();
        self.carry_out(effects);
        self.log.check().unwrap();
        found
    }

    /// The process ends in the middle of everything.
    pub fn cut(&mut self, cut: Cut) -> Recovered {
        let under_way = std::mem::take(&mut self.pending);
        self.disk.cut(cut, under_way, &mut self.rng);
        self.fetches.clear();
        self.copies.clear();
        self.writes.clear();
        self.removes.clear();
        self.reads.clear();
        self.judged.clear();
        self.fault = None;
        self.start()
    }

    pub fn event(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.log.handle(self.now, event, &mut effects);
        self.carry_out(effects);
        let used = self.disk.used();
        assert!(used <= LIMIT + BUCKET, "{used} bytes on the disk");
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn append(&mut self, id: &Incarnation, size: usize) {
        let bytes = match self.oracle.bytes.get(id) {
            Some(bytes) => bytes.clone(),
            None => {
                let mut bytes = vec![0; size];
                self.rng.fill_bytes(&mut bytes);
                self.oracle.bytes.insert(id.clone(), bytes.clone());
                bytes
            }
        };
        let write = WriteId(self.id());
        self.writes.insert(write, id.clone());
        let object = describe(id, &bytes);
        self.event(Event::Append { write, object });
    }

    pub fn remove(&mut self, id: &Incarnation) {
        let remove = RemoveId(self.id());
        self.oracle.doomed.insert(id.clone());
        self.removes.insert(remove, id.clone());
        self.event(Event::Remove {
            remove,
            incarnation: id.clone(),
        });
    }

    pub fn read(&mut self, id: &Incarnation, offset: u64, len: u64) {
        let read = ReadId(self.id());
        self.reads.insert(read, id.clone());
        self.event(Event::Read {
            read,
            incarnation: id.clone(),
            offset,
            len,
        });
    }

    pub fn verdict(&mut self, bucket: BucketId, objects: &[Incarnation], keep: Vec<Incarnation>) {
        for id in objects.iter().filter(|id| !keep.contains(id)) {
            self.oracle.doomed.insert(id.clone());
        }
        self.judged.insert(bucket);
        self.event(Event::Verdict { bucket, keep });
    }

    pub fn tick(&mut self, ms: u64) {
        self.now = self.now + Millis(ms);
        self.event(Event::Tick);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Create { op, bucket, bytes } => {
                    let change = Change::Create { bytes };
                    self.pending.push(Pending { op, bucket, change });
                }
                Effect::Write {
                    op,
                    bucket,
                    offset,
                    bytes,
                    head,
                    payload,
                } => {
                    let mut data = head;
                    match payload {
                        Payload::None => {}
                        Payload::Append(write) => {
                            let id = self.writes.get(&write).unwrap();
                            data.extend_from_slice(&self.oracle.bytes[id]);
                        }
                        Payload::Fetched(fetch) => data.extend_from_slice(&self.copies[&fetch]),
                    }
                    assert!(offset.is_multiple_of(4096) && bytes.is_multiple_of(4096));
                    assert!(data.len() as u64 <= bytes);
                    data.resize(bytes as usize, 0);
                    let change = Change::Write { offset, data };
                    self.pending.push(Pending { op, bucket, change });
                }
                Effect::Sync { op, bucket } => {
                    let upto = self.disk.sequence();
                    let change = Change::Sync { upto };
                    self.pending.push(Pending { op, bucket, change });
                }
                Effect::Delete { op, bucket } => {
                    assert!(self.judged.contains(&bucket), "deleted before retracted");
                    let reading = self.fetches.iter().any(|(.., g)| g.bucket == bucket);
                    assert!(!reading, "deleted while it is read");
                    let change = Change::Delete;
                    self.pending.push(Pending { op, bucket, change });
                }
                Effect::Fetch {
                    fetch,
                    purpose,
                    grant,
                } => self.fetches.push((fetch, purpose, grant)),
                Effect::Release { fetch } => {
                    self.copies.remove(&fetch);
                }
                Effect::Appended { write, result } => {
                    let id = self.writes[&write].clone();
                    if result.is_ok() {
                        assert!(self.log.holds(&id) || self.oracle.doomed.contains(&id));
                        self.oracle.committed.insert(id.clone());
                    }
                    self.told.push(Told::Appended(id, result));
                }
                Effect::Removed { remove } => {
                    let id = self.removes.remove(&remove).unwrap();
                    assert!(!self.log.holds(&id));
                    self.oracle.gone.insert(id.clone());
                    self.told.push(Told::Removed(id));
                }
                Effect::ReadRefused { read, .. } => {
                    let id = self.reads.remove(&read).unwrap();
                    self.told.push(Told::Read(id, None));
                }
                Effect::Bad { incarnation } => {
                    assert!(self.damaged, "a damaged record that nobody damaged");
                    self.told.push(Told::Bad(incarnation.clone()));
                    self.remove(&incarnation);
                }
                Effect::Victim { bucket, objects } => {
                    self.told.push(Told::Victim(bucket, objects.to_vec()));
                    if let Some(share) = self.keep_share {
                        let mut keep = objects.to_vec();
                        keep.retain(|_| self.rng.random_bool(share));
                        self.verdict(bucket, &objects, keep);
                    }
                }
                Effect::Freed { bucket, objects } => {
                    self.oracle.gone.extend(objects.iter().cloned());
                    self.told.push(Told::Freed(bucket, objects));
                }
                Effect::StateIs(state) => self.told.push(Told::State(state)),
                Effect::Stopped => self.told.push(Told::Stopped),
                Effect::Count { counter, by } => *self.counts.entry(counter).or_default() += by,
            }
        }
    }

    /// Ends one disk operation.
    pub fn complete(&mut self, place: usize) {
        self.done += 1;
        let pending = self.pending.remove(place);
        let result = match self.fault {
            Some(fault) => {
                if !matches!(pending.change, Change::Create { .. } | Change::Delete) {
                    self.disk.apply_part(&pending, &mut self.rng);
                }
                Err(fault)
            }
            None => {
                self.disk.apply(&pending);
                Ok(())
            }
        };
        let op = pending.op;
        self.event(Event::Done { op, result });
    }

    /// Ends one read of the disk.
    pub fn complete_fetch(&mut self, place: usize) {
        let (fetch, purpose, grant) = self.fetches.remove(place);
        let object = &grant.object;
        let id = Incarnation {
            name: object.name.clone(),
            version: object.version,
        };
        let bytes = self.disk.read(grant.bucket, grant.offset, grant.bytes);
        let bytes = bytes.map(|b| b[..grant.object_bytes as usize].to_vec());
        let mut got = None;
        let outcome = match bytes {
            None => Fetched::Failed(Fault::Io),
            Some(bytes) => {
                let size = object.shape.size;
                if pieces_are_sound(size, &object.sums, grant.first_piece, &bytes) {
                    let from = (grant.first_piece * (256 << 10)) as usize;
                    let right = &self.oracle.bytes[&id];
                    let whole = &right[from.min(right.len())..][..bytes.len()];
                    assert!(bytes == whole, "wrong bytes of {id:?}");
                    let skip = grant.skip as usize;
                    got = Some(bytes[skip..skip + grant.len as usize].to_vec());
                    if purpose == Purpose::Copy {
                        self.copies.insert(fetch, bytes);
                    }
                    Fetched::Sound
                } else {
                    Fetched::Corrupt
                }
            }
        };
        if let Purpose::Reader(read) = purpose
            && let Some(id) = self.reads.remove(&read)
        {
            self.told.push(Told::Read(id, got));
        }
        self.event(Event::FetchEnd { fetch, outcome });
    }

    /// Ends everything that is under way, in order, until nothing is.
    pub fn run(&mut self) {
        loop {
            if !self.pending.is_empty() {
                self.complete(0);
            } else if !self.fetches.is_empty() {
                self.complete_fetch(0);
            } else if self.log.next_deadline() != Now::NEVER && self.fault.is_none() {
                self.now = self.now.max(self.log.next_deadline());
                let before = self.log.next_deadline();
                self.event(Event::Tick);
                if self.pending.is_empty() && self.log.next_deadline() == before {
                    return;
                }
            } else {
                return;
            }
        }
    }

    /// Ends everything that is under way, in any order.
    pub fn shuffle_on(&mut self) {
        let all = self.pending.len() + self.fetches.len();
        if all == 0 {
            return;
        }
        let place = self.rng.random_range(0..all);
        match place.checked_sub(self.pending.len()) {
            Some(fetch) => self.complete_fetch(fetch),
            None => self.complete(place),
        }
    }

    pub fn held(&self) -> BTreeSet<Incarnation> {
        let all = self.log.held().map(|h| Incarnation {
            name: h.object.name.clone(),
            version: h.object.version,
        });
        all.collect()
    }

    /// Compares what is held after a cut with what may be, and reads all of it.
    pub fn judge(&mut self, cut: Cut) {
        let held = std::mem::take(&mut self.taken_up);
        for id in &held {
            assert!(self.oracle.bytes.contains_key(id), "{id:?} out of nowhere");
            assert!(!self.gone_before.contains(id), "{id:?} came back");
        }
        if cut == Cut::Kill && !self.damaged {
            for id in &self.oracle.committed {
                let newer = |h: &&Incarnation| h.name == id.name && h.version >= id.version;
                let there = held.iter().any(|h| newer(&h));
                let doomed = self.doomed_before.contains(id);
                assert!(there || doomed, "{id:?} was committed and is lost");
            }
        }
        for id in &self.held() {
            self.read(id, 0, u64::MAX);
        }
        while !self.fetches.is_empty() {
            self.complete_fetch(0);
        }
        // From here on only what has been found counts as committed.
        self.oracle.committed = self.held();
    }
}

pub fn config(opened: u64) -> Config {
    let mut config = Config::new(Sizing::of(LIMIT).unwrap(), DISK, opened, 99);
    config.writing_bytes_max = 4 << 20;
    config
}

impl Rig {
    /// Ends all changes of the disk; reads stay under way.
    pub fn run_changes(&mut self) {
        while !self.pending.is_empty() {
            self.complete(0);
        }
    }
}
