//! Failures as Python sees them: a code, a dictionary, or an exception with attributes.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use snowskin_types::{Code, Failure, Retry, Stage};

create_exception!(
    snowskin._native,
    NativeError,
    PyException,
    "A failed call, with the attributes code, name, message, key, peer, stage, retry and detail."
);

/// The number that a call of the compatible interface answers for a failure.
pub(crate) fn number(failure: &Failure) -> i32 {
    match failure.code {
        // What fits no buffer is an argument error there.
        Code::BufferOverflow | Code::InvalidRead => Code::InvalidParams.number(),
        // A node or store that is just ending cannot be reached, and that is how callers know it.
        Code::UnavailableInStatus => Code::RpcFail.number(),
        code => code.number(),
    }
}

/// As [`number`], for reads: a replica that was nowhere any more is 'no usable replica'.
pub(crate) fn read_number(failure: &Failure) -> i64 {
    match failure.code {
        Code::ReplicaGone => INVALID_REPLICA,
        _ => i64::from(number(failure)),
    }
}

/// No usable replica.
const INVALID_REPLICA: i64 = -702;

/// A refusal of arguments.
pub(crate) fn invalid(stage: Stage, message: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidParams, stage, message)
}

/// The failure of calls before the set-up, after the end, and in a forked child.
pub(crate) fn closed() -> Failure {
    invalid(
        Stage::Session,
        "the store is not set up, is closed, or belongs to the parent of this process",
    )
}

/// The stage as the contract spells it.
pub(crate) fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Reserve => "reserve",
        Stage::Write => "write",
        Stage::Publish => "publish",
        Stage::Locate => "locate",
        Stage::Read => "read",
        Stage::Verify => "verify",
        Stage::Session => "session",
    }
}

fn retry(retry: Retry) -> &'static str {
    match retry {
        Retry::Never => "never",
        Retry::Same => "same",
        Retry::OtherReplica => "other_replica",
        Retry::AfterRefresh => "after_refresh",
    }
}

/// A key: text where it is text, else bytes.
pub(crate) fn key<'py>(py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(key) {
        Ok(text) => Ok(text.into_pyobject(py)?.into_any()),
        Err(_) => Ok(PyBytes::new(py, key).into_any()),
    }
}

/// The error object of the outside contract.
pub(crate) fn dict<'py>(py: Python<'py>, failure: &Failure) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("code", failure.code.number())?;
    dict.set_item("name", failure.code.name())?;
    dict.set_item("message", &failure.message)?;
    let named = failure.key.as_ref().map(|k| key(py, k.as_bytes()));
    dict.set_item("key", named.transpose()?)?;
    dict.set_item("peer", failure.peer.as_deref())?;
    dict.set_item("stage", stage(failure.stage))?;
    dict.set_item("retry", retry(failure.code.retry()))?;
    let detail = match &failure.detail {
        Some(figures) => {
            let detail = PyDict::new(py);
            detail.set_item("wanted", figures.wanted)?;
            detail.set_item("free", figures.free)?;
            detail.set_item("largest", figures.largest)?;
            detail.set_item("leased", figures.leased)?;
            detail.set_item("pinned", figures.pinned)?;
            detail.set_item("unfinished", figures.unfinished)?;
            Some(detail)
        }
        None => None,
    };
    dict.set_item("detail", detail)?;
    Ok(dict)
}

/// The exception, not raised.
pub(crate) fn exception<'py>(py: Python<'py>, failure: &Failure) -> PyResult<Bound<'py, PyAny>> {
    let error = py.get_type::<NativeError>().call1((failure.to_string(),))?;
    for (name, value) in dict(py, failure)? {
        error.setattr(name.cast::<pyo3::types::PyString>()?, value)?;
    }
    Ok(error)
}

/// The exception, to be raised.
pub(crate) fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    match exception(py, failure) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
