//! The directory: its state, and what each event leads to.

use crate::config::Config;
use crate::draw::Draw;
use crate::durable::Durable;
use crate::effect::{Counter, Effect, Restored};
use crate::event::Event;
use crate::gauges::Totals;
use crate::group::Groups;
use crate::jobs::Jobs;
use crate::lease::{LEASE_MAX, LeaseBook};
use crate::node::{Mark, Nodes, serving_end};
use crate::outbox::Outbox;
use crate::publish::Deferred;
use crate::remembered::Remembered;
use crate::report::Hidden;
use crate::session::Registration;
use crate::sweep::Sweeper;
use crate::table::Table;
use crate::timers::Timers;
use crate::waits::Waits;
use snowskin_types::id::{ClusterId, Epoch, NodeId, Term};
use snowskin_types::limits::{GRACE_MAX, RECOVERY_WAIT_MAX};
use snowskin_types::time::Now;
use snowskin_types::version::Version;
use std::collections::BTreeMap;

/// The core of the master. See [`crate::event`] and [`crate::effect`].
#[derive(Debug)]
pub struct Directory {
    pub(crate) config: Config,
    pub(crate) cluster: ClusterId,
    pub(crate) term: Term,
    pub(crate) now: Now,
    pub(crate) last_tick: Now,
    /// When the nodes' health is looked at next.
    pub(crate) nodes_due: Now,
    /// Nothing is evicted and no plain remove is answered before.
    pub(crate) grace_end: Now,
    /// Unknown keys wait no longer than this.
    pub(crate) recovery_end: Now,
    pub(crate) ready: bool,
    counter: u64,
    pub(crate) sessions: u64,
    pub(crate) table: Table,
    pub(crate) nodes: Nodes,
    /// Known nodes that have not told their whole index in this term.
    pub(crate) incomplete: usize,
    /// Epochs of nodes that are no longer known.
    pub(crate) forgotten: BTreeMap<NodeId, Epoch>,
    pub(crate) registrations: BTreeMap<crate::event::LinkId, Registration>,
    pub(crate) groups: Groups,
    pub(crate) leases: LeaseBook,
    pub(crate) timers: Timers,
    pub(crate) waits: Waits,
    /// Sweeps of this term, until all known nodes have told what they hold.
    pub(crate) remembered: Vec<Remembered>,
    pub(crate) hidden: BTreeMap<(u32, u16), Hidden>,
    pub(crate) deferred: BTreeMap<(u16, u32, Version), Deferred>,
    pub(crate) durable: Durable,
    pub(crate) jobs: Jobs,
    pub(crate) sweeper: Sweeper,
    pub(crate) outbox: Outbox,
    pub(crate) totals: Totals,
    pub(crate) draw: Draw,
    pub(crate) placeable: Option<crate::placement::Candidates>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) scratch: crate::lookup::Scratch,
    #[cfg(known_bugs)]
    pub(crate) bugs: crate::bugs::Bugs,
}

impl Directory {
    /// Begins a leadership whose term has been raised and stored.
    pub fn new(now: Now, mut config: Config, restored: Restored) -> (Directory, Vec<Effect>) {
        config.lease_ttl = config.lease_ttl.min(LEASE_MAX);
        // A cluster without former nodes has no former leases and no copies to wait for.
        let fresh = restored.nodes.iter().all(|n| n.forgotten);
        let wait = |span| if fresh { now } else { now + span };
        let mut directory = Directory {
            cluster: restored.cluster,
            term: restored.term,
            now,
            last_tick: now,
            nodes_due: now,
            grace_end: wait(config.lease_ttl.min(GRACE_MAX)),
            recovery_end: wait(RECOVERY_WAIT_MAX),
            ready: fresh,
            counter: 0,
            sessions: 0,
            table: Table::new(config.hash_seed),
            nodes: Nodes::default(),
            incomplete: 0,
            forgotten: BTreeMap::new(),
            registrations: BTreeMap::new(),
            groups: Groups::default(),
            leases: LeaseBook::default(),
            timers: Timers::default(),
            waits: Waits::default(),
            remembered: Vec::new(),
            hidden: BTreeMap::new(),
            deferred: BTreeMap::new(),
            durable: Durable::default(),
            jobs: Jobs::default(),
            sweeper: Sweeper::default(),
            outbox: Outbox::default(),
            totals: Totals::default(),
            draw: Draw::new(config.rng_seed),
            placeable: None,
            effects: Vec::new(),
            scratch: crate::lookup::Scratch::default(),
            #[cfg(known_bugs)]
            bugs: crate::bugs::Bugs::default(),
            config,
        };
        directory.restore(restored);
        let effects = std::mem::take(&mut directory.effects);
        (directory, effects)
    }

