//! Calls that only ask the master: existence, removal, listings, figures.

use crate::batch::{key_of, merge, split};
use crate::client::{Client, one};
use crate::options::{
    CallOptions, ExistsOptions, Leases, RemoveManyOptions, RemoveOptions, Tenants,
};
use crate::plan::about;
use crate::plan::split::runs;
use crate::port::{Answer, unexpected};
use snowskin_types::call::{
    ClusterStat, Existing, Fault, Filter, Keys, Located, ObjectStat, Replica, Reply, Request,
};
use snowskin_types::limits::LIST_PAGE_MAX;
use snowskin_types::object::{Place, Shape, Tier};
use snowskin_types::{Code, Failure, Key, Millis, Now, Stage, Tenant, Version};

/// What an existence check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Readable; a get that is started within the lease does not fail as long as an owner lives.
    Here {
        /// Size of the object.
        size: u64,
        /// Time it is protected from the sending of the check; zero when the cap of existence
        /// checks is reached.
        lease: Millis,
    },
    /// Not readable.
    Absent,
}

/// Where an object is, and for how long it is protected from the sending of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The current version.
    pub version: Version,
    /// Its size and checksum.
    pub shape: Shape,
    /// Time it is protected; zero when no lease was granted.
    pub lease: Millis,
    /// Its replicas, best first.
    pub replicas: Vec<(Place, Tier)>,
}

/// How many objects a sweeping remove met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Removed.
    pub removed: u64,
    /// Left because a lease protects them.
    pub leased: u64,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Keys in byte order.
    pub keys: Keys,
    /// There are keys after these.
    pub more: bool,
}

fn found(places: &[Place], item: Located) -> Result<Found, Failure> {
    let fail = |code, text| Err(Failure::new(code, Stage::Locate, text));
    let Located::Found {
        version,
        shape,
        lease,
        replicas,
    } = item
    else {
        return match item {
            Located::Failed(failure) => Err(failure),
            _ => fail(Code::ObjectNotFound, "there is no such object"),
        };
    };
    let place = |r: &Replica| Some((places.get(usize::from(r.place))?.clone(), r.tier));
    match replicas.iter().map(place).collect() {
        Some(replicas) => Ok(Found {
            version,
            shape,
            lease,
            replicas,
        }),
        None => fail(
            Code::Internal,
            "malformed answer: a place that it does not name",
        ),
    }
}

impl Client {
    fn tenant_of(&self, options: &CallOptions) -> Tenant {
        options
            .tenant
            .clone()
            .unwrap_or_else(|| self.context.tenant.clone())
    }

    fn simple(&self, request: Request, options: &CallOptions) -> Result<Reply, Failure> {
        self.context.check_open()?;
        let deadline = self.context.soon(options.timeout);
        let answer = self.context.master.call(request, deadline);
        self.context.count_end(deadline, answer.as_ref().err());
        answer.map(|answer| answer.reply)
    }

    /// Asks for many keys, as many at a time as fit a request; `read` takes an answer apart and
    /// gives one result per key.
    fn keyed<K: AsRef<[u8]>, T>(
        &self,
        keys: &[K],
        options: &CallOptions,
        stage: Stage,
        make: impl Fn(Keys) -> Request,
        read: impl Fn(Answer) -> Result<Vec<Result<T, Failure>>, Failure>,
    ) -> Vec<Result<T, Failure>> {
        let context = &self.context;
        if let Err(closed) = context.check_open() {
            return keys.iter().map(|_| Err(closed.clone())).collect();
        }
        let deadline = context.soon(options.timeout);
        let (good, results) = split(keys, |key| key_of(key.as_ref()));
        let mut told = Vec::with_capacity(good.len());
        for run in runs(good.iter().map(|key| key.as_bytes().len() + 8)) {
            let keys = &good[run];
            let asked = self.ask_run(keys, deadline, &make).and_then(&read);
            let mut answers = match asked {
                Ok(answers) => answers.into_iter(),
                Err(failure) => {
                    told.extend(keys.iter().map(|key| Err(about(failure.clone(), key))));
                    continue;
                }
            };
            told.extend(keys.iter().map(|key| match answers.next() {
                Some(result) => result.map_err(|failure| about(failure, key)),
                None => Err(crate::plan::malformed(
                    key,
                    stage,
                    "fewer results than keys",
                )),
            }));
        }
        let failures = told.iter().filter_map(|r| r.as_ref().err());
        context.count_end(deadline, failures);
        merge(results, told)
    }

