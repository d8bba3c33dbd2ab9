use super::*;
use proptest::prelude::*;
use snowskin_types::limits::MEMORY_REGIONS_MAX;
use snowskin_types::{Code, Failure};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_secs(20);

fn plain(config: Config) -> Registry {
    Registry::new(Config {
        drivers: Drivers::none(),
        ..config
    })
}

fn open() -> Registry {
    plain(Config::default())
}

fn strict() -> Registry {
    plain(Config {
        strict: true,
        ..Config::default()
    })
}

/// Bytes at a fixed place; the tests use them between operations only.
struct Memory(Vec<u8>);

impl Memory {
    fn new(len: usize) -> Self {
        Self((0..len).map(|at| (at % 253) as u8).collect())
    }

    fn at(&mut self, offset: usize) -> usize {
        self.0.as_mut_ptr().expose_provenance() + offset
    }
}

/// Pages that can be taken away.
struct Pages {
    address: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Self {
        use rustix::mm::{MapFlags, ProtFlags};
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping where the kernel likes.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, rights, MapFlags::PRIVATE)
        };
        let address = base.unwrap().expose_provenance();
        Self { address, len }
    }

    fn protect(&self, offset: usize, len: usize, rights: rustix::mm::MprotectFlags) {
        let at = std::ptr::with_exposed_provenance_mut(self.address + offset);
        // SAFETY: the range is inside these pages, which only the test uses.
        unsafe { rustix::mm::mprotect(at, len, rights) }.unwrap();
    }

    fn unmap(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the pages are ours, and used by nobody any more.
        unsafe { rustix::mm::munmap(at, self.len) }.unwrap();
        self.len = 0;
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            self.unmap();
        }
    }
}

fn run(address: usize, len: u64) -> Run {
    Run { address, len }
}

fn sent(registry: &Registry, runs: &[Run]) -> Result<Vec<u8>, DeviceError> {
    let gather = registry.gather(runs)?;
    let mut bytes = Vec::new();
    let source = gather.scattered().source();
    drop(gather);
    source.visit(|run| bytes.extend_from_slice(run));
    Ok(bytes)
}

fn receive(registry: &Registry, runs: &[Run], bytes: &[u8]) -> Result<(), DeviceError> {
    let scatter = registry.scatter(runs)?;
    let len = bytes.len() as u64;
    let mut target = scatter.scattered().target(len).unwrap();
    assert_eq!(target.fill_from(bytes), bytes.len());
    drop(target);
    scatter.finish(len)
}

#[test]
fn what_cannot_be_registered_is_refused_by_address() {
    let registry = open();
    let mut memory = Memory::new(100);
    let base = memory.at(0);
    assert_eq!(registry.register(0, 16), Err(DeviceError::Null));
    let empty = registry.register(base, 0).unwrap_err();
    assert_eq!(empty, DeviceError::Empty { address: base });
    let wraps = registry.register(usize::MAX - 3, 16).unwrap_err();
    assert!(matches!(wraps, DeviceError::Wraps { .. }));
    let hole = Pages::new(8192);
    hole.protect(0, 8192, rustix::mm::MprotectFlags::empty());
    // The first page, one without rights, and the kernel's half of the address space.
    for bogus in [8usize, hole.address, 0xffff_8000_0000_0000] {
        let failure = Failure::from(registry.register(bogus, 4096).unwrap_err());
        assert_eq!(failure.code, Code::InvalidParams);
        let named = format!("{bogus:#x}");
        assert!(failure.message.contains(&named), "{failure}");
    }
    assert_eq!(registry.counts().refused, 6);
    assert_eq!(registry.counts().regions, 0);
}

#[test]
fn identical_and_overlapping_regions_are_refused() {
    let registry = open();
    let mut memory = Memory::new(1000);
    let base = memory.at(0);
    registry.register(base + 100, 100).unwrap();
    for (offset, len) in [(100, 100), (0, 101), (199, 1), (150, 10), (0, 1000)] {
        let error = registry.register(base + offset, len).unwrap_err();
        assert!(
            matches!(error, DeviceError::Overlap { other, other_len: 100, .. } if other == base + 100),
            "{error}"
        );
        assert_eq!(error.code(), Code::InvalidParams);
    }
    registry.register(base, 100).unwrap();
    registry.register(base + 200, 800).unwrap();
    assert_eq!(registry.counts().regions, 3);
    assert_eq!(registry.capacity_at(base + 199), Some(1));
    assert_eq!(registry.capacity_at(base + 200), Some(800));
    assert_eq!(registry.capacity_at(base + 1000), None);
    let region = registry.region_of(base + 110, 90).unwrap();
    assert_eq!((region.base, region.len), (base + 100, 100));
    assert_eq!(region.kind, Kind::Host);
    assert!(registry.region_of(base + 110, 91).is_none());
}

