//! Where replicas are, as Python reads it, and answers about tasks.

use crate::enums::{ReplicaStatus, TaskStatus, TaskType};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use snowskin_client::Found;
use snowskin_types::object::{Place, Tier};

/// A run of memory at a node.
#[pyclass(module = "snowskin._native", get_all, set_all)]
#[derive(Debug, Clone, Default)]
pub(crate) struct Descriptor {
    size: u64,
    buffer_address: u64,
    transport_endpoint: String,
}

#[pymethods]
impl Descriptor {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __repr__(&self) -> String {
        format!(
            "<Descriptor size={} buffer_address={} transport_endpoint={}>",
            self.size, self.buffer_address, self.transport_endpoint
        )
    }
}

/// A replica in memory.
#[pyclass(module = "snowskin._native", get_all, set_all)]
#[derive(Debug)]
pub(crate) struct MemoryDescriptor {
    buffer_descriptor: Py<Descriptor>,
}

/// A replica on a disk.
#[pyclass(module = "snowskin._native", get_all, set_all)]
#[derive(Debug, Clone)]
pub(crate) struct DiskDescriptor {
    file_path: String,
    object_size: u64,
}

/// One replica of an object.
#[pyclass(frozen, module = "snowskin._native")]
#[derive(Debug)]
pub(crate) struct ReplicaDescriptor {
    memory: Option<Py<MemoryDescriptor>>,
}

impl ReplicaDescriptor {
    /// The replicas of an object.
    pub(crate) fn all(py: Python<'_>, found: &Found) -> PyResult<Vec<Self>> {
        let replica = |(place, tier): &(Place, Tier)| {
            if *tier != Tier::Dram {
                return Ok(ReplicaDescriptor { memory: None });
            }
            let descriptor = Descriptor {
                size: found.shape.size,
                // Only its owner knows where in its memory a replica lies.
                buffer_address: 0,
                transport_endpoint: place.address.to_string(),
            };
            let memory = MemoryDescriptor {
                buffer_descriptor: Py::new(py, descriptor)?,
            };
            Ok(ReplicaDescriptor {
                memory: Some(Py::new(py, memory)?),
            })
        };
        found.replicas.iter().map(replica).collect()
    }
}

#[pymethods]
impl ReplicaDescriptor {
    /// Only readable replicas are told.
    #[getter]
    fn status(&self) -> ReplicaStatus {
        const COMPLETE: u32 = 3;
        ReplicaStatus(COMPLETE)
    }

    fn is_memory_replica(&self) -> bool {
        self.memory.is_some()
    }

    fn is_disk_replica(&self) -> bool {
        false
    }

    fn is_local_disk_replica(&self) -> bool {
        self.memory.is_none()
    }

    fn get_memory_descriptor(&self, py: Python<'_>) -> PyResult<Py<MemoryDescriptor>> {
        let memory = self.memory.as_ref().map(|memory| memory.clone_ref(py));
        memory.ok_or_else(|| PyRuntimeError::new_err("this replica is not in memory"))
    }

    fn get_disk_descriptor(&self) -> PyResult<DiskDescriptor> {
        Err(PyRuntimeError::new_err(
            "this replica is not a file of a shared disk",
        ))
    }
}

/// The answer to a question about a task.
#[pyclass(frozen, module = "snowskin._native", get_all)]
pub(crate) struct QueryTaskResponse {
    id: (u64, u64),
    r#type: TaskType,
    status: TaskStatus,
    created_at_ms_epoch: i64,
    last_updated_at_ms_epoch: i64,
    assigned_client: (u64, u64),
    message: String,
}

#[pymethods]
impl QueryTaskResponse {
    #[new]
    fn new() -> Self {
        QueryTaskResponse {
            id: (0, 0),
            r#type: TaskType(0),
            status: TaskStatus(0),
            created_at_ms_epoch: 0,
            last_updated_at_ms_epoch: 0,
            assigned_client: (0, 0),
            message: String::new(),
        }
    }
}
