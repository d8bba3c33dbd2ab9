//! Numbered batches to the directory: what waits, what is under way, what must be sent again.
//!
//! A batch leaves at once when nothing is under way; otherwise items gather, so that many writers
//! share a batch, until an answer comes, a batch is full, or the oldest has waited for [`LINGER`].

use crate::index::SlotId;
use snowskin_types::id::Seq;
use snowskin_types::key::ObjectName;
use snowskin_types::limits::{NODE_BATCH_ITEMS_MAX, NODE_BATCHES_IN_FLIGHT_MAX, NODE_RETRY};
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Longest wait of an item for company.
const LINGER: Millis = Millis(5);
/// Batches that an inventory leaves to fresh items.
const KEPT_FREE: usize = 2;
/// Absences to be confirmed by the directory, at most.
pub(crate) const ABSENTS_MAX: usize = 1 << 16;

/// What one item of a batch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A slot: its state decides between publish and retract.
    Slot(SlotId),
    /// A version that is not here.
    Absent(u64),
    /// The inventory is complete.
    InventoryEnd,
}

/// A version that is not here and will not be.
#[derive(Debug, Clone)]
pub(crate) struct Absence {
    pub(crate) name: ObjectName,
    pub(crate) version: Version,
}

#[derive(Debug)]
struct Batch {
    sent: Now,
    topics: Vec<Option<Topic>>,
    unanswered: usize,
}

/// The state of sending.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    last: u64,
    queue: VecDeque<Topic>,
    oldest: Option<Now>,
    in_flight: BTreeMap<Seq, Batch>,
    pending: BTreeMap<(Seq, u32), SlotId>,
    again: VecDeque<(Now, Seq, u32)>,
    absents: BTreeMap<u64, Absence>,
    absent_of: HashMap<Version, u64>,
    absent_last: u64,
}

/// What was under way when a session ended.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Waited in the queue.
    pub(crate) queued: Vec<SlotId>,
    /// Sent, and unanswered or pending.
    pub(crate) sent: Vec<SlotId>,
}

impl Outbox {
    /// Queues an item.
    pub(crate) fn push(&mut self, now: Now, topic: Topic) {
        self.queue.push_back(topic);
        self.oldest.get_or_insert(now);
    }

    /// Remembers an absence until the directory has noted it. `None` when it is remembered
    /// already or when too many are.
    pub(crate) fn add_absent(&mut self, name: ObjectName, version: Version) -> Option<Topic> {
        if self.absent_of.contains_key(&version) || self.absents.len() >= ABSENTS_MAX {
            return None;
        }
        self.absent_last += 1;
        let id = self.absent_last;
        self.absent_of.insert(version, id);
        self.absents.insert(id, Absence { name, version });
        Some(Topic::Absent(id))
    }

    /// True when no further absence can be remembered.
    pub(crate) fn absents_full(&self) -> bool {
        self.absents.len() >= ABSENTS_MAX
    }

    /// True when this version's absence is being told.
    pub(crate) fn tells_absent(&self, version: Version) -> bool {
        self.absent_of.contains_key(&version)
    }

    pub(crate) fn absent(&self, id: u64) -> Option<&Absence> {
        self.absents.get(&id)
    }

    pub(crate) fn absent_noted(&mut self, id: u64) {
        if let Some(absence) = self.absents.remove(&id) {
            self.absent_of.remove(&absence.version);
        }
    }

    /// True when a batch of queued items should leave now.
    pub(crate) fn wants_to_send(&self, now: Now) -> bool {
        let room = self.in_flight.len() < NODE_BATCHES_IN_FLIGHT_MAX;
        room && !self.queue.is_empty()
            && (self.in_flight.is_empty()
                || self.queue.len() >= NODE_BATCH_ITEMS_MAX
                || self.oldest.is_none_or(|at| at + LINGER <= now))
    }

