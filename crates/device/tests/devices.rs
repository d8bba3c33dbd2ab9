//! Memory of devices that the processor cannot touch, through the fake driver.
#![allow(
    clippy::unwrap_used,
    unsafe_code,
    reason = "tests of functions in a C library, which stop at the first surprise"
)]

mod support;

use proptest::prelude::*;
use snowskin_device::{Config, DeviceError, Drivers, Family, Kind, Registry, Run};
use snowskin_types::{Code, Failure};
use std::time::Duration;
use support::{Fake, pattern};

const NOW: Duration = Duration::ZERO;

fn registry(fake: &Fake, family: Family) -> Registry {
    Registry::new(Config {
        drivers: Drivers::from_paths([(family, &fake.path)]).unwrap(),
        ..Config::default()
    })
}

fn run(address: usize, len: usize) -> Run {
    Run {
        address,
        len: len as u64,
    }
}

fn sent(registry: &Registry, runs: &[Run]) -> Result<Vec<u8>, DeviceError> {
    let gather = registry.gather(runs)?;
    let mut bytes = Vec::new();
    gather
        .scattered()
        .source()
        .visit(|run| bytes.extend_from_slice(run));
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

/// The same for both families, and for a runtime that cannot tell whose an address is.
fn bytes_move_to_and_from_a_device(fake: &Fake, family: Family) {
    let registry = registry(fake, family);
    let device = fake.alloc(1 << 20, 1);
    fake.make_current(1);
    assert_eq!(registry.register(device, 1 << 20), Ok(Kind::Device));
    fake.make_current(-1);
    let mut host = pattern(1 << 16, 9);
    let host_at = host.as_mut_ptr().expose_provenance();
    assert_eq!(registry.register(host_at, 1 << 16), Ok(Kind::Host));

    let bytes = pattern(1 << 20, 77);
    fake.poke(device, &bytes);
    let runs = [
        run(device + 5, 1000),
        run(host_at + 100, 50),
        run(device + 500_000, 300_000),
        run(device, 0),
        run(host_at, 7),
    ];
    let whole = [
        &bytes[5..1005],
        &host[100..150],
        &bytes[500_000..800_000],
        &host[..7],
    ]
    .concat();
    assert_eq!(sent(&registry, &runs).unwrap(), whole);
    assert_eq!(registry.counts().device_bytes_out, 301_000);

    let fresh = pattern(whole.len(), 200);
    receive(&registry, &runs, &fresh).unwrap();
    assert_eq!(fake.peek(device + 5, 1000), fresh[..1000]);
    assert_eq!(fake.peek(device + 500_000, 300_000), fresh[1050..301_050]);
    assert_eq!(fake.peek(device, 5), bytes[..5]);
    assert_eq!(fake.peek(device + 1005, 1000), bytes[1005..2005]);
    assert_eq!(host[100..150], fresh[1000..1050]);
    assert_eq!(host[..7], fresh[301_050..]);
    assert_eq!(registry.counts().device_bytes_in, 301_000);
    assert_eq!(registry.counts().unregistered_copies, 0);

    // A short object fills the front only.
    receive(&registry, &runs, &[1; 1010]).unwrap();
    assert_eq!(fake.peek(device + 5, 1000), [1; 1000]);
    assert_eq!(host[100..110], [1; 10]);
    assert_eq!(host[110..150], fresh[1010..1050]);
    assert_eq!(fake.peek(device + 500_000, 300_000), fresh[1050..301_050]);

    let mut seen = vec![0; 10];
    registry.read(device + 500_000, &mut seen).unwrap();
    assert_eq!(seen, fresh[1050..1060]);
    registry.write(device + (1 << 20) - 3, b"end").unwrap();
    assert_eq!(fake.peek(device + (1 << 20) - 3, 3), b"end");
    registry.unregister(device, NOW).unwrap();
    registry.unregister(host_at, NOW).unwrap();
    assert_eq!(registry.counts().staged_bytes, 0);
}

#[test]
fn bytes_move_to_and_from_devices_of_the_first_family() {
    bytes_move_to_and_from_a_device(&Fake::build(&[]), Family::Cuda);
}

#[test]
fn bytes_move_to_and_from_devices_of_the_second_family() {
    bytes_move_to_and_from_a_device(&Fake::build(&[]), Family::Ascend);
}

#[test]
fn a_runtime_that_cannot_tell_owners_is_tried() {
    let fake = Fake::build(&["-DFAKE_OLD_ASCEND"]);
    bytes_move_to_and_from_a_device(&fake, Family::Ascend);
    let registry = registry(&fake, Family::Ascend);
    let device = fake.alloc(4096, 0);
    // Without a current device there is nobody to try.
    fake.make_current(-1);
    let error = registry.register(device, 4096).unwrap_err();
    assert!(matches!(error, DeviceError::NotMapped { .. }), "{error}");
}

#[test]
fn the_threads_device_is_as_before_after_a_copy() {
    let fake = Fake::build(&[]);
    for family in [Family::Cuda, Family::Ascend] {
        let registry = registry(&fake, family);
        let (first, second) = (fake.alloc(8192, 0), fake.alloc(8192, 3));
        registry
            .register_all(&[run(first, 8192), run(second, 8192)])
            .unwrap();
        fake.poke(first, b"first");
        fake.poke(second, b"second");
        fake.make_current(2);
        let runs = [run(first, 5), run(second, 6), run(first, 2)];
        assert_eq!(sent(&registry, &runs).unwrap(), b"firstsecondfi");
        assert_eq!(fake.current(), 2, "{family:?}");
        receive(&registry, &[run(second, 4), run(first, 4)], b"SECOFIRS").unwrap();
        assert_eq!(fake.current(), 2, "{family:?}");
        assert_eq!(fake.peek(second, 6), b"SECOnd");
        assert_eq!(fake.peek(first, 5), b"FIRSt");
        // Another thread has no device until one is chosen for it.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| sent(&registry, &[run(second, 6)]));
            assert_eq!(other.join().unwrap().unwrap(), b"SECOnd");
        });
    }
}

