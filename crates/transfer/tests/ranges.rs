//! Ranges of registered regions: what is written there comes back, what is outside stays untouched, and
//! every way to fail has its code and leaves both sides' memory quiet.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use bytes::BytesMut;
use snowskin_memory::segment::Segment;
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_proto::blocking::FrameReader;
use snowskin_proto::frame::{self, Frame, Header, Kind};
use snowskin_proto::hello::{FEATURE_RANGES, Greeting, Hello, Role, Welcome};
use snowskin_proto::message::Message;
use snowskin_proto::{RangeRequest, RangeSums, RangeWrite, WriteDone};
use snowskin_runtime::net;
use snowskin_transfer::regions::{RegionAccess, Regions};
use snowskin_transfer::tcp::region_endpoint::RegionEndpoint;
use snowskin_transfer::tcp::server::{Server, ServerOptions};
use snowskin_transfer::transport::{Operation, RegionId, RemoteRange, Transport};
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::{Code, Failure};
use snowskin_types::id::Epoch;
use snowskin_types::limits::PIECE_BYTES;
use snowskin_types::object::Place;
use snowskin_types::time::Millis;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::*;

const MIB: usize = 1 << 20;
const PIECE: usize = PIECE_BYTES as usize;

/// A node with one region full of canaries.
fn node_with_region(bytes: usize) -> (Node, Segment, RegionId) {
    let node = Node::new(Memory::new(64 << 20, 50_000));
    let segment = Segment::anonymous(bytes as u64).unwrap();
    segment.write_at(0, &vec![CANARY; bytes]).unwrap();
    let regions = &node.memory().regions;
    let region = regions
        .register(segment.clone(), RegionAccess::Both)
        .unwrap();
    (node, segment, region)
}

fn held(segment: &Segment) -> Vec<u8> {
    let mut bytes = vec![0; segment.len() as usize];
    segment.read_at(0, &mut bytes).unwrap();
    bytes
}

fn write_at(
    transport: &dyn Transport,
    place: &Place,
    range: RemoteRange,
    bytes: &[u8],
) -> Result<u64, Failure> {
    let operation = range_write(place, range, SourceSlices::of(bytes));
    run_one(transport, operation).map(|done| done.bytes)
}

fn read_at(
    transport: &dyn Transport,
    place: &Place,
    range: RemoteRange,
    bytes: &mut [u8],
) -> Result<u64, Failure> {
    let operation = range_read(place, range, TargetSlices::of(bytes));
    run_one(transport, operation).map(|done| done.bytes)
}

fn canaries(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == CANARY)
}

#[test]
fn every_size_is_written_and_read_and_no_byte_around_it_is_touched() {
    let transport = transport();
    for size in [
        1,
        7,
        4095,
        4097,
        PIECE - 1,
        PIECE,
        PIECE + 1,
        MIB - 1,
        MIB,
        MIB + 1,
        4 * MIB + 1,
        16 * MIB - 17,
    ] {
        let (node, segment, region) = node_with_region(size + 300);
        let place = node.place();
        let bytes = pattern(size, size as u64);
        let wrote = write_at(&transport, &place, at(region, 101), &bytes);
        assert_eq!(wrote.unwrap(), size as u64);
        let after = held(&segment);
        assert!(after[101..101 + size] == bytes, "{size}");
        assert!(
            canaries(&after[..101]) && canaries(&after[101 + size..]),
            "{size}"
        );
        let mut memory = vec![CANARY; size + 128];
        let target = &mut memory[64..64 + size];
        let read = read_at(&transport, &place, at(region, 101), target).unwrap();
        assert_eq!(read, size as u64);
        assert!(memory[64..64 + size] == bytes, "{size}");
        assert!(canaries(&memory[..64]) && canaries(&memory[64 + size..]));
        await_operations(&node, region, 0);
        node.stop();
    }
}

