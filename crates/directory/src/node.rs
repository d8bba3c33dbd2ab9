//! The nodes that are known, their process lives, and what is believed of their health.

use crate::event::LinkId;
use crate::object::{Ix, LifeIx, NO_LIFE};
use snowskin_types::call::NodeState;
use snowskin_types::id::{Epoch, NodeId, Seq, Session};
use snowskin_types::limits::{BROKEN_LINK_GONE, SERVING_LEASE, SERVING_MARGIN};
use snowskin_types::link::{NodeFigures, Stamp};
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Position of a node among all known nodes.
pub(crate) type NodeIx = u16;

/// Most nodes that are known at one time.
pub(crate) const NODES_MAX: usize = 16_384;

/// The durable note 'changed while away'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Not there.
    None,
    /// Being written; nothing may rest on it yet.
    Writing,
    /// There.
    Durable,
    /// Writing failed at this time.
    Failed(Now),
    /// Being taken off.
    Clearing,
}

/// One process life of a node. Claims and obligations name lives, so that the death of a process
/// makes all of them void in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) node: NodeIx,
    pub(crate) epoch: Epoch,
    pub(crate) dead: bool,
    /// Counts sessions, modulo 256: which session confirmed a claim.
    pub(crate) generation: u8,
    /// Claims of generations up to this one have been swept.
    pub(crate) swept: u8,
    pub(crate) replicas: u64,
    pub(crate) bytes: u64,
    /// Objects that only this life holds.
    pub(crate) sole: u64,
    pub(crate) sole_bytes: u64,
    pub(crate) obligations: u64,
    pub(crate) retiring: u64,
    pub(crate) placed_bytes: u64,
}

impl Life {
    fn new(node: NodeIx, epoch: Epoch) -> Self {
        Life {
            node,
            epoch,
            dead: false,
            generation: 0,
            swept: 0,
            replicas: 0,
            bytes: 0,
            sole: 0,
            sole_bytes: 0,
            obligations: 0,
            retiring: 0,
            placed_bytes: 0,
        }
    }
}

/// A known node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) life: LifeIx,
    pub(crate) address: Arc<str>,
    pub(crate) host: Arc<str>,
    pub(crate) capacity: u64,
    /// Largest object it can hold; zero until it has registered.
    pub(crate) largest: u64,
    pub(crate) used: u64,
    pub(crate) largest_free: u64,
    pub(crate) policy: String,
    /// What it told of itself last, in which life, and when that came.
    pub(crate) told: Option<(Epoch, NodeFigures)>,
    pub(crate) told_at: Now,
    pub(crate) link: Option<LinkId>,
    pub(crate) session: Option<Session>,
    pub(crate) last_seq: Seq,
    pub(crate) heard: Now,
    /// Since when its link is broken; none with a link, and before the first one.
    pub(crate) broken: Option<Now>,
    /// It said that this life ends.
    pub(crate) left: bool,
    pub(crate) state: NodeState,
    /// Latest moment told by the node, and when it came.
    pub(crate) stamp: Stamp,
    pub(crate) stamp_at: Now,
    /// Past this moment the node serves nothing.
    pub(crate) serving_until: Now,
    /// Whether that has been acted on.
    pub(crate) stop_seen: bool,
    pub(crate) ping_due: Now,
    pub(crate) nonce: u64,
    /// Its whole index was told in this term, in this life.
    pub(crate) complete: bool,
    /// Its whole index was told in this session.
    pub(crate) inventoried: bool,
    /// Its serving lease is not confirmed before it has retired all that it has to.
    pub(crate) withheld: bool,
    /// Orders that were sent while it was withheld and are not confirmed yet.
    pub(crate) unobeyed: BTreeSet<(Ix, Version)>,
    /// Orders to retire wait for a pass over the table.
    pub(crate) resend: bool,
    pub(crate) mark: Mark,
    /// Items below this version are refused: changed or forgotten while away.
    pub(crate) refuse_below: Version,
    /// The durable record says this epoch and address.
    pub(crate) recorded: bool,
    pub(crate) forgetting: bool,
}

impl Node {
    pub(crate) fn stopped(&self, now: Now) -> bool {
        self.serving_until <= now
    }

    /// What it told of itself in its present life.
    pub(crate) fn figures(&self) -> Option<NodeFigures> {
        let (epoch, figures) = self.told?;
        (epoch == self.epoch).then_some(figures)
    }

    pub(crate) fn readable(&self) -> bool {
        self.state != NodeState::Gone
    }

    pub(crate) fn placeable(&self) -> bool {
        self.state == NodeState::Alive && self.session.is_some() && !self.withheld
    }
}

/// When a node that was confirmed a moment received at `at` has surely stopped.
pub(crate) fn serving_end(at: Now) -> Now {
    at + SERVING_LEASE + SERVING_MARGIN
}

