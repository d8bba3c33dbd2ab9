//! Memory that belongs to the caller and is named by address, such as a tensor of an engine.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::MemoryError;
use crate::mapping::range_start;
use crate::probe::{self, Touch, Watch};
use crate::slices::{Hold, Part, SourceSlices, TargetSlices};

struct Inner {
    base: NonNull<u8>,
    len: u64,
    writable: bool,
    watch: Watch,
    /// Dropped after the last list over the region, an owner's handle for example.
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: the maker of the region promises that its bytes may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A share of a region, which keeps its owner's handle alive.
#[derive(Clone)]
pub(crate) struct RegionHold {
    inner: Arc<Inner>,
}

impl RegionHold {
    pub(crate) fn is_of(&self, region: &ExternalRegion) -> bool {
        Arc::ptr_eq(&self.inner, &region.inner)
    }
}

impl std::fmt::Debug for RegionHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegionHold")
    }
}

/// Caller memory: an address and a length. Clones are the same memory.
#[derive(Clone)]
pub struct ExternalRegion {
    inner: Arc<Inner>,
}

impl ExternalRegion {
    /// Wraps caller memory; `keep` is dropped when nothing here refers to the memory any more.
    ///
    /// # Errors
    /// When the address is null or the range passes the end of the address space.
    ///
    /// # Safety
    /// The bytes are mapped, readable and writable by the processor from any thread until `keep` is
    /// dropped (or, without it, until the last clone and list are gone). While a list over a range
    /// lives, nobody else writes it, and nobody else reads it if the list is a target.
    pub unsafe fn new(
        address: usize,
        len: u64,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, MemoryError> {
        Self::wrap(address, len, true, keep)
    }

    /// As [`ExternalRegion::new`], for memory that nobody can write; it gives no targets.
    ///
    /// # Errors
    /// As [`ExternalRegion::new`].
    ///
    /// # Safety
    /// As [`ExternalRegion::new`], but the bytes need not be writable.
    pub unsafe fn new_read_only(
        address: usize,
        len: u64,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, MemoryError> {
        Self::wrap(address, len, false, keep)
    }

    fn wrap(
        address: usize,
        len: u64,
        writable: bool,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, MemoryError> {
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address));
        let end = usize::try_from(len)
            .ok()
            .filter(|len| isize::try_from(*len).is_ok())
            .and_then(|len| address.checked_add(len));
        match (base, end) {
            (Some(base), Some(_)) => Ok(Self {
                inner: Arc::new(Inner {
                    base,
                    len,
                    writable,
                    watch: Watch::default(),
                    _keep: keep,
                }),
            }),
            (None, _) => Err(MemoryError::Empty),
            (_, None) => Err(MemoryError::TooLarge { wanted: len }),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.inner.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Whether bytes can be received into it.
    pub fn is_writable(&self) -> bool {
        self.inner.writable
    }

    /// Whether it is the same region, not only the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.inner.watch
    }

    /// Asks whether a range is still mapped, about a microsecond whatever its length; see
    /// [`crate::probe`] for what that tells.
    ///
    /// # Errors
    /// [`MemoryError::Gone`], or when the range is not inside the region.
    pub fn probe(&self, offset: u64, len: u64, touch: Touch) -> Result<(), MemoryError> {
        let part = self.part(offset, len)?;
        let address = part.start.addr().get();
        probe::ask(&self.inner.watch, address, part.len, touch).map_err(|at| {
            self.inner.watch.note_broken();
            MemoryError::Gone { address, len, at }
        })
    }

    /// Lists and clones that still refer to the memory besides this one; zero means that nothing
    /// will touch it any more.
    pub fn outstanding(&self) -> usize {
        Arc::strong_count(&self.inner) - 1
    }

    /// Lists a range as bytes to send.
    ///
    /// # Errors
    /// When the range is not inside the region.
    pub fn source(&self, offset: u64, len: u64) -> Result<SourceSlices<'static>, MemoryError> {
        Ok(SourceSlices::new(
            vec![self.part(offset, len)?],
            self.hold(),
        ))
    }

    /// Lists a range as bytes to receive into.
    ///
    /// # Errors
    /// When the range is not inside the region, or the region is read-only.
    pub fn target(&self, offset: u64, len: u64) -> Result<TargetSlices<'static>, MemoryError> {
        if !self.inner.writable {
            return Err(MemoryError::ReadOnly);
        }
        Ok(TargetSlices::new(
            vec![self.part(offset, len)?],
            self.hold(),
        ))
    }

