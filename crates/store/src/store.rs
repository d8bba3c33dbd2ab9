//! The store: events in, effects out.
//!
//! The parts, each an `impl Store` of its own: `admit` (writes), `read` (reads and pins), `publish`
//! (numbered items and their answers), `session` (the link to the master, inventory, serving lease),
//! `retire` (orders of the master), `space` (eviction and reclaim). [`Store::handle`] runs the part that
//! the event means and then lets each part do what has become possible.

use crate::arena::Arena;
use crate::config::{self, Config, ConfigError, InForce};
use crate::effect::{Counter, Effect};
use crate::event::{Event, ReadId, ScrubId, WriteId};
use crate::evict::{Policy, policy};
use crate::index::{Index, Replica, SlotId};
use crate::one_shot::OneShot;
use crate::outbox::Outbox;
use crate::replica::Reserved;
use crate::session::{Inventory, Link};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::id::{ClusterId, Epoch, NodeId, Session};
use snowskin_types::key::ObjectName;
use snowskin_types::link::NodeFigures;
use snowskin_types::policy::ClusterPolicy;
use snowskin_types::time::{Millis, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Reservations may live this much longer than twice the discard timeout.
const RESERVATION_SLACK: Millis = Millis(5_000);

/// One node's store.
#[derive(Debug)]
pub struct Store {
    pub(crate) config: Config,
    pub(crate) force: InForce,
    pub(crate) arena: Arena,
    pub(crate) index: Index,
    pub(crate) outbox: Outbox,
    pub(crate) one_shot: OneShot,
    pub(crate) forgotten_counted: u64,
    // The link to the master.
    pub(crate) link: Link,
    pub(crate) inventory: Inventory,
    pub(crate) last_session: Session,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) serving: Millis,
    pub(crate) serve_until: Now,
    pub(crate) refusal: Option<(Failure, bool)>,
    // Writes.
    pub(crate) writes: BTreeMap<WriteId, SlotId>,
    pub(crate) waiting: VecDeque<SlotId>,
    pub(crate) waiting_due: BTreeSet<(Now, SlotId)>,
    pub(crate) waiting_bytes: u64,
    pub(crate) space_changed: bool,
    pub(crate) cut: BTreeMap<WriteId, Cut>,
    // Reads and checks.
    pub(crate) reads: BTreeMap<ReadId, Pin>,
    pub(crate) read_due: BTreeSet<(Now, ReadId)>,
    pub(crate) checks: BTreeMap<ScrubId, SlotId>,
    pub(crate) checks_queued: VecDeque<SlotId>,
    pub(crate) check_last: u64,
    // Eviction.
    pub(crate) main: Box<dyn Policy>,
    pub(crate) soft: Box<dyn Policy>,
    pub(crate) aside: BTreeSet<(Now, SlotId)>,
    pub(crate) soft_due: BTreeSet<(Now, SlotId)>,
    pub(crate) retracting: BTreeSet<SlotId>,
    pub(crate) evicting: bool,
    /// Bytes that the directory has accepted in this life.
    pub(crate) born_bytes: u64,
    pub(crate) more_to_do: bool,
    /// What was done in this life; what is held is filled in by [`Store::figures`].
    pub(crate) done: NodeFigures,
    #[cfg(known_bugs)]
    pub(crate) bugs: crate::bugs::Bugs,
}

/// A write whose version was retired while its bytes came: the extents are still being written.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) ticket: Reserved,
    pub(crate) bytes: u64,
    pub(crate) name: ObjectName,
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct Pin {
    pub(crate) slot: SlotId,
    pub(crate) progress: Now,
    /// Its place in `read_due`; progress moves it only when it comes up.
    pub(crate) due: Now,
    pub(crate) cut: bool,
}

/// What a store holds, in bytes unless named otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Taken.
    pub used: u64,
    /// In all.
    pub capacity: u64,
    /// Largest length that is sure to be granted in one piece.
    pub largest_free: u64,
    /// Held by leases that refused a retract.
    pub leased: u64,
    /// Held by hard pins and reads.
    pub pinned: u64,
    /// Held by puts that have not ended.
    pub unfinished: u64,
    /// Number of replicas that are served.
    pub replicas: u64,
    /// Number of reads under way.
    pub reads: u64,
    /// Number of writes that wait for space.
    pub waiting: u64,
    /// Number of extents, over all objects.
    pub extents: u64,
}

