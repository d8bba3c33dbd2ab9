//! Caller memory that goes away while it is named. In a process of its own: holes stay holes only as long as
//! nobody maps something of their size.
#![expect(unsafe_code, reason = "memory that is taken away again")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};
use snowskin_memory::error::MemoryError;
use snowskin_memory::probe::{Probes, Touch};
use snowskin_memory::region::ExternalRegion;
use std::cell::RefCell;
use std::fs::File;

const PAGE: usize = 4096;
const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Pages that are taken away bit by bit, in ascending order; the rest at the end.
struct Pages {
    base: usize,
    len: usize,
    holes: RefCell<Vec<(usize, usize)>>,
}

impl Pages {
    fn over(len: usize, file: Option<&File>, rights: ProtFlags) -> Self {
        let null = std::ptr::null_mut();
        // SAFETY: a fresh mapping where the kernel likes.
        let base = unsafe {
            match file {
                Some(file) => mm::mmap(null, len, rights, MapFlags::SHARED, file, 0),
                None => mm::mmap_anonymous(null, len, rights, MapFlags::PRIVATE),
            }
        };
        Self {
            base: base.unwrap().expose_provenance(),
            len,
            holes: RefCell::default(),
        }
    }

    fn new(len: usize) -> Self {
        Self::over(len, None, RIGHTS)
    }

    fn region(&self) -> ExternalRegion {
        // SAFETY: the tests touch the memory only through probes.
        unsafe { ExternalRegion::new(self.base, self.len as u64, None) }.unwrap()
    }

    fn cut(&self, from: usize, to: usize) {
        let at = std::ptr::with_exposed_provenance_mut(self.base + from);
        // SAFETY: a part of these pages, which nothing uses.
        unsafe { mm::munmap(at, to - from) }.unwrap();
    }

    fn unmap(&self, from: usize, to: usize) {
        self.cut(from, to);
        self.holes.borrow_mut().push((from, to));
    }

    fn protect(&self, from: usize, to: usize, rights: MprotectFlags) {
        let at = std::ptr::with_exposed_provenance_mut(self.base + from);
        // SAFETY: a part of these pages, which nothing uses.
        unsafe { mm::mprotect(at, to - from, rights) }.unwrap();
    }

    /// The first page that is not there, counted from the base.
    fn gone(
        &self,
        region: &ExternalRegion,
        offset: usize,
        len: usize,
        touch: Touch,
    ) -> Option<usize> {
        match region.probe(offset as u64, len as u64, touch) {
            Ok(()) => None,
            Err(MemoryError::Gone { at, .. }) => Some((at - self.base) / PAGE),
            Err(other) => panic!("{other}"),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let mut holes = self.holes.take();
        holes.sort_unstable();
        let mut from = 0;
        for (start, end) in holes.into_iter().chain([(self.len, self.len)]) {
            if from < start {
                self.cut(from, start);
            }
            from = end;
        }
    }
}

#[test]
fn a_hole_is_found_wherever_it_is_and_only_by_ranges_that_touch_it() {
    let pages = Pages::new(64 * PAGE);
    let region = pages.region();
    for touch in [Touch::Read, Touch::Write] {
        assert_eq!(pages.gone(&region, 0, 64 * PAGE, touch), None);
    }
    pages.unmap(40 * PAGE, 41 * PAGE);
    for touch in [Touch::Read, Touch::Write] {
        assert_eq!(pages.gone(&region, 0, 64 * PAGE, touch), Some(40));
        assert_eq!(pages.gone(&region, 5, 40 * PAGE - 5, touch), None);
        assert_eq!(pages.gone(&region, 5, 40 * PAGE - 4, touch), Some(40));
        assert_eq!(pages.gone(&region, 41 * PAGE, 100, touch), None);
        assert_eq!(pages.gone(&region, 40 * PAGE + 7, 1, touch), Some(40));
        assert_eq!(pages.gone(&region, 40 * PAGE, 0, touch), None);
    }
}

#[test]
fn a_file_that_was_cut_is_noticed_up_to_the_cut() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(32 * PAGE as u64).unwrap();
    let pages = Pages::over(32 * PAGE, Some(&file), RIGHTS);
    let region = pages.region();
    assert_eq!(pages.gone(&region, 0, 32 * PAGE, Touch::Write), None);
    file.set_len(9 * PAGE as u64 + 1).unwrap();
    for touch in [Touch::Read, Touch::Write] {
        assert_eq!(pages.gone(&region, 3, 32 * PAGE - 3, touch), Some(10));
        assert_eq!(pages.gone(&region, 0, 10 * PAGE, touch), None);
        assert_eq!(pages.gone(&region, 31 * PAGE, 1, touch), Some(31));
    }
}

#[test]
fn rights_that_were_taken_are_noticed_once_there_were_some() {
    let pages = Pages::new(4 * PAGE);
    let region = pages.region();
    region.probe(0, 10, Touch::Read).unwrap();
    pages.protect(PAGE, 2 * PAGE, MprotectFlags::READ);
    assert_eq!(pages.gone(&region, PAGE, 10, Touch::Read), None);
    assert_eq!(pages.gone(&region, PAGE, 10, Touch::Write), Some(1));
    pages.protect(PAGE, 2 * PAGE, MprotectFlags::empty());
    assert_eq!(pages.gone(&region, PAGE, 10, Touch::Read), Some(1));
}

#[test]
fn a_mapping_that_never_answered_is_taken_for_there() {
    // As with the mappings of drivers, its pages cannot be asked for.
    let pages = Pages::over(4 * PAGE, None, ProtFlags::empty());
    let region = pages.region();
    assert_eq!(pages.gone(&region, 0, 4 * PAGE, Touch::Read), None);
    pages.unmap(2 * PAGE, 3 * PAGE);
    assert_eq!(pages.gone(&region, 0, 4 * PAGE, Touch::Read), Some(2));
}

#[test]
fn every_short_range_is_asked_about_in_a_region_that_is_not_whole() {
    let pages = Pages::new(64 * PAGE);
    let region = pages.region();
    let ask = || {
        let mut probes = Probes::new(Touch::Read);
        for nth in 0..31 {
            probes.add(&region, nth * 2 * PAGE as u64, PAGE as u64);
        }
        probes.due().ask()
    };
    // No range touches it.
    pages.unmap(63 * PAGE, 64 * PAGE);
    ask().unwrap();
    ask().unwrap();
    // The last range does.
    pages.unmap(60 * PAGE, 61 * PAGE);
    assert!(matches!(ask(), Err(MemoryError::Gone { .. })));
}

#[test]
fn short_neighbours_are_asked_about_as_the_long_range_that_they_are() {
    let pages = Pages::new(64 * PAGE);
    let region = pages.region();
    let ask = || {
        let mut probes = Probes::new(Touch::Write);
        for nth in 0..64 {
            probes.add(&region, nth * PAGE as u64, PAGE as u64);
        }
        probes.due().ask()
    };
    ask().unwrap();
    pages.unmap(62 * PAGE, 63 * PAGE);
    assert!(matches!(ask(), Err(MemoryError::Gone { .. })));
}