#[test]
fn scatter_lists_are_sent_and_filled_in_order() {
    let (node, segment, region) = node_with_region(4 * MIB);
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(3 * MIB + 5, 9);
    let source = SourceSlices::of_all(bytes.chunks(1009));
    run_one(&transport, range_write(&place, at(region, 9), source)).unwrap();
    assert!(held(&segment)[9..9 + bytes.len()] == bytes);
    let mut memory = vec![0; bytes.len()];
    let target = TargetSlices::of_all(memory.chunks_mut(777));
    run_one(&transport, range_read(&place, at(region, 9), target)).unwrap();
    assert!(memory == bytes);
}

#[test]
fn many_ranges_and_objects_share_a_batch_and_its_connections() {
    let (node, segment, region) = node_with_region(16 * MIB);
    let (place, transport) = (node.place(), transport());
    let parts: Vec<Vec<u8>> = (0..300)
        .map(|i| pattern(1 + (i * 7919) % 50_000, i as u64))
        .collect();
    let operations = parts.iter().enumerate().map(|(i, bytes)| match i % 3 {
        0 => write(&place, &format!("object-{i}"), bytes),
        _ => range_write(
            &place,
            at(region, i as u64 * 50_000),
            SourceSlices::of(bytes),
        ),
    });
    for completion in run(&transport, operations) {
        completion.result.unwrap();
    }
    let after = held(&segment);
    let mut memory: Vec<Vec<u8>> = parts.iter().map(|b| vec![0; b.len()]).collect();
    let reads = parts.iter().zip(&mut memory).enumerate();
    let reads = reads.map(|(i, (bytes, memory))| match i % 3 {
        0 => read(
            &place,
            &format!("object-{i}"),
            (0, bytes.len() as u64),
            memory,
        ),
        _ => range_read(
            &place,
            at(region, i as u64 * 50_000),
            TargetSlices::of(memory),
        ),
    });
    for completion in run(&transport, reads) {
        completion.result.unwrap();
    }
    for (i, bytes) in parts.iter().enumerate() {
        assert!(memory[i] == *bytes, "{i}");
        let range = &after[i * 50_000..(i + 1) * 50_000];
        let touched = if i % 3 == 0 { 0 } else { bytes.len() };
        assert!(range[..touched] == bytes[..touched] && canaries(&range[touched..]));
    }
    let counters = node.server.counters();
    assert!(counter(&counters.connections_opened) <= 4);
    assert_eq!(counter(&counters.range_reads), 200);
    assert_eq!(counter(&counters.range_writes), 200);
    assert_eq!(counter(&transport.counters().requests_under_way), 0);
}

