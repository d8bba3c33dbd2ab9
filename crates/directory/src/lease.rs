//! Read leases: a lease protects (key, version) until a moment, whoever asked for it.

use crate::directory::Directory;
use crate::object::{Ix, NO_GROUP};
use snowskin_types::limits::EXISTS_LEASES_MAX;
use snowskin_types::time::{Millis, Now};
use std::collections::VecDeque;

/// Bytes under a live lease, in slots of a second.
#[derive(Debug, Default)]
pub(crate) struct LeaseBook {
    slots: VecDeque<u64>,
    first: u64,
    total: u64,
}

impl LeaseBook {
    fn slot(&mut self, until: Now) -> Option<&mut u64> {
        let at = usize::try_from((until.0 / 1000).checked_sub(self.first)?).ok()?;
        // A lease is at most a day long, so that this stays small.
        if at >= self.slots.len() {
            self.slots.resize(at + 1, 0);
        }
        self.slots.get_mut(at)
    }

    pub(crate) fn add(&mut self, until: Now, size: u64) {
        if until.0 > 0
            && let Some(slot) = self.slot(until)
        {
            *slot = slot.saturating_add(size);
            self.total = self.total.saturating_add(size);
        }
    }

    pub(crate) fn remove(&mut self, until: Now, size: u64) {
        if until.0 > 0
            && let Some(slot) = self.slot(until)
        {
            *slot = slot.saturating_sub(size);
            self.total = self.total.saturating_sub(size);
        }
    }

    /// Forgets what ended before this second.
    pub(crate) fn advance(&mut self, now: Now) {
        let second = now.0 / 1000;
        while self.first < second {
            match self.slots.pop_front() {
                Some(ended) => {
                    self.total = self.total.saturating_sub(ended);
                    self.first += 1;
                }
                None => self.first = second,
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.total
    }
}

/// Longest read lease that can be set.
pub(crate) const LEASE_MAX: Millis = Millis(24 * 3600 * 1000);

impl Directory {
    /// The lease to grant for a request that asked for `wish`.
    pub(crate) fn lease_span(&self, wish: Option<Millis>) -> Millis {
        let ttl = self.config.lease_ttl;
        wish.map_or(ttl, |w| w.min(ttl))
    }

    /// A look-up counts as a use and grants `span`.
    pub(crate) fn grant_for_locate(&mut self, ix: Ix, span: Millis) {
        let now = self.now;
        self.table.entry_mut(ix).touch(now);
        self.prolong(ix, now + span);
    }

    /// An existence check grants up to its cap, and returns what it granted.
    pub(crate) fn grant_for_exists(&mut self, ix: Ix, span: Millis) -> Millis {
        let cap = self.exists_cap(ix);
        let until = (self.now + span).min(cap);
        self.prolong(ix, until);
        self.now.until(until)
    }

    pub(crate) fn exists_cap(&self, ix: Ix) -> Now {
        let spans = Millis(self.config.lease_ttl.0.saturating_mul(EXISTS_LEASES_MAX));
        self.table.entry(ix).touched() + spans
    }

    pub(crate) fn prolong(&mut self, ix: Ix, until: Now) {
        if until <= self.now {
            return;
        }
        let entry = self.table.entry_mut(ix);
        let (old, size) = (entry.lease(), entry.size);
        if until > old {
            entry.set_lease(until);
            self.leases.remove(old, size);
            self.leases.add(until, size);
        }
        let group = self.table.entry(ix).group();
        if group != NO_GROUP {
            self.groups.prolong(group, until);
        }
    }

    /// Until when a lease on the object, or on one of its group, runs.
    pub(crate) fn leased_until(&self, ix: Ix) -> Now {
        let entry = self.table.entry(ix);
        entry.lease().max(self.groups.lease(entry.group()))
    }

    /// Ends the lease of a version that is no longer current.
    pub(crate) fn end_lease(&mut self, ix: Ix) {
        let entry = self.table.entry_mut(ix);
        let (old, size) = (entry.lease(), entry.size);
        entry.set_lease(Now(0));
        self.leases.remove(old, size);
    }
}
