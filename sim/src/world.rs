//! The whole cluster in one thread: processes, the network between them, and what happens next.
//!
//! Everything that happens is posted to one queue; a frozen process gets what reached it when it
//! wakes, in an order of the network's choosing. Cores are called from here only.

use crate::clock::{MS, Micros};
use crate::host::client::ClientHost;
use crate::host::master::MasterHost;
use crate::host::node::{Io, NodeHost};
use crate::invariants::{self, Invariant, Seen};
use crate::links::Links;
use crate::net::Net;
use crate::oracle::Oracle;
use crate::packet::{Packet, Proc};
use crate::queue::Queue;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::trace::{Mode, Trace};
use crate::watch::Watch;
use crate::workload::Workload;
use snowskin_directory::effect::{Effect, Record};
use snowskin_directory::event::PersistId;
use snowskin_types::link::{FromNode, ToNode};
use snowskin_types::{ObjectName, Tenant, Version};
use std::collections::BTreeMap;
use std::fmt;

/// A property that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: &'static str,
    /// When.
    pub time: Micros,
    /// How.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} violated at {}.{:06} s: {}",
            self.invariant,
            self.time / 1_000_000,
            self.time % 1_000_000,
            self.message
        )
    }
}

/// How a durable write ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PersistFate {
    /// The record is in the state directory.
    pub applied: bool,
    /// The directory is told so.
    pub done: bool,
}

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Happening {
    Arrive {
        from: Proc,
        to: Proc,
        packet: Packet,
    },
    MasterTick {
        life: u32,
        /// Asked for by `Effect::Continue`: not repeated.
        extra: bool,
    },
    NodeTick {
        node: usize,
        life: u32,
    },
    Io {
        node: usize,
        life: u32,
        io: Io,
    },
    Connect {
        node: usize,
        life: u32,
    },
    LostAtNode(u64),
    LostAtMaster(u64),
    Persisted {
        life: u32,
        id: PersistId,
        record: Record,
        fate: PersistFate,
    },
    ClientWake {
        client: usize,
        life: u32,
        serial: u64,
    },
    StartNode(usize),
    StartMaster,
    Thaw(Proc),
    Fault(crate::faults::Kind),
    Sweep,
}

/// Figures of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Things that happened.
    pub events: u64,
    /// Messages sent.
    pub messages: u64,
    /// Calls of clients that ended, by kind and outcome.
    pub puts: u64,
    /// Puts that failed.
    pub puts_failed: u64,
    /// Reads whose bytes were compared.
    pub reads: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Reads that failed otherwise.
    pub reads_failed: u64,
    /// Removes that were acked.
    pub removes: u64,
    /// Objects evicted.
    pub evictions: u64,
    /// Times a node died.
    pub node_crashes: u64,
    /// Times the master died.
    pub master_crashes: u64,
}

/// The simulated cluster.
pub struct World {
    /// What the seed decided.
    pub setup: Setup,
    /// Simulated time.
    pub time: Micros,
    /// The master.
    pub master: MasterHost,
    /// The nodes.
    pub nodes: Vec<NodeHost>,
    /// The clients.
    pub clients: Vec<ClientHost>,
    /// The network.
    pub net: Net,
    /// What is known of every put, read and remove.
    pub oracle: Oracle,
    /// The log.
    pub trace: Trace,
    /// Figures.
    pub stats: Stats,
    pub(crate) watch: Watch,
    pub(crate) workload: Workload,
    pub(crate) links: Links,
    pub(crate) queue: Queue<Happening>,
    pub(crate) rng: Rng,
    pub(crate) faults_on: bool,
    frozen: BTreeMap<Proc, Micros>,
    inbox: BTreeMap<Proc, Vec<Happening>>,
    invariants: Vec<Box<dyn Invariant>>,
    violation: Option<Violation>,
}

/// Time between two looks at the whole state.
const SWEEP_EVERY: Micros = 25 * MS;

impl World {
    /// A cluster whose processes start at once.
    pub fn new(setup: Setup, mode: Mode) -> Self {
        let mut rng = Rng::new(setup.seed, 3);
        let nodes = (0..setup.nodes).map(NodeHost::new).collect();
        let clients = (0..setup.clients)
            .map(|index| ClientHost::new(index, &mut rng))
            .collect();
        let mut world = World {
            time: 0,
            master: MasterHost::new(&mut rng),
            nodes,
            clients,
            net: Net::new(setup.seed, setup.weather),
            oracle: Oracle::new(setup.keys),
            trace: Trace::new(mode),
            stats: Stats::default(),
            watch: Watch::default(),
            workload: Workload::new(&setup),
            links: Links::default(),
            queue: Queue::default(),
            rng,
            faults_on: false,
            frozen: BTreeMap::new(),
            inbox: BTreeMap::new(),
            invariants: invariants::all(),
            violation: None,
            setup,
        };
        world.start_master();
        for node in 0..world.setup.nodes {
            world.start_node(node);
        }
        world.post(SWEEP_EVERY, Happening::Sweep);
        world
    }

