//! The Python module `snowskin._native`: arguments in, calls without the interpreter, results out.
//!
//! Owns: conversions between Python objects and the client's and engine's calls. Must never: decide
//! anything about keys, bytes or memory itself, hold the interpreter while it waits, or raise where the
//! compatible interface answers a code. docs/design/python.md says what stands where.

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
