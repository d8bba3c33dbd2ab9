//! Removes: of named keys, and of all that a filter means.

use crate::directory::Directory;
use crate::effect::Counter;
use crate::event::RequestId;
use crate::jobs::{REQUEST_SLICE, Work};
use crate::listing::SCAN_BYTES;
use crate::object::{Ix, NO_GROUP, Owes};
use crate::remembered::{Noted, REMEMBERED_MAX};
use crate::waits::{Outcome, Settled, Unknown};
use snowskin_types::call::{Removed, Reply};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::limits::SLICE_ITEMS;
use snowskin_types::version::Version;

/// A remove of named keys that is not answered yet.
#[derive(Debug)]
pub(crate) struct RemoveCall {
    results: Vec<Option<Removed>>,
    left: usize,
    pub(crate) abandoned: bool,
}

/// A sweeping remove that is not answered yet.
#[derive(Debug, Default)]
pub(crate) struct SweepCall {
    removed: u64,
    leased: u64,
    waiting: usize,
    scanned: bool,
    failed: bool,
    crowded: bool,
    pub(crate) abandoned: bool,
}

/// What removing one entry came to.
enum Removing {
    Done(Removed),
    Waits,
}

impl Directory {
    pub(crate) fn begin_remove(&mut self, id: RequestId, keys: usize) {
        let mut results = Vec::new();
        results.resize_with(keys, || None);
        let call = RemoveCall {
            results,
            left: keys,
            abandoned: false,
        };
        self.jobs.removes.insert(id, call);
    }

    pub(crate) fn begin_sweep(&mut self, id: RequestId) {
        self.jobs.sweeps.insert(id, SweepCall::default());
    }

    pub(crate) fn step_remove(&mut self, id: RequestId, work: Work) -> Option<Work> {
        let Work::Remove {
            tenant,
            keys,
            force,
            next,
        } = work
        else {
            return None;
        };
        let end = keys.len().min(next + REQUEST_SLICE);
        for at in next..end {
            let Some(key) = keys.get(at) else {
                break;
            };
            let index = at as u32;
            if let Removing::Done(result) = self.remove_key(id, index, &tenant, key, force) {
                self.removed_one(id, index, result);
            }
        }
        if keys.is_empty() {
            self.jobs.removes.remove(&id);
            self.reply(id, Reply::Removed(Vec::new()));
        }
        (end < keys.len()).then_some(Work::Remove {
            tenant,
            keys,
            force,
            next: end,
        })
    }

    fn remove_key(
        &mut self,
        call: RequestId,
        index: u32,
        tenant: &Tenant,
        key: &[u8],
        force: bool,
    ) -> Removing {
        let failed = |code, message: &str| {
            // What is not there, or is protected, was looked up and not touched.
            let stage = match code {
                Code::ObjectNotFound | Code::ObjectHasLease => Stage::Locate,
                _ => Stage::Publish,
            };
            let failure = Failure::new(code, stage, message);
            Removing::Done(Err(match Key::new(key) {
                Ok(key) => failure.with_key(&key),
                Err(_) => failure,
            }))
        };
        let absent = "no such object";
        let known = self.table.tenant_ix(tenant);
        let known = known.and_then(|t| self.table.find(self.table.hash(t, key), t, key));
        let ix = match known {
            Some(ix) => ix,
            None if self.incomplete == 0 => return failed(Code::ObjectNotFound, absent),
            None if self.totals.unclaimed >= 2 * self.config.bare_max as u64 => {
                let message = "too many removed keys are remembered while nodes are away";
                return failed(Code::UnavailableInStatus, message);
            }
            None => {
                let name = Key::new(key).map(|key| ObjectName::new(tenant.clone(), key));
                let Some(ix) = name.ok().and_then(|name| self.entry_of(&name)) else {
                    return failed(Code::UnavailableInStatus, "the directory is full");
                };
                ix
            }
        };
        let found = self.readable(ix);
        let until = self.leased_until(ix);
        if !force && found && until > self.now {
            let left = self.now.until(until).0;
            let message = format!("a lease protects the object for {left} ms more");
            return failed(Code::ObjectHasLease, &message);
        }
        let outcome = Outcome::Remove { call, index, found };
        self.remove_entry(ix, found, outcome)
    }

