//! A directory with nodes that answer as told, for tests.

use crate::config::Config;
use crate::directory::Directory;
use crate::effect::{Counter, Effect, KnownNode, Record, Restored};
use crate::event::{Event, LinkId, PersistId, RequestId};
use snowskin_types::call::*;
use snowskin_types::id::{ClientId, ClusterId, Epoch, NodeId, Seq, Session, Term};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::link::{FromNode, ItemResult, NodeItem, Register, Stamp, ToNode};
use snowskin_types::object::{Attributes, Shape, Tier};
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::collections::BTreeMap;

pub(crate) const SIZE: u64 = 1000;
pub(crate) const CAPACITY: u64 = 1_000_000;

pub(crate) struct World {
    pub(crate) d: Directory,
    pub(crate) now: Now,
    pub(crate) effects: Vec<Effect>,
    /// Durable writes are answered at once with this, unless held.
    pub(crate) disk_ok: bool,
    pub(crate) hold_disk: bool,
    pub(crate) records: Vec<(PersistId, Record)>,
    /// Ping every node's session and answer, when time passes.
    pub(crate) pongs: BTreeMap<LinkId, bool>,
    next_request: u64,
    next_link: u64,
    seqs: BTreeMap<LinkId, u64>,
    pub(crate) sessions: BTreeMap<LinkId, Session>,
    pub(crate) counts: BTreeMap<Counter, u64>,
}

pub(crate) fn node_id(n: u64) -> NodeId {
    NodeId::from_address(&format!("host{n}:1"))
}

pub(crate) fn tenant() -> Tenant {
    Tenant::default()
}

pub(crate) fn keys(names: &[&str]) -> Keys {
    let mut keys = Keys::new();
    for name in names {
        keys.push(name.as_bytes()).unwrap();
    }
    keys
}

pub(crate) fn name(key: &str) -> ObjectName {
    ObjectName::new(tenant(), Key::new(key.as_bytes()).unwrap())
}

pub(crate) fn version(term: u32, counter: u64) -> Version {
    Version::new(Term(term), counter).unwrap()
}

pub(crate) fn publish(key: &str, version: Version) -> NodeItem {
    NodeItem::Publish {
        name: name(key),
        version,
        shape: Shape {
            size: SIZE,
            checksum: version.raw(),
        },
        tier: Tier::Dram,
        attributes: Attributes::default(),
        acked: false,
        inventory: false,
    }
}

pub(crate) fn told(key: &str, version: Version, was_acked: bool) -> NodeItem {
    match publish(key, version) {
        NodeItem::Publish {
            name,
            version,
            shape,
            tier,
            attributes,
            ..
        } => NodeItem::Publish {
            name,
            version,
            shape,
            tier,
            attributes,
            acked: was_acked,
            inventory: true,
        },
        other => other,
    }
}

pub(crate) fn with(item: NodeItem, new: Attributes) -> NodeItem {
    match item {
        NodeItem::Publish {
            name,
            version,
            shape,
            tier,
            acked,
            inventory,
            ..
        } => NodeItem::Publish {
            name,
            version,
            shape,
            tier,
            attributes: new,
            acked,
            inventory,
        },
        other => other,
    }
}

pub(crate) fn retract(key: &str, version: Version) -> NodeItem {
    NodeItem::Retract {
        name: name(key),
        version,
        bad: false,
    }
}

pub(crate) fn absent(key: &str, version: Version) -> NodeItem {
    NodeItem::Absent {
        name: name(key),
        version,
    }
}

