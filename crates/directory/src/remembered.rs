//! Sweeping removes that nodes which have not told all they hold have yet to hear of. A remove of one
//! key is remembered by the key's entry; a sweep has none for what it has never seen.

use crate::directory::Directory;
use crate::event::RequestId;
use crate::listing::Matcher;
use crate::object::Ix;
use crate::publish::Published;
use crate::waits::{Outcome, Settled, Unknown};
use snowskin_types::key::Tenant;
use snowskin_types::version::Version;

/// Sweeps that are remembered at a time.
pub(crate) const REMEMBERED_MAX: usize = 64;

/// Copies from before this leadership that it matches were removed by it.
#[derive(Debug)]
pub(crate) struct Remembered {
    call: RequestId,
    tenant: Option<Tenant>,
    matcher: Matcher,
}

impl Remembered {
    fn means(&self, item: &Published) -> bool {
        let ours = self.tenant.as_ref().is_none_or(|t| *t == item.name.tenant);
        ours && self.matcher.matches(item.name.key.as_bytes())
    }
}

/// What became of noting a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    Done,
    /// There is no room for its wait now.
    Later,
    /// Too many are remembered.
    Refused,
}

impl Directory {
    /// Before a sweep begins: nodes that have told nothing yet are owners of all that it means.
    pub(crate) fn note_sweep(
        &mut self,
        call: RequestId,
        tenant: &Option<Tenant>,
        matcher: &Matcher,
    ) -> Noted {
        if self.incomplete == 0 {
            return Noted::Done;
        }
        if self.waits.len() >= self.config.waits_max {
            return Noted::Later;
        }
        let calls = &self.jobs.sweeps;
        let same = self.remembered.iter().position(|r| {
            r.tenant == *tenant && r.matcher.same(matcher) && !calls.contains_key(&r.call)
        });
        // An answered sweep of the same filter gives its place to the later one.
        if let Some(same) = same {
            self.remembered.swap_remove(same);
        } else if self.remembered.len() >= REMEMBERED_MAX {
            return Noted::Refused;
        }
        self.remembered.push(Remembered {
            call,
            tenant: tenant.clone(),
            matcher: matcher.clone(),
        });
        match self.settled_at(None, Version::NONE, Unknown::Awaited) {
            Settled::Yes => {}
            Settled::Failed => self.sweep_failed(call),
            Settled::No => {
                self.await_unlisted(Outcome::Sweep { call });
                self.sweep_waits(call, 0);
            }
        }
        Noted::Done
    }

    /// Whether a sweep of this term has removed what a node tells only now. Sweeps that are not answered
    /// yet will wait for it: see [`Self::await_swept`].
    pub(crate) fn was_swept(&self, item: &Published) -> bool {
        item.version.term() < self.term && self.remembered.iter().any(|r| r.means(item))
    }

    /// Lets the sweeps that removed this late item wait until its node has retired it.
    pub(crate) fn await_swept(&mut self, ix: Ix, item: &Published) {
        let all = self.remembered.iter().filter(|r| r.means(item));
        let open = all.filter(|r| self.jobs.sweeps.contains_key(&r.call));
        let calls: Vec<RequestId> = open.map(|r| r.call).collect();
        for call in calls {
            let outcome = Outcome::Sweep { call };
            let mut waits = self.table.entry(ix).waits().iter();
            if waits.any(|id| self.waits.get(*id).is_some_and(|w| w.outcome == outcome)) {
                continue;
            }
            if self.await_owners(ix, item.version, Unknown::Awaited, outcome) {
                self.sweep_waits(call, u64::from(item.acked));
            } else {
                self.sweep_crowded(call);
            }
        }
    }
}
