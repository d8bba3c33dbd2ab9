//! What must be true of a store after every event.

use crate::index::{Check, Replica, Shelf, Slot, SlotId, Split, Told};
use crate::session::Link;
use crate::store::Store;
use snowskin_types::limits::NODE_BATCHES_IN_FLIGHT_MAX;

/// Above this many slots the check is not run after each event of a debug build: it is linear.
const CHECKED_SLOTS_MAX: usize = 256;

/// An invariant that does not hold, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

macro_rules! hold {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(Violation(format!($($text)*)));
        }
    };
}

impl Store {
    /// Checks everything that must be true between events. Linear in what is held.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_bytes()?;
        self.check_states()?;
        self.check_orders()?;
        self.check_tokens()
    }

    pub(crate) fn check_in_debug(&self) {
        #[cfg(known_bugs)]
        if self.bugs != crate::bugs::Bugs::default() {
            return;
        }
        if cfg!(debug_assertions)
            && self.index.len() <= CHECKED_SLOTS_MAX
            && let Err(violation) = self.check()
        {
            debug_assert!(false, "{violation}");
        }
    }

    /// Extents are disjoint and exactly those that the arena has given out.
    fn check_bytes(&self) -> Result<(), Violation> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        for (_, slot) in self.index.iter() {
            bytes += slot.bytes;
            let sum: u64 = slot.extents.iter().map(|extent| extent.len).sum();
            let has_bytes = !matches!(slot.replica, Replica::Waiting);
            let size = if has_bytes { slot.shape.size } else { 0 };
            hold!(
                sum == size,
                "{}: extents of {sum} for {size} bytes",
                slot.name
            );
            taken.extend(slot.extents.iter().map(|e| (e.offset, e.offset + e.len)));
        }
        bytes += self.cut.values().map(|cut| cut.bytes).sum::<u64>();
        let used = self.arena.used_bytes();
        hold!(bytes == used, "{bytes} bytes held, {used} taken");
        taken.sort_unstable();
        for pair in taken.windows(2) {
            if let [first, second] = pair {
                hold!(first.1 <= second.0, "{first:?} and {second:?} overlap");
            }
        }
        Ok(())
    }

    fn check_states(&self) -> Result<(), Violation> {
        let mut sums = Split::default();
        let mut waiting = 0;
        for (id, slot) in self.index.iter() {
            let name = &slot.name;
            let split = slot.split();
            hold!(
                split == slot.counted,
                "{name}: counted {:?}, is {split:?}",
                slot.counted
            );
            add(&mut sums, split);
            self.check_slot(id, slot)?;
            waiting += usize::from(matches!(slot.replica, Replica::Waiting));
        }
        hold!(
            sums == self.index.sums(),
            "sums {:?}, are {sums:?}",
            self.index.sums()
        );
        hold!(waiting == self.waiting_due.len(), "{waiting} writes wait");
        Ok(())
    }

    fn check_slot(&self, id: SlotId, slot: &Slot) -> Result<(), Violation> {
        let (name, version) = (&slot.name, slot.version);
        let found = self.index.find(name, version) == Some(id);
        let is_in = self.retracting.contains(&id);
        match &slot.replica {
            Replica::Moving => hold!(false, "{name}: between two states"),
            Replica::Waiting => hold!(found && slot.writer.is_some(), "{name}: waits for nobody"),
            Replica::Reserved(_) => hold!(found && slot.writer.is_some(), "{name}: no writer"),
            Replica::Committed(_) => hold!(found, "{name}: committed and not found"),
            Replica::Published(ticket) => {
                hold!(
                    found && slot.acked,
                    "{name}: published and not committed or acked"
                );
                hold!(
                    ticket.session() <= self.last_session,
                    "{name}: of a later session"
                );
                hold!(!slot.refused, "{name}: published and refused");
            }
            Replica::Retracting(_) => hold!(found && is_in, "{name}: retracting and lost"),
            Replica::Retracted(_) => {
                hold!(
                    !found && slot.pins > 0,
                    "{name}: retracted, unpinned and not reclaimed"
                );
            }
        }
        hold!(
            is_in == matches!(slot.replica, Replica::Retracting(_)),
            "{name}: in the set of the retracting"
        );
        hold!(
            !slot.is_served() || !self.one_shot.has_ended(version),
            "{name}: served after it had ended"
        );
        hold!(
            slot.told == Told::Idle || self.session().is_some(),
            "{name}: told to nobody"
        );
        hold!(
            !slot.attributes.hard_pin || slot.shelf == Shelf::Off,
            "{name}: pinned candidate"
        );
        let is_candidate = matches!(slot.replica, Replica::Committed(_) | Replica::Published(_));
        hold!(
            is_candidate || slot.shelf == Shelf::Off,
            "{name}: candidate that is not held"
        );
        Ok(())
    }

    fn check_orders(&self) -> Result<(), Violation> {
        let count = |shelf| {
            self.index
                .iter()
                .filter(|(_, slot)| slot.shelf == shelf)
                .count()
        };
        let (main, soft) = (count(Shelf::Main), count(Shelf::Soft));
        hold!(
            main == self.main.len(),
            "{main} candidates, {} in order",
            self.main.len()
        );
        hold!(
            soft == self.soft.len(),
            "{soft} soft, {} in order",
            self.soft.len()
        );
        let aside = self.index.iter().filter_map(|(id, slot)| match slot.shelf {
            Shelf::Aside(until, _) => Some((until, id)),
            _ => None,
        });
        let aside: std::collections::BTreeSet<_> = aside.collect();
        hold!(
            aside == self.aside,
            "{} aside, {} in order",
            aside.len(),
            self.aside.len()
        );
        let batches = self.outbox.batches();
        hold!(
            batches <= NODE_BATCHES_IN_FLIGHT_MAX,
            "{batches} batches under way"
        );
        Ok(())
    }

    fn check_tokens(&self) -> Result<(), Violation> {
        let mut pins = std::collections::BTreeMap::<SlotId, u32>::new();
        let pinned = self.reads.values().map(|pin| pin.slot);
        for id in pinned.chain(self.checks.values().copied()) {
            *pins.entry(id).or_default() += 1;
        }
        for (id, slot) in self.index.iter() {
            let known = pins.remove(&id).unwrap_or(0);
            hold!(
                known == slot.pins,
                "{}: {} pins, {known} known",
                slot.name,
                slot.pins
            );
            let checked =
                matches!(slot.check, Check::Running(scrub) if self.checks.get(&scrub) == Some(&id));
            hold!(
                checked == matches!(slot.check, Check::Running(_)),
                "{}: check without a token",
                slot.name
            );
            for write in slot.writer.iter().chain(&slot.also) {
                hold!(
                    self.writes.get(write) == Some(&id),
                    "{}: unknown writer",
                    slot.name
                );
            }
        }
        hold!(pins.is_empty(), "pins of nothing: {pins:?}");
        for (write, id) in &self.writes {
            let known = self.index.get(*id);
            let known = known.is_some_and(|s| s.writer == Some(*write) || s.also.contains(write));
            hold!(known, "{write:?} writes nothing");
        }
        hold!(
            matches!(self.link, Link::Live { .. }) || self.outbox.batches() == 0,
            "batches without a session"
        );
        Ok(())
    }
}

fn add(sums: &mut Split, part: Split) {
    sums.leased += part.leased;
    sums.pinned += part.pinned;
    sums.unfinished += part.unfinished;
    sums.retracting += part.retracting;
    sums.draining += part.draining;
    sums.tellable += part.tellable;
    sums.served += part.served;
    sums.served_bytes += part.served_bytes;
}
