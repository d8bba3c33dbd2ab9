//! Orders and questions of the master about single versions: retire, verify, evict next.

use crate::effect::{Counter, Effect};
use crate::event::ScrubId;
use crate::index::{Check, Replica, Shelf, SlotId};
use crate::replica::Damage;
use crate::store::{Cut, Store, count};
use snowskin_types::call::Fault;
use snowskin_types::error::{Code, Stage};
use snowskin_types::key::ObjectName;
use snowskin_types::time::Now;
use snowskin_types::version::Version;

/// Checks of stored bytes that run at a time.
const CHECKS_MAX: usize = 4;

impl Store {
    /// Stops serving a version at once and for ever; its bytes go when nothing touches them any more.
    pub(crate) fn retire(
        &mut self,
        now: Now,
        name: &ObjectName,
        version: Version,
        out: &mut Vec<Effect>,
    ) {
        let Some(id) = self.index.find(name, version) else {
            return self.end_version(now, name, version, out);
        };
        let Some(slot) = self.index.get(id) else {
            return;
        };
        match &slot.replica {
            Replica::Waiting => return self.retire_waiting(now, id, out),
            Replica::Reserved(_) => self.cut_write(id, out),
            _ => {
                let message = format!("version {version} was retired; reserve again");
                let failure = self.failure(Code::InvalidWrite, Stage::Publish, name, message);
                self.answer_writers(id, &Err(failure), out);
                self.step(id, |replica| match replica {
                    Replica::Committed(ticket) => Replica::Retracted(ticket.retired()),
                    Replica::Published(ticket) => Replica::Retracted(ticket.retired()),
                    Replica::Retracting(ticket) => Replica::Retracted(ticket.retired()),
                    other => other,
                });
                self.leave(id);
            }
        }
        count(out, Counter::Retired, 1);
        self.end_version(now, name, version, out);
    }

    /// Aborts a write under way. The extents stay taken until its I/O has ended.
    fn cut_write(&mut self, id: SlotId, out: &mut Vec<Effect>) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        let (writer, name) = (slot.writer.take(), slot.name.clone());
        let message = "the version was retired while it was written; reserve again";
        let failure = self.failure(Code::InvalidWrite, Stage::Write, &name, message);
        self.answer_writers(id, &Err(failure), out);
        self.detach(id);
        self.index.hide(id);
        let Some(slot) = self.index.remove(id) else {
            return;
        };
        let (Replica::Reserved(ticket), Some(write)) = (slot.replica, writer) else {
            return;
        };
        self.writes.remove(&write);
        let bytes = slot.bytes;
        self.cut.insert(
            write,
            Cut {
                ticket,
                bytes,
                name,
            },
        );
        out.push(Effect::CutWrite { write });
    }

    /// A reader found a replica gone or bad: says what is true.
    pub(crate) fn verify(
        &mut self,
        now: Now,
        name: &ObjectName,
        version: Version,
        fault: Fault,
        out: &mut Vec<Effect>,
    ) {
        let Some(id) = self.index.find(name, version) else {
            return self.end_version(now, name, version, out);
        };
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        match (&slot.replica, fault) {
            // Not served yet: the end of the write tells.
            (Replica::Waiting | Replica::Reserved(_), _) => {}
            // On its way out: if the directory keeps it, it is told again.
            (Replica::Retracting(t), _) if t.damage() == Damage::Bad => {}
            (Replica::Retracting(_), Fault::Gone) => slot.again = true,
            (_, Fault::Bad) => {
                if slot.check == Check::Idle {
                    slot.check = Check::Queued;
                    self.checks_queued.push_back(id);
                }
            }
            (_, Fault::Gone) => self.publish_anew(now, id),
        }
    }

    /// Starts checks of stored bytes, a few at a time. A check pins its replica.
    pub(crate) fn start_checks(&mut self, out: &mut Vec<Effect>) {
        while self.checks.len() < CHECKS_MAX {
            let Some(id) = self.checks_queued.pop_front() else {
                return;
            };
            let Some(slot) = self.index.get_mut(id) else {
                continue;
            };
            if !slot.is_served() {
                slot.check = Check::Idle;
                continue;
            }
            self.check_last += 1;
            let scrub = ScrubId(self.check_last);
            slot.check = Check::Running(scrub);
            out.push(Effect::Scrub {
                scrub,
                shape: slot.shape,
                extents: slot.extents.clone(),
                sums: slot.sums.clone(),
            });
            self.checks.insert(scrub, id);
            self.add_pin(id);
        }
    }

    /// A check ended: sound bytes are published again, damaged ones go and are not served meanwhile.
    pub(crate) fn scrubbed(
        &mut self,
        now: Now,
        scrub: ScrubId,
        sound: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(id) = self.checks.remove(&scrub) else {
            return;
        };
        if !sound {
            count(out, Counter::ScrubBad, 1);
            self.done.checksum_failures += 1;
        }
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        slot.check = Check::Idle;
        match (&slot.replica, sound) {
            (Replica::Retracted(_), _) => {}
            (Replica::Retracting(_), true) => slot.again = true,
            (_, true) => self.publish_anew(now, id),
            (_, false) => {
                let name = slot.name.clone();
                let message = "the stored bytes were found damaged";
                let failure = self.failure(Code::ChecksumMismatch, Stage::Publish, &name, message);
                self.answer_writers(id, &Err(failure), out);
                self.unshelve(id);
                self.detach(id);
                self.step(id, |replica| match replica {
                    Replica::Committed(ticket) => Replica::Retracting(ticket.retract()),
                    Replica::Published(ticket) => Replica::Retracting(ticket.retract(Damage::Bad)),
                    Replica::Retracting(ticket) => Replica::Retracting(ticket.damaged()),
                    other => other,
                });
                self.retracting.insert(id);
                self.tell(now, id);
            }
        }
        self.drop_pin(id);
    }

    /// A group member went: these are the next victims.
    pub(crate) fn evict_next(&mut self, name: &ObjectName, version: Version) {
        let Some(id) = self.index.find(name, version) else {
            return;
        };
        match self.index.get(id).map(|slot| slot.shelf) {
            Some(Shelf::Main) => self.main.demote(id.raw()),
            Some(Shelf::Soft) => self.soft.demote(id.raw()),
            _ => {}
        }
    }
}
