//! Batches: many keys in each step of the protocol, one result per item in the order of the items.

use crate::buffer::{Source, Target};
use crate::client::{Client, GetItem};
use crate::options::{GetOptions, Locations, PutOptions};
use crate::plan::get::{Get, Got, Want};
use crate::plan::location::name_of;
use crate::plan::put::{Put, PutItem, Stored};
use crate::run;
use snowskin_types::{Code, Failure, Key, KeyError, Stage};

impl Client {
    /// Stores many objects. Keys that are taken are told as [`Stored::Exists`].
    pub fn put_batch<K: AsRef<[u8]>>(
        &self,
        items: &[(K, Source<'_>)],
        options: &PutOptions,
    ) -> Vec<Result<Stored, Failure>> {
        let context = &self.context;
        if let Err(closed) = context.check_open() {
            return items.iter().map(|_| Err(closed.clone())).collect();
        }
        let tenant = options
            .tenant
            .clone()
            .unwrap_or_else(|| context.tenant.clone());
        let bytes = items.iter().map(|(_, source)| source.len()).sum();
        let deadline = context.later(options.timeout, bytes);
        let mut groups = options.groups.iter();
        let (good, results) = split(items, |(key, source)| {
            let mut attributes = options.attributes.clone();
            if let Some(group) = groups.next() {
                attributes.group.clone_from(group);
            }
            let key = key_of(key.as_ref())?;
            let sums = source.sums().map_err(|failure| failure.with_key(&key))?;
            let item = PutItem {
                size: source.len(),
                sums,
                mode: options.mode,
                replicas: options.replicas,
                attributes,
                preferred: options.preferred.clone(),
                key,
            };
            Ok((item, source.clone()))
        });
        let (asks, sources): (Vec<PutItem>, Vec<Source<'_>>) = good.into_iter().unzip();
        if asks.is_empty() {
            return merge(results, Vec::new());
        }
        let plan = Put::new(tenant.clone(), asks, deadline.at);
        let stored = run::put::run(context, tenant, deadline.at, plan, &sources);
        merge(results, stored)
    }

    /// Reads many objects or ranges, each into its own target.
    pub fn get_items(
        &self,
        items: &mut [GetItem<'_>],
        options: &GetOptions,
    ) -> Vec<Result<Got, Failure>> {
        let context = &self.context;
        if let Err(closed) = context.check_open() {
            return items.iter().map(|_| Err(closed.clone())).collect();
        }
        let tenant = options
            .tenant
            .clone()
            .unwrap_or_else(|| context.tenant.clone());
        let known = items.iter().filter_map(|item| match item.len {
            u64::MAX => item.target.room(),
            len => Some(len),
        });
        let deadline = context.later(options.timeout, known.fold(0, u64::saturating_add));
        let mut targets: Vec<Target<'_>> = Vec::with_capacity(items.len());
        let mut wants = Vec::with_capacity(items.len());
        let mut results = Vec::with_capacity(items.len());
        for item in items.iter_mut() {
            match key_of(item.key) {
                Ok(key) => {
                    wants.push(Want {
                        key,
                        offset: item.offset,
                        len: item.len,
                        room: item.target.room(),
                    });
                    targets.push(item.target.share());
                    results.push(None);
                }
                Err(failure) => results.push(Some(Err(failure))),
            }
        }
        if wants.is_empty() {
            return merge(results, Vec::new());
        }
        let plan = Get::new(
            tenant.clone(),
            wants,
            deadline.at,
            context.prefer,
            |key| match options.locations {
                Locations::Remembered => context.located(&name_of(&tenant, key)),
                Locations::Fresh => None,
            },
        );
        let got = run::get::run(
            context,
            tenant.clone(),
            options.lease,
            deadline,
            plan,
            &mut targets,
        );
        drop(targets);
        merge(results, got)
    }

    /// Reads many whole objects.
    pub fn get_batch<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &GetOptions,
    ) -> Vec<Result<Vec<u8>, Failure>> {
        let mut buffers: Vec<Vec<u8>> = keys.iter().map(|_| Vec::new()).collect();
        let mut items: Vec<GetItem<'_>> = keys
            .iter()
            .zip(&mut buffers)
            .map(|(key, buffer)| GetItem::whole(key.as_ref(), Target::Vec(buffer)))
            .collect();
        let results = self.get_items(&mut items, options);
        drop(items);
        results
            .into_iter()
            .zip(buffers)
            .map(|(result, buffer)| result.map(|_| buffer))
            .collect()
    }

    /// Reads many whole objects, each into the front of its own buffer, and returns their sizes.
    pub fn get_into_batch<K: AsRef<[u8]>>(
        &self,
        items: &mut [(K, &mut [u8])],
        options: &GetOptions,
    ) -> Vec<Result<u64, Failure>> {
        let mut items: Vec<GetItem<'_>> = items
            .iter_mut()
            .map(|(key, into)| GetItem::whole(K::as_ref(key), Target::Bytes(into)))
            .collect();
        let results = self.get_items(&mut items, options);
        results
            .into_iter()
            .map(|result| result.map(|got| got.len))
            .collect()
    }
}

/// Results by item: `None` where the next result of the good items belongs.
type Partial<T> = Vec<Option<Result<T, Failure>>>;

/// Takes the items apart that can be asked for at all.
pub(crate) fn split<I, G, T>(
    items: &[I],
    mut make: impl FnMut(&I) -> Result<G, Failure>,
) -> (Vec<G>, Partial<T>) {
    let mut good = Vec::with_capacity(items.len());
    let mut results = Vec::with_capacity(items.len());
    for item in items {
        match make(item) {
            Ok(made) => {
                good.push(made);
                results.push(None);
            }
            Err(failure) => results.push(Some(Err(failure))),
        }
    }
    (good, results)
}

/// Puts the results of the good items between those of the others.
pub(crate) fn merge<T>(
    results: Partial<T>,
    good: Vec<Result<T, Failure>>,
) -> Vec<Result<T, Failure>> {
    let mut good = good.into_iter();
    results
        .into_iter()
        .map(|result| {
            result.or_else(|| good.next()).unwrap_or_else(|| {
                Err(Failure::new(
                    Code::Internal,
                    Stage::Session,
                    "a batch ended with fewer results than items",
                ))
            })
        })
        .collect()
}

/// Checks a key as a user gave it.
pub(crate) fn key_of(bytes: &[u8]) -> Result<Key, Failure> {
    Key::new(bytes).map_err(|error| {
        let code = match error {
            KeyError::TooLong { .. } => Code::InvalidKey,
            KeyError::Empty | KeyError::Tenant { .. } => Code::InvalidParams,
        };
        Failure::new(code, Stage::Session, error.to_string())
    })
}
