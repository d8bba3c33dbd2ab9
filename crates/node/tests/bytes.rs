//! Bytes through the data server and by callers of the same process.

mod script;

use rand::Rng;
use script::{
    Data, Script, ScriptedMaster, bytes, config, name, read_request, soon, until, version,
    write_request,
};
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_node::{Config, Node, Running, Verify};
use snowskin_proto::frame::Kind;
use snowskin_proto::hello::{Greeting, Role};
use snowskin_proto::message::ReadFailed;
use snowskin_proto::{ReadHead, WriteDone};
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_store::effect::Counter;
use snowskin_transfer::tcp::client::{TcpOptions, TcpTransport};
use snowskin_transfer::transport::{Movement, Operation, ReadFrom, Transport, WriteTo};
use snowskin_types::access::ReadRequest;
use snowskin_types::limits::PIECE_BYTES;
use snowskin_types::link::{NodeItem, ToNode};
use snowskin_types::object::Place;
use snowskin_types::{Code, Epoch, Failure, Millis, NodeId};
use std::sync::Arc;

fn start() -> (ScriptedMaster, Running) {
    let master = ScriptedMaster::start(Script::default());
    let node = Node::start(config(&master)).expect("a registered node");
    (master, node)
}

fn put(node: &Running, key: &str, counter: u64, data: &[u8]) -> Result<(), Failure> {
    let request = write_request(node.epoch(), key, counter, data);
    node.handle()
        .write(&request, &mut SourceSlices::of(data), soon())
}

fn get(node: &Running, request: &ReadRequest, len: usize) -> Result<Vec<u8>, Failure> {
    let mut got = vec![0; len];
    let handle = node.handle();
    let done = handle.read(request, &mut TargetSlices::of(&mut got), soon())?;
    got.truncate(usize::try_from(done.bytes).expect("it fits"));
    Ok(got)
}

#[test]
fn what_is_written_over_a_socket_is_read_over_a_socket_and_in_the_process() {
    let (_master, node) = start();
    let mut peer = Data::open(node.data_address().unwrap());
    let data = bytes(700_001, 1);
    peer.send(1, &write_request(node.epoch(), "k", 1, &data));
    for part in data.chunks(250_000) {
        peer.payload(1, part);
    }
    let WriteDone(result) = peer.message();
    result.unwrap();
    peer.send(2, &read_request(node.epoch(), "k", 1));
    let head: ReadHead = peer.message();
    assert_eq!((head.offset, head.len), (0, data.len() as u64));
    let mut got = Vec::new();
    while got.len() < data.len() {
        let frame = peer.frame();
        assert_eq!(frame.kind, Kind::Payload);
        got.extend_from_slice(&frame.body);
    }
    assert_eq!(got, data);
    let local = get(&node, &read_request(node.epoch(), "k", 1), data.len()).unwrap();
    assert_eq!(local, data);
    let metrics = node.metrics();
    assert_eq!(metrics.replicas, 1);
    assert_eq!(metrics.counter("bytes_in"), Some(data.len() as u64));
    until("the read unpins", || node.metrics().reads_under_way == 0);
}

#[test]
fn a_writer_that_goes_away_amid_its_bytes_leaves_nothing_behind() {
    let (master, node) = start();
    let mut peer = Data::open(node.data_address().unwrap());
    let data = bytes(300_000, 2);
    peer.send(1, &write_request(node.epoch(), "torn", 1, &data));
    peer.payload(1, &data[..100_000]);
    until("space is taken", || node.metrics().unfinished_bytes > 0);
    drop(peer);
    let absent = NodeItem::Absent {
        name: name("torn"),
        version: version(1),
    };
    master.item(|item| *item == absent);
    let metrics = node.metrics();
    assert_eq!((metrics.used_bytes, metrics.writes_under_way), (0, 0));
    let failure = put(&node, "torn", 1, &data).unwrap_err();
    assert_eq!(failure.code, Code::InvalidWrite);
}

