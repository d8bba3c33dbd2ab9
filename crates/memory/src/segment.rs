//! A segment: the memory a node contributes, shared with readers on the same host or private.
//!
//! All access is bounded and by offset. See the crate documentation for who keeps ranges exclusive.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::Advice;
use snowskin_types::checksum;

use crate::copy;
use crate::error::MemoryError;
use crate::mapping::{Access, Mapping};
use crate::slices::{Hold, Part, SourceSlices, TargetSlices};
use crate::usage::{Claim, Ledger, Use};

/// What other processes that are given the file of a segment may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAccess {
    /// Map it for reading only; the kernel refuses new writable mappings and writes.
    Read,
    /// Map it for reading and writing.
    ReadWrite,
}

/// How far a segment has been populated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes present.
    pub done: u64,
    /// Bytes of the segment.
    pub total: u64,
}

#[derive(Debug)]
struct Inner {
    mapping: Mapping,
    file: Option<OwnedFd>,
    ledger: Ledger,
}

impl Inner {
    fn claim(&self, how: Use, offset: u64, len: u64) -> Claim {
        self.ledger.claim(how, &[(offset, len)])
    }

    fn part(&self, offset: u64, len: u64) -> Result<Part, MemoryError> {
        // The range is inside an address space, so its length fits.
        Ok(Part {
            start: self.mapping.at(offset, len)?,
            len: len as usize,
        })
    }

