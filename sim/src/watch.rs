//! What the oracle learns from the inside: which requests and numbered messages reached the master
//! and what it answered. Only moments and answers are used, never the state of a core.

use crate::invariants::Seen;
use crate::world::World;
use snowskin_directory::effect::{Effect, Record};
use snowskin_directory::event::{Event, RequestId};
use snowskin_directory::inspect::NodeView;
use snowskin_types::call::{Keys, NodeState, Reply, Request, Reserved};
use snowskin_types::id::{Epoch, NodeId, Seq, Session};
use snowskin_types::link::{FromNode, ItemResult, NodeItem, ToNode};
use snowskin_types::{Now, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Numbered messages remembered per run; far more than can be under way.
const BATCHES_KEPT: usize = 4096;

/// A request under way at the master.
#[derive(Debug, Clone)]
pub struct Asking {
    /// Its keys, by index.
    pub keys: Vec<usize>,
    /// A remove.
    pub removes: bool,
}

/// An item of a numbered message that reached the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What it says.
    pub what: What,
    /// Which key.
    pub key: usize,
    /// Which version.
    pub version: Version,
}

/// What an item of a numbered message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Served by its owner.
    Publish,
    /// To be evicted.
    Retract,
    /// Found damaged.
    RetractBad,
    /// Not there.
    Absent,
    /// The inventory is complete.
    End,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Watch {
    /// Requests under way.
    pub asking: BTreeMap<RequestId, Asking>,
    batches: BTreeMap<(Session, Seq), Vec<Told>>,
    links: BTreeMap<u64, (NodeId, Epoch)>,
    /// Versions whose owner may give their bytes back, as far as the master's words go.
    pub released: BTreeSet<(Epoch, Version)>,
    /// Nodes of whose last death or silence the master does not know yet, or has just learned.
    pub unlearned: BTreeSet<usize>,
    /// The answers of the message being sent, for versions that had not been let go: (epoch, item,
    /// answer).
    pub answered: Vec<(Epoch, Told, ItemResult)>,
}

impl Watch {
    /// The item that an answer is about.
    pub fn told(&self, session: Session, seq: Seq, index: u32) -> Option<Told> {
        self.batches
            .get(&(session, seq))?
            .get(index as usize)
            .copied()
    }

    fn epoch_of(&self, link: u64) -> Epoch {
        self.links.get(&link).map_or(Epoch(0), |(_, epoch)| *epoch)
    }
}

impl World {
    fn indices(&self, keys: &Keys) -> Vec<usize> {
        keys.iter().map(|k| self.oracle.index_of(k)).collect()
    }

    /// Lets the oracle learn from what was seen.
    pub(crate) fn learn(&mut self, what: &Seen<'_>) {
        match what {
            Seen::Request {
                id,
                client,
                call,
                request,
            } => {
                self.asked(*client, *call, request);
                let (keys, removes) = match request {
                    Request::Reserve { keys, .. }
                    | Request::Locate { keys, .. }
                    | Request::Exists { keys, .. } => (self.indices(keys), false),
                    Request::Remove { keys, .. } => (self.indices(keys), true),
                    Request::RemoveMany { .. } => ((0..self.setup.keys).collect(), true),
                    _ => return,
                };
                self.watch.asking.insert(*id, Asking { keys, removes });
            }
            Seen::DirectoryEvent(Event::Abandon { id }) => {
                if let Some(asking) = self.watch.asking.remove(id)
                    && asking.removes
                {
                    // What was begun goes on, for at most so long.
                    let end = self.time + 8_000_000;
                    self.oracle.remove_answered(asking.keys, end);
                }
            }
            Seen::DirectoryEvent(Event::Node { link, message }) => match message {
                FromNode::Register(register) => {
                    let who = (register.node, register.epoch);
                    self.watch.links.insert(link.0, who);
                }
                FromNode::Batch {
                    session,
                    seq,
                    items,
                } => {
                    let told: Vec<Told> = items.iter().map(|i| self.told(i)).collect();
                    for item in told.iter().filter(|t| t.what == What::Publish) {
                        let history = &mut self.oracle.history[item.key];
                        history.told.insert(item.version);
                        if item.version > history.published {
                            history.published = item.version;
                            history.replaced_at = self.time;
                        }
                    }
                    if self.watch.batches.len() >= BATCHES_KEPT {
                        self.watch.batches.pop_first();
                    }
                    self.watch.batches.entry((*session, *seq)).or_insert(told);
                }
                // The simulated nodes only crash; they never leave in good order.
                FromNode::Pong { .. } | FromNode::Leave { .. } => {}
            },
            Seen::DirectoryEffect(Effect::Reply { id, reply }) => self.replied(*id, reply),
            Seen::DirectoryEffect(Effect::Send { link, message }) => {
                self.sent_to_node(link.0, message);
            }
            Seen::MasterDied => {
                self.watch.asking.clear();
                self.oracle.master_died();
                let now = self.time;
                self.oracle.void_leases(now);
            }
            Seen::MasterStarted => {
                let marked = self.master.durable.nodes.values().any(|n| n.mark.is_some());
                if marked {
                    let now = self.time;
                    self.oracle.void_all(now);
                }
            }
            Seen::NodeDied { node } => {
                self.watch.unlearned.insert(*node);
                let now = self.time;
                self.oracle.void_all(now);
            }
            Seen::Persisted {
                record: Record::Forget { .. },
            } => {
                let now = self.time;
                self.oracle.void_all(now);
            }
            _ => {}
        }
    }