#[test]
fn managed_memory_is_the_hosts() {
    let fake = Fake::build(&[]);
    for family in [Family::Cuda, Family::Ascend] {
        let registry = registry(&fake, family);
        let managed = fake.managed(4096, 0);
        assert_eq!(registry.register(managed, 4096), Ok(Kind::Host));
        receive(&registry, &[run(managed, 3)], b"abc").unwrap();
        assert_eq!(fake.peek(managed, 3), b"abc");
        assert_eq!(fake.copies(), 0);
    }
}

#[test]
fn what_a_driver_refuses_is_a_failed_transfer_that_names_the_address() {
    let fake = Fake::build(&[]);
    let registry = registry(&fake, Family::Cuda);
    let device = fake.alloc(4096, 0);
    registry.register(device, 4096).unwrap();
    fake.fail_next(700);
    let failure = Failure::from(registry.gather(&[run(device + 8, 16)]).unwrap_err());
    assert_eq!(failure.code, Code::TransferFail);
    let named = format!("{:#x}", device + 8);
    assert!(failure.message.contains(&named), "{failure}");
    assert!(failure.message.contains("700"), "{failure}");
    let scatter = registry.scatter(&[run(device, 16)]).unwrap();
    fake.fail_next(719);
    let error = scatter.finish(16).unwrap_err();
    assert!(matches!(error, DeviceError::Driver { number: 719, .. }));
    assert_eq!(registry.counts().refused, 2);
    assert_eq!(registry.counts().staged_bytes, 0);
}

#[test]
fn a_device_range_that_ends_elsewhere_is_refused() {
    let fake = Fake::build(&[]);
    let registry = registry(&fake, Family::Cuda);
    let device = fake.alloc(1 << 16, 0);
    for len in [(1 << 16) + 1, 1 << 40] {
        let error = registry.register(device, len).unwrap_err();
        assert!(matches!(error, DeviceError::Mixed { .. }), "{error}");
        assert_eq!(error.code(), Code::InvalidParams);
    }
    assert_eq!(registry.counts().regions, 0);
}

#[test]
fn unregistered_device_memory_goes_through_its_driver_unless_strict() {
    let fake = Fake::build(&[]);
    let lax = registry(&fake, Family::Cuda);
    let device = fake.alloc(4096, 2);
    fake.poke(device, b"there");
    assert_eq!(sent(&lax, &[run(device, 5)]).unwrap(), b"there");
    receive(&lax, &[run(device + 1, 3)], b"HER").unwrap();
    assert_eq!(fake.peek(device, 5), b"tHERe");
    assert_eq!(lax.counts().unregistered_copies, 2);
    let strict = Registry::new(Config {
        strict: true,
        drivers: Drivers::from_paths([(Family::Cuda, &fake.path)]).unwrap(),
        ..Config::default()
    });
    let error = strict.gather(&[run(device, 5)]).unwrap_err();
    assert!(matches!(error, DeviceError::Unregistered { address, .. } if address == device));
}

#[test]
fn a_device_region_in_use_is_not_unregistered() {
    let fake = Fake::build(&[]);
    let registry = registry(&fake, Family::Cuda);
    let device = fake.alloc(4096, 0);
    registry.register(device, 4096).unwrap();
    let scatter = registry.scatter(&[run(device, 3)]).unwrap();
    let error = registry.unregister(device, NOW).unwrap_err();
    assert!(matches!(error, DeviceError::Busy { .. }), "{error}");
    assert_eq!(registry.capacity_at(device + 96), Some(4000));
    scatter.scattered().target(3).unwrap().fill_from(b"abc");
    scatter.finish(3).unwrap();
    assert_eq!(fake.peek(device, 3), b"abc");
    registry.unregister(device, NOW).unwrap();
    assert_eq!(registry.capacity_at(device), None);
}

