//! Work that does not fit into one event, and requests that wait for a moment.

use crate::directory::Directory;
use crate::event::RequestId;
use crate::listing::{Listing, Matcher};
use crate::lookup::Places;
use crate::removal::{RemoveCall, SweepCall};
use snowskin_types::call::{Cancelled, Existing, Keys, Located, Request, Reserve, Reserved};
use snowskin_types::error::{Code, Stage};
use snowskin_types::key::Tenant;
use snowskin_types::limits::{LIST_PAGE_MAX, SLICE_ITEMS};
use snowskin_types::object::Attributes;
use snowskin_types::time::Millis;
use snowskin_types::version::Version;
use std::collections::{BTreeMap, VecDeque};

/// Keys of a request handled within one event.
pub(crate) const REQUEST_SLICE: usize = SLICE_ITEMS;
/// Key bytes of requests that wait.
const PARKED_BYTES_MAX: usize = 256 << 20;
/// Sweeping calls under way at a time.
const SCANS_MAX: usize = 64;

/// What a parked request waits for. The end of the grace comes with or after the inventories' time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Ready,
    GraceEnds,
}

#[derive(Debug)]
struct Parked {
    id: RequestId,
    request: Request,
    bytes: usize,
}

/// A request in the middle of its slices.
#[derive(Debug)]
pub(crate) enum Work {
    Reserve {
        tenant: Tenant,
        keys: Keys,
        items: Vec<Reserve>,
        places: Places,
        done: Vec<Reserved>,
    },
    Cancel {
        tenant: Tenant,
        keys: Keys,
        versions: Vec<Version>,
        done: Vec<Cancelled>,
    },
    Locate {
        tenant: Tenant,
        keys: Keys,
        span: Millis,
        places: Places,
        done: Vec<Located>,
    },
    Exists {
        tenant: Tenant,
        keys: Keys,
        span: Millis,
        done: Vec<Existing>,
    },
    Remove {
        tenant: Tenant,
        keys: Keys,
        force: bool,
        next: usize,
    },
    RemoveMany {
        tenant: Option<Tenant>,
        matcher: Matcher,
        force: bool,
        /// Nodes that have told nothing yet will hear of it.
        noted: bool,
        at: u32,
    },
    List(Box<Listing>),
}

impl Work {
    pub(crate) fn reserve(tenant: Tenant, keys: Keys, items: Vec<Reserve>) -> Work {
        let done = Vec::with_capacity(keys.len());
        Work::Reserve {
            tenant,
            keys,
            items,
            places: Places::default(),
            done,
        }
    }

    pub(crate) fn cancel(tenant: Tenant, keys: Keys, versions: Vec<Version>) -> Work {
        let done = Vec::with_capacity(keys.len());
        Work::Cancel {
            tenant,
            keys,
            versions,
            done,
        }
    }

    pub(crate) fn locate(tenant: Tenant, keys: Keys, span: Millis) -> Work {
        let done = Vec::with_capacity(keys.len());
        Work::Locate {
            tenant,
            keys,
            span,
            places: Places::default(),
            done,
        }
    }

    pub(crate) fn exists(tenant: Tenant, keys: Keys, span: Millis) -> Work {
        let done = Vec::with_capacity(keys.len());
        Work::Exists {
            tenant,
            keys,
            span,
            done,
        }
    }

    pub(crate) fn remove(tenant: Tenant, keys: Keys, force: bool) -> Work {
        Work::Remove {
            tenant,
            keys,
            force,
            next: 0,
        }
    }

    pub(crate) fn remove_many(tenant: Option<Tenant>, matcher: Matcher, force: bool) -> Work {
        Work::RemoveMany {
            tenant,
            matcher,
            force,
            noted: false,
            at: 0,
        }
    }

    pub(crate) fn list(
        tenant: Tenant,
        matcher: Matcher,
        after: Option<Vec<u8>>,
        limit: u32,
    ) -> Work {
        let limit = (limit as usize).min(LIST_PAGE_MAX);
        Work::List(Box::new(Listing::new(tenant, matcher, after, limit)))
    }

