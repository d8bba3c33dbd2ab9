//! A store, a clock, and a master that answers as the test says.

use snowskin_store::effect::{Counter, Effect, ReadGrant};
use snowskin_store::event::{Event, Filled, LinkId, ReadId, WriteId};
use snowskin_store::{Config, Store};
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::checksum::{PieceSums, piece_count};
use snowskin_types::error::Failure;
use snowskin_types::id::{ClusterId, Epoch, Seq, Session, Term};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::link::{FromNode, ItemResult, NodeItem, Register, Stamp, ToNode};
use snowskin_types::object::Attributes;
use snowskin_types::policy::ClusterPolicy;
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::collections::BTreeMap;

pub const EPOCH: Epoch = Epoch(77);
pub const CLUSTER: ClusterId = ClusterId(5);
pub const KIB: u64 = 1024;

pub fn name(key: &str) -> ObjectName {
    ObjectName::new(Tenant::default(), Key::new(key.as_bytes()).unwrap())
}

pub fn v(n: u64) -> Version {
    Version::new(Term(1), n).unwrap()
}

/// A node that evicts only for writes that wait.
pub fn config(capacity: u64) -> Config {
    Config {
        eviction_high: Some(1.0),
        eviction_ratio: Some(0.0),
        ..Config::new("node:1", EPOCH, capacity)
    }
}

pub fn write_of(key: &str, version: Version, size: u64) -> WriteRequest {
    WriteRequest {
        epoch: EPOCH,
        name: name(key),
        version,
        size,
        sums: PieceSums((0..piece_count(size)).collect()),
        attributes: Attributes::default(),
        patience: Millis(10_000),
    }
}

pub fn read_of(key: &str, version: Version) -> ReadRequest {
    ReadRequest {
        epoch: EPOCH,
        name: name(key),
        version,
        offset: 0,
        len: u64::MAX,
    }
}

/// A batch on the wire.
#[derive(Debug, Clone)]
pub struct Sent {
    pub session: Session,
    pub seq: Seq,
    pub items: Vec<NodeItem>,
}

pub struct Bench {
    pub store: Store,
    pub now: Now,
    pub link: LinkId,
    pub session: Session,
    pub policy: ClusterPolicy,
    /// Batches not taken yet, in the order they were sent.
    pub batches: Vec<Sent>,
    pub registers: Vec<Register>,
    pub pongs: Vec<FromNode>,
    pub answers: BTreeMap<WriteId, Result<(), Failure>>,
    pub grants: BTreeMap<WriteId, Vec<(u64, u64)>>,
    pub serves: BTreeMap<ReadId, Result<ReadGrant, Failure>>,
    /// Everything else.
    pub others: Vec<Effect>,
    pub counts: BTreeMap<Counter, u64>,
    /// Planted faults break the invariants on purpose.
    pub unchecked: bool,
    tokens: u64,
}

impl Bench {
    /// A store without a link.
    pub fn bare(config: Config) -> Self {
        Bench {
            store: Store::new(Now(1_000), config).unwrap(),
            now: Now(1_000),
            link: LinkId(0),
            session: Session::default(),
            policy: ClusterPolicy::default(),
            batches: Vec::new(),
            registers: Vec::new(),
            pongs: Vec::new(),
            answers: BTreeMap::new(),
            grants: BTreeMap::new(),
            serves: BTreeMap::new(),
            others: Vec::new(),
            counts: BTreeMap::new(),
            unchecked: false,
            tokens: 0,
        }
    }

    /// A registered store with an empty inventory.
    pub fn with(config: Config) -> Self {
        let mut bench = Self::bare(config);
        bench.register(1);
        bench.ack_all();
        assert!(bench.store.is_inventoried());
        bench
    }

    pub fn new(capacity: u64) -> Self {
        Self::with(config(capacity))
    }

    pub fn feed(&mut self, event: Event) {
        let mut out = Vec::new();
        self.store.handle(self.now, event, &mut out);
        // Linear in what is held, so large stores are checked by their tests' results only.
        if !self.unchecked && self.store.usage().replicas < 300 {
            self.store.check().unwrap();
        }
        for effect in out {
            self.note(effect);
        }
    }

    fn note(&mut self, effect: Effect) {
        match effect {
            Effect::Count { counter, by } => *self.counts.entry(counter).or_default() += by,
            Effect::Send { message, .. } => match message {
                FromNode::Batch {
                    session,
                    seq,
                    items,
                } => self.batches.push(Sent {
                    session,
                    seq,
                    items,
                }),
                FromNode::Register(register) => self.registers.push(register),
                pong => self.pongs.push(pong),
            },
            Effect::Answer { write, result } => {
                let before = self.answers.insert(write, result);
                assert!(before.is_none(), "{write:?} answered twice");
            }
            Effect::Grant { write, extents } => {
                let extents = extents.iter().map(|e| (e.offset, e.len)).collect();
                self.grants.insert(write, extents);
            }
            Effect::Serve { read, grant } => {
                self.serves.insert(read, Ok(grant));
            }
            Effect::Refuse { read, failure } => {
                self.serves.insert(read, Err(failure));
            }
            other => self.others.push(other),
        }
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.counts.get(&counter).copied().unwrap_or(0)
    }

