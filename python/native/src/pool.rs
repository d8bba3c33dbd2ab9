//! The class under `snowskin.Store`: exceptions instead of codes, one result or error per key in batches.

use crate::args::{KeyArg, KeyList, each};
use crate::bytes::{Made, Use, View};
use crate::ending::released;
use crate::errors;
use crate::handle::{BufferHandle, Format, Held};
use crate::open::{Open, Slot, mismatch};
use crate::settings::Settings;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use snowskin_client::{
    CallOptions, ExistsOptions, GetItem, GetOptions, Leases, Presence, PutOptions,
    RemoveManyOptions, RemoveOptions, Source, Stored, Target,
};
use snowskin_types::call::{ClusterStat, Filter, NodeState, PutMode};
use snowskin_types::{Code, Failure, Key, Stage};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Unregistering waits this long for operations under way.
const UNREGISTER_PATIENCE: Duration = Duration::from_secs(4);
/// Longest time-out that can be asked for, in seconds.
const TIMEOUT_MAX: f64 = 86_400.0;

/// A pool: its own master and nodes in this process, or a client of a master.
#[pyclass(frozen, weakref, module = "snowskin._native")]
pub(crate) struct Pool {
    slot: Slot,
    /// Registered buffers, by address, whose exporters keep them in place.
    registered: Mutex<HashMap<usize, View>>,
}

fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let good = |seconds: f64| (0.001..=TIMEOUT_MAX).contains(&seconds);
    match seconds {
        None => Ok(None),
        Some(seconds) if good(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        Some(seconds) => Err(PyValueError::new_err(format!(
            "timeout is {seconds} s; allowed are 0.001 to {TIMEOUT_MAX}"
        ))),
    }
}

fn call(seconds: Option<f64>) -> PyResult<CallOptions> {
    Ok(CallOptions {
        timeout: timeout(seconds)?,
        ..CallOptions::default()
    })
}

fn leases(force: bool) -> Leases {
    match force {
        true => Leases::Override,
        false => Leases::Respect,
    }
}

impl Pool {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        self.slot.get().ok_or_else(|| {
            let text = "the store is closed, or belongs to the parent of this process";
            let failure = Failure::new(Code::InvalidParams, Stage::Session, text);
            self.fail(py, &failure)
        })
    }

    /// Remembers a failure and makes it an exception.
    fn fail(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        self.slot.note(failure);
        errors::raised(py, failure)
    }

    fn given<T>(&self, py: Python<'_>, result: Result<T, Failure>) -> PyResult<T> {
        result.map_err(|failure| self.fail(py, &failure))
    }

    /// A list with a value or an exception per key.
    fn listed<'py, T>(
        &self,
        py: Python<'py>,
        results: Vec<Result<T, Failure>>,
        mut value: impl FnMut(T) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for result in results {
            list.append(match result {
                Ok(given) => value(given)?,
                Err(failure) => {
                    self.slot.note(&failure);
                    errors::exception(py, &failure)?
                }
            })?;
        }
        Ok(list)
    }

    fn views(
        &self,
        py: Python<'_>,
        keys: &KeyList,
        values: &Bound<'_, PyAny>,
        usage: Use,
    ) -> PyResult<Vec<View>> {
        let mut views = Vec::with_capacity(keys.len());
        each(values, |value| {
            views.push(View::of(value, usage)?);
            Ok(())
        })?;
        if views.len() != keys.len() {
            return Err(self.fail(py, &mismatch()));
        }
        Ok(views)
    }

    fn sweep(
        &self,
        py: Python<'_>,
        filter: &Filter,
        force: bool,
        seconds: Option<f64>,
    ) -> PyResult<u64> {
        let open = self.open(py)?;
        let options = RemoveManyOptions {
            call: call(seconds)?,
            leases: leases(force),
            ..RemoveManyOptions::default()
        };
        let swept = released(py, || open.client.remove_many(filter, &options));
        Ok(self.given(py, swept)?.removed)
    }
}

fn put_options(replace: bool, seconds: Option<f64>) -> PyResult<PutOptions> {
    Ok(PutOptions {
        timeout: timeout(seconds)?,
        mode: match replace {
            true => PutMode::Replace,
            false => PutMode::IfAbsent,
        },
        ..PutOptions::default()
    })
}

fn get_options(seconds: Option<f64>) -> PyResult<GetOptions> {
    Ok(GetOptions {
        timeout: timeout(seconds)?,
        ..GetOptions::default()
    })
}