    fn restore(&mut self, restored: Restored) {
        let below = Version::new(self.term, 0).unwrap_or(Version::NONE);
        for known in restored.nodes {
            if known.forgotten {
                self.forgotten.insert(known.node, known.epoch);
                continue;
            }
            let now = self.now;
            let Some(ix) = self.nodes.add(known.node, known.epoch, now) else {
                continue;
            };
            if let Some(node) = self.nodes.get_mut(ix) {
                node.address = known.address;
                node.recorded = true;
                // The former leadership may have confirmed it until this very moment.
                node.serving_until = serving_end(now);
                if known.mark.is_some() {
                    node.mark = Mark::Durable;
                    node.refuse_below = below;
                }
            }
        }
        self.count_incomplete();
    }

    /// Plants a known fault, to show that the checks find it.
    #[cfg(known_bugs)]
    pub fn plant(&mut self, bugs: crate::bugs::Bugs) {
        self.bugs = bugs;
    }

    /// Takes one event and appends what it leads to.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        std::mem::swap(&mut self.effects, out);
        self.leases.advance(self.now);
        match event {
            Event::Request { id, request } => self.on_request(id, request),
            Event::Abandon { id } => self.on_abandon(id),
            Event::Node { link, message } => self.on_node(link, message),
            Event::LinkLost { link } => self.on_link_lost(link),
            Event::Persisted { id, done } => self.on_persisted(id, done),
            Event::Tick => self.on_tick(),
        }
        self.flush_marks();
        self.flush_outbox();
        std::mem::swap(&mut self.effects, out);
        #[cfg(debug_assertions)]
        self.check_small();
    }

    /// A version above all that were given out; none when a term has used all up.
    pub(crate) fn next_version(&mut self) -> Option<Version> {
        let version = Version::new(self.term, self.counter + 1)?;
        self.counter += 1;
        Some(version)
    }

    /// The version that will be given out next.
    pub(crate) fn coming_version(&self) -> Version {
        Version::new(self.term, self.counter + 1).unwrap_or(Version::from_raw(u64::MAX))
    }

    pub(crate) fn count(&mut self, counter: Counter, by: u64) {
        if by > 0 {
            self.effects.push(Effect::Count { counter, by });
        }
    }

    pub(crate) fn in_grace(&self) -> bool {
        self.now < self.grace_end
    }

    /// True once the inventories of the known nodes are in, or have been waited for long enough.
    pub fn ready(&self) -> bool {
        self.ready
    }

    /// When the core has something to do without being told anything else.
    pub fn next_deadline(&self) -> Now {
        if self.has_work() {
            return self.now;
        }
        let pings = self.nodes.iter().map(|(_, n)| n.ping_due).min();
        let mut next = self.timers.next_due().unwrap_or(Now::NEVER);
        // Nodes are not looked at before `nodes_due`.
        next = next.min(pings.unwrap_or(Now::NEVER).max(self.nodes_due));
        if self.in_grace() {
            next = next.min(self.grace_end);
        }
        if !self.ready {
            next = next.min(self.recovery_end);
        }
        next
    }
}