#[test]
fn wrong_bytes_are_refused_however_they_come() {
    let (_master, node) = start();
    let data = bytes(600_000, 3);
    let mut wrong = data.clone();
    wrong[599_999] ^= 1;
    let mut peer = Data::open(node.data_address().unwrap());
    peer.send(1, &write_request(node.epoch(), "a", 1, &data));
    peer.payload(1, &wrong);
    let WriteDone(result) = peer.message();
    assert_eq!(result.unwrap_err().code, Code::ChecksumMismatch);
    let request = write_request(node.epoch(), "b", 2, &data);
    let result = node
        .handle()
        .write(&request, &mut SourceSlices::of(&wrong), soon());
    assert_eq!(result.unwrap_err().code, Code::ChecksumMismatch);
    assert_eq!(node.metrics().used_bytes, 0);
}

#[test]
fn ranges_are_read_exactly_and_lists_stay_at_their_position() {
    let (_master, node) = start();
    let data = bytes(3 * PIECE_BYTES as usize + 77, 4);
    let mut source = SourceSlices::of(&data);
    let request = write_request(node.epoch(), "k", 1, &data);
    node.handle().write(&request, &mut source, soon()).unwrap();
    assert_eq!(source.remaining(), data.len() as u64);
    let size = data.len() as u64;
    for (offset, len) in [
        (0, 1),
        (0, size),
        (1, size),
        (PIECE_BYTES - 1, 2),
        (PIECE_BYTES, PIECE_BYTES),
        (5, 3 * PIECE_BYTES),
        (size - 1, u64::MAX),
    ] {
        let request = ReadRequest {
            offset,
            len,
            ..read_request(node.epoch(), "k", 1)
        };
        let got = get(&node, &request, data.len()).unwrap();
        let end = offset.saturating_add(len).min(size);
        assert_eq!(got, data[offset as usize..end as usize], "{offset}+{len}");
    }
    let mut small = [0; 10];
    let mut target = TargetSlices::of(&mut small);
    let request = read_request(node.epoch(), "k", 1);
    let failure = node
        .handle()
        .read(&request, &mut target, soon())
        .unwrap_err();
    assert_eq!(
        (failure.code, target.remaining()),
        (Code::BufferOverflow, 10)
    );
    assert_eq!(node.metrics().reads_under_way, 0);
}

#[test]
fn another_life_and_another_version_are_never_served() {
    let (_master, node) = start();
    let data = bytes(1000, 5);
    put(&node, "k", 1, &data).unwrap();
    let code = |epoch, counter| {
        let request = read_request(epoch, "k", counter);
        get(&node, &request, 1000).map_err(|failure| failure.code)
    };
    assert_eq!(code(node.epoch(), 1), Ok(data));
    assert_eq!(code(node.epoch(), 2), Err(Code::ReplicaGone));
    assert_eq!(code(Epoch(node.epoch().0 - 1), 1), Err(Code::ReplicaGone));
    let mut peer = Data::open(node.data_address().unwrap());
    peer.send(1, &read_request(Epoch(1), "k", 1));
    let ReadFailed(failure) = peer.message();
    assert_eq!(failure.code, Code::ReplicaGone);
}

#[test]
fn a_batch_starts_all_its_writes_before_it_waits_for_one() {
    let (master, node) = start();
    master.change(|script| script.acks = false);
    let handle = node.handle();
    let data: Vec<_> = (0..20).map(|n| bytes(10_000, n)).collect();
    let started: Vec<_> = (1u64..)
        .zip(&data)
        .map(|(n, data)| {
            let request = write_request(node.epoch(), &format!("k{n}"), n, data);
            handle
                .start_write(&request, &mut SourceSlices::of(data), soon())
                .unwrap()
        })
        .collect();
    assert_eq!(node.metrics().writes_under_way, 20);
    master.change(|script| script.acks = true);
    for write in started {
        // The unanswered batch is sent again after a while.
        write.wait(soon()).unwrap();
    }
    assert_eq!(node.metrics().writes_under_way, 0);
}

