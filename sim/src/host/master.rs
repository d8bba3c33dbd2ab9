//! The master's shell: links, requests, and the state directory, which alone survives a crash.

use crate::clock::{Clock, MS};
use crate::cores::{self, Directory};
use crate::invariants::Seen;
use crate::packet::{Packet, Proc};
use crate::rng::Rng;
use crate::world::{Happening, PersistFate, World};
use snowskin_directory::effect::{Effect, KnownNode, Record, Restored};
use snowskin_directory::event::{Event, LinkId, PersistId, RequestId};
use snowskin_types::id::{ClusterId, Term};
use std::collections::BTreeMap;

/// What the state directory holds.
#[derive(Debug, Clone)]
pub struct Durable {
    /// Raised before a master serves.
    pub term: Term,
    /// Known nodes by id.
    pub nodes: BTreeMap<u64, KnownNode>,
}

impl Durable {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Node {
                node,
                epoch,
                address,
            } => {
                let known = self.nodes.entry(node.0).or_insert_with(|| KnownNode {
                    node,
                    epoch,
                    address: address.clone(),
                    mark: None,
                    forgotten: false,
                });
                if known.epoch != epoch {
                    known.mark = None;
                    known.forgotten = false;
                }
                known.epoch = epoch;
                known.address = address;
            }
            Record::Mark { nodes, term } => {
                for (node, epoch) in nodes {
                    if let Some(known) = self.nodes.get_mut(&node.0)
                        && known.epoch == epoch
                    {
                        known.mark = Some(term);
                    }
                }
            }
            Record::ClearMark { node } => {
                if let Some(known) = self.nodes.get_mut(&node.0) {
                    known.mark = None;
                }
            }
            Record::Forget { node, epoch } => {
                if let Some(known) = self.nodes.get_mut(&node.0)
                    && known.epoch == epoch
                {
                    known.forgotten = true;
                }
            }
            Record::Left { node, epoch } => {
                if self.nodes.get(&node.0).is_some_and(|k| k.epoch == epoch) {
                    self.nodes.remove(&node.0);
                }
            }
        }
    }
}

/// The master's process and its disk.
#[derive(Debug)]
pub struct MasterHost {
    /// The core, while the process lives.
    pub core: Option<Directory>,
    /// Process lives so far.
    pub life: u32,
    /// Its clock.
    pub clock: Clock,
    /// Its disk.
    pub durable: Durable,
    requests: BTreeMap<RequestId, (usize, u64)>,
    requests_made: u64,
    persists: BTreeMap<PersistId, (Record, PersistFate)>,
    disk_busy_until: u64,
    effects: Vec<Effect>,
}

impl MasterHost {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        MasterHost {
            core: None,
            life: 0,
            clock: Clock::new(rng.below(1 << 40), 0, 0),
            durable: Durable {
                term: Term(0),
                nodes: BTreeMap::new(),
            },
            requests: BTreeMap::new(),
            requests_made: 0,
            persists: BTreeMap::new(),
            disk_busy_until: 0,
            effects: Vec::new(),
        }
    }
}

impl World {
    /// Starts the master's process on what its disk holds.
    pub fn start_master(&mut self) {
        if self.master.core.is_some() {
            return;
        }
        let drift = self.rng.within(0, 600) as i64 - 300;
        self.master.life += 1;
        self.master.clock = Clock::new(self.rng.below(1 << 40), self.time, drift);
        self.master.durable.term.0 += 1;
        let restored = Restored {
            cluster: ClusterId(77),
            term: self.master.durable.term,
            nodes: self.master.durable.nodes.values().cloned().collect(),
        };
        self.log(|| format!("master starts: {restored:?}"));
        let now = self.master.clock.now(self.time);
        let seed = self.rng.draw();
        let (core, effects) = cores::directory(now, restored, &self.setup, seed);
        self.master.core = Some(core);
        self.seen(&Seen::MasterStarted);
        for effect in effects {
            self.seen(&Seen::DirectoryEffect(&effect));
            self.master_effect(effect);
        }
        let life = self.master.life;
        self.post(MS, Happening::MasterTick { life, extra: false });
    }

    /// Kills the master's process; its disk stays, with or without what was being written.
    pub fn crash_master(&mut self) {
        if self.master.core.take().is_none() {
            return;
        }
        self.stats.master_crashes += 1;
        self.log(|| "master dies".to_owned());
        self.master.life += 1;
        self.master.requests.clear();
        for (_, (record, _)) in std::mem::take(&mut self.master.persists) {
            if self.rng.chance(500) {
                self.master.durable.apply(record);
            }
        }
        self.master.disk_busy_until = 0;
        let links: Vec<u64> = self.links.iter().map(|(id, _)| id).collect();
        for link in links {
            self.links.close_at_master(link);
            let delay = self.rng.within(1, 400) * MS;
            self.post(delay, Happening::LostAtNode(link));
        }
        self.seen(&Seen::MasterDied);
    }

