//! A client's shell: one call at a time, planned by the real planners, carried out over the
//! simulated network. Checksums are not used: bytes are compared with what was put.

use crate::clock::{Clock, MS, Micros};
use crate::content::PutId;
use crate::host::ask::{Ask, Outcome};
use crate::invariants::Seen;
use crate::oracle::{Asked, Snapshot};
use crate::packet::{Packet, Proc, ReadBytes};
use crate::rng::Rng;
use crate::world::{Happening, World};
use snowskin_client::plan::location::Location;
use snowskin_client::plan::{CallId, Ticket, get, put};
use snowskin_types::call::{Existing, Filter, Reply, Request};
use snowskin_types::checksum::PieceSums;
use snowskin_types::id::ClientId;
use snowskin_types::object::Attributes;
use snowskin_types::{Code, Failure, Millis, Now, Stage, Tenant, Version};
use std::collections::BTreeMap;

/// A control call without an answer fails after this time.
const CALL_TIMEOUT: Micros = 1_500 * MS;
/// A read without progress is given up after this time.
const READ_TIMEOUT: Micros = 2_000 * MS;

#[derive(Debug)]
enum Plan {
    Put {
        plan: put::Put,
        put: PutId,
    },
    Get {
        plan: get::Get,
        key: usize,
        start: Snapshot,
        bytes: Option<ReadBytes>,
    },
    Simple {
        ask: Ask,
        call: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Call(CallId),
    Transfer(Ticket, usize),
    Simple,
}

#[derive(Debug, Clone)]
struct Pending {
    waits: Waits,
    sent: Now,
    sent_at: Micros,
    until: Micros,
    /// What a cancel gives up.
    versions: Vec<Version>,
}

/// A client's process.
#[derive(Debug)]
pub struct ClientHost {
    /// Its index.
    pub index: usize,
    /// Process lives so far.
    pub life: u32,
    /// Its clock.
    pub clock: Clock,
    /// How its last call ended.
    pub last: Option<Outcome>,
    /// Locations it remembers.
    pub cache: BTreeMap<usize, Location>,
    plan: Option<Plan>,
    next_get: Option<(usize, Micros)>,
    pending: BTreeMap<u64, Pending>,
    /// When the call was sent whose answer is being handled.
    asked_at: Micros,
    tokens: u64,
    serial: u64,
    /// The wake-up that is posted, if it still counts.
    armed: Option<Armed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    Idle,
    At(Micros),
}

impl ClientHost {
    pub(crate) fn new(index: usize, rng: &mut Rng) -> Self {
        ClientHost {
            index,
            life: 0,
            clock: Clock::new(rng.below(1 << 40), 0, rng.within(0, 600) as i64 - 300),
            last: None,
            cache: BTreeMap::new(),
            plan: None,
            next_get: None,
            pending: BTreeMap::new(),
            asked_at: 0,
            tokens: 0,
            serial: 0,
            armed: None,
        }
    }

