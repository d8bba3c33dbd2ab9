//! Memory of the caller that is named by address, and room made to measure.

use crate::fake::{FakeMaster, ServedNode, Whim, client_of, config};
use crate::*;
use snowskin_device::{Config as MemoryConfig, Drivers, Gather, Registry, Run, Scatter};
use snowskin_types::{Code, Failure, Stage};
use std::sync::Arc;

struct World {
    node: ServedNode,
    client: Client,
    memory: Registry,
    _master: Arc<FakeMaster>,
}

fn world() -> World {
    let master = Arc::new(FakeMaster::default());
    let node = ServedNode::start(1, &master);
    let client = client_of(&config(), Arc::clone(&master) as _);
    let memory = Registry::new(MemoryConfig {
        drivers: Drivers::none(),
        ..MemoryConfig::default()
    });
    World {
        node,
        client,
        memory,
        _master: master,
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn run(of: &mut [u8], offset: usize, len: usize) -> Run {
    Run {
        address: of.as_mut_ptr().expose_provenance() + offset,
        len: len as u64,
    }
}

/// Room that is counted.
#[derive(Default)]
struct Rooms {
    made: Vec<usize>,
    bytes: Vec<u8>,
    refusal: Option<Failure>,
}

impl Room for Rooms {
    fn room(&mut self, len: usize) -> Result<&mut [u8], Failure> {
        self.made.push(len);
        match self.refusal.take() {
            Some(failure) => Err(failure),
            None => {
                self.bytes = vec![0; len];
                Ok(&mut self.bytes)
            }
        }
    }
}

#[test]
fn objects_are_put_from_and_read_into_parts_of_several_regions() {
    let world = world();
    let layers = 80;
    let size = 40_000;
    let mut from: Vec<Vec<u8>> = (0..layers).map(|_| bytes(size)).collect();
    let mut into: Vec<Vec<u8>> = (0..layers).map(|_| vec![0xAA; size]).collect();
    for layer in from.iter_mut().chain(&mut into) {
        let all = run(layer, 0, size);
        world.memory.register(all.address, all.len).unwrap();
    }
    let block = |nth: usize, layers: &mut [Vec<u8>]| -> Vec<Run> {
        let at = |layer: &mut Vec<u8>| run(layer, nth * 9001, 9001);
        layers.iter_mut().map(at).collect()
    };
    let names = ["k0", "k1", "k2"];
    let gathers: Vec<Gather> = (0..3)
        .map(|nth| world.memory.gather(&block(nth, &mut from)).unwrap())
        .collect();
    let sources: Vec<(&str, Source<'_>)> = names
        .iter()
        .zip(&gathers)
        .map(|(name, gather)| (*name, Source::Scattered(gather.scattered())))
        .collect();
    for stored in world.client.put_batch(&sources, &PutOptions::default()) {
        stored.unwrap();
    }
    let whole: Vec<u8> = from
        .iter()
        .flat_map(|layer| &layer[..9001])
        .copied()
        .collect();
    let read = world.client.get("k0", &GetOptions::default()).unwrap();
    assert_eq!(read, whole);

    let scatters: Vec<Scatter> = (0..3)
        .map(|nth| world.memory.scatter(&block(nth, &mut into)).unwrap())
        .collect();
    let mut items: Vec<GetItem<'_>> = names
        .iter()
        .zip(&scatters)
        .map(|(name, scatter)| {
            GetItem::whole(name.as_bytes(), Target::Scattered(scatter.scattered()))
        })
        .collect();
    let results = world.client.get_items(&mut items, &GetOptions::default());
    drop(items);
    for (result, scatter) in results.into_iter().zip(scatters) {
        let got = result.unwrap();
        assert_eq!(got.len, 9001 * layers as u64);
        scatter.finish(got.len).unwrap();
    }
    for (from, into) in from.iter().zip(&into) {
        assert_eq!(from[..3 * 9001], into[..3 * 9001]);
        assert!(into[3 * 9001..].iter().all(|byte| *byte == 0xAA));
    }
    assert_eq!(world.memory.counts().unregistered_copies, 0);
}

#[test]
fn a_scattered_target_that_is_too_small_is_not_touched() {
    let world = world();
    let put = PutOptions::default();
    world.client.put("k", &bytes(100), &put).unwrap();
    let mut into = vec![0xAA; 99];
    let scatter = world.memory.scatter(&[run(&mut into, 0, 99)]).unwrap();
    let target = Target::Scattered(scatter.scattered());
    let result = world
        .client
        .get_target(b"k", target, &GetOptions::default());
    assert_eq!(result.unwrap_err().code, Code::BufferOverflow);
    drop(scatter);
    assert!(into.iter().all(|byte| *byte == 0xAA));
}

#[test]
fn room_is_asked_for_once_the_size_is_known() {
    let world = world();
    let data = bytes(700_000);
    let put = PutOptions::default();
    world.client.put("k", &data, &put).unwrap();
    let mut rooms = Rooms::default();
    let got = world
        .client
        .get_target(b"k", Target::Made(&mut rooms), &GetOptions::default())
        .unwrap();
    assert_eq!(got.len, 700_000);
    assert_eq!(rooms.made, [700_000]);
    assert_eq!(rooms.bytes, data);
    let mut none = Rooms::default();
    let missing = world
        .client
        .get_target(b"none", Target::Made(&mut none), &GetOptions::default());
    assert_eq!(missing.unwrap_err().code, Code::ObjectNotFound);
    assert_eq!(none.made, [0usize; 0]);
}

#[test]
fn room_serves_the_next_attempt_too() {
    let world = world();
    let data = bytes(300_000);
    let put = PutOptions::default();
    world.client.put("k", &data, &put).unwrap();
    world.node.on_read(Whim::Fail(Code::UnavailableInStatus));
    let mut rooms = Rooms::default();
    world
        .client
        .get_target(b"k", Target::Made(&mut rooms), &GetOptions::default())
        .unwrap();
    assert_eq!(rooms.bytes, data);
    assert!(
        rooms.made.iter().all(|len| *len == 300_000),
        "{:?}",
        rooms.made
    );
}

#[test]
fn room_that_cannot_be_had_fails_its_item_only() {
    let world = world();
    let put = PutOptions::default();
    world.client.put("a", &bytes(10), &put).unwrap();
    world.client.put("b", &bytes(20), &put).unwrap();
    let full = Failure::new(Code::BufferOverflow, Stage::Read, "no memory");
    let mut refusing = Rooms {
        refusal: Some(full.clone()),
        ..Rooms::default()
    };
    let mut giving = Rooms::default();
    let mut items = [
        GetItem::whole(b"a", Target::Made(&mut refusing)),
        GetItem::whole(b"b", Target::Made(&mut giving)),
    ];
    let results = world.client.get_items(&mut items, &GetOptions::default());
    let failure = results[0].as_ref().unwrap_err();
    assert_eq!((failure.code, &failure.message), (full.code, &full.message));
    assert_eq!(results[1].as_ref().unwrap().len, 20);
    assert_eq!(refusing.made, [10]);
    assert_eq!(giving.bytes, bytes(20));
}
