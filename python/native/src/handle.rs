//! Objects in memory of their own, lent to Python by the buffer protocol without a copy.

use crate::bytes::too_large;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use snowskin_client::Room;
use snowskin_types::{Failure, Stage};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The local buffer of a store: what copying calls may have in memory of ours at one time.
#[derive(Debug)]
pub(crate) struct Staging {
    size: u64,
    used: AtomicU64,
}

/// A part of the local buffer, given back when dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    staging: Arc<Staging>,
    len: u64,
}

impl Staging {
    pub(crate) fn new(size: u64) -> Arc<Self> {
        Arc::new(Staging {
            size,
            used: AtomicU64::new(0),
        })
    }

    /// Its size.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Takes a part, if so much is free.
    pub(crate) fn claim(self: &Arc<Self>, len: u64) -> Option<Claim> {
        // The counter guards no other memory.
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(len).filter(|sum| *sum <= self.size)
            });
        taken.ok().map(|_| Claim {
            staging: Arc::clone(self),
            len,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.staging.used.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Bytes that Python may read and write while we keep them.
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain bytes that this value owns; who uses them from Python, and on which thread, is up to
// the program, as with every buffer.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing here reads or writes the bytes.
unsafe impl Sync for Memory {}

impl Memory {
    fn of(bytes: Vec<u8>) -> Self {
        let boxed: Box<[u8]> = bytes.into_boxed_slice();
        let len = boxed.len();
        let start = NonNull::from(Box::leak(boxed)).cast();
        Memory { start, len }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let whole = NonNull::slice_from_raw_parts(self.start, self.len);
        // SAFETY: pointer and length are those of the box that was leaked in `of`.
        drop(unsafe { Box::from_raw(whole.as_ptr()) });
    }
}

/// How the bytes of a handle are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `b`, as in the compatible interface.
    Signed,
    /// `B`.
    Unsigned,
}

/// An object that was read into memory of its own. It offers the buffer protocol: one dimension, single
/// bytes, writable. The memory is given back when the handle and all views of it are gone.
#[pyclass(frozen, module = "snowskin._native")]
pub(crate) struct BufferHandle {
    memory: Memory,
    shape: [ffi::Py_ssize_t; 1],
    format: Format,
    _claim: Option<Claim>,
}

impl BufferHandle {
    pub(crate) fn new(bytes: Vec<u8>, format: Format, claim: Option<Claim>) -> Self {
        BufferHandle {
            shape: [ffi::Py_ssize_t::try_from(bytes.len()).unwrap_or(0)],
            memory: Memory::of(bytes),
            format,
            _claim: claim,
        }
    }
}

#[pymethods]
impl BufferHandle {
    /// Address of the first byte.
    fn ptr(&self) -> usize {
        self.memory.start.as_ptr().expose_provenance()
    }

    /// Number of bytes.
    fn size(&self) -> usize {
        self.memory.len
    }

    fn __len__(&self) -> usize {
        self.memory.len
    }

    fn __repr__(&self) -> String {
        format!("<BufferHandle of {} bytes>", self.memory.len)
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let Some(mut view) = NonNull::new(view) else {
            return Err(PyBufferError::new_err("no view to fill"));
        };
        // SAFETY: the interpreter hands over a structure to be filled.
        let view = unsafe { view.as_mut() };
        let this = slf.get();
        let format = match this.format {
            Format::Signed => c"b",
            Format::Unsigned => c"B",
        };
        let has = |flag: c_int| flags & flag == flag;
        view.buf = this.memory.start.as_ptr().cast::<c_void>();
        view.len = this.shape[0];
        view.itemsize = 1;
        view.readonly = 0;
        view.ndim = 1;
        view.format = match has(ffi::PyBUF_FORMAT) {
            true => format.as_ptr().cast_mut(),
            false => std::ptr::null_mut(),
        };
        view.shape = match has(ffi::PyBUF_ND) {
            true => this.shape.as_ptr().cast_mut(),
            false => std::ptr::null_mut(),
        };
        view.strides = match has(ffi::PyBUF_STRIDES) {
            // One byte from item to item.
            true => &raw mut view.itemsize,
            false => std::ptr::null_mut(),
        };
        view.suboffsets = std::ptr::null_mut();
        view.internal = std::ptr::null_mut();
        // The view keeps the handle, and so the memory and the shape.
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

/// Room for an object that becomes a handle, within the local buffer.
pub(crate) struct Held {
    bytes: Vec<u8>,
    claim: Option<Claim>,
    staging: Arc<Staging>,
}

impl Held {
    pub(crate) fn new(staging: &Arc<Staging>) -> Self {
        Held {
            bytes: Vec::new(),
            claim: None,
            staging: Arc::clone(staging),
        }
    }

    pub(crate) fn into_handle(self, format: Format) -> BufferHandle {
        BufferHandle::new(self.bytes, format, self.claim)
    }
}

impl Room for Held {
    fn room(&mut self, len: usize) -> Result<&mut [u8], Failure> {
        if self.bytes.len() != len {
            self.claim = None;
            let claim = self.staging.claim(len as u64);
            let claim =
                claim.ok_or_else(|| too_large(len as u64, self.staging.size(), Stage::Read))?;
            self.bytes = vec![0; len];
            self.claim = Some(claim);
        }
        Ok(&mut self.bytes)
    }
}
