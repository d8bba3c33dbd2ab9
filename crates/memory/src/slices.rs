//! Scatter lists over segments and caller memory, for vectored reads and writes.
//!
//! [`SourceSlices`] are bytes to send, [`TargetSlices`] bytes to receive into. Both keep a position,
//! so that a partial read or write goes on where it stopped: ask for slices, do one system call,
//! [`advance`](SourceSlices::advance) by what it moved. They are `Send`, may be held across an
//! await, and never give a pointer away: the kernel sees the bytes only inside the closure.
//!
//! A list over a segment or region keeps it mapped. The contract of the crate holds while a list
//! lives: nobody writes the bytes of a source, nobody else uses the bytes of a target.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::copy;
use crate::region::RegionHold;
use crate::segment::SegmentHold;

/// Most slices that one call gets; the rest follows in the next one.
pub const IO_SLICES_MAX: usize = 64;

/// What keeps the bytes of a list alive and claimed.
#[derive(Debug)]
pub(crate) enum Hold {
    /// The list borrows them.
    Borrowed,
    /// They belong to a segment or to the view of a foreign one.
    Segment { _hold: SegmentHold },
    /// They belong to somebody else, who has promised to leave them alone.
    Region { _hold: RegionHold },
    /// As `Region`, of several of them.
    Regions { _holds: Arc<Vec<RegionHold>> },
}

/// A run of bytes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
}

/// Parts and a position in them.
#[derive(Debug)]
struct List {
    parts: Vec<Part>,
    /// The part at the position.
    index: usize,
    /// Bytes of that part that are done.
    within: usize,
    remaining: u64,
    _hold: Hold,
}

// SAFETY: the pointers stay valid because of `_hold` or the borrow in the owning type, and the bytes
// have no thread affinity; who may touch them is the contract in the module documentation.
unsafe impl Send for List {}
// SAFETY: shared access only reads the parts; bytes change only through `&mut`.
unsafe impl Sync for List {}

impl List {
    fn new(mut parts: Vec<Part>, hold: Hold) -> Self {
        parts.retain(|part| part.len > 0);
        let remaining = parts.iter().map(|part| part.len as u64).sum();
        Self {
            parts,
            index: 0,
            within: 0,
            remaining,
            _hold: hold,
        }
    }

    /// The parts from the position on, the first one cut.
    fn pending(&self) -> impl Iterator<Item = Part> + '_ {
        let within = self.within;
        self.parts
            .iter()
            .skip(self.index)
            .enumerate()
            .map(move |(nth, part)| {
                if nth > 0 {
                    return *part;
                }
                // SAFETY: `within` is less than the length of the part at the position.
                let start = unsafe { part.start.add(within) };
                let len = part.len - within;
                Part { start, len }
            })
    }

    fn first(&self) -> Option<Part> {
        self.pending().next()
    }

    /// As [`List::pending`], but at most `limit` bytes in at most [`IO_SLICES_MAX`] parts.
    fn pending_io(&self, limit: u64) -> impl Iterator<Item = Part> + '_ {
        let mut left = limit;
        self.pending().take(IO_SLICES_MAX).map_while(move |part| {
            let len = part.len.min(usize::try_from(left).unwrap_or(usize::MAX));
            left -= len as u64;
            (len > 0).then_some(Part {
                start: part.start,
                len,
            })
        })
    }

    /// Moves the position back; bounded by the start.
    fn rewind(&mut self, bytes: u64) {
        let total: u64 = self.parts.iter().map(|part| part.len as u64).sum();
        let done = total - self.remaining;
        (self.index, self.within, self.remaining) = (0, 0, total);
        self.advance(done.saturating_sub(bytes));
    }

    fn advance(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.remaining, "advanced past the end");
        let mut left = bytes.min(self.remaining);
        self.remaining -= left;
        while let Some(part) = self.parts.get(self.index) {
            let rest = (part.len - self.within) as u64;
            if left < rest {
                // Less than the length of a part, which fits.
                self.within += left as usize;
                return;
            }
            left -= rest;
            self.index += 1;
            self.within = 0;
        }
    }
}