#[test]
fn a_list_is_registered_whole_or_not_at_all() {
    let registry = open();
    let mut memory = Memory::new(1000);
    let base = memory.at(0);
    let good = [run(base + 600, 100), run(base, 100), run(base + 300, 100)];
    for bad in [run(base + 50, 10), run(0, 1), run(base, 0), run(0x10, 5)] {
        let mut list = good.to_vec();
        list.insert(1, bad);
        registry.register_all(&list).unwrap_err();
        assert_eq!(registry.counts().regions, 0);
    }
    registry.register_all(&good).unwrap();
    assert_eq!(registry.counts().regions, 3);
    let all = registry.register_all(&[run(base + 900, 10), run(base + 650, 10)]);
    assert!(matches!(all, Err(DeviceError::Overlap { .. })));
    assert_eq!(registry.counts().regions, 3);
    for region in good {
        registry.unregister(region.address, NOW).unwrap();
    }
    assert_eq!(registry.counts().regions, 0);
}

#[test]
fn only_a_base_is_unregistered() {
    let registry = open();
    let mut memory = Memory::new(100);
    let base = memory.at(0);
    registry.register(base, 100).unwrap();
    for address in [base + 1, 0, 77] {
        let error = registry.unregister(address, NOW).unwrap_err();
        assert_eq!(error, DeviceError::Unknown { address });
        assert_eq!(error.code(), Code::InvalidParams);
    }
    registry.unregister(base, NOW).unwrap();
    let again = registry.unregister(base, NOW);
    assert_eq!(again, Err(DeviceError::Unknown { address: base }));
}

#[test]
fn half_mapped_memory_is_refused() {
    let registry = open();
    let pages = Pages::new(4 * 4096);
    pages.protect(4096, 4096, rustix::mm::MprotectFlags::READ);
    pages.protect(8192, 4096, rustix::mm::MprotectFlags::empty());
    let error = registry.register(pages.address, 4 * 4096).unwrap_err();
    assert!(
        matches!(error, DeviceError::NotMapped { at, .. } if at == pages.address + 8192),
        "{error}"
    );
}