pub(crate) fn item(size: u64, replicas: u32) -> Reserve {
    Reserve {
        size,
        replicas,
        ..Reserve::default()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::restored(1, Vec::new())
    }

    pub(crate) fn restored(term: u32, nodes: Vec<KnownNode>) -> Self {
        Self::with_config(term, nodes, Config::default())
    }

    pub(crate) fn with_config(term: u32, nodes: Vec<KnownNode>, config: Config) -> Self {
        let restored = Restored {
            cluster: ClusterId(7),
            term: Term(term),
            nodes,
        };
        let now = Now(1_000_000);
        let (d, effects) = Directory::new(now, config, restored);
        World {
            d,
            now,
            effects,
            disk_ok: true,
            hold_disk: false,
            records: Vec::new(),
            pongs: BTreeMap::new(),
            next_request: 0,
            next_link: 0,
            seqs: BTreeMap::new(),
            sessions: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// A directory with nodes 1 to `n`, all alive and empty.
    pub(crate) fn nodes(n: u64) -> (Self, Vec<LinkId>) {
        let mut w = Self::new();
        let links = (1..=n).map(|i| w.join(i, i)).collect();
        w.clear();
        (w, links)
    }

    pub(crate) fn clear(&mut self) {
        self.effects.clear();
    }

    /// Feeds an event, and what follows from it by itself (durable writes, slices).
    pub(crate) fn feed(&mut self, event: Event) {
        let mut queue = std::collections::VecDeque::from([event]);
        let mut steps = 0;
        while let Some(event) = queue.pop_front() {
            let mut out = Vec::new();
            self.d.handle(self.now, event, &mut out);
            self.d.check().unwrap();
            for effect in &out {
                match effect {
                    Effect::Persist { id, record } => {
                        self.records.push((*id, record.clone()));
                        if !self.hold_disk {
                            let done = self.disk_ok;
                            queue.push_back(Event::Persisted { id: *id, done });
                        }
                    }
                    Effect::Continue => queue.push_back(Event::Tick),
                    Effect::Count { counter, by } => {
                        *self.counts.entry(*counter).or_default() += by
                    }
                    Effect::Send {
                        link,
                        message: ToNode::Registered { session, .. },
                    } => {
                        self.sessions.insert(*link, *session);
                    }
                    _ => {}
                }
            }
            self.effects.extend(out);
            steps += 1;
            assert!(steps < 100_000, "work without end");
        }
    }

    pub(crate) fn answer_disk(&mut self, done: bool) {
        let answered: Vec<PersistId> = self.records.iter().map(|(id, _)| *id).collect();
        for id in answered {
            self.feed(Event::Persisted { id, done });
        }
    }

    /// Lets time pass in ticks of 100 ms; nodes whose link is in `pongs` answer each ping.
    pub(crate) fn pass(&mut self, span: u64) {
        let end = self.now.0 + span;
        while self.now.0 < end {
            self.now = Now((self.now.0 + 100).min(end));
            let from = self.effects.len();
            self.feed(Event::Tick);
            let pings: Vec<_> = self.effects[from..].to_vec();
            for effect in pings {
                if let Effect::Send {
                    link,
                    message: ToNode::Ping { session, nonce, .. },
                } = effect
                    && self.pongs.get(&link).copied().unwrap_or(false)
                {
                    self.pong(link, session, nonce);
                }
            }
        }
    }

    pub(crate) fn pong(&mut self, link: LinkId, session: Session, nonce: u64) {
        let message = FromNode::Pong {
            session,
            nonce,
            stamp: Stamp(self.now.0),
            used: 0,
            largest_free: CAPACITY,
            policy: None,
            figures: None,
        };
        self.feed(Event::Node { link, message });
    }

    pub(crate) fn register(&mut self, n: u64, epoch: u64) -> Register {
        Register {
            node: node_id(n),
            epoch: Epoch(epoch),
            address: format!("host{n}:1").into(),
            host: "host".into(),
            capacity: CAPACITY,
            largest: CAPACITY,
            cluster: None,
            last_session: Session::default(),
            holds: 0,
            stamp: Stamp(self.now.0),
        }
    }

    pub(crate) fn link(&mut self, register: Register) -> LinkId {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        self.pongs.insert(link, true);
        let message = FromNode::Register(register);
        self.feed(Event::Node { link, message });
        link
    }

    /// A node that has nothing: registers and tells so.
    pub(crate) fn join(&mut self, n: u64, epoch: u64) -> LinkId {
        let register = self.register(n, epoch);
        let link = self.link(register);
        self.tell(link, vec![NodeItem::InventoryEnd]);
        link
    }

    /// A node that had a session: registers, without its inventory.
    pub(crate) fn rejoin(&mut self, n: u64, epoch: u64) -> LinkId {
        let mut register = self.register(n, epoch);
        register.holds = 1;
        register.last_session.n = 1;
        self.link(register)
    }

    pub(crate) fn lose(&mut self, link: LinkId) {
        self.feed(Event::LinkLost { link });
    }

    /// Sends items under the next number; returns their results (the first answer of each).
    pub(crate) fn tell(&mut self, link: LinkId, items: Vec<NodeItem>) -> Vec<ItemResult> {
        let seq = self.seqs.entry(link).or_default();
        *seq += 1;
        let seq = *seq;
        self.tell_at(link, seq, items)
    }

    pub(crate) fn tell_at(
        &mut self,
        link: LinkId,
        seq: u64,
        items: Vec<NodeItem>,
    ) -> Vec<ItemResult> {
        let from = self.effects.len();
        let session = self.sessions.get(&link).copied().unwrap_or_default();
        let message = FromNode::Batch {
            session,
            seq: Seq(seq),
            items,
        };
        self.feed(Event::Node { link, message });
        acks(&self.effects[from..], link, seq)
    }

    pub(crate) fn ask(&mut self, request: Request) -> RequestId {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        self.feed(Event::Request { id, request });
        id
    }

    pub(crate) fn answer(&self, id: RequestId) -> Option<Reply> {
        let mut answers = self.effects.iter().filter_map(|e| match e {
            Effect::Reply { id: i, reply } if *i == id => Some(reply.clone()),
            _ => None,
        });
        let answer = answers.next();
        assert!(answers.next().is_none(), "two answers");
        answer
    }

    pub(crate) fn call(&mut self, request: Request) -> Reply {
        let id = self.ask(request);
        self.answer(id).expect("answered at once")
    }

    pub(crate) fn reserve(
        &mut self,
        names: &[&str],
        item: Reserve,
    ) -> (Vec<Reserved>, Vec<NodeId>) {
        let request = Request::Reserve {
            client: ClientId(1),
            tenant: tenant(),
            keys: keys(names),
            items: vec![item; names.len()],
        };
        match self.call(request) {
            Reply::Reserved { items, places } => (items, places.iter().map(|p| p.node).collect()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn place(&mut self, key: &str, item: Reserve) -> Version {
        match &self.reserve(&[key], item).0[0] {
            Reserved::Placed { version, .. } => *version,
            other => panic!("{other:?}"),
        }
    }

    /// Puts a key at one node, which answers the publish.
    pub(crate) fn put(&mut self, link: LinkId, n: u64, key: &str) -> Version {
        let mut it = item(SIZE, 1);
        it.preferred = vec![node_id(n)];
        let v = self.place(key, it);
        assert_eq!(self.tell(link, vec![publish(key, v)]), [ItemResult::Ok]);
        v
    }

    pub(crate) fn replace_at(&mut self, n: u64, key: &str) -> Version {
        let mut it = item(SIZE, 1);
        it.mode = PutMode::Replace;
        it.preferred = vec![node_id(n)];
        self.place(key, it)
    }

    pub(crate) fn locate_request(names: &[&str]) -> Request {
        Request::Locate {
            tenant: tenant(),
            keys: keys(names),
            lease: None,
        }
    }

    pub(crate) fn locate(&mut self, key: &str) -> Located {
        match self.call(Self::locate_request(&[key])) {
            Reply::Located { mut items, .. } => items.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// The version that a look-up finds, if any.
    pub(crate) fn found(&mut self, key: &str) -> Option<Version> {
        match self.locate(key) {
            Located::Found { version, .. } => Some(version),
            _ => None,
        }
    }

    pub(crate) fn exists_request(names: &[&str]) -> Request {
        Request::Exists {
            tenant: tenant(),
            keys: keys(names),
            lease: None,
        }
    }

    pub(crate) fn exists(&mut self, key: &str) -> Existing {
        match self.call(Self::exists_request(&[key])) {
            Reply::Exists(mut items) => items.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn remove_request(names: &[&str], force: bool) -> Request {
        Request::Remove {
            tenant: tenant(),
            keys: keys(names),
            force,
        }
    }

    pub(crate) fn report(&mut self, key: &str, v: Version, n: u64, epoch: u64, fault: Fault) {
        let request = Request::Report {
            tenant: tenant(),
            key: Key::new(key.as_bytes()).unwrap(),
            version: v,
            node: node_id(n),
            epoch: Epoch(epoch),
            fault,
        };
        assert_eq!(self.call(request), Reply::Noted);
    }

    /// What was sent to a link since the effects were cleared.
    pub(crate) fn sent(&self, link: LinkId) -> Vec<ToNode> {
        let sent = self.effects.iter().filter_map(|e| match e {
            Effect::Send { link: l, message } if *l == link => Some(message.clone()),
            _ => None,
        });
        sent.collect()
    }

    pub(crate) fn retired(&self, link: LinkId) -> Vec<Version> {
        let all = self.sent(link).into_iter().filter_map(|m| match m {
            ToNode::Retire { items, .. } => Some(items),
            _ => None,
        });
        all.flatten().map(|(_, v)| v).collect()
    }

    pub(crate) fn acked(&self, link: LinkId, seq: u64) -> Vec<ItemResult> {
        acks(&self.effects, link, seq)
    }

    pub(crate) fn last_seq(&self, link: LinkId) -> u64 {
        self.seqs.get(&link).copied().unwrap_or(0)
    }

    pub(crate) fn removed(&self, id: RequestId) -> Option<Vec<i32>> {
        match self.answer(id)? {
            Reply::Removed(items) => Some(
                items
                    .into_iter()
                    .map(|r| r.map_or_else(|f| f.code.number(), |()| 0))
                    .collect(),
            ),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn counted(&self, counter: Counter) -> u64 {
        self.counts.get(&counter).copied().unwrap_or(0)
    }

    pub(crate) fn marks(&self) -> usize {
        let all = self.records.iter();
        all.filter(|(_, r)| matches!(r, Record::Mark { .. }))
            .count()
    }
}

fn acks(effects: &[Effect], link: LinkId, seq: u64) -> Vec<ItemResult> {
    let all = effects.iter().filter_map(|e| match e {
        Effect::Send {
            link: l,
            message: ToNode::Ack {
                seq: s, results, ..
            },
        } if *l == link && s.0 == seq => Some(results.clone()),
        _ => None,
    });
    all.flatten().map(|(_, r)| r).collect()
}

pub(crate) fn known(n: u64, epoch: u64, mark: Option<u32>) -> KnownNode {
    KnownNode {
        node: node_id(n),
        epoch: Epoch(epoch),
        address: format!("host{n}:1").into(),
        mark: mark.map(Term),
        forgotten: false,
    }
}

#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) const TTL: Millis = snowskin_types::limits::LEASE_TTL;
