//! Whether caller memory is still there: asked before an operation, so that it can fail as one.
//!
//! Memory that its owner unmapped, or a mapped file that was cut short, ends the process when it is
//! touched. Both are promised not to happen while memory is named here; this notices when they did.
//!
//! **What is asked.** For a range: that no part of it is without a mapping, and that its last page can be
//! touched (a file is cut at its end). That costs about a microsecond whatever the length; to ask for
//! each page would cost a sixth of moving the bytes. An operation on many small ranges asks for the
//! first few, and for the others relies on their whole region having been asked about within
//! [`FRESH_MS`]. So what goes away during an operation, or (small ranges) within that time before it, is
//! not noticed, nor are pages amid a range that lost their rights.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MsyncFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::error::MemoryError;
use crate::region::ExternalRegion;

/// Ranges from this length on are always asked about: moving one takes far longer.
const ALWAYS_BYTES: u64 = 128 << 10;
/// Shorter ranges of one operation that are always asked about.
const ALWAYS_SHORT: u32 = 2;
/// How long a region that was found whole is taken for it.
const FRESH_MS: u64 = 100;
/// Most repetitions of a call that signals interrupt.
const INTERRUPTIONS_MAX: u32 = 16;

/// What an operation does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Reads them.
    Read,
    /// Writes them.
    Write,
}

/// What is known of one region.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// When the whole region was looked at last, in milliseconds, and in the lowest bit whether it was
    /// whole.
    looked: AtomicU64,
    /// Its pages can be asked for, so that a refusal means something. The mappings of some drivers
    /// cannot, and older kernels know no such question.
    answers: AtomicBool,
}

impl Watch {
    fn is_whole(&self, now: u64) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        looked & 1 == 1 && now.saturating_sub(looked >> 1) < FRESH_MS
    }

    fn is_due(&self, now: u64) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        looked == 0 || now.saturating_sub(looked >> 1) >= FRESH_MS
    }

    /// What is taken for whole is looked at again after a while; this shows earlier that it is not.
    pub(crate) fn note_broken(&self) {
        self.looked.fetch_and(!1, Ordering::Relaxed);
    }

    fn note(&self, now: u64, whole: bool) {
        let looked = now << 1 | u64::from(whole);
        self.looked.store(looked, Ordering::Relaxed);
    }
}

/// Asks about a range of at least one byte; tells the first byte, or page, that is not there.
pub(crate) fn ask(watch: &Watch, start: usize, len: usize, touch: Touch) -> Result<(), usize> {
    if len == 0 {
        return Ok(());
    }
    let page = rustix::param::page_size();
    let first = start / page * page;
    // The range ends inside of the address space; its last page may not.
    let last = (start + (len - 1)) / page * page;
    let pages = (last - first) / page + 1;
    if !is_mapped(first, pages) {
        let holds = |pages| is_mapped(first, pages);
        return Err(start.max(first + whole_pages(pages, holds) * page));
    }
    if !is_there(watch, last, touch) {
        // A file that was cut lacks all pages behind the cut.
        let holds = |pages: usize| is_there(watch, first + (pages - 1) * page, touch);
        return Err(start.max(first + whole_pages(pages, holds) * page));
    }
    Ok(())
}

/// How many of the first pages are there, when not all of them are.
fn whole_pages(pages: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut whole, mut broken) = (0, pages);
    while whole + 1 < broken {
        let middle = whole + (broken - whole) / 2;
        match holds(middle) {
            true => whole = middle,
            false => broken = middle,
        }
    }
    whole
}

/// Whether no part of the pages lacks a mapping. This touches no page, whatever the number.
fn is_mapped(first: usize, pages: usize) -> bool {
    let len = pages.saturating_mul(rustix::param::page_size());
    let at = std::ptr::without_provenance_mut(first);
    // SAFETY: with this flag the call only looks at the list of mappings; it neither reads nor writes
    // memory, and takes any address.
    let asked = unsafe { mm::msync(at, len, MsyncFlags::ASYNC) };
    asked != Err(Errno::NOMEM)
}