fn written(result: Result<Stored, Failure>, key: &[u8]) -> Result<(), Failure> {
    match result? {
        Stored::Written { .. } => Ok(()),
        Stored::Exists { unfinished, .. } => {
            let text = match unfinished {
                true => "somebody else is just putting this key",
                false => "the key is taken",
            };
            let mut failure = Failure::new(Code::ObjectAlreadyExists, Stage::Reserve, text);
            failure.key = Key::new(key).ok();
            Err(failure)
        }
    }
}

fn first<T>(results: Vec<Result<T, Failure>>) -> Result<T, Failure> {
    results.into_iter().next().unwrap_or_else(|| {
        let text = "a call of one item ended without a result";
        Err(Failure::new(Code::Internal, Stage::Session, text))
    })
}

#[pymethods]
impl Pool {
    /// Opens it; the settings are those of `MooncakeStoreBase._open`.
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut settings = Settings::read(settings)?;
        if let Ok(settings) = &mut settings {
            // One deadline for all calls.
            settings.transfer_timeout = settings.transfer_timeout.or(settings.timeout);
        }
        let opened = released(py, || Open::start(settings?));
        let open = opened.map_err(|failure| errors::raised(py, &failure))?;
        let slot = Slot::default();
        slot.set(Some(open));
        Ok(Pool {
            slot,
            registered: Mutex::default(),
        })
    }

    /// Ends it; again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.slot.set(None);
        let ended = released(py, || open.map_or(Ok(()), |open| open.close()));
        let registered = std::mem::take(&mut *self.registered.lock());
        drop(registered);
        self.given(py, ended)
    }

    /// True after `close`, and in a forked child.
    #[getter]
    fn closed(&self) -> bool {
        self.slot.get().is_none()
    }

    /// The effective `host:port`.
    #[getter]
    fn hostname(&self) -> String {
        self.slot
            .get()
            .map_or_else(String::new, |open| open.hostname.clone())
    }

    /// The last failure as a dictionary, or None.
    fn last_error<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.slot
            .last()
            .map(|failure| errors::dict(py, &failure))
            .transpose()
    }

    /// Stores bytes. Raises NativeError, also for a taken key unless `replace` is set.
    #[pyo3(signature = (key, data, replace=false, timeout=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        data: &Bound<'_, PyAny>,
        replace: bool,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let open = self.open(py)?;
        let options = put_options(replace, timeout)?;
        let view = View::of(data, Use::Read)?;
        let items = [(key.0, Source::Bytes(view.bytes()))];
        let stored = released(py, || first(open.client.put_batch(&items, &options)));
        self.given(py, written(stored, key.0))
    }

    /// As `put` for each key: a list of results or errors.
    #[pyo3(signature = (keys, datas, replace=false, timeout=None))]
    fn put_batch<'py>(
        &self,
        py: Python<'py>,
        keys: KeyList,
        datas: &Bound<'py, PyAny>,
        replace: bool,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let open = self.open(py)?;
        let options = put_options(replace, timeout)?;
        let views = self.views(py, &keys, datas, Use::Read)?;
        let items: Vec<(&[u8], Source<'_>)> = keys
            .iter()
            .zip(&views)
            .map(|(key, view)| (key, Source::Bytes(view.bytes())))
            .collect();
        let stored = released(py, || open.client.put_batch(&items, &options));
        let results = stored.into_iter().zip(keys.iter());
        let results = results.map(|(result, key)| written(result, key)).collect();
        self.listed(py, results, |()| Ok(py.None().into_bound(py)))
    }

    /// The bytes of an object. Raises NativeError.
    #[pyo3(signature = (key, timeout=None))]
    fn get(&self, py: Python<'_>, key: KeyArg<'_>, timeout: Option<f64>) -> PyResult<Py<PyBytes>> {
        let open = self.open(py)?;
        let options = get_options(timeout)?;
        let mut made = Made::new(open.staging.size());
        let target = Target::Made(&mut made);
        let got = released(py, || open.client.get_target(key.0, target, &options));
        self.given(py, got)?;
        Ok(made
            .take()
            .unwrap_or_else(|| PyBytes::new(py, b"").unbind()))
    }

    /// As `get` for each key: a list of bytes or errors.
    #[pyo3(signature = (keys, timeout=None))]
    fn get_batch<'py>(
        &self,
        py: Python<'py>,
        keys: KeyList,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let open = self.open(py)?;
        let options = get_options(timeout)?;
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
            open.client.get_items(&mut items, &options)
        });
        let results = results.into_iter().zip(&mut made);
        let results = results.map(|(result, made)| result.map(|_| made.take()));
        self.listed(py, results.collect(), |bytes| {
            Ok(bytes
                .map_or_else(|| PyBytes::new(py, b""), |bytes| bytes.into_bound(py))
                .into_any())
        })
    }

    /// Reads an object, from `offset` on, into the front of a buffer and tells how many bytes that were.
    #[pyo3(signature = (key, buffer, offset=0, timeout=None))]
    fn get_into(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let open = self.open(py)?;
        let options = get_options(timeout)?;
        let mut view = View::of(buffer, Use::Write)?;
        let mut items = [GetItem {
            key: key.0,
            offset,
            len: u64::MAX,
            target: Target::Bytes(view.bytes_mut()),
        }];
        let got = released(py, || first(open.client.get_items(&mut items, &options)));
        Ok(self.given(py, got)?.len)
    }

    /// Reads each object into its writable buffer: a list of sizes or errors.
    #[pyo3(signature = (keys, buffers, timeout=None))]
    fn get_into_batch<'py>(
        &self,
        py: Python<'py>,
        keys: KeyList,
        buffers: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let open = self.open(py)?;
        let options = get_options(timeout)?;
        let mut views = self.views(py, &keys, buffers, Use::Write)?;
        let mut items: Vec<GetItem<'_>> = keys
            .iter()
            .zip(&mut views)
            .map(|(key, view)| GetItem::whole(key, Target::Bytes(view.bytes_mut())))
            .collect();
        let results = released(py, || open.client.get_items(&mut items, &options));
        drop(items);
        self.listed(py, results, |got| Ok(got.len.into_pyobject(py)?.into_any()))
    }

    /// Reads an object into memory of its own, which the view keeps.
    #[pyo3(signature = (key, timeout=None))]
    fn get_view(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        timeout: Option<f64>,
    ) -> PyResult<BufferHandle> {
        let open = self.open(py)?;
        let options = get_options(timeout)?;
        let mut held = Held::new(&open.staging);
        let target = Target::Made(&mut held);
        let got = released(py, || open.client.get_target(key.0, target, &options));
        self.given(py, got)?;
        Ok(held.into_handle(Format::Unsigned))
    }

    /// Whether each key is readable: a list of bool or errors.
    #[pyo3(signature = (keys, timeout=None))]
    fn exists(&self, py: Python<'_>, keys: KeyList, timeout: Option<f64>) -> PyResult<Vec<bool>> {
        let open = self.open(py)?;
        let options = ExistsOptions {
            call: call(timeout)?,
            ..ExistsOptions::default()
        };
        let results = released(py, || open.client.exists_batch(&keys.to_vec(), &options));
        results
            .into_iter()
            .map(|result| Ok(self.given(py, result)? != Presence::Absent))
            .collect()
    }

    /// Size of an object in bytes. Raises NativeError.
    #[pyo3(signature = (key, timeout=None))]
    fn size(&self, py: Python<'_>, key: KeyArg<'_>, timeout: Option<f64>) -> PyResult<u64> {
        let open = self.open(py)?;
        let options = ExistsOptions {
            call: call(timeout)?,
            ..ExistsOptions::default()
        };
        let size = released(py, || open.client.size(key.0, &options));
        self.given(py, size)
    }

    /// Removes an object. Raises NativeError.
    #[pyo3(signature = (key, force=false, timeout=None))]
    fn remove(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        force: bool,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let open = self.open(py)?;
        let options = RemoveOptions {
            call: call(timeout)?,
            leases: leases(force),
        };
        let removed = released(py, || open.client.remove(key.0, &options));
        self.given(py, removed)
    }

    /// As `remove` for each key: a list of None or errors.
    #[pyo3(signature = (keys, force=false, timeout=None))]
    fn remove_batch<'py>(
        &self,
        py: Python<'py>,
        keys: KeyList,
        force: bool,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let open = self.open(py)?;
        let options = RemoveOptions {
            call: call(timeout)?,
            leases: leases(force),
        };
        let results = released(py, || open.client.remove_batch(&keys.to_vec(), &options));
        self.listed(py, results, |()| Ok(py.None().into_bound(py)))
    }

    /// Removes all objects of the tenant: how many; leased ones stay unless forced.
    #[pyo3(signature = (force=false, timeout=None))]
    fn remove_all(&self, py: Python<'_>, force: bool, timeout: Option<f64>) -> PyResult<u64> {
        self.sweep(py, &Filter::All, force, timeout)
    }

    /// Removes the keys in which a pattern is found; as `remove_all`.
    #[pyo3(signature = (pattern, force=false, timeout=None))]
    fn remove_by_regex(
        &self,
        py: Python<'_>,
        pattern: String,
        force: bool,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        self.sweep(py, &Filter::Regex(pattern), force, timeout)
    }

    /// Removes the keys with a prefix; as `remove_all`.
    #[pyo3(signature = (prefix, force=false, timeout=None))]
    fn remove_by_prefix(
        &self,
        py: Python<'_>,
        prefix: KeyArg<'_>,
        force: bool,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        self.sweep(py, &Filter::Prefix(prefix.0.to_vec()), force, timeout)
    }

    /// A page of keys in byte order, and where the next one begins, if there is one.
    #[pyo3(signature = (prefix=None, limit=1000, cursor=None, timeout=None))]
    fn list<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<KeyArg<'py>>,
        limit: usize,
        cursor: Option<KeyArg<'py>>,
        timeout: Option<f64>,
    ) -> PyResult<(Bound<'py, PyList>, Option<Bound<'py, PyAny>>)> {
        let open = self.open(py)?;
        let options = call(timeout)?;
        let filter = match prefix {
            Some(prefix) if !prefix.0.is_empty() => Filter::Prefix(prefix.0.to_vec()),
            _ => Filter::All,
        };
        let after = cursor.map(|cursor| cursor.0);
        let page = released(py, || open.client.list(&filter, after, limit, &options));
        let page = self.given(py, page)?;
        let keys = PyList::empty(py);
        let mut last = None;
        for key in page.keys.iter() {
            let key = errors::key(py, key)?;
            keys.append(&key)?;
            last = Some(key);
        }
        Ok((keys, last.filter(|_| page.more)))
    }

    /// Makes the memory of a buffer known, so that transfers by address may use it.
    fn register(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let open = self.open(py)?;
        let view = View::of(buffer, Use::Write)?;
        let (address, len) = (view.address(), view.bytes().len() as u64);
        let done = released(py, || open.registry.register(address, len));
        self.given(py, done.map_err(Failure::from))?;
        self.registered.lock().insert(address, view);
        Ok(address)
    }

    /// Ends the registration of a buffer, after transfers under way.
    fn unregister(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let open = self.open(py)?;
        let address = View::of(buffer, Use::Read)?.address();
        let done = released(py, || {
            open.registry.unregister(address, UNREGISTER_PATIENCE)
        });
        self.given(py, done.map_err(Failure::from))?;
        let view = self.registered.lock().remove(&address);
        drop(view);
        Ok(())
    }

    /// Figures of the cluster as a dictionary.
    #[pyo3(signature = (timeout=None))]
    fn stat<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        let open = self.open(py)?;
        let options = call(timeout)?;
        let stat = released(py, || open.client.stat(&options));
        stat_dict(py, &self.given(py, stat)?)
    }

    /// What was counted so far, by name.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let open = self.open(py)?;
        let dict = PyDict::new(py);
        for (name, value) in open.client.counts().named() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}

fn stat_dict<'py>(py: Python<'py>, stat: &ClusterStat) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("term", stat.term.0)?;
    dict.set_item("objects", stat.objects)?;
    dict.set_item("bytes", stat.bytes)?;
    dict.set_item("leased", stat.leased)?;
    dict.set_item("unfinished", stat.unfinished)?;
    dict.set_item("ready", stat.ready)?;
    let nodes = PyList::empty(py);
    for node in &stat.nodes {
        let one = PyDict::new(py);
        one.set_item("id", node.place.node.to_string())?;
        one.set_item("epoch", node.place.epoch.to_string())?;
        one.set_item("data", &*node.place.address)?;
        one.set_item("host", &node.host)?;
        let state = match node.state {
            NodeState::Alive => "alive",
            NodeState::Suspect => "suspect",
            NodeState::Gone => "gone",
        };
        one.set_item("state", state)?;
        one.set_item("dram_used", node.dram_used)?;
        one.set_item("dram_capacity", node.dram_capacity)?;
        one.set_item("replicas", node.replicas)?;
        one.set_item("policy", &node.policy)?;
        nodes.append(one)?;
    }
    dict.set_item("nodes", nodes)?;
    Ok(dict)
}
