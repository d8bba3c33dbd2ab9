//! Owned bytes with a chosen alignment, for direct disk I/O and staging.

use std::alloc::{self, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::error::MemoryError;

/// Alignment that direct I/O accepts on every disk with blocks of at most 4 KiB.
pub const DIRECT_IO_ALIGN: usize = 4096;

/// Zeroed heap memory of fixed length and alignment.
#[derive(Debug)]
pub struct Buffer {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its bytes like a `Box<[u8]>`; access follows the borrow of `self`.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `len` zeroed bytes that start at a multiple of `align`, a power of two.
    ///
    /// # Errors
    /// When `len` is zero, the alignment is not a power of two, or memory is missing.
    pub fn zeroed(len: usize, align: usize) -> Result<Self, MemoryError> {
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        if !align.is_power_of_two() {
            return Err(MemoryError::BadAlignment { align });
        }
        let too_large = MemoryError::TooLarge { wanted: len as u64 };
        let Ok(layout) = Layout::from_size_align(len, align) else {
            return Err(too_large);
        };
        // SAFETY: the layout has at least one byte.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let missing = MemoryError::system("allocate", len as u64);
        let base = NonNull::new(base).ok_or_else(|| missing(rustix::io::Errno::NOMEM))?;
        Ok(Self { base, layout })
    }

    /// Alignment of the first byte.
    pub fn align(&self) -> usize {
        self.layout.align()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has this many initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow of `self` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout and not freed before.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_writable() {
        for (len, align) in [(1, 1), (4097, 512), (65536, 4096), (3, 1 << 16)] {
            let mut buffer = Buffer::zeroed(len, align).unwrap();
            assert_eq!((buffer.len(), buffer.align()), (len, align));
            assert_eq!(buffer.as_ptr() as usize % align, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn impossible_buffers_are_refused() {
        assert!(matches!(Buffer::zeroed(0, 8), Err(MemoryError::Empty)));
        assert!(matches!(
            Buffer::zeroed(8, 3),
            Err(MemoryError::BadAlignment { align: 3 })
        ));
        assert!(matches!(
            Buffer::zeroed(usize::MAX, 8),
            Err(MemoryError::TooLarge { .. })
        ));
    }
}
