//! Bytes arrive as they were sent: sizes, ranges, scattered extents, batches, several peers.

mod support;

use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_transfer::transport::{Movement, Operation, ReadFrom, Transport, WriteTo};
use snowskin_types::access::ReadRequest;
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::Code;
use snowskin_types::limits::PIECE_BYTES;
use support::*;

const MIB: usize = 1 << 20;

#[test]
fn every_size_comes_back_and_no_byte_around_it_is_touched() {
    let node = Node::new(Memory::new(512 << 20, 300_000));
    let (place, transport) = (node.place(), transport());
    let sizes = [
        1,
        7,
        4095,
        4096,
        4097,
        PIECE_BYTES as usize,
        MIB - 1,
        MIB,
        MIB + 1,
        4 * MIB - 1,
        4 * MIB + 1,
        16 * MIB - 17,
        16 * MIB + 1,
        64 * MIB + 3,
    ];
    for size in sizes {
        let bytes = pattern(size, size as u64);
        let key = format!("size-{size}");
        put(&transport, &place, &key, &bytes);
        let mut memory = vec![CANARY; size + 128];
        let target = &mut memory[64..64 + size];
        let done = run_one(&transport, read(&place, &key, (0, u64::MAX), target)).unwrap();
        assert_eq!(done.bytes, size as u64);
        assert_eq!(
            done.shape.unwrap().checksum,
            PieceSums::of(&bytes).whole(size as u64)
        );
        assert!(memory[64..64 + size] == bytes, "{size}");
        let around = memory[..64].iter().chain(&memory[64 + size..]);
        assert!(around.copied().all(|byte| byte == CANARY), "{size}");
    }
    assert_eq!(node.memory().reads_open(), 0);
    node.stop();
}

#[test]
fn any_range_is_read_and_verified() {
    let node = Node::new(Memory::new(64 << 20, 77_777));
    let (place, transport) = (node.place(), transport());
    let size = 5 * PIECE_BYTES + 12_345;
    let bytes = pattern(size as usize, 5);
    put(&transport, &place, "object", &bytes);
    let p = PIECE_BYTES;
    let ranges = [
        (0, 1),
        (size - 1, 1),
        (size / 2, 1),
        (0, size),
        (p - 1, 2),
        (p, p),
        (p + 1, 3 * p),
        (size - 10_000, u64::MAX),
        (size - 10_000, 50_000),
        (5 * p, 12_345),
        (5 * p + 1, 100),
    ];
    for (offset, len) in ranges {
        let wanted = &bytes[offset as usize..offset.saturating_add(len).min(size) as usize];
        let mut memory = vec![CANARY; wanted.len().max(50_000) + 32];
        let done = run_one(
            &transport,
            read(&place, "object", (offset, len), &mut memory),
        )
        .unwrap();
        assert_eq!(done.bytes, wanted.len() as u64, "{offset} {len}");
        assert!(memory[..wanted.len()] == *wanted, "{offset} {len}");
        assert!(
            memory[wanted.len()..].iter().all(|b| *b == CANARY),
            "{offset} {len}"
        );
    }
    let mut memory = [0; 16];
    let outside = run_one(&transport, read(&place, "object", (size, 5), &mut memory));
    assert_eq!(outside.unwrap_err().code, Code::InvalidRead);
}

#[test]
fn scattered_local_memory_is_sent_and_filled_in_order() {
    let node = Node::new(Memory::new(64 << 20, 4096));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(3 * MIB + 5, 9);
    let runs: Vec<&[u8]> = bytes.chunks(10_007).collect();
    let to = WriteTo::Object(write_request("object", &bytes));
    let movement = Movement::Write {
        to,
        source: SourceSlices::of_all(runs),
    };
    run_one(
        &transport,
        Operation::new(place.clone(), movement, soon(10_000)),
    )
    .unwrap();
    let mut memory = vec![0; bytes.len()];
    let target = TargetSlices::of_all(memory.chunks_mut(777));
    let Movement::Read { from, .. } = read(&place, "object", (0, u64::MAX), &mut []).movement
    else {
        unreachable!("a read was made")
    };
    let movement = Movement::Read { from, target };
    run_one(&transport, Operation::new(place, movement, soon(10_000))).unwrap();
    assert!(memory == bytes);
}