    /// Lets time pass in the steps that the store asks for, with pings that keep it serving.
    pub fn pass(&mut self, span: u64) {
        let end = self.now + Millis(span);
        while self.now < end {
            let due = self.store.next_deadline().max(self.now + Millis(1));
            self.now = due.min(end).min(self.now + Millis(20));
            if self.store.session().is_some() {
                let (session, confirmed) = (self.session, Stamp(self.now.0));
                self.master(ToNode::Ping {
                    session,
                    nonce: 1,
                    confirmed,
                });
            }
            self.feed(Event::Tick);
        }
    }

    /// Lets time pass without a word of the master.
    pub fn silence(&mut self, span: u64) {
        self.now = self.now + Millis(span);
        self.feed(Event::Tick);
    }

    pub fn master(&mut self, message: ToNode) {
        let link = self.link;
        self.feed(Event::Master { link, message });
    }

    /// Opens a link and registers under session (term, n) with the next n.
    pub fn register(&mut self, term: u32) {
        self.link = LinkId(self.link.0 + 1);
        self.feed(Event::LinkUp { link: self.link });
        let n = if self.session.term == Term(term) {
            self.session.n + 1
        } else {
            1
        };
        self.session = Session {
            term: Term(term),
            n,
        };
        let stamp = self.registers.last().unwrap().stamp;
        self.master(ToNode::Registered {
            session: self.session,
            cluster: CLUSTER,
            stamp,
            serving: Millis(5_000),
            policy: self.policy,
        });
    }

    pub fn lose_link(&mut self) {
        self.feed(Event::LinkLost { link: self.link });
    }

    pub fn take(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.batches)
    }

    /// Items sent since the last look.
    pub fn items(&mut self) -> Vec<NodeItem> {
        self.take()
            .into_iter()
            .flat_map(|sent| sent.items)
            .collect()
    }

    pub fn ack(&mut self, sent: &Sent, results: &[ItemResult]) {
        let results = (0..).zip(results.iter().copied()).collect();
        self.master(ToNode::Ack {
            session: sent.session,
            seq: sent.seq,
            results,
        });
    }

    /// Answers everything with `Ok` until nothing more comes; returns what was answered.
    pub fn ack_all(&mut self) -> Vec<NodeItem> {
        self.ack_with(|_| ItemResult::Ok)
    }

    pub fn ack_with(&mut self, answer: impl Fn(&NodeItem) -> ItemResult) -> Vec<NodeItem> {
        let mut items = Vec::new();
        loop {
            let batches = self.take();
            if batches.is_empty() {
                return items;
            }
            for sent in batches {
                let results: Vec<_> = sent.items.iter().map(&answer).collect();
                self.ack(&sent, &results);
                items.extend(sent.items);
            }
        }
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    pub fn start_write(&mut self, request: WriteRequest) -> WriteId {
        let write = WriteId(self.token());
        self.feed(Event::WriteStart { write, request });
        write
    }

    pub fn end_write(&mut self, write: WriteId, filled: Filled) {
        self.feed(Event::WriteEnd { write, filled });
    }

    /// Writes and commits; the publish is sent, or queued.
    pub fn commit(&mut self, key: &str, version: Version, size: u64) -> WriteId {
        self.commit_as(write_of(key, version, size))
    }

    pub fn commit_as(&mut self, request: WriteRequest) -> WriteId {
        let write = self.start_write(request);
        assert!(
            self.grants.contains_key(&write),
            "{:?}",
            self.answers.get(&write)
        );
        self.end_write(write, Filled::Sound);
        write
    }

    /// Writes, commits and publishes.
    pub fn put(&mut self, key: &str, version: Version, size: u64) {
        let write = self.commit(key, version, size);
        self.ack_all();
        assert_eq!(self.answers.get(&write), Some(&Ok(())), "{key}");
    }

    pub fn start_read(&mut self, request: ReadRequest) -> ReadId {
        let read = ReadId(self.token());
        self.feed(Event::ReadStart { read, request });
        read
    }

    /// Starts a read that is served.
    pub fn serve(&mut self, key: &str, version: Version) -> ReadId {
        let read = self.start_read(read_of(key, version));
        assert!(self.serves[&read].is_ok(), "{:?}", self.serves[&read]);
        read
    }

    pub fn end_read(&mut self, read: ReadId) {
        self.feed(Event::ReadEnd { read });
    }

    /// The code of a write's refusal.
    pub fn code(&self, write: WriteId) -> i32 {
        match self.answers.get(&write) {
            Some(Err(failure)) => failure.code.number(),
            other => panic!("{write:?}: {other:?}"),
        }
    }

    /// The code of a fresh read's refusal, zero when it is served (and ended again).
    pub fn read_code(&mut self, request: ReadRequest) -> i32 {
        let read = self.start_read(request);
        match self.serves.remove(&read) {
            Some(Ok(_)) => {
                self.end_read(read);
                0
            }
            Some(Err(failure)) => failure.code.number(),
            None => panic!("{read:?} not answered"),
        }
    }

    pub fn used(&self) -> u64 {
        self.store.usage().used
    }
}

pub fn absent(item: &NodeItem) -> Option<Version> {
    match item {
        NodeItem::Absent { version, .. } => Some(*version),
        _ => None,
    }
}

pub fn published(item: &NodeItem) -> Option<Version> {
    match item {
        NodeItem::Publish { version, .. } => Some(*version),
        _ => None,
    }
}

pub fn retracted(item: &NodeItem) -> Option<Version> {
    match item {
        NodeItem::Retract { version, .. } => Some(*version),
        _ => None,
    }
}
