//! Memory that is reached by copies only: the same ranges, staged a chunk at a time by the server.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use parking_lot::Mutex;
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_transfer::regions::{ForeignMemory, RegionAccess};
use snowskin_transfer::transport::RegionId;
use snowskin_types::error::{Code, Failure, Stage};
use std::sync::Arc;
use support::*;

/// A device of which only copies are known.
#[derive(Debug)]
struct Device {
    bytes: Mutex<Vec<u8>>,
    /// Copies that touch this byte fail.
    broken: Option<u64>,
    /// The largest copy asked for.
    largest: Mutex<usize>,
}

impl Device {
    fn new(len: usize, broken: Option<u64>) -> Arc<Self> {
        Arc::new(Device {
            bytes: Mutex::new(vec![CANARY; len]),
            broken,
            largest: Mutex::default(),
        })
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), Failure> {
        let mut largest = self.largest.lock();
        *largest = len.max(*largest);
        match self.broken {
            Some(at) if (offset..offset + len as u64).contains(&at) => Err(Failure::new(
                Code::TransferFail,
                Stage::Write,
                "the device is broken there",
            )),
            _ => Ok(()),
        }
    }
}

impl ForeignMemory for Device {
    fn len(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Failure> {
        self.check(offset, into.len())?;
        let start = offset as usize;
        into.copy_from_slice(&self.bytes.lock()[start..start + into.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Failure> {
        self.check(offset, from.len())?;
        let start = offset as usize;
        self.bytes.lock()[start..start + from.len()].copy_from_slice(from);
        Ok(())
    }
}

fn registered(device: &Arc<Device>) -> (Node, RegionId) {
    let node = Node::new(Memory::new(1 << 20, 50_000));
    let memory: Arc<dyn ForeignMemory> = Arc::clone(device) as _;
    let regions = &node.memory().regions;
    let region = regions.register(memory, RegionAccess::Both).unwrap();
    (node, region)
}

#[test]
fn ranges_of_every_size_are_staged_in_bounded_chunks() {
    const PIECE: usize = 256 * 1024;
    let device = Device::new(6 << 20, None);
    let (node, region) = registered(&device);
    let (place, transport) = (node.place(), transport());
    for len in [1, 4096, PIECE, PIECE + 1, 1 << 20, (5 << 20) + 3] {
        let bytes = pattern(len, 3);
        let write = range_write(&place, at(region, 7), SourceSlices::of(&bytes));
        assert_eq!(run_one(&transport, write).unwrap().bytes, len as u64);
        let held = device.bytes.lock().clone();
        assert!(held[7..7 + len] == bytes, "{len}");
        assert_eq!(held[..7], [CANARY; 7]);
        let mut back = vec![0; len];
        let read = range_read(&place, at(region, 7), TargetSlices::of(&mut back));
        assert_eq!(run_one(&transport, read).unwrap().bytes, len as u64);
        assert!(back == bytes, "{len}");
    }
    assert_eq!(*device.largest.lock(), PIECE);
    assert_eq!(node.memory().regions.operations(region), 0);
}

#[test]
fn a_copy_that_fails_fails_the_operation_and_not_the_connection() {
    let device = Device::new(4 << 20, Some(1 << 20));
    let (node, region) = registered(&device);
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(3 << 20, 5);
    for _ in 0..2 {
        let write = range_write(&place, at(region, 0), SourceSlices::of(&bytes));
        let failure = run_one(&transport, write).unwrap_err();
        assert_eq!(failure.code, Code::TransferFail, "{failure}");
        let mut back = vec![0; 3 << 20];
        let read = range_read(&place, at(region, 0), TargetSlices::of(&mut back));
        let failure = run_one(&transport, read).unwrap_err();
        assert_eq!(failure.code, Code::TransferFail, "{failure}");
    }
    // Beside the broken byte all is well.
    let write = range_write(&place, at(region, 2 << 20), SourceSlices::of(&bytes[..100]));
    run_one(&transport, write).unwrap();
    assert_eq!(counter(&node.server.counters().connections_opened), 1);
}
