//! What several methods of the compatible store do alike: take arguments that were read to the calls that run
//! without the interpreter, and make codes and objects of the results.

use crate::args::KeyList;
use crate::bytes::{Made, Use, View};
use crate::calls::{Rest, Results};
use crate::config::{Policy, ReplicateConfig, Writer};
use crate::ending::released;
use crate::errors::{number, read_number};
use crate::handle::{BufferHandle, Format, Held};
use crate::open::{Open, mismatch};
use crate::runs::Runs;
use crate::store::{INVALID, MooncakeStoreBase};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use snowskin_client::{GetItem, GetOptions, Leases, RemoveManyOptions, RemoveOptions, Target};
use snowskin_device::Run;
use snowskin_types::Failure;
use snowskin_types::call::{Filter, PutMode};
use std::sync::Arc;

/// The policy argument of a write.
pub(crate) type Config<'py> = Option<PyRef<'py, ReplicateConfig>>;

impl MooncakeStoreBase {
    pub(crate) fn code(&self, result: Result<(), Failure>) -> i32 {
        match result {
            Ok(()) => 0,
            Err(failure) => {
                self.slot.note(&failure);
                number(&failure)
            }
        }
    }

    pub(crate) fn codes(&self, results: Results<()>) -> Vec<i32> {
        let noted = results.iter().find_map(|result| result.as_ref().err());
        noted.inspect(|failure| self.slot.note(failure));
        results
            .iter()
            .map(|result| result.as_ref().map_or_else(number, |()| 0))
            .collect()
    }

    pub(crate) fn sizes(&self, results: Results<u64>) -> Vec<i64> {
        let noted = results.iter().find_map(|result| result.as_ref().err());
        noted.inspect(|failure| self.slot.note(failure));
        results
            .iter()
            .map(|result| match result {
                Ok(size) => i64::try_from(*size).unwrap_or(i64::MAX),
                Err(failure) => read_number(failure),
            })
            .collect()
    }

    /// -600 for each key.
    pub(crate) fn refuse(&self, keys: usize, failure: &Failure) -> Vec<i32> {
        self.slot.note(failure);
        vec![number(failure); keys]
    }

    pub(crate) fn refuse_sizes(&self, keys: usize, failure: &Failure) -> Vec<i64> {
        self.slot.note(failure);
        vec![read_number(failure); keys]
    }

    /// An open store and the policy of a write.
    pub(crate) fn to_write(
        &self,
        config: &Config<'_>,
        keys: usize,
        writer: Writer,
        mode: PutMode,
    ) -> Result<(Arc<Open>, Policy), Failure> {
        let open = self.slot.need()?;
        let policy = ReplicateConfig::policy(config.as_deref(), keys, writer, mode)?;
        Ok((open, policy))
    }

    pub(crate) fn write_one(
        &self,
        py: Python<'_>,
        key: &[u8],
        parts: &[View],
        config: &Config<'_>,
        mode: PutMode,
    ) -> i32 {
        let (open, policy) = match self.to_write(config, 1, Writer::Plain, mode) {
            Ok(ready) => ready,
            Err(failure) => return self.code(Err(failure)),
        };
        let value: Vec<&[u8]> = parts.iter().map(View::bytes).collect();
        let results = released(py, || {
            let options = open.options(policy);
            open.put_values(&[key], &[value], &options)
        });
        self.codes(results).first().copied().unwrap_or(INVALID)
    }

    pub(crate) fn write_parts(
        &self,
        py: Python<'_>,
        key: &[u8],
        parts: &Bound<'_, PyTuple>,
        config: &Config<'_>,
        mode: PutMode,
    ) -> PyResult<i32> {
        let mut views = Vec::with_capacity(parts.len());
        for part in parts {
            let view = View::of(&part, Use::Read)?;
            if !view.is_plain() {
                let text = "each part must be one-dimensional with items of one byte";
                return Err(PyRuntimeError::new_err(text));
            }
            views.push(view);
        }
        if views.iter().all(|view| view.bytes().is_empty()) {
            // Nothing to store is done at once, by a store that is open.
            return Ok(match self.to_write(config, 1, Writer::Plain, mode) {
                Ok(_) => 0,
                Err(failure) => self.code(Err(failure)),
            });
        }
        Ok(self.write_one(py, key, &views, config, mode))
    }

    pub(crate) fn write_batch(
        &self,
        py: Python<'_>,
        keys: &KeyList,
        values: &Bound<'_, PyAny>,
        config: &Config<'_>,
        mode: PutMode,
    ) -> PyResult<i32> {
        let mut views = Vec::with_capacity(keys.len());
        crate::args::each(values, |value| {
            views.push(View::of(value, Use::Read)?);
            Ok(())
        })?;
        if views.len() != keys.len() {
            return Ok(self.code(Err(mismatch())));
        }
        let (open, policy) = match self.to_write(config, keys.len(), Writer::Plain, mode) {
            Ok(ready) => ready,
            Err(failure) => return Ok(self.code(Err(failure))),
        };
        let values: Vec<Vec<&[u8]>> = views.iter().map(|view| vec![view.bytes()]).collect();
        let results = released(py, || {
            let options = open.options(policy);
            open.put_values(&keys.to_vec(), &values, &options)
        });
        let codes = self.codes(results);
        Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
    }