    /// Removes what the entry names; answered when all owners are through.
    fn remove_entry(&mut self, ix: Ix, found: bool, outcome: Outcome) -> Removing {
        let full = self.waits.len() >= self.config.waits_max;
        let version = if full { None } else { self.next_version() };
        let Some(floor) = version else {
            self.tidy(ix);
            return Removing::Done(Err(Failure::new(
                Code::UnavailableInStatus,
                Stage::Publish,
                "too many removes wait for owners already, or all versions of the term are used",
            )));
        };
        self.retire_up_to(ix, floor);
        let group = self.table.entry(ix).group();
        if group != NO_GROUP {
            self.groups.leave(group, ix);
        }
        let entry = self.table.entry_mut(ix);
        entry.version = Version::NONE;
        entry.size = 0;
        entry.checksum = 0;
        let rare = entry.rare_mut();
        rare.floor = floor;
        rare.strict = false;
        rare.group = NO_GROUP;
        rare.attributes = None;
        // Also 'no such object' is a promise: a node that has not told all may still serve a copy.
        let unknown = Unknown::Awaited;
        let result = match self.settled(ix, floor, unknown) {
            Settled::Yes if found => Ok(()),
            Settled::Yes => Err(self.absent_failure(ix)),
            Settled::Failed => Err(self.mark_failure(ix)),
            Settled::No => {
                self.await_owners(ix, floor, unknown, outcome);
                // The answers to puts that this remove ended may be final now.
                self.recheck_entry(ix);
                return Removing::Waits;
            }
        };
        self.recheck_entry(ix);
        self.tidy(ix);
        Removing::Done(result)
    }

    pub(crate) fn absent_failure(&self, ix: Ix) -> Failure {
        let failure = Failure::new(Code::ObjectNotFound, Stage::Locate, "no such object");
        match self.table.name(ix) {
            Some(name) => failure.with_key(&name.key),
            None => failure,
        }
    }

    pub(crate) fn removed_one(&mut self, id: RequestId, index: u32, result: Removed) {
        let counter = match result {
            Ok(()) => Counter::Removed,
            Err(_) => Counter::RemoveRefused,
        };
        self.count(counter, 1);
        let Some(call) = self.jobs.removes.get_mut(&id) else {
            return;
        };
        if let Some(slot) = call.results.get_mut(index as usize) {
            *slot = Some(result);
        }
        call.left = call.left.saturating_sub(1);
        if call.left > 0 {
            return;
        }
        if let Some(call) = self.jobs.removes.remove(&id)
            && !call.abandoned
        {
            // All are there: each index was settled once.
            let results = call.results.into_iter().flatten().collect();
            self.reply(id, Reply::Removed(results));
        }
    }

    pub(crate) fn step_remove_many(&mut self, id: RequestId, work: Work) -> Option<Work> {
        let Work::RemoveMany {
            tenant,
            matcher,
            force,
            mut noted,
            mut at,
        } = work
        else {
            return None;
        };
        if !noted {
            match self.note_sweep(id, &tenant, &matcher) {
                Noted::Done => noted = true,
                Noted::Later => {}
                Noted::Refused => {
                    self.jobs.sweeps.remove(&id);
                    let message = format!(
                        "{REMEMBERED_MAX} sweeping removes are remembered already for nodes that have \
                         not told yet what they hold"
                    );
                    let code = Code::UnavailableInStatus;
                    self.fail(id, code, Stage::Publish, message);
                    return None;
                }
            }
        }
        let (mut items, mut bytes) = (0, 0);
        while noted
            && items < SLICE_ITEMS
            && bytes < SCAN_BYTES
            && (at as usize) < self.table.slots()
            && self.waits.len() < self.config.waits_max
        {
            if self.table.is_live(at) {
                bytes += self.table.key(at).len();
                let ours = tenant.as_ref().is_none_or(|t| self.table.tenant(at) == t);
                if ours && self.sweepable(at) && matcher.matches(self.table.key(at)) {
                    self.sweep_one(id, at, force);
                }
            }
            items += 1;
            at += 1;
        }
        if !noted || (at as usize) < self.table.slots() {
            return Some(Work::RemoveMany {
                tenant,
                matcher,
                force,
                noted,
                at,
            });
        }
        if let Some(call) = self.jobs.sweeps.get_mut(&id) {
            call.scanned = true;
        }
        self.end_sweep(id);
        None
    }

