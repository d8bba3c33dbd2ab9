//! The policy of a write, as Python sets it.

use crate::args::{KeyArg, Size};
use crate::enums::{ObjectDataType, SoftPinAction};
use crate::errors::invalid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use snowskin_client::PutOptions;
use snowskin_types::call::PutMode;
use snowskin_types::limits::REPLICAS_MAX;
use snowskin_types::object::Attributes;
use snowskin_types::{Code, Failure, Millis, Stage};
use std::sync::Arc;

/// Soft pins last this long unless told otherwise.
const SOFT_PIN: Millis = Millis(1_800_000);
/// No soft pin lasts longer.
const SOFT_PIN_MAX: Millis = Millis(86_400_000);

/// Names, from a list of `str`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Names(Vec<String>);

impl<'py> FromPyObject<'_, 'py> for Names {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut names = Vec::new();
        crate::args::each(&object, |name| {
            let KeyArg(bytes) = name.extract()?;
            let text = std::str::from_utf8(bytes)
                .map_err(|_| PyTypeError::new_err("a name must be UTF-8"))?;
            names.push(text.to_owned());
            Ok(())
        })?;
        Ok(Names(names))
    }
}

/// A boolean, from `bool` or an object with a truth value of its own, but no text.
#[derive(Debug, Clone, Copy)]
struct Flag(bool);

impl<'py> FromPyObject<'_, 'py> for Flag {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(flag) = object.cast::<PyBool>() {
            return Ok(Flag(flag.is_true()));
        }
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("a bool is needed, not str"));
        }
        object.is_truthy().map(Flag)
    }
}

/// Per-write policy: how many copies, where, pinned or not, in which group.
#[pyclass(module = "snowskin._native")]
#[derive(Debug, Clone)]
pub(crate) struct ReplicateConfig {
    replica_num: u64,
    nof_replica_num: u64,
    dfs_replica_num: u64,
    soft_pin_action: u32,
    soft_pin_ttl_ms: Option<u64>,
    with_hard_pin: bool,
    preferred_segments: Names,
    preferred_segment: String,
    preferred_nof_segments: Names,
    prefer_alloc_in_same_node: bool,
    data_type: u32,
    group_ids: Option<Names>,
    session_ids: Option<Names>,
}

impl Default for ReplicateConfig {
    fn default() -> Self {
        ReplicateConfig {
            replica_num: 1,
            nof_replica_num: 0,
            dfs_replica_num: 0,
            soft_pin_action: 0,
            soft_pin_ttl_ms: None,
            with_hard_pin: false,
            preferred_segments: Names::default(),
            preferred_segment: String::new(),
            preferred_nof_segments: Names::default(),
            prefer_alloc_in_same_node: false,
            data_type: 0,
            group_ids: None,
            session_ids: None,
        }
    }
}

/// The policy of one call: options, and wished segments, whose nodes have yet to be found.
pub(crate) struct Policy {
    pub(crate) options: PutOptions,
    pub(crate) preferred: Vec<String>,
}

/// Which kind of call writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Values or single buffers.
    Plain,
    /// Several buffers per key, which may ask for all keys on one node.
    Buffers,
}

impl ReplicateConfig {
    /// The policy for a call over `keys` keys.
    ///
    /// # Errors
    /// As [`ReplicateConfig::options`].
    pub(crate) fn policy(
        config: Option<&Self>,
        keys: usize,
        writer: Writer,
        mode: PutMode,
    ) -> Result<Policy, Failure> {
        let Some(config) = config else {
            let options = PutOptions {
                mode,
                ..PutOptions::default()
            };
            return Ok(Policy {
                options,
                preferred: Vec::new(),
            });
        };
        let mut options = config.options(keys, writer, mode)?;
        options.groups = config.groups();
        Ok(Policy {
            options,
            preferred: config.preferred(),
        })
    }