    /// One buffer; a size of zero stores nothing and is a success.
    pub(crate) fn write_from(
        &self,
        py: Python<'_>,
        key: &[u8],
        runs: &[Run],
        config: &Config<'_>,
        mode: PutMode,
    ) -> Result<(), Failure> {
        let (open, policy) = self.to_write(config, 1, Writer::Plain, mode)?;
        if crate::runs::total(runs) == 0 {
            return Ok(());
        }
        let mut results = released(py, || {
            let options = open.options(policy);
            open.put_runs(&[key], std::iter::once(runs), &options)
        });
        results.pop().unwrap_or(Ok(()))
    }

    pub(crate) fn write_runs(
        &self,
        py: Python<'_>,
        keys: &KeyList,
        runs: &Runs,
        config: &Config<'_>,
        writer: Writer,
        mode: PutMode,
    ) -> Vec<i32> {
        let (open, policy) = match self.to_write(config, keys.len(), writer, mode) {
            Ok(ready) => ready,
            Err(failure) => return self.refuse(keys.len(), &failure),
        };
        let results = released(py, || {
            let options = open.options(policy);
            open.put_runs(&keys.to_vec(), runs.iter(), &options)
        });
        self.codes(results)
    }

    pub(crate) fn read_runs(
        &self,
        py: Python<'_>,
        keys: &KeyList,
        runs: &Runs,
        rest: Rest,
    ) -> Vec<i64> {
        match self.slot.need() {
            Ok(open) => {
                let results = released(py, || open.get_runs(&keys.to_vec(), runs.iter(), rest));
                self.sizes(results)
            }
            Err(failure) => self.refuse_sizes(keys.len(), &failure),
        }
    }

    pub(crate) fn read_values(
        &self,
        py: Python<'_>,
        open: &Open,
        keys: &[&[u8]],
    ) -> Vec<Option<Py<PyBytes>>> {
        let mut made: Vec<Made> = keys
            .iter()
            .map(|_| Made::new(open.staging.size()))
            .collect();
        let results = released(py, || {
            let mut items: Vec<GetItem<'_>> = keys
                .iter()
                .zip(&mut made)
                .map(|(key, made)| GetItem::whole(key, Target::Made(made)))
                .collect();
            let got = open.client.get_items(&mut items, &GetOptions::default());
            open.look_after(&got);
            got
        });
        let noted = results.iter().find_map(|result| result.as_ref().err());
        noted.inspect(|failure| self.slot.note(failure));
        results
            .iter()
            .zip(&mut made)
            .map(|(result, made)| result.is_ok().then(|| made.take()).flatten())
            .collect()
    }

    pub(crate) fn read_handles(
        &self,
        py: Python<'_>,
        open: &Open,
        keys: &[&[u8]],
    ) -> Vec<Option<BufferHandle>> {
        let mut held: Vec<Held> = keys.iter().map(|_| Held::new(&open.staging)).collect();
        let results = released(py, || {
            let mut items: Vec<GetItem<'_>> = keys
                .iter()
                .zip(&mut held)
                .map(|(key, held)| GetItem::whole(key, Target::Made(held)))
                .collect();
            let got = open.client.get_items(&mut items, &GetOptions::default());
            open.look_after(&got);
            got
        });
        let noted = results.iter().find_map(|result| result.as_ref().err());
        noted.inspect(|failure| self.slot.note(failure));
        results
            .iter()
            .zip(held)
            .map(|(result, held)| result.is_ok().then(|| held.into_handle(Format::Signed)))
            .collect()
    }

    pub(crate) fn removed(&self, py: Python<'_>, keys: &[&[u8]], force: bool) -> Vec<i32> {
        match self.slot.need() {
            Ok(open) => {
                let options = RemoveOptions {
                    leases: leases(force),
                    ..RemoveOptions::default()
                };
                let results = released(py, || open.client.remove_batch(keys, &options));
                self.codes(results)
            }
            Err(failure) => self.refuse(keys.len(), &failure),
        }
    }

    pub(crate) fn swept(&self, py: Python<'_>, filter: &Filter, force: bool) -> i64 {
        let swept = self.slot.need().and_then(|open| {
            let options = RemoveManyOptions {
                leases: leases(force),
                ..RemoveManyOptions::default()
            };
            released(py, || open.client.remove_many(filter, &options))
        });
        match swept {
            Ok(swept) => i64::try_from(swept.removed).unwrap_or(i64::MAX),
            Err(failure) => i64::from(self.code(Err(failure))),
        }
    }

    pub(crate) fn present(&self, py: Python<'_>, keys: &[&[u8]]) -> Vec<i32> {
        let open = match self.slot.need() {
            Ok(open) => open,
            Err(failure) => return self.refuse(keys.len(), &failure),
        };
        let results = released(py, || open.exists(keys));
        let noted = results.iter().find_map(|result| result.as_ref().err());
        noted.inspect(|failure| self.slot.note(failure));
        results
            .iter()
            .map(|result| match result {
                Ok(here) => i32::from(*here),
                // A lost master is a miss on this path: callers take any other number for a hit.
                Err(failure) if crate::watch::is_loss(failure) => 0,
                Err(failure) => number(failure),
            })
            .collect()
    }
}

fn leases(force: bool) -> Leases {
    match force {
        true => Leases::Override,
        false => Leases::Respect,
    }
}
