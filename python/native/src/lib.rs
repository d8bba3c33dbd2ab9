//! The Python module `snowskin._native`: arguments in, calls without the interpreter, results out.
//!
//! Owns: conversions between Python objects and the client's and engine's calls. Must never: decide
//! anything about keys, bytes or memory itself, hold the interpreter while it waits, or raise where the
//! compatible interface answers a code. docs/design/python.md says what stands where; start reading at
//! `store`, then `answers` (results into codes), `calls` (what runs without the interpreter) and `open`
//! (what a store consists of).

mod allocator;
mod answers;
mod args;
#[allow(
    unsafe_code,
    reason = "the buffer protocol, and bytes that are filled in place"
)]
mod bytes;
mod calls;
mod config;
mod descriptors;
mod ending;
mod engine;
mod enums;
mod errors;
#[allow(unsafe_code, reason = "the buffer protocol")]
mod handle;
mod open;
mod pool;
mod ranges;
mod runs;
mod segments;
mod session_calls;
mod sessions;
mod settings;
mod start;
mod store;
mod watch;

use pyo3::prelude::*;

/// Ends every store that is still open. Called at the end of the interpreter, and not before: threads that
/// are in calls do not come back from them any more.
#[pyfunction]
fn _close_all(py: Python<'_>) {
    ending::begin(py, open::close_all);
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    ending::begin_life();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NativeError", py.get_type::<errors::NativeError>())?;
    enums::register(module)?;
    module.add_class::<config::ReplicateConfig>()?;
    module.add_class::<descriptors::Descriptor>()?;
    module.add_class::<descriptors::MemoryDescriptor>()?;
    module.add_class::<descriptors::DiskDescriptor>()?;
    module.add_class::<descriptors::ReplicaDescriptor>()?;
    module.add_class::<descriptors::QueryTaskResponse>()?;
    module.add_class::<allocator::MooncakeHostMemAllocator>()?;
    module.add_class::<handle::BufferHandle>()?;
    module.add_class::<store::MooncakeStoreBase>()?;
    module.add_class::<pool::Pool>()?;
    engine::register(module)?;
    let close_all = wrap_pyfunction!(_close_all, module)?;
    module.add_function(close_all.clone())?;
    // Stores end before the interpreter does, while their threads can still be joined.
    py.import("atexit")?
        .call_method1("register", (close_all,))?;
    Ok(())
}