    /// True while a call is under way.
    pub fn is_busy(&self) -> bool {
        self.plan.is_some() || self.next_get.is_some()
    }
}

/// Steps of either planner.
enum Steps {
    Put(Vec<put::Step>),
    Get(Vec<get::Step>),
}

impl World {
    /// Has a client begin a call.
    pub fn ask(&mut self, client: usize, ask: Ask) {
        self.log(|| format!("client{client} begins {ask:?}"));
        let now = self.clients[client].clock.now(self.time);
        self.clients[client].last = None;
        match ask {
            Ask::Put {
                key,
                size,
                mode,
                replicas,
                prefer,
                timeout,
            } => {
                let put = self.oracle.begin_put(key, size, mode);
                let mut bytes = vec![0; size as usize];
                crate::content::fill(put, 0, &mut bytes);
                let item = put::PutItem {
                    key: self.oracle.key(key),
                    size,
                    sums: PieceSums::of(&bytes),
                    mode,
                    replicas,
                    attributes: Attributes::default(),
                    preferred: prefer.iter().map(|&n| self.nodes[n].id).collect(),
                };
                let plan = put::Put::new(Tenant::default(), vec![item], now + timeout);
                self.clients[client].plan = Some(Plan::Put { plan, put });
                self.put_event(client, put::Event::Start);
            }
            Ask::Get { key, timeout } => self.begin_get(client, key, timeout),
            Ask::Exists { key } | Ask::ExistsThenGet { key, .. } => {
                let request = Request::Exists {
                    tenant: Tenant::default(),
                    keys: [&self.oracle.key(key)].into_iter().collect(),
                    lease: None,
                };
                self.simple(client, ask, request, Millis(3000));
            }
            Ask::Remove { key, force } => {
                let request = Request::Remove {
                    tenant: Tenant::default(),
                    keys: [&self.oracle.key(key)].into_iter().collect(),
                    force,
                };
                self.simple(client, ask, request, Millis(9000));
            }
            Ask::RemoveAll => {
                let request = Request::RemoveMany {
                    tenant: None,
                    filter: Filter::All,
                    force: true,
                };
                self.simple(client, ask, request, Millis(9000));
            }
            Ask::Report { key, fault } => {
                let Some(location) = self.clients[client].cache.get(&key) else {
                    return self.ended(client, Outcome::Noted);
                };
                let Some((place, _)) = location.replicas.first() else {
                    return self.ended(client, Outcome::Noted);
                };
                let request = Request::Report {
                    tenant: Tenant::default(),
                    key: self.oracle.key(key),
                    version: location.version,
                    node: place.node,
                    epoch: place.epoch,
                    fault,
                };
                self.simple(client, ask, request, Millis(1000));
            }
        }
    }

    fn begin_get(&mut self, client: usize, key: usize, timeout: Millis) {
        let host = &mut self.clients[client];
        let now = host.clock.now(self.time);
        let want = get::Want::whole(self.oracle.key(key), None);
        let cached = host.cache.get(&key).filter(|l| l.is_valid(now)).cloned();
        let remembered = cached.is_some();
        let plan = get::Get::new(Tenant::default(), vec![want], now + timeout, None, |_| {
            cached.clone()
        });
        let start = self
            .oracle
            .snapshot(self.time, client, key, now, remembered);
        self.clients[client].plan = Some(Plan::Get {
            plan,
            key,
            start,
            bytes: None,
        });
        self.get_event(client, get::Event::Start);
    }

    /// Sends a call that needs no planner.
    fn simple(&mut self, client: usize, ask: Ask, request: Request, timeout: Millis) {
        let until = self.time + timeout.0 * MS;
        let call = self.call(client, Waits::Simple, request, until);
        self.clients[client].plan = Some(Plan::Simple { ask, call });
        self.arm(client);
    }

    fn call(&mut self, client: usize, waits: Waits, request: Request, until: Micros) -> u64 {
        let host = &mut self.clients[client];
        host.tokens += 1;
        let call = host.tokens;
        let versions = match &request {
            Request::Cancel { versions, .. } => versions.clone(),
            _ => Vec::new(),
        };
        host.pending.insert(
            call,
            Pending {
                waits,
                sent: host.clock.now(self.time),
                sent_at: self.time,
                until,
                versions,
            },
        );
        let packet = Packet::Request {
            client,
            call,
            request,
        };
        self.send(Proc::Client(client), Proc::Master, packet);
        call
    }

    fn put_event(&mut self, client: usize, event: put::Event) {
        let host = &mut self.clients[client];
        let now = host.clock.now(self.time);
        let mut steps = Vec::new();
        if let Some(Plan::Put { plan, .. }) = &mut host.plan {
            plan.handle(now, event, &mut steps);
        }
        self.steps(client, Steps::Put(steps));
    }

    fn get_event(&mut self, client: usize, event: get::Event) {
        let host = &mut self.clients[client];
        let now = host.clock.now(self.time);
        let mut steps = Vec::new();
        if let Some(Plan::Get { plan, .. }) = &mut host.plan {
            plan.handle(now, event, &mut steps);
        }
        self.steps(client, Steps::Get(steps));
    }

    fn steps(&mut self, client: usize, steps: Steps) {
        match steps {
            Steps::Put(steps) => steps.into_iter().for_each(|s| self.put_step(client, s)),
            Steps::Get(steps) => steps.into_iter().for_each(|s| self.get_step(client, s)),
        }
        self.arm(client);
    }