#[test]
fn what_is_not_registered_or_not_allowed_is_refused_before_a_byte_moves() {
    let (node, segment, region) = node_with_region(10_000);
    let (place, transport) = (node.place(), transport());
    let regions = &node.memory().regions;
    let readable = Segment::anonymous(1000).unwrap();
    let readable = regions.register(readable, RegionAccess::Read).unwrap();
    let writable = Segment::anonymous(1000).unwrap();
    let writable = regions.register(writable, RegionAccess::Write).unwrap();
    // A mistake of the process that has no effect.
    let objects = regions.register(node.memory().segment.clone(), RegionAccess::Both);
    let objects = objects.unwrap();
    let other_life = RemoteRange {
        epoch: Epoch(EPOCH.0 + 1),
        ..at(region, 0)
    };
    // Large enough that the refusal comes before all bytes have been sent.
    for len in [100, 9 * MIB] {
        let bytes = pattern(len, 1);
        let mut memory = vec![CANARY; len];
        let mut codes = |range| {
            let write = write_at(&transport, &place, range, &bytes).unwrap_err();
            let read = read_at(&transport, &place, range, &mut memory).unwrap_err();
            assert!(canaries(&memory));
            (read, write)
        };
        for (range, code) in [
            (other_life, Code::ReplicaGone),
            (at(RegionId(99), 0), Code::SegmentNotFound),
            (at(objects, 0), Code::SegmentNotFound),
        ] {
            let (read, write) = codes(range);
            assert_eq!((read.code, write.code), (code, code), "{range:?}");
        }
        let (read, write) = codes(at(region, 9_901));
        assert_eq!(
            (read.code, write.code),
            (Code::InvalidRead, Code::InvalidParams)
        );
        let detail = write.detail.unwrap();
        assert_eq!(
            (detail.wanted, detail.largest),
            (9_901 + len as u64, 10_000)
        );
        assert_eq!(read.peer.as_deref(), Some(&*place.address));
    }
    let mut small = [CANARY; 10];
    let refused = read_at(&transport, &place, at(writable, 0), &mut small);
    assert_eq!(refused.unwrap_err().code, Code::IllegalClient);
    let refused = write_at(&transport, &place, at(readable, 0), &small);
    assert_eq!(refused.unwrap_err().code, Code::IllegalClient);
    for bad in [
        read_at(&transport, &place, at(region, u64::MAX), &mut small),
        read_at(&transport, &place, at(region, 0), &mut []),
        write_at(&transport, &place, at(region, 0), &[]),
    ] {
        assert_eq!(bad.unwrap_err().code, Code::InvalidParams);
    }
    assert!(canaries(&held(&segment)));
    // The connection has survived all of it.
    write_at(&transport, &place, at(region, 0), &small).unwrap();
    assert_eq!(counter(&node.server.counters().connections_opened), 1);
}

#[test]
fn a_process_without_objects_serves_its_regions() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let regions = Regions::new(EPOCH, 1);
    let segment = Segment::anonymous(5000).unwrap();
    let region = regions
        .register(segment.clone(), RegionAccess::Both)
        .unwrap();
    let server = Server::start(
        net::listen("127.0.0.1:0", "x").unwrap(),
        RegionEndpoint::new(regions).unwrap(),
        Greeting::new(Role::Client, 1),
        ServerOptions::default(),
        runtime.handle(),
    );
    let server = server.unwrap();
    let (place, transport) = (place(&server.address().to_string()), transport());
    let bytes = pattern(5000, 4);
    write_at(&transport, &place, at(region, 0), &bytes).unwrap();
    assert!(held(&segment) == bytes);
    let mut memory = [0; 10];
    for operation in [
        write(&place, "object", &bytes),
        read(&place, "object", (0, 10), &mut memory),
    ] {
        let failure = run_one(&transport, operation).unwrap_err();
        assert_eq!(failure.code, Code::NotSupported);
    }
    runtime
        .block_on(server.shutdown(Duration::from_secs(5)))
        .unwrap();
}

/// A peer that speaks frame by frame.
struct Raw {
    stream: TcpStream,
    reader: FrameReader,
}

impl Raw {
    fn connect(node: &Node) -> Self {
        let mut stream = TcpStream::connect(node.server.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut out = BytesMut::new();
        let greeting = Greeting::new(Role::Client, 9).with_features(FEATURE_RANGES);
        frame::put(&mut out, 0, &Hello(greeting)).unwrap();
        stream.write_all(&out).unwrap();
        let mut reader = FrameReader::new();
        let welcome = Welcome::from_frame(reader.read(&mut stream).unwrap()).unwrap();
        assert_eq!(welcome.0.features & FEATURE_RANGES, FEATURE_RANGES);
        reader.open();
        Raw { stream, reader }
    }

    fn say(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.stream.write_all(part).unwrap();
        }
    }

    /// Everything up to the end of the stream is read; true when it ends.
    fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    }
}

fn framed<M: Message>(id: u64, message: &M) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put(&mut out, id, message).unwrap();
    out.to_vec()
}

fn announced(id: u64, region: RegionId, offset: u64, len: usize) -> Vec<u8> {
    let request = RangeRequest {
        epoch: EPOCH,
        region: region.0,
        offset,
        len: len as u64,
    };
    framed(id, &RangeWrite(request))
}

