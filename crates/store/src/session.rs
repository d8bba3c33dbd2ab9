//! The link to the master: registration, inventory, serving lease.

use crate::effect::{Counter, Effect};
use crate::event::LinkId;
use crate::index::{Replica, Told};
use crate::replica::Damage;
use crate::store::{Store, count};
use snowskin_types::id::{ClusterId, Session};
use snowskin_types::limits::OBJECT_BYTES_MAX;
use snowskin_types::link::{FromNode, Register, Stamp, ToNode};
use snowskin_types::policy::ClusterPolicy;
use snowskin_types::time::{Millis, Now};

/// Where the link to the master is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// None.
    Down,
    /// Open; the registration was sent with this stamp.
    Registering { link: LinkId, stamp: Stamp },
    /// A session runs.
    Live { link: LinkId, session: Session },
}

impl Link {
    fn id(self) -> Option<LinkId> {
        match self {
            Link::Down => None,
            Link::Registering { link, .. } | Link::Live { link, .. } => Some(link),
        }
    }
}

/// How far the inventory of a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inventory {
    /// No session.
    Off,
    /// Cells from `next` on are to be told; `open` items were told and have no answer yet.
    Walking { next: u32, open: u32 },
    /// Its end is being told.
    Ending,
    /// The directory knows all.
    Done,
}

impl Inventory {
    /// One more item was told.
    pub(crate) fn asked(&mut self) {
        if let Inventory::Walking { open, .. } = self {
            *open += 1;
        }
    }

    /// One item was answered, or needs no answer any more.
    pub(crate) fn answered(&mut self) {
        if let Inventory::Walking { open, .. } = self {
            *open = open.saturating_sub(1);
        }
    }
}

impl Store {
    /// True when all items of the inventory have been told and answered.
    pub(crate) fn is_inventory_told(&self) -> bool {
        matches!(self.inventory, Inventory::Walking { next, open: 0 } if next >= self.index.cells())
    }

    pub(crate) fn link_up(&mut self, now: Now, link: LinkId, out: &mut Vec<Effect>) {
        if let Some(old) = self.link.id() {
            self.session_lost(out);
            if old != link {
                out.push(Effect::Close { link: old });
            }
        }
        let stamp = Stamp(now.0);
        self.link = Link::Registering { link, stamp };
        let message = FromNode::Register(Register {
            node: self.config.node,
            epoch: self.config.epoch,
            address: self.config.address.clone(),
            host: self.config.host.clone(),
            capacity: self.arena.capacity(),
            largest: self.arena.capacity().min(OBJECT_BYTES_MAX),
            cluster: self.cluster,
            last_session: self.last_session,
            holds: self.index.sums().tellable,
            stamp,
        });
        out.push(Effect::Send { link, message });
    }

    pub(crate) fn link_lost(&mut self, link: LinkId, out: &mut Vec<Effect>) {
        if self.link.id() == Some(link) {
            self.session_lost(out);
        }
    }

