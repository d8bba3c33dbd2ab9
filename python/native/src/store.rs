//! The class under the compatible store: codes instead of exceptions, in the compatible interface's order
//! of arguments and shapes of results.

use crate::answers::Config;
use crate::args::{KeyArg, KeyList, Size, SizeList, truth};
use crate::bytes::{Use, View};
use crate::calls::Rest;
use crate::config::{ReplicateConfig, Writer};
use crate::descriptors::ReplicaDescriptor;
use crate::ending::released;
use crate::errors::{self, invalid, number};
use crate::handle::BufferHandle;
use crate::open::{Open, Slot, mismatch};
use crate::ranges;
use crate::runs::Runs;
use crate::session_calls::Offsets;
use crate::settings::Settings;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use snowskin_client::ExistsOptions;
use snowskin_device::Run;
use snowskin_types::call::{Filter, PutMode};
use snowskin_types::{Code, Failure, Stage};
use std::time::Duration;

/// Unregistering waits this long for operations under way.
const UNREGISTER_PATIENCE: Duration = Duration::from_secs(4);
/// The answer for every argument error, and for a store that is not open.
pub(crate) const INVALID: i32 = Code::InvalidParams.number();

/// The byte paths of the compatible store. It is made closed; `_open` sets it up. Attributes and weak
/// references are its Python subclasses' own, which the collector of cycles sees through then.
#[pyclass(subclass, frozen, module = "snowskin._native")]
#[derive(Default)]
pub(crate) struct MooncakeStoreBase {
    pub(crate) slot: Slot,
}

fn one(address: Size, size: Size) -> Run {
    Run {
        // An address that the machine cannot have is one that is not mapped.
        address: usize::try_from(address.0).unwrap_or(usize::MAX),
        len: size.0,
    }
}

fn offsets(object: &Bound<'_, PyAny>) -> PyResult<Offsets> {
    let mut all = Vec::new();
    crate::args::each(object, |offsets| {
        all.push(offsets.extract::<SizeList>()?.0);
        Ok(())
    })?;
    Ok(all)
}

/// Whether each key has as many offsets as runs.
fn fit(keys: &KeyList, runs: &Runs, offsets: &Offsets) -> bool {
    keys.len() == runs.len()
        && keys.len() == offsets.len()
        && runs
            .iter()
            .zip(offsets)
            .all(|(runs, offsets)| runs.len() == offsets.len())
}