    fn hold(&self) -> Hold {
        Hold::Region {
            _hold: self.share(),
        }
    }

    pub(crate) fn share(&self) -> RegionHold {
        RegionHold {
            inner: Arc::clone(&self.inner),
        }
    }

    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<Part, MemoryError> {
        let start = range_start(offset, len, self.inner.len)?;
        // SAFETY: the range was just found to be inside the region.
        let start = unsafe { self.inner.base.add(start) };
        // The region's length fits, so a part's does.
        Ok(Part {
            start,
            len: len as usize,
        })
    }
}

impl std::fmt::Debug for ExternalRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalRegion")
            .field("base", &self.inner.base)
            .field("len", &self.inner.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Owner(Vec<u8>, Arc<AtomicBool>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_region_keeps_its_owner_until_the_last_list_is_gone() {
        let dropped = Arc::new(AtomicBool::new(false));
        let mut owner = Owner(vec![0xA5; 64], Arc::clone(&dropped));
        let address = owner.0.as_mut_ptr().expose_provenance();
        // SAFETY: the vector lives in `keep`, is not resized, and is not used from elsewhere.
        let region = unsafe { ExternalRegion::new(address, 64, Some(Box::new(owner))) }.unwrap();
        let mut target = region.target(3, 10).unwrap();
        assert_eq!((target.fill_from(&[7; 20]), target.remaining()), (10, 0));
        assert_eq!(region.outstanding(), 1);
        drop(target);
        assert_eq!(region.outstanding(), 0);
        let source = region.source(0, 64).unwrap();
        drop(region);
        assert!(!dropped.load(Ordering::SeqCst));
        let mut seen = Vec::new();
        source.visit(|run| seen.extend_from_slice(run));
        assert_eq!(seen[3..13], [7; 10]);
        assert!(
            seen[..3]
                .iter()
                .chain(&seen[13..])
                .all(|byte| *byte == 0xA5)
        );
        drop(source);
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[test]
    fn ranges_outside_a_region_are_refused() {
        let mut bytes = [0u8; 16];
        let address = bytes.as_mut_ptr().expose_provenance();
        // SAFETY: the array outlives the region and is not used meanwhile.
        let region = unsafe { ExternalRegion::new(address, 16, None) }.unwrap();
        for (offset, len) in [(0, 17), (16, 1), (17, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(region.source(offset, len).is_err(), "{offset} {len}");
            assert!(region.target(offset, len).is_err(), "{offset} {len}");
        }
        assert!(region.target(16, 0).is_ok());
    }

    #[test]
    fn a_read_only_region_gives_sources_and_no_targets() {
        static BYTES: [u8; 16] = [3; 16];
        let address = BYTES.as_ptr().expose_provenance();
        // SAFETY: the bytes live for ever and are never written.
        let region = unsafe { ExternalRegion::new_read_only(address, 16, None) }.unwrap();
        assert!(!region.is_writable());
        let source = region.source(4, 8).unwrap();
        let mut seen = Vec::new();
        source.visit(|run| seen.extend_from_slice(run));
        assert_eq!(seen, [3; 8]);
        assert!(matches!(region.target(0, 1), Err(MemoryError::ReadOnly)));
        let mut list = crate::scattered::Scattered::new();
        list.push(&region, 0, 4).unwrap();
        assert!(matches!(list.target(4), Err(MemoryError::ReadOnly)));
        let part = list.sub(1, 2).unwrap();
        assert!(matches!(part.target(2), Err(MemoryError::ReadOnly)));
        assert_eq!(part.source().remaining(), 2);
    }

    #[test]
    fn impossible_regions_are_refused() {
        // SAFETY: nothing is made from these arguments.
        let null = unsafe { ExternalRegion::new(0, 16, None) };
        assert!(matches!(null, Err(MemoryError::Empty)));
        // SAFETY: as above.
        let wrapping = unsafe { ExternalRegion::new(usize::MAX - 3, 16, None) };
        assert!(matches!(
            wrapping,
            Err(MemoryError::TooLarge { wanted: 16 })
        ));
    }
}