    fn put_step(&mut self, client: usize, step: put::Step) {
        match step {
            put::Step::Reserve { call, keys, items } => {
                let request = Request::Reserve {
                    client: ClientId(client as u64),
                    tenant: Tenant::default(),
                    keys,
                    items,
                };
                self.call(client, Waits::Call(call), request, self.time + CALL_TIMEOUT);
            }
            put::Step::Cancel {
                call,
                keys,
                versions,
                until,
            } => {
                let request = Request::Cancel {
                    tenant: Tenant::default(),
                    keys,
                    versions,
                };
                let until = self.clients[client].clock.reaches(until);
                let until = until.min(self.time + CALL_TIMEOUT);
                self.call(client, Waits::Call(call), request, until);
            }
            put::Step::Write {
                ticket,
                place,
                request,
                ..
            } => {
                let Some(Plan::Put { put, .. }) = self.clients[client].plan else {
                    return;
                };
                self.oracle.bind(put, request.version);
                let Some(node) = self.nodes.iter().position(|n| n.id == place.node) else {
                    return;
                };
                let token = self.transfer(client, ticket, node, Micros::MAX);
                let packet = Packet::Write {
                    client,
                    token,
                    put,
                    request,
                };
                self.send(Proc::Client(client), Proc::Node(node), packet);
            }
            put::Step::Abort { ticket } => self.abort(client, ticket),
            put::Step::Done { outcome, .. } => self.ended(client, Outcome::Put(outcome)),
        }
    }

    fn get_step(&mut self, client: usize, step: get::Step) {
        match step {
            get::Step::Locate { call, keys } => {
                let request = Request::Locate {
                    tenant: Tenant::default(),
                    keys,
                    lease: None,
                };
                self.call(client, Waits::Call(call), request, self.time + CALL_TIMEOUT);
            }
            get::Step::Read {
                ticket,
                place,
                request,
                ..
            } => {
                let Some(node) = self.nodes.iter().position(|n| n.id == place.node) else {
                    return;
                };
                let token = self.transfer(client, ticket, node, self.time + READ_TIMEOUT);
                let packet = Packet::Read {
                    client,
                    token,
                    request,
                };
                self.send(Proc::Client(client), Proc::Node(node), packet);
            }
            get::Step::Report {
                key,
                version,
                node,
                epoch,
                fault,
            } => {
                let host = &mut self.clients[client];
                host.tokens += 1;
                let request = Request::Report {
                    tenant: Tenant::default(),
                    key,
                    version,
                    node,
                    epoch,
                    fault,
                };
                let packet = Packet::Request {
                    client,
                    call: host.tokens,
                    request,
                };
                self.send(Proc::Client(client), Proc::Master, packet);
            }
            get::Step::Learn { key, location } => {
                let key = self.oracle.index(&key);
                self.promised(client, key, location.valid_until);
                self.clients[client].cache.insert(key, location);
            }
            get::Step::Forget { key } => {
                let key = self.oracle.index(&key);
                self.clients[client].cache.remove(&key);
            }
            get::Step::Abort { ticket } => self.abort(client, ticket),
            get::Step::Done { outcome, .. } => {
                let Some(Plan::Get {
                    key, start, bytes, ..
                }) = self.clients[client].plan.take()
                else {
                    return;
                };
                let outlasted = start.outlasted(self.clients[client].clock.now(self.time));
                match self
                    .oracle
                    .read(key, &start, &outcome, bytes.as_ref(), self.time)
                {
                    Ok(()) => {}
                    Err(("leased_read_succeeds", _)) if self.is_unsettled() || outlasted => {}
                    Err((invariant, message)) => {
                        let message = format!("client{client}: {message}");
                        self.violated(invariant, message);
                    }
                }
                match &outcome {
                    Ok(_) => self.stats.reads += 1,
                    Err(f) if f.code == Code::ObjectNotFound => self.stats.misses += 1,
                    Err(_) => self.stats.reads_failed += 1,
                }
                self.ended(client, Outcome::Get(outcome.map(|got| got.version)));
            }
        }
    }