/// The state that a silence means, or a broken link.
pub(crate) fn state_of(node: &Node, now: Now, suspect: Millis, gone: Millis) -> NodeState {
    let silence = now.since(node.heard);
    let broken = node.broken.map(|at| now.since(at));
    if node.left || silence > gone || broken.is_some_and(|time| time > BROKEN_LINK_GONE) {
        NodeState::Gone
    } else if node.session.is_none() || silence > suspect {
        NodeState::Suspect
    } else {
        NodeState::Alive
    }
}

/// All nodes and lives.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    slots: Vec<Option<Node>>,
    by_id: BTreeMap<NodeId, NodeIx>,
    by_link: BTreeMap<LinkId, NodeIx>,
    lives: Vec<Life>,
    free_lives: Vec<LifeIx>,
}

impl Nodes {
    pub(crate) fn find(&self, id: NodeId) -> Option<NodeIx> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn by_link(&self, link: LinkId) -> Option<NodeIx> {
        self.by_link.get(&link).copied()
    }

    pub(crate) fn get(&self, ix: NodeIx) -> Option<&Node> {
        self.slots.get(usize::from(ix)).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, ix: NodeIx) -> Option<&mut Node> {
        self.slots.get_mut(usize::from(ix)).and_then(Option::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeIx, &Node)> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(ix, n)| Some((ix as NodeIx, n.as_ref()?)))
    }

    pub(crate) fn indices(&self) -> Vec<NodeIx> {
        self.iter().map(|(ix, _)| ix).collect()
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn life(&self, life: LifeIx) -> Option<&Life> {
        self.lives.get(usize::from(life))
    }

    pub(crate) fn life_mut(&mut self, life: LifeIx) -> Option<&mut Life> {
        self.lives.get_mut(usize::from(life))
    }

    pub(crate) fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// The node whose current life this is.
    pub(crate) fn of_life(&self, life: LifeIx) -> Option<(NodeIx, &Node)> {
        let l = self.life(life).filter(|l| !l.dead)?;
        Some((l.node, self.get(l.node)?))
    }

    pub(crate) fn is_dead(&self, life: LifeIx) -> bool {
        self.life(life).is_none_or(|l| l.dead)
    }

    /// A fresh life; none when former ones have not been swept yet.
    pub(crate) fn begin_life(&mut self, node: NodeIx, epoch: Epoch) -> Option<LifeIx> {
        if let Some(life) = self.free_lives.pop() {
            self.lives[usize::from(life)] = Life::new(node, epoch);
            return Some(life);
        }
        let life = u16::try_from(self.lives.len()).ok()?;
        if life == NO_LIFE {
            return None;
        }
        self.lives.push(Life::new(node, epoch));
        Some(life)
    }

    /// Gives back a dead life that nothing names any more.
    pub(crate) fn free_life(&mut self, life: LifeIx) {
        self.free_lives.push(life);
    }

    pub(crate) fn add(&mut self, id: NodeId, epoch: Epoch, now: Now) -> Option<NodeIx> {
        if self.by_id.len() >= NODES_MAX {
            return None;
        }
        let ix = match self.slots.iter().position(Option::is_none) {
            Some(ix) => ix,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        let node = ix as NodeIx;
        let life = self.begin_life(node, epoch)?;
        self.slots[ix] = Some(Node {
            id,
            epoch,
            life,
            address: "".into(),
            host: "".into(),
            capacity: 0,
            largest: 0,
            used: 0,
            largest_free: 0,
            policy: String::new(),
            told: None,
            told_at: now,
            link: None,
            session: None,
            last_seq: Seq(0),
            broken: None,
            left: false,
            heard: now,
            state: NodeState::Suspect,
            stamp: Stamp(0),
            stamp_at: now,
            serving_until: now,
            stop_seen: false,
            ping_due: Now::NEVER,
            nonce: 0,
            complete: false,
            inventoried: false,
            withheld: false,
            unobeyed: BTreeSet::new(),
            resend: false,
            mark: Mark::None,
            refuse_below: Version::NONE,
            recorded: false,
            forgetting: false,
        });
        self.by_id.insert(id, node);
        Some(node)
    }

    pub(crate) fn remove(&mut self, ix: NodeIx) {
        if let Some(node) = self.slots.get_mut(usize::from(ix)).and_then(Option::take) {
            self.by_id.remove(&node.id);
            if let Some(link) = node.link {
                self.by_link.remove(&link);
            }
        }
    }

    pub(crate) fn bind(&mut self, ix: NodeIx, link: LinkId) {
        self.unbind(ix);
        self.by_link.insert(link, ix);
        if let Some(node) = self.get_mut(ix) {
            node.link = Some(link);
        }
    }

    pub(crate) fn unbind(&mut self, ix: NodeIx) -> Option<LinkId> {
        let node = self.slots.get_mut(usize::from(ix))?.as_mut()?;
        let link = node.link.take()?;
        node.session = None;
        self.by_link.remove(&link);
        Some(link)
    }
}
