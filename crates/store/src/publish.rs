//! Telling the directory: which items go into batches, and what their answers mean.

use crate::effect::{Counter, Effect};
use crate::index::{Aside, Replica, SlotId, Told};
use crate::outbox::Topic;
use crate::replica::Damage;
use crate::session::{Inventory, Link};
use crate::store::{Store, count};
use snowskin_types::error::{Code, Stage};
use snowskin_types::id::{Seq, Session};
use snowskin_types::limits::{NODE_BATCH_ITEMS_MAX, NODE_RETRY};
use snowskin_types::link::{FromNode, ItemResult, NodeItem};
use snowskin_types::object::Tier;
use snowskin_types::time::{Millis, Now};

/// A batch is closed once it has this many bytes of names, far below the largest frame.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Cells of the index that one event looks at for the inventory.
const WALK_MAX: u32 = 16_384;

impl Store {
    /// Queues what the state of a slot has to say, unless something is under way already.
    pub(crate) fn tell(&mut self, now: Now, id: SlotId) {
        if self.session().is_none() {
            return; // The next inventory tells it.
        }
        if let Some(slot) = self.index.get_mut(id)
            && slot.told == Told::Idle
        {
            slot.told = Told::Queued;
            self.outbox.push(now, Topic::Slot(id));
        }
    }

    /// Tells a slot (again) after this moment, whatever is under way.
    pub(crate) fn tell_again(&mut self, now: Now, id: SlotId) {
        if let Some(slot) = self.index.get_mut(id) {
            match slot.told {
                Told::Idle => self.tell(now, id),
                Told::Queued => {}
                Told::Sent(..) | Told::Pending(..) => slot.again = true,
            }
        }
    }

