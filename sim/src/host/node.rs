//! A node's shell: its link to the master and its data server, which moves bytes in and out of the
//! segment piece by piece, at times of its own, without asking the core again.

use crate::clock::{Clock, MS, Micros, SECOND};
use crate::content::PutId;
use crate::cores::{self, Store};
use crate::invariants::Seen;
use crate::memory::Memory;
use crate::packet::{Packet, Proc, ReadBytes};
use crate::world::{Happening, World};
use snowskin_store::effect::{Counter, Effect, ReadGrant};
use snowskin_store::event::{Event, Filled, LinkId, ReadId, ScrubId, WriteId};
use snowskin_types::access::Extent;
use snowskin_types::checksum::PieceSums;
use snowskin_types::{Epoch, NodeId, Now};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes moved at a time.
const CHUNK: u64 = 4096;
/// A data server gives up a writer that is silent for this long.
const WRITER_SILENT_MAX: Micros = 10 * SECOND;

/// The next piece of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Io {
    Write(WriteId, u32),
    Read(ReadId, u32),
    Scrub(ScrubId),
}

#[derive(Debug)]
pub(crate) struct WriteIo {
    client: usize,
    token: u64,
    put: PutId,
    size: u64,
    extents: Option<Arc<[Extent]>>,
    done: u64,
    ended: bool,
    hung_up: bool,
    cut: bool,
    serial: u32,
    silent_since: Micros,
}

#[derive(Debug)]
pub(crate) struct ReadIo {
    client: usize,
    token: u64,
    grant: ReadGrant,
    bytes: Vec<u8>,
    hung_up: bool,
    cut: bool,
    serial: u32,
}

#[derive(Debug)]
pub(crate) struct ScrubIo {
    size: u64,
    extents: Arc<[Extent]>,
    sums: Arc<PieceSums>,
}

/// A node's process.
#[derive(Debug)]
pub struct NodeHost {
    /// Lasting identity.
    pub id: NodeId,
    /// Lasting address.
    pub address: Arc<str>,
    /// The core, while the process lives.
    pub core: Option<Store>,
    /// Process lives so far.
    pub life: u32,
    /// This process life, as told to others.
    pub epoch: Epoch,
    /// Its clock.
    pub clock: Clock,
    /// Its segment.
    pub memory: Memory,
    /// Until when it serves, as it said last.
    pub serve_until: Now,
    /// Its link to the master.
    pub link: Option<u64>,
    pub(crate) writes: BTreeMap<WriteId, WriteIo>,
    pub(crate) reads: BTreeMap<ReadId, ReadIo>,
    scrubs: BTreeMap<ScrubId, ScrubIo>,
    made: u64,
    effects: Vec<Effect>,
}

impl NodeHost {
    pub(crate) fn new(index: usize) -> Self {
        let address: Arc<str> = format!("node{index}:1").into();
        NodeHost {
            id: NodeId::from_address(&address),
            address,
            core: None,
            life: 0,
            epoch: Epoch(0),
            clock: Clock::new(0, 0, 0),
            memory: Memory::new(0),
            serve_until: Now(0),
            link: None,
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            scrubs: BTreeMap::new(),
            made: 0,
            effects: Vec::new(),
        }
    }

    /// Extents that running reads may still touch.
    pub fn extents_being_read(&self) -> impl Iterator<Item = (ReadId, &Arc<[Extent]>)> + '_ {
        self.reads
            .iter()
            .map(|(id, read)| (*id, &read.grant.extents))
    }

    /// Extents that running writes may still touch.
    pub fn extents_being_written(&self) -> impl Iterator<Item = (WriteId, &Arc<[Extent]>)> + '_ {
        let running = self.writes.iter().filter(|(_, write)| !write.ended);
        running.filter_map(|(id, write)| Some((*id, write.extents.as_ref()?)))
    }
}