fn sums(id: u64, bytes: &[u8]) -> Vec<u8> {
    framed(id, &RangeSums(PieceSums::of(bytes)))
}

fn payload(id: u64, len: usize) -> Vec<u8> {
    Header::new(Kind::Payload, len as u32, id)
        .to_bytes()
        .to_vec()
}

fn await_operations(node: &Node, region: RegionId, wanted: usize) {
    let start = Instant::now();
    while node.memory().regions.operations(region) != wanted {
        assert!(start.elapsed() < Duration::from_secs(10), "never {wanted}");
        std::thread::yield_now();
    }
}

#[test]
fn a_region_is_taken_back_from_a_peer_that_stands_amid_a_write() {
    let (node, segment, region) = node_with_region(MIB);
    let bytes = pattern(1000, 2);
    let mut peer = Raw::connect(&node);
    // The first half of the only payload frame, then silence.
    peer.say(&[
        &announced(7, region, 0, 1000),
        &sums(7, &bytes),
        &payload(7, 1000),
        &bytes[..500],
    ]);
    await_operations(&node, region, 1);
    let regions = node.memory().regions.clone();
    let start = Instant::now();
    let deregister = regions.deregister(region, Duration::from_millis(100));
    node.runtime.block_on(deregister).unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    // The memory is the process's own again; late bytes find nobody.
    segment.write_at(0, &vec![1; MIB]).unwrap();
    peer.say(&[&bytes[500..]]);
    let done = peer.reader.read(&mut peer.stream).unwrap();
    let done = WriteDone::from_frame(done).unwrap().0.unwrap_err();
    assert_eq!(done.code, Code::SegmentNotFound);
    let mut end = BytesMut::new();
    frame::put_empty(&mut end, 7, Kind::PayloadEnd);
    frame::put_empty(&mut end, 8, Kind::Ping);
    peer.say(&[&end]);
    assert_eq!(
        peer.reader.read(&mut peer.stream).unwrap().kind,
        Kind::Pong,
        "the connection lives"
    );
    assert!(held(&segment).iter().all(|byte| *byte == 1));
}

#[test]
fn a_writer_that_breaks_off_leaves_the_range_to_others() {
    let (node, segment, region) = node_with_region(MIB);
    let bytes = pattern(1000, 2);
    let mut peer = Raw::connect(&node);
    peer.say(&[
        &announced(7, region, 0, 1000),
        &sums(7, &bytes),
        &payload(7, 1000),
        &bytes[..500],
    ]);
    await_operations(&node, region, 1);
    drop(peer);
    write_at(&transport(), &node.place(), at(region, 0), &bytes).unwrap();
    assert!(held(&segment)[..1000] == bytes);
    await_operations(&node, region, 0);
}

#[test]
fn a_write_that_is_in_the_way_of_another_is_refused_after_a_while() {
    let (node, segment, region) = node_with_region(MIB);
    let mut peer = Raw::connect(&node);
    peer.say(&[&announced(7, region, 0, 1000)]);
    await_operations(&node, region, 1);
    let (place, transport) = (node.place(), transport());
    let refused = write_at(&transport, &place, at(region, 999), &[7; 10]);
    assert_eq!(refused.unwrap_err().code, Code::ObjectReplicaBusy);
    let mut memory = [0; 10];
    let refused = read_at(&transport, &place, at(region, 990), &mut memory);
    assert_eq!(refused.unwrap_err().code, Code::ObjectReplicaBusy);
    write_at(&transport, &place, at(region, 1000), &[7; 10]).unwrap();
    drop(peer);
    await_operations(&node, region, 0);
    let after = held(&segment);
    assert!(canaries(&after[..1000]) && after[1000..1010] == [7; 10]);
    assert!(canaries(&after[1010..]));
}