    /// True when the inventory may fill a batch of its own.
    pub(crate) fn has_inventory_room(&self) -> bool {
        self.in_flight.len() + KEPT_FREE < NODE_BATCHES_IN_FLIGHT_MAX
    }

    /// The next queued item for a batch.
    pub(crate) fn pop(&mut self) -> Option<Topic> {
        let topic = self.queue.pop_front();
        if self.queue.is_empty() {
            self.oldest = None;
        }
        topic
    }

    /// The number of the next batch.
    pub(crate) fn next_seq(&self) -> Seq {
        Seq(self.last + 1)
    }

    /// Notes that a batch left under [`Outbox::next_seq`].
    pub(crate) fn sent(&mut self, now: Now, topics: Vec<Topic>) {
        self.last += 1;
        let batch = Batch {
            sent: now,
            unanswered: topics.len(),
            topics: topics.into_iter().map(Some).collect(),
        };
        self.in_flight.insert(Seq(self.last), batch);
        // What is left in the queue starts its wait anew: a batch has just made room.
        self.oldest = (!self.queue.is_empty()).then_some(now);
    }

    /// Finds what an answer is about and ends its wait; `None` for answers that came too late.
    pub(crate) fn answered(&mut self, seq: Seq, at: u32) -> Option<Topic> {
        if let Some(slot) = self.pending.remove(&(seq, at)) {
            return Some(Topic::Slot(slot));
        }
        let batch = self.in_flight.get_mut(&seq)?;
        let topic = batch.topics.get_mut(at as usize)?.take()?;
        batch.unanswered -= 1;
        if batch.unanswered == 0 {
            self.in_flight.remove(&seq);
        }
        Some(topic)
    }

    /// The last answer was only 'pending': another one follows, or the item is sent again.
    pub(crate) fn keep_pending(&mut self, now: Now, seq: Seq, at: u32, slot: SlotId) {
        self.pending.insert((seq, at), slot);
        self.again.push_back((now + NODE_RETRY, seq, at));
    }

    /// Stops waiting for an answer that no longer matters.
    pub(crate) fn forget(&mut self, seq: Seq, at: u32) {
        self.answered(seq, at);
    }

    /// Takes out what has waited too long for its answer: batches first, then pending items.
    pub(crate) fn overdue(&mut self, now: Now) -> Vec<Topic> {
        let mut topics = Vec::new();
        while let Some(first) = self.in_flight.first_entry() {
            if first.get().sent + NODE_RETRY > now {
                break;
            }
            topics.extend(first.remove().topics.into_iter().flatten());
        }
        while let Some(&(at, seq, index)) = self.again.front() {
            if at > now {
                break;
            }
            self.again.pop_front();
            topics.extend(self.pending.remove(&(seq, index)).map(Topic::Slot));
        }
        topics
    }

    /// The session ended: numbers start anew, nothing is under way. Absences stay to be told.
    pub(crate) fn session_lost(&mut self) -> Lost {
        let slots = |topic| match topic {
            Topic::Slot(slot) => Some(slot),
            _ => None,
        };
        let mut lost = Lost::default();
        lost.queued.extend(self.queue.drain(..).filter_map(slots));
        for batch in std::mem::take(&mut self.in_flight).into_values() {
            let sent = batch.topics.into_iter().flatten();
            lost.sent.extend(sent.filter_map(slots));
        }
        lost.sent
            .extend(std::mem::take(&mut self.pending).into_values());
        self.again.clear();
        self.oldest = None;
        self.last = 0;
        lost
    }

    /// A session began: tells all absences.
    pub(crate) fn session_began(&mut self, now: Now) {
        let ids: Vec<u64> = self.absents.keys().copied().collect();
        for id in ids {
            self.push(now, Topic::Absent(id));
        }
    }

