//! The small durable rest: who is known, and who missed a change. Nothing is answered before what it
//! rests on is written.

use crate::directory::Directory;
use crate::effect::{Counter, Effect, Record};
use crate::event::{LinkId, PersistId};
use crate::node::{Mark, NodeIx};
use crate::waits::PERSIST_RETRY;
use snowskin_types::id::{Epoch, NodeId};
use snowskin_types::time::Now;
use snowskin_types::version::Version;
use std::collections::{BTreeMap, BTreeSet};

/// Most forgotten nodes; further ones stay known as gone.
const FORGOTTEN_MAX: usize = 65_536;

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Register(LinkId),
    Mark(Vec<(NodeId, Epoch)>),
    Clear(NodeId),
    Forget(NodeId, Epoch),
}

#[derive(Debug, Default)]
pub(crate) struct Durable {
    last: u64,
    pending: BTreeMap<PersistId, What>,
    wanted: BTreeSet<NodeIx>,
    /// After a failure, writes that nobody waits for pause until then.
    pause_until: Now,
}

impl Directory {
    fn persist(&mut self, record: Record, what: What) {
        self.durable.last += 1;
        let id = PersistId(self.durable.last);
        self.durable.pending.insert(id, what);
        self.effects.push(Effect::Persist { id, record });
    }

    pub(crate) fn persist_node(
        &mut self,
        link: LinkId,
        node: NodeId,
        epoch: Epoch,
        address: std::sync::Arc<str>,
    ) {
        let record = Record::Node {
            node,
            epoch,
            address,
        };
        if let Some(known) = self.nodes.find(node).and_then(|ix| self.nodes.get_mut(ix)) {
            known.recorded = false;
        }
        self.persist(record, What::Register(link));
    }

    /// A forgotten node returns in its old life: it is marked before it is known again.
    pub(crate) fn persist_return(&mut self, link: LinkId, node: NodeId, epoch: Epoch) {
        let record = Record::Mark {
            nodes: vec![(node, epoch)],
            term: self.term,
        };
        self.persist(record, What::Register(link));
    }

    /// Notes that a node misses a change; written at the end of the event.
    pub(crate) fn want_mark(&mut self, ix: NodeIx) {
        if let Some(node) = self.nodes.get_mut(ix)
            && !matches!(node.mark, Mark::Durable | Mark::Writing)
        {
            node.mark = Mark::Writing;
            self.durable.wanted.insert(ix);
        }
    }

    pub(crate) fn flush_marks(&mut self) {
        if self.durable.wanted.is_empty() {
            return;
        }
        let wanted = std::mem::take(&mut self.durable.wanted);
        let nodes: Vec<(NodeId, Epoch)> = wanted
            .into_iter()
            .filter_map(|ix| self.nodes.get(ix).map(|n| (n.id, n.epoch)))
            .collect();
        let record = Record::Mark {
            nodes: nodes.clone(),
            term: self.term,
        };
        self.persist(record, What::Mark(nodes));
    }

    /// Takes a mark off once the node has told all and retired all.
    pub(crate) fn try_clear_mark(&mut self, ix: NodeIx) {
        if self.now < self.durable.pause_until {
            return;
        }
        let Some(node) = self.nodes.get(ix) else {
            return;
        };
        let retiring = self.nodes.life(node.life).is_none_or(|l| l.retiring > 0);
        let reconciled = node.session.is_some() && node.inventoried && !node.resend && !retiring;
        if node.mark != Mark::Durable || !reconciled {
            return;
        }
        let id = node.id;
        if let Some(node) = self.nodes.get_mut(ix) {
            node.mark = Mark::Clearing;
        }
        self.persist(Record::ClearMark { node: id }, What::Clear(id));
    }

    /// Gives a node up for good.
    pub(crate) fn begin_forget(&mut self, ix: NodeIx) {
        let full = self.forgotten.len() >= FORGOTTEN_MAX;
        if self.now < self.durable.pause_until {
            return;
        }
        if let Some(node) = self.nodes.get_mut(ix)
            && !node.forgetting
            && (node.left || !full)
        {
            node.forgetting = true;
            let (left, node, epoch) = (node.left, node.id, node.epoch);
            let record = if left {
                Record::Left { node, epoch }
            } else {
                Record::Forget { node, epoch }
            };
            self.persist(record, What::Forget(node, epoch));
        }
    }

    pub(crate) fn on_persisted(&mut self, id: PersistId, done: bool) {
        let Some(what) = self.durable.pending.remove(&id) else {
            return;
        };
        if !done {
            self.durable.pause_until = self.now + PERSIST_RETRY;
        }
        match what {
            What::Register(link) => self.registration_stored(link, done),
            What::Mark(nodes) => {
                let mark = if done {
                    Mark::Durable
                } else {
                    Mark::Failed(self.now)
                };
                for (id, epoch) in nodes {
                    if let Some(node) = self.nodes.find(id).and_then(|ix| self.nodes.get_mut(ix))
                        && node.mark == Mark::Writing
                        && node.epoch == epoch
                    {
                        node.mark = mark;
                    }
                }
                self.waits.recheck();
                self.recheck_slice();
            }
            What::Clear(id) => {
                if let Some(node) = self.nodes.find(id).and_then(|ix| self.nodes.get_mut(ix))
                    && node.mark == Mark::Clearing
                {
                    node.mark = if done { Mark::None } else { Mark::Durable };
                    if done {
                        node.refuse_below = Version::NONE;
                    }
                }
            }
            What::Forget(id, epoch) => self.forget_stored(id, epoch, done),
        }
        self.want_continue();
    }

    fn forget_stored(&mut self, id: NodeId, epoch: Epoch, done: bool) {
        let Some(ix) = self.nodes.find(id) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(ix).filter(|n| n.epoch == epoch) else {
            return;
        };
        node.forgetting = false;
        if !done {
            return;
        }
        let (life, left) = (node.life, node.left);
        self.nodes.remove(ix);
        self.outbox.discard(ix);
        // A life that has left does not return, so there is nothing to remember of it.
        if !left {
            self.forgotten.insert(id, epoch);
            self.count(Counter::NodesForgotten, 1);
        }
        self.bury(life);
        self.count_incomplete();
        self.waits.recheck();
    }
}