    /// Whether a sweep must see to an entry: something is named, or an owner of what was named before
    /// may still serve it.
    fn sweepable(&self, ix: Ix) -> bool {
        let entry = self.table.entry(ix);
        let mut owners = entry.obligations().iter();
        entry.has_claims() || owners.any(|o| o.owes != Owes::Placed)
    }

    fn sweep_one(&mut self, id: RequestId, ix: Ix, force: bool) {
        let found = self.readable(ix);
        if !force && found && self.leased_until(ix) > self.now {
            if let Some(call) = self.jobs.sweeps.get_mut(&id) {
                call.leased += 1;
            }
            return;
        }
        let removing = self.remove_entry(ix, found, Outcome::Sweep { call: id });
        if let Some(call) = self.jobs.sweeps.get_mut(&id) {
            call.removed += u64::from(found);
            match removing {
                Removing::Waits => call.waiting += 1,
                Removing::Done(Err(f)) if f.code == Code::PersistentFail => call.failed = true,
                Removing::Done(Err(f)) if f.code == Code::UnavailableInStatus => {
                    call.crowded = true
                }
                Removing::Done(_) => {}
            }
        }
        self.count(Counter::Removed, u64::from(found));
    }

    /// One more answer that a sweep waits for, and what it removed by that.
    pub(crate) fn sweep_waits(&mut self, id: RequestId, removed: u64) {
        if let Some(call) = self.jobs.sweeps.get_mut(&id) {
            call.waiting += 1;
            call.removed += removed;
        }
    }

    /// The mark of a node that has told nothing could not be written.
    pub(crate) fn sweep_failed(&mut self, id: RequestId) {
        if let Some(call) = self.jobs.sweeps.get_mut(&id) {
            call.failed = true;
        }
    }

    /// There was no room to wait for an owner: the call must not say that all is gone.
    pub(crate) fn sweep_crowded(&mut self, id: RequestId) {
        if let Some(call) = self.jobs.sweeps.get_mut(&id) {
            call.crowded = true;
        }
    }

    pub(crate) fn swept_one(&mut self, id: RequestId, failed: bool) {
        if let Some(call) = self.jobs.sweeps.get_mut(&id) {
            call.waiting = call.waiting.saturating_sub(1);
            call.failed |= failed;
        }
        self.end_sweep(id);
    }

    fn end_sweep(&mut self, id: RequestId) {
        let ended = |call: &SweepCall| call.scanned && call.waiting == 0;
        if !self.jobs.sweeps.get(&id).is_some_and(ended) {
            return;
        }
        let Some(call) = self.jobs.sweeps.remove(&id).filter(|c| !c.abandoned) else {
            return;
        };
        if call.failed {
            let message = "an owner is away and the note of this change could not be stored; objects may be gone";
            return self.fail(id, Code::PersistentFail, Stage::Publish, message.into());
        }
        if call.crowded {
            let message = "too many removes wait for owners already; objects may be gone";
            let code = Code::UnavailableInStatus;
            return self.fail(id, code, Stage::Publish, message.into());
        }
        self.reply(
            id,
            Reply::RemovedMany {
                removed: call.removed,
                leased: call.leased,
            },
        );
    }
}
