//! Requests of clients: checked, parked while they must wait, worked off in slices.

use crate::directory::Directory;
use crate::effect::{Counter, Effect};
use crate::event::RequestId;
use crate::jobs::{Until, Work};
use crate::listing::Matcher;
use snowskin_types::call::{Keys, Reply, Request};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::key::Tenant;
use snowskin_types::limits::BATCH_ITEMS_MAX;

impl Directory {
    pub(crate) fn reply(&mut self, id: RequestId, reply: Reply) {
        self.effects.push(Effect::Reply { id, reply });
    }

    pub(crate) fn fail(&mut self, id: RequestId, code: Code, stage: Stage, message: String) {
        self.reply(id, Reply::Failed(Failure::new(code, stage, message)));
    }

    pub(crate) fn on_request(&mut self, id: RequestId, request: Request) {
        if let Err(failure) = check(&request) {
            return self.reply(id, Reply::Failed(failure));
        }
        match self.must_wait(&request) {
            Some(until) => self.park(id, request, until),
            None => self.start(id, request),
        }
    }

    /// Whether the request has to wait for inventories, or a plain remove for the end of the grace.
    fn must_wait(&mut self, request: &Request) -> Option<Until> {
        let grace = match request {
            Request::Remove { force, .. } | Request::RemoveMany { force, .. } => {
                !force && self.in_grace()
            }
            _ => false,
        };
        if grace {
            return Some(Until::GraceEnds);
        }
        if self.ready {
            return None;
        }
        let unknown = match request {
            Request::Reserve { tenant, keys, .. }
            | Request::Locate { tenant, keys, .. }
            | Request::Exists { tenant, keys, .. }
            | Request::Remove { tenant, keys, .. } => self.any_unreadable(tenant, keys),
            Request::StatObject { tenant, key } => {
                let mut keys = Keys::new();
                keys.push(key.as_bytes()).is_ok() && self.any_unreadable(tenant, &keys)
            }
            Request::RemoveMany { .. } | Request::List { .. } => true,
            Request::Cancel { .. } | Request::Report { .. } | Request::Stat => false,
        };
        unknown.then_some(Until::Ready)
    }

    fn any_unreadable(&self, tenant: &Tenant, keys: &Keys) -> bool {
        let Some(tenant) = self.table.tenant_ix(tenant) else {
            return !keys.is_empty();
        };
        keys.iter().any(|key| {
            let found = self.table.find(self.table.hash(tenant, key), tenant, key);
            !found.is_some_and(|ix| self.readable(ix))
        })
    }

    pub(crate) fn start(&mut self, id: RequestId, request: Request) {
        let work = match request {
            Request::Reserve {
                client: _,
                tenant,
                keys,
                items,
            } => Work::reserve(tenant, keys, items),
            Request::Cancel {
                tenant,
                keys,
                versions,
            } => Work::cancel(tenant, keys, versions),
            Request::Locate {
                tenant,
                keys,
                lease,
            } => Work::locate(tenant, keys, self.lease_span(lease)),
            Request::Exists {
                tenant,
                keys,
                lease,
            } => Work::exists(tenant, keys, self.lease_span(lease)),
            Request::Remove {
                tenant,
                keys,
                force,
            } => {
                self.begin_remove(id, keys.len());
                Work::remove(tenant, keys, force)
            }
            Request::RemoveMany {
                tenant,
                filter,
                force,
            } => match Matcher::compile(filter) {
                Ok(matcher) => {
                    self.begin_sweep(id);
                    Work::remove_many(tenant, matcher, force)
                }
                Err(failure) => return self.reply(id, Reply::Failed(failure)),
            },
            Request::List {
                tenant,
                filter,
                after,
                limit,
            } => match Matcher::compile(filter) {
                Ok(matcher) => Work::list(tenant, matcher, after, limit),
                Err(failure) => return self.reply(id, Reply::Failed(failure)),
            },
            Request::Report {
                tenant,
                key,
                version,
                node,
                epoch,
                fault,
            } => {
                let reply = self.on_report(tenant, key, version, node, epoch, fault);
                return self.reply(id, reply);
            }
            Request::StatObject { tenant, key } => {
                let reply = Reply::Object(self.stat_object(tenant, key));
                return self.reply(id, reply);
            }
            Request::Stat => {
                let reply = Reply::Cluster(self.stat());
                return self.reply(id, reply);
            }
        };
        self.run(id, work);
    }

    pub(crate) fn on_abandon(&mut self, id: RequestId) {
        if self.drop_work(id) {
            self.count(Counter::Abandoned, 1);
        }
    }
}

fn check(request: &Request) -> Result<(), Failure> {
    let bad = |stage, message: String| Err(Failure::new(Code::InvalidParams, stage, message));
    let (stage, keys, others) = match request {
        Request::Reserve { keys, items, .. } => (Stage::Reserve, keys, items.len()),
        Request::Cancel { keys, versions, .. } => (Stage::Reserve, keys, versions.len()),
        Request::Locate { keys, .. } | Request::Exists { keys, .. } => {
            (Stage::Locate, keys, keys.len())
        }
        Request::Remove { keys, .. } => (Stage::Publish, keys, keys.len()),
        Request::List { limit: 0, .. } => {
            return bad(
                Stage::Locate,
                "a page of zero keys; allowed are 1 and more".into(),
            );
        }
        _ => return Ok(()),
    };
    if keys.len() > BATCH_ITEMS_MAX {
        let message = format!(
            "{} keys in one request; allowed are {BATCH_ITEMS_MAX}",
            keys.len()
        );
        return bad(stage, message);
    }
    if keys.len() != others {
        let message = format!(
            "{} keys but {others} values; one for each key is needed",
            keys.len()
        );
        return bad(stage, message);
    }
    Ok(())
}