#[test]
fn libraries_are_chosen_by_text() {
    let fake = Fake::build(&[]);
    let path = fake.path.display();
    for (text, family) in [
        (format!("{path}"), "cuda"),
        (format!("cuda:{path}"), "cuda"),
        (format!("ascend:{path}"), "ascend"),
    ] {
        let drivers = Drivers::parse(&text).unwrap();
        assert_eq!(format!("{drivers:?}"), format!("[{family:?}]"));
    }
    let both = Drivers::parse(&format!("ascend:{path}:cuda:{path}")).unwrap();
    assert_eq!(format!("{both:?}"), r#"["ascend", "cuda"]"#);
}

#[test]
fn a_library_without_the_functions_is_refused_by_name() {
    let fake = Fake::build(&["-DcuMemcpyDtoH_v2=cuMemcpyDtoH_v9"]);
    let error = Drivers::from_paths([(Family::Cuda, &fake.path)]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("cuMemcpyDtoH_v2"), "{text}");
    assert!(text.contains(&fake.path.display().to_string()), "{text}");
}

#[test]
fn any_mix_of_memory_moves_the_right_bytes() {
    const LEN: usize = 4096;
    let fake = Fake::build(&[]);
    let registry = registry(&fake, Family::Cuda);
    // Registered and not, of the host and of two devices.
    let mut host = [vec![0u8; LEN], vec![0u8; LEN]];
    let devices = [fake.alloc(LEN, 0), fake.alloc(LEN, 1), fake.alloc(LEN, 1)];
    let hosts = host
        .each_mut()
        .map(|bytes| bytes.as_mut_ptr().expose_provenance());
    for address in [hosts[0], devices[0], devices[1]] {
        registry.register(address, LEN as u64).unwrap();
    }
    let bases = [hosts[0], hosts[1], devices[0], devices[1], devices[2]];
    let look = |base: usize| match bases.iter().position(|other| *other == base) {
        Some(nth @ ..2) => {
            let mut bytes = vec![0; LEN];
            let source = std::ptr::with_exposed_provenance::<u8>(bases[nth]);
            // SAFETY: the vectors live, and nothing else uses them now.
            unsafe { source.copy_to_nonoverlapping(bytes.as_mut_ptr(), LEN) };
            bytes
        }
        _ => fake.peek(base, LEN),
    };
    let picks = prop::collection::vec((0..bases.len(), 0..LEN, 0usize..600), 0..16);
    proptest!(|(picks in picks, received in 0usize..6000, seed in any::<u8>())| {
        let mut model = bases.map(look);
        let cut = |(nth, at, len): &(usize, usize, usize)| (*nth, *at..LEN.min(at + len));
        let runs: Vec<Run> = picks
            .iter()
            .map(cut)
            .map(|(nth, range)| run(bases[nth] + range.start, range.len()))
            .collect();
        let places: Vec<(usize, usize)> = picks
            .iter()
            .map(cut)
            .flat_map(|(nth, range)| range.map(move |at| (nth, at)))
            .collect();
        let whole: Vec<u8> = places.iter().map(|(nth, at)| model[*nth][*at]).collect();
        prop_assert_eq!(sent(&registry, &runs).unwrap(), whole);
        let fresh = pattern(places.len().min(received), seed);
        receive(&registry, &runs, &fresh).unwrap();
        for ((nth, at), byte) in places.iter().zip(&fresh) {
            model[*nth][*at] = *byte;
        }
        for (base, bytes) in bases.iter().zip(&model) {
            prop_assert_eq!(&look(*base), bytes);
        }
        prop_assert_eq!(registry.counts().staged_bytes, 0);
    });
    drop(host);
}

#[test]
fn regions_come_and_go_while_others_use_them() {
    const LEN: usize = 1 << 16;
    let fake = Fake::build(&[]);
    let registry = registry(&fake, Family::Cuda);
    let bytes = pattern(LEN, 5);
    let mut host = bytes.clone();
    let host_at = host.as_mut_ptr().expose_provenance();
    let device = fake.alloc(LEN, 0);
    fake.poke(device, &bytes);
    let runs = [run(device + 7, 9000), run(host_at + 3, 20_000)];
    let whole = [&bytes[7..9007], &bytes[3..20_003]].concat();
    std::thread::scope(|scope| {
        for base in [host_at, device] {
            let registry = &registry;
            scope.spawn(move || {
                for _ in 0..300 {
                    registry.register(base, LEN as u64).unwrap();
                    registry.unregister(base, Duration::from_secs(20)).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    assert_eq!(sent(&registry, &runs).unwrap(), whole);
                }
            });
        }
    });
    let counts = registry.counts();
    assert_eq!(
        (counts.regions, counts.staged_bytes, counts.refused),
        (0, 0, 0)
    );
}