    fn promised(&mut self, client: usize, key: usize, until: Now) {
        // What a dead owner's claim promises is void from the start.
        let asked_at = self.clients[client].asked_at;
        let since = if self.watch.unlearned.is_empty() {
            asked_at
        } else {
            0
        };
        self.oracle.promised(client, key, until, since);
    }

    fn transfer(&mut self, client: usize, ticket: Ticket, node: usize, until: Micros) -> u64 {
        let host = &mut self.clients[client];
        host.tokens += 1;
        host.pending.insert(
            host.tokens,
            Pending {
                waits: Waits::Transfer(ticket, node),
                sent: host.clock.now(self.time),
                sent_at: self.time,
                until,
                versions: Vec::new(),
            },
        );
        host.tokens
    }

    fn abort(&mut self, client: usize, ticket: Ticket) {
        let pending = &self.clients[client].pending;
        let found = pending.iter().find_map(|(token, p)| match p.waits {
            Waits::Transfer(of, node) if of == ticket => Some((*token, node)),
            _ => None,
        });
        if let Some((token, node)) = found {
            self.clients[client].pending.remove(&token);
            self.hang_up(client, token, node);
        }
    }

    fn hang_up(&mut self, client: usize, token: u64, node: usize) {
        let packet = Packet::Hangup { client, token };
        self.send(Proc::Client(client), Proc::Node(node), packet);
    }

    pub(crate) fn client_receives(&mut self, client: usize, packet: Packet) {
        match packet {
            Packet::Reply { call, reply } => {
                let Some(pending) = self.clients[client].pending.remove(&call) else {
                    return;
                };
                match pending.waits {
                    Waits::Call(id) => self.planned_reply(client, id, &pending, Ok(reply)),
                    Waits::Simple => self.simple_reply(client, call, &pending, Ok(reply)),
                    Waits::Transfer(..) => {}
                }
            }
            Packet::WriteDone { token, result } => {
                if let Some(Pending {
                    waits: Waits::Transfer(ticket, _),
                    ..
                }) = self.clients[client].pending.remove(&token)
                {
                    self.put_event(client, put::Event::Written(vec![(ticket, result)]));
                }
            }
            Packet::ReadDone { token, result } => {
                if let Some(Pending {
                    waits: Waits::Transfer(ticket, _),
                    ..
                }) = self.clients[client].pending.remove(&token)
                {
                    let result = result.map(|read| {
                        let done = get::ReadDone {
                            len: read.bytes.len() as u64,
                            shape: None,
                        };
                        if let Some(Plan::Get { bytes, .. }) = &mut self.clients[client].plan {
                            *bytes = Some(read);
                        }
                        done
                    });
                    self.get_event(client, get::Event::Read(vec![(ticket, result)]));
                }
            }
            Packet::Broken { token } => {
                if let Some(pending) = self.clients[client].pending.remove(&token) {
                    let message = "the connection broke";
                    self.failed(client, token, pending, Code::RpcFail, message);
                }
            }
            _ => {}
        }
        self.arm(client);
    }

    /// A call or transfer got no answer.
    fn failed(&mut self, client: usize, token: u64, pending: Pending, code: Code, why: &str) {
        match pending.waits {
            Waits::Call(id) => {
                let failure = Failure::new(code, Stage::Session, why);
                self.planned_reply(client, id, &pending, Err(failure));
            }
            Waits::Simple => {
                let failure = Failure::new(code, Stage::Session, why);
                self.simple_reply(client, token, &pending, Err(failure));
            }
            Waits::Transfer(ticket, node) => {
                self.hang_up(client, token, node);
                let failure = Failure::new(Code::TransferFail, Stage::Read, why);
                match &self.clients[client].plan {
                    Some(Plan::Put { .. }) => {
                        self.put_event(client, put::Event::Written(vec![(ticket, Err(failure))]));
                    }
                    Some(Plan::Get { .. }) => {
                        self.get_event(client, get::Event::Read(vec![(ticket, Err(failure))]));
                    }
                    _ => {}
                }
            }
        }
    }