    fn told(&self, item: &NodeItem) -> Told {
        let (what, name, version) = match item {
            NodeItem::Publish { name, version, .. } => (What::Publish, name, version),
            NodeItem::Retract { name, version, bad } => {
                let what = if *bad {
                    What::RetractBad
                } else {
                    What::Retract
                };
                (what, name, version)
            }
            NodeItem::Absent { name, version } => (What::Absent, name, version),
            NodeItem::InventoryEnd => {
                return Told {
                    what: What::End,
                    key: 0,
                    version: Version::NONE,
                };
            }
        };
        Told {
            what,
            key: self.oracle.index(&name.key),
            version: *version,
        }
    }

    fn replied(&mut self, id: RequestId, reply: &Reply) {
        let Some(asking) = self.watch.asking.get(&id).cloned() else {
            return;
        };
        if let Reply::Reserved { items, .. } = reply {
            for (key, item) in asking.keys.iter().zip(items) {
                if let Reserved::Placed { version, .. } = item {
                    self.oracle.given(*key, *version, self.time);
                }
            }
        }
        if asking.removes {
            let now = self.time;
            self.oracle.remove_answered(asking.keys, now);
        }
    }

    fn sent_to_node(&mut self, link: u64, message: &ToNode) {
        self.watch.answered.clear();
        let epoch = self.watch.epoch_of(link);
        match message {
            ToNode::Registered { .. } => {
                let node = self
                    .nodes
                    .iter()
                    .position(|n| n.epoch == epoch && n.core.is_some());
                if let Some(node) = node
                    && self.watch.unlearned.remove(&node)
                {
                    let now = self.time;
                    self.oracle.void_all(now);
                }
            }
            ToNode::Ack {
                session,
                seq,
                results,
            } => {
                for (index, result) in results {
                    let Some(told) = self.watch.told(*session, *seq, *index) else {
                        continue;
                    };
                    let again = self.watch.released.contains(&(epoch, told.version));
                    if !again {
                        self.watch.answered.push((epoch, told, *result));
                    }
                    let granted = *result == ItemResult::Ok
                        && matches!(told.what, What::Retract | What::RetractBad);
                    if granted {
                        self.oracle.history[told.key].evicted.insert(told.version);
                    }
                    if granted || *result == ItemResult::Refused {
                        self.watch.released.insert((epoch, told.version));
                    }
                }
            }
            ToNode::Retire { items, .. } => {
                for (_, version) in items {
                    self.watch.released.insert((epoch, *version));
                }
            }
            _ => {}
        }
    }

    /// Forgets the request that a reply has answered; called once all have seen the reply.
    pub(crate) fn answered(&mut self, id: RequestId) {
        self.watch.asking.remove(&id);
    }

    /// True while the master may name a process that is dead or out of its reach.
    pub(crate) fn is_unsettled(&self) -> bool {
        let Some(core) = &self.master.core else {
            return true;
        };
        let gone = |n: &NodeView| n.state == NodeState::Gone;
        !self.watch.unlearned.is_empty() || core.inspect().nodes.iter().any(gone)
    }

    /// The master's clock.
    pub(crate) fn master_now(&self) -> Now {
        self.master.clock.now(self.time)
    }
}
