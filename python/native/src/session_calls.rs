//! The calls on sessions, without Python.

use crate::calls::{Results, Want};
use crate::config::Policy;
use crate::open::Open;
use crate::runs::{Runs, total};
use crate::sessions::{Draft, Known, SharedDraft};
use parking_lot::MutexGuard;
use snowskin_client::{ExistsOptions, Presence, PutOptions, Source};
use snowskin_device::Run;
use snowskin_types::{Code, Failure, Key, Millis, Retry, Stage};

/// Offsets by key.
pub(crate) type Offsets = Vec<Vec<u64>>;

fn fail<T>(code: Code, stage: Stage, key: &[u8], text: impl Into<String>) -> Result<T, Failure> {
    let mut failure = Failure::new(code, stage, text);
    failure.key = Key::new(key).ok();
    Err(failure)
}

impl Open {
    /// Begins put sessions.
    pub(crate) fn start_puts(&self, keys: &[&[u8]], sizes: &[u64], policy: Policy) -> Results<()> {
        let options = self.options(policy);
        // Nothing is to be protected by the question.
        let asking = ExistsOptions {
            lease: Some(Millis(1)),
            ..ExistsOptions::default()
        };
        let presences = self.client.exists_batch(keys, &asking);
        let items = keys.iter().zip(sizes).zip(presences).enumerate();
        items
            .map(|(index, ((key, size), presence))| {
                if self.puts.holds(key) {
                    let text = "the key is in a put session already";
                    return fail(Code::InvalidParams, Stage::Reserve, key, text);
                }
                if presence? != Presence::Absent {
                    let text = "the key is taken";
                    return fail(Code::ObjectAlreadyExists, Stage::Reserve, key, text);
                }
                let mut own = options.clone();
                own.groups = Vec::new();
                own.attributes.group = options.groups.get(index).cloned().flatten();
                self.puts.start(key, *size, own, &self.staging)
            })
            .collect()
    }

    /// Writes ranges into the objects of put sessions.
    pub(crate) fn write_puts(
        &self,
        keys: &[&[u8]],
        runs: &Runs,
        offsets: &Offsets,
    ) -> Results<u64> {
        let items = keys.iter().zip(runs.iter()).zip(offsets);
        items
            .map(|((key, runs), offsets)| {
                let draft = self.puts.draft(key)?;
                let mut draft = draft.lock();
                let size = draft.bytes.len();
                for (run, offset) in runs.iter().zip(offsets) {
                    let end = offset.checked_add(run.len);
                    let range = usize::try_from(*offset).ok().zip(end);
                    let range = range.and_then(|(start, end)| {
                        draft.bytes.get_mut(start..usize::try_from(end).ok()?)
                    });
                    let Some(target) = range else {
                        let text = format!(
                            "{} bytes at {offset} lie outside of the {size} bytes of the session",
                            run.len
                        );
                        return fail(Code::InvalidParams, Stage::Write, key, text);
                    };
                    if !target.is_empty() {
                        self.registry.read(run.address, target)?;
                    }
                }
                Ok(total(runs))
            })
            .collect()
    }