    fn parts(
        self: &Arc<Self>,
        how: Use,
        extents: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<(Vec<Part>, Hold), MemoryError> {
        let extents: Vec<(u64, u64)> = extents.into_iter().collect();
        let parts = extents
            .iter()
            .map(|&(offset, len)| self.part(offset, len))
            .collect::<Result<Vec<_>, _>>()?;
        let claim = self.ledger.claim(how, &extents);
        Ok((
            parts,
            Hold::Segment {
                _hold: SegmentHold {
                    _claim: claim,
                    _inner: Arc::clone(self),
                },
            },
        ))
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), MemoryError> {
        let len = target.len() as u64;
        let source = self.mapping.at(offset, len)?;
        let _claim = self.claim(Use::Read, offset, len);
        // SAFETY: the source range is inside the mapping; a unique borrow of ordinary memory cannot
        // overlap it, since no reference into the mapping leaves this crate.
        unsafe { copy::copy_raw(source.as_ptr(), target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    fn word(&self, offset: u64) -> Result<&AtomicU64, MemoryError> {
        let word = self.mapping.at(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(MemoryError::Unaligned { offset });
        }
        // SAFETY: inside the mapping, aligned (mappings start at a page), alive as long as `self`,
        // and words are used only atomically by contract.
        Ok(unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) })
    }

    fn populate(
        &self,
        slice_bytes: u64,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<u64, MemoryError> {
        let total = self.mapping.len();
        let mut done = 0;
        while done < total {
            let len = slice_bytes.max(1).min(total - done);
            self.mapping.populate(done, len)?;
            done += len;
            if progress(Progress { done, total }).is_break() {
                break;
            }
        }
        Ok(done)
    }
}

/// A share of a segment and the claim on the ranges of a list.
#[derive(Debug)]
pub(crate) struct SegmentHold {
    _claim: Claim,
    _inner: Arc<Inner>,
}

/// Memory of this process, addressed by offset. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Segment {
    inner: Arc<Inner>,
}

impl Segment {
    /// Creates zeroed memory that can be shared by passing its file to another process.
    ///
    /// The file is closed on exec and sealed: its length never changes. The name is shown in the
    /// process's map list only. Pages are taken at first touch or by [`Segment::populate`]; ask
    /// [`crate::limits`] before, since the kernel kills a process that touches more than it may.
    ///
    /// # Errors
    /// When the length is zero or absurd, or the system refuses.
    pub fn shared(name: &str, len: u64, peers: PeerAccess) -> Result<Self, MemoryError> {
        // Checks the length before it is used; the file then gets whole pages.
        let pages = len.checked_next_multiple_of(rustix::param::page_size() as u64);
        let file_len = pages.ok_or(MemoryError::TooLarge { wanted: len })?;
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know NOEXEC_SEAL.
        let file = fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|errno| match errno {
                Errno::INVAL => fs::memfd_create(name, flags),
                other => Err(other),
            })
            .map_err(MemoryError::system("create a shared file of", len))?;
        fs::ftruncate(&file, file_len).map_err(MemoryError::system("size a file to", file_len))?;
        let seal = |seals| {
            fs::fcntl_add_seals(&file, seals).map_err(MemoryError::system("seal a file of", len))
        };
        seal(SealFlags::SHRINK | SealFlags::GROW)?;
        let mapping = Mapping::shared(file.as_fd(), len, Access::ReadWrite)?;
        if peers == PeerAccess::Read {
            // After the own writable mapping, which the seal leaves alone.
            seal(SealFlags::FUTURE_WRITE)?;
        }
        seal(SealFlags::SEAL)?;
        Ok(Self::from_parts(mapping, Some(file)))
    }

    /// Creates zeroed memory of this process only, on huge pages where the system allows it.
    ///
    /// # Errors
    /// When the length is zero or absurd, or the system refuses.
    pub fn anonymous(len: u64) -> Result<Self, MemoryError> {
        let mapping = Mapping::anonymous(len)?;
        // Huge pages are an optimisation: without them everything works, only slower.
        mapping.advise(Advice::LinuxHugepage).ok();
        Ok(Self::from_parts(mapping, None))
    }

    fn from_parts(mapping: Mapping, file: Option<OwnedFd>) -> Self {
        Self {
            inner: Arc::new(Inner {
                mapping,
                file,
                ledger: Ledger::default(),
            }),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.inner.mapping.len()
    }

    /// False always: a segment has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file to pass to readers on the same host, if the segment is shared.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.inner.file.as_ref().map(AsFd::as_fd)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// When the range is not inside the segment.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), MemoryError> {
        self.inner.read_at(offset, target)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// When the range is not inside the segment.
    pub fn write_at(&self, offset: u64, source: &[u8]) -> Result<(), MemoryError> {
        let len = source.len() as u64;
        let target = self.inner.mapping.at(offset, len)?;
        let _claim = self.inner.claim(Use::Write, offset, len);
        // SAFETY: the target range is inside the mapping, and a borrow of ordinary memory cannot
        // overlap it, since no reference into the mapping leaves this crate.
        unsafe { copy::copy_raw(source.as_ptr(), target.as_ptr(), source.len()) };
        Ok(())
    }

    /// Copies `len` bytes from one offset to another; the ranges may overlap.
    ///
    /// # Errors
    /// When either range is not inside the segment.
    pub fn copy_within(&self, source: u64, target: u64, len: u64) -> Result<(), MemoryError> {
        let from = self.inner.part(source, len)?;
        let to = self.inner.part(target, len)?;
        let ranges = [(source.min(target), len + source.abs_diff(target))];
        let overlap = source.abs_diff(target) < len;
        let _claims = if overlap {
            [Some(self.inner.ledger.claim(Use::Write, &ranges)), None]
        } else {
            let read = self.inner.claim(Use::Read, source, len);
            [Some(read), Some(self.inner.claim(Use::Write, target, len))]
        };
        // SAFETY: both ranges are inside the mapping; overlap is allowed here.
        unsafe { ptr::copy(from.start.as_ptr(), to.start.as_ptr(), from.len) };
        Ok(())
    }

    /// Overwrites a range with zeros.
    ///
    /// # Errors
    /// When the range is not inside the segment.
    pub fn zero(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        let part = self.inner.part(offset, len)?;
        let _claim = self.inner.claim(Use::Write, offset, len);
        // SAFETY: the range is inside the mapping.
        unsafe { ptr::write_bytes(part.start.as_ptr(), 0, part.len) };
        Ok(())
    }

    /// CRC-64/NVME of a range.
    ///
    /// # Errors
    /// When the range is not inside the segment.
    pub fn crc64(&self, offset: u64, len: u64) -> Result<u64, MemoryError> {
        let part = self.inner.part(offset, len)?;
        let _claim = self.inner.claim(Use::Read, offset, len);
        // SAFETY: the range is inside the mapping, and the contract keeps writers away.
        let bytes = unsafe { std::slice::from_raw_parts(part.start.as_ptr(), part.len) };
        Ok(checksum::crc64(bytes))
    }

    /// Lists extents, pairs of offset and length, as bytes to send, in the order given.
    ///
    /// # Errors
    /// When one of them is not inside the segment.
    pub fn source(
        &self,
        extents: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<SourceSlices<'static>, MemoryError> {
        let (parts, hold) = self.inner.parts(Use::Read, extents)?;
        Ok(SourceSlices::new(parts, hold))
    }

    /// Whether both are the same memory.
    pub fn is_same(&self, other: &Segment) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Lists extents, pairs of offset and length, as bytes to receive into, in the order given.
    ///
    /// # Errors
    /// When one of them is not inside the segment, or two of them overlap.
    pub fn target(
        &self,
        extents: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<TargetSlices<'static>, MemoryError> {
        let extents: Vec<(u64, u64)> = extents.into_iter().collect();
        if let Some((offset, len)) = overlapping(&extents) {
            return Err(MemoryError::Overlap { offset, len });
        }
        let (parts, hold) = self.inner.parts(Use::Write, extents)?;
        Ok(TargetSlices::new(parts, hold))
    }

    /// Reads an aligned word that other processes may change at any time.
    ///
    /// # Errors
    /// When the word is not inside the segment or not aligned to 8 bytes.
    pub fn load_u64(&self, offset: u64) -> Result<u64, MemoryError> {
        Ok(self.inner.word(offset)?.load(Ordering::Acquire))
    }

    /// Writes an aligned word that other processes may read at any time.
    ///
    /// # Errors
    /// When the word is not inside the segment or not aligned to 8 bytes.
    pub fn store_u64(&self, offset: u64, value: u64) -> Result<(), MemoryError> {
        self.inner.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Makes all pages present, slice by slice, and returns the bytes that are.
    ///
    /// Keeps the bytes, so it may run beside normal use; it ends early when `progress` breaks.
    ///
    /// # Errors
    /// When the system has no memory left for it.
    pub fn populate(
        &self,
        slice_bytes: u64,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<u64, MemoryError> {
        self.inner.populate(slice_bytes, progress)
    }

    /// Makes the pages of one range present, for several threads that share the work.
    ///
    /// # Errors
    /// When the range is not inside the segment or the system has no memory left for it.
    pub fn populate_range(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        self.inner.mapping.populate(offset, len)
    }

    /// Keeps all pages in memory (populating them), so that they are never swapped out.
    ///
    /// # Errors
    /// When the process may not lock that much.
    pub fn lock(&self) -> Result<(), MemoryError> {
        self.inner.mapping.lock()
    }
}

/// A foreign segment of the same host, mapped for reading.
///
/// Its owner may change any byte at any time, so what is read counts only after its length,
/// version and checksum were verified on the copy.
#[derive(Clone, Debug)]
pub struct SegmentView {
    inner: Arc<Inner>,
}

impl SegmentView {
    /// Maps a file that the owner passed, of which it announced `len` bytes.
    ///
    /// # Errors
    /// When the file could shrink under the reader, is shorter than announced, or cannot be mapped.
    pub fn attach(file: OwnedFd, len: u64) -> Result<Self, MemoryError> {
        let system = |step| MemoryError::system(step, len);
        let seals = fs::fcntl_get_seals(&file).map_err(|_| MemoryError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::NotSealed);
        }
        let status = fs::fstat(&file).map_err(system("inspect a file of"))?;
        let actual = u64::try_from(status.st_size).unwrap_or(0);
        if actual < len {
            return Err(MemoryError::Short {
                actual,
                announced: len,
            });
        }
        let mapping = Mapping::shared(file.as_fd(), len, Access::Read)?;
        Ok(Self {
            inner: Arc::new(Inner {
                mapping,
                file: Some(file),
                ledger: Ledger::default(),
            }),
        })
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.inner.mapping.len()
    }

    /// False always: a segment has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out; verify the copy.
    ///
    /// # Errors
    /// When the range is not inside the segment.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), MemoryError> {
        self.inner.read_at(offset, target)
    }

    /// Copies extents into a target in their order and returns the bytes copied; verify the copy.
    ///
    /// # Errors
    /// When an extent is not inside the segment.
    pub fn copy_to(
        &self,
        extents: impl IntoIterator<Item = (u64, u64)>,
        target: &mut TargetSlices<'_>,
    ) -> Result<u64, MemoryError> {
        let (parts, hold) = self.inner.parts(Use::Read, extents)?;
        Ok(SourceSlices::new(parts, hold).copy_to(target))
    }

    /// Reads an aligned word that the owner may change at any time.
    ///
    /// # Errors
    /// When the word is not inside the segment or not aligned to 8 bytes.
    pub fn load_u64(&self, offset: u64) -> Result<u64, MemoryError> {
        Ok(self.inner.word(offset)?.load(Ordering::Acquire))
    }

    /// Maps all pages, slice by slice, so that the first reads take no page faults.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn populate(
        &self,
        slice_bytes: u64,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<u64, MemoryError> {
        self.inner.populate(slice_bytes, progress)
    }
}

/// The first extent, by offset, that overlaps the one before it.
fn overlapping(extents: &[(u64, u64)]) -> Option<(u64, u64)> {
    if extents.len() < 2 {
        return None;
    }
    let mut sorted: Vec<(u64, u64)> = extents
        .iter()
        .copied()
        .filter(|(_, len)| *len > 0)
        .collect();
    sorted.sort_unstable();
    sorted
        .windows(2)
        .find(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0)
        .map(|pair| pair[1])
}

#[cfg(test)]
#[path = "segment_test.rs"]
mod segment_test;
