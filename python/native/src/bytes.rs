//! Bytes of Python objects: borrowed from exporters of the buffer protocol, and `bytes` that are made
//! to measure and filled in place.
//!
//! The only room with `unsafe` besides the exporting side in `handle`.

use crate::errors::invalid;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyErr, ffi};
use snowskin_client::Room;
use snowskin_types::{Code, Failure, Stage};
use std::ptr::NonNull;

/// Whether a view is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// The bytes of an object, which stay where they are until the view is dropped.
pub(crate) struct View {
    raw: Box<ffi::Py_buffer>,
    /// Bytes in C order of an exporter that has them elsewise.
    copy: Option<Vec<u8>>,
}

// SAFETY: the exporter promises that the bytes stay in place while the view lives, on any thread; the
// view is released with the interpreter held.
unsafe impl Send for View {}
// SAFETY: as above; shared access only reads the fields.
unsafe impl Sync for View {}

impl View {
    /// Borrows the bytes of an object.
    ///
    /// # Errors
    /// `TypeError` when it exports none, or none that may be written.
    pub(crate) fn of(object: &Bound<'_, PyAny>, usage: Use) -> PyResult<Self> {
        let py = object.py();
        let flags = match usage {
            Use::Read => ffi::PyBUF_FULL_RO,
            Use::Write => ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_WRITABLE,
        };
        let mut raw = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object lives, and the structure is released exactly once, by `drop`.
        let got = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, flags) };
        if got != 0 {
            let cause = PyErr::fetch(py);
            let name = object.get_type().name()?;
            let text = match usage {
                Use::Read => format!("a bytes-like object is needed, not {name}"),
                Use::Write => format!("a writable contiguous buffer is needed, not {name}"),
            };
            let error = PyTypeError::new_err(text);
            error.set_cause(py, Some(cause));
            return Err(error);
        }
        let mut view = View { raw, copy: None };
        // SAFETY: the structure was filled by the exporter.
        if unsafe { ffi::PyBuffer_IsContiguous(&raw const *view.raw, b'C' as _) } == 0 {
            view.copy = Some(view.in_order(py)?);
        }
        Ok(view)
    }

    fn in_order(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let mut copy = vec![0u8; self.raw_len()];
        // SAFETY: the vector has exactly as many bytes as the view.
        let done = unsafe {
            ffi::PyBuffer_ToContiguous(
                copy.as_mut_ptr().cast(),
                // It is only read; whether the pointer says so differs between versions.
                (&raw const *self.raw).cast_mut(),
                self.raw.len,
                b'C' as _,
            )
        };
        if done == 0 {
            Ok(copy)
        } else if PyErr::occurred(py) {
            Err(PyErr::fetch(py))
        } else {
            Err(PyBufferError::new_err(
                "the bytes could not be copied in order",
            ))
        }
    }

    fn raw_len(&self) -> usize {
        // Never negative, by the protocol.
        usize::try_from(self.raw.len).unwrap_or(0)
    }

    /// The bytes in C order.
    pub(crate) fn bytes(&self) -> &[u8] {
        if let Some(copy) = &self.copy {
            return copy;
        }
        match NonNull::new(self.raw.buf.cast::<u8>()) {
            // SAFETY: the exporter keeps that many bytes in place while the view lives. Who changes
            // them meanwhile gets a failed checksum; nothing here depends on their values.
            Some(start) if self.raw_len() > 0 => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), self.raw_len())
            },
            _ => &[],
        }
    }

    /// The bytes of a view that was taken for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match NonNull::new(self.raw.buf.cast::<u8>()) {
            // SAFETY: the exporter keeps that many writable bytes in place while the view lives, and
            // the caller has handed them over for the time of the call.
            Some(start) if self.raw_len() > 0 && self.raw.readonly == 0 => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), self.raw_len())
            },
            _ => &mut [],
        }
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.raw.buf.expose_provenance()
    }

    /// One run of single bytes, as the parts of an object have to be.
    pub(crate) fn is_plain(&self) -> bool {
        self.raw.itemsize == 1 && self.raw.ndim <= 1
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Past the end of the interpreter there is nothing to release to.
        let released = Python::try_attach(|_| {
            // SAFETY: the structure was filled by `PyObject_GetBuffer` and is released only here.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) }
        });
        let _: Option<()> = released;
    }
}

/// `bytes` that are made once the size of an object is known, and filled in place.
pub(crate) struct Made {
    object: Option<Py<PyBytes>>,
    largest: u64,
}

impl Made {
    /// Refuses more than `largest` bytes.
    pub(crate) fn new(largest: u64) -> Self {
        Made {
            object: None,
            largest,
        }
    }

    /// What was filled.
    pub(crate) fn take(&mut self) -> Option<Py<PyBytes>> {
        self.object.take()
    }
}

/// The refusal of a value that is larger than the local buffer.
pub(crate) fn too_large(len: u64, largest: u64, stage: Stage) -> Failure {
    let text =
        format!("a value of {len} bytes does not fit into the local buffer of {largest} bytes");
    invalid(stage, text)
}

impl Room for Made {
    fn room(&mut self, len: usize) -> Result<&mut [u8], Failure> {
        if len as u64 > self.largest {
            return Err(too_large(len as u64, self.largest, Stage::Read));
        }
        if crate::ending::has_begun_elsewhere() {
            let text = "the interpreter is about to end";
            return Err(Failure::new(Code::UnavailableInStatus, Stage::Read, text));
        }
        let made = Python::try_attach(|py| {
            let size = ffi::Py_ssize_t::try_from(len).ok()?;
            // SAFETY: without a source a fresh object is made (for zero bytes the shared empty one),
            // or null is returned with an error set.
            let fresh = unsafe { ffi::PyBytes_FromStringAndSize(std::ptr::null(), size) };
            // SAFETY: the pointer is a new reference or null.
            let object = unsafe { Bound::from_owned_ptr_or_err(py, fresh) }.ok()?;
            let object = object.cast_into::<PyBytes>().ok()?;
            let start = object.as_bytes().as_ptr().cast_mut();
            self.object = Some(object.unbind());
            Some(start)
        });
        let start = made.flatten().and_then(NonNull::new).ok_or_else(|| {
            let text = format!("{len} bytes of memory could not be had");
            Failure::new(Code::BufferOverflow, Stage::Read, text)
        })?;
        if len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the object is fresh, has that many bytes from the allocator of the interpreter,
        // is known to nobody else, and lives in `self` as long as the slice.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }
}
