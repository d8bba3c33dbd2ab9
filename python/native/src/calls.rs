//! The calls of a store on bytes of ours and on memory that is named by address, without Python: they run
//! while the interpreter is released.

use crate::bytes::too_large;
use crate::config::Policy;
use crate::errors::invalid;
use crate::open::Open;
use crate::runs::total;
use crate::watch::is_loss;
use snowskin_client::{
    CallOptions, ExistsOptions, GetItem, GetOptions, Presence, PutOptions, Source, Stored, Target,
};
use snowskin_device::{DeviceError, Gather, Run, Scatter};
use snowskin_types::call::PutMode;
use snowskin_types::limits::data_timeout;
use snowskin_types::{Code, Failure, Key, Stage};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Results by key.
pub(crate) type Results<T> = Vec<Result<T, Failure>>;

/// What to do with room that is left over behind an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It may be left.
    Allowed,
    /// The buffers have to be filled: more of them than bytes is a failed transfer.
    Refused,
}

fn about(mut failure: Failure, key: &[u8]) -> Failure {
    if failure.key.is_none() {
        failure.key = Key::new(key).ok();
    }
    failure
}

fn zero_bytes() -> Failure {
    invalid(Stage::Reserve, "an object of zero bytes cannot be stored")
}

/// The time that the parts of one call share.
struct Budget {
    end: Option<Instant>,
}

impl Budget {
    fn new(set: Option<Duration>, bytes: u64) -> Self {
        let whole = set.unwrap_or_else(|| data_timeout(bytes).duration());
        Budget {
            end: Instant::now().checked_add(whole),
        }
    }

    /// Time that is left, at least one millisecond, so that the end is told as a passed deadline.
    fn left(&self) -> Option<Duration> {
        const LEAST: Duration = Duration::from_millis(1);
        self.end
            .map(|end| end.saturating_duration_since(Instant::now()).max(LEAST))
    }

    /// How long the call may wait for staging memory.
    fn staging(&self) -> Duration {
        self.left().unwrap_or(Duration::MAX)
    }
}

impl Open {
    /// The options of a write, with the nodes of its wished segments.
    pub(crate) fn options(&self, policy: Policy) -> PutOptions {
        let mut options = policy.options;
        options.preferred = self.segments.nodes(&self.client, &policy.preferred);
        options
    }