    /// Ends the wait for an answer about a slot.
    pub(crate) fn detach(&mut self, id: SlotId) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        if let Told::Sent(seq, at) | Told::Pending(seq, at) = slot.told {
            self.outbox.forget(seq, at);
        }
        slot.told = Told::Idle;
        slot.inventory = false;
        slot.again = false;
        if std::mem::take(&mut slot.inventory_open) {
            self.inventory.answered();
        }
    }

    /// Sends what should leave now.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(session) = self.session() else {
            return;
        };
        self.end_inventory(now);
        self.send_queued(now, session, out);
        let mut looked = 0;
        while self.outbox.has_inventory_room() {
            let seq = self.outbox.next_seq();
            let (items, topics) = self.inventory_batch(now, session, seq, &mut looked);
            if items.is_empty() {
                break;
            }
            self.send(now, seq, items, topics, out);
        }
        if self.end_inventory(now) {
            self.send_queued(now, session, out);
        }
    }

    /// Tells the end of the inventory once all of it has been answered.
    fn end_inventory(&mut self, now: Now) -> bool {
        let is_told = self.is_inventory_told();
        if is_told {
            self.inventory = Inventory::Ending;
            self.outbox.push(now, Topic::InventoryEnd);
        }
        is_told
    }

    fn send_queued(&mut self, now: Now, session: Session, out: &mut Vec<Effect>) {
        while self.outbox.wants_to_send(now) {
            let seq = self.outbox.next_seq();
            let (mut items, mut topics, mut bytes) = (Vec::new(), Vec::new(), 0);
            while items.len() < NODE_BATCH_ITEMS_MAX && bytes < BATCH_BYTES_MAX {
                let Some(topic) = self.outbox.pop() else {
                    break;
                };
                let at = items.len() as u32;
                if let Some(item) = self.item(now, session, topic, seq, at) {
                    bytes += weight(&item);
                    items.push(item);
                    topics.push(topic);
                }
            }
            self.send(now, seq, items, topics, out);
        }
    }

    fn send(
        &mut self,
        now: Now,
        seq: Seq,
        items: Vec<NodeItem>,
        topics: Vec<Topic>,
        out: &mut Vec<Effect>,
    ) {
        let Link::Live { link, session } = self.link else {
            return;
        };
        if items.is_empty() {
            return;
        }
        self.outbox.sent(now, topics);
        out.push(Effect::Send {
            link,
            message: FromNode::Batch {
                session,
                seq,
                items,
            },
        });
    }

    /// The item for a queued topic, or `None` when it has nothing to say any more.
    fn item(
        &mut self,
        now: Now,
        session: Session,
        topic: Topic,
        seq: Seq,
        at: u32,
    ) -> Option<NodeItem> {
        let id = match topic {
            Topic::InventoryEnd => return Some(NodeItem::InventoryEnd),
            Topic::Absent(id) => {
                let absence = self.outbox.absent(id)?;
                return Some(NodeItem::Absent {
                    name: absence.name.clone(),
                    version: absence.version,
                });
            }
            Topic::Slot(id) => id,
        };
        let slot = self.index.get_mut(id)?;
        if slot.told != Told::Queued {
            return None;
        }
        let item = match &slot.replica {
            Replica::Committed(_) => NodeItem::Publish {
                name: slot.name.clone(),
                version: slot.version,
                shape: slot.shape,
                tier: Tier::Dram,
                attributes: slot.attributes_at(now),
                acked: slot.acked,
                inventory: slot.inventory,
            },
            Replica::Retracting(ticket) => NodeItem::Retract {
                name: slot.name.clone(),
                version: slot.version,
                bad: ticket.damage() == Damage::Bad,
            },
            #[cfg(known_bugs)]
            Replica::Reserved(_) if self.bugs.publish_before_commit => NodeItem::Publish {
                name: slot.name.clone(),
                version: slot.version,
                shape: slot.shape,
                tier: Tier::Dram,
                attributes: slot.attributes_at(now),
                acked: slot.acked,
                inventory: slot.inventory,
            },
            _ => {
                slot.told = Told::Idle;
                return None;
            }
        };
        slot.told = Told::Sent(seq, at);
        slot.told_in = session;
        Some(item)
    }

    /// Fills one batch from the walk over the index.
    fn inventory_batch(
        &mut self,
        now: Now,
        session: Session,
        seq: Seq,
        looked: &mut u32,
    ) -> (Vec<NodeItem>, Vec<Topic>) {
        let (mut items, mut topics, mut bytes) = (Vec::new(), Vec::new(), 0);
        while items.len() < NODE_BATCH_ITEMS_MAX && bytes < BATCH_BYTES_MAX {
            let Inventory::Walking { next, open } = self.inventory else {
                break;
            };
            if next >= self.index.cells() {
                break;
            }
            if *looked >= WALK_MAX {
                self.more_to_do = true;
                break;
            }
            *looked += 1;
            self.inventory = Inventory::Walking {
                next: next + 1,
                open,
            };
            let Some((id, slot)) = self.index.at(next) else {
                continue;
            };
            if !slot.is_tellable() || slot.told_in == session || slot.told != Told::Idle {
                continue;
            }
            self.step(id, |replica| match replica {
                Replica::Published(ticket) => Replica::Committed(ticket.untold()),
                other => other,
            });
            if let Some(slot) = self.index.get_mut(id) {
                slot.told = Told::Queued;
                slot.inventory = true;
                slot.inventory_open = true;
            }
            let at = items.len() as u32;
            if let Some(item) = self.item(now, session, Topic::Slot(id), seq, at) {
                self.inventory.asked();
                bytes += weight(&item);
                items.push(item);
                topics.push(Topic::Slot(id));
            }
        }
        (items, topics)
    }

    /// Sends again, under fresh numbers, what has waited too long for its answer.
    pub(crate) fn resend_overdue(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.session().is_none() {
            return;
        }
        for topic in self.outbox.overdue(now) {
            let Topic::Slot(id) = topic else {
                self.outbox.push(now, topic);
                continue;
            };
            let Some(slot) = self.index.get_mut(id) else {
                continue;
            };
            if !matches!(slot.told, Told::Sent(..) | Told::Pending(..)) {
                continue;
            }
            if matches!(slot.replica, Replica::Committed(_)) {
                count(out, Counter::PublishRetries, 1);
                #[cfg(known_bugs)]
                if self.bugs.rollback_on_missing_answer && matches!(slot.told, Told::Sent(..)) {
                    self.roll_back(now, id, out);
                    continue;
                }
            }
            slot.told = Told::Queued;
            slot.again = false;
            self.outbox.push(now, topic);
        }
    }

    /// Plants a fault: what was perhaps published is dropped.
    #[cfg(known_bugs)]
    fn roll_back(&mut self, now: Now, id: SlotId, out: &mut Vec<Effect>) {
        let Some(slot) = self.index.get(id) else {
            return;
        };
        let message = "the directory did not answer";
        let failure = self.failure(Code::RpcTimeout, Stage::Publish, &slot.name, message);
        self.answer_writers(id, &Err(failure), out);
        self.step(id, |replica| match replica {
            Replica::Committed(ticket) => Replica::Retracted(ticket.rolled_back()),
            other => other,
        });
        let _ = now;
        self.leave(id);
    }

    /// An answer of the directory in the present session.
    pub(crate) fn acked(
        &mut self,
        now: Now,
        seq: Seq,
        results: &[(u32, ItemResult)],
        out: &mut Vec<Effect>,
    ) {
        for &(at, result) in results {
            match self.outbox.answered(seq, at) {
                None => count(out, Counter::AnswersLate, 1),
                Some(Topic::Absent(id)) => self.outbox.absent_noted(id),
                Some(Topic::InventoryEnd) if result == ItemResult::Ok => {
                    self.inventory = Inventory::Done;
                }
                Some(Topic::InventoryEnd) => {
                    count(out, Counter::AnswersOdd, 1);
                    self.outbox.push(now, Topic::InventoryEnd);
                }
                Some(Topic::Slot(id)) => self.slot_answered(now, id, (seq, at), result, out),
            }
        }
    }

    fn slot_answered(
        &mut self,
        now: Now,
        id: SlotId,
        number: (Seq, u32),
        result: ItemResult,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        if std::mem::take(&mut slot.inventory_open) {
            self.inventory.answered();
        }
        slot.told = Told::Idle;
        let is_retract = matches!(slot.replica, Replica::Retracting(_));
        #[cfg(known_bugs)]
        if matches!(slot.replica, Replica::Reserved(_)) {
            slot.acked |= result == ItemResult::Ok;
            return;
        }
        match (is_retract, result) {
            (false, ItemResult::Ok) => self.slot_published(now, id, out),
            (false, ItemResult::Refused) => self.publish_refused(id, out),
            (false, other) => {
                if other != ItemResult::Pending {
                    count(out, Counter::AnswersOdd, 1);
                }
                self.wait_pending(now, id, number);
            }
            (true, ItemResult::Ok) => self.retract_granted(now, id, out),
            (true, ItemResult::Leased(left) | ItemResult::Held(left)) => {
                self.retract_refused(now, id, number, left, out);
            }
            (true, ItemResult::Pending | ItemResult::Refused) => {
                count(out, Counter::AnswersOdd, 1);
                self.retract_refused(now, id, number, NODE_RETRY, out);
            }
        }
    }

    fn wait_pending(&mut self, now: Now, id: SlotId, (seq, at): (Seq, u32)) {
        if let Some(slot) = self.index.get_mut(id) {
            slot.told = Told::Pending(seq, at);
            self.outbox.keep_pending(now, seq, at, id);
            if std::mem::take(&mut slot.again) {
                // What asked for it came after the first sending, so that number is outdated.
                self.outbox.forget(seq, at);
                slot.told = Told::Idle;
                self.tell(now, id);
            }
        }
    }

    /// The directory names it now.
    pub(crate) fn slot_published(&mut self, now: Now, id: SlotId, out: &mut Vec<Effect>) {
        let Some(session) = self.session() else {
            return;
        };
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        let was_acked = std::mem::replace(&mut slot.acked, true);
        if !was_acked {
            self.born_bytes = self.born_bytes.saturating_add(slot.bytes);
            slot.born = self.born_bytes;
        }
        slot.inventory = false;
        slot.refused = false;
        let again = std::mem::take(&mut slot.again);
        if slot.version.term() == session.term {
            self.one_shot.accepted(now, slot.version);
        }
        if again {
            self.index.recount(id);
            self.tell(now, id);
        } else {
            self.step(id, |replica| match replica {
                Replica::Committed(ticket) => Replica::Published(ticket.published(session)),
                other => other,
            });
        }
        self.shelve(id, was_acked);
        self.answer_writers(id, &Ok(()), out);
    }

    /// The directory does not take it: its order to retire follows, until then old leases are served.
    fn publish_refused(&mut self, id: SlotId, out: &mut Vec<Effect>) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        slot.refused = true;
        slot.inventory = false;
        slot.again = false;
        let (name, version) = (slot.name.clone(), slot.version);
        self.unshelve(id);
        self.index.recount(id);
        let message = format!("the directory refused version {version}; reserve again");
        let failure = self.failure(Code::InvalidWrite, Stage::Publish, &name, message);
        self.answer_writers(id, &Err(failure), out);
    }

    fn retract_granted(&mut self, now: Now, id: SlotId, out: &mut Vec<Effect>) {
        let Some(slot) = self.index.get(id) else {
            return;
        };
        let (name, version, bytes) = (slot.name.clone(), slot.version, slot.bytes);
        if matches!(&slot.replica, Replica::Retracting(t) if t.damage() == Damage::Sound) {
            count(out, Counter::Evicted, 1);
            count(out, Counter::EvictedBytes, bytes);
        }
        self.step(id, |replica| match replica {
            Replica::Retracting(ticket) => Replica::Retracted(ticket.granted()),
            other => other,
        });
        self.leave(id);
        self.end_version(now, &name, version, out);
    }

    fn retract_refused(
        &mut self,
        now: Now,
        id: SlotId,
        number: (Seq, u32),
        left: Millis,
        out: &mut Vec<Effect>,
    ) {
        let Some(session) = self.session() else {
            return;
        };
        count(out, Counter::RetractRefused, 1);
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        if matches!(&slot.replica, Replica::Retracting(t) if t.damage() == Damage::Bad) {
            // Damaged bytes have no way back: asked again after a while.
            return self.wait_pending(now, id, number);
        }
        let again = std::mem::take(&mut slot.again);
        self.retracting.remove(&id);
        self.step(id, |replica| match replica {
            Replica::Retracting(ticket) => Replica::Published(ticket.refused(session)),
            other => other,
        });
        self.set_aside(id, now + left.max(Millis(1)), Aside::Leased);
        if again {
            self.publish_anew(now, id);
        }
    }

    /// Publishes a replica once more, for one that is published already.
    pub(crate) fn publish_anew(&mut self, now: Now, id: SlotId) {
        self.step(id, |replica| match replica {
            Replica::Published(ticket) => Replica::Committed(ticket.untold()),
            other => other,
        });
        self.tell_again(now, id);
    }
}

/// Bytes of names in an item, about.
fn weight(item: &NodeItem) -> usize {
    let named = match item {
        NodeItem::Publish {
            name, attributes, ..
        } => name.key.as_bytes().len() + attributes.group.as_ref().map_or(0, |g| g.len()),
        NodeItem::Retract { name, .. } | NodeItem::Absent { name, .. } => name.key.as_bytes().len(),
        NodeItem::InventoryEnd => 0,
    };
    named + 128
}