/// Bytes to send.
#[derive(Debug)]
pub struct SourceSlices<'a> {
    list: List,
    borrow: PhantomData<&'a [u8]>,
}

impl<'a> SourceSlices<'a> {
    pub(crate) fn new(parts: Vec<Part>, hold: Hold) -> Self {
        Self {
            list: List::new(parts, hold),
            borrow: PhantomData,
        }
    }

    /// Lists borrowed bytes.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self::of_all([bytes])
    }

    /// Lists several runs of borrowed bytes, one after the other.
    pub fn of_all(runs: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let part = |run: &'a [u8]| Part {
            start: NonNull::from(run).cast(),
            len: run.len(),
        };
        Self::new(runs.into_iter().map(part).collect(), Hold::Borrowed)
    }

    /// Bytes not sent yet.
    pub fn remaining(&self) -> u64 {
        self.list.remaining
    }

    /// Moves the position past bytes that were sent.
    pub fn advance(&mut self, bytes: u64) {
        self.list.advance(bytes);
    }

    /// Moves the position back, at most to the start, to begin again.
    pub fn rewind(&mut self, bytes: u64) {
        self.list.rewind(bytes);
    }

    /// Lends at most `limit` of the pending bytes to one vectored write.
    pub fn with_slices<R>(&self, limit: u64, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        self.with_slices_after(&[], limit, write)
    }

    /// As [`SourceSlices::with_slices`], with `head` (a frame header, say) as the first slice.
    pub fn with_slices_after<R>(
        &self,
        head: &[u8],
        limit: u64,
        write: impl FnOnce(&[IoSlice<'_>]) -> R,
    ) -> R {
        let mut slices = [IoSlice::new(&[]); IO_SLICES_MAX + 1];
        let mut count = 0;
        if !head.is_empty() {
            slices[0] = IoSlice::new(head);
            count = 1;
        }
        for part in self.list.pending_io(limit) {
            // SAFETY: the part is valid while the list lives, and the contract keeps writers away.
            slices[count] = IoSlice::new(unsafe { as_slice(part) });
            count += 1;
        }
        write(&slices[..count])
    }

    /// Does one vectored write and advances by what it took.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_to(&mut self, writer: &mut impl Write) -> io::Result<usize> {
        let written = self.with_slices(u64::MAX, |slices| writer.write_vectored(slices))?;
        self.advance(written as u64);
        Ok(written)
    }

    /// Shows the pending bytes run by run, for checksums; the position stays.
    pub fn visit(&self, see: impl FnMut(&[u8])) {
        self.visit_first(u64::MAX, see);
    }

    /// As [`SourceSlices::visit`], but at most `limit` bytes.
    pub fn visit_first(&self, limit: u64, mut see: impl FnMut(&[u8])) {
        let mut left = limit;
        for part in self.list.pending() {
            let len = part.len.min(usize::try_from(left).unwrap_or(usize::MAX));
            if len == 0 {
                return;
            }
            left -= len as u64;
            let start = part.start;
            // SAFETY: as in `with_slices_after`; the part is only made shorter.
            see(unsafe { as_slice(Part { start, len }) });
        }
    }

    /// Copies into a target until one of them ends, advances both, and returns the bytes copied.
    pub fn copy_to(&mut self, target: &mut TargetSlices<'_>) -> u64 {
        let mut copied = 0;
        while let (Some(from), Some(to)) = (self.list.first(), target.list.first()) {
            let len = from.len.min(to.len);
            // Two ranges of one region may overlap, which only a plain copy allows.
            if from.start.addr().get().abs_diff(to.start.addr().get()) < len {
                // SAFETY: both parts are valid for `len` bytes; overlap is allowed here.
                unsafe { std::ptr::copy(from.start.as_ptr(), to.start.as_ptr(), len) };
            } else {
                // SAFETY: both parts are valid for `len` bytes and do not overlap.
                unsafe { copy::copy_raw(from.start.as_ptr(), to.start.as_ptr(), len) };
            }
            self.advance(len as u64);
            target.advance(len as u64);
            copied += len as u64;
        }
        copied
    }
}

