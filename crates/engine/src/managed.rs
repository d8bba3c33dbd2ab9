//! Buffers that the engine owns and has registered, for users that have no memory of their own.

use crate::error::EngineError;
use parking_lot::Mutex;
use snowskin_memory::buffer::Buffer;
use std::collections::HashMap;

/// Buffers begin at pages and are made of pages.
const PAGE: usize = 4096;

/// Buffers by address. They are given back when they are freed, or with the engine.
#[derive(Debug, Default)]
pub(crate) struct Managed {
    buffers: Mutex<HashMap<usize, Buffer>>,
}

impl Managed {
    /// A zeroed buffer of at least so many bytes: its address and length.
    pub(crate) fn make(&self, len: u64) -> Result<(usize, u64), EngineError> {
        let failed = |reason: String| EngineError::System {
            step: "allocate a buffer",
            reason,
        };
        let len = usize::try_from(len.max(1))
            .ok()
            .and_then(|len| len.checked_next_multiple_of(PAGE))
            .ok_or_else(|| failed(format!("{len} bytes are too many")))?;
        let mut buffer = Buffer::zeroed(len, PAGE).map_err(|error| failed(error.to_string()))?;
        let address = buffer.as_mut_ptr().expose_provenance();
        self.buffers.lock().insert(address, buffer);
        Ok((address, len as u64))
    }

    /// Whether the buffer is one of these.
    pub(crate) fn has(&self, address: usize) -> bool {
        self.buffers.lock().contains_key(&address)
    }

    /// Gives the memory back; nothing may use it any more.
    pub(crate) fn drop_one(&self, address: usize) {
        self.buffers.lock().remove(&address);
    }
}