impl Store {
    /// Makes an empty store that serves nothing until a master has registered it.
    ///
    /// # Errors
    /// When the capacity cannot be divided or a share is none.
    pub fn new(_now: Now, config: Config) -> Result<Self, ConfigError> {
        if let Some(high) = config.eviction_high.filter(|h| !config::is_high(*h)) {
            return Err(ConfigError::High(high));
        }
        if let Some(ratio) = config.eviction_ratio.filter(|r| !config::is_ratio(*r)) {
            return Err(ConfigError::Ratio(ratio));
        }
        let arena = Arena::new(config.capacity)?;
        let force = InForce::of(&config, arena.capacity(), None);
        Ok(Store {
            main: policy(force.eviction, force.high_bytes),
            soft: policy(force.eviction, force.high_bytes),
            one_shot: OneShot::new(reservation_life(&force)),
            config,
            force,
            arena,
            index: Index::default(),
            outbox: Outbox::default(),
            forgotten_counted: 0,
            link: Link::Down,
            inventory: Inventory::Off,
            last_session: Session::default(),
            cluster: None,
            serving: Millis(0),
            serve_until: Now(0),
            refusal: None,
            writes: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_due: BTreeSet::new(),
            waiting_bytes: 0,
            space_changed: false,
            cut: BTreeMap::new(),
            reads: BTreeMap::new(),
            read_due: BTreeSet::new(),
            checks: BTreeMap::new(),
            checks_queued: VecDeque::new(),
            check_last: 0,
            aside: BTreeSet::new(),
            soft_due: BTreeSet::new(),
            retracting: BTreeSet::new(),
            evicting: false,
            born_bytes: 0,
            more_to_do: false,
            done: NodeFigures::default(),
            #[cfg(known_bugs)]
            bugs: crate::bugs::Bugs::default(),
        })
    }

