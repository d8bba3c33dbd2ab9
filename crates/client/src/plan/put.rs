//! What a put does: reserve, write to all places at once, and when none took it, cancel and reserve
//! again elsewhere.
//!
//! Rules (docs/design/protocol.md, Reserve, write, publish):
//! * A put succeeds when at least one place published it; it says how many did.
//! * A write that failed in any way may still have been published. Only the master knows: the
//!   version is cancelled, and the answer 'published' is a success.
//! * A taken key is an outcome, not a failure; if it is taken by a version of this very put, the
//!   put succeeded.
//! * A node that failed this put is left out of the next reservation. A node that is full is asked
//!   to wait for space once; after that nobody waits.
//! * Items of one batch with the same key take effect one after the other.

pub use super::put_step::{Event, PutItem, Step, Stored};

use super::location::name_of;
use super::split;
use super::{CallId, Ticket, about, malformed, timed_out};
use snowskin_types::access::WriteRequest;
use snowskin_types::call::{Cancelled, PutMode, Reserve, Reserved};
use snowskin_types::limits::{METADATA_TIMEOUT, PUT_WAIT};
use snowskin_types::object::Place;
use snowskin_types::{Code, Failure, Key, Millis, NodeId, Now, Retry, Stage, Tenant, Version};
use std::collections::HashMap;

/// Reservations of one item within one call.
pub const ATTEMPTS_MAX: u32 = 4;
/// Time past the deadline in which a cancel may still tell that the put had succeeded; less than
/// the slack that every call has.
pub const LAST_CANCEL: Millis = Millis(150);
/// First pause before the same question is asked again; doubled each time.
const PAUSE_MIN: Millis = Millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Behind an earlier item with the same key.
    Behind,
    /// The end of this event reserves it: it stands in [`Put::to_reserve`].
    ToReserve,
    Reserving,
    Writing,
    /// The end of this event cancels it: it stands in [`Put::to_cancel`].
    ToCancel,
    Cancelling,
    Pausing(Now),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Reserve,
    Cancel,
}

#[derive(Debug)]
struct Item {
    ask: PutItem,
    state: State,
    /// The next item with the same key.
    next_same: Option<usize>,
    attempts: u32,
    /// The version under way.
    version: Version,
    /// All versions that this item was given.
    versions: Vec<Version>,
    avoid: Vec<NodeId>,
    open: Vec<Ticket>,
    written: u32,
    pauses: u32,
    /// Every place of the version under way has said that it will never hold it.
    refused: bool,
    /// What the end of a pause brings.
    then: Then,
    /// Since when the master could not be asked, or not answer.
    unanswered: Option<Now>,
    /// Since when no node could be placed on.
    unplaced: Option<Now>,
    /// A node waited for space in vain.
    full: Option<Failure>,
    failure: Option<Failure>,
}

/// The state of one batch of puts.
#[derive(Debug)]
pub struct Put {
    tenant: Tenant,
    deadline: Now,
    items: Vec<Item>,
    to_reserve: Vec<usize>,
    to_cancel: Vec<usize>,
    pausing: Vec<usize>,
    calls: HashMap<CallId, Vec<usize>>,
    writes: HashMap<Ticket, (usize, Place)>,
    next: u64,
    left: usize,
    past_deadline: bool,
}

impl Put {
    /// Plans a batch.
    pub fn new(tenant: Tenant, asks: Vec<PutItem>, deadline: Now) -> Self {
        let mut last: HashMap<Key, usize> = HashMap::with_capacity(asks.len());
        let mut items: Vec<Item> = Vec::with_capacity(asks.len());
        for (index, ask) in asks.into_iter().enumerate() {
            let before = last.insert(ask.key.clone(), index);
            if let Some(before) = before {
                items[before].next_same = Some(index);
            }
            items.push(Item {
                ask,
                state: before.map_or(State::ToReserve, |_| State::Behind),
                next_same: None,
                attempts: 0,
                version: Version::NONE,
                versions: Vec::new(),
                avoid: Vec::new(),
                open: Vec::new(),
                written: 0,
                pauses: 0,
                refused: false,
                then: Then::Reserve,
                unanswered: None,
                unplaced: None,
                full: None,
                failure: None,
            });
        }
        Put {
            tenant,
            deadline,
            left: items.len(),
            to_reserve: (0..items.len())
                .filter(|&i| items[i].state == State::ToReserve)
                .collect(),
            to_cancel: Vec::new(),
            pausing: Vec::new(),
            items,
            calls: HashMap::new(),
            writes: HashMap::new(),
            next: 0,
            past_deadline: false,
        }
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
        if self.past_deadline {
            return self.deadline + LAST_CANCEL;
        }
        let pauses = self
            .pausing
            .iter()
            .filter_map(|&i| match self.items[i].state {
                State::Pausing(until) => Some(until),
                _ => None,
            });
        pauses.min().unwrap_or(self.deadline).min(self.deadline)
    }