impl World {
    /// Starts a node's process: fresh memory, a new epoch, the old address.
    pub fn start_node(&mut self, node: usize) {
        if self.nodes[node].core.is_some() {
            return;
        }
        let drift = self.rng.within(0, 600) as i64 - 300;
        let host = &mut self.nodes[node];
        host.life += 1;
        host.epoch = Epoch(self.rng.draw() >> 16 | 1);
        host.clock = Clock::new(self.rng.below(1 << 40), self.time, drift);
        host.memory = Memory::new(self.setup.capacity);
        host.serve_until = Now(0);
        let now = host.clock.now(self.time);
        let core = cores::store(now, host, &self.setup);
        host.core = Some(core);
        let (life, epoch) = (host.life, host.epoch);
        self.log(|| format!("node{node} starts with epoch {epoch}"));
        self.seen(&Seen::NodeStarted { node });
        self.post(MS, Happening::NodeTick { node, life });
        let delay = self.rng.within(1, 30) * MS;
        self.post(delay, Happening::Connect { node, life });
    }

    /// Kills a node's process.
    pub fn crash_node(&mut self, node: usize) {
        if self.nodes[node].core.take().is_none() {
            return;
        }
        self.stats.node_crashes += 1;
        self.log(|| format!("node{node} dies"));
        self.seen(&Seen::NodeDied { node });
        let host = &mut self.nodes[node];
        host.life += 1;
        host.link = None;
        host.scrubs.clear();
        let writes = std::mem::take(&mut host.writes);
        let reads = std::mem::take(&mut host.reads);
        let tokens: Vec<(usize, u64)> = writes
            .values()
            .map(|w| (w.client, w.token))
            .chain(reads.values().map(|r| (r.client, r.token)))
            .collect();
        for (client, token) in tokens {
            if self.rng.chance(700) {
                let packet = Packet::Broken { token };
                self.send(Proc::Node(node), Proc::Client(client), packet);
            }
        }
        let links: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, l)| l.node == node)
            .map(|(id, _)| id)
            .collect();
        for link in links {
            self.links.close_at_node(link);
            // The master may notice late, even after the restarted node has connected.
            let delay = self.rng.within(1, 1500) * MS;
            self.post(delay, Happening::LostAtMaster(link));
        }
    }

    pub(crate) fn node_tick(&mut self, node: usize, life: u32) {
        if self.nodes[node].life != life || self.nodes[node].core.is_none() {
            return;
        }
        self.node_step(node, Event::Tick);
        let next = self.rng.within(10, 20) * MS;
        self.post(next, Happening::NodeTick { node, life });
    }

    pub(crate) fn node_connects(&mut self, node: usize, life: u32) {
        let host = &self.nodes[node];
        if host.life != life || host.core.is_none() || host.link.is_some() {
            return;
        }
        let parted = self.net.parted(self.time, Proc::Node(node), Proc::Master);
        if self.master.core.is_none() || parted.is_some() {
            self.reconnect(node);
            return;
        }
        let link = self.links.open(node, life, self.master.life);
        self.nodes[node].link = Some(link);
        self.log(|| format!("node{node} opens link {link}"));
        self.node_step(node, Event::LinkUp { link: LinkId(link) });
    }

    fn reconnect(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let delay = self.rng.within(50, 250) * MS;
        self.post(delay, Happening::Connect { node, life });
    }

    pub(crate) fn link_lost_at_node(&mut self, link: u64) {
        let Some(found) = self.links.get(link) else {
            return;
        };
        if self.links.close_at_node(link) && self.nodes[found.node].link == Some(link) {
            self.log(|| format!("node{} notices the end of link {link}", found.node));
            self.nodes[found.node].link = None;
            self.node_step(found.node, Event::LinkLost { link: LinkId(link) });
            self.reconnect(found.node);
        }
    }

    /// Nothing listens: most callers learn it at once, some only by their own deadline.
    fn refuse_connection(&mut self, node: usize, client: usize, token: u64) {
        if self.rng.chance(700) {
            let packet = Packet::Broken { token };
            self.send(Proc::Node(node), Proc::Client(client), packet);
        }
    }

    pub(crate) fn node_receives(&mut self, node: usize, packet: Packet) {
        let alive = self.nodes[node].core.is_some();
        match packet {
            Packet::ToNode { link, message } => {
                let current = alive && self.nodes[node].link == Some(link);
                let link = LinkId(link);
                let event = current.then_some(Event::Master { link, message });
                event.into_iter().for_each(|e| self.node_step(node, e));
            }
            Packet::Write { client, token, .. } | Packet::Read { client, token, .. } if !alive => {
                self.refuse_connection(node, client, token);
            }
            Packet::Write {
                client,
                token,
                put,
                request,
            } => {
                let host = &mut self.nodes[node];
                host.made += 1;
                let write = WriteId(host.made);
                host.writes.insert(
                    write,
                    WriteIo {
                        client,
                        token,
                        put,
                        size: request.size,
                        extents: None,
                        done: 0,
                        ended: false,
                        hung_up: false,
                        cut: false,
                        serial: 0,
                        silent_since: self.time,
                    },
                );
                self.node_step(node, Event::WriteStart { write, request });
            }
            Packet::Read {
                client,
                token,
                request,
            } => {
                let host = &mut self.nodes[node];
                host.made += 1;
                let read = ReadId(host.made);
                let grant = ReadGrant {
                    shape: snowskin_types::object::Shape::default(),
                    offset: 0,
                    len: 0,
                    extents: Arc::new([]),
                    sums: Arc::default(),
                };
                host.reads.insert(
                    read,
                    ReadIo {
                        client,
                        token,
                        grant,
                        bytes: Vec::new(),
                        hung_up: false,
                        cut: false,
                        serial: 0,
                    },
                );
                self.node_step(node, Event::ReadStart { read, request });
            }
            Packet::Hangup { client, token } if alive => self.hung_up(node, client, token),
            _ => {}
        }
    }

    /// The data server notices that a client closed its connection.
    fn hung_up(&mut self, node: usize, client: usize, token: u64) {
        let host = &mut self.nodes[node];
        let writes: Vec<WriteId> = host
            .writes
            .iter()
            .filter(|(_, w)| (w.client, w.token) == (client, token) && !w.hung_up)
            .map(|(id, _)| *id)
            .collect();
        let reads: Vec<ReadId> = host
            .reads
            .iter()
            .filter(|(_, r)| (r.client, r.token) == (client, token))
            .map(|(id, _)| *id)
            .collect();
        for read in reads {
            if let Some(io) = self.nodes[node].reads.get_mut(&read) {
                io.hung_up = true;
            }
            self.read_on(node, read, 0);
        }
        for write in writes {
            let Some(io) = self.nodes[node].writes.get_mut(&write) else {
                continue;
            };
            io.hung_up = true;
            if io.extents.is_some() && !io.ended {
                self.write_on(node, write, 0);
            } else {
                self.node_step(node, Event::WriterGone { write });
                self.nodes[node].writes.remove(&write);
            }
        }
    }

    fn write_on(&mut self, node: usize, write: WriteId, delay: Micros) {
        let host = &mut self.nodes[node];
        let life = host.life;
        if let Some(io) = host.writes.get_mut(&write) {
            io.serial += 1;
            let io = Io::Write(write, io.serial);
            self.post(delay, Happening::Io { node, life, io });
        }
    }

    fn read_on(&mut self, node: usize, read: ReadId, delay: Micros) {
        let host = &mut self.nodes[node];
        let life = host.life;
        if let Some(io) = host.reads.get_mut(&read) {
            io.serial += 1;
            let io = Io::Read(read, io.serial);
            self.post(delay, Happening::Io { node, life, io });
        }
    }

    /// Time until the next piece of a transfer moves.
    fn piece_delay(&mut self) -> Micros {
        let weather = self.net.weather;
        if self.rng.chance(weather.stalled_transfer) {
            self.rng.within(9, 13) * SECOND
        } else if self.rng.chance(weather.slow_transfer) {
            self.rng.within(1, 150) * MS
        } else {
            self.rng.within(20, 300)
        }
    }

    pub(crate) fn node_io(&mut self, node: usize, life: u32, io: Io) {
        if self.nodes[node].life != life || self.nodes[node].core.is_none() {
            return;
        }
        match io {
            Io::Write(write, serial) => self.write_piece(node, write, serial),
            Io::Read(read, serial) => self.read_piece(node, read, serial),
            Io::Scrub(scrub) => {
                let Some(io) = self.nodes[node].scrubs.remove(&scrub) else {
                    return;
                };
                let mut bytes = Vec::new();
                self.nodes[node]
                    .memory
                    .read(&io.extents, 0, io.size, &mut bytes);
                // Memory rots now and then, where readers report falsely too.
                let rotten =
                    self.faults_on && self.setup.pace.false_report > 0 && self.rng.chance(80);
                let sound = PieceSums::of(&bytes) == *io.sums && !rotten;
                self.node_step(node, Event::Scrubbed { scrub, sound });
            }
        }
    }

    fn write_piece(&mut self, node: usize, write: WriteId, serial: u32) {
        let Some(io) = self.nodes[node].writes.get(&write) else {
            return;
        };
        let Some(extents) = io.extents.clone() else {
            return;
        };
        if io.serial != serial || io.ended {
            return;
        }
        let (client, silent_since) = (io.client, io.silent_since);
        let (from, to, put) = (io.done, (io.done + CHUNK).min(io.size), io.put);
        let stopped = io.cut || io.hung_up;
        // What was being received when the order to stop came still lands in memory.
        if stopped && (from == to || self.rng.chance(500)) {
            self.write_ends(node, write, Filled::Broken);
            return;
        }
        let away = self.is_frozen(Proc::Client(client))
            || self
                .net
                .parted(self.time, Proc::Node(node), Proc::Client(client))
                .is_some();
        if away && !stopped {
            if self.time - silent_since > WRITER_SILENT_MAX {
                self.write_ends(node, write, Filled::Broken);
            } else {
                let delay = self.rng.within(20, 200) * MS;
                self.write_on(node, write, delay);
            }
            return;
        }
        self.nodes[node].memory.write(&extents, from, to, put);
        let now = self.time;
        let Some(io) = self.nodes[node].writes.get_mut(&write) else {
            return;
        };
        io.done = to;
        io.silent_since = now;
        if stopped {
            self.write_ends(node, write, Filled::Broken);
        } else if to == io.size {
            let corrupt = self.faults_on && self.rng.chance(3);
            let filled = if corrupt {
                Filled::Corrupt
            } else {
                Filled::Sound
            };
            self.write_ends(node, write, filled);
        } else {
            let delay = self.piece_delay();
            self.write_on(node, write, delay);
        }
    }

    fn write_ends(&mut self, node: usize, write: WriteId, filled: Filled) {
        let Some(io) = self.nodes[node].writes.get_mut(&write) else {
            return;
        };
        io.ended = true;
        let hung_up = io.hung_up;
        self.log(|| format!("node{node} write {} ends {filled:?}", write.0));
        self.node_step(node, Event::WriteEnd { write, filled });
        if hung_up {
            self.nodes[node].writes.remove(&write);
        }
    }

    fn read_piece(&mut self, node: usize, read: ReadId, serial: u32) {
        let host = &mut self.nodes[node];
        let Some(io) = host.reads.get_mut(&read) else {
            return;
        };
        if io.serial != serial {
            return;
        }
        if io.cut || io.hung_up {
            self.read_ends(node, read, None);
            return;
        }
        let client = io.client;
        let from = io.grant.offset + io.bytes.len() as u64;
        let end = io.grant.offset + io.grant.len;
        let to = (from + CHUNK).min(end);
        let away = self.is_frozen(Proc::Client(client))
            || self
                .net
                .parted(self.time, Proc::Node(node), Proc::Client(client))
                .is_some();
        if away {
            let delay = self.rng.within(20, 200) * MS;
            self.read_on(node, read, delay);
            return;
        }
        let host = &mut self.nodes[node];
        let Some(io) = host.reads.get_mut(&read) else {
            return;
        };
        host.memory.read(&io.grant.extents, from, to, &mut io.bytes);
        if to == end {
            let done = ReadBytes {
                grant: io.grant.clone(),
                bytes: std::mem::take(&mut io.bytes),
            };
            self.read_ends(node, read, Some(done));
        } else {
            self.node_step(node, Event::ReadProgress { read });
            let delay = self.piece_delay();
            self.read_on(node, read, delay);
        }
    }

    fn read_ends(&mut self, node: usize, read: ReadId, done: Option<ReadBytes>) {
        let Some(io) = self.nodes[node].reads.remove(&read) else {
            return;
        };
        self.node_step(node, Event::ReadEnd { read });
        let token = io.token;
        let packet = match done {
            Some(done) => Packet::ReadDone {
                token,
                result: Ok(done),
            },
            None => Packet::Broken { token },
        };
        if !io.hung_up {
            self.send(Proc::Node(node), Proc::Client(io.client), packet);
        }
    }

    pub(crate) fn node_step(&mut self, node: usize, event: Event) {
        self.seen(&Seen::StoreEvent {
            node,
            event: &event,
        });
        let host = &mut self.nodes[node];
        let now = host.clock.now(self.time);
        let Some(core) = host.core.as_mut() else {
            return;
        };
        let mut effects = std::mem::take(&mut host.effects);
        core.handle(now, event, &mut effects);
        for effect in &effects {
            self.seen(&Seen::StoreEffect { node, effect });
        }
        for effect in effects.drain(..) {
            self.node_effect(node, effect);
        }
        self.nodes[node].effects = effects;
    }

    fn node_effect(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Grant { write, extents } => {
                self.log(|| format!("node{node} write {} granted {extents:?}", write.0));
                let now = self.time;
                if let Some(io) = self.nodes[node].writes.get_mut(&write) {
                    io.extents = Some(extents);
                    io.silent_since = now;
                }
                let delay = self.piece_delay();
                self.write_on(node, write, delay);
            }
            Effect::Answer { write, result } => {
                let Some(io) = self.nodes[node].writes.remove(&write) else {
                    return;
                };
                if !io.hung_up {
                    let packet = Packet::WriteDone {
                        token: io.token,
                        result,
                    };
                    self.send(Proc::Node(node), Proc::Client(io.client), packet);
                }
            }
            Effect::CutWrite { write } => {
                self.log(|| format!("node{node} cuts write {}", write.0));
                if let Some(io) = self.nodes[node].writes.get_mut(&write) {
                    io.cut = true;
                }
                let delay = self.rng.within(10, 20 * MS);
                self.write_on(node, write, delay);
            }
            Effect::Serve { read, grant } => {
                self.log(|| format!("node{node} read {} served from {:?}", read.0, grant.extents));
                if let Some(io) = self.nodes[node].reads.get_mut(&read) {
                    io.grant = grant;
                }
                let delay = self.piece_delay();
                self.read_on(node, read, delay);
            }
            Effect::Refuse { read, failure } => {
                if let Some(io) = self.nodes[node].reads.remove(&read) {
                    let packet = Packet::ReadDone {
                        token: io.token,
                        result: Err(failure),
                    };
                    self.send(Proc::Node(node), Proc::Client(io.client), packet);
                }
            }
            Effect::CutRead { read } => {
                self.log(|| format!("node{node} cuts read {}", read.0));
                if let Some(io) = self.nodes[node].reads.get_mut(&read) {
                    io.cut = true;
                }
                let delay = self.rng.within(10, 20 * MS);
                self.read_on(node, read, delay);
            }
            Effect::Scrub {
                scrub,
                shape,
                extents,
                sums,
            } => {
                let io = ScrubIo {
                    size: shape.size,
                    extents,
                    sums,
                };
                self.nodes[node].scrubs.insert(scrub, io);
                let life = self.nodes[node].life;
                let delay = self.rng.within(100, 10 * MS);
                let io = Io::Scrub(scrub);
                self.post(delay, Happening::Io { node, life, io });
            }
            Effect::Send { link, message } => {
                if self.links.get(link.0).is_some_and(|l| l.open_at_node) {
                    let packet = Packet::ToMaster {
                        link: link.0,
                        message,
                    };
                    self.send(Proc::Node(node), Proc::Master, packet);
                }
            }
            Effect::Close { link } => {
                self.log(|| format!("node{node} closes link {}", link.0));
                if self.links.close_at_node(link.0) {
                    let delay = self.rng.within(60, 200) * MS;
                    self.post(delay, Happening::LostAtMaster(link.0));
                }
                if self.nodes[node].link == Some(link.0) {
                    self.nodes[node].link = None;
                    self.reconnect(node);
                }
            }
            Effect::ServeUntil(until) => self.nodes[node].serve_until = until,
            Effect::Count { counter, by } => {
                if counter == Counter::Evicted {
                    self.stats.evictions += by;
                }
            }
        }
    }
}