    /// Lets simulated time pass until `until`, or until a property is violated.
    pub fn run_until(&mut self, until: Micros) -> Result<(), Violation> {
        while let Some(at) = self.queue.next_at() {
            if at > until {
                break;
            }
            let Some((at, what)) = self.queue.pop() else {
                break;
            };
            self.time = self.time.max(at);
            self.happen(what);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        self.time = self.time.max(until);
        Ok(())
    }

    /// Lets time pass until something is so, at most until `limit`.
    pub fn run_while(
        &mut self,
        limit: Micros,
        mut waiting: impl FnMut(&World) -> bool,
    ) -> Result<bool, Violation> {
        while waiting(self) {
            match self.queue.next_at() {
                Some(at) if at <= limit => self.run_until(at)?,
                _ => {
                    self.time = self.time.max(limit);
                    return Ok(!waiting(self));
                }
            }
        }
        Ok(true)
    }

    /// Has the clients go on by themselves.
    pub fn begin_workload(&mut self) {
        self.workload.turn(true);
        for client in 0..self.clients.len() {
            self.arm(client);
        }
    }

    /// The version that the directory would name for a key now.
    pub(crate) fn current(&self, key: usize) -> Option<Version> {
        let name = ObjectName::new(Tenant::default(), self.oracle.key(key));
        self.master.core.as_ref()?.current(&name)
    }

    pub(crate) fn post(&mut self, delay: Micros, what: Happening) {
        self.queue.post(self.time + delay, what);
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        if self.trace.is_on() {
            self.trace.line(self.time, &line());
        }
    }

    pub(crate) fn violated(&mut self, invariant: &'static str, message: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation {
                invariant,
                time: self.time,
                message,
            });
        }
    }

    /// Shows all properties what happened.
    pub(crate) fn seen(&mut self, what: &Seen<'_>) {
        self.learn(what);
        let mut invariants = std::mem::take(&mut self.invariants);
        for invariant in &mut invariants {
            if let Err(message) = invariant.observe(self, what) {
                self.violated(invariant.name(), message);
            }
        }
        self.invariants = invariants;
        if let Seen::DirectoryEffect(Effect::Reply { id, .. }) = what {
            self.answered(*id);
        }
    }

    /// Checks all properties against the whole state.
    pub(crate) fn sweep(&mut self) {
        let state = invariants::State::of(self);
        let mut invariants = std::mem::take(&mut self.invariants);
        for invariant in &mut invariants {
            if let Err(message) = invariant.sweep(self, &state) {
                self.violated(invariant.name(), message);
            }
        }
        self.invariants = invariants;
    }

    /// Checks all properties now.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn sweep_now(&mut self) -> Result<(), Violation> {
        self.sweep();
        self.violation.take().map_or(Ok(()), Err)
    }

    /// Sends a message through the network.
    pub(crate) fn send(&mut self, from: Proc, to: Proc, packet: Packet) {
        self.stats.messages += 1;
        self.log(|| format!("{from} -> {to} {packet}"));
        if let Some(hold) = self.net.holder(from, to, &packet) {
            self.log(|| format!("  held back by hold {hold}"));
            self.net
                .held
                .push((hold, crate::net::Held { from, to, packet }));
            return;
        }
        let [first, second] = self.net.fate(self.time, from, to);
        if let Some(at) = second {
            let packet = packet.clone();
            self.queue.post(at, Happening::Arrive { from, to, packet });
        }
        match first {
            Some(at) => self.queue.post(at, Happening::Arrive { from, to, packet }),
            None => self.lost(from, to, &packet),
        }
    }

    /// Delivers a message now, past all faults; for scenarios.
    pub fn deliver(&mut self, from: Proc, to: Proc, packet: Packet) {
        self.post(0, Happening::Arrive { from, to, packet });
    }

    /// A lost message of a connection that is a stream breaks the connection, sooner or later.
    fn lost(&mut self, from: Proc, to: Proc, packet: &Packet) {
        self.log(|| format!("  lost on the way from {from} to {to}"));
        // Without its handshake a link is dead weight; keep-alives find that out.
        if let Packet::ToMaster {
            link,
            message: FromNode::Register(_),
        }
        | Packet::ToNode {
            link,
            message: ToNode::Registered { .. } | ToNode::Refused { .. },
        } = packet
        {
            self.break_link(*link);
        }
        if let (Proc::Node(_), Packet::WriteDone { token, .. } | Packet::ReadDone { token, .. }) =
            (from, packet)
            && self.rng.chance(500)
        {
            let packet = Packet::Broken { token: *token };
            let at = self.time + self.rng.within(1, 300) * MS;
            self.queue.post(at, Happening::Arrive { from, to, packet });
        }
    }

    /// Stops a process until a moment.
    pub fn freeze(&mut self, proc: Proc, until: Micros) {
        self.log(|| format!("{proc} is stopped until {} ms", until / MS));
        self.frozen.insert(proc, until);
        self.queue.post(until, Happening::Thaw(proc));
    }

    /// A stopped process wakes, and gets all that reached it meanwhile, in any order.
    fn thaw(&mut self, proc: Proc) {
        if self.is_frozen(proc) {
            return;
        }
        self.frozen.remove(&proc);
        for what in self.inbox.remove(&proc).unwrap_or_default() {
            let delay = self.rng.below(2 * MS);
            self.post(delay, what);
        }
    }

    /// True while a process is stopped.
    pub fn is_frozen(&self, proc: Proc) -> bool {
        self.frozen
            .get(&proc)
            .is_some_and(|&until| until > self.time)
    }

    /// Ends all stops.
    pub(crate) fn thaw_all(&mut self) {
        for proc in std::mem::take(&mut self.frozen).into_keys() {
            self.thaw(proc);
        }
    }

    fn victim(&self, what: &Happening) -> Option<Proc> {
        Some(match what {
            Happening::Arrive { to, .. } => *to,
            Happening::MasterTick { .. }
            | Happening::LostAtMaster(_)
            | Happening::Persisted { .. } => Proc::Master,
            Happening::NodeTick { node, .. }
            | Happening::Io { node, .. }
            | Happening::Connect { node, .. } => Proc::Node(*node),
            Happening::LostAtNode(link) => Proc::Node(self.links.get(*link)?.node),
            Happening::ClientWake { client, .. } => Proc::Client(*client),
            Happening::StartNode(_)
            | Happening::StartMaster
            | Happening::Thaw(_)
            | Happening::Fault(_)
            | Happening::Sweep => return None,
        })
    }

    fn happen(&mut self, what: Happening) {
        if let Some(proc) = self.victim(&what)
            && self.frozen.contains_key(&proc)
        {
            self.inbox.entry(proc).or_default().push(what);
            return;
        }
        self.stats.events += 1;
        match what {
            Happening::Arrive { from, to, packet } => self.arrive(from, to, packet),
            Happening::MasterTick { life, extra } => self.master_tick(life, extra),
            Happening::NodeTick { node, life } => self.node_tick(node, life),
            Happening::Io { node, life, io } => self.node_io(node, life, io),
            Happening::Connect { node, life } => self.node_connects(node, life),
            Happening::LostAtNode(link) => self.link_lost_at_node(link),
            Happening::LostAtMaster(link) => self.link_lost_at_master(link),
            Happening::Persisted {
                life,
                id,
                record,
                fate,
            } => self.persisted(life, id, record, fate),
            Happening::ClientWake {
                client,
                life,
                serial,
            } => self.client_wakes(client, life, serial),
            Happening::StartNode(node) => self.start_node(node),
            Happening::StartMaster => self.start_master(),
            Happening::Thaw(proc) => self.thaw(proc),
            Happening::Fault(kind) => self.fault(kind),
            Happening::Sweep => {
                self.sweep();
                self.post(SWEEP_EVERY, Happening::Sweep);
            }
        }
    }

    fn arrive(&mut self, from: Proc, to: Proc, packet: Packet) {
        // A partition that began while the message was under way catches it too.
        if let Some(until) = self.net.parted(self.time, from, to) {
            let at = until + self.rng.within(1, 50) * MS;
            self.queue.post(at, Happening::Arrive { from, to, packet });
            return;
        }
        self.log(|| format!("{to} <- {from} {packet}"));
        match to {
            Proc::Master => self.master_receives(packet),
            Proc::Node(node) => self.node_receives(node, packet),
            Proc::Client(client) => self.client_receives(client, packet),
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("setup", &self.setup)
            .field("time", &self.time)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