    /// What can be said without asking anybody.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for what no write may ask for, `NOT_SUPPORTED` for what this pool has not.
    fn options(&self, keys: usize, writer: Writer, mode: PutMode) -> Result<PutOptions, Failure> {
        let refuse = |text: &str| Err(invalid(Stage::Reserve, text));
        if self.replica_num == 0 && self.nof_replica_num == 0 && self.dfs_replica_num == 0 {
            return refuse("replica_num is 0; at least one replica is needed");
        }
        if self.nof_replica_num > 0 {
            return refuse("nof_replica_num must be 0: there are no NVMe-oF replicas");
        }
        match self.dfs_replica_num {
            0 => {}
            1 if self.replica_num > 0 => {
                let text = "dfs_replica_num must be 0: there are no DFS replicas";
                return Err(Failure::new(Code::NotSupported, Stage::Reserve, text));
            }
            _ => return refuse("dfs_replica_num is at most 1, beside at least 1 memory replica"),
        }
        let soft_pin = self.soft_pin()?;
        if self.prefer_alloc_in_same_node {
            if writer == Writer::Plain {
                return refuse(
                    "prefer_alloc_in_same_node is for batch_put_from_multi_buffers only",
                );
            }
            if self.replica_num != 1 {
                return refuse("prefer_alloc_in_same_node needs replica_num = 1");
            }
        }
        if let Some(groups) = &self.group_ids
            && groups.0.len() != keys
        {
            let text = format!("group_ids has {} names for {keys} keys", groups.0.len());
            return Err(invalid(Stage::Reserve, text));
        }
        let most = REPLICAS_MAX as u64;
        Ok(PutOptions {
            mode,
            // Not more than the limit, which fits; what cannot be had is best effort.
            replicas: self.replica_num.min(most) as u32,
            attributes: Attributes {
                hard_pin: self.with_hard_pin,
                soft_pin,
                group: None,
                data_type: self.data_type,
            },
            ..PutOptions::default()
        })
    }

    fn soft_pin(&self) -> Result<Option<Millis>, Failure> {
        const ENABLE: u32 = 1;
        match (self.soft_pin_action, self.soft_pin_ttl_ms) {
            (ENABLE, None) => Ok(Some(SOFT_PIN)),
            (ENABLE, Some(ttl)) if ttl <= SOFT_PIN_MAX.0 => Ok(Some(Millis(ttl))),
            (ENABLE, Some(ttl)) => Err(invalid(
                Stage::Reserve,
                format!(
                    "soft_pin_ttl_ms is {ttl}; allowed are at most {}",
                    SOFT_PIN_MAX.0
                ),
            )),
            (_, Some(_)) => Err(invalid(
                Stage::Reserve,
                "soft_pin_ttl_ms is only for soft_pin_action = ENABLE",
            )),
            (_, None) => Ok(None),
        }
    }

    /// Groups by key; none when no key is in one.
    fn groups(&self) -> Vec<Option<Arc<str>>> {
        let Some(groups) = &self.group_ids else {
            return Vec::new();
        };
        if groups.0.iter().all(String::is_empty) {
            return Vec::new();
        }
        let group = |name: &String| (!name.is_empty()).then(|| Arc::from(name.as_str()));
        groups.0.iter().map(group).collect()
    }

    /// Names of wished segments, best first.
    fn preferred(&self) -> Vec<String> {
        if self.preferred_segment.is_empty() {
            self.preferred_segments.0.clone()
        } else {
            vec![self.preferred_segment.clone()]
        }
    }
}

