//! Registered memory that went away. In a process of its own: a hole stays one only as long as nobody maps
//! something there.
#![allow(
    clippy::unwrap_used,
    unsafe_code,
    reason = "tests that take memory away, which stop at the first surprise"
)]

use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};
use snowskin_device::{Config, DeviceError, Drivers, Registry, Run};
use snowskin_types::Code;
use std::fs::File;
use std::time::Duration;

const PAGE: usize = 4096;
const PAGES: usize = 256;

fn registry() -> Registry {
    Registry::new(Config {
        drivers: Drivers::none(),
        ..Config::default()
    })
}

fn run(address: usize, len: usize) -> Run {
    Run {
        address,
        len: len as u64,
    }
}

/// Memory whose second half goes away in one of the ways there are. The first is unmapped at the end.
struct Half {
    base: usize,
    file: Option<File>,
    cut: bool,
}

impl Half {
    fn new(file: Option<File>) -> Self {
        let (null, len) = (std::ptr::null_mut(), PAGES * PAGE);
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping where the kernel likes.
        let base = unsafe {
            match &file {
                Some(file) => mm::mmap(null, len, rights, MapFlags::SHARED, file, 0),
                None => mm::mmap_anonymous(null, len, rights, MapFlags::PRIVATE),
            }
        };
        let base = base.unwrap().expose_provenance();
        Self {
            base,
            file,
            cut: false,
        }
    }

    fn in_file() -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len((PAGES * PAGE) as u64).unwrap();
        Self::new(Some(file))
    }

    fn middle(&self) -> usize {
        self.base + PAGES / 2 * PAGE
    }

    fn unmap(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.middle());
        // SAFETY: these pages, which nothing uses.
        unsafe { mm::munmap(at, PAGES / 2 * PAGE) }.unwrap();
        self.cut = true;
    }

    fn truncate(&mut self) {
        let file = self.file.as_ref().unwrap();
        file.set_len((PAGES / 2 * PAGE) as u64).unwrap();
    }

    fn forbid(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.middle());
        // SAFETY: these pages, which nothing uses.
        unsafe { mm::mprotect(at, PAGES / 2 * PAGE, MprotectFlags::empty()) }.unwrap();
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let len = if self.cut { PAGES / 2 } else { PAGES } * PAGE;
        let at = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: what is left of these pages, which nothing uses.
        unsafe { mm::munmap(at, len) }.unwrap();
    }
}

/// Every way to use memory, with its answer.
fn uses(registry: &Registry, run: Run) -> [Result<(), DeviceError>; 6] {
    let len = run.len as usize;
    let twice = [run, run];
    [
        registry.gather(&[run]).map(drop),
        registry.scatter(&[run]).map(drop),
        registry.read(run.address, &mut vec![0; len]),
        registry.write(run.address, &vec![0; len]),
        registry.scatter(&twice).map(drop),
        registry.gather_now(&twice).map(drop),
    ]
}

#[test]
fn registered_memory_that_went_away_is_refused_by_its_address_and_no_signal() {
    type Way = fn(&mut Half);
    let ways: [(Half, Way); 4] = [
        (Half::new(None), Half::unmap),
        (Half::in_file(), Half::unmap),
        (Half::in_file(), Half::truncate),
        (Half::new(None), Half::forbid),
    ];
    for (mut half, go) in ways {
        let registry = registry();
        registry.register(half.base, (PAGES * PAGE) as u64).unwrap();
        let lens = [1, PAGE, 100_000, PAGES * PAGE / 2];
        for len in lens {
            for used in uses(&registry, run(half.middle(), len)) {
                used.unwrap();
            }
        }
        go(&mut half);
        for len in lens {
            for used in uses(&registry, run(half.middle(), len)) {
                let error = used.unwrap_err();
                assert_eq!(error.code(), Code::InvalidParams, "{error}");
                let DeviceError::NotMapped { at, .. } = error else {
                    panic!("{error}");
                };
                assert_eq!(at, half.middle());
            }
            // What is left of the region can be used as before.
            for used in uses(&registry, run(half.base + 5, len - len.min(5))) {
                used.unwrap();
            }
        }
        // Also amid many others, and beside memory that is not registered.
        let mut runs: Vec<Run> = (0..64)
            .map(|nth| run(half.base + nth * 2 * PAGE, 100))
            .collect();
        registry.gather(&runs).unwrap();
        let stranger = [0u8; 10];
        runs.push(run(half.middle() + 7, 1));
        assert!(registry.gather(&runs).is_err() && registry.scatter(&runs).is_err());
        runs.push(run(stranger.as_ptr().expose_provenance(), 10));
        assert!(registry.gather(&runs).is_err());
        registry.unregister(half.base, Duration::ZERO).unwrap();
        assert_eq!(registry.counts().staged_bytes, 0);
    }
}

#[test]
fn room_that_goes_away_before_it_is_filled_by_copy_is_an_error() {
    let mut half = Half::in_file();
    let registry = registry();
    registry.register(half.base, (PAGES * PAGE) as u64).unwrap();
    // Runs with a byte in common are received into staging memory.
    let runs = [run(half.middle(), 100), run(half.middle() + 50, 100)];
    let scatter = registry.scatter(&runs).unwrap();
    half.truncate();
    let error = scatter.finish(200).unwrap_err();
    assert!(matches!(error, DeviceError::NotMapped { .. }), "{error}");
}