    /// Takes one event in and appends what is to be done, in order.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        self.more_to_do = false;
        match event {
            Event::WriteStart { write, request } => self.write_start(now, write, request, out),
            Event::WriteEnd { write, filled } => self.write_end(now, write, filled, out),
            Event::WriterGone { write } => self.writer_gone(now, write, out),
            Event::ReadStart { read, request } => self.read_start(now, read, &request, out),
            Event::ReadProgress { read } => self.read_progress(now, read),
            Event::ReadEnd { read } => self.read_end(read),
            Event::Scrubbed { scrub, sound } => self.scrubbed(now, scrub, sound, out),
            Event::LinkUp { link } => self.link_up(now, link, out),
            Event::Master { link, message } => self.master(now, link, message, out),
            Event::LinkLost { link } => self.link_lost(link, out),
            Event::Tick => {}
        }
        self.expire_waits(now, out);
        self.expire_pins(now, out);
        self.resend_overdue(now, out);
        self.unshelve_due(now);
        self.grant_waiting(now, out);
        self.evict(now);
        self.start_checks(out);
        self.flush(now, out);
        self.one_shot.expire(now);
        let forgotten = self.one_shot.forgotten();
        if forgotten > self.forgotten_counted {
            count(
                out,
                Counter::OneShotForgotten,
                forgotten - self.forgotten_counted,
            );
            self.forgotten_counted = forgotten;
        }
        self.check_in_debug();
    }

    /// When the next `Event::Tick` is due at the latest (or [`Now::NEVER`]). May lie in the past: then at once.
    pub fn next_deadline(&self) -> Now {
        if self.more_to_do {
            return Now(0);
        }
        let first = |set: &BTreeSet<(Now, SlotId)>| set.first().map_or(Now::NEVER, |(at, _)| *at);
        let aside = if self.evicting || !self.waiting.is_empty() {
            first(&self.aside)
        } else {
            Now::NEVER
        };
        let reads = self.read_due.first().map_or(Now::NEVER, |(at, _)| *at);
        let outbox = if self.session().is_some() {
            self.outbox.next_deadline()
        } else {
            Now::NEVER
        };
        first(&self.waiting_due)
            .min(aside)
            .min(reads)
            .min(outbox)
            .min(first(&self.soft_due))
    }

    /// What it holds.
    pub fn usage(&self) -> Usage {
        let split = self.index.sums();
        Usage {
            used: self.arena.used_bytes(),
            capacity: self.arena.capacity(),
            largest_free: self.arena.largest_free(),
            leased: split.leased,
            pinned: split.pinned,
            unfinished: split.unfinished,
            replicas: split.tellable,
            reads: self.reads.len() as u64,
            waiting: self.waiting_due.len() as u64,
            extents: self.arena.extents(),
        }
    }

    /// What the master is told with each pong.
    pub fn figures(&self) -> NodeFigures {
        let split = self.index.sums();
        NodeFigures {
            held: split.served,
            held_bytes: split.served_bytes,
            pins: self.reads.len() as u64,
            ..self.done
        }
    }

    /// The policy in force with the source of each value.
    pub fn policy_text(&self) -> String {
        self.force.text()
    }

    /// The policy in force.
    pub fn policy(&self) -> &InForce {
        &self.force
    }

    /// The node serves before this moment.
    pub fn serving_until(&self) -> Now {
        self.serve_until
    }

    /// The present session; `None` without a registered link.
    pub fn session(&self) -> Option<Session> {
        match self.link {
            Link::Live { session, .. } => Some(session),
            _ => None,
        }
    }

    /// True once the whole inventory has been told in the present session.
    pub fn is_inventoried(&self) -> bool {
        self.inventory == Inventory::Done
    }

    /// Why the master refused the last registration, and whether another try may succeed.
    pub fn refusal(&self) -> Option<&(Failure, bool)> {
        self.refusal.as_ref()
    }

    /// Who it is.
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// Its process life.
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// All versions that are served to new reads (as long as the serving lease runs), for audits.
    pub fn served(&self) -> impl Iterator<Item = (&ObjectName, snowskin_types::Version)> {
        let served = self.index.iter().filter(|(_, slot)| slot.is_served());
        served.map(|(_, slot)| (&slot.name, slot.version))
    }

    /// True when new reads of exactly this version are served (as long as the serving lease runs).
    pub fn serves(&self, name: &ObjectName, version: snowskin_types::Version) -> bool {
        let slot = self
            .index
            .find(name, version)
            .and_then(|id| self.index.get(id));
        slot.is_some_and(|slot| slot.is_served())
    }

    /// Activates planted faults.
    #[cfg(known_bugs)]
    pub fn plant(&mut self, bugs: crate::bugs::Bugs) {
        self.bugs = bugs;
    }

    /// Runs one step of a replica's life and brings the sums up to date.
    pub(crate) fn step(&mut self, id: SlotId, step: impl FnOnce(Replica) -> Replica) {
        if let Some(slot) = self.index.get_mut(id) {
            let before = std::mem::replace(&mut slot.replica, Replica::Moving);
            slot.replica = step(before);
            self.index.recount(id);
        }
    }

    /// A failure at this node about an object.
    pub(crate) fn failure(
        &self,
        code: Code,
        stage: Stage,
        name: &ObjectName,
        message: impl Into<String>,
    ) -> Failure {
        Failure::new(code, stage, message)
            .with_key(&name.key)
            .with_peer(&*self.config.address)
    }

    pub(crate) fn adopt_policy(&mut self, pushed: &ClusterPolicy) {
        let force = InForce::of(&self.config, self.arena.capacity(), Some(pushed));
        self.one_shot.set_span(reservation_life(&force));
        // S3-FIFO sizes its queues by the bytes it may fill.
        let before = (self.force.eviction, self.force.high_bytes);
        let changed = (force.eviction, force.high_bytes) != before;
        self.force = force;
        if changed {
            self.rebuild_order();
        }
    }
}

fn reservation_life(force: &InForce) -> Millis {
    let twice = force.put_discard.0.saturating_mul(2);
    Millis(twice.saturating_add(RESERVATION_SLACK.0))
}

pub(crate) fn count(out: &mut Vec<Effect>, counter: Counter, by: u64) {
    if by > 0 {
        out.push(Effect::Count { counter, by });
    }
}