#[pymethods]
impl MooncakeStoreBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    // Life cycle.

    /// Sets the store up, after ending what it was before.
    fn _open(&self, py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<i32> {
        let settings = Settings::read(settings)?;
        let before = self.slot.set(None);
        let opened = released(py, || {
            if let Some(before) = before {
                before.close()?;
            }
            Open::start(settings?)
        });
        Ok(match opened {
            Ok(open) => {
                // Another thread may have been faster.
                let other = self.slot.set(Some(open));
                let closed = released(py, || other.map_or(Ok(()), |other| other.close()));
                self.code(closed)
            }
            Err(failure) => self.code(Err(failure)),
        })
    }

    /// Ends the store: 0, also again.
    fn close(&self, py: Python<'_>) -> i32 {
        let open = self.slot.set(None);
        let ended = released(py, || open.map_or(Ok(()), |open| open.close()));
        if let Err(failure) = ended {
            self.slot.note(&failure);
        }
        0
    }

    /// 0: healthy, 1: not set up or closed, 2: the master does not answer.
    fn health_check(&self, py: Python<'_>) -> i32 {
        let Some(open) = self.slot.get() else {
            return 1;
        };
        if open.watch.is_lost() {
            return 2;
        }
        match released(py, || open.watch.check(&open.client)) {
            Ok(()) => 0,
            Err(failure) => {
                self.slot.note(&failure);
                2
            }
        }
    }

    /// The effective `host:port`; empty without one.
    fn get_hostname(&self) -> String {
        self.slot
            .get()
            .map_or_else(String::new, |open| open.hostname.clone())
    }

    /// The error object of the last failed call, or None.
    fn last_error<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.slot
            .last()
            .map(|failure| errors::dict(py, &failure))
            .transpose()
    }

    /// What was counted so far, by name.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let Some(open) = self.slot.get() else {
            return Ok(dict);
        };
        for (name, value) in open.client.counts().named() {
            dict.set_item(name, value)?;
        }
        dict.set_item("exists_without_master", open.watch.answered_count())?;
        let counts = open.registry.counts();
        dict.set_item("unregistered_copies", counts.unregistered_copies)?;
        dict.set_item("device_bytes_in", counts.device_bytes_in)?;
        dict.set_item("device_bytes_out", counts.device_bytes_out)?;
        dict.set_item("device_refused", counts.refused)?;
        Ok(dict)
    }

    /// Notes a failure that the Python side found, and returns its code.
    #[pyo3(signature = (code, message, key=None, stage="session"))]
    fn _refuse(&self, code: i32, message: &str, key: Option<KeyArg<'_>>, stage: &str) -> i32 {
        let stage = match stage {
            "reserve" => Stage::Reserve,
            "write" => Stage::Write,
            "publish" => Stage::Publish,
            "locate" => Stage::Locate,
            "read" => Stage::Read,
            "verify" => Stage::Verify,
            _ => Stage::Session,
        };
        let failure = Failure::new(Code::from_number(code), stage, message);
        self.slot.note_refusal(failure, key.map(|key| key.0));
        code
    }

    /// What is open: master, hostname, tenant, and the node of this process.
    fn _describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let Some(open) = self.slot.get() else {
            return Ok(dict);
        };
        dict.set_item("master", &open.master)?;
        dict.set_item("hostname", &open.hostname)?;
        dict.set_item("tenant", open.client.tenant().as_str())?;
        let own = open.client.own_nodes();
        let own = own.first();
        dict.set_item("data", own.map(|place| &*place.address))?;
        dict.set_item("node_id", own.map(|place| place.node.to_string()))?;
        dict.set_item("epoch", own.map(|place| place.epoch.to_string()))?;
        Ok(dict)
    }

    // Values that are copied.

    /// Stores bytes under a key: 0, also when the key is taken (its data stay), or a code.
    #[pyo3(signature = (key, value, config=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        value: &Bound<'_, PyAny>,
        config: Config<'_>,
    ) -> PyResult<i32> {
        let view = View::of(value, Use::Read)?;
        Ok(self.write_one(py, key.0, &[view], &config, PutMode::IfAbsent))
    }

    /// Stores several byte strings, one after the other, as one object: 0 or a code.
    #[pyo3(signature = (key, *parts, config=None))]
    fn put_parts(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        parts: &Bound<'_, PyTuple>,
        config: Config<'_>,
    ) -> PyResult<i32> {
        self.write_parts(py, key.0, parts, &config, PutMode::IfAbsent)
    }

    /// Stores many values: 0, or the first code; the first of equal keys wins.
    #[pyo3(signature = (keys, values, config=None))]
    fn put_batch(
        &self,
        py: Python<'_>,
        keys: KeyList,
        values: &Bound<'_, PyAny>,
        config: Config<'_>,
    ) -> PyResult<i32> {
        self.write_batch(py, &keys, values, &config, PutMode::IfAbsent)
    }

    /// The bytes of an object; empty when it is missing or could not be read (`last_error()` tells).
    fn get(&self, py: Python<'_>, key: KeyArg<'_>) -> Py<PyBytes> {
        let got = match self.slot.need() {
            Ok(open) => self.read_values(py, &open, &[key.0]).pop().flatten(),
            Err(_) => None,
        };
        got.unwrap_or_else(|| PyBytes::new(py, b"").unbind())
    }

    /// As `get` for each key, in order; one empty value for no keys.
    fn get_batch(&self, py: Python<'_>, keys: KeyList) -> Vec<Py<PyBytes>> {
        let empty = || PyBytes::new(py, b"").unbind();
        let open = match self.slot.need() {
            Ok(open) if !keys.is_empty() => open,
            _ => return vec![empty()],
        };
        let got = self.read_values(py, &open, &keys.to_vec());
        got.into_iter()
            .map(|got| got.unwrap_or_else(empty))
            .collect()
    }

    /// The bytes of an object as a handle with the buffer protocol, or None.
    fn get_buffer(&self, py: Python<'_>, key: KeyArg<'_>) -> Option<BufferHandle> {
        let open = self.slot.need().ok()?;
        self.read_handles(py, &open, &[key.0]).pop().flatten()
    }

    /// As `get_buffer` for each key.
    fn batch_get_buffer(&self, py: Python<'_>, keys: KeyList) -> Vec<Option<BufferHandle>> {
        match self.slot.need() {
            Ok(open) => self.read_handles(py, &open, &keys.to_vec()),
            Err(_) => keys.iter().map(|_| None).collect(),
        }
    }

    /// Size of an object in bytes, or a code; grants a lease.
    fn get_size(&self, py: Python<'_>, key: KeyArg<'_>) -> i64 {
        let size = self
            .slot
            .need()
            .and_then(|open| released(py, || open.client.size(key.0, &ExistsOptions::default())));
        self.sizes(vec![size])
            .first()
            .copied()
            .unwrap_or(i64::from(INVALID))
    }

    /// 1: readable, and under a lease now; 0: not; else a code.
    fn is_exist(&self, py: Python<'_>, key: KeyArg<'_>) -> i32 {
        self.present(py, &[key.0])
            .first()
            .copied()
            .unwrap_or(INVALID)
    }

    /// As `is_exist` for each key.
    fn batch_is_exist(&self, py: Python<'_>, keys: KeyList) -> Vec<i32> {
        self.present(py, &keys.to_vec())
    }

    // Memory that is named by address.

    /// Registers memory by address and size in bytes: 0, or -600 when it overlaps, is empty or not mapped.
    fn register_buffer(&self, py: Python<'_>, buffer_ptr: Size, size: Size) -> i32 {
        let done = self.slot.need().and_then(|open| {
            let run = one(buffer_ptr, size);
            let done = released(py, || open.registry.register(run.address, run.len));
            done.map(drop).map_err(Failure::from)
        });
        self.code(done)
    }

    /// Ends a registration by its first address, after transfers under way: 0 or -600.
    fn unregister_buffer(&self, py: Python<'_>, buffer_ptr: Size) -> i32 {
        let done = self.slot.need().and_then(|open| {
            let run = one(buffer_ptr, Size(0));
            let done = released(py, || {
                open.registry.unregister(run.address, UNREGISTER_PATIENCE)
            });
            // Also one that is still in use is an argument error here; the message tells.
            done.map_err(|error| invalid(Stage::Session, error.to_string()))
        });
        self.code(done)
    }

    /// Stores `size` bytes at an address: 0 (also for no bytes, which stores nothing) or a code.
    #[pyo3(signature = (key, buffer_ptr, size, config=None))]
    fn put_from(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        buffer_ptr: Size,
        size: Size,
        config: Config<'_>,
    ) -> i32 {
        let runs = [one(buffer_ptr, size)];
        let done = self.write_from(py, key.0, &runs, &config, PutMode::IfAbsent);
        self.code(done)
    }

    /// As `put_from` for each key: a list of 0 or codes.
    #[pyo3(signature = (keys, buffer_ptrs, sizes, config=None))]
    fn batch_put_from(
        &self,
        py: Python<'_>,
        keys: KeyList,
        buffer_ptrs: SizeList,
        sizes: SizeList,
        config: Config<'_>,
    ) -> Vec<i32> {
        match Runs::single(&buffer_ptrs.0, &sizes.0) {
            Ok(runs) if runs.len() == keys.len() => {
                self.write_runs(py, &keys, &runs, &config, Writer::Plain, PutMode::IfAbsent)
            }
            _ => self.refuse(keys.len(), &mismatch()),
        }
    }

    /// Stores metadata and then data as one object. Failures of the store are positive numbers here.
    #[pyo3(signature = (key, buffer_ptr, metadata_buffer_ptr, size, metadata_size, config=None))]
    #[allow(
        clippy::too_many_arguments,
        reason = "the compatible interface has them"
    )]
    fn put_from_with_metadata(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        buffer_ptr: Size,
        metadata_buffer_ptr: Size,
        size: Size,
        metadata_size: Size,
        config: Config<'_>,
    ) -> i32 {
        if let Err(failure) = self.slot.need() {
            return number(&failure);
        }
        let runs = [
            one(metadata_buffer_ptr, metadata_size),
            one(buffer_ptr, size),
        ];
        if runs.iter().any(|run| run.address == 0) {
            let text = "a buffer's address is zero";
            self.slot.note(&invalid(Stage::Write, text));
            return Code::Internal.number();
        }
        match self.write_from(py, key.0, &runs, &config, PutMode::IfAbsent) {
            Ok(()) => 0,
            Err(failure) => -self.code(Err(failure)),
        }
    }

    /// Reads an object to an address with room for `size` bytes: the bytes read, or a code.
    fn get_into(&self, py: Python<'_>, key: KeyArg<'_>, buffer_ptr: Size, size: Size) -> i64 {
        let runs = [one(buffer_ptr, size)];
        let results = match self.slot.need() {
            Ok(open) => {
                let runs = std::iter::once(runs.as_slice());
                released(py, || open.get_runs(&[key.0], runs, Rest::Allowed))
            }
            Err(failure) => vec![Err(failure)],
        };
        self.sizes(results)
            .first()
            .copied()
            .unwrap_or(i64::from(INVALID))
    }

    /// As `get_into` for each key: a list of sizes or codes.
    fn batch_get_into(
        &self,
        py: Python<'_>,
        keys: KeyList,
        buffer_ptrs: SizeList,
        sizes: SizeList,
    ) -> Vec<i64> {
        match Runs::single(&buffer_ptrs.0, &sizes.0) {
            Ok(runs) if runs.len() == keys.len() => self.read_runs(py, &keys, &runs, Rest::Allowed),
            _ => self.refuse_sizes(keys.len(), &mismatch()),
        }
    }

    /// Reads many ranges of many objects into many registered buffers.
    fn get_into_ranges(
        &self,
        py: Python<'_>,
        buffer_ptrs: SizeList,
        all_keys: &Bound<'_, PyAny>,
        all_dst_offsets: &Bound<'_, PyAny>,
        all_src_offsets: &Bound<'_, PyAny>,
        all_sizes: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Vec<Vec<i64>>>> {
        let asked = ranges::Asked::read(
            buffer_ptrs.0,
            all_keys,
            all_dst_offsets,
            all_src_offsets,
            all_sizes,
        )?;
        let (results, failure) = match self.slot.need() {
            Ok(open) => released(py, || asked.carry_out(&open)),
            Err(failure) => (asked.refused(), Some(failure)),
        };
        failure.inspect(|failure| self.slot.note(failure));
        Ok(results)
    }

    /// Stores, per key, the concatenation of runs of memory: a list of 0 or codes.
    #[pyo3(signature = (keys, all_buffer_ptrs, all_sizes, config=None))]
    fn batch_put_from_multi_buffers(
        &self,
        py: Python<'_>,
        keys: KeyList,
        all_buffer_ptrs: &Bound<'_, PyAny>,
        all_sizes: &Bound<'_, PyAny>,
        config: Config<'_>,
    ) -> PyResult<Vec<i32>> {
        let runs = Runs::read(all_buffer_ptrs, all_sizes)?;
        if self.slot.need().is_err() {
            return Ok(Vec::new());
        }
        Ok(match runs {
            Ok(runs) if runs.len() == keys.len() => self.write_runs(
                py,
                &keys,
                &runs,
                &config,
                Writer::Buffers,
                PutMode::IfAbsent,
            ),
            _ => self.refuse(keys.len(), &mismatch()),
        })
    }

    /// Reads each object into its buffers, in order. The flag is a wish about transfers.
    #[pyo3(signature = (keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node=false))]
    fn batch_get_into_multi_buffers(
        &self,
        py: Python<'_>,
        keys: KeyList,
        all_buffer_ptrs: &Bound<'_, PyAny>,
        all_sizes: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = truth)] prefer_alloc_in_same_node: bool,
    ) -> PyResult<Vec<i64>> {
        // Transfers are merged by node in any case.
        let _ = prefer_alloc_in_same_node;
        Ok(match Runs::read(all_buffer_ptrs, all_sizes)? {
            Ok(runs) if runs.len() == keys.len() => self.read_runs(py, &keys, &runs, Rest::Refused),
            _ => self.refuse_sizes(keys.len(), &mismatch()),
        })
    }

    // Sessions.

    /// Begins writing objects of known sizes in pieces: a list of 0 or codes.
    #[pyo3(signature = (keys, sizes, config=None))]
    fn batch_put_session_start(
        &self,
        py: Python<'_>,
        keys: KeyList,
        sizes: SizeList,
        config: Config<'_>,
    ) -> Vec<i32> {
        let Ok(open) = self.slot.need() else {
            return Vec::new();
        };
        if keys.len() != sizes.0.len() {
            return self.refuse(keys.len(), &mismatch());
        }
        let mode = PutMode::IfAbsent;
        match ReplicateConfig::policy(config.as_deref(), keys.len(), Writer::Buffers, mode) {
            Ok(policy) => {
                let results = released(py, || open.start_puts(&keys.to_vec(), &sizes.0, policy));
                self.codes(results)
            }
            Err(failure) => self.refuse(keys.len(), &failure),
        }
    }

    /// Writes runs of memory to offsets of objects being written: bytes or codes per key.
    fn batch_put_from_multi_buffer_ranges(
        &self,
        py: Python<'_>,
        keys: KeyList,
        all_buffer_ptrs: &Bound<'_, PyAny>,
        all_sizes: &Bound<'_, PyAny>,
        all_dst_offsets: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<i64>> {
        let runs = Runs::read(all_buffer_ptrs, all_sizes)?;
        let offsets = offsets(all_dst_offsets)?;
        let Ok(open) = self.slot.need() else {
            return Ok(Vec::new());
        };
        Ok(match runs {
            Ok(runs) if fit(&keys, &runs, &offsets) => {
                let results = released(py, || open.write_puts(&keys.to_vec(), &runs, &offsets));
                self.sizes(results)
            }
            _ => self.refuse_sizes(keys.len(), &mismatch()),
        })
    }

    /// Stores what was written and ends the sessions: a list of 0 or codes.
    fn batch_put_session_end(&self, py: Python<'_>, keys: KeyList) -> Vec<i32> {
        match self.slot.need() {
            Ok(open) => {
                let results = released(py, || open.end_puts(&keys.to_vec()));
                self.codes(results)
            }
            Err(_) => Vec::new(),
        }
    }

    /// Drops what was written: a list of 0 or codes.
    fn batch_put_session_revoke(&self, py: Python<'_>, keys: KeyList) -> Vec<i32> {
        match self.slot.need() {
            Ok(open) => {
                let results = released(py, || open.revoke_puts(&keys.to_vec()));
                self.codes(results)
            }
            Err(_) => Vec::new(),
        }
    }

    /// Begins reading objects in pieces and keeps them under a lease: a list of 0 or codes.
    fn batch_get_session_start(&self, py: Python<'_>, keys: KeyList) -> Vec<i64> {
        match self.slot.need() {
            Ok(open) => {
                let results = released(py, || open.start_gets(&keys.to_vec()));
                let results = results.into_iter().map(|result| result.map(|()| 0));
                self.sizes(results.collect())
            }
            Err(_) => Vec::new(),
        }
    }

    /// Reads ranges of objects into runs of memory: bytes or codes per key.
    fn batch_get_into_multi_buffer_ranges(
        &self,
        py: Python<'_>,
        keys: KeyList,
        all_buffer_ptrs: &Bound<'_, PyAny>,
        all_sizes: &Bound<'_, PyAny>,
        all_src_offsets: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<i64>> {
        let runs = Runs::read(all_buffer_ptrs, all_sizes)?;
        let offsets = offsets(all_src_offsets)?;
        let Ok(open) = self.slot.need() else {
            return Ok(Vec::new());
        };
        Ok(match runs {
            Ok(runs) if fit(&keys, &runs, &offsets) => {
                let results = released(py, || open.read_gets(&keys.to_vec(), &runs, &offsets));
                self.sizes(results)
            }
            _ => self.refuse_sizes(keys.len(), &mismatch()),
        })
    }

    /// Ends reading: 0.
    fn batch_get_session_end(&self, py: Python<'_>, keys: KeyList) -> i32 {
        match self.slot.need() {
            Ok(open) => {
                released(py, || open.end_gets(&keys.to_vec()));
                0
            }
            Err(_) => Code::Internal.number(),
        }
    }

    // Insert or overwrite.

    /// Stores bytes under a key in place of what is there: 0 or a code.
    #[pyo3(signature = (key, value, config=None))]
    fn upsert(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        value: &Bound<'_, PyAny>,
        config: Config<'_>,
    ) -> PyResult<i32> {
        let view = View::of(value, Use::Read)?;
        Ok(self.write_one(py, key.0, &[view], &config, PutMode::Replace))
    }

    /// As `put_parts`, in place of what is there.
    #[pyo3(signature = (key, *parts, config=None))]
    fn upsert_parts(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        parts: &Bound<'_, PyTuple>,
        config: Config<'_>,
    ) -> PyResult<i32> {
        self.write_parts(py, key.0, parts, &config, PutMode::Replace)
    }

    /// As `put_batch`, in place of what is there.
    #[pyo3(signature = (keys, values, config=None))]
    fn upsert_batch(
        &self,
        py: Python<'_>,
        keys: KeyList,
        values: &Bound<'_, PyAny>,
        config: Config<'_>,
    ) -> PyResult<i32> {
        self.write_batch(py, &keys, values, &config, PutMode::Replace)
    }

    /// As `put_from`, in place of what is there.
    #[pyo3(signature = (key, buffer_ptr, size, config=None))]
    fn upsert_from(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        buffer_ptr: Size,
        size: Size,
        config: Config<'_>,
    ) -> i32 {
        let runs = [one(buffer_ptr, size)];
        let done = self.write_from(py, key.0, &runs, &config, PutMode::Replace);
        self.code(done)
    }

    /// As `upsert_from` for each key: a list of 0 or codes.
    #[pyo3(signature = (keys, buffer_ptrs, sizes, config=None))]
    fn batch_upsert_from(
        &self,
        py: Python<'_>,
        keys: KeyList,
        buffer_ptrs: SizeList,
        sizes: SizeList,
        config: Config<'_>,
    ) -> Vec<i32> {
        match Runs::single(&buffer_ptrs.0, &sizes.0) {
            Ok(runs) if runs.len() == keys.len() => {
                self.write_runs(py, &keys, &runs, &config, Writer::Plain, PutMode::Replace)
            }
            _ => self.refuse(keys.len(), &mismatch()),
        }
    }

    // Removal.

    /// Removes an object: 0, -704 when missing, -706 under a lease unless forced.
    #[pyo3(signature = (key, force=false))]
    fn remove(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
        #[pyo3(from_py_with = truth)] force: bool,
    ) -> i32 {
        self.removed(py, &[key.0], force)
            .first()
            .copied()
            .unwrap_or(INVALID)
    }

    /// As `remove` for each key.
    #[pyo3(signature = (keys, force=false))]
    fn batch_remove(
        &self,
        py: Python<'_>,
        keys: KeyList,
        #[pyo3(from_py_with = truth)] force: bool,
    ) -> Vec<i32> {
        self.removed(py, &keys.to_vec(), force)
    }

    /// Removes what a pattern finds in its key: how many, or a code; leased ones stay unless forced.
    #[pyo3(signature = (regex_pattern, force=false))]
    fn remove_by_regex(
        &self,
        py: Python<'_>,
        regex_pattern: KeyArg<'_>,
        #[pyo3(from_py_with = truth)] force: bool,
    ) -> i64 {
        match std::str::from_utf8(regex_pattern.0) {
            Ok(pattern) => self.swept(py, &Filter::Regex(pattern.to_owned()), force),
            Err(_) => {
                let failure = invalid(Stage::Session, "the pattern is not UTF-8");
                i64::from(self.code(Err(failure)))
            }
        }
    }

    /// Removes all objects of the tenant: how many, or a code; leased ones stay unless forced.
    #[pyo3(signature = (force=false))]
    fn remove_all(&self, py: Python<'_>, #[pyo3(from_py_with = truth)] force: bool) -> i64 {
        self.swept(py, &Filter::All, force)
    }

    // Where objects are.

    /// Where the replicas of an object are: a list, empty when it is missing.
    fn get_replica_desc(
        &self,
        py: Python<'_>,
        key: KeyArg<'_>,
    ) -> PyResult<Vec<ReplicaDescriptor>> {
        let Ok(open) = self.slot.need() else {
            return Ok(Vec::new());
        };
        let keys = [key.0];
        let found = released(py, || {
            open.client.find_batch(&keys, &ExistsOptions::default())
        });
        match found.first() {
            Some(Ok(found)) => ReplicaDescriptor::all(py, found),
            Some(Err(failure)) => {
                self.slot.note(failure);
                Ok(Vec::new())
            }
            None => Ok(Vec::new()),
        }
    }

    /// As `get_replica_desc`: a dictionary by key without the missing ones.
    fn batch_get_replica_desc<'py>(
        &self,
        py: Python<'py>,
        keys: KeyList,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let Ok(open) = self.slot.need() else {
            return Ok(dict);
        };
        let keys = keys.to_vec();
        let found = released(py, || {
            open.client.find_batch(&keys, &ExistsOptions::default())
        });
        for (key, found) in keys.iter().zip(&found) {
            match found {
                Ok(found) => {
                    dict.set_item(errors::key(py, key)?, ReplicaDescriptor::all(py, found)?)?;
                }
                Err(failure) => self.slot.note(failure),
            }
        }
        Ok(dict)
    }
}