    /// Nothing is known of what was under way; nothing is freed. What was half retracted goes back
    /// to committed and is told anew with the rest.
    fn session_lost(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.link, Link::Live { .. }) {
            count(out, Counter::SessionLost, 1);
        }
        self.link = Link::Down;
        self.inventory = Inventory::Off;
        let lost = self.outbox.session_lost();
        let mut ambiguous = 0;
        for id in lost.queued.into_iter().chain(lost.sent) {
            let Some(slot) = self.index.get_mut(id) else {
                continue;
            };
            let was_sent = matches!(slot.told, Told::Sent(..) | Told::Pending(..));
            if was_sent && matches!(slot.replica, Replica::Committed(_)) {
                ambiguous += 1;
            }
            slot.told = Told::Idle;
            slot.inventory = false;
            slot.inventory_open = false;
            slot.again = false;
        }
        count(out, Counter::PublishAmbiguous, ambiguous);
        let retracting: Vec<_> = self.retracting.iter().copied().collect();
        for id in retracting {
            self.step(id, |replica| match replica {
                Replica::Retracting(ticket) if ticket.damage() == Damage::Sound => {
                    Replica::Committed(ticket.session_lost())
                }
                other => other,
            });
            let still = |slot: &crate::index::Slot| matches!(slot.replica, Replica::Retracting(_));
            if !self.index.get(id).is_some_and(still) {
                self.retracting.remove(&id);
            }
        }
    }

    pub(crate) fn master(
        &mut self,
        now: Now,
        link: LinkId,
        message: ToNode,
        out: &mut Vec<Effect>,
    ) {
        if self.link.id() != Some(link) {
            return count(out, Counter::Fenced, 1);
        }
        let session = match &message {
            ToNode::Registered {
                session,
                cluster,
                stamp,
                serving,
                policy,
            } => {
                return self
                    .registered(now, link, *session, *cluster, *stamp, *serving, policy, out);
            }
            ToNode::Refused { failure, retry } => {
                self.refusal = Some((failure.clone(), *retry));
                self.session_lost(out);
                return out.push(Effect::Close { link });
            }
            ToNode::Ack { session, .. }
            | ToNode::Retire { session, .. }
            | ToNode::Verify { session, .. }
            | ToNode::Ping { session, .. }
            | ToNode::EvictNext { session, .. } => *session,
        };
        if self.session() != Some(session) {
            return count(out, Counter::Fenced, 1);
        }
        match message {
            ToNode::Ack { seq, results, .. } => self.acked(now, seq, &results, out),
            ToNode::Retire { items, .. } => {
                for (name, version) in items {
                    self.retire(now, &name, version, out);
                }
            }
            ToNode::Verify { items, .. } => {
                for (name, version, fault) in items {
                    self.verify(now, &name, version, fault, out);
                }
            }
            ToNode::EvictNext { items, .. } => {
                for (name, version) in items {
                    self.evict_next(&name, version);
                }
            }
            ToNode::Ping {
                nonce, confirmed, ..
            } => self.ping(now, link, session, nonce, confirmed, out),
            ToNode::Registered { .. } | ToNode::Refused { .. } => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    fn registered(
        &mut self,
        now: Now,
        link: LinkId,
        session: Session,
        cluster: ClusterId,
        stamp: Stamp,
        serving: Millis,
        policy: &ClusterPolicy,
        out: &mut Vec<Effect>,
    ) {
        let Link::Registering { stamp: sent, .. } = self.link else {
            return count(out, Counter::Fenced, 1);
        };
        let foreign = self.cluster.is_some_and(|own| own != cluster);
        // A zero stamp begins the session without a serving lease: orders to retire come first.
        let other = stamp != sent && stamp != Stamp(0);
        if foreign || session <= self.last_session || other {
            // An old master, or another cluster's: nothing it says counts.
            count(out, Counter::Fenced, 1);
            self.session_lost(out);
            return out.push(Effect::Close { link });
        }
        if session.term != self.last_session.term {
            self.one_shot.new_term();
        }
        self.link = Link::Live { link, session };
        self.last_session = session;
        self.cluster = Some(cluster);
        self.refusal = None;
        self.serving = serving;
        self.adopt_policy(policy);
        self.inventory = Inventory::Walking { next: 0, open: 0 };
        self.outbox.session_began(now);
        let damaged: Vec<_> = self.retracting.iter().copied().collect();
        for id in damaged {
            self.tell(now, id);
        }
        self.confirm(stamp, out);
        // Waiting writes of a former term are to be refused now.
        self.space_changed = true;
    }

    /// The master has seen this moment of the node's clock.
    fn confirm(&mut self, stamp: Stamp, out: &mut Vec<Effect>) {
        let until = Now(stamp.0) + self.serving;
        // A zero stamp confirms nothing.
        if stamp > Stamp(0) && until > self.serve_until {
            self.serve_until = until;
            out.push(Effect::ServeUntil(until));
        }
    }

    fn ping(
        &mut self,
        now: Now,
        link: LinkId,
        session: Session,
        nonce: u64,
        confirmed: Stamp,
        out: &mut Vec<Effect>,
    ) {
        if confirmed.0 > now.0 {
            // A stamp that this node has not given cannot prolong its lease.
            count(out, Counter::AnswersOdd, 1);
        } else {
            self.confirm(confirmed, out);
        }
        let message = FromNode::Pong {
            session,
            nonce,
            stamp: Stamp(now.0),
            used: self.arena.used_bytes(),
            largest_free: self.arena.largest_free(),
            policy: Some(self.force.text()),
            figures: Some(self.figures()),
        };
        out.push(Effect::Send { link, message });
    }
}
