//! What a get does: look up, read from the best replica, report what was wrong, try the next.
//!
//! Rules (docs/design/protocol.md, Reading):
//! * A location rests on its lease, counted from the sending of the look-up; past it a new read
//!   asks again.
//! * The owner says 'not here' or the bytes are wrong: report, next replica, at last one more
//!   look-up, at most [`LOOKUPS_MAX`] in all. That holding is never read again by this call.
//! * A replica that cannot be reached or makes no progress is left for the next without a report
//!   (the master finds out by itself), and may be tried again after a look-up.
//! * Nothing is read into a destination that is too small.

use super::location::{Location, name_of};
use super::split;
use super::{CallId, Ticket, about, malformed, timed_out};
use snowskin_types::access::ReadRequest;
use snowskin_types::call::{Fault, Keys, Located};
use snowskin_types::object::{Holding, Place, Shape, Tier};
use snowskin_types::{Code, Failure, Key, NodeId, Now, Retry, Stage, Tenant, Version};
use std::collections::HashMap;

/// Look-ups of one key within one call, a cached location not counted.
pub const LOOKUPS_MAX: u32 = 3;

/// What one item asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Whose bytes.
    pub key: Key,
    /// First byte.
    pub offset: u64,
    /// Bytes; `u64::MAX` means up to the end.
    pub len: u64,
    /// Bytes the destination has room for; `None` when it is made to measure.
    pub room: Option<u64>,
}

impl Want {
    /// The whole object.
    pub fn whole(key: Key, room: Option<u64>) -> Self {
        Want {
            key,
            offset: 0,
            len: u64::MAX,
            room,
        }
    }
}

/// A finished read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadDone {
    /// Bytes that arrived and whose piece checksums are right.
    pub len: u64,
    /// Size and checksum of the whole version as its owner told them (for a read of the whole
    /// object: as they came), if known; they must be the directory's.
    pub shape: Option<Shape>,
}

/// What an item got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// Which incarnation.
    pub version: Version,
    /// Size and checksum of the whole object.
    pub shape: Shape,
    /// Bytes in the destination.
    pub len: u64,
    /// Who served it.
    pub from: Place,
}

