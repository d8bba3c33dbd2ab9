//! One `mmap` and its end: the only place that maps and unmaps.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::error::MemoryError;

/// Whether bytes may be written through a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// Owned pages; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    /// Bytes asked for.
    len: usize,
    /// Bytes mapped, whole pages.
    mapped: usize,
    access: Access,
}

// SAFETY: a mapping is plain memory without thread affinity. Its bytes are reached only through the
// bounded methods of this crate, whose callers keep ranges exclusive (crate documentation).
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods themselves keep no unsynchronised state.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps private zeroed memory; pages are taken at first touch.
    pub(crate) fn anonymous(len: u64) -> Result<Self, MemoryError> {
        let (len, mapped) = page_lengths(len)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no existing memory.
        let base = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }
        .map_err(MemoryError::system("map", mapped as u64))?;
        Self::from_base(base, len, mapped, Access::ReadWrite)
    }

    /// Maps `len` bytes of a file from its start.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        len: u64,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let (len, mapped) = page_lengths(len)?;
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: as above. The file is sealed against shrinking by its creator (checked by the
        // caller for foreign files), so no page of the mapping can lose its backing.
        let base = unsafe {
            mm::mmap(
                ptr::null_mut(),
                mapped,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        }
        .map_err(MemoryError::system("map", mapped as u64))?;
        Self::from_base(base, len, mapped, access)
    }

    fn from_base(
        base: *mut c_void,
        len: usize,
        mapped: usize,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let base = NonNull::new(base.cast::<u8>()).ok_or(MemoryError::Empty)?;
        let mapping = Self {
            base,
            len,
            mapped,
            access,
        };
        // A cache of many gigabytes does not belong into a core file; a refusal changes nothing.
        mapping.advise(Advice::LinuxDontDump).ok();
        Ok(mapping)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// The address of a range, once the range is known to be inside.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Result<NonNull<u8>, MemoryError> {
        let start = range_start(offset, len, self.len())?;
        // SAFETY: `start` is at most `len`, so the result is inside the mapping or one past its end.
        Ok(unsafe { self.base.add(start) })
    }

    pub(crate) fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the range is exactly this mapping, and none of the advices used in this crate
        // discards or moves bytes.
        unsafe { mm::madvise(self.base.as_ptr().cast(), self.mapped, advice) }
    }

    pub(crate) fn lock(&self) -> Result<(), MemoryError> {
        // SAFETY: the range is exactly this mapping; locking does not change its bytes.
        unsafe { mm::mlock(self.base.as_ptr().cast(), self.mapped) }
            .map_err(MemoryError::system("lock", self.mapped as u64))
    }

    /// Makes the pages of a range present, so that later access takes no page fault.
    pub(crate) fn populate(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        self.at(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let page = rustix::param::page_size();
        // Bounds were checked, so the conversions cannot lose anything.
        let first = (offset as usize) / page * page;
        let end = ((offset + len) as usize).next_multiple_of(page);
        let advice = match self.access {
            Access::Read => Advice::LinuxPopulateRead,
            Access::ReadWrite => Advice::LinuxPopulateWrite,
        };
        // SAFETY: `first` is inside the mapping.
        let start = unsafe { self.base.add(first) };
        loop {
            // SAFETY: the range lies inside the mapped pages; populating does not change bytes.
            match unsafe { mm::madvise(start.as_ptr().cast(), end - first, advice) } {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // Kernels before 5.14 do not know the advice.
                Err(Errno::INVAL) => break,
                Err(errno) => return Err(MemoryError::system("populate", len)(errno)),
            }
        }
        for position in (first..end).step_by(page) {
            // SAFETY: `position` is inside the mapped pages.
            let byte = unsafe { self.base.add(position) };
            // SAFETY: the byte is valid for as long as `self`, and it is only used atomically here.
            let byte = unsafe { AtomicU8::from_ptr(byte.as_ptr()) };
            match self.access {
                Access::Read => std::hint::black_box(byte.load(Ordering::Relaxed)),
                // Adds nothing, but is a write: the page becomes present and keeps its bytes.
                Access::ReadWrite => byte.fetch_or(0, Ordering::Relaxed),
            };
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and nothing refers to it any more: guards
        // hold a share of its owner. It fails only for arguments that were never mapped.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "unmapping failed: {unmapped:?}");
    }
}

/// Checks `offset + len <= available` without overflow and returns the offset as an index.
pub(crate) fn range_start(offset: u64, len: u64, available: u64) -> Result<usize, MemoryError> {
    let inside = offset.checked_add(len).is_some_and(|end| end <= available);
    usize::try_from(offset)
        .ok()
        .filter(|_| inside)
        .ok_or(MemoryError::OutOfBounds {
            offset,
            len,
            available,
        })
}

/// The length as given and rounded up to whole pages.
fn page_lengths(len: u64) -> Result<(usize, usize), MemoryError> {
    if len == 0 {
        return Err(MemoryError::Empty);
    }
    let too_large = MemoryError::TooLarge { wanted: len };
    let Some(bytes) = usize::try_from(len)
        .ok()
        .filter(|len| isize::try_from(*len).is_ok())
    else {
        return Err(too_large);
    };
    let mapped = bytes
        .checked_next_multiple_of(rustix::param::page_size())
        .ok_or(too_large)?;
    Ok((bytes, mapped))
}