    /// When something here becomes due.
    pub(crate) fn next_deadline(&self) -> Now {
        let retry = self.in_flight.values().next().map(|b| b.sent + NODE_RETRY);
        let pending = self.again.front().map(|(at, ..)| *at);
        let room = self.in_flight.len() < NODE_BATCHES_IN_FLIGHT_MAX;
        let linger = self.oldest.map(|at| at + LINGER).filter(|_| room);
        [retry, pending, linger]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Now::NEVER)
    }

    /// Batches under way.
    pub(crate) fn batches(&self) -> usize {
        self.in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowskin_types::id::Term;
    use snowskin_types::key::{Key, Tenant};

    fn slot(n: u64) -> Topic {
        Topic::Slot(SlotId::from_raw(n))
    }

    fn send(outbox: &mut Outbox, now: Now) -> Seq {
        let seq = outbox.next_seq();
        let topics = std::iter::from_fn(|| outbox.pop())
            .take(NODE_BATCH_ITEMS_MAX)
            .collect();
        outbox.sent(now, topics);
        seq
    }

    #[test]
    fn the_first_item_leaves_at_once_and_later_ones_gather() {
        let mut outbox = Outbox::default();
        outbox.push(Now(0), slot(1));
        assert!(outbox.wants_to_send(Now(0)));
        let seq = send(&mut outbox, Now(0));
        outbox.push(Now(1), slot(2));
        assert!(!outbox.wants_to_send(Now(1)));
        assert!(outbox.wants_to_send(Now(6)), "lingered");
        assert_eq!(outbox.answered(seq, 0), Some(slot(1)));
        assert!(outbox.wants_to_send(Now(1)), "nothing is under way");
        assert_eq!(outbox.answered(seq, 0), None);
    }

    #[test]
    fn at_most_so_many_batches_are_under_way() {
        let mut outbox = Outbox::default();
        for n in 0..20_000 {
            outbox.push(Now(0), slot(n));
        }
        let mut batches = 0;
        while outbox.wants_to_send(Now(0)) {
            send(&mut outbox, Now(0));
            batches += 1;
        }
        assert_eq!(batches, NODE_BATCHES_IN_FLIGHT_MAX);
        assert_eq!(outbox.overdue(Now(499)).len(), 0);
        let again = outbox.overdue(Now(500)).len();
        assert_eq!(again, NODE_BATCHES_IN_FLIGHT_MAX * NODE_BATCH_ITEMS_MAX);
        assert_eq!(outbox.batches(), 0);
    }

    #[test]
    fn a_pending_item_takes_a_second_answer_until_it_is_sent_again() {
        let mut outbox = Outbox::default();
        outbox.push(Now(0), slot(1));
        let seq = send(&mut outbox, Now(0));
        assert_eq!(outbox.answered(seq, 0), Some(slot(1)));
        outbox.keep_pending(Now(10), seq, 0, SlotId::from_raw(1));
        assert_eq!(outbox.next_deadline(), Now(510));
        assert_eq!(outbox.answered(seq, 0), Some(slot(1)));
        outbox.keep_pending(Now(20), seq, 0, SlotId::from_raw(1));
        assert_eq!(outbox.overdue(Now(520)), [slot(1)]);
        assert_eq!(outbox.answered(seq, 0), None);
    }

    #[test]
    fn absences_outlive_the_session_and_are_told_once() {
        let mut outbox = Outbox::default();
        let name = ObjectName::new(Tenant::default(), Key::new(b"k").unwrap());
        let version = Version::new(Term(1), 1).unwrap();
        let topic = outbox.add_absent(name.clone(), version).unwrap();
        assert!(outbox.add_absent(name, version).is_none());
        outbox.push(Now(0), topic);
        outbox.push(Now(0), slot(3));
        assert_eq!(outbox.session_lost().queued, [SlotId::from_raw(3)]);
        outbox.session_began(Now(9));
        assert_eq!(outbox.pop(), Some(topic));
        outbox.absent_noted(1);
        assert!(!outbox.tells_absent(version));
    }
}