/// What the runner is to do next, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Step {
    /// Ask the master where `keys` are; answer with [`Event::Located`].
    Locate { call: CallId, keys: Keys },
    /// Read `len` bytes into the destination of `item`; answer with [`Event::Read`].
    Read {
        ticket: Ticket,
        item: usize,
        place: Place,
        tier: Tier,
        request: ReadRequest,
        len: u64,
    },
    /// Tell the master what was wrong with a replica, before any later step.
    Report {
        key: Key,
        version: Version,
        node: NodeId,
        epoch: snowskin_types::Epoch,
        fault: Fault,
    },
    /// Remember a location for later calls.
    Learn { key: Key, location: Location },
    /// Forget a remembered location.
    Forget { key: Key },
    /// Break this read off; its destination must be quiet before the call returns.
    Abort { ticket: Ticket },
    /// The item is finished.
    Done {
        item: usize,
        outcome: Result<Got, Failure>,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Event {
    /// Begin.
    Start,
    /// Answer to a look-up that was sent at `sent`: table of places and one item per key.
    Located {
        call: CallId,
        sent: Now,
        reply: Result<(Vec<Place>, Vec<Located>), Failure>,
    },
    /// Reads that ended. Those that ended together are best told together: their next look-ups
    /// share a request.
    Read(Vec<(Ticket, Result<ReadDone, Failure>)>),
    /// Time passed; wanted at [`Get::wake`].
    Tick,
}

#[derive(Debug)]
struct Target {
    key: Key,
    location: Option<Location>,
    /// The location came with the event being handled: usable whatever its lease.
    fresh: bool,
    lookups: u32,
    asking: Option<CallId>,
    waiting: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Reading(Ticket),
    Done,
}

#[derive(Debug)]
struct Item {
    want: Want,
    target: usize,
    state: State,
    tried: Vec<Tried>,
    /// Worst findings so far, most telling first when the call ends badly.
    bad: Option<Failure>,
    unreached: Option<Failure>,
    gone: Option<Failure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tried {
    holding: Holding,
    /// Look-ups of its key when it was tried; `u32::MAX` when it is out for good.
    round: u32,
}

#[derive(Debug)]
struct Reading {
    item: usize,
    place: Place,
    version: Version,
    shape: Shape,
    len: u64,
}

/// The state of one batch of gets.
#[derive(Debug)]
pub struct Get {
    tenant: Tenant,
    deadline: Now,
    prefer: Option<NodeId>,
    items: Vec<Item>,
    targets: Vec<Target>,
    /// Targets that the end of this event looks up.
    wanted: Vec<usize>,
    calls: HashMap<CallId, Vec<usize>>,
    reads: HashMap<Ticket, Reading>,
    next: u64,
    left: usize,
}

impl Get {
    /// Plans a batch; `cached` may know locations that are under a lease. `prefer` names a node
    /// whose replicas are taken first (the own one).
    pub fn new(
        tenant: Tenant,
        wants: Vec<Want>,
        deadline: Now,
        prefer: Option<NodeId>,
        mut cached: impl FnMut(&Key) -> Option<Location>,
    ) -> Self {
        let mut by_key: HashMap<Key, usize> = HashMap::with_capacity(wants.len());
        let mut targets: Vec<Target> = Vec::with_capacity(wants.len());
        let items: Vec<Item> = wants
            .into_iter()
            .map(|want| {
                let target = *by_key.entry(want.key.clone()).or_insert_with(|| {
                    targets.push(Target {
                        location: cached(&want.key),
                        key: want.key.clone(),
                        fresh: false,
                        lookups: 0,
                        asking: None,
                        waiting: Vec::new(),
                    });
                    targets.len() - 1
                });
                Item {
                    want,
                    target,
                    state: State::Waiting,
                    tried: Vec::new(),
                    bad: None,
                    unreached: None,
                    gone: None,
                }
            })
            .collect();
        Get {
            tenant,
            deadline,
            prefer,
            left: items.len(),
            items,
            targets,
            wanted: Vec::new(),
            calls: HashMap::new(),
            reads: HashMap::new(),
            next: 0,
        }
    }

    /// Moves the deadline back, once it is known how much there is to read.
    pub fn extend(&mut self, deadline: Now) {
        self.deadline = self.deadline.max(deadline);
    }

    /// Moves the deadline forward, when nobody wants the answers any more.
    pub fn hasten(&mut self, deadline: Now) {
        self.deadline = self.deadline.min(deadline);
    }

    /// True once every item is done.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// When [`Event::Tick`] is wanted at the latest.
    pub fn wake(&self) -> Now {
        self.deadline
    }

    /// Takes one event and appends what is to do.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Vec<Step>) {
        match event {
            Event::Start => {
                for index in 0..self.items.len() {
                    match self.items[index].want.check() {
                        Ok(()) => self.advance(now, index, out),
                        Err(failure) => self.finish(index, Err(failure), out),
                    }
                }
            }
            Event::Located { call, sent, reply } => self.located(now, call, sent, reply, out),
            Event::Read(ended) => {
                for (ticket, result) in ended {
                    self.read_ended(now, ticket, result, out);
                }
            }
            Event::Tick => {}
        }
        if now >= self.deadline {
            self.give_up(out);
        } else {
            self.look_up(out);
        }
    }

    fn located(
        &mut self,
        now: Now,
        call: CallId,
        sent: Now,
        reply: Result<(Vec<Place>, Vec<Located>), Failure>,
        out: &mut Vec<Step>,
    ) {
        let Some(targets) = self.calls.remove(&call) else {
            return;
        };
        let (places, mut answers) = match reply {
            Ok((places, items)) => (places, items.into_iter()),
            Err(failure) => {
                for target in targets {
                    self.end_waiting(target, out, |item| {
                        about(item.unlocated(&failure), &item.want.key)
                    });
                }
                return;
            }
        };
        for target in targets {
            let key = self.targets[target].key.clone();
            match answers.next() {
                Some(Located::Found {
                    version,
                    shape,
                    lease,
                    replicas,
                }) => match Location::from_reply(sent, &places, version, shape, lease, &replicas) {
                    Some(location) => self.found(now, target, key, location, out),
                    None => self.end_waiting(target, out, |_| {
                        malformed(&key, Stage::Locate, "a replica at an unknown place")
                    }),
                },
                Some(Located::Missing) => {
                    out.push(Step::Forget { key });
                    self.end_waiting(target, out, Item::missed);
                }
                Some(Located::Failed(failure)) => {
                    self.end_waiting(target, out, |item| about(item.unlocated(&failure), &key))
                }
                None => self.end_waiting(target, out, |_| {
                    malformed(&key, Stage::Locate, "fewer results than keys")
                }),
            }
        }
    }

    fn found(
        &mut self,
        now: Now,
        target: usize,
        key: Key,
        location: Location,
        out: &mut Vec<Step>,
    ) {
        if location.is_valid(now) {
            out.push(Step::Learn {
                key,
                location: location.clone(),
            });
        }
        let found = &mut self.targets[target];
        found.asking = None;
        found.location = Some(location);
        found.fresh = true;
        for index in std::mem::take(&mut found.waiting) {
            self.advance(now, index, out);
        }
        self.targets[target].fresh = false;
    }

    /// Ends all items that wait for a look-up of this target.
    fn end_waiting(
        &mut self,
        target: usize,
        out: &mut Vec<Step>,
        failure: impl Fn(&Item) -> Failure,
    ) {
        let found = &mut self.targets[target];
        found.asking = None;
        found.location = None;
        for index in std::mem::take(&mut found.waiting) {
            let failure = failure(&self.items[index]);
            self.finish(index, Err(failure), out);
        }
    }

    /// Starts the next read of an item, or has its key looked up, or ends it.
    fn advance(&mut self, now: Now, index: usize, out: &mut Vec<Step>) {
        let item = &self.items[index];
        let target = &mut self.targets[item.target];
        let may_ask = target.lookups < LOOKUPS_MAX || target.asking.is_some();
        // Another item of the same key already asks: its answer is newer than what is here.
        let usable = target
            .location
            .as_ref()
            .filter(|l| target.asking.is_none() && (target.fresh || l.is_valid(now) || !may_ask));
        let choice = usable.and_then(|location| {
            let replica = choose(location, item, self.prefer, target.lookups)?;
            Some((location, replica))
        });
        let Some((location, (place, tier))) = choice else {
            if may_ask {
                if target.asking.is_none() {
                    self.wanted.push(item.target);
                }
                target.waiting.push(index);
                self.items[index].state = State::Waiting;
            } else {
                let failure = item.exhausted();
                self.finish(index, Err(failure), out);
            }
            return;
        };
        let len = match item.want.fit(location.shape) {
            Ok(len) => len,
            Err(failure) => return self.finish(index, Err(failure), out),
        };
        let ticket = Ticket(self.next);
        self.next += 1;
        let reading = Reading {
            item: index,
            place: place.clone(),
            version: location.version,
            shape: location.shape,
            len,
        };
        out.push(Step::Read {
            ticket,
            item: index,
            tier,
            request: ReadRequest {
                epoch: place.epoch,
                name: name_of(&self.tenant, &item.want.key),
                version: location.version,
                offset: item.want.offset,
                len,
            },
            place,
            len,
        });
        let round = target.lookups;
        let item = &mut self.items[index];
        item.state = State::Reading(ticket);
        item.tried.push(Tried {
            holding: reading.holding(),
            round,
        });
        self.reads.insert(ticket, reading);
    }

    fn read_ended(
        &mut self,
        now: Now,
        ticket: Ticket,
        result: Result<ReadDone, Failure>,
        out: &mut Vec<Step>,
    ) {
        let Some(reading) = self.reads.remove(&ticket) else {
            return;
        };
        let index = reading.item;
        let failure = match result.and_then(|done| reading.check(done)) {
            Ok(len) => {
                let got = Got {
                    version: reading.version,
                    shape: reading.shape,
                    len,
                    from: reading.place,
                };
                return self.finish(index, Ok(got), out);
            }
            Err(failure) => failure,
        };
        let item = &mut self.items[index];
        let mut failure = about(failure, &item.want.key);
        failure
            .peer
            .get_or_insert_with(|| reading.place.address.to_string());
        let fault = match failure.code {
            Code::ReplicaGone => Some(Fault::Gone),
            Code::ChecksumMismatch => Some(Fault::Bad),
            _ => None,
        };
        if let Some(fault) = fault {
            let key = item.want.key.clone();
            for tried in &mut item.tried {
                if tried.holding == reading.holding() {
                    tried.round = u32::MAX;
                }
            }
            out.push(Step::Report {
                key: key.clone(),
                version: reading.version,
                node: reading.place.node,
                epoch: reading.place.epoch,
                fault,
            });
            out.push(Step::Forget { key });
        }
        match fault {
            Some(Fault::Gone) => item.gone = Some(failure),
            Some(Fault::Bad) => item.bad = Some(failure),
            // The owner disputes the range that the directory's size allows: another owner may not.
            None if failure.code != Code::InvalidRead && failure.code.retry() == Retry::Never => {
                return self.finish(index, Err(failure), out);
            }
            None => item.unreached = Some(failure),
        }
        self.advance(now, index, out);
    }

    /// Sends one look-up for all targets that this event left without a usable location.
    fn look_up(&mut self, out: &mut Vec<Step>) {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.sort_unstable();
        wanted.dedup();
        let sizes = wanted
            .iter()
            .map(|&t| self.targets[t].key.as_bytes().len() + 8);
        for run in split::runs(sizes) {
            let call = CallId(self.next);
            self.next += 1;
            let targets = wanted[run].to_vec();
            for &target in &targets {
                self.targets[target].asking = Some(call);
                self.targets[target].lookups += 1;
            }
            let keys = targets.iter().map(|&t| &self.targets[t].key).collect();
            self.calls.insert(call, targets);
            out.push(Step::Locate { call, keys });
        }
    }

    fn give_up(&mut self, out: &mut Vec<Step>) {
        self.calls.clear();
        self.reads.clear();
        for index in 0..self.items.len() {
            let item = &self.items[index];
            let stage = match item.state {
                State::Done => continue,
                State::Waiting => Stage::Locate,
                State::Reading(ticket) => {
                    out.push(Step::Abort { ticket });
                    Stage::Read
                }
            };
            let failure = timed_out(&item.want.key, stage, item.worst().as_ref());
            self.finish(index, Err(failure), out);
        }
    }

    fn finish(&mut self, index: usize, outcome: Result<Got, Failure>, out: &mut Vec<Step>) {
        let item = &mut self.items[index];
        if item.state != State::Done {
            item.state = State::Done;
            self.left -= 1;
            out.push(Step::Done {
                item: index,
                outcome,
            });
        }
    }
}

/// The best replica that this item has not tried: the own node's first, memory before disk, then
/// the master's order. One that could not be reached counts as untried again after a look-up.
fn choose(
    location: &Location,
    item: &Item,
    prefer: Option<NodeId>,
    round: u32,
) -> Option<(Place, Tier)> {
    let untried = location.replicas.iter().filter(|(place, _)| {
        let holding = Holding {
            node: place.node,
            epoch: place.epoch,
            version: location.version,
        };
        !item
            .tried
            .iter()
            .any(|t| t.holding == holding && t.round >= round)
    });
    untried
        .min_by_key(|(place, tier)| (Some(place.node) != prefer, *tier))
        .cloned()
}

impl Want {
    /// Refuses what can never be read.
    fn check(&self) -> Result<(), Failure> {
        if self.len > 0 {
            return Ok(());
        }
        let text = "zero bytes were asked for; at least one is needed";
        Err(Failure::new(Code::InvalidParams, Stage::Read, text).with_key(&self.key))
    }

    /// Bytes that a read of an object of this shape moves, if they exist and fit.
    fn fit(&self, shape: Shape) -> Result<u64, Failure> {
        let invalid = |code, message: String| {
            Err(Failure::new(code, Stage::Read, message).with_key(&self.key))
        };
        let rest = shape.size.saturating_sub(self.offset);
        let len = if self.len == u64::MAX { rest } else { self.len };
        if rest == 0 || len > rest {
            return invalid(
                Code::InvalidRead,
                format!(
                    "the range of {len} bytes from {} lies outside the object of {} bytes",
                    self.offset, shape.size
                ),
            );
        }
        match self.room {
            Some(room) if room < len => invalid(
                Code::BufferOverflow,
                format!("{len} bytes were to be read, but the destination has room for {room}"),
            ),
            _ => Ok(len),
        }
    }
}

impl Reading {
    fn holding(&self) -> Holding {
        Holding {
            node: self.place.node,
            epoch: self.place.epoch,
            version: self.version,
        }
    }

    /// A read counts only if exactly the bytes asked for came, and the whole object is the one
    /// that the directory named.
    fn check(&self, done: ReadDone) -> Result<u64, Failure> {
        if done.len != self.len {
            return Err(Failure::new(
                Code::TransferFail,
                Stage::Read,
                format!("{} bytes came, {} were asked for", done.len, self.len),
            ));
        }
        match done.shape {
            Some(shape) if shape != self.shape => Err(Failure::new(
                Code::ChecksumMismatch,
                Stage::Verify,
                format!(
                    "the owner has {} bytes with the checksum {:016x}, the directory names {} with {:016x}",
                    shape.size, shape.checksum, self.shape.size, self.shape.checksum
                ),
            )),
            _ => Ok(done.len),
        }
    }
}

impl Item {
    /// What to say when the call ends without the bytes: wrong bytes weigh most, then a replica
    /// that may still be there, then one that is not.
    fn worst(&self) -> Option<Failure> {
        [&self.bad, &self.unreached, &self.gone]
            .into_iter()
            .find_map(Clone::clone)
    }

    /// The directory did not say where the object is. That one holding is gone tells nothing of the
    /// others, so it does not stand for the answer that failed to come.
    fn unlocated(&self, failure: &Failure) -> Failure {
        let seen = self.bad.as_ref().or(self.unreached.as_ref());
        seen.unwrap_or(failure).clone()
    }

    /// The directory says that there is no such object.
    fn missed(&self) -> Failure {
        match (&self.bad, &self.unreached) {
            (Some(failure), _) | (None, Some(failure)) => failure.clone(),
            _ => Failure::new(
                Code::ObjectNotFound,
                Stage::Locate,
                "there is no such object",
            )
            .with_key(&self.want.key),
        }
    }

    fn exhausted(&self) -> Failure {
        self.worst().unwrap_or_else(|| {
            Failure::new(
                Code::ReplicaGone,
                Stage::Locate,
                "the directory names no replica that can be read",
            )
            .with_key(&self.want.key)
        })
    }
}

#[cfg(test)]
#[path = "get_test.rs"]
mod tests;
