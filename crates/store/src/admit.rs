//! Writes: who may write, the wait for space, what becomes of the bytes.

use crate::effect::{Counter, Effect};
use crate::event::{Filled, WriteId};
use crate::index::{Replica, Slot, SlotId};
use crate::replica::Reserved;
use crate::store::{Store, count};
use snowskin_types::access::{Extent, WriteRequest};
use snowskin_types::checksum::piece_count;
use snowskin_types::error::{Code, Detail, Failure, Stage};
use snowskin_types::key::ObjectName;
use snowskin_types::limits::OBJECT_BYTES_MAX;
use snowskin_types::object::Shape;
use snowskin_types::time::Now;
use snowskin_types::version::Version;

/// Writes that may wait for space at a time.
const WAITING_MAX: usize = 1 << 14;
/// Further writers of one version that may wait for the first one's answer.
const ALSO_MAX: usize = 8;

impl Store {
    pub(crate) fn write_start(
        &mut self,
        now: Now,
        write: WriteId,
        request: WriteRequest,
        out: &mut Vec<Effect>,
    ) {
        if self.writes.contains_key(&write) || self.cut.contains_key(&write) {
            debug_assert!(false, "a write's token was used again");
            return;
        }
        if let Err(failure) = self.may_write(now, &request, out) {
            return refuse(write, failure, out);
        }
        let (name, version) = (&request.name, request.version);
        if let Some(held) = self.index.find(name, version) {
            return self.write_again(held, write, &request, out);
        }
        if self.has_ended(version) {
            count(out, Counter::OneShotRefused, 1);
            return refuse(write, self.ended(name, version), out);
        }
        let largest = self.arena.capacity().min(OBJECT_BYTES_MAX);
        let reason = if request.size == 0 {
            Some("the size is 0; allowed are sizes from 1 byte on".to_owned())
        } else if request.size > largest {
            Some(format!(
                "{} bytes can never fit: the largest object here has {largest}",
                request.size
            ))
        } else if request.sums.0.len() as u64 != piece_count(request.size) {
            Some(format!(
                "{} piece checksums for {} bytes: {} are needed",
                request.sums.0.len(),
                request.size,
                piece_count(request.size)
            ))
        } else {
            None
        };
        if let Some(reason) = reason {
            let detail = Detail {
                largest,
                ..self.detail(request.size)
            };
            let failure = self
                .failure(Code::InvalidParams, Stage::Write, name, reason)
                .with_detail(detail);
            refuse(write, failure, out);
            return self.end_version(now, &request.name, version, out);
        }
        self.admit(now, write, request, out);
    }

    /// Whether this node takes writes of this epoch and version at all.
    fn may_write(
        &self,
        now: Now,
        request: &WriteRequest,
        out: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        let refused =
            |code, message: String| Err(self.failure(code, Stage::Write, &request.name, message));
        if !self.is_serving(now) {
            count(out, Counter::NotServing, 1);
            return refused(Code::UnavailableInStatus, NOT_SERVING.to_owned());
        }
        if request.epoch != self.config.epoch {
            let own = self.config.epoch;
            return refused(
                Code::ReplicaGone,
                format!("the write is for epoch {}, this is {own}", request.epoch),
            );
        }
        if request.version.term() != self.last_session.term {
            let own = self.last_session.term.0;
            return refused(
                Code::InvalidWrite,
                format!(
                    "version {} is of another term than this node's session ({own}); reserve again",
                    request.version
                ),
            );
        }
        Ok(())
    }

    fn has_ended(&self, version: Version) -> bool {
        #[cfg(known_bugs)]
        if self.bugs.write_not_one_shot {
            return false;
        }
        self.one_shot.refuses(version)
    }

    fn ended(&self, name: &ObjectName, version: Version) -> Failure {
        let message = format!("version {version} has ended at this node; reserve again");
        self.failure(Code::InvalidWrite, Stage::Write, name, message)
    }