/// Whether a page that is mapped can be touched.
fn is_there(watch: &Watch, page: usize, touch: Touch) -> bool {
    let advice = match touch {
        Touch::Read => Advice::LinuxPopulateRead,
        Touch::Write => Advice::LinuxPopulateWrite,
    };
    let at = std::ptr::without_provenance_mut(page);
    for _ in 0..INTERRUPTIONS_MAX {
        // SAFETY: the advice makes a page present as touching it would, with its bytes as they are,
        // and answers with an error where touching it would raise a signal.
        match unsafe { mm::madvise(at, rustix::param::page_size(), advice) } {
            Ok(()) => {
                watch.answers.store(true, Ordering::Relaxed);
                return true;
            }
            Err(Errno::INTR) => {}
            Err(Errno::FAULT | Errno::HWPOISON) => return false,
            // No rights, a driver's mapping, or an old kernel: the first if it was answered before.
            Err(Errno::INVAL) => return !watch.answers.load(Ordering::Relaxed),
            // No memory for it now, or a sandbox: says nothing about the mapping.
            Err(_) => return true,
        }
    }
    true
}

/// Milliseconds of a clock that is cheap to read. Never 0.
fn now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let millis = time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000;
    millis.max(1)
}

/// The ranges that one operation is about to touch. Neighbours are asked about as one.
#[derive(Debug)]
pub struct Probes<'r> {
    touch: Touch,
    now: u64,
    short: u32,
    open: Option<(&'r ExternalRegion, u64, u64)>,
    due: Vec<(ExternalRegion, u64, u64)>,
}

impl<'r> Probes<'r> {
    /// No ranges yet.
    pub fn new(touch: Touch) -> Self {
        Self {
            touch,
            now: now(),
            short: 0,
            open: None,
            due: Vec::new(),
        }
    }

    /// Adds a range of a region. No system call.
    pub fn add(&mut self, region: &'r ExternalRegion, offset: u64, len: u64) {
        match &mut self.open {
            Some((open, start, open_len))
                if open.is_same(region) && *start + *open_len == offset =>
            {
                *open_len += len;
            }
            _ => {
                self.end_open();
                self.open = Some((region, offset, len));
            }
        }
    }

    fn end_open(&mut self) {
        let Some((region, offset, len)) = self.open.take() else {
            return;
        };
        if !may_skip(region, len, self.now, &mut self.short) {
            self.due.push((region.clone(), offset, len));
        }
    }

    /// What has to be asked, apart from whatever lent the regions.
    pub fn due(mut self) -> Due {
        self.end_open();
        Due {
            touch: self.touch,
            now: self.now,
            due: self.due,
        }
    }
}

/// Questions that are left of [`Probes`].
#[derive(Debug)]
pub struct Due {
    touch: Touch,
    now: u64,
    due: Vec<(ExternalRegion, u64, u64)>,
}

impl Due {
    /// Asks.
    ///
    /// # Errors
    /// [`MemoryError::Gone`] when a range is not there any more, [`MemoryError::OutOfBounds`] when it is
    /// not inside of its region.
    pub fn ask(self) -> Result<(), MemoryError> {
        let mut short = 0;
        for (region, offset, len) in &self.due {
            if may_skip(region, *len, self.now, &mut short) {
                continue;
            }
            region.probe(*offset, *len, self.touch)?;
            if region.watch().is_due(self.now) {
                let whole = region.probe(0, region.len(), Touch::Read).is_ok();
                region.watch().note(self.now, whole);
            }
        }
        Ok(())
    }
}

fn may_skip(region: &ExternalRegion, len: u64, now: u64, short: &mut u32) -> bool {
    if len >= ALWAYS_BYTES {
        return false;
    }
    if *short < ALWAYS_SHORT {
        *short += 1;
        return false;
    }
    region.watch().is_whole(now)
}

#[cfg(test)]
#[path = "probe_test.rs"]
mod probe_test;