    fn scans(&self) -> bool {
        matches!(self, Work::RemoveMany { .. } | Work::List(_))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// In the order of arrival.
    for_inventories: VecDeque<Parked>,
    for_grace: VecDeque<Parked>,
    parked_bytes: usize,
    running: VecDeque<(RequestId, Work)>,
    pub(crate) removes: BTreeMap<RequestId, RemoveCall>,
    pub(crate) sweeps: BTreeMap<RequestId, SweepCall>,
}

fn weight(request: &Request) -> usize {
    let keys = match request {
        Request::Reserve { keys, .. }
        | Request::Cancel { keys, .. }
        | Request::Locate { keys, .. }
        | Request::Exists { keys, .. }
        | Request::Remove { keys, .. } => keys,
        _ => return 1024,
    };
    let item = size_of::<Reserve>() + size_of::<Attributes>();
    keys.packed().len() + keys.len() * item
}

impl Directory {
    pub(crate) fn park(&mut self, id: RequestId, request: Request, until: Until) {
        let bytes = weight(&request);
        let parked = self.jobs.for_inventories.len() + self.jobs.for_grace.len();
        let full =
            parked >= self.config.parked_max || self.jobs.parked_bytes + bytes > PARKED_BYTES_MAX;
        if full {
            let message = "the master is starting and too many requests wait already".into();
            return self.fail(id, Code::UnavailableInStatus, Stage::Session, message);
        }
        self.jobs.parked_bytes += bytes;
        let queue = match until {
            Until::Ready => &mut self.jobs.for_inventories,
            Until::GraceEnds => &mut self.jobs.for_grace,
        };
        queue.push_back(Parked { id, request, bytes });
    }

    /// A parked request whose moment has come.
    fn unpark(&mut self) -> Option<(RequestId, Request)> {
        if !self.ready {
            return None;
        }
        let mut parked = self.jobs.for_inventories.pop_front();
        if parked.is_none() && !self.in_grace() {
            parked = self.jobs.for_grace.pop_front();
        }
        let parked = parked?;
        self.jobs.parked_bytes -= parked.bytes;
        Some((parked.id, parked.request))
    }

    /// Works off a first slice; the rest waits for ticks.
    pub(crate) fn run(&mut self, id: RequestId, work: Work) {
        if work.scans() && self.jobs.running.iter().filter(|(_, w)| w.scans()).count() >= SCANS_MAX
        {
            self.jobs.sweeps.remove(&id);
            let message = format!("{SCANS_MAX} sweeping calls are under way already");
            return self.fail(id, Code::UnavailableInStatus, Stage::Locate, message);
        }
        if self.jobs.running.len() >= self.config.parked_max {
            self.jobs.removes.remove(&id);
            let message = "too many large requests are under way".into();
            return self.fail(id, Code::UnavailableInStatus, Stage::Locate, message);
        }
        if let Some(rest) = self.step(id, work) {
            self.jobs.running.push_back((id, rest));
            self.want_continue();
        }
    }

    fn step(&mut self, id: RequestId, work: Work) -> Option<Work> {
        match work {
            Work::Reserve { .. } => self.step_reserve(id, work),
            Work::Cancel { .. } => self.step_cancel(id, work),
            Work::Locate { .. } => self.step_locate(id, work),
            Work::Exists { .. } => self.step_exists(id, work),
            Work::Remove { .. } => self.step_remove(id, work),
            Work::RemoveMany { .. } => self.step_remove_many(id, work),
            Work::List(listing) => self.step_list(id, listing),
        }
    }

    /// One slice of the requests: one large or parked one at a time, in turn.
    pub(crate) fn jobs_slice(&mut self) {
        let mut keys = 0;
        while keys < REQUEST_SLICE
            && let Some((id, request)) = self.unpark()
        {
            keys += weight(&request) / 64 + 1;
            self.start(id, request);
        }
        if keys < REQUEST_SLICE
            && let Some((id, work)) = self.jobs.running.pop_front()
            && let Some(rest) = self.step(id, work)
        {
            self.jobs.running.push_back((id, rest));
        }
    }

    pub(crate) fn jobs_have_work(&self) -> bool {
        let graceful = self.in_grace() || self.jobs.for_grace.is_empty();
        let parked = !self.jobs.for_inventories.is_empty() || !graceful;
        // A sweeping remove goes on when answers it waits for make room.
        let full = self.waits.len() >= self.config.waits_max;
        let stuck = |w: &Work| full && matches!(w, Work::RemoveMany { .. });
        self.jobs.running.iter().any(|(_, w)| !stuck(w)) || (self.ready && parked)
    }

    /// Nobody waits for this answer any more. Removes go on.
    pub(crate) fn drop_work(&mut self, id: RequestId) -> bool {
        let jobs = &mut self.jobs;
        for queue in [&mut jobs.for_inventories, &mut jobs.for_grace] {
            let at = queue.iter().position(|p| p.id == id);
            if let Some(parked) = at.and_then(|at| queue.remove(at)) {
                jobs.parked_bytes -= parked.bytes;
                return true;
            }
        }
        if let Some(call) = self.jobs.removes.get_mut(&id) {
            call.abandoned = true;
            return true;
        }
        if let Some(call) = self.jobs.sweeps.get_mut(&id) {
            call.abandoned = true;
            return true;
        }
        let before = self.jobs.running.len();
        self.jobs.running.retain(|(i, _)| *i != id);
        self.jobs.running.len() < before
    }
}