    /// Another write of a version that is held or being written: answered as the first one.
    fn write_again(
        &mut self,
        id: SlotId,
        write: WriteId,
        request: &WriteRequest,
        out: &mut Vec<Effect>,
    ) {
        let failure = self.ended(&request.name, request.version);
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        let same = slot.shape.size == request.size && *slot.sums == request.sums;
        let is_ended =
            slot.refused || matches!(&slot.replica, Replica::Retracting(_)) && !slot.is_served();
        if !same {
            let message = "this version is being written with other bytes";
            let failure = self.failure(Code::InvalidWrite, Stage::Write, &request.name, message);
            refuse(write, failure, out);
        } else if is_ended {
            refuse(write, failure, out);
        } else if slot.acked {
            count(out, Counter::WritesAcked, 1);
            out.push(Effect::Answer {
                write,
                result: Ok(()),
            });
        } else if slot.writer.is_none() && !slot.is_served() {
            // Its first writer broke off this moment; unreachable, the slot goes with the writer.
            refuse(write, failure, out);
        } else if slot.also.len() >= ALSO_MAX {
            let message = "too many writes of this version are under way";
            let failure = self.failure(
                Code::ObjectReplicaBusy,
                Stage::Write,
                &request.name,
                message,
            );
            refuse(write, failure, out);
        } else {
            slot.also.push(write);
            self.writes.insert(write, id);
        }
    }

    fn admit(&mut self, now: Now, write: WriteId, request: WriteRequest, out: &mut Vec<Effect>) {
        let size = request.size;
        let shape = Shape {
            size,
            checksum: request.sums.whole(size),
        };
        let mut slot = Slot::waiting(
            request.name.clone(),
            request.version,
            shape,
            request.attributes,
            request.sums,
            write,
        );
        slot.deadline = now + request.patience.min(self.force.put_wait);
        let deadline = slot.deadline;
        let full = self.waiting.len() >= WAITING_MAX;
        let id = if full { None } else { self.index.insert(slot) };
        let Some(id) = id else {
            let failure = self.no_space(&request.name, size, "too many writes wait for space");
            refuse(write, failure, out);
            return self.end_version(now, &request.name, request.version, out);
        };
        self.writes.insert(write, id);
        if self.waiting_due.is_empty() && self.try_grant(now, id, out) {
            return;
        }
        count(out, Counter::PutWaited, 1);
        self.done.put_waited += 1;
        self.waiting.push_back(id);
        self.waiting_due.insert((deadline, id));
        self.waiting_bytes += whole_units(size);
    }

    /// Gives space to a waiting write, if there is some. The slot has left the queue or never was in it.
    fn try_grant(&mut self, now: Now, id: SlotId, out: &mut Vec<Effect>) -> bool {
        let Some(size) = self.index.get(id).map(|slot| slot.shape.size) else {
            return false;
        };
        if whole_units(size) > self.arena.free_bytes() {
            return false;
        }
        let Some(extents) = self.arena.allocate(size) else {
            return false;
        };
        let Some(slot) = self.index.get_mut(id) else {
            self.arena.free(extents);
            return false;
        };
        slot.bytes = extents.reserved_bytes();
        slot.extents = extents
            .iter()
            .map(|extent| Extent {
                offset: extent.offset,
                len: extent.len,
            })
            .collect();
        let grant = slot.extents.clone();
        let writer = slot.writer;
        self.step(id, |_| Replica::Reserved(Reserved::new(extents)));
        if let Some(write) = writer {
            out.push(Effect::Grant {
                write,
                extents: grant,
            });
        }
        #[cfg(known_bugs)]
        if self.bugs.publish_before_commit {
            self.tell(now, id);
        }
        #[cfg(not(known_bugs))]
        let _ = now;
        true
    }

    /// Serves the queue in the order of arrival as far as space goes.
    pub(crate) fn grant_waiting(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !std::mem::take(&mut self.space_changed) {
            return;
        }
        while let Some(&id) = self.waiting.front() {
            let Some(slot) = self.index.get(id) else {
                self.waiting.pop_front();
                continue;
            };
            let (deadline, size, version) = (slot.deadline, slot.shape.size, slot.version);
            if version.term() != self.last_session.term || !self.is_serving(now) {
                let failure = if self.is_serving(now) {
                    self.ended(&slot.name, version)
                } else {
                    count(out, Counter::NotServing, 1);
                    let name = &slot.name;
                    self.failure(Code::UnavailableInStatus, Stage::Write, name, NOT_SERVING)
                };
                self.drop_waiting(now, id, Err(failure), out);
                continue;
            }
            if !self.try_grant(now, id, out) {
                return;
            }
            self.waiting.pop_front();
            self.waiting_due.remove(&(deadline, id));
            self.waiting_bytes -= whole_units(size);
        }
    }