    /// Stores bytes under keys. A taken key is a success, unless it was to be replaced.
    pub(crate) fn put_sources(
        &self,
        items: &[(&[u8], Source<'_>)],
        options: &PutOptions,
    ) -> Results<()> {
        if self.watch.is_lost() {
            // Nothing can be placed: that is told at once, and not by the deadline of each write.
            return items
                .iter()
                .map(|(key, _)| Err(self.no_master(key)))
                .collect();
        }
        if options.mode == PutMode::Replace && !options.groups.is_empty() {
            return self.replace_in_groups(items, options);
        }
        self.put_all(items, options)
    }

    fn put_all(&self, items: &[(&[u8], Source<'_>)], options: &PutOptions) -> Results<()> {
        let stored = self.client.put_batch(items, options);
        self.look_after(&stored);
        let results = stored.into_iter().zip(items);
        results
            .map(|(result, (key, _))| done(result, options.mode, key))
            .collect()
    }

    /// An object stays in its group: replacing it under another one is refused.
    fn replace_in_groups(
        &self,
        items: &[(&[u8], Source<'_>)],
        options: &PutOptions,
    ) -> Results<()> {
        let in_other = |key: &[u8], group: &Option<Arc<str>>| {
            let wanted = group.as_ref()?;
            let found = self.client.stat_object(key, &CallOptions::default());
            let present = found.ok().flatten()?.attributes.group?;
            (present != *wanted).then(|| {
                let text = format!("the object is in the group {present:?} and stays there");
                invalid(Stage::Reserve, text)
            })
        };
        let none = None;
        let mut refused = Vec::with_capacity(items.len());
        let mut good = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let refusal = in_other(item.0, options.groups.get(index).unwrap_or(&none));
            if refusal.is_none() {
                good.push(item.clone());
            }
            refused.push(refusal);
        }
        let options = without_groups_of(options, &refused);
        let mut stored = self.put_all(&good, &options).into_iter();
        refused
            .into_iter()
            .zip(items)
            .map(|(refused, (key, _))| match refused {
                Some(failure) => Err(about(failure, key)),
                None => stored.next().unwrap_or_else(|| Err(lost())),
            })
            .collect()
    }

    /// As [`Open::put_sources`], for values that pass through the local buffer.
    pub(crate) fn put_values(
        &self,
        keys: &[&[u8]],
        values: &[Vec<&[u8]>],
        options: &PutOptions,
    ) -> Results<()> {
        let largest = self.staging.size();
        let sizes = values
            .iter()
            .map(|parts| parts.iter().map(|part| part.len() as u64).sum::<u64>());
        let refused: Vec<Option<Failure>> = sizes
            .map(|size| match size {
                0 => Some(zero_bytes()),
                size if size > largest => Some(too_large(size, largest, Stage::Reserve)),
                _ => None,
            })
            .collect();
        let good = keys.iter().zip(values).zip(&refused);
        let items: Vec<(&[u8], Source<'_>)> = good
            .filter(|(_, refused)| refused.is_none())
            .map(|((key, parts), _)| {
                let source = match parts.as_slice() {
                    [bytes] => Source::Bytes(bytes),
                    parts => Source::Parts(parts.to_vec()),
                };
                (*key, source)
            })
            .collect();
        let options = &without_groups_of(options, &refused);
        let mut stored = self.put_sources(&items, options).into_iter();
        refused
            .into_iter()
            .zip(keys)
            .map(|(refused, key)| match refused {
                Some(failure) => Err(about(failure, key)),
                None => stored.next().unwrap_or_else(|| Err(lost())),
            })
            .collect()
    }

    /// Stores memory that is named by address. Keys without a byte are refused.
    pub(crate) fn put_runs<'r>(
        &self,
        keys: &[&[u8]],
        runs: impl Iterator<Item = &'r [Run]>,
        options: &PutOptions,
    ) -> Results<()> {
        let runs: Vec<&[Run]> = runs.collect();
        let bytes = runs
            .iter()
            .map(|runs| total(runs))
            .fold(0, u64::saturating_add);
        let budget = Budget::new(options.timeout.or(self.transfer_timeout), bytes);
        let mut results: Vec<Option<Result<(), Failure>>> = keys.iter().map(|_| None).collect();
        let mut next = 0;
        while next < keys.len() {
            let first = next;
            let mut gathers: Vec<(usize, Gather)> = Vec::with_capacity(keys.len() - next);
            while let (Some(runs), Some(slot)) = (runs.get(next), results.get_mut(next)) {
                let gathered = match (total(runs), gathers.is_empty()) {
                    (0, _) => {
                        *slot = Some(Err(zero_bytes()));
                        next += 1;
                        continue;
                    }
                    (_, true) => self.registry.gather_within(runs, budget.staging()),
                    (_, false) => self.registry.gather_now(runs),
                };
                match gathered {
                    Ok(gather) => gathers.push((next, gather)),
                    // Goes on when what is staged has been carried out.
                    Err(DeviceError::StagingFull { .. }) if !gathers.is_empty() => break,
                    Err(error) => *slot = Some(Err(error.into())),
                }
                next += 1;
            }
            let items: Vec<(&[u8], Source<'_>)> = gathers
                .iter()
                .filter_map(|(index, gather)| {
                    Some((*keys.get(*index)?, Source::Scattered(gather.scattered())))
                })
                .collect();
            if !items.is_empty() {
                let mut options = options.clone();
                options.timeout = budget.left();
                if !options.groups.is_empty() {
                    let groups = gathers.iter();
                    options.groups = groups
                        .map(|(index, _)| options.groups.get(*index).cloned().flatten())
                        .collect();
                }
                let stored = self.put_sources(&items, &options);
                for ((index, _), result) in gathers.iter().zip(stored) {
                    if let Some(slot) = results.get_mut(*index) {
                        *slot = Some(result);
                    }
                }
            }
            // The loop gets on: the first item was at least refused.
            next = next.max(first + 1);
        }
        finish(results, keys)
    }

    /// Reads whole objects into memory that is named by address, and tells their sizes.
    pub(crate) fn get_runs<'r>(
        &self,
        keys: &[&[u8]],
        runs: impl Iterator<Item = &'r [Run]>,
        rest: Rest,
    ) -> Results<u64> {
        let wants: Vec<Want<'_>> = keys
            .iter()
            .zip(runs)
            .map(|(key, runs)| Want {
                key,
                runs,
                offset: 0,
                len: u64::MAX,
            })
            .collect();
        let mut results = self.get_wants(&wants);
        if rest == Rest::Refused {
            for (result, want) in results.iter_mut().zip(&wants) {
                let room = total(want.runs);
                if let Ok(size) = *result
                    && size < room
                {
                    let text = format!("the buffers have {room} bytes, the object {size}");
                    let failure = Failure::new(Code::TransferFail, Stage::Read, text);
                    *result = Err(about(failure, want.key));
                }
            }
        }
        results
    }

    /// Reads objects or ranges of them into memory that is named by address.
    pub(crate) fn get_wants(&self, wants: &[Want<'_>]) -> Results<u64> {
        self.get_wants_checked(wants, |_, _| Ok(()))
    }

    /// As [`Open::get_wants`]; `check` sees which version was read for a want.
    pub(crate) fn get_wants_checked(
        &self,
        wants: &[Want<'_>],
        check: impl Fn(usize, &snowskin_client::Got) -> Result<(), Failure>,
    ) -> Results<u64> {
        let bytes = wants.iter().map(Want::room).fold(0, u64::saturating_add);
        let budget = Budget::new(self.transfer_timeout, bytes);
        let mut results: Vec<Option<Result<u64, Failure>>> = wants.iter().map(|_| None).collect();
        let mut next = 0;
        while next < wants.len() {
            let first = next;
            let mut scatters: Vec<(usize, Scatter)> = Vec::with_capacity(wants.len() - next);
            while let (Some(want), Some(slot)) = (wants.get(next), results.get_mut(next)) {
                let scattered = match scatters.is_empty() {
                    true => self.registry.scatter_within(want.runs, budget.staging()),
                    false => self.registry.scatter_now(want.runs),
                };
                match scattered {
                    Ok(scatter) => scatters.push((next, scatter)),
                    // Goes on when what is staged has been carried out.
                    Err(DeviceError::StagingFull { .. }) if !scatters.is_empty() => break,
                    Err(error) => *slot = Some(Err(error.into())),
                }
                next += 1;
            }
            let mut items: Vec<GetItem<'_>> = scatters
                .iter()
                .filter_map(|(index, scatter)| {
                    let want = wants.get(*index)?;
                    Some(GetItem {
                        key: want.key,
                        offset: want.offset,
                        len: want.len,
                        target: Target::Scattered(scatter.scattered()),
                    })
                })
                .collect();
            let got = match items.is_empty() {
                true => Vec::new(),
                false => {
                    let options = GetOptions {
                        timeout: budget.left(),
                        ..GetOptions::default()
                    };
                    self.client.get_items(&mut items, &options)
                }
            };
            drop(items);
            self.look_after(&got);
            for ((index, scatter), result) in scatters.into_iter().zip(got) {
                let result = result.and_then(|got| {
                    check(index, &got)?;
                    scatter.finish(got.len)?;
                    Ok(got.len)
                });
                if let Some(slot) = results.get_mut(index) {
                    *slot = Some(result);
                }
            }
            // The loop gets on: the first item was at least refused.
            next = next.max(first + 1);
        }
        let keys: Vec<&[u8]> = wants.iter().map(|want| want.key).collect();
        finish(results, &keys)
    }

    fn no_master(&self, key: &[u8]) -> Failure {
        let text = "the master does not answer, and is looked out for";
        let failure = Failure::new(Code::RpcFail, Stage::Session, text);
        about(failure.with_peer(self.master.clone()), key)
    }

    /// Looks out for the master when results say that it could not be asked.
    pub(crate) fn look_after<T>(&self, results: &Results<T>) {
        let is_lost = |failure: &Failure| {
            is_loss(failure) && failure.peer.as_deref() == Some(self.master.as_str())
        };
        let mut failures = results.iter().filter_map(|result| result.as_ref().err());
        if failures.any(is_lost) {
            self.watch.lost(&self.client);
        }
    }

    /// Which objects are readable. Without a master: none of them, by the deadline once, and then at
    /// once until it is found again.
    pub(crate) fn exists(&self, keys: &[&[u8]]) -> Results<bool> {
        if self.watch.is_lost() {
            self.watch.answered(keys.len());
            return keys.iter().map(|_| Ok(false)).collect();
        }
        let presences = self.client.exists_batch(keys, &ExistsOptions::default());
        if presences
            .iter()
            .any(|presence| presence.as_ref().is_err_and(is_loss))
        {
            self.watch.lost(&self.client);
            self.watch.answered(keys.len());
        }
        let is_here = |presence| presence != Presence::Absent;
        presences
            .into_iter()
            .map(|presence| presence.map(is_here))
            .collect()
    }
}

/// A range of an object and the memory that it is read into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) runs: &'a [Run],
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes; `u64::MAX`: all.
    pub(crate) len: u64,
}

impl Want<'_> {
    fn room(&self) -> u64 {
        total(self.runs).min(self.len)
    }
}

fn done(result: Result<Stored, Failure>, mode: PutMode, key: &[u8]) -> Result<(), Failure> {
    match result? {
        Stored::Written { .. } => Ok(()),
        Stored::Exists { .. } if mode == PutMode::IfAbsent => Ok(()),
        Stored::Exists { .. } => {
            let text = "somebody else is just writing this key";
            let failure = Failure::new(Code::ObjectReplicaBusy, Stage::Reserve, text);
            Err(about(failure, key))
        }
    }
}

fn without_groups_of(options: &PutOptions, refused: &[Option<Failure>]) -> PutOptions {
    let mut options = options.clone();
    if !options.groups.is_empty() {
        let mut refused = refused.iter();
        options
            .groups
            .retain(|_| refused.next().is_none_or(Option::is_none));
    }
    options
}

fn lost() -> Failure {
    let text = "a batch ended with fewer results than items";
    Failure::new(Code::Internal, Stage::Session, text)
}

fn finish<T>(results: Vec<Option<Result<T, Failure>>>, keys: &[&[u8]]) -> Results<T> {
    let results = results.into_iter().zip(keys);
    results
        .map(|(result, key)| {
            result
                .unwrap_or_else(|| Err(lost()))
                .map_err(|failure| about(failure, key))
        })
        .collect()
}