#[test]
fn garbage_ends_the_connection_and_nothing_else() {
    let (node, segment, region) = node_with_region(MIB);
    let bytes = pattern(600_000, 2);
    let begin = announced(7, region, 0, 600_000);
    let cases: Vec<Vec<Vec<u8>>> = vec![
        // Payload without sums, and more of it than the sums cover.
        vec![begin.clone(), payload(7, 100)],
        vec![
            begin.clone(),
            sums(7, &bytes[..PIECE]),
            payload(7, PIECE + 1),
        ],
        // Sums amid a run, of too many pieces, of nothing, and those of another write.
        vec![begin.clone(), sums(7, &bytes), sums(7, &bytes)],
        vec![begin.clone(), sums(7, &pattern(4 * PIECE, 1))],
        vec![begin.clone(), framed(7, &RangeSums(PieceSums::default()))],
        vec![begin.clone(), sums(8, &bytes)],
        // Sums of no write at all, and another request amid the payload.
        vec![sums(7, &bytes)],
        vec![begin.clone(), begin.clone()],
    ];
    for (nth, case) in cases.iter().enumerate() {
        let before = counter(&node.server.counters().garbage);
        let mut peer = Raw::connect(&node);
        peer.say(&case.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert!(peer.is_closed(), "{nth}");
        await_operations(&node, region, 0);
        let after = counter(&node.server.counters().garbage);
        assert_eq!(after, before + 1, "{nth}");
    }
    assert!(canaries(&held(&segment)));
    // A request that cannot be understood is answered.
    let mut peer = Raw::connect(&node);
    let endless = announced(7, region, u64::MAX, 2);
    peer.say(&[&endless]);
    let done = peer.reader.read(&mut peer.stream).unwrap();
    let failure = WriteDone::from_frame(done).unwrap().0.unwrap_err();
    assert_eq!(failure.code, Code::InvalidParams);
    write_at(&transport(), &node.place(), at(region, 0), &bytes).unwrap();
}

/// What a proxy does to a direction.
#[derive(Clone, Copy)]
enum Harm {
    None,
    /// Flips a bit of the byte at this place of the stream.
    Flip(i64),
    /// Closes both ways after so many bytes.
    Cut(i64),
}

/// Stands between a client and a node; harms what the client sends, or what it gets.
struct Proxy {
    address: String,
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    fn new(node: &Node, to_node: Harm, to_client: Harm) -> Self {
        let listener = net::listen("127.0.0.1:0", "x").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let upstream = node.server.address();
        let serve = std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let node = TcpStream::connect(upstream).unwrap();
            let pairs = [
                (client.try_clone().unwrap(), node.try_clone().unwrap()),
                (node, client),
            ];
            let harms = [to_node, to_client];
            let ways = pairs.into_iter().zip(harms);
            let ways = ways.map(|((from, to), harm)| {
                std::thread::spawn(move || carry(from, to, harm, &AtomicI64::new(0)))
            });
            ways.collect::<Vec<_>>()
                .into_iter()
                .for_each(|way| way.join().unwrap());
        });
        Proxy {
            address,
            threads: vec![serve],
        }
    }

    fn place(&self) -> Place {
        place(&self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, harm: Harm, carried: &AtomicI64) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let got = from.read(&mut buffer).unwrap_or(0);
        let before = carried.fetch_add(got as i64, Ordering::SeqCst);
        let here = |at: i64| usize::try_from(at - before).ok().filter(|at| *at < got);
        let (len, end) = match harm {
            Harm::None => (got, got == 0),
            Harm::Flip(at) => {
                if let Some(at) = here(at) {
                    buffer[at] ^= 4;
                }
                (got, got == 0)
            }
            Harm::Cut(at) => (here(at).unwrap_or(got), got == 0 || here(at).is_some()),
        };
        if to.write_all(&buffer[..len]).is_err() || end {
            from.shutdown(Shutdown::Both).ok();
            to.shutdown(Shutdown::Both).ok();
            return;
        }
    }
}