#[test]
fn read_only_memory_is_registered_for_sending() {
    let registry = open();
    let pages = Pages::new(4 * 4096);
    let base = pages.address;
    pages.protect(8192, 4096, rustix::mm::MprotectFlags::READ);
    // Its bytes can be sent by copy without that, but not be overwritten.
    assert_eq!(sent(&registry, &[run(base + 8000, 300)]).unwrap(), [0; 300]);
    let error = receive(&registry, &[run(base + 8192, 8)], b"12345678").unwrap_err();
    assert!(matches!(error, DeviceError::NotMapped { .. }), "{error}");
    let copies = registry.counts().unregistered_copies;
    assert_eq!(registry.register(base, 4 * 4096), Ok(Kind::Host));
    let region = registry.region_of(base, 4 * 4096).unwrap();
    assert!(!region.writable && !region.external.unwrap().is_writable());
    assert_eq!(sent(&registry, &[run(base + 8000, 300)]).unwrap(), [0; 300]);
    let mut bytes = [1; 8];
    registry.read(base + 8190, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
    // It is so as a whole, also where its pages could be written.
    for at in [base + 100, base + 8190, base + 8192] {
        let refusal = DeviceError::ReadOnly {
            address: at,
            len: 8,
            at,
        };
        assert_eq!(registry.scatter(&[run(at, 8)]).unwrap_err(), refusal);
        let unregistered = base + 4 * 4096;
        let mixed = registry.scatter(&[run(at, 8), run(unregistered, 1)]);
        assert_eq!(mixed.unwrap_err(), refusal);
        assert_eq!(registry.write(at, b"12345678"), Err(refusal.clone()));
        let failure = Failure::from(refusal);
        assert_eq!(failure.code, Code::InvalidParams);
        assert!(failure.message.contains("read-only"), "{failure}");
    }
    assert_eq!(registry.counts().unregistered_copies, copies);
    // It stays so when it cannot be unregistered.
    let gather = registry.gather(&[run(base, 8)]).unwrap();
    registry.unregister(base, NOW).unwrap_err();
    drop(gather);
    assert!(registry.scatter(&[run(base, 8)]).is_err());
    registry.unregister(base, NOW).unwrap();
    receive(&registry, &[run(base + 100, 8)], b"12345678").unwrap();
}

#[test]
fn registered_memory_is_not_copied() {
    let registry = strict();
    let mut memory = Memory::new(1000);
    let base = memory.at(0);
    registry.register(base, 500).unwrap();
    registry.register(base + 500, 500).unwrap();
    // The middle run goes from one region into the next.
    let runs = [run(base + 10, 10), run(base + 490, 20), run(base, 5)];
    let whole = [&memory.0[10..20], &memory.0[490..510], &memory.0[..5]].concat();
    assert_eq!(sent(&registry, &runs).unwrap(), whole);
    let scatter = registry.scatter(&runs).unwrap();
    let mut target = scatter.scattered().target(35).unwrap();
    target.fill_from(&[9; 35]);
    // It is there before anything is copied.
    assert_eq!(memory.0[490..510], [9; 20]);
    drop(target);
    scatter.finish(35).unwrap();
    assert_eq!(registry.counts().unregistered_copies, 0);
    assert_eq!(registry.counts().staged_bytes, 0);
}

#[test]
fn unregistered_memory_is_copied_and_counted() {
    let denied = Registry::with_kernel(
        Config {
            drivers: Drivers::none(),
            ..Config::default()
        },
        Kernel::denied(),
    );
    for registry in [open(), denied] {
        let mut memory = Memory::new(1000);
        let base = memory.at(0);
        registry.register(base + 300, 100).unwrap();
        let runs = [run(base + 250, 200), run(base, 50)];
        let whole = [&memory.0[250..450], &memory.0[..50]].concat();
        assert_eq!(sent(&registry, &runs).unwrap(), whole);
        assert_eq!(registry.counts().unregistered_copies, 3);
        let fresh: Vec<u8> = (0..250).map(|at| 255 - at as u8).collect();
        receive(&registry, &runs, &fresh).unwrap();
        assert_eq!(memory.0[250..450], fresh[..200]);
        assert_eq!(memory.0[..50], fresh[200..]);
        assert_eq!(memory.0[50], 50);
        assert_eq!(registry.counts().unregistered_copies, 6);
        assert_eq!(registry.counts().staged_bytes, 0);
    }
}

#[test]
fn strict_registries_refuse_unregistered_memory() {
    let registry = strict();
    let mut memory = Memory::new(1000);
    let base = memory.at(0);
    registry.register(base + 300, 100).unwrap();
    let unregistered = |address, len| DeviceError::Unregistered { address, len };
    let runs = [run(base + 300, 50), run(base + 350, 60)];
    let error = registry.gather(&runs).unwrap_err();
    assert_eq!(error, unregistered(base + 400, 10));
    assert_eq!(registry.scatter(&runs).unwrap_err(), error);
    assert_eq!(registry.read(base, &mut [0; 4]), Err(unregistered(base, 4)));
    assert_eq!(registry.write(base, &[0; 4]), Err(unregistered(base, 4)));
    assert_eq!(error.code(), Code::InvalidParams);
    assert_eq!(registry.counts().unregistered_copies, 0);
}

#[test]
fn memory_that_went_away_is_an_error_and_no_signal() {
    let denied = Registry::with_kernel(
        Config {
            drivers: Drivers::none(),
            ..Config::default()
        },
        Kernel::denied(),
    );
    for registry in [open(), denied] {
        let mut pages = Pages::new(1 << 20);
        let address = pages.address;
        registry.register(address, 1 << 20).unwrap();
        registry.unregister(address, NOW).unwrap();
        pages.unmap();
        let runs = [run(address + 5, 100)];
        let failure = Failure::from(registry.gather(&runs).unwrap_err());
        assert_eq!(failure.code, Code::InvalidParams);
        let named = format!("{:#x}", address + 5);
        assert!(failure.message.contains(&named), "{failure}");
        let error = receive(&registry, &runs, &[1; 100]).unwrap_err();
        assert!(matches!(error, DeviceError::NotMapped { .. }), "{error}");
        assert!(registry.read(address, &mut [0; 9]).is_err());
        assert!(registry.write(address, &[0; 9]).is_err());
        for bogus in [1usize, 0xffff_8000_0000_0000, usize::MAX - 200] {
            let error = registry.gather(&[run(bogus, 100)]).unwrap_err();
            assert_eq!(error.code(), Code::InvalidParams, "{error}");
        }
        assert_eq!(registry.counts().staged_bytes, 0);
    }
}

#[test]
fn null_and_wrapping_runs_are_refused() {
    let registry = open();
    assert_eq!(
        registry.gather(&[run(0, 1)]).unwrap_err(),
        DeviceError::Null
    );
    let error = registry.scatter(&[run(usize::MAX - 4, 6)]).unwrap_err();
    assert!(matches!(error, DeviceError::Wraps { .. }), "{error}");
    let empty = registry.gather(&[run(0, 0), run(usize::MAX, 0)]).unwrap();
    assert!(empty.scattered().is_empty());
    registry.scatter(&[]).unwrap().finish(0).unwrap();
}

#[test]
fn runs_that_overlap_are_received_one_after_the_other() {
    let registry = open();
    let mut memory = Memory::new(100);
    let base = memory.at(0);
    registry.register(base, 50).unwrap();
    for runs in [
        [run(base, 10), run(base + 5, 10)],
        [run(base + 40, 10), run(base + 45, 10)],
    ] {
        let at = runs[0].address - base;
        receive(&registry, &runs, b"aaaaaaaaaabbbbbbbbbb").unwrap();
        assert_eq!(memory.0[at..at + 15], *b"aaaaabbbbbbbbbb");
    }
    // Three runs, of which only the unregistered ones overlap.
    let runs = [run(base, 2), run(base + 60, 4), run(base + 62, 4)];
    receive(&registry, &runs, b"xxccccdddd").unwrap();
    assert_eq!(memory.0[60..66], *b"ccdddd");
}

#[test]
fn unregistering_waits_for_operations_in_the_region() {
    let registry = open();
    let mut memory = Memory::new(200);
    let base = memory.at(0);
    registry.register(base, 100).unwrap();
    registry.register(base + 100, 100).unwrap();
    let gather = registry.gather(&[run(base, 10)]).unwrap();
    let source = gather.scattered().source();
    drop(gather);
    // The other region is not concerned.
    registry.unregister(base + 100, NOW).unwrap();
    let error = registry.unregister(base, NOW).unwrap_err();
    assert_eq!(
        error,
        DeviceError::Busy {
            address: base,
            users: 1
        }
    );
    // It is registered as before.
    assert_eq!(registry.capacity_at(base), Some(100));
    let (ended, end) = sync_channel(1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let result = registry.unregister(base, SOON);
            ended.send(()).unwrap();
            result
        });
        // New operations do not see the region from the moment on that it is being unregistered.
        while registry.capacity_at(base).is_some() {
            std::thread::yield_now();
        }
        assert!(matches!(
            registry.register(base + 50, 100),
            Err(DeviceError::Overlap { .. })
        ));
        assert!(end.try_recv().is_err());
        drop(source);
        waiting.join().unwrap().unwrap();
    });
    registry.register(base + 50, 100).unwrap();
}