    /// Stores the objects of put sessions and ends them; one that could not be stored for a reason that
    /// may pass can be ended again.
    pub(crate) fn end_puts(&self, keys: &[&[u8]]) -> Results<()> {
        let taken: Vec<Result<SharedDraft, Failure>> =
            keys.iter().map(|key| self.puts.take(key)).collect();
        let mut results: Vec<Option<Result<(), Failure>>> = taken
            .iter()
            .map(|taken| taken.as_ref().err().map(|failure| Err(failure.clone())))
            .collect();
        {
            // Waits for writes that are under way. Each draft was taken by this call alone.
            let drafts: Vec<(usize, MutexGuard<'_, Draft>)> = taken
                .iter()
                .enumerate()
                .filter_map(|(index, draft)| Some((index, draft.as_ref().ok()?.lock())))
                .collect();
            let mut rest = drafts.as_slice();
            while let Some((_, first)) = rest.first() {
                let alike = rest
                    .iter()
                    .take_while(|(_, draft)| is_alike(&draft.options, &first.options))
                    .count();
                let (now, later) = rest.split_at(alike);
                self.store_drafts(keys, now, &mut results);
                rest = later;
            }
        }
        let ends = taken.into_iter().zip(results).zip(keys);
        ends.map(|((draft, result), key)| {
            let result = result.unwrap_or_else(|| {
                fail(
                    Code::Internal,
                    Stage::Session,
                    key,
                    "the session was not ended",
                )
            });
            if let (Ok(draft), Err(failure)) = (draft, &result)
                && failure.code.retry() != Retry::Never
            {
                self.puts.put_back(key, draft);
            }
            result
        })
        .collect()
    }

    fn store_drafts(
        &self,
        keys: &[&[u8]],
        drafts: &[(usize, MutexGuard<'_, Draft>)],
        results: &mut [Option<Result<(), Failure>>],
    ) {
        let Some((_, first)) = drafts.first() else {
            return;
        };
        let mut options = first.options.clone();
        options.groups = drafts
            .iter()
            .map(|(_, draft)| draft.options.attributes.group.clone())
            .collect();
        let items: Vec<(&[u8], Source<'_>)> = drafts
            .iter()
            .filter_map(|(index, draft)| Some((*keys.get(*index)?, Source::Bytes(&draft.bytes))))
            .collect();
        let stored = self.put_sources(&items, &options);
        for ((index, _), result) in drafts.iter().zip(stored) {
            if let Some(slot) = results.get_mut(*index) {
                *slot = Some(result);
            }
        }
    }

    /// Gives put sessions up.
    pub(crate) fn revoke_puts(&self, keys: &[&[u8]]) -> Results<()> {
        keys.iter()
            .map(|key| self.puts.take(key).map(drop))
            .collect()
    }

    /// Begins get sessions.
    pub(crate) fn start_gets(&self, keys: &[&[u8]]) -> Results<()> {
        let found = self.client.find_batch(keys, &ExistsOptions::default());
        let started = found
            .into_iter()
            .zip(keys)
            .map(|(found, key)| {
                let found = found?;
                if found.replicas.is_empty() {
                    return fail(
                        Code::ReplicaGone,
                        Stage::Locate,
                        key,
                        "no replica is readable",
                    );
                }
                let known = Known {
                    version: found.version,
                    size: found.shape.size,
                };
                self.gets.start(key, known, found.lease.duration())
            })
            .collect();
        self.gets.keep(&self.client);
        started
    }

    /// Reads ranges of the objects of get sessions.
    pub(crate) fn read_gets(&self, keys: &[&[u8]], runs: &Runs, offsets: &Offsets) -> Results<u64> {
        let mut results: Results<u64> = Vec::with_capacity(keys.len());
        let mut wants: Vec<Want<'_>> = Vec::with_capacity(keys.len());
        // Of each want: which key, and which version it has to be.
        let mut whose: Vec<(usize, Known)> = Vec::with_capacity(keys.len());
        let items = keys.iter().zip(runs.iter()).zip(offsets).enumerate();
        for (index, ((key, runs), offsets)) in items {
            let known = self.gets.known(key);
            let ranges = known.and_then(|known| {
                let inside = |(run, offset): (&Run, &u64)| {
                    offset
                        .checked_add(run.len)
                        .is_some_and(|end| end <= known.size)
                };
                if runs.iter().zip(offsets).all(inside) {
                    Ok(known)
                } else {
                    let text = format!("a range lies outside of the {} bytes", known.size);
                    fail(Code::InvalidParams, Stage::Read, key, text)
                }
            });
            match ranges {
                Ok(known) => {
                    let from = wants.len();
                    join_ranges(key, runs, offsets, &mut wants);
                    whose.extend(wants[from..].iter().map(|_| (index, known)));
                    results.push(Ok(0));
                }
                Err(failure) => results.push(Err(failure)),
            }
        }
        let changed = || {
            let text = "the object is not there any more as it was when the session began";
            Failure::new(Code::LeaseExpired, Stage::Read, text)
        };
        let read = self.get_wants_checked(&wants, |want, got| match whose.get(want) {
            Some((_, known)) if known.version == got.version => Ok(()),
            _ => Err(changed()),
        });
        for ((index, _), read) in whose.iter().zip(read) {
            let Some(result) = results.get_mut(*index) else {
                continue;
            };
            match (&mut *result, read) {
                (Ok(sum), Ok(len)) => *sum += len,
                (Ok(_), Err(failure)) => {
                    let gone = matches!(
                        failure.code,
                        Code::ObjectNotFound | Code::ReplicaGone | Code::LeaseExpired
                    );
                    let mut failure = failure;
                    if gone && let Some(key) = keys.get(*index) {
                        self.gets.end(key);
                        failure = changed();
                        failure.key = Key::new(key).ok();
                    }
                    *result = Err(failure);
                }
                (Err(_), _) => {}
            }
        }
        results
    }

    /// Ends get sessions.
    pub(crate) fn end_gets(&self, keys: &[&[u8]]) {
        for key in keys {
            self.gets.end(key);
        }
    }
}

/// Writes that differ in nothing but their groups.
fn is_alike(one: &PutOptions, other: &PutOptions) -> bool {
    let without = |options: &PutOptions| {
        let mut options = options.clone();
        options.attributes.group = None;
        options
    };
    without(one) == without(other)
}

/// One want for each stretch of runs that follow each other in the object.
fn join_ranges<'a>(key: &'a [u8], runs: &'a [Run], offsets: &[u64], wants: &mut Vec<Want<'a>>) {
    let mut from = 0;
    while let (Some(first), Some(offset)) = (runs.get(from), offsets.get(from)) {
        let (mut to, mut len) = (from + 1, first.len);
        while let (Some(run), Some(next)) = (runs.get(to), offsets.get(to))
            && *next == offset + len
        {
            len += run.len;
            to += 1;
        }
        if len > 0 {
            wants.push(Want {
                key,
                runs: &runs[from..to],
                offset: *offset,
                len,
            });
        }
        from = to;
    }
}
