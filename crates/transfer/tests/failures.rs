//! Peers that are frozen, killed, slow, wrong or hostile: every operation ends in time, with the right
//! code, and leaves its memory quiet.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use snowskin_proto::frame::{self, Frame, Header, Kind};
use snowskin_proto::hello::{Greeting, Role, Token, Welcome};
use snowskin_proto::{ReadHead, blocking::FrameReader};
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_runtime::net;
use snowskin_runtime::spawn::Cancel;
use snowskin_transfer::tcp::client::{TcpOptions, TcpTransport};
use snowskin_transfer::tcp::endpoint::Filled;
use snowskin_transfer::tcp::server::{Server, ServerOptions};
use snowskin_transfer::transport::{Movement, Operation, Transport, WriteTo};
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::object::Shape;
use snowskin_types::time::Millis;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use support::*;

const MIB: usize = 1 << 20;

fn quick() -> TcpTransport {
    transport_with(TcpOptions {
        connect_timeout: Millis(300),
        ..TcpOptions::default()
    })
}

fn with_stall(mut operation: Operation<'_>, ms: u64) -> Operation<'_> {
    operation.stall = Millis(ms);
    operation
}

/// A peer that is scripted by the test: greets, then gets the stream and the first request.
struct Scripted {
    address: String,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Dropped to let a script that waits for it end.
    release: Option<SyncSender<()>>,
}

impl Scripted {
    fn new(script: impl FnOnce(TcpStream, Frame, &dyn Fn()) + Send + 'static) -> Self {
        let listener = net::listen("127.0.0.1:0", "x").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (release, released) = sync_channel::<()>(0);
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = FrameReader::new();
            assert_eq!(reader.read(&mut stream).unwrap().kind, Kind::Hello);
            reader.open();
            let mut out = Default::default();
            frame::put(&mut out, 0, &Welcome(Greeting::new(Role::Node, 1))).unwrap();
            stream.write_all(&out).unwrap();
            let request = reader.read(&mut stream).unwrap();
            // Ends when the sender is dropped.
            script(stream, request, &|| {
                released.recv().ok();
            });
        };
        let thread = Some(std::thread::spawn(serve));
        Scripted {
            address,
            thread,
            release: Some(release),
        }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn head(bytes: &[u8]) -> ReadHead {
    let sums = PieceSums::of(bytes);
    let size = bytes.len() as u64;
    ReadHead {
        shape: Shape {
            size,
            checksum: sums.whole(size),
        },
        offset: 0,
        len: size,
        sums,
    }
}

/// The frames that announce `bytes` and carry `sent` of them.
fn answer(id: u64, bytes: &[u8], sent: usize) -> Vec<u8> {
    let mut out = Default::default();
    frame::put(&mut out, id, &head(bytes)).unwrap();
    out.extend_from_slice(&Header::new(Kind::Payload, bytes.len() as u32, id).to_bytes());
    out.extend_from_slice(&bytes[..sent]);
    out.to_vec()
}

#[test]
fn a_frozen_peer_is_left_after_the_progress_timeout() {
    // It accepts in the kernel and never says a word.
    let frozen = net::listen("127.0.0.1:0", "x").unwrap();
    let place = place(&frozen.local_addr().unwrap().to_string());
    let transport = quick();
    let start = Instant::now();
    let mut memory = [CANARY; 100];
    let failure = run_one(&transport, read(&place, "x", (0, 100), &mut memory)).unwrap_err();
    assert_eq!(failure.code, Code::TransferFail, "{failure}");
    assert_eq!(failure.peer.as_deref(), Some(&*place.address));
    assert!(
        (250..1500).contains(&start.elapsed().as_millis()),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(memory, [CANARY; 100]);
}

#[test]
fn a_peer_that_freezes_amid_a_read_or_a_write_is_left_and_memory_is_quiet() {
    let bytes = pattern(MIB, 1);
    let sent = answer(1, &bytes, 300_000);
    let peer = Scripted::new(move |mut stream, _, wait| {
        stream.write_all(&sent).unwrap();
        wait();
        // Late bytes find nobody.
        stream.write_all(&[0; 1000]).ok();
    });
    let transport = quick();
    let mut memory = vec![CANARY; MIB];
    let operation = read(&place(&peer.address), "x", (0, MIB as u64), &mut memory);
    let start = Instant::now();
    let failure = run_one(&transport, with_stall(operation, 200)).unwrap_err();
    assert_eq!(failure.code, Code::TransferFail, "{failure}");
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(memory[300_000..].iter().all(|byte| *byte == CANARY));
    memory.fill(1);
    drop(peer);
    assert!(memory.iter().all(|byte| *byte == 1));
    let peer = Scripted::new(|_stream, _, wait| wait());
    let large = pattern(64 * MIB, 2);
    let operation = write(&place(&peer.address), "x", &large);
    let failure = run_one(&transport, with_stall(operation, 200)).unwrap_err();
    assert_eq!(
        (failure.code, failure.stage),
        (Code::TransferFail, Stage::Write),
        "{failure}"
    );
    assert!(counter(&transport.counters().stalled) >= 2);
}

#[test]
fn a_peer_that_dies_amid_a_read_fails_it_at_once() {
    let bytes = pattern(MIB, 1);
    let sent = answer(1, &bytes, 500_000);
    let peer = Scripted::new(move |mut stream, _, _| stream.write_all(&sent).unwrap());
    let mut memory = vec![0; MIB];
    let operation = read(&place(&peer.address), "x", (0, MIB as u64), &mut memory);
    let start = Instant::now();
    let failure = run_one(&quick(), operation).unwrap_err();
    assert_eq!(failure.code, Code::TransferFail, "{failure}");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_slow_peer_is_left_at_the_deadline() {
    let bytes = pattern(MIB, 1);
    let sent = answer(1, &bytes, 1000);
    let peer = Scripted::new(move |mut stream, _, _| {
        stream.write_all(&sent).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        // A trickle: some bytes every 20 ms, until the reader hangs up.
        let mut ear = [0; 1];
        loop {
            match stream.read(&mut ear) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return,
            }
            if stream.write_all(&[7; 10]).is_err() {
                return;
            }
        }
    });
    let transport = quick();
    let mut memory = vec![CANARY; MIB];
    let mut operation = read(&place(&peer.address), "x", (0, MIB as u64), &mut memory);
    operation.deadline = soon(400);
    let start = Instant::now();
    let failure = run_one(&transport, with_stall(operation, 300)).unwrap_err();
    let took = start.elapsed().as_millis();
    assert_eq!(failure.code, Code::RpcTimeout, "{failure}");
    assert!((350..650).contains(&took), "{took}");
    assert_eq!(counter(&transport.counters().deadline_missed), 1);
}

#[test]
fn refused_unknown_and_silent_peers_are_told_apart() {
    let transport = quick();
    let closed = net::listen("127.0.0.1:0", "x")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let mut memory = [0; 10];
    let failure =
        run_one(&transport, read(&place(&closed), "x", (0, 10), &mut memory)).unwrap_err();
    assert!(
        failure.code == Code::RpcFail && failure.message.contains("refuses"),
        "{failure}"
    );
    let unknown = place("no-such-host.invalid:7");
    let failure = run_one(&transport, read(&unknown, "x", (0, 10), &mut memory)).unwrap_err();
    assert!(failure.message.contains("resolve"), "{failure}");
    // The right to open a connection comes back each time.
    for _ in 0..20 {
        run_one(&transport, read(&place(&closed), "x", (0, 10), &mut memory)).unwrap_err();
    }
    assert_eq!(counter(&transport.counters().connections), 0);
}

#[test]
fn one_unreachable_peer_does_not_hold_the_others_back() {
    let node = Node::new(Memory::new(8 << 20, 4096));
    let frozen = net::listen("127.0.0.1:0", "x").unwrap();
    let frozen_place = place(&frozen.local_addr().unwrap().to_string());
    let transport = quick();
    put(&transport, &node.place(), "x", &[7; 1000]);
    let (mut first, mut second) = ([0; 1000], [0; 1000]);
    let mut batch = transport.batch();
    batch.submit(read(&frozen_place, "x", (0, 1000), &mut first));
    let good = batch.submit(read(&node.place(), "x", (0, 1000), &mut second));
    let start = Instant::now();
    let mut completions = Vec::new();
    batch.wait(soon(5_000), &mut completions);
    assert_eq!((completions.len(), completions[0].id), (1, good));
    assert!(completions[0].result.is_ok() && start.elapsed() < Duration::from_millis(200));
}

#[test]
fn a_refused_write_ends_early_and_the_connection_lives() {
    let node = Node::new(Memory::new(8 << 20, 4096));
    let (place, transport) = (node.place(), transport());
    put(&transport, &place, "first", &[7; 1000]);
    let refusal = Failure::new(Code::NoSpace, Stage::Write, "full");
    node.memory().behave(|b| b.refuse_writes = Some(refusal));
    let large = pattern(256 * MIB, 2);
    let failure = run_one(&transport, write(&place, "large", &large)).unwrap_err();
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (Code::NoSpace, "full")
    );
    let sent = counter(&transport.counters().bytes_out);
    assert!(sent < 32 << 20, "{sent}");
    node.memory().behave(|b| b.refuse_writes = None);
    put(&transport, &place, "second", &[8; 1000]);
    let mut memory = [0; 1000];
    run_one(&transport, read(&place, "second", (0, 1000), &mut memory)).unwrap();
    let opened = counter(&node.server.counters().connections_opened);
    assert!(memory == [8; 1000] && opened <= 2, "{opened}");
    // Small writes are refused after all their bytes were sent.
    let refusal = Failure::new(Code::InvalidWrite, Stage::Write, "no");
    node.memory().behave(|b| b.refuse_writes = Some(refusal));
    let bytes = pattern(50_000, 4);
    let keys: Vec<String> = (0..50).map(|i| format!("refused-{i}")).collect();
    let writes = keys.iter().map(|key| write(&place, key, &bytes));
    let codes = run(&transport, writes)
        .into_iter()
        .map(|c| c.result.unwrap_err().code);
    assert!(codes.into_iter().all(|code| code == Code::InvalidWrite));
    run_one(&transport, read(&place, "second", (0, 1000), &mut memory)).unwrap();
    assert!(counter(&node.server.counters().connections_opened) <= 2);
}

#[test]
fn a_write_that_waits_for_its_publish_is_not_taken_for_a_stall() {
    let options = ServerOptions {
        waiting_interval: Millis(20),
        ..ServerOptions::default()
    };
    let node = Node::with(Memory::new(8 << 20, 4096), options, "127.0.0.1:0");
    node.memory()
        .behave(|b| b.publish_takes = Some(Duration::from_millis(600)));
    let transport = quick();
    let start = Instant::now();
    let operation = with_stall(write(&node.place(), "x", &[1; 5000]), 200);
    run_one(&transport, operation).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(600));
}

#[test]
fn bytes_damaged_at_their_owner_are_found_by_the_reader_or_the_owner() {
    let node = Node::new(Memory::new(8 << 20, 100_000));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(3 * MIB, 2);
    put(&transport, &place, "x", &bytes);
    node.memory()
        .damage(&name("x"), version(1), MIB as u64 + 17);
    let mut memory = vec![0; 3 * MIB];
    let failure = run_one(&transport, read(&place, "x", (0, u64::MAX), &mut memory)).unwrap_err();
    assert_eq!(
        (failure.code, failure.stage),
        (Code::ChecksumMismatch, Stage::Verify)
    );
    assert_eq!(failure.key, Some(name("x").key));
    assert_eq!(counter(&transport.counters().checksum_failures), 1);
    // A part of the damaged piece is not given a fresh checksum.
    let part = read(&place, "x", (MIB as u64 + 1000, 10), &mut memory);
    assert_eq!(
        run_one(&transport, part).unwrap_err().code,
        Code::ChecksumMismatch
    );
    assert_eq!(node.memory().damaged(), 1);
    // Other pieces are good, and so is the connection.
    let good = read(&place, "x", (0, MIB as u64), &mut memory);
    run_one(&transport, good).unwrap();
    assert_eq!(counter(&node.server.counters().connections_opened), 1);
}

#[test]
fn bytes_damaged_on_their_way_to_the_owner_are_not_kept() {
    let node = Node::new(Memory::new(8 << 20, 100_000));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(600_000, 2);
    let mut wrong = bytes.clone();
    wrong[599_999] ^= 1;
    let mut operation = write(&place, "x", &wrong);
    let Movement::Write {
        to: WriteTo::Object(request),
        ..
    } = &mut operation.movement
    else {
        unreachable!("a write was made")
    };
    request.sums = PieceSums::of(&bytes);
    let failure = run_one(&transport, operation).unwrap_err();
    assert_eq!(failure.code, Code::ChecksumMismatch);
    assert_eq!(node.memory().ended(), [Filled::Corrupt]);
    put(&transport, &place, "x", &bytes);
    assert_eq!(counter(&node.server.counters().connections_opened), 1);
}

#[test]
fn a_cancelled_read_leaves_its_memory_quiet_and_the_others_go_on() {
    let node = Node::new(Memory::new(256 << 20, 1 << 20));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(64 * MIB, 2);
    put(&transport, &place, "large", &bytes);
    put(&transport, &place, "small", &[9; 100]);
    let (mut large, mut small) = (vec![0u8; 64 * MIB], [0u8; 100]);
    let mut completions = Vec::new();
    let mut batch = transport.batch();
    let cancelled = batch.submit(read(&place, "large", (0, u64::MAX), &mut large));
    batch.submit(read(&place, "small", (0, u64::MAX), &mut small));
    // Until some of it has come.
    while counter(&transport.counters().bytes_in) == 0 {
        batch.poll(&mut completions);
    }
    let operation = batch.cancel(cancelled).unwrap();
    assert_eq!(operation.movement.remaining(), 64 * MIB as u64);
    assert!(batch.cancel(cancelled).is_none());
    drop(operation);
    while batch.under_way() > 0 {
        batch.wait(soon(10_000), &mut completions);
    }
    drop(batch);
    assert!(completions.remove(0).result.is_ok());
    drop(completions);
    assert_eq!(small, [9; 100]);
    large.fill(1);
    put(&transport, &place, "after", &[9; 100]);
    assert!(large.iter().all(|byte| *byte == 1));
    node.await_raised(&node.memory().read_ended, 2);
    assert_eq!(node.memory().reads_open(), 0);
}

#[test]
fn a_dropped_batch_breaks_its_writes_at_the_node() {
    let node = Node::new(Memory::new(128 << 20, 1 << 20));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(64 * MIB, 2);
    let mut batch = transport.batch();
    batch.submit(write(&place, "x", &bytes));
    while counter(&transport.counters().bytes_out) == 0 {
        batch.poll(&mut Vec::new());
    }
    node.await_raised(&node.memory().write_started, 1);
    drop(batch);
    node.await_raised(&node.memory().write_ended, 1);
    assert_eq!(node.memory().ended(), [Filled::Broken]);
    assert_eq!(counter(&transport.counters().connections), 0);
    put(&transport, &place, "x", &bytes[..MIB]);
}

#[test]
fn the_node_can_cut_a_write_and_a_read() {
    let node = Node::new(Memory::new(256 << 20, 1 << 20));
    let (place, transport) = (node.place(), transport());
    let bytes = pattern(64 * MIB, 2);
    let cut = Cancel::new();
    cut.cancel();
    node.memory().behave(|b| b.cut_writes = Some(cut.clone()));
    let failure = run_one(&transport, write(&place, "x", &bytes)).unwrap_err();
    assert_eq!(failure.code, Code::InvalidWrite, "{failure}");
    assert_eq!(node.memory().ended(), [Filled::Broken]);
    node.memory().behave(|b| b.cut_writes = None);
    put(&transport, &place, "x", &bytes);
    node.memory().behave(|b| b.cut_reads = Some(cut));
    let mut memory = vec![0; 64 * MIB];
    let failure = run_one(&transport, read(&place, "x", (0, u64::MAX), &mut memory)).unwrap_err();
    assert_eq!(failure.code, Code::TransferFail, "{failure}");
    assert_eq!(node.memory().reads_open(), 0);
}

#[test]
fn connections_to_a_restarted_peer_are_replaced_without_an_error() {
    let node = Node::new(Memory::new(8 << 20, 4096));
    let (place, transport) = (node.place(), transport());
    put(&transport, &place, "x", &[1; 1000]);
    node.stop();
    let node = Node::with(
        Memory::new(8 << 20, 4096),
        ServerOptions::default(),
        &place.address,
    );
    put(&transport, &place, "x", &[2; 1000]);
    let mut memory = [0; 1000];
    run_one(&transport, read(&place, "x", (0, 1000), &mut memory)).unwrap();
    assert_eq!(memory, [2; 1000]);
    assert_eq!(counter(&transport.counters().connections), 1);
    node.stop();
}

#[test]
fn another_process_life_is_refused() {
    let node = Node::new(Memory::new(8 << 20, 4096));
    let transport = transport();
    put(&transport, &node.place(), "x", &[1; 1000]);
    let mut memory = [0; 1000];
    let mut operation = read(&node.place(), "x", (0, 1000), &mut memory);
    let Movement::Read {
        from: snowskin_transfer::transport::ReadFrom::Object(request),
        ..
    } = &mut operation.movement
    else {
        unreachable!("a read was made")
    };
    request.epoch.0 += 1;
    assert_eq!(
        run_one(&transport, operation).unwrap_err().code,
        Code::ReplicaGone
    );
}

#[test]
fn garbage_is_refused_and_counted_and_the_server_goes_on() {
    let options = ServerOptions {
        hello_timeout: Millis(200),
        ..ServerOptions::default()
    };
    let node = Node::with(Memory::new(8 << 20, 4096), options, "127.0.0.1:0");
    let address = node.place().address;
    let hang_up = |mut stream: TcpStream| {
        stream.shutdown(Shutdown::Write).ok();
        // Until the server closes as well.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    };
    let greet = || {
        let mut out = bytes::BytesMut::new();
        let hello = snowskin_proto::hello::Hello(Greeting::new(Role::Client, 3));
        frame::put(&mut out, 0, &hello).unwrap();
        out
    };
    let mut many = 0;
    for seed in 0..200u64 {
        let mut stream = net::dial(&address, Duration::from_secs(1)).unwrap();
        let mut noise = pattern(1 + (seed as usize * 131) % 5000, seed);
        if seed % 2 == 0 {
            // Noise behind a good hello, every kind of frame in turn.
            let kind = Kind::ALL[seed as usize / 2 % Kind::ALL.len()];
            let mut out = greet();
            out.extend_from_slice(&Header::new(kind, noise.len() as u32, 1).to_bytes());
            out.extend_from_slice(&noise);
            noise = out.to_vec();
        }
        many += usize::from(stream.write_all(&noise).is_ok());
        hang_up(stream);
    }
    assert!(many > 100);
    let counters = node.server.counters();
    assert!(
        counter(&counters.garbage) > 100,
        "{:?}",
        counters.snapshot()
    );
    // A frame that announces four gigabytes costs nothing.
    let mut stream = net::dial(&address, Duration::from_secs(1)).unwrap();
    let mut out = greet();
    out.extend_from_slice(&Header::new(Kind::Write, u32::MAX, 1).to_bytes());
    stream.write_all(&out).unwrap();
    hang_up(stream);
    // A stranger who says nothing is sent away.
    let silent = net::dial(&address, Duration::from_secs(1)).unwrap();
    let mut ear = silent.try_clone().unwrap();
    ear.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(ear.read(&mut [0; 1]).unwrap(), 0);
    assert!(node.server.panicked().is_none());
    put(&transport(), &node.place(), "x", &[1; 1000]);
    node.stop();
}

#[test]
fn a_wrong_token_is_told_by_its_own_code() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let listener = net::listen("127.0.0.1:0", "x").unwrap();
    let greeting = Greeting::new(Role::Node, 1).with_token(Token::new(b"secret").unwrap());
    let memory = Memory::new(1 << 20, 4096);
    let options = ServerOptions::default();
    let server = Server::start(listener, memory, greeting, options, runtime.handle()).unwrap();
    let place = place(&server.address().to_string());
    let large = pattern(8 * MIB, 1);
    let failure = run_one(&quick(), write(&place, "x", &large)).unwrap_err();
    assert_eq!(failure.code, Code::IllegalClient, "{failure}");
    let hello = Greeting::new(Role::Client, 2).with_token(Token::new(b"secret").unwrap());
    let clock = Arc::new(SystemClock);
    let transport = TcpTransport::new(hello, TcpOptions::default(), clock).unwrap();
    put(&transport, &place, "x", &[1; 10]);
    assert_eq!(counter(&server.counters().hellos_refused), 1);
}

#[test]
fn connections_over_the_limit_are_refused_and_counted() {
    let options = ServerOptions {
        connections_max: 2,
        ..ServerOptions::default()
    };
    let node = Node::with(Memory::new(1 << 20, 4096), options, "127.0.0.1:0");
    let transports = [transport(), transport(), transport()];
    put(&transports[0], &node.place(), "a", &[1; 10]);
    put(&transports[1], &node.place(), "b", &[1; 10]);
    run_one(&transports[2], write(&node.place(), "c", &[1; 10])).unwrap_err();
    assert_eq!(counter(&node.server.counters().connections_over_limit), 1);
    let [first, _, third] = transports;
    drop(first);
    // The place of the closed connection is free once the server has noticed.
    let deadline = Instant::now() + Duration::from_secs(5);
    while run_one(&third, write(&node.place(), "c", &[1; 10])).is_err() {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn the_keeper_closes_idle_connections() {
    let node = Node::new(Memory::new(1 << 20, 4096));
    let options = TcpOptions {
        idle: Millis(1),
        keeper_interval: Millis(5),
        ..TcpOptions::default()
    };
    let transport = transport_with(options);
    put(&transport, &node.place(), "a", &[1; 10]);
    let deadline = SystemClock.now() + Millis(5_000);
    while counter(&transport.counters().connections) > 0 {
        assert!(SystemClock.now() < deadline);
        std::thread::yield_now();
    }
    put(&transport, &node.place(), "b", &[1; 10]);
}

#[test]
fn a_peer_that_sends_what_was_not_asked_for_is_left() {
    let bytes = pattern(1000, 1);
    let too_much = answer(1, &bytes, 1000);
    let other = answer(9, &bytes, 1000);
    for sent in [other, [too_much, vec![0xff; 64]].concat()] {
        let peer = Scripted::new(move |mut stream, _, wait| {
            stream.write_all(&sent).unwrap();
            wait();
        });
        let mut memory = vec![CANARY; 900];
        let operation = read(&place(&peer.address), "x", (0, 900), &mut memory);
        run_one(&quick(), operation).unwrap_err();
        assert!(memory.iter().all(|byte| *byte == CANARY));
    }
}
