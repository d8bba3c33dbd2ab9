//! Registrations, sessions, numbered batches, pings: the order and the liveness of nodes.

use crate::directory::Directory;
use crate::effect::{Counter, Effect};
use crate::event::LinkId;
use crate::node::{Mark, NodeIx, serving_end};
use crate::object::LifeIx;
use crate::publish::Origin;
use snowskin_types::call::NodeState;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::id::{Seq, Session};
use snowskin_types::limits::{NODE_BATCH_ITEMS_MAX, PING_INTERVAL, SERVING_LEASE};
use snowskin_types::link::{FromNode, ItemResult, NodeFigures, NodeItem, Register, Stamp, ToNode};
use snowskin_types::time::Now;
use snowskin_types::version::Version;

/// Most registrations whose record is being written.
const REGISTRATIONS_MAX: usize = 16_384;

/// A registration whose record is being written.
#[derive(Debug, Clone)]
pub(crate) struct Registration {
    register: Register,
    received: Now,
}

fn refusal(code: Code, register: &Register, message: String) -> Failure {
    Failure::new(code, Stage::Session, message).with_peer(&*register.address)
}

impl Directory {
    pub(crate) fn on_node(&mut self, link: LinkId, message: FromNode) {
        match message {
            FromNode::Register(register) => self.on_register(link, register),
            FromNode::Batch {
                session,
                seq,
                items,
            } => self.on_batch(link, session, seq, items),
            FromNode::Pong {
                session,
                nonce,
                stamp,
                used,
                largest_free,
                policy,
                figures,
            } => {
                let Some(ix) = self.in_session(link, session) else {
                    return;
                };
                if let Some(node) = self.nodes.get_mut(ix) {
                    if nonce > node.nonce {
                        return;
                    }
                    if stamp >= node.stamp {
                        node.stamp = stamp;
                        node.stamp_at = self.now;
                    }
                    node.used = used;
                    node.largest_free = largest_free;
                    if let Some(policy) = policy {
                        node.policy = policy;
                    }
                }
                if let Some(figures) = figures {
                    self.told_figures(ix, figures);
                }
                self.heard(ix);
                self.release_withheld(ix);
            }
            FromNode::Leave { session } => {
                if let Some(ix) = self.in_session(link, session) {
                    self.on_leave(ix);
                }
            }
        }
    }

    /// A life ends in good order: it serves nothing any more, so nobody has to wait for its lease.
    fn on_leave(&mut self, ix: NodeIx) {
        let now = self.now;
        self.end_session(ix, true);
        if let Some(node) = self.nodes.get_mut(ix) {
            node.left = true;
            node.state = NodeState::Gone;
            node.serving_until = now;
            node.stop_seen = true;
        }
        self.begin_forget(ix);
        self.count(Counter::NodesLeft, 1);
        self.waits.recheck();
        self.want_continue();
    }