    fn planned_reply(
        &mut self,
        client: usize,
        call: CallId,
        pending: &Pending,
        reply: Result<Reply, Failure>,
    ) {
        let unexpected = || Failure::new(Code::Internal, Stage::Session, "unexpected answer");
        match (&self.clients[client].plan, reply) {
            (Some(Plan::Put { .. }), Ok(Reply::Reserved { places, items })) => {
                let reply = Ok((places, items));
                self.put_event(client, put::Event::Reserved { call, reply });
            }
            (Some(Plan::Put { .. }), Ok(Reply::Cancelled(items))) => {
                self.oracle.cancelled(&pending.versions, &items, self.time);
                let reply = Ok(items);
                self.put_event(client, put::Event::Cancelled { call, reply });
            }
            (Some(Plan::Put { .. }), reply) => {
                let failure = match reply {
                    Ok(Reply::Failed(failure)) | Err(failure) => failure,
                    Ok(_) => unexpected(),
                };
                if pending.versions.is_empty() {
                    let reply = Err(failure);
                    self.put_event(client, put::Event::Reserved { call, reply });
                } else {
                    let reply = Err(failure);
                    self.put_event(client, put::Event::Cancelled { call, reply });
                }
            }
            (Some(Plan::Get { .. }), reply) => {
                let sent = pending.sent;
                self.clients[client].asked_at = pending.sent_at;
                let reply = match reply {
                    Ok(Reply::Located { places, items }) => Ok((places, items)),
                    Ok(Reply::Failed(failure)) | Err(failure) => Err(failure),
                    Ok(_) => Err(unexpected()),
                };
                self.get_event(client, get::Event::Located { call, sent, reply });
            }
            _ => {}
        }
    }

    fn simple_reply(
        &mut self,
        client: usize,
        call: u64,
        pending: &Pending,
        reply: Result<Reply, Failure>,
    ) {
        let Some(Plan::Simple { ask, call: of }) = self.clients[client].plan.take() else {
            return;
        };
        debug_assert_eq!(of, call);
        let reply = match reply {
            Ok(Reply::Failed(failure)) => Err(failure),
            other => other,
        };
        let outcome = match (&ask, reply) {
            (Ask::Remove { .. } | Ask::RemoveAll, reply) => {
                let result = match reply {
                    Ok(Reply::Removed(mut items)) => items.pop().unwrap_or(Ok(())),
                    Ok(_) => Ok(()),
                    Err(failure) => Err(failure),
                };
                if self.oracle.removed(client, call, &result) {
                    self.stats.removes += 1;
                }
                Outcome::Removed(result)
            }
            (Ask::Exists { key } | Ask::ExistsThenGet { key, .. }, Ok(Reply::Exists(items))) => {
                let found = items.into_iter().next().unwrap_or(Existing::No);
                if let Existing::Yes { lease, .. } = found {
                    let until = pending.sent + Millis(lease.0 - lease.0 / 64);
                    self.clients[client].asked_at = pending.sent_at;
                    self.promised(client, *key, until);
                    if let Ask::ExistsThenGet { share, .. } = ask {
                        let at = pending.sent + Millis(lease.0 * share / 1000);
                        let at = self.clients[client].clock.reaches(at).max(self.time);
                        self.clients[client].next_get = Some((*key, at));
                    }
                }
                Outcome::Exists(found)
            }
            (Ask::Exists { .. } | Ask::ExistsThenGet { .. }, Err(failure)) => {
                Outcome::Exists(Existing::Failed(failure))
            }
            _ => Outcome::Noted,
        };
        self.ended(client, outcome);
    }

    fn ended(&mut self, client: usize, outcome: Outcome) {
        self.log(|| format!("client{client} ends {outcome:?}"));
        if let Some(Plan::Put { put, .. }) = self.clients[client].plan.take()
            && let Outcome::Put(result) = &outcome
        {
            match result {
                Ok(_) => self.stats.puts += 1,
                Err(_) => self.stats.puts_failed += 1,
            }
            if let Ok(put::Stored::Written { version, .. }) = result {
                self.oracle.acked(put, *version, self.time);
            }
        }
        self.seen(&Seen::Ended {
            client,
            outcome: &outcome,
        });
        let host = &mut self.clients[client];
        let left: Vec<(u64, Pending)> = std::mem::take(&mut host.pending).into_iter().collect();
        host.last = Some(outcome);
        for (token, pending) in left {
            match pending.waits {
                Waits::Transfer(_, node) => self.hang_up(client, token, node),
                Waits::Call(_) | Waits::Simple => self.abandon(client, token),
            }
        }
        self.arm(client);
    }