    /// Takes one event and appends what is to do.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Vec<Step>) {
        match event {
            Event::Start => {
                for index in 0..self.items.len() {
                    if let Err(failure) = self.items[index].ask.check() {
                        self.finish(index, Err(failure), out);
                    }
                }
            }
            Event::Reserved { call, reply } => self.reserved(now, call, reply, out),
            Event::Written(ended) => {
                for (ticket, result) in ended {
                    self.write_ended(ticket, result, out);
                }
            }
            Event::Cancelled { call, reply } => self.cancelled(now, call, reply, out),
            Event::Tick => {}
        }
        if now >= self.deadline {
            self.give_up(now, out);
        } else {
            for index in std::mem::take(&mut self.pausing) {
                match self.items[index].state {
                    State::Pausing(until) if until <= now => match self.items[index].then {
                        Then::Reserve => self.set_to_reserve(index),
                        Then::Cancel => self.set_to_cancel(index),
                    },
                    State::Pausing(_) => self.pausing.push(index),
                    _ => {}
                }
            }
            self.cancel(self.deadline, out);
            self.reserve(now, out);
        }
    }

    fn reserved(
        &mut self,
        now: Now,
        call: CallId,
        reply: Result<(Vec<Place>, Vec<Reserved>), Failure>,
        out: &mut Vec<Step>,
    ) {
        let Some(indices) = self.calls.remove(&call) else {
            return;
        };
        let (places, mut answers) = match reply {
            Ok((places, items)) => (places, items.into_iter()),
            Err(failure) => {
                for index in indices {
                    // The link broke: whether the request arrived is not known, but a reservation
                    // that nobody writes to ends by itself.
                    if failure.code == Code::RpcFail && self.is_soon(now, index) {
                        self.pause(now, index, failure.clone(), out);
                    } else {
                        self.fail(index, failure.clone(), out);
                    }
                }
                return;
            }
        };
        for index in indices {
            let answer = answers.next();
            if self.items[index].state != State::Reserving {
                continue;
            }
            self.items[index].unanswered = None;
            match answer {
                Some(Reserved::Placed {
                    version,
                    places: chosen,
                }) => {
                    let chosen: Option<Vec<Place>> = chosen
                        .iter()
                        .map(|&p| places.get(usize::from(p)).cloned())
                        .collect();
                    match chosen {
                        Some(chosen) if !chosen.is_empty() => {
                            self.write(now, index, version, chosen, out);
                        }
                        _ => self.malformed(index, "a placement without a known place", out),
                    }
                }
                Some(Reserved::Exists {
                    version,
                    unfinished,
                }) => self.taken(index, version, unfinished, out),
                Some(Reserved::Failed(failure)) => self.refused(now, index, failure, out),
                None => self.malformed(index, "fewer results than keys", out),
            }
        }
    }

    fn malformed(&mut self, index: usize, what: &str, out: &mut Vec<Step>) {
        let failure = malformed(&self.items[index].ask.key, Stage::Reserve, what);
        self.finish(index, Err(failure), out);
    }

    fn taken(&mut self, index: usize, version: Version, unfinished: bool, out: &mut Vec<Step>) {
        let item = &mut self.items[index];
        if !item.versions.contains(&version) {
            let outcome = Stored::Exists {
                version,
                unfinished,
            };
            self.finish(index, Ok(outcome), out);
        } else if !unfinished {
            let outcome = Stored::Written {
                version,
                replicas: 1,
            };
            self.finish(index, Ok(outcome), out);
        } else {
            // Our own put that was not cancelled after all.
            item.version = version;
            self.set_to_cancel(index);
        }
    }

    /// The master did not place an item.
    fn refused(&mut self, now: Now, index: usize, failure: Failure, out: &mut Vec<Step>) {
        let item = &mut self.items[index];
        if let Some(full) = item.full.take() {
            return self.fail(index, full, out);
        }
        if !item.avoid.is_empty() && failure.code.retry() != Retry::Never {
            // Nothing is left but the nodes that failed; they may have come to themselves.
            item.avoid.clear();
            return self.pause(now, index, failure, out);
        }
        let transient = matches!(
            failure.code,
            Code::NoSpace | Code::SegmentNotFound | Code::UnavailableInStatus
        );
        let since = *item.unplaced.get_or_insert(now);
        if transient && now.since(since) < PUT_WAIT {
            // Waiting for a node to come does not count as an attempt: it has its own bound.
            item.attempts -= 1;
            self.pause(now, index, failure, out);
        } else {
            self.fail(index, failure, out);
        }
    }

    fn write(
        &mut self,
        now: Now,
        index: usize,
        version: Version,
        places: Vec<Place>,
        out: &mut Vec<Step>,
    ) {
        let item = &mut self.items[index];
        item.version = version;
        item.versions.push(version);
        if now >= self.deadline {
            return self.set_to_cancel(index);
        }
        item.state = State::Writing;
        item.written = 0;
        item.refused = true;
        item.unplaced = None;
        let patience = match item.full {
            Some(_) => Millis(0),
            None => now.until(self.deadline),
        };
        for place in places {
            let ticket = Ticket(self.next);
            self.next += 1;
            item.open.push(ticket);
            out.push(Step::Write {
                ticket,
                item: index,
                request: WriteRequest {
                    epoch: place.epoch,
                    name: name_of(&self.tenant, &item.ask.key),
                    version,
                    size: item.ask.size,
                    sums: item.ask.sums.clone(),
                    attributes: item.ask.attributes.clone(),
                    patience,
                },
                place: place.clone(),
            });
            self.writes.insert(ticket, (index, place));
        }
    }

    fn write_ended(&mut self, ticket: Ticket, result: Result<(), Failure>, out: &mut Vec<Step>) {
        let Some((index, place)) = self.writes.remove(&ticket) else {
            return;
        };
        let item = &mut self.items[index];
        item.open.retain(|t| *t != ticket);
        match result {
            Ok(()) => item.written += 1,
            Err(failure) => {
                let mut failure = about(failure, &item.ask.key);
                failure
                    .peer
                    .get_or_insert_with(|| place.address.to_string());
                // After these the node is as good a choice as before: it was merely asked with
                // outdated numbers.
                if !matches!(failure.code, Code::InvalidWrite | Code::ReplicaGone) {
                    item.avoid.push(place.node);
                }
                item.refused &= is_refusal(failure.code);
                item.failure = Some(failure);
            }
        }
        if !item.open.is_empty() {
            return;
        }
        if item.written > 0 {
            let outcome = Stored::Written {
                version: item.version,
                replicas: item.written,
            };
            self.finish(index, Ok(outcome), out);
        } else {
            self.set_to_cancel(index);
        }
    }

    fn cancelled(
        &mut self,
        now: Now,
        call: CallId,
        reply: Result<Vec<Cancelled>, Failure>,
        out: &mut Vec<Step>,
    ) {
        let Some(indices) = self.calls.remove(&call) else {
            return;
        };
        let mut answers = reply.map(Vec::into_iter);
        for index in indices {
            let answer = match &mut answers {
                Ok(items) => items.next(),
                Err(failure) => Some(Cancelled::Failed(failure.clone())),
            };
            let item = &mut self.items[index];
            if item.state != State::Cancelling {
                continue;
            }
            match answer {
                Some(Cancelled::Published) => {
                    let outcome = Stored::Written {
                        version: item.version,
                        replicas: 1,
                    };
                    self.finish(index, Ok(outcome), out);
                }
                Some(Cancelled::Ended) => self.again(now, index, out),
                // Nobody holds it and nobody ever will: the master's word adds nothing.
                Some(Cancelled::Failed(_)) if item.refused => self.again(now, index, out),
                Some(Cancelled::Failed(cancel)) => {
                    let waits = cancel.code.retry() == Retry::Same && !self.past_deadline;
                    if waits && self.is_soon(now, index) {
                        self.pause_to(now, index, cancel, Then::Cancel, out);
                        continue;
                    }
                    let item = &mut self.items[index];
                    let mut failure = item.failure.clone().unwrap_or(cancel);
                    failure
                        .message
                        .push_str("; whether the object was stored is not known");
                    self.fail(index, failure, out);
                }
                None => self.malformed(index, "fewer results than cancelled versions", out),
            }
        }
    }

    /// A version is certainly dead: reserve another one, if that may help.
    fn again(&mut self, now: Now, index: usize, out: &mut Vec<Step>) {
        let item = &mut self.items[index];
        let Some(failure) = item.failure.clone() else {
            return self.set_to_reserve(index);
        };
        if self.past_deadline {
            let failure = timed_out(&item.ask.key, Stage::Write, Some(&failure));
            return self.finish(index, Err(failure), out);
        }
        if failure.code == Code::NoSpace {
            match item.full.take() {
                Some(first) => self.fail(index, first, out),
                None => {
                    item.full = Some(failure);
                    self.set_to_reserve(index);
                }
            }
        } else if failure.code.retry() == Retry::Never || item.attempts >= ATTEMPTS_MAX {
            self.fail(index, failure, out);
        } else if item.avoid.is_empty() {
            self.pause(now, index, failure, out);
        } else {
            self.set_to_reserve(index);
        }
    }

    /// Whether a master that cannot be asked, or cannot answer yet, is still given time.
    fn is_soon(&mut self, now: Now, index: usize) -> bool {
        let since = *self.items[index].unanswered.get_or_insert(now);
        now.since(since) < METADATA_TIMEOUT
    }

    /// Reserves again after a while, if attempts and time are left.
    fn pause(&mut self, now: Now, index: usize, failure: Failure, out: &mut Vec<Step>) {
        let item = &mut self.items[index];
        if item.attempts >= ATTEMPTS_MAX {
            let cause = item.failure.take().unwrap_or(failure);
            return self.fail(index, cause, out);
        }
        self.pause_to(now, index, failure, Then::Reserve, out);
    }

    fn pause_to(
        &mut self,
        now: Now,
        index: usize,
        failure: Failure,
        then: Then,
        out: &mut Vec<Step>,
    ) {
        let item = &mut self.items[index];
        let until = now + Millis(PAUSE_MIN.0 << item.pauses.min(3));
        item.pauses += 1;
        if until >= self.deadline && then == Then::Reserve {
            let cause = item.failure.take().unwrap_or(failure);
            return self.fail(index, cause, out);
        }
        item.then = then;
        item.state = State::Pausing(until.min(self.deadline));
        item.failure.get_or_insert(failure);
        self.pausing.push(index);
    }

    fn fail(&mut self, index: usize, failure: Failure, out: &mut Vec<Step>) {
        let failure = about(failure, &self.items[index].ask.key);
        self.finish(index, Err(failure), out);
    }

    fn reserve(&mut self, now: Now, out: &mut Vec<Step>) {
        let wanted = self.in_state(State::ToReserve);
        let sizes = wanted.iter().map(|&i| self.items[i].reserve_bytes());
        for run in split::runs(sizes) {
            let call = CallId(self.next);
            self.next += 1;
            let indices = wanted[run].to_vec();
            let mut items = Vec::with_capacity(indices.len());
            for &index in &indices {
                let item = &mut self.items[index];
                item.state = State::Reserving;
                item.attempts += 1;
                // The time that the question takes is part of the patience.
                item.unanswered.get_or_insert(now);
                items.push(Reserve {
                    size: item.ask.size,
                    mode: item.ask.mode,
                    replicas: item.ask.replicas,
                    attributes: item.ask.attributes.clone(),
                    preferred: item.ask.preferred.clone(),
                    avoid: item.avoid.clone(),
                });
            }
            let keys = indices.iter().map(|&i| &self.items[i].ask.key).collect();
            self.calls.insert(call, indices);
            out.push(Step::Reserve { call, keys, items });
        }
    }

    fn cancel(&mut self, until: Now, out: &mut Vec<Step>) {
        let wanted = self.in_state(State::ToCancel);
        let sizes = wanted
            .iter()
            .map(|&i| self.items[i].ask.key.as_bytes().len() + 16);
        for run in split::runs(sizes) {
            let call = CallId(self.next);
            self.next += 1;
            let indices = wanted[run].to_vec();
            for &index in &indices {
                self.items[index].state = State::Cancelling;
            }
            let keys = indices.iter().map(|&i| &self.items[i].ask.key).collect();
            let versions = indices.iter().map(|&i| self.items[i].version).collect();
            self.calls.insert(call, indices);
            out.push(Step::Cancel {
                call,
                keys,
                versions,
                until,
            });
        }
    }

    fn set_to_reserve(&mut self, index: usize) {
        self.items[index].state = State::ToReserve;
        self.to_reserve.push(index);
    }

    fn set_to_cancel(&mut self, index: usize) {
        self.items[index].state = State::ToCancel;
        self.to_cancel.push(index);
    }

    /// Takes the items of one of the two lists that are still in its state, in their order.
    fn in_state(&mut self, state: State) -> Vec<usize> {
        let list = if state == State::ToCancel {
            &mut self.to_cancel
        } else {
            &mut self.to_reserve
        };
        let mut indices = std::mem::take(list);
        indices.retain(|&i| self.items[i].state == state);
        indices.sort_unstable();
        indices.dedup();
        indices
    }

    /// The deadline passed: what may have been published is asked about once more, briefly.
    fn give_up(&mut self, now: Now, out: &mut Vec<Step>) {
        self.past_deadline = true;
        let last = now >= self.deadline + LAST_CANCEL;
        for index in 0..self.items.len() {
            let item = &mut self.items[index];
            let stage = match item.state {
                State::Done => continue,
                State::Writing => {
                    for ticket in item.open.drain(..) {
                        self.writes.remove(&ticket);
                        out.push(Step::Abort { ticket });
                    }
                    if item.written > 0 {
                        // Some places published it: that is a success with fewer copies.
                        let outcome = Stored::Written {
                            version: item.version,
                            replicas: item.written,
                        };
                        self.finish(index, Ok(outcome), out);
                        continue;
                    }
                    item.failure.get_or_insert_with(|| {
                        Failure::new(
                            Code::RpcTimeout,
                            Stage::Write,
                            "the deadline passed before the write was answered",
                        )
                    });
                    self.set_to_cancel(index);
                    Stage::Write
                }
                State::ToCancel | State::Cancelling => Stage::Write,
                State::Pausing(_) if item.then == Then::Cancel => {
                    self.set_to_cancel(index);
                    Stage::Write
                }
                State::Behind | State::ToReserve | State::Reserving | State::Pausing(_) => {
                    let cause = item.failure.clone();
                    let failure = timed_out(&item.ask.key, Stage::Reserve, cause.as_ref());
                    self.finish(index, Err(failure), out);
                    continue;
                }
            };
            if last {
                let item = &self.items[index];
                let mut failure = timed_out(&item.ask.key, stage, item.failure.as_ref());
                failure
                    .message
                    .push_str("; whether the object was stored is not known");
                self.finish(index, Err(failure), out);
            }
        }
        if !last {
            self.cancel(self.deadline + LAST_CANCEL, out);
        }
    }

    fn finish(&mut self, index: usize, outcome: Result<Stored, Failure>, out: &mut Vec<Step>) {
        let mut todo = Some((index, outcome));
        while let Some((index, outcome)) = todo.take() {
            let item = &mut self.items[index];
            if item.state == State::Done {
                return;
            }
            item.state = State::Done;
            self.left -= 1;
            let readable = match outcome {
                Ok(Stored::Written { version, .. })
                | Ok(Stored::Exists {
                    version,
                    unfinished: false,
                }) => Some(version),
                _ => None,
            };
            out.push(Step::Done {
                item: index,
                outcome,
            });
            if let Some(next) = item.next_same {
                let next_item = &mut self.items[next];
                match (readable, next_item.ask.mode) {
                    (Some(version), PutMode::IfAbsent) => {
                        let outcome = Stored::Exists {
                            version,
                            unfinished: false,
                        };
                        todo = Some((next, Ok(outcome)));
                    }
                    _ if next_item.state == State::Behind => self.set_to_reserve(next),
                    _ => {}
                }
            }
        }
    }
}

/// Whether a place that answers a write so does not hold the version and never will.
fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidWrite | Code::ReplicaGone | Code::NoSpace | Code::InvalidParams
    )
}

impl Item {
    /// About what its reservation takes on the wire.
    fn reserve_bytes(&self) -> usize {
        let group = self.ask.attributes.group.as_ref().map_or(0, |g| g.len());
        let nodes = self.ask.preferred.len() + self.avoid.len();
        self.ask.key.as_bytes().len() + group + nodes * 10 + 48
    }
}

#[cfg(test)]
#[path = "put_test.rs"]
mod tests;