    /// Ends the waits that have lasted long enough.
    pub(crate) fn expire_waits(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some(&(deadline, id)) = self.waiting_due.first() {
            if deadline > now {
                return;
            }
            let Some(slot) = self.index.get(id) else {
                self.waiting_due.remove(&(deadline, id));
                continue;
            };
            let failure = self.no_space(&slot.name, slot.shape.size, "no space came free in time");
            count(out, Counter::PutWaitFailed, 1);
            self.done.put_wait_failed += 1;
            self.drop_waiting(now, id, Err(failure), out);
        }
    }

    /// Ends a wait without a grant. `Ok` means that nobody wants an answer.
    fn drop_waiting(
        &mut self,
        now: Now,
        id: SlotId,
        result: Result<(), Failure>,
        out: &mut Vec<Effect>,
    ) {
        if let Err(failure) = result {
            self.answer_writers(id, &Err(failure), out);
        }
        self.index.hide(id);
        let Some(slot) = self.index.remove(id) else {
            return;
        };
        self.waiting_due.remove(&(slot.deadline, id));
        self.waiting_bytes -= whole_units(slot.shape.size);
        // The one behind it may fit.
        self.space_changed = true;
        self.end_version(now, &slot.name, slot.version, out);
    }

    /// Takes a waiting write out by order of the master.
    pub(crate) fn retire_waiting(&mut self, now: Now, id: SlotId, out: &mut Vec<Effect>) {
        let Some(slot) = self.index.get(id) else {
            return;
        };
        let failure = self.ended(&slot.name, slot.version);
        self.drop_waiting(now, id, Err(failure), out);
    }

    pub(crate) fn write_end(
        &mut self,
        now: Now,
        write: WriteId,
        filled: Filled,
        out: &mut Vec<Effect>,
    ) {
        if let Some(cut) = self.cut.remove(&write) {
            cut.ticket.abandon().reclaim(&mut self.arena);
            self.space_changed = true;
            let message = "the version was retired while it was written; reserve again";
            let failure = self.failure(Code::InvalidWrite, Stage::Write, &cut.name, message);
            return refuse(write, failure, out);
        }
        let Some(&id) = self.writes.get(&write) else {
            return;
        };
        let Some(slot) = self.index.get(id) else {
            return;
        };
        if slot.writer != Some(write) || !matches!(slot.replica, Replica::Reserved(_)) {
            return;
        }
        let name = &slot.name;
        let outdated = slot.version.term() != self.last_session.term;
        let failure = match filled {
            Filled::Sound if !outdated => return self.commit(now, id, out),
            Filled::Sound => self.ended(name, slot.version),
            Filled::Corrupt => {
                let message = "the bytes that came do not have their checksums";
                self.failure(Code::ChecksumMismatch, Stage::Write, name, message)
            }
            Filled::Broken => self.ended(name, slot.version),
        };
        if filled == Filled::Corrupt {
            self.done.checksum_failures += 1;
        }
        if filled == Filled::Broken {
            count(out, Counter::WritesFailed, 1);
            self.writes.remove(&write);
            if let Some(slot) = self.index.get_mut(id) {
                slot.writer = None;
            }
        }
        self.answer_writers(id, &Err(failure), out);
        self.abort(now, id, out);
    }

    /// The bytes are there: the index serves them, then the directory is told.
    fn commit(&mut self, now: Now, id: SlotId, out: &mut Vec<Effect>) {
        self.step(id, |replica| match replica {
            Replica::Reserved(ticket) => Replica::Committed(ticket.filled().commit()),
            other => other,
        });
        count(out, Counter::Committed, 1);
        if let Some(slot) = self.index.get_mut(id)
            && let Some(span) = slot.attributes.soft_pin
        {
            let until = now + span;
            slot.soft_until = Some(until);
            self.soft_due.insert((until, id));
        }
        #[cfg(known_bugs)]
        if self.bugs.publish_before_commit && self.index.get(id).is_some_and(|slot| slot.acked) {
            return self.slot_published(now, id, out);
        }
        self.tell(now, id);
    }