#[test]
fn a_large_batch_over_several_peers_uses_few_connections() {
    let nodes: Vec<Node> = (0..3)
        .map(|_| Node::new(Memory::new(64 << 20, 50_000)))
        .collect();
    let transport = transport();
    let objects: Vec<(String, Vec<u8>)> = (0..600)
        .map(|i| {
            (
                format!("object-{i}"),
                pattern(1 + (i * 7919) % 90_000, i as u64),
            )
        })
        .collect();
    let places: Vec<_> = (0..600).map(|i| nodes[i % 3].place()).collect();
    let writes = objects
        .iter()
        .zip(&places)
        .map(|((key, bytes), place)| write(place, key, bytes));
    for completion in run(&transport, writes) {
        completion.result.unwrap();
    }
    let mut memory: Vec<Vec<u8>> = objects.iter().map(|(_, b)| vec![0; b.len()]).collect();
    let reads = objects.iter().zip(&places).zip(&mut memory);
    let reads = reads
        .map(|(((key, bytes), place), memory)| read(place, key, (0, bytes.len() as u64), memory));
    for completion in run(&transport, reads) {
        completion.result.unwrap();
    }
    assert!(
        objects
            .iter()
            .zip(&memory)
            .all(|((_, bytes), memory)| bytes == memory)
    );
    for node in &nodes {
        assert!(counter(&node.server.counters().connections_opened) <= 4);
    }
}

#[test]
fn many_threads_share_the_connections_of_a_peer() {
    let node = Node::new(Memory::new(64 << 20, 50_000));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(16 * 1024, 3);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (place, transport, bytes) = (&place, &transport, &bytes);
            scope.spawn(move || {
                for i in 0..40 {
                    let key = format!("{thread}-{i}");
                    put(transport, place, &key, bytes);
                    let mut memory = vec![0; bytes.len()];
                    run_one(transport, read(place, &key, (0, u64::MAX), &mut memory)).unwrap();
                    assert!(memory == *bytes);
                }
            });
        }
    });
    let counters = node.server.counters();
    assert!(
        counter(&counters.connections_opened) <= 4,
        "{:?}",
        counters.snapshot()
    );
    assert_eq!(counter(&transport.counters().requests_under_way), 0);
}

#[test]
fn bad_operations_are_refused_before_anything_is_sent() {
    let node = Node::new(Memory::new(1 << 20, 4096));
    let (place, transport) = (node.place(), transport());
    let code = |operation: Operation<'_>| run_one(&transport, operation).unwrap_err().code;
    let mut small = [CANARY; 10];
    assert_eq!(
        code(read(&place, "x", (0, 11), &mut small)),
        Code::BufferOverflow
    );
    assert_eq!(
        code(read(&place, "x", (0, 0), &mut small)),
        Code::InvalidParams
    );
    let mut operation = write(&place, "x", &[1, 2, 3]);
    let Movement::Write {
        to: WriteTo::Object(request),
        ..
    } = &mut operation.movement
    else {
        unreachable!("a write was made")
    };
    request.size = 4;
    assert_eq!(code(operation), Code::InvalidParams);
    assert_eq!(counter(&node.server.counters().connections_opened), 0);
    // An object that is larger than its destination leaves it untouched.
    put(&transport, &place, "large", &[7; 100]);
    assert_eq!(
        code(read(&place, "large", (0, u64::MAX), &mut small)),
        Code::BufferOverflow
    );
    assert_eq!(small, [CANARY; 10]);
    let mut exact = [0; 100];
    run_one(&transport, read(&place, "large", (0, u64::MAX), &mut exact)).unwrap();
    assert_eq!(
        (exact, counter(&node.server.counters().connections_opened)),
        ([7; 100], 1)
    );
}

#[test]
fn a_version_that_is_already_there_is_acknowledged_without_its_bytes() {
    let node = Node::new(Memory::new(128 << 20, 1 << 20));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(32 * MIB, 3);
    put(&transport, &place, "object", &bytes);
    put(&transport, &place, "object", &bytes);
    assert_eq!(node.memory().ended().len(), 1);
    let request = ReadRequest {
        epoch: EPOCH,
        name: name("object"),
        version: version(1),
        offset: 0,
        len: u64::MAX,
    };
    let mut memory = vec![0; bytes.len()];
    let mut batch = transport.batch();
    batch.submit(Operation::new(
        place,
        Movement::Read {
            from: ReadFrom::Object(request),
            target: TargetSlices::of(&mut memory),
        },
        soon(10_000),
    ));
    let mut completions = Vec::new();
    while batch.under_way() > 0 {
        batch.poll(&mut completions);
    }
    drop(batch);
    completions.remove(0).result.unwrap();
    assert!(memory == bytes);
    assert_eq!(counter(&node.server.counters().connections_opened), 1);
}