#[test]
fn a_write_that_is_not_published_ends_at_its_deadline() {
    let (master, node) = start();
    master.change(|script| script.acks = false);
    let data = bytes(1000, 6);
    let request = write_request(node.epoch(), "k", 1, &data);
    let deadline = SystemClock.now() + Millis(100);
    let result = node
        .handle()
        .write(&request, &mut SourceSlices::of(&data), deadline);
    assert_eq!(result.unwrap_err().code, Code::RpcTimeout);
    assert!(SystemClock.now() < deadline + Millis(250));
    assert_eq!(node.metrics().writes_under_way, 0);
    assert_eq!(node.metrics().counter("local_deadline_missed"), Some(1));
}

#[test]
fn a_full_segment_refuses_after_the_patience_with_the_split() {
    let (master, node) = start();
    let data = bytes(15 << 20, 7);
    put(&node, "big", 1, &data).unwrap();
    // The scripted master grants every retract, so the space comes free.
    put(&node, "next", 2, &bytes(4 << 20, 8)).unwrap();
    master.item(|item| matches!(item, NodeItem::Retract { .. }));
    assert_eq!(node.metrics().store_counter(Counter::Evicted), 1);
    let pinned = bytes(12 << 20, 9);
    let mut request = write_request(node.epoch(), "pinned", 3, &pinned);
    request.attributes.hard_pin = true;
    node.handle()
        .write(&request, &mut SourceSlices::of(&pinned), soon())
        .unwrap();
    let mut request = write_request(node.epoch(), "more", 4, &data);
    request.patience = Millis(50);
    let failure = node
        .handle()
        .write(&request, &mut SourceSlices::of(&data), soon())
        .unwrap_err();
    assert_eq!(failure.code, Code::NoSpace);
    assert!(failure.detail.unwrap().pinned >= 12 << 20);
}

#[test]
fn an_order_to_retire_cuts_a_write_and_ends_reads() {
    let (master, node) = start();
    let mut peer = Data::open(node.data_address().unwrap());
    let data = bytes(300_000, 10);
    peer.send(1, &write_request(node.epoch(), "k", 1, &data));
    peer.payload(1, &data[..100_000]);
    until("space is taken", || node.metrics().unfinished_bytes > 0);
    master.send(|session| ToNode::Retire {
        session,
        items: vec![(name("k"), version(1))],
    });
    master.item(|item| matches!(item, NodeItem::Absent { .. }));
    until("the extents are free", || node.metrics().used_bytes == 0);
    let WriteDone(result) = peer.message();
    assert_eq!(result.unwrap_err().code, Code::InvalidWrite);
}

#[test]
fn a_reported_replica_is_checked_on_its_own_thread_and_told_again() {
    let (master, node) = start();
    put(&node, "k", 1, &bytes(1 << 20, 11)).unwrap();
    master.forget_messages();
    master.send(|session| ToNode::Verify {
        session,
        items: vec![(name("k"), version(1), snowskin_types::call::Fault::Bad)],
    });
    master.item(|item| matches!(item, NodeItem::Publish { .. }));
    assert_eq!(node.metrics().store_counter(Counter::ScrubBad), 0);
}

#[test]
fn without_verification_readers_find_what_a_writer_did_wrong() {
    let master = ScriptedMaster::start(Script::default());
    let node = Node::start(Config {
        verify: Verify::Off,
        ..config(&master)
    })
    .unwrap();
    let data = bytes(300_000, 12);
    let mut wrong = data.clone();
    wrong[0] ^= 1;
    let mut peer = Data::open(node.data_address().unwrap());
    peer.send(1, &write_request(node.epoch(), "k", 1, &data));
    peer.payload(1, &wrong);
    let WriteDone(result) = peer.message();
    result.unwrap();
    let request = read_request(node.epoch(), "k", 1);
    let failure = get(&node, &request, data.len()).unwrap_err();
    assert_eq!(failure.code, Code::ChecksumMismatch);
    // The node checks its own bytes then, and asks to let them go as damaged.
    master.item(|item| matches!(item, NodeItem::Retract { bad: true, .. }));
    until("it is gone", || {
        get(&node, &request, data.len()).is_err_and(|f| f.code == Code::ReplicaGone)
    });
    let metrics = node.metrics();
    assert_eq!(metrics.store_counter(Counter::ScrubBad), 1);
    assert_eq!(metrics.counter("damage_found"), Some(1));
}

