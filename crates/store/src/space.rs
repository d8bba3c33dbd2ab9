//! Space: eviction ahead of need and for waiting writes, and the last step, reclaim.
//!
//! Between the high and the low watermark eviction runs ahead of need, and spares what came last
//! when the rest is held. Below it, only for writes that wait. A victim is proposed to the
//! directory; a refused one is set aside until its lease ends.

use crate::admit::whole_units;
use crate::arena::PIECE_BYTES_MIN;
use crate::evict::{Entry, policy};
use crate::index::{Aside, Replica, Shelf, SlotId};
use crate::replica::Damage;
use crate::session::Inventory;
use crate::store::Store;
use snowskin_types::limits::SLICE_ITEMS;
use snowskin_types::time::{Millis, Now};

/// Retracts that may wait for their answer.
const RETRACTING_MAX: usize = 4096;
/// A victim that is busy is left alone for this long.
const BUSY: Millis = Millis(50);

impl Store {
    /// Proposes victims as far as bytes are needed.
    pub(crate) fn evict(&mut self, now: Now) {
        let (ahead, waiting) = self.bytes_needed();
        let needed = ahead.max(waiting);
        let is_ready = self.inventory == Inventory::Done && !self.outbox.absents_full();
        if needed == 0 || !is_ready {
            return;
        }
        let (mut got, mut looked) = (0, 0);
        while got < needed && self.retracting.len() < RETRACTING_MAX {
            if looked >= SLICE_ITEMS {
                self.more_to_do = true;
                return;
            }
            looked += 1;
            // Ahead of need, soft pins yield only when nothing else is there at all.
            let soft = got < waiting || self.main.is_empty() && self.aside.is_empty();
            let Some(id) = self.next_victim(soft) else {
                return;
            };
            if got >= waiting && self.is_newest(id) {
                // It goes back behind whatever comes free before it is asked for again.
                self.shelve(id, false);
                return;
            }
            got += self.propose(now, id);
        }
    }

    /// Whether a replica became a victim only since what is older is held by leases, and is one of the
    /// last that came: no more bytes of them than one run of eviction frees. Room for others is not made
    /// of them before the others come: what was just put would be gone before anybody could read it.
    fn is_newest(&self, id: SlotId) -> bool {
        if self.aside.is_empty() {
            return false;
        }
        let run = self.force.high_bytes - self.force.low_bytes.min(self.force.high_bytes);
        let Some(slot) = self.index.get(id) else {
            return false;
        };
        self.born_bytes.saturating_sub(slot.born) < run
    }

    /// Bytes to free ahead of need, and for waiting writes; what is on its way out is counted.
    fn bytes_needed(&mut self) -> (u64, u64) {
        let split = self.index.sums();
        let used = self.arena.used_bytes();
        let staying = used - (split.retracting + split.draining).min(used);
        if staying > self.force.high_bytes {
            self.evicting = true;
        }
        let ahead = staying.saturating_sub(self.force.low_bytes);
        self.evicting &= ahead > 0;
        (
            if self.evicting { ahead } else { 0 },
            self.bytes_for_waiting(),
        )
    }

    fn bytes_for_waiting(&self) -> u64 {
        let front = self.waiting.iter().find_map(|id| self.index.get(*id));
        let Some(front) = front else {
            return 0;
        };
        let first = whole_units(front.shape.size);
        let retracting = self.index.sums().retracting;
        let coming = self.arena.free_bytes() + retracting;
        // Evicting for what no eviction can make fit would only empty the cache.
        let movable = self.main.bytes() + self.soft.bytes() + self.aside_bytes();
        if first > coming + movable {
            return 0;
        }
        // Not for all that wait at once: most of it may have given up by then.
        let ahead = self.arena.capacity() - self.force.low_bytes.min(self.arena.capacity());
        let demand = self.waiting_bytes.min(ahead.max(first));
        if demand > coming {
            demand - coming
        } else if retracting == 0 {
            // Enough is free, in holes too small to use: a little more joins some of them.
            PIECE_BYTES_MIN.min(first).max(first / 8)
        } else {
            0
        }
    }

    /// Bytes of candidates that are set aside (those held by leases are what counts here).
    fn aside_bytes(&self) -> u64 {
        self.index.sums().leased
    }

    fn next_victim(&mut self, soft: bool) -> Option<SlotId> {
        let id = self.main.victim();
        let id = match id {
            None if soft => self.soft.victim(),
            other => other,
        }?;
        let id = SlotId::from_raw(id);
        if let Some(slot) = self.index.get_mut(id) {
            slot.shelf = Shelf::Off;
        }
        Some(id)
    }