    /// Adds what was done since the node told last. What an unknown life did before counts too: nothing is
    /// lost with a master.
    fn told_figures(&mut self, ix: NodeIx, figures: NodeFigures) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(ix) else {
            return;
        };
        let before = node.figures().unwrap_or_default();
        node.told = Some((node.epoch, figures));
        node.told_at = now;
        for (counter, now, before) in [
            (Counter::PutWaited, figures.put_waited, before.put_waited),
            (
                Counter::PutWaitFailed,
                figures.put_wait_failed,
                before.put_wait_failed,
            ),
            (
                Counter::NodeChecksumFailures,
                figures.checksum_failures,
                before.checksum_failures,
            ),
        ] {
            self.count(counter, now.saturating_sub(before));
        }
    }

    fn heard(&mut self, ix: NodeIx) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(ix) {
            node.heard = now;
            if node.state != NodeState::Alive {
                node.state = NodeState::Alive;
                self.placeable = None;
            }
        }
    }

    /// The node of a link, when the message is of its current session.
    fn in_session(&mut self, link: LinkId, session: Session) -> Option<NodeIx> {
        let ix = self.nodes.by_link(link);
        let ix = ix.filter(|ix| {
            let node = self.nodes.get(*ix);
            node.is_some_and(|n| n.session == Some(session))
        });
        if ix.is_none() {
            self.count(Counter::Fenced, 1);
        }
        ix
    }

    fn on_register(&mut self, link: LinkId, register: Register) {
        if self.nodes.by_link(link).is_some() || self.registrations.contains_key(&link) {
            let failure = refusal(
                Code::InvalidParams,
                &register,
                "a second registration on one connection; a connection carries one session".into(),
            );
            return self.refuse_link(link, failure, false);
        }
        if let Err((failure, retry)) = self.admits(link, &register) {
            return self.refuse_link(link, failure, retry);
        }
        // The same process on a new connection: the old one is fenced.
        if let Some(ix) = self.nodes.find(register.node) {
            self.end_session(ix, true);
        }
        let known = self
            .nodes
            .find(register.node)
            .and_then(|ix| self.nodes.get(ix));
        let recorded = known.is_some_and(|n| {
            n.recorded && n.epoch == register.epoch && n.address == register.address
        });
        let (node, epoch) = (register.node, register.epoch);
        let address = register.address.clone();
        let registration = Registration {
            register,
            received: self.now,
        };
        self.registrations.insert(link, registration);
        if self.forgotten.get(&node) == Some(&epoch) {
            self.persist_return(link, node, epoch);
        } else if recorded {
            self.registration_stored(link, true);
        } else {
            self.persist_node(link, node, epoch, address);
        }
    }

    /// Whether a registration may go on; the error tells whether a later try may.
    fn admits(&self, link: LinkId, register: &Register) -> Result<(), (Failure, bool)> {
        let refuse = |code, message: String, retry| Err((refusal(code, register, message), retry));
        if let Some(cluster) = register.cluster
            && cluster != self.cluster
        {
            let message = format!(
                "the node belongs to cluster {:016x}, this master to {:016x}",
                cluster.0, self.cluster.0
            );
            return refuse(Code::InvalidVersion, message, false);
        }
        if register.last_session.term > self.term {
            let message = format!(
                "the node has had a session of term {}, this master is of term {}",
                register.last_session.term.0, self.term.0
            );
            return refuse(Code::UnavailableInStatus, message, true);
        }
        if register.address.is_empty() || register.address.len() > 512 {
            let message = "the data address must have 1 to 512 bytes".into();
            return refuse(Code::InvalidParams, message, false);
        }
        if self.registrations.len() >= REGISTRATIONS_MAX {
            let message = format!("{REGISTRATIONS_MAX} registrations are under way");
            return refuse(Code::UnavailableInStatus, message, true);
        }
        let other_process = self.registrations.iter().any(|(l, r)| {
            *l != link && r.register.node == register.node && r.register.epoch != register.epoch
        });
        let known = self
            .nodes
            .find(register.node)
            .and_then(|ix| self.nodes.get(ix));
        let answering = known.is_some_and(|n| {
            n.session.is_some() && n.epoch != register.epoch && n.state == NodeState::Alive
        });
        if answering || other_process {
            let message = format!(
                "another live process advertises {}; each node needs an address of its own",
                register.address
            );
            return refuse(Code::SegmentAlreadyExists, message, true);
        }
        if known.is_some_and(|n| n.forgetting) {
            let message = "the node is just being forgotten".into();
            return refuse(Code::UnavailableInStatus, message, true);
        }
        Ok(())
    }

    fn refuse_link(&mut self, link: LinkId, failure: Failure, retry: bool) {
        let message = ToNode::Refused { failure, retry };
        self.effects.push(Effect::Send { link, message });
        self.effects.push(Effect::Close { link });
        self.link_ended(link);
    }

    /// The record is written (or could not be): the session begins.
    pub(crate) fn registration_stored(&mut self, link: LinkId, done: bool) {
        let Some(registration) = self.registrations.remove(&link) else {
            return;
        };
        let register = &registration.register;
        if !done {
            let message = "the record of the node could not be stored".into();
            let failure = refusal(Code::PersistentFail, register, message);
            return self.refuse_link(link, failure, true);
        }
        if let Err((failure, retry)) = self.admits(link, register) {
            return self.refuse_link(link, failure, retry);
        }
        let Some(ix) = self.enter(register) else {
            let message =
                "the master knows too many nodes, or former ones are being cleared".into();
            let failure = refusal(Code::UnavailableInStatus, register, message);
            return self.refuse_link(link, failure, true);
        };
        self.begin_session(ix, link, registration);
    }

    /// Finds or adds the node, in the life that registers.
    fn enter(&mut self, register: &Register) -> Option<NodeIx> {
        let now = self.now;
        let (ix, fresh) = match self.nodes.find(register.node) {
            Some(ix) => (ix, false),
            None => (self.nodes.add(register.node, register.epoch, now)?, true),
        };
        self.end_session(ix, true);
        if self.nodes.get(ix)?.epoch != register.epoch {
            let life = self.nodes.begin_life(ix, register.epoch)?;
            let node = self.nodes.get_mut(ix)?;
            let old = std::mem::replace(&mut node.life, life);
            node.epoch = register.epoch;
            node.complete = false;
            node.left = false;
            // What was changed while the old process was away concerned its memory only.
            node.mark = Mark::None;
            node.refuse_below = Version::NONE;
            // The process that served before is dead.
            node.serving_until = now;
            node.stop_seen = true;
            self.bury(old);
            self.waits.recheck();
        }
        let coming = self.coming_version();
        let was_forgotten = self.forgotten.remove(&register.node) == Some(register.epoch);
        // Claims of sessions that have not been swept must stay apart from those of new ones.
        let life = self.nodes.life(self.nodes.get(ix)?.life)?;
        if life.generation.wrapping_add(1) == life.swept {
            self.sweeper.want();
            return None;
        }
        let node = self.nodes.get_mut(ix)?;
        if fresh && was_forgotten {
            node.mark = Mark::Durable;
            node.refuse_below = coming;
        }
        if register.holds == 0 && register.last_session == Session::default() {
            node.complete = true;
        }
        // A returned node's row still has its old address; the next registration writes it.
        node.recorded = !was_forgotten;
        node.address = register.address.clone();
        node.host = register.host.clone();
        node.capacity = register.capacity;
        node.largest = register.largest;
        self.count_incomplete();
        Some(ix)
    }

    fn begin_session(&mut self, ix: NodeIx, link: LinkId, registration: Registration) {
        let Registration { register, received } = registration;
        self.sessions += 1;
        let session = Session {
            term: self.term,
            n: self.sessions,
        };
        self.nodes.bind(ix, link);
        let now = self.now;
        let Some(node) = self.nodes.get_mut(ix) else {
            return;
        };
        let life = node.life;
        node.session = Some(session);
        node.last_seq = Seq(0);
        node.inventoried = false;
        node.unobeyed.clear();
        node.stamp = register.stamp;
        node.stamp_at = received;
        node.heard = now;
        node.broken = None;
        node.nonce = 0;
        let mut retiring = false;
        if let Some(life) = self.nodes.life_mut(life) {
            life.generation = life.generation.wrapping_add(1);
            retiring = life.retiring > 0;
        }
        let Some(node) = self.nodes.get_mut(ix) else {
            return;
        };
        // It must not serve what it missed the end of: first the orders to retire, then the lease.
        node.resend = retiring;
        node.withheld = retiring || node.mark != Mark::None;
        let stamp = if node.withheld {
            Stamp(0)
        } else {
            node.serving_until = node.serving_until.max(serving_end(received));
            node.stop_seen = false;
            register.stamp
        };
        if retiring {
            self.sweeper.want();
        }
        self.heard(ix);
        self.placeable = None;
        let message = ToNode::Registered {
            session,
            cluster: self.cluster,
            stamp,
            serving: SERVING_LEASE,
            policy: self.config.policy,
        };
        self.effects.push(Effect::Send { link, message });
        self.outbox.ping(ix);
        self.count(Counter::SessionsBegun, 1);
        self.want_continue();
    }

    /// Lets a node serve once it has retired all that it must.
    pub(crate) fn release_withheld(&mut self, ix: NodeIx) {
        if let Some(node) = self.nodes.get_mut(ix)
            && node.withheld
            && !node.resend
            && node.unobeyed.is_empty()
            && (node.inventoried || node.mark == Mark::None)
        {
            node.withheld = false;
            self.placeable = None;
            self.outbox.ping(ix);
        }
    }

    pub(crate) fn send_ping(&mut self, ix: NodeIx) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(ix) else {
            return;
        };
        let (Some(link), Some(session)) = (node.link, node.session) else {
            return;
        };
        node.nonce += 1;
        node.ping_due = now + PING_INTERVAL;
        let mut confirmed = Stamp(0);
        if !node.withheld {
            confirmed = node.stamp;
            node.serving_until = node.serving_until.max(serving_end(node.stamp_at));
            node.stop_seen = node.serving_until <= now;
        }
        let message = ToNode::Ping {
            session,
            nonce: node.nonce,
            confirmed,
        };
        self.effects.push(Effect::Send { link, message });
    }

    pub(crate) fn on_link_lost(&mut self, link: LinkId) {
        self.link_ended(link);
        self.want_continue();
    }

    fn link_ended(&mut self, link: LinkId) {
        self.registrations.remove(&link);
        if let Some(ix) = self.nodes.by_link(link) {
            self.end_session(ix, false);
        }
    }

    /// The end of a session frees nothing; the node stays the owner of all it was.
    pub(crate) fn end_session(&mut self, ix: NodeIx, close: bool) {
        let now = self.now;
        let Some(link) = self.nodes.unbind(ix) else {
            return;
        };
        if close {
            self.effects.push(Effect::Close { link });
        }
        self.outbox.discard(ix);
        self.placeable = None;
        if let Some(node) = self.nodes.get_mut(ix) {
            node.ping_due = Now::NEVER;
            node.broken = Some(now);
            node.inventoried = false;
            node.resend = false;
            if node.state == NodeState::Alive {
                node.state = NodeState::Suspect;
            }
        }
        self.count(Counter::SessionsLost, 1);
        // Answers that wait for this node may now want its mark.
        self.waits.recheck();
    }

    fn on_batch(&mut self, link: LinkId, session: Session, seq: Seq, items: Vec<NodeItem>) {
        let Some(ix) = self.in_session(link, session) else {
            return;
        };
        self.heard(ix);
        if items.len() > NODE_BATCH_ITEMS_MAX {
            // Not a node of ours; it may register again.
            self.count(Counter::Fenced, 1);
            return self.end_session(ix, true);
        }
        let Some(node) = self.nodes.get_mut(ix) else {
            return;
        };
        let old = seq <= node.last_seq;
        #[cfg(known_bugs)]
        let old = old && !self.bugs.no_sequence_numbers;
        if old {
            return self.count(Counter::Fenced, 1);
        }
        node.last_seq = node.last_seq.max(seq);
        let life = node.life;
        for (index, item) in items.into_iter().enumerate() {
            let index = index as u32;
            let from = Origin {
                node: ix,
                life,
                session,
                seq,
                index,
            };
            let result: ItemResult = self.on_item(from, item);
            self.outbox.ack(ix, seq, index, result);
        }
    }

    pub(crate) fn on_inventory_end(&mut self, ix: NodeIx) {
        let Some(node) = self.nodes.get_mut(ix) else {
            return;
        };
        node.inventoried = true;
        node.complete = true;
        // Claims that the inventory did not confirm go in a pass over the table.
        self.sweeper.want();
        self.count_incomplete();
        self.waits.recheck();
        self.release_withheld(ix);
        self.try_clear_mark(ix);
        self.want_continue();
    }

    /// A process is dead: all that names its life is void, and is cleared in slices.
    pub(crate) fn bury(&mut self, life: LifeIx) {
        if let Some(life) = self.nodes.life_mut(life) {
            life.dead = true;
        }
        self.sweeper.want();
    }

    /// Counts the nodes that may still tell of copies unknown here.
    pub(crate) fn count_incomplete(&mut self) {
        let before = self.incomplete;
        self.incomplete = self.nodes.iter().filter(|(_, n)| !n.complete).count();
        if before > 0 && self.incomplete == 0 {
            // Old versions need not be remembered any more.
            self.remembered.clear();
            self.sweeper.want();
            self.waits.recheck();
        }
    }
}