#[test]
fn many_peers_move_bytes_at_once_and_leave_nothing_under_way() {
    let (_master, node) = start();
    let threads: Vec<_> = (0..6u64)
        .map(|peer| {
            let (address, epoch) = (node.data_address().unwrap(), node.epoch());
            std::thread::spawn(move || {
                let greeting = Greeting::new(Role::Client, 100 + peer);
                let clock = Arc::new(SystemClock);
                let transport = TcpTransport::new(greeting, TcpOptions::default(), clock).unwrap();
                let place = Place {
                    node: NodeId::from_address(&address.to_string()),
                    epoch,
                    address: address.to_string().into(),
                };
                for round in 0..40u64 {
                    let n = 1 + peer * 1000 + round;
                    let data = bytes(1 + (n as usize * 7919) % 200_000, n);
                    let key = format!("k{n}");
                    let request = write_request(epoch, &key, n, &data);
                    let mut got = vec![0; data.len()];
                    let movement = Movement::Write {
                        to: WriteTo::Object(request),
                        source: SourceSlices::of(&data),
                    };
                    let mut one = transport.batch();
                    one.submit(Operation::new(place.clone(), movement, soon()));
                    one.wait(soon(), &mut Vec::new());
                    let movement = Movement::Read {
                        from: ReadFrom::Object(read_request(epoch, &key, n)),
                        target: TargetSlices::of(&mut got),
                    };
                    let mut ends = Vec::new();
                    one.submit(Operation::new(place.clone(), movement, soon()));
                    one.wait(soon(), &mut ends);
                    let result = ends.pop().unwrap().result;
                    drop((ends, one));
                    assert_eq!(result.unwrap().bytes, data.len() as u64);
                    assert_eq!(got, data);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    until("all reads unpin", || node.metrics().reads_under_way == 0);
    let metrics = node.metrics();
    assert_eq!(metrics.writes_under_way, 0);
    assert_eq!(metrics.store_counter(Counter::WritesAcked), 240);
    until("all connections close", || {
        node.metrics().counter("connections") == Some(0)
    });
    node.shutdown().unwrap();
}

#[test]
fn however_callers_give_up_nothing_is_kept_for_them() {
    let (_master, node) = start();
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let (handle, address) = (node.handle(), node.data_address().unwrap());
            std::thread::spawn(move || {
                let epoch = handle.place().epoch;
                let mut random = snowskin_runtime::rng::seeded(thread);
                for round in 0..100u64 {
                    let n = 1 + thread * 1000 + round;
                    let data = bytes(random.random_range(1..60_000), n);
                    let key = format!("k{n}");
                    let request = write_request(epoch, &key, n, &data);
                    let part = random.random_range(0..=data.len());
                    match random.random_range(0..5) {
                        // Breaks off amid the bytes, or at once, or with the answer unread.
                        0 => {
                            let mut peer = Data::open(address);
                            peer.send(1, &request);
                            peer.payload(1, &data[..part]);
                        }
                        // Does not wait for the publish.
                        1 => {
                            let source = &mut SourceSlices::of(&data);
                            drop(handle.start_write(&request, source, soon()).unwrap());
                        }
                        // Leaves amid a read.
                        2 => {
                            let source = &mut SourceSlices::of(&data);
                            handle.write(&request, source, soon()).unwrap();
                            let mut peer = Data::open(address);
                            peer.send(1, &read_request(epoch, &key, n));
                        }
                        // Has no time.
                        3 => {
                            let source = &mut SourceSlices::of(&data);
                            let now = SystemClock.now();
                            // It may even be in time.
                            handle.write(&request, source, now).ok();
                        }
                        _ => {
                            let source = &mut SourceSlices::of(&data);
                            handle.write(&request, source, soon()).unwrap();
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    until("everything has ended", || {
        let m = node.metrics();
        m.counter("connections") == Some(0)
            && (m.reads_under_way, m.writes_under_way, m.unfinished_bytes) == (0, 0, 0)
            && m.pinned_bytes == 0
    });
    assert!(node.metrics().replicas > 0);
    assert_eq!(node.metrics().counter("link_overflows"), Some(0));
    node.shutdown().unwrap();
}