    fn abandon(&mut self, client: usize, call: u64) {
        let packet = Packet::Abandon { client, call };
        self.send(Proc::Client(client), Proc::Master, packet);
    }

    /// Kills a client in the middle of whatever it does; its successor starts at once.
    pub fn crash_client(&mut self, client: usize) {
        self.log(|| format!("client{client} dies"));
        let host = &mut self.clients[client];
        host.life += 1;
        host.armed = None;
        host.plan = None;
        host.next_get = None;
        host.cache.clear();
        let left: Vec<(u64, Pending)> = std::mem::take(&mut host.pending).into_iter().collect();
        for (token, pending) in left {
            match pending.waits {
                Waits::Transfer(_, node) => self.hang_up(client, token, node),
                Waits::Call(_) | Waits::Simple => self.abandon(client, token),
            }
        }
        self.arm(client);
    }

    /// Posts the next moment at which the client must look by itself.
    pub(crate) fn arm(&mut self, client: usize) {
        let host = &mut self.clients[client];
        let mut at = host
            .pending
            .values()
            .map(|p| p.until)
            .min()
            .unwrap_or(Micros::MAX);
        match &host.plan {
            Some(Plan::Put { plan, .. }) => at = at.min(host.clock.reaches(plan.wake())),
            Some(Plan::Get { plan, .. }) => at = at.min(host.clock.reaches(plan.wake())),
            Some(Plan::Simple { .. }) => {}
            None => {
                at = match host.next_get {
                    Some((_, next)) => next,
                    None if host.armed == Some(Armed::Idle) => return,
                    None if self.workload.is_on() => self.time + self.workload.think(),
                    None => return,
                };
            }
        }
        let armed = if host.plan.is_none() && host.next_get.is_none() {
            Armed::Idle
        } else {
            Armed::At(at)
        };
        if host.armed == Some(armed) {
            return;
        }
        host.armed = Some(armed);
        host.serial += 1;
        if at < Micros::MAX {
            let what = Happening::ClientWake {
                client,
                life: host.life,
                serial: host.serial,
            };
            self.queue.post(at.max(self.time), what);
        }
    }

    pub(crate) fn client_wakes(&mut self, client: usize, life: u32, serial: u64) {
        let host = &mut self.clients[client];
        if host.life != life || host.serial != serial {
            return;
        }
        host.armed = None;
        match &host.plan {
            None => {
                if let Some((key, _)) = host.next_get.take() {
                    self.begin_get(client, key, Millis(4000));
                } else if self.workload.is_on() {
                    let ask = self.workload.next_ask();
                    self.ask(client, ask);
                }
                return;
            }
            Some(Plan::Put { .. }) => self.put_event(client, put::Event::Tick),
            Some(Plan::Get { .. }) => self.get_event(client, get::Event::Tick),
            Some(Plan::Simple { .. }) => {}
        }
        let late: Vec<u64> = self.clients[client]
            .pending
            .iter()
            .filter(|(_, p)| p.until <= self.time)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            if let Some(pending) = self.clients[client].pending.remove(&token) {
                if !matches!(pending.waits, Waits::Transfer(..)) {
                    self.abandon(client, token);
                }
                self.failed(
                    client,
                    token,
                    pending,
                    Code::RpcTimeout,
                    "no answer in time",
                );
            }
        }
        self.arm(client);
    }

    /// What the oracle must know of a request that reaches the master.
    pub(crate) fn asked(&mut self, client: usize, call: u64, request: &Request) {
        let asked = match request {
            Request::Remove { keys, .. } => Asked::Remove(keys),
            Request::RemoveMany { .. } => Asked::RemoveAll,
            Request::Report { key, .. } => Asked::Report(key),
            _ => return,
        };
        self.oracle.asked(client, call, asked, self.time);
    }
}