#[test]
fn the_number_of_regions_is_bounded() {
    let registry = open();
    let mut memory = Memory::new(MEMORY_REGIONS_MAX + 1);
    let base = memory.at(0);
    let runs: Vec<Run> = (0..MEMORY_REGIONS_MAX)
        .map(|at| run(base + at, 1))
        .collect();
    registry.register_all(&runs).unwrap();
    let error = registry.register(base + runs.len(), 1).unwrap_err();
    assert!(matches!(error, DeviceError::TooMany { .. }), "{error}");
    registry.unregister(base + 7, NOW).unwrap();
    registry.register(base + runs.len(), 1).unwrap();
}

#[test]
fn staging_is_bounded_and_comes_back() {
    let registry = plain(Config {
        staging_max: 1 << 20,
        staging_patience: NOW,
        ..Config::default()
    });
    let mut memory = Memory::new(3 << 20);
    let base = memory.at(0);
    let large = registry.gather(&[run(base, 1 << 20), run(base, 1)]);
    let error = large.unwrap_err();
    assert!(
        matches!(error, DeviceError::TooLarge { wanted, max } if wanted == (1 << 20) + 1 && max == 1 << 20)
    );
    let first = registry.gather(&[run(base, 700_000)]).unwrap();
    let error = registry.gather_now(&[run(base, 700_000)]).unwrap_err();
    assert!(matches!(error, DeviceError::StagingFull { .. }), "{error}");
    assert_eq!(error.code(), Code::UnavailableInStatus);
    assert!(registry.scatter(&[run(base, 700_000)]).is_err());
    let source = first.scattered().source();
    drop(first);
    assert!(registry.gather_now(&[run(base, 700_000)]).is_err());
    drop(source);
    registry.gather_now(&[run(base, 1 << 20)]).unwrap();
    assert_eq!(registry.counts().staged_bytes, 0);
}