    /// A write came to nothing and nothing touches its extents any more.
    fn abort(&mut self, now: Now, id: SlotId, out: &mut Vec<Effect>) {
        self.detach(id);
        self.index.hide(id);
        let Some(slot) = self.index.remove(id) else {
            return;
        };
        if let Replica::Reserved(ticket) = slot.replica {
            ticket.abandon().reclaim(&mut self.arena);
        }
        self.space_changed = true;
        self.end_version(now, &slot.name, slot.version, out);
    }

    pub(crate) fn writer_gone(&mut self, now: Now, write: WriteId, out: &mut Vec<Effect>) {
        let Some(&id) = self.writes.get(&write) else {
            return;
        };
        let Some(slot) = self.index.get_mut(id) else {
            self.writes.remove(&write);
            return;
        };
        if slot.writer != Some(write) {
            slot.also.retain(|other| *other != write);
            self.writes.remove(&write);
            return;
        }
        match slot.replica {
            // Its bytes are under way: their end decides.
            Replica::Reserved(_) => {}
            Replica::Waiting => {
                self.writes.remove(&write);
                slot.writer = None;
                if slot.also.is_empty() {
                    self.drop_waiting(now, id, Ok(()), out);
                } else {
                    // No byte has come, so the next writer of the version takes its place.
                    slot.writer = Some(slot.also.remove(0));
                }
            }
            _ => {
                slot.writer = None;
                self.writes.remove(&write);
            }
        }
    }

    /// Answers all writers of a version alike.
    pub(crate) fn answer_writers(
        &mut self,
        id: SlotId,
        result: &Result<(), Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.index.get_mut(id) else {
            return;
        };
        let writers = slot.writer.take().into_iter().chain(slot.also.drain(..));
        for write in writers {
            self.writes.remove(&write);
            match result {
                Ok(()) => count(out, Counter::WritesAcked, 1),
                Err(_) => count(out, Counter::WritesFailed, 1),
            }
            out.push(Effect::Answer {
                write,
                result: result.clone(),
            });
        }
    }

    /// The version is over in this process life: no write of it is taken, and the directory is told.
    pub(crate) fn end_version(
        &mut self,
        now: Now,
        name: &ObjectName,
        version: Version,
        out: &mut Vec<Effect>,
    ) {
        self.one_shot.end(now, version);
        if self.outbox.tells_absent(version) {
            return;
        }
        match self.outbox.add_absent(name.clone(), version) {
            Some(topic) if self.session().is_some() => self.outbox.push(now, topic),
            // The next session tells all absences.
            Some(_) => {}
            None => count(out, Counter::AbsentsDropped, 1),
        }
    }

    /// The figures behind a refusal.
    fn detail(&self, wanted: u64) -> Detail {
        let split = self.index.sums();
        Detail {
            wanted,
            free: self.arena.free_bytes(),
            largest: self.arena.largest_free(),
            leased: split.leased,
            pinned: split.pinned,
            unfinished: split.unfinished,
        }
    }

    fn no_space(&self, name: &ObjectName, size: u64, why: &str) -> Failure {
        let detail = self.detail(size);
        let message = format!(
            "{why}: {size} bytes wanted, {} free; held: {} by leases, {} by pins and reads, {} by unfinished puts",
            detail.free, detail.leased, detail.pinned, detail.unfinished
        );
        self.failure(Code::NoSpace, Stage::Write, name, message)
            .with_detail(detail)
    }
}

/// Why nothing is served.
pub(crate) const NOT_SERVING: &str = "this node does not serve now: it has no session, or the master's pings have not come for too long";

/// Bytes that an object of this size takes.
pub(crate) fn whole_units(size: u64) -> u64 {
    size.next_multiple_of(crate::arena::UNIT_BYTES)
}

fn refuse(write: WriteId, failure: Failure, out: &mut Vec<Effect>) {
    count(out, Counter::WritesFailed, 1);
    out.push(Effect::Answer {
        write,
        result: Err(failure),
    });
}