    pub(crate) fn master_tick(&mut self, life: u32, extra: bool) {
        if life != self.master.life || self.master.core.is_none() {
            return;
        }
        self.master_step(Event::Tick);
        if !extra {
            let next = self.rng.within(40, 100) * MS;
            self.post(next, Happening::MasterTick { life, extra });
        }
    }

    pub(crate) fn master_receives(&mut self, packet: Packet) {
        match packet {
            Packet::ToMaster { link, message } => {
                let open = self
                    .links
                    .get(link)
                    .is_some_and(|l| l.open_at_master && l.master_life == self.master.life);
                if open && self.master.core.is_some() {
                    let link = LinkId(link);
                    self.master_step(Event::Node { link, message });
                }
            }
            Packet::Request {
                client,
                call,
                request,
            } => {
                if self.master.core.is_none() {
                    if self.rng.chance(600) {
                        let packet = Packet::Broken { token: call };
                        self.send(Proc::Master, Proc::Client(client), packet);
                    }
                    return;
                }
                self.master.requests_made += 1;
                let id = RequestId(self.master.requests_made);
                self.master.requests.insert(id, (client, call));
                self.seen(&Seen::Request {
                    id,
                    client,
                    call,
                    request: &request,
                });
                self.master_step(Event::Request { id, request });
            }
            Packet::Abandon { client, call } => {
                let found = self
                    .master
                    .requests
                    .iter()
                    .find(|(_, of)| **of == (client, call));
                if let Some((&id, _)) = found {
                    self.master.requests.remove(&id);
                    self.master_step(Event::Abandon { id });
                }
            }
            _ => {}
        }
    }

    pub(crate) fn link_lost_at_master(&mut self, link: u64) {
        let of_this_life = self
            .links
            .get(link)
            .is_some_and(|l| l.master_life == self.master.life);
        if self.links.close_at_master(link) && of_this_life && self.master.core.is_some() {
            self.log(|| format!("master notices the end of link {link}"));
            self.master_step(Event::LinkLost { link: LinkId(link) });
        }
    }

    pub(crate) fn persisted(
        &mut self,
        life: u32,
        id: PersistId,
        record: Record,
        fate: PersistFate,
    ) {
        if life != self.master.life || self.master.persists.remove(&id).is_none() {
            return;
        }
        self.log(|| format!("master's disk: {record:?} {fate:?}"));
        if fate.applied {
            self.seen(&Seen::Persisted { record: &record });
            self.master.durable.apply(record);
        }
        let done = fate.done;
        self.master_step(Event::Persisted { id, done });
    }

    fn master_step(&mut self, event: Event) {
        self.seen(&Seen::DirectoryEvent(&event));
        let now = self.master.clock.now(self.time);
        let Some(core) = self.master.core.as_mut() else {
            return;
        };
        let mut effects = std::mem::take(&mut self.master.effects);
        core.handle(now, event, &mut effects);
        for effect in &effects {
            self.seen(&Seen::DirectoryEffect(effect));
        }
        for effect in effects.drain(..) {
            self.master_effect(effect);
        }
        self.master.effects = effects;
    }

    fn master_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { id, reply } => {
                if let Some((client, call)) = self.master.requests.remove(&id) {
                    let packet = Packet::Reply { call, reply };
                    self.send(Proc::Master, Proc::Client(client), packet);
                }
            }
            Effect::Send { link, message } => {
                if let Some(found) = self.links.get(link.0)
                    && found.open_at_master
                {
                    let packet = Packet::ToNode {
                        link: link.0,
                        message,
                    };
                    self.send(Proc::Master, Proc::Node(found.node), packet);
                }
            }
            Effect::Close { link } => {
                self.log(|| format!("master closes link {}", link.0));
                if self.links.close_at_master(link.0) {
                    let delay = self.rng.within(60, 200) * MS;
                    self.post(delay, Happening::LostAtNode(link.0));
                }
            }
            Effect::Persist { id, record } => self.persist(id, record),
            Effect::Continue => {
                let life = self.master.life;
                self.post(50, Happening::MasterTick { life, extra: true });
            }
            Effect::Count { .. } => {}
        }
    }

    fn persist(&mut self, id: PersistId, record: Record) {
        let weather = self.net.weather;
        let fails = self.rng.chance(weather.failed_persist);
        let fate = PersistFate {
            applied: !fails || self.rng.chance(500),
            done: !fails,
        };
        let took = if self.rng.chance(weather.slow_persist) {
            self.rng.within(1, 500) * MS
        } else {
            self.rng.within(200, 2000)
        };
        self.log(|| format!("master writes {record:?}"));
        self.master.persists.insert(id, (record.clone(), fate));
        let at = self.master.disk_busy_until.max(self.time) + took;
        self.master.disk_busy_until = at;
        let life = self.master.life;
        self.queue.post(
            at,
            Happening::Persisted {
                life,
                id,
                record,
                fate,
            },
        );
    }
}