#[test]
fn a_gather_waits_for_staging_memory() {
    let registry = plain(Config {
        staging_max: 1 << 20,
        staging_patience: SOON,
        ..Config::default()
    });
    let mut memory = Memory::new(1 << 20);
    let base = memory.at(0);
    let first = registry.gather(&[run(base, 1 << 20)]).unwrap();
    let (started, start) = sync_channel(1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            started.send(()).unwrap();
            registry.gather(&[run(base, 1000)]).map(drop)
        });
        start.recv().unwrap();
        drop(first);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_call_waits_for_staging_memory_no_longer_than_it_has_time() {
    let registry = plain(Config {
        staging_max: 1 << 20,
        staging_patience: Duration::from_secs(24 * 3600),
        ..Config::default()
    });
    let mut memory = Memory::new(1 << 20);
    let base = memory.at(0);
    let _held = registry.gather(&[run(base, 1 << 20)]).unwrap();
    let left = Duration::from_millis(1);
    let error = registry.gather_within(&[run(base, 1)], left).unwrap_err();
    assert!(matches!(error, DeviceError::StagingFull { .. }), "{error}");
    assert!(registry.scatter_within(&[run(base, 1)], left).is_err());
}

#[test]
fn more_than_there_is_room_for_is_not_finished() {
    let registry = open();
    let mut memory = Memory::new(10);
    let scatter = registry.scatter(&[run(memory.at(0), 10)]).unwrap();
    let error = scatter.finish(11).unwrap_err();
    let expected = DeviceError::NoRoom {
        wanted: 11,
        room: 10,
    };
    assert_eq!(error, expected);
}

proptest! {
    #[test]
    fn any_runs_over_any_regions_move_the_right_bytes(
        cuts in prop::collection::btree_set(0usize..2000, 0..40),
        keep in prop::collection::vec(any::<bool>(), 41),
        runs in prop::collection::vec((0usize..2000, 0u64..200), 0..12),
        received in 0usize..2400,
        is_strict in any::<bool>(),
    ) {
        let registry = if is_strict { strict() } else { open() };
        let mut memory = Memory::new(2200);
        let base = memory.at(0);
        // Some of the ranges between the cuts are regions.
        let mut registered = vec![false; 2200];
        let cuts: Vec<usize> = cuts.into_iter().collect();
        for (pair, keep) in cuts.windows(2).zip(&keep) {
            if *keep {
                registry.register(base + pair[0], (pair[1] - pair[0]) as u64).unwrap();
                registered[pair[0]..pair[1]].fill(true);
            }
        }
        let mut model = memory.0.clone();
        let list: Vec<Run> = runs.iter().map(|(at, len)| run(base + at, *len)).collect();
        let places: Vec<usize> = runs
            .iter()
            .flat_map(|(at, len)| *at..*at + *len as usize)
            .collect();
        let allowed = !is_strict || places.iter().all(|at| registered[*at]);
        let whole: Vec<u8> = places.iter().map(|at| model[*at]).collect();
        let gathered = sent(&registry, &list);
        prop_assert_eq!(gathered.is_ok(), allowed);
        if !allowed {
            prop_assert!(registry.scatter(&list).is_err());
            return Ok(());
        }
        prop_assert_eq!(gathered.unwrap(), whole);
        let bytes: Vec<u8> = (0..places.len().min(received)).map(|at| (at * 7 % 256) as u8).collect();
        receive(&registry, &list, &bytes).unwrap();
        for (at, byte) in places.iter().zip(&bytes) {
            model[*at] = *byte;
        }
        prop_assert_eq!(&memory.0, &model);
        prop_assert_eq!(registry.counts().staged_bytes, 0);
        for pair in cuts.windows(2).zip(&keep).filter(|(_, keep)| **keep).map(|(pair, _)| pair) {
            registry.unregister(base + pair[0], NOW).unwrap();
        }
        prop_assert_eq!(registry.counts().regions, 0);
    }
}