#[test]
fn bytes_that_change_on_the_way_are_found_by_whoever_gets_them() {
    let (node, segment, region) = node_with_region(4 * MIB);
    let bytes = pattern(3 * MIB, 7);
    // Far behind the greeting, amid payload.
    {
        let proxy = Proxy::new(&node, Harm::Flip(MIB as i64 * 2), Harm::None);
        let transport = transport();
        let failure = write_at(&transport, &proxy.place(), at(region, 5), &bytes).unwrap_err();
        assert_eq!(failure.code, Code::ChecksumMismatch, "{failure}");
        // The connection is as good as before.
        write_at(&transport, &proxy.place(), at(region, 5), &bytes).unwrap();
        assert_eq!(counter(&node.server.counters().checksum_failures), 1);
        assert!(held(&segment)[5..5 + bytes.len()] == bytes);
        drop(transport);
    }
    let proxy = Proxy::new(&node, Harm::None, Harm::Flip(MIB as i64 * 2));
    let transport = transport();
    let mut memory = vec![0; bytes.len()];
    let failure = read_at(&transport, &proxy.place(), at(region, 5), &mut memory).unwrap_err();
    assert_eq!(failure.code, Code::ChecksumMismatch, "{failure}");
    assert_eq!(counter(&transport.counters().checksum_failures), 1);
    read_at(&transport, &proxy.place(), at(region, 5), &mut memory).unwrap();
    assert!(memory == bytes);
    drop(transport);
}

#[test]
fn a_peer_that_is_killed_amid_a_range_fails_it_at_once() {
    let (node, _segment, region) = node_with_region(8 * MIB);
    let bytes = pattern(8 * MIB, 7);
    let start = Instant::now();
    for cut in [500, MIB as i64 * 2 + 77] {
        let proxy = Proxy::new(&node, Harm::Cut(cut), Harm::None);
        let transport = transport();
        let failure = write_at(&transport, &proxy.place(), at(region, 0), &bytes).unwrap_err();
        assert_eq!(failure.code, Code::TransferFail, "{failure}");
        drop(transport);
        await_operations(&node, region, 0);
    }
    for cut in [500, MIB as i64 * 2 + 77] {
        let proxy = Proxy::new(&node, Harm::None, Harm::Cut(cut));
        let transport = transport();
        let mut memory = vec![CANARY; bytes.len()];
        let failure = read_at(&transport, &proxy.place(), at(region, 0), &mut memory);
        assert_eq!(failure.unwrap_err().code, Code::TransferFail);
        let untouched = MIB * 2 + 77;
        assert!(canaries(&memory[untouched..]));
        drop(transport);
        await_operations(&node, region, 0);
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    write_at(&transport(), &node.place(), at(region, 0), &bytes).unwrap();
}

/// A peer that is scripted by the test; it keeps its stream open until the client hangs up.
fn scripted(
    features: u64,
    script: impl FnOnce(&mut TcpStream, Frame) + Send + 'static,
) -> (Place, JoinHandle<()>) {
    let listener = net::listen("127.0.0.1:0", "x").unwrap();
    let place = place(&listener.local_addr().unwrap().to_string());
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = FrameReader::new();
        assert_eq!(reader.read(&mut stream).unwrap().kind, Kind::Hello);
        reader.open();
        let greeting = Greeting::new(Role::Node, 1).with_features(features);
        stream.write_all(&framed(0, &Welcome(greeting))).unwrap();
        if let Ok(request) = reader.read(&mut stream) {
            script(&mut stream, request);
            // Until the client hangs up.
            stream.read_to_end(&mut Vec::new()).ok();
        }
    };
    (place, std::thread::spawn(serve))
}

