//! Reads: what is served, and the pins that hold bytes while they are sent.

use crate::admit::NOT_SERVING;
use crate::effect::{Counter, Effect, ReadGrant};
use crate::event::ReadId;
use crate::index::{Replica, Shelf, SlotId};
use crate::store::{Pin, Store, count};
use snowskin_types::access::ReadRequest;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::time::Now;

/// Reads that may be under way at a time.
const READS_MAX: usize = 1 << 17;

impl Store {
    /// True while the serving lease runs.
    pub(crate) fn is_serving(&self, now: Now) -> bool {
        now < self.serve_until
    }

    pub(crate) fn read_start(
        &mut self,
        now: Now,
        read: ReadId,
        request: &ReadRequest,
        out: &mut Vec<Effect>,
    ) {
        if self.reads.contains_key(&read) {
            debug_assert!(false, "a read's token was used again");
            return;
        }
        match self.pin(now, read, request, out) {
            Ok(grant) => {
                count(out, Counter::ReadsServed, 1);
                self.done.reads += 1;
                out.push(Effect::Serve { read, grant });
            }
            Err(failure) => {
                count(out, Counter::ReadsRefused, 1);
                out.push(Effect::Refuse { read, failure });
            }
        }
    }

    fn pin(
        &mut self,
        now: Now,
        read: ReadId,
        request: &ReadRequest,
        out: &mut Vec<Effect>,
    ) -> Result<ReadGrant, Failure> {
        let failure =
            |code, message: String| Err(self.failure(code, Stage::Read, &request.name, message));
        if !self.is_serving(now) {
            count(out, Counter::NotServing, 1);
            return failure(Code::UnavailableInStatus, NOT_SERVING.to_owned());
        }
        if request.epoch != self.config.epoch {
            let own = self.config.epoch;
            return failure(
                Code::ReplicaGone,
                format!("the read is for epoch {}, this is {own}", request.epoch),
            );
        }
        let Some((id, slot)) = self
            .find_for_read(request)
            .and_then(|id| Some((id, self.index.get(id)?)))
            .filter(|(_, slot)| slot.is_served())
        else {
            let version = request.version;
            return failure(
                Code::ReplicaGone,
                format!("version {version} is not held here"),
            );
        };
        let shape = slot.shape;
        if request.len == 0 {
            let message = "the length is 0; allowed are lengths from 1 byte on".to_owned();
            return failure(Code::InvalidParams, message);
        }
        if request.offset >= shape.size {
            return failure(
                Code::InvalidRead,
                format!(
                    "offset {} lies outside the object of {} bytes",
                    request.offset, shape.size
                ),
            );
        }
        if self.reads.len() >= READS_MAX {
            return failure(
                Code::ObjectReplicaBusy,
                format!("{READS_MAX} reads are under way, no more are taken"),
            );
        }
        let grant = ReadGrant {
            shape,
            offset: request.offset,
            len: request.len.min(shape.size - request.offset),
            extents: slot.extents.clone(),
            sums: slot.sums.clone(),
        };
        let due = now + self.config.pin_deadline;
        self.use_slot(id);
        self.add_pin(id);
        self.reads.insert(
            read,
            Pin {
                slot: id,
                progress: now,
                due,
                cut: false,
            },
        );
        self.read_due.insert((due, read));
        Ok(grant)
    }

    fn find_for_read(&self, request: &ReadRequest) -> Option<SlotId> {
        #[cfg(known_bugs)]
        if self.bugs.read_without_version {
            return self.index.find_any(&request.name);
        }
        self.index.find(&request.name, request.version)
    }

    /// Counts a use for eviction.
    fn use_slot(&mut self, id: SlotId) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        match slot.shelf {
            Shelf::Main => self.main.touch(id.raw()),
            Shelf::Soft => self.soft.touch(id.raw()),
            Shelf::Aside(..) | Shelf::Off => slot.touched = true,
        }
    }

    pub(crate) fn add_pin(&mut self, id: SlotId) {
        if let Some(slot) = self.index.get_mut(id) {
            slot.pins += 1;
            self.index.recount(id);
        }
    }

    /// Takes one pin off; the last one lets bytes go that were waiting for it.
    pub(crate) fn drop_pin(&mut self, id: SlotId) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        slot.pins = slot.pins.saturating_sub(1);
        let done = slot.pins == 0 && matches!(slot.replica, Replica::Retracted(_));
        self.index.recount(id);
        if done {
            self.reclaim(id);
        }
    }

    pub(crate) fn read_progress(&mut self, now: Now, read: ReadId) {
        if let Some(pin) = self.reads.get_mut(&read) {
            pin.progress = now;
        }
    }

    pub(crate) fn read_end(&mut self, read: ReadId) {
        if let Some(pin) = self.reads.remove(&read) {
            self.read_due.remove(&(pin.due, read));
            self.drop_pin(pin.slot);
        }
    }

    /// Cuts reads whose pin made no progress. Their bytes stay until they have ended.
    pub(crate) fn expire_pins(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some(&(due, read)) = self.read_due.first() {
            if due > now {
                return;
            }
            self.read_due.remove(&(due, read));
            let Some(pin) = self.reads.get_mut(&read) else {
                continue;
            };
            let deadline = pin.progress + self.config.pin_deadline;
            if deadline > now {
                pin.due = deadline;
                self.read_due.insert((deadline, read));
            } else if !pin.cut {
                pin.cut = true;
                count(out, Counter::PinsCut, 1);
                out.push(Effect::CutRead { read });
            }
        }
    }
}