    /// Asks the directory to let a victim go; returns the bytes this will free.
    fn propose(&mut self, now: Now, id: SlotId) -> u64 {
        let Some(session) = self.session() else {
            return 0;
        };
        let Some(slot) = self.index.get(id) else {
            return 0;
        };
        if slot.pins > 0 || !slot.is_published_in(session) {
            self.set_aside(id, now + BUSY, Aside::Busy);
            return 0;
        }
        let bytes = slot.bytes;
        self.step(id, |replica| match replica {
            Replica::Published(ticket) => Replica::Retracting(ticket.retract(Damage::Sound)),
            other => other,
        });
        self.retracting.insert(id);
        self.tell(now, id);
        #[cfg(known_bugs)]
        if self.bugs.reclaim_before_grant
            && let Some(slot) = self.index.get_mut(id)
            && let Replica::Retracting(ticket) = &mut slot.replica
        {
            ticket.steal(&mut self.arena);
            slot.bytes = 0;
            self.index.recount(id);
            self.space_changed = true;
        }
        bytes
    }

    /// Makes a published replica a candidate; `back`: it had been one before.
    pub(crate) fn shelve(&mut self, id: SlotId, back: bool) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        if slot.shelf != Shelf::Off || slot.attributes.hard_pin {
            return;
        }
        let entry = Entry {
            id: id.raw(),
            print: slot.print,
            size: slot.bytes,
        };
        let order = if slot.soft_until.is_some() {
            slot.shelf = Shelf::Soft;
            &mut self.soft
        } else {
            slot.shelf = Shelf::Main;
            &mut self.main
        };
        if back {
            order.restore(entry);
            if slot.touched {
                order.touch(entry.id);
            }
        } else {
            order.insert(entry);
        }
        slot.touched = false;
        self.index.recount(id);
    }

    /// Takes a replica out of the candidates.
    pub(crate) fn unshelve(&mut self, id: SlotId) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        match std::mem::replace(&mut slot.shelf, Shelf::Off) {
            Shelf::Off => {}
            Shelf::Main => self.main.remove(id.raw()),
            Shelf::Soft => self.soft.remove(id.raw()),
            Shelf::Aside(until, _) => {
                self.aside.remove(&(until, id));
            }
        }
        self.index.recount(id);
    }

    /// Does not offer a candidate before `until`.
    pub(crate) fn set_aside(&mut self, id: SlotId, until: Now, why: Aside) {
        self.unshelve(id);
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        if slot.attributes.hard_pin {
            return;
        }
        slot.shelf = Shelf::Aside(until, why);
        self.aside.insert((until, id));
        self.index.recount(id);
    }

    /// Takes candidates back whose time aside is over, and ends soft pins.
    pub(crate) fn unshelve_due(&mut self, now: Now) {
        for _ in 0..SLICE_ITEMS {
            let Some(&(until, id)) = self.aside.first() else {
                break;
            };
            if until > now {
                break;
            }
            self.unshelve(id);
            self.shelve(id, true);
        }
        for _ in 0..SLICE_ITEMS {
            let Some(&(until, id)) = self.soft_due.first() else {
                break;
            };
            if until > now {
                break;
            }
            self.soft_due.remove(&(until, id));
            if let Some(slot) = self.index.get_mut(id) {
                slot.soft_until = None;
                if slot.shelf == Shelf::Soft {
                    self.unshelve(id);
                    self.shelve(id, false);
                }
            }
        }
    }

    /// Another order is in force: hands the candidates over, next victims first.
    pub(crate) fn rebuild_order(&mut self) {
        for kind in [Shelf::Main, Shelf::Soft] {
            let fresh = policy(self.force.eviction, self.force.high_bytes);
            let order = match kind {
                Shelf::Soft => &mut self.soft,
                _ => &mut self.main,
            };
            let mut old = std::mem::replace(order, fresh);
            while let Some(raw) = old.victim() {
                if let Some(slot) = self.index.get(SlotId::from_raw(raw)) {
                    order.insert(Entry {
                        id: raw,
                        print: slot.print,
                        size: slot.bytes,
                    });
                }
            }
        }
    }

    /// A replica is not served any more and not named: it leaves the index, and its bytes go now or
    /// with their last pin.
    pub(crate) fn leave(&mut self, id: SlotId) {
        self.unshelve(id);
        self.detach(id);
        self.retracting.remove(&id);
        self.index.hide(id);
        self.index.recount(id);
        if self.index.get(id).is_some_and(|slot| slot.pins == 0) {
            self.reclaim(id);
        }
    }

    /// Gives the bytes of a retracted, unpinned replica back.
    pub(crate) fn reclaim(&mut self, id: SlotId) {
        let Some(slot) = self.index.remove(id) else {
            return;
        };
        if let Some(until) = slot.soft_until {
            self.soft_due.remove(&(until, id));
        }
        if let Replica::Retracted(ticket) = slot.replica {
            ticket.reclaim(&mut self.arena);
            self.space_changed = true;
        }
    }
}