fn with_stall(mut operation: Operation<'_>, ms: u64) -> Operation<'_> {
    operation.stall = Millis(ms);
    operation
}

#[test]
fn a_peer_of_an_earlier_version_is_not_asked_for_ranges() {
    let (place, thread) = scripted(0, |_, request| panic!("{:?} came", request.kind));
    let transport = transport();
    let mut memory = [CANARY; 10];
    let operations = [
        range_read(&place, at(RegionId(1), 0), TargetSlices::of(&mut memory)),
        range_write(&place, at(RegionId(1), 0), SourceSlices::of(&[1, 2])),
    ];
    for completion in run(&transport, operations) {
        assert_eq!(completion.result.unwrap_err().code, Code::NotSupported);
    }
    assert!(canaries(&memory));
    drop(transport);
    thread.join().unwrap();
}

#[test]
fn a_server_that_breaks_the_rules_of_ranges_is_left() {
    let bytes = pattern(1000, 3);
    let head = |id: u64| {
        let head = snowskin_proto::ReadHead {
            shape: snowskin_types::object::Shape {
                size: 1000,
                checksum: 5,
            },
            offset: 0,
            len: 1000,
            sums: PieceSums(Box::new([5])),
        };
        framed(id, &head)
    };
    let cases: Vec<Vec<u8>> = vec![
        payload(1, 1000),
        [sums(1, &bytes), payload(1, 1001)].concat(),
        [sums(1, &bytes), sums(1, &bytes)].concat(),
        sums(1, &pattern(2 * PIECE, 1)),
        sums(2, &bytes),
        head(1),
    ];
    for (nth, case) in cases.into_iter().enumerate() {
        let (place, thread) = scripted(FEATURE_RANGES, move |stream, request| {
            assert_eq!(request.kind, Kind::RangeRead);
            stream.write_all(&case).unwrap();
        });
        let transport = transport();
        let mut memory = [CANARY; 1000];
        let failure = read_at(&transport, &place, at(RegionId(1), 0), &mut memory);
        let failure = failure.unwrap_err();
        assert_eq!(failure.code, Code::TransferFail, "{nth} {failure}");
        assert!(canaries(&memory), "{nth}");
        drop(transport);
        thread.join().unwrap();
    }
}

#[test]
fn deadlines_silence_and_cancelling_end_an_operation_and_leave_its_memory_quiet() {
    let bytes = pattern(1000, 3);
    let half = || [sums(1, &bytes), payload(1, 1000), bytes[..500].to_vec()].concat();
    let silent = |half: Vec<u8>| {
        scripted(FEATURE_RANGES, move |stream, _| {
            stream.write_all(&half).unwrap();
        })
    };
    for late in [false, true] {
        let (place, thread) = silent(half());
        let transport = transport();
        let mut memory = [CANARY; 1000];
        let operation = range_read(&place, at(RegionId(1), 0), TargetSlices::of(&mut memory));
        let mut operation = with_stall(operation, 200);
        let wanted = if late {
            operation.deadline = soon(150);
            Code::RpcTimeout
        } else {
            Code::TransferFail
        };
        let start = Instant::now();
        let failure = run_one(&transport, operation).unwrap_err();
        assert_eq!(failure.code, wanted, "{failure}");
        assert!((100..1000).contains(&start.elapsed().as_millis()));
        assert!(canaries(&memory[500..]));
        drop(transport);
        thread.join().unwrap();
    }
    let (place, thread) = silent(half());
    let transport = transport();
    let mut memory = [CANARY; 1000];
    let target = TargetSlices::of(&mut memory);
    let mut batch = transport.batch();
    let id = batch.submit(range_read(&place, at(RegionId(1), 0), target));
    let mut completions = Vec::new();
    while counter(&transport.counters().bytes_in) < 500 {
        batch.wait(soon(50), &mut completions);
    }
    let given_back = batch.cancel(id).unwrap();
    assert_eq!(
        given_back.movement.remaining(),
        1000,
        "at its first position"
    );
    assert_eq!((batch.under_way(), completions.len()), (0, 0));
    drop((given_back, batch));
    assert!(memory[..500] == bytes[..500] && canaries(&memory[500..]));
    drop(transport);
    thread.join().unwrap();
}