    fn ask_run(
        &self,
        keys: &[Key],
        deadline: Now,
        make: &impl Fn(Keys) -> Request,
    ) -> Result<Answer, Failure> {
        let request = make(keys.iter().collect());
        self.context.master.call(request, deadline)
    }

    /// Whether an object is readable.
    ///
    /// # Errors
    /// When that could not be found out.
    pub fn exists(&self, key: impl AsRef<[u8]>, options: &ExistsOptions) -> Result<bool, Failure> {
        let presence = one(self.exists_batch(&[key], options))?;
        Ok(presence != Presence::Absent)
    }

    /// Which objects are readable.
    pub fn exists_batch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ExistsOptions,
    ) -> Vec<Result<Presence, Failure>> {
        let tenant = self.tenant_of(&options.call);
        let make = |keys| Request::Exists {
            tenant: tenant.clone(),
            keys,
            lease: options.lease,
        };
        let read = |answer: Answer| match answer.reply {
            Reply::Exists(items) => Ok(items
                .into_iter()
                .map(|item| match item {
                    Existing::Yes { lease, size } => Ok(Presence::Here { size, lease }),
                    Existing::No => Ok(Presence::Absent),
                    Existing::Failed(failure) => Err(failure),
                })
                .collect()),
            other => Err(unexpected(&other, Stage::Locate)),
        };
        self.keyed(keys, &options.call, Stage::Locate, make, read)
    }

    /// Where objects are, without reading them: a lease is asked for as by a get.
    ///
    /// `OBJECT_NOT_FOUND` for those that are not there.
    pub fn find_batch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ExistsOptions,
    ) -> Vec<Result<Found, Failure>> {
        let tenant = self.tenant_of(&options.call);
        let make = |keys| Request::Locate {
            tenant: tenant.clone(),
            keys,
            lease: options.lease,
        };
        let read = |answer: Answer| match answer.reply {
            Reply::Located { places, items } => {
                Ok(items.into_iter().map(|item| found(&places, item)).collect())
            }
            other => Err(unexpected(&other, Stage::Locate)),
        };
        self.keyed(keys, &options.call, Stage::Locate, make, read)
    }

    /// Size of an object.
    ///
    /// # Errors
    /// `OBJECT_NOT_FOUND` when there is none, or that it could not be found out.
    pub fn size(&self, key: impl AsRef<[u8]>, options: &ExistsOptions) -> Result<u64, Failure> {
        let key = key.as_ref();
        match one(self.exists_batch(&[key], options))? {
            Presence::Here { size, .. } => Ok(size),
            Presence::Absent => {
                let text = "there is no such object";
                let mut failure = Failure::new(Code::ObjectNotFound, Stage::Locate, text);
                failure.key = Key::new(key).ok();
                Err(failure)
            }
        }
    }

    /// Removes an object.
    ///
    /// # Errors
    /// `OBJECT_HAS_LEASE` under a lease, `OBJECT_NOT_FOUND` when there is none, or that it could
    /// not be done in time.
    pub fn remove(&self, key: impl AsRef<[u8]>, options: &RemoveOptions) -> Result<(), Failure> {
        one(self.remove_batch(&[key], options))
    }

    /// Removes objects.
    pub fn remove_batch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &RemoveOptions,
    ) -> Vec<Result<(), Failure>> {
        let tenant = self.tenant_of(&options.call);
        for key in keys {
            if let Ok(key) = Key::new(key.as_ref()) {
                self.context.forget(&tenant, key);
            }
        }
        let make = |keys| Request::Remove {
            tenant: tenant.clone(),
            keys,
            force: options.leases == Leases::Override,
        };
        let read = |answer: Answer| match answer.reply {
            Reply::Removed(items) => Ok(items
                .into_iter()
                .map(|item| match item {
                    // The first request was carried out, only its answer was lost.
                    Err(failure) if answer.repeated && failure.code == Code::ObjectNotFound => {
                        Ok(())
                    }
                    other => other,
                })
                .collect()),
            other => Err(unexpected(&other, Stage::Publish)),
        };
        self.keyed(keys, &options.call, Stage::Publish, make, read)
    }

    /// Removes all objects that a filter means.
    ///
    /// # Errors
    /// When the filter is not valid, or it could not be done in time.
    pub fn remove_many(
        &self,
        filter: &Filter,
        options: &RemoveManyOptions,
    ) -> Result<Swept, Failure> {
        self.context.locations.lock().clear();
        let request = Request::RemoveMany {
            tenant: match options.tenants {
                Tenants::One => Some(self.tenant_of(&options.call)),
                Tenants::All => None,
            },
            filter: filter.clone(),
            force: options.leases == Leases::Override,
        };
        match self.simple(request, &options.call)? {
            Reply::RemovedMany { removed, leased } => Ok(Swept { removed, leased }),
            other => Err(unexpected(&other, Stage::Publish)),
        }
    }

    /// A page of at most `limit` keys that a filter means, in byte order, after `after`.
    ///
    /// # Errors
    /// When the filter is not valid, or the answer did not come in time.
    pub fn list(
        &self,
        filter: &Filter,
        after: Option<&[u8]>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<Page, Failure> {
        if limit == 0 {
            let text = "zero keys were asked for; at least one is needed";
            return Err(Failure::new(Code::InvalidParams, Stage::Locate, text));
        }
        let request = Request::List {
            tenant: self.tenant_of(options),
            filter: filter.clone(),
            after: after.map(<[u8]>::to_vec),
            // Not more than the limit, which fits.
            limit: limit.min(LIST_PAGE_MAX) as u32,
        };
        match self.simple(request, options)? {
            Reply::Listed { keys, more } => Ok(Page { keys, more }),
            other => Err(unexpected(&other, Stage::Locate)),
        }
    }

    /// Everything the master knows of the cluster.
    ///
    /// # Errors
    /// When the answer did not come in time.
    pub fn stat(&self, options: &CallOptions) -> Result<ClusterStat, Failure> {
        match self.simple(Request::Stat, options)? {
            Reply::Cluster(stat) => Ok(stat),
            other => Err(unexpected(&other, Stage::Locate)),
        }
    }

    /// Everything the master knows of one object; `None` when there is none. Grants no lease.
    ///
    /// # Errors
    /// When the key is not allowed, or the answer did not come in time.
    pub fn stat_object(
        &self,
        key: impl AsRef<[u8]>,
        options: &CallOptions,
    ) -> Result<Option<ObjectStat>, Failure> {
        let request = Request::StatObject {
            tenant: self.tenant_of(options),
            key: key_of(key.as_ref())?,
        };
        match self.simple(request, options)? {
            Reply::Object(stat) => Ok(stat),
            other => Err(unexpected(&other, Stage::Locate)),
        }
    }

    /// Tells the master that a replica was found gone or bad by other means than a get.
    ///
    /// # Errors
    /// When the key is not allowed, or the report did not arrive in time.
    pub fn report(
        &self,
        key: impl AsRef<[u8]>,
        version: Version,
        place: &Place,
        fault: Fault,
        options: &CallOptions,
    ) -> Result<(), Failure> {
        self.context.check_open()?;
        self.context.report(
            &self.tenant_of(options),
            key_of(key.as_ref())?,
            version,
            place.node,
            place.epoch,
            fault,
            self.context.soon(options.timeout),
        )
    }
}
