//! A list of parts of several regions of caller memory, in the order of an object's bytes.

use std::ops::Range;
use std::sync::Arc;

use crate::error::MemoryError;
use crate::mapping::range_start;
use crate::region::{ExternalRegion, RegionHold};
use crate::slices::{Hold, Part, SourceSlices, TargetSlices};

/// How many of the last shares are compared with a region that is pushed, so that going to and fro
/// between a few regions does not pile up shares. A share too many costs memory only.
const SHARES_COMPARED: usize = 4;

/// Parts of regions, one after the other. It keeps the regions alive, and is cheap to make: parts
/// that follow each other in memory become one, and a region is shared once for its parts in a row.
#[derive(Debug, Default)]
pub struct Scattered {
    parts: Vec<Part>,
    holds: Arc<Vec<RegionHold>>,
    /// The share that keeps the last part.
    owner: usize,
    len: u64,
    /// Some part cannot be received into.
    read_only: bool,
}

// SAFETY: the parts point into regions, which `holds` keeps alive and whose makers promise that their
// bytes may be used from any thread.
unsafe impl Send for Scattered {}
// SAFETY: as above; a shared list only lends its parts, under the contract of the crate.
unsafe impl Sync for Scattered {}

impl Scattered {
    /// Makes an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty list with room for so many parts.
    pub fn with_capacity(parts: usize) -> Self {
        Self {
            parts: Vec::with_capacity(parts),
            holds: Arc::new(Vec::with_capacity(parts)),
            owner: 0,
            len: 0,
            read_only: false,
        }
    }

    /// Adds a range of a region at the end.
    ///
    /// # Errors
    /// When the range is not inside the region, or the list would name more bytes than can be counted.
    pub fn push(
        &mut self,
        region: &ExternalRegion,
        offset: u64,
        len: u64,
    ) -> Result<(), MemoryError> {
        let part = region.part(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let too_large = MemoryError::TooLarge { wanted: u64::MAX };
        self.len = self.len.checked_add(len).ok_or(too_large)?;
        self.read_only |= !region.is_writable();
        let shared = self.holds.len();
        let mut near = (0..shared).rev().take(SHARES_COMPARED);
        let known = near.find(|nth| self.holds[*nth].is_of(region));
        let owner = known.unwrap_or(shared);
        if known.is_none() {
            // Lists that were lent before keep the shares they had.
            Arc::make_mut(&mut self.holds).push(region.share());
        }
        match self.parts.last_mut() {
            // Neighbours of one region only: regions may be separate allocations side by side.
            Some(before)
                if owner == self.owner
                    && before.start.addr().get() + before.len == part.start.addr().get() =>
            {
                before.len += part.len;
            }
            _ => self.parts.push(part),
        }
        self.owner = owner;
        Ok(())
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of parts, neighbours counted as one.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Lists all bytes to send.
    pub fn source(&self) -> SourceSlices<'static> {
        SourceSlices::new(self.parts.clone(), self.hold())
    }

    /// Lists the first `len` bytes to receive into.
    ///
    /// # Errors
    /// When there are fewer bytes, two parts overlap, or one is of a region that is read-only.
    pub fn target(&self, len: u64) -> Result<TargetSlices<'static>, MemoryError> {
        if self.read_only {
            return Err(MemoryError::ReadOnly);
        }
        let parts = self.cut(0, len)?;
        match overlap(&parts) {
            Some(Range { start, end }) => Err(MemoryError::Overlap {
                offset: start,
                len: end - start,
            }),
            None => Ok(TargetSlices::new(parts, self.hold())),
        }
    }

    /// The same bytes from `offset` on, `len` of them.
    ///
    /// # Errors
    /// When there are fewer bytes.
    pub fn sub(&self, offset: u64, len: u64) -> Result<Self, MemoryError> {
        Ok(Self {
            parts: self.cut(offset, len)?,
            holds: Arc::clone(&self.holds),
            // No share has this number, so nothing is joined with the last part, which was cut.
            owner: usize::MAX,
            len,
            read_only: self.read_only,
        })
    }

    /// Where two parts overlap, as a range of the list's bytes: the later one of the two parts. Bytes
    /// cannot be received into such a list.
    pub fn overlap(&self) -> Option<Range<u64>> {
        overlap(&self.parts)
    }

    fn hold(&self) -> Hold {
        Hold::Regions {
            _holds: Arc::clone(&self.holds),
        }
    }

    fn cut(&self, offset: u64, len: u64) -> Result<Vec<Part>, MemoryError> {
        range_start(offset, len, self.len)?;
        if offset == 0 && len == self.len {
            return Ok(self.parts.clone());
        }
        let (mut skip, mut left) = (offset, len);
        let mut parts = Vec::new();
        for part in &self.parts {
            if left == 0 {
                break;
            }
            let bytes = part.len as u64;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let take = (bytes - skip).min(left);
            // SAFETY: `skip` is less than the length of the part.
            let start = unsafe { part.start.add(skip as usize) };
            parts.push(Part {
                start,
                // At most the length of the part.
                len: take as usize,
            });
            skip = 0;
            left -= take;
        }
        Ok(parts)
    }
}

/// The later of two parts that have a byte in common, as a range of the list.
fn overlap(parts: &[Part]) -> Option<Range<u64>> {
    let start = |part: &Part| part.start.addr().get();
    let ascending = |pair: &[Part]| start(&pair[0]) + pair[0].len <= start(&pair[1]);
    if parts.windows(2).all(ascending) {
        return None;
    }
    let mut order: Vec<(usize, usize)> = (0..)
        .zip(parts)
        .map(|(index, part)| (start(part), index))
        .collect();
    order.sort_unstable();
    let clash = order.windows(2).find_map(|pair| {
        let (before, after) = (pair[0], pair[1]);
        (before.0 + parts[before.1].len > after.0).then(|| before.1.max(after.1))
    })?;
    let offset: u64 = parts[..clash].iter().map(|part| part.len as u64).sum();
    Some(offset..offset + parts[clash].len as u64)
}

#[cfg(test)]
#[path = "scattered_test.rs"]
mod scattered_test;