/// Bytes to receive into.
#[derive(Debug)]
pub struct TargetSlices<'a> {
    list: List,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> TargetSlices<'a> {
    pub(crate) fn new(parts: Vec<Part>, hold: Hold) -> Self {
        Self {
            list: List::new(parts, hold),
            borrow: PhantomData,
        }
    }

    /// Lists borrowed bytes.
    pub fn of(bytes: &'a mut [u8]) -> Self {
        Self::of_all([bytes])
    }

    /// Lists several runs of borrowed bytes, one after the other.
    pub fn of_all(runs: impl IntoIterator<Item = &'a mut [u8]>) -> Self {
        let part = |run: &'a mut [u8]| {
            let len = run.len();
            Part {
                start: NonNull::from(run).cast(),
                len,
            }
        };
        Self::new(runs.into_iter().map(part).collect(), Hold::Borrowed)
    }

    /// Bytes not received yet.
    pub fn remaining(&self) -> u64 {
        self.list.remaining
    }

    /// Moves the position past bytes that were received.
    pub fn advance(&mut self, bytes: u64) {
        self.list.advance(bytes);
    }

    /// Moves the position back, at most to the start, to begin again.
    pub fn rewind(&mut self, bytes: u64) {
        self.list.rewind(bytes);
    }

    /// Lends at most `limit` of the pending bytes to one vectored read.
    pub fn with_slices<R>(
        &mut self,
        limit: u64,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
    ) -> R {
        let mut slices: [IoSliceMut<'_>; IO_SLICES_MAX] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut count = 0;
        for part in self.list.pending_io(limit) {
            // SAFETY: the part is valid while the list lives, parts of a list do not overlap (each
            // comes from its own borrow or extent), and the contract keeps all others away.
            slices[count] = IoSliceMut::new(unsafe {
                std::slice::from_raw_parts_mut(part.start.as_ptr(), part.len)
            });
            count += 1;
        }
        read(&mut slices[..count])
    }

    /// Does one vectored read and advances by what it brought; zero means the end of the reader.
    ///
    /// # Errors
    /// The reader's.
    pub fn read_from(&mut self, reader: &mut impl Read) -> io::Result<usize> {
        self.read_from_limited(reader, u64::MAX)
    }

    /// As [`TargetSlices::read_from`], taking at most `limit` bytes.
    ///
    /// # Errors
    /// The reader's.
    pub fn read_from_limited(&mut self, reader: &mut impl Read, limit: u64) -> io::Result<usize> {
        let read = self.with_slices(limit, |slices| reader.read_vectored(slices))?;
        self.advance(read as u64);
        Ok(read)
    }

    /// Copies bytes that have already arrived and returns how many found room.
    pub fn fill_from(&mut self, bytes: &[u8]) -> usize {
        // Not more than `bytes.len()`, which fits.
        SourceSlices::of(bytes).copy_to(self) as usize
    }

    /// Shows the bytes received so far from the first one on, run by run, for checksums.
    pub fn visit_filled(&self, mut see: impl FnMut(&[u8])) {
        for (index, part) in self.list.parts.iter().enumerate() {
            let len = match index.cmp(&self.list.index) {
                std::cmp::Ordering::Less => part.len,
                std::cmp::Ordering::Equal => self.list.within,
                std::cmp::Ordering::Greater => return,
            };
            if len > 0 {
                // SAFETY: as in `with_slices`; the borrow of `self` excludes a read in progress.
                see(unsafe {
                    as_slice(Part {
                        start: part.start,
                        len,
                    })
                });
            }
        }
    }
}

/// # Safety
/// The part is valid and not written while the result lives.
unsafe fn as_slice<'a>(part: Part) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(part.start.as_ptr(), part.len) }
}

#[cfg(test)]
#[path = "slices_test.rs"]
mod slices_test;
