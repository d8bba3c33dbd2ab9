//! The classes of the transfer engine.

use pyo3::prelude::*;
use snowskin_device::Registry;

/// What a store shares with a transfer engine.
#[pyclass(frozen, module = "snowskin._native")]
pub(crate) struct InnerTransferEngine {
    registry: Registry,
}

impl InnerTransferEngine {
    /// The table of registered memory.
    pub(crate) fn registry(&self) -> Registry {
        self.registry.clone()
    }
}

/// Adds the classes.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<InnerTransferEngine>()
}