#[pymethods]
impl ReplicateConfig {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Memory replicas wanted; as many as can be placed are made.
    #[getter]
    fn get_replica_num(&self) -> u64 {
        self.replica_num
    }
    #[setter]
    fn set_replica_num(&mut self, value: Size) {
        self.replica_num = value.0;
    }
    /// NVMe-oF replicas wanted; there are none here.
    #[getter]
    fn get_nof_replica_num(&self) -> u64 {
        self.nof_replica_num
    }
    #[setter]
    fn set_nof_replica_num(&mut self, value: Size) {
        self.nof_replica_num = value.0;
    }
    /// Replicas in a distributed file system wanted; there are none here.
    #[getter]
    fn get_dfs_replica_num(&self) -> u64 {
        self.dfs_replica_num
    }
    #[setter]
    fn set_dfs_replica_num(&mut self, value: Size) {
        self.dfs_replica_num = value.0;
    }
    /// What happens to the soft pin.
    #[getter]
    fn get_soft_pin_action(&self) -> SoftPinAction {
        SoftPinAction(self.soft_pin_action)
    }
    #[setter]
    fn set_soft_pin_action(&mut self, value: PyRef<'_, SoftPinAction>) {
        self.soft_pin_action = value.0;
    }
    /// How long a soft pin lasts, in ms; only with ENABLE.
    #[getter]
    fn get_soft_pin_ttl_ms(&self) -> Option<u64> {
        self.soft_pin_ttl_ms
    }
    #[setter]
    fn set_soft_pin_ttl_ms(&mut self, value: Option<Size>) {
        self.soft_pin_ttl_ms = value.map(|size| size.0);
    }
    /// Never evicted.
    #[getter]
    fn get_with_hard_pin(&self) -> bool {
        self.with_hard_pin
    }
    #[setter]
    fn set_with_hard_pin(&mut self, value: Flag) {
        self.with_hard_pin = value.0;
    }
    /// Names of wished segments, in order.
    #[getter]
    fn get_preferred_segments(&self) -> Vec<String> {
        self.preferred_segments.0.clone()
    }
    #[setter]
    fn set_preferred_segments(&mut self, value: Names) {
        self.preferred_segments = value;
    }
    /// Name of the wished segment; before the list.
    #[getter]
    fn get_preferred_segment(&self) -> &str {
        &self.preferred_segment
    }
    #[setter]
    fn set_preferred_segment(&mut self, value: String) {
        self.preferred_segment = value;
    }
    /// Wished NVMe-oF segments; there are none here.
    #[getter]
    fn get_preferred_nof_segments(&self) -> Vec<String> {
        self.preferred_nof_segments.0.clone()
    }
    #[setter]
    fn set_preferred_nof_segments(&mut self, value: Names) {
        self.preferred_nof_segments = value;
    }
    /// Keep the objects of a multi-buffer batch on one node.
    #[getter]
    fn get_prefer_alloc_in_same_node(&self) -> bool {
        self.prefer_alloc_in_same_node
    }
    #[setter]
    fn set_prefer_alloc_in_same_node(&mut self, value: Flag) {
        self.prefer_alloc_in_same_node = value.0;
    }
    /// What kind of data it is; kept, without effect.
    #[getter]
    fn get_data_type(&self) -> ObjectDataType {
        ObjectDataType(self.data_type)
    }
    #[setter]
    fn set_data_type(&mut self, value: PyRef<'_, ObjectDataType>) {
        self.data_type = value.0;
    }
    /// One group name per key of the call, or None.
    #[getter]
    fn get_group_ids(&self) -> Option<Vec<String>> {
        self.group_ids.as_ref().map(|names| names.0.clone())
    }
    #[setter]
    fn set_group_ids(&mut self, value: Option<Names>) {
        self.group_ids = value;
    }
    /// Accepted for callers that tag their writes; without effect.
    #[getter]
    fn get_session_ids(&self) -> Option<Vec<String>> {
        self.session_ids.as_ref().map(|names| names.0.clone())
    }
    #[setter]
    fn set_session_ids(&mut self, value: Option<Names>) {
        self.session_ids = value;
    }

    fn __str__(&self) -> String {
        use std::fmt::Write;
        let mut text = format!(
            "ReplicateConfig: {{ replica_num: {}, nof_replica_num: {}, dfs_replica_num: {}",
            self.replica_num, self.nof_replica_num, self.dfs_replica_num,
        );
        let ttl = self.soft_pin_ttl_ms.map(|ttl| ttl.to_string());
        let ttl = ttl.as_deref().unwrap_or("default");
        let action = SoftPinAction(self.soft_pin_action).name_of();
        let kind = ObjectDataType(self.data_type).name_of();
        let list = |names: &Names| names.0.join(", ");
        let mut add = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string cannot fail.
            write!(text, ", {name}: {value}").ok();
        };
        add("soft_pin_action", &action);
        add("soft_pin_ttl_ms", &ttl);
        add("with_hard_pin", &u8::from(self.with_hard_pin));
        let preferred = list(&self.preferred_segments);
        add("preferred_segments", &format_args!("[{preferred}]"));
        if !self.preferred_segment.is_empty() {
            add("preferred_segment", &self.preferred_segment);
        }
        let preferred = list(&self.preferred_nof_segments);
        add("preferred_nof_segments", &format_args!("[{preferred}]"));
        let same = u8::from(self.prefer_alloc_in_same_node);
        add("prefer_alloc_in_same_node", &same);
        add("data_type", &kind);
        if let Some(groups) = &self.group_ids {
            add("group_ids", &format_args!("[{}]", list(groups)));
        }
        if let Some(sessions) = &self.session_ids {
            add("session_ids", &format_args!("[{}]", list(sessions)));
        }
        text.push_str(" }");
        text
    }
}
