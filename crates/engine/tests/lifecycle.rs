//! Beginning and end: what may be called when, and that nothing is left behind.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use snowskin_device::Registry;
use snowskin_engine::{BatchId, Config, Engine, EngineError, Notify, Opcode};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use support::*;

#[test]
fn before_and_after_every_call_is_refused_and_none_hangs() {
    let engine = Engine::new(Registry::default());
    let refused = |engine: &Engine| {
        let mut memory = Memory::canaries(10);
        let read = request(memory.address(), 16, 10);
        let not_open = Err(EngineError::NotOpen);
        assert_eq!(engine.register(&[memory.run()]), not_open);
        assert_eq!(engine.unregister(&[memory.address()]), not_open);
        assert_eq!(
            engine.transfer("h:1", Opcode::Read, &[read], None),
            not_open
        );
        assert!(engine.submit("h:1", Opcode::Read, &[read]).is_err());
        assert!(engine.status(BatchId(1)).is_err());
        assert_eq!(engine.wait(&[BatchId(1)]), not_open);
        assert_eq!(engine.probe("h:1"), not_open);
        assert_eq!(engine.notify("h:1", &Notify::default()), not_open);
        assert!(engine.first_address("h:1").is_err());
        assert!(engine.allocate(10).is_err() && engine.free(10).is_err());
        assert!(engine.notifies().is_empty() && !engine.is_open());
        assert_eq!((engine.rpc_port(), engine.session_id().as_str()), (0, ""));
        engine.close();
    };
    refused(&engine);
    engine.initialize(config()).unwrap();
    assert!(engine.is_open());
    let again = engine.initialize(config()).unwrap_err();
    let session = engine.session_id();
    assert_eq!(again, EngineError::AlreadyOpen { session });
    engine.close();
    refused(&engine);
    engine.initialize(config()).unwrap();
    engine.probe(&engine.session_id()).unwrap();
}

#[test]
fn a_setting_that_cannot_work_is_refused_and_may_be_corrected() {
    let engine = Engine::new(Registry::default());
    let with = |change: &dyn Fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        engine.initialize(config).unwrap_err().number()
    };
    assert_eq!(with(&|c| c.host = String::new()), -1);
    assert_eq!(with(&|c| c.host = "a:b:c".to_owned()), -1);
    assert_eq!(with(&|c| c.ports = 0..=5), -1);
    let (first, last) = (16_000, 15_000);
    assert_eq!(with(&|c| c.ports = first..=last), -1);
    assert_eq!(with(&|c| c.protocol = "xgmi".to_owned()), -1);
    let elsewhere: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(with(&|c| c.bind = Some(elsewhere)), -1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(with(&|c| c.port = Some(port)), -1);
    engine.initialize(config()).unwrap();
}

#[test]
fn a_fabric_that_is_not_there_is_replaced_and_counted() {
    for protocol in ["rdma", "ascend", "EFA"] {
        let mut config = config();
        config.protocol = protocol.to_owned();
        let engine = engine_with(config);
        assert_eq!(engine.counts().fabric_fallbacks, 1, "{protocol}");
        engine.probe(&engine.session_id()).unwrap();
    }
    assert_eq!(engine().counts().fabric_fallbacks, 0);
}

#[test]
fn ports_are_of_the_range_and_the_name_is_as_peers_write_it() {
    let mut config = config();
    config.host = "127.0.0.1:9".to_owned();
    config.ports = 15_500..=15_600;
    let engine = engine_with(config);
    assert!((15_500..=15_600).contains(&engine.rpc_port()));
    assert_eq!(
        engine.session_id(),
        format!("127.0.0.1:{}", engine.rpc_port())
    );
    // An address that is not of this machine: everywhere.
    let mut config = support::config();
    config.host = "192.0.2.7".to_owned();
    let behind = engine_with(config);
    let alias = format!("127.0.0.1:{}", behind.rpc_port());
    engine.probe(&alias).unwrap();
    assert!(behind.session_id().starts_with("192.0.2.7:"));
    if TcpListener::bind("[::1]:0").is_ok() {
        let mut config = support::config();
        config.host = "::1".to_owned();
        let six = engine_with(config);
        assert_eq!(six.session_id(), format!("[::1]:{}", six.rpc_port()));
        let mut there = Memory::new(pattern(1000, 1));
        six.register(&[there.run()]).unwrap();
        let mut here = Memory::canaries(1000);
        let read = request(here.address(), there.remote(), 1000);
        engine
            .transfer(&six.session_id(), Opcode::Read, &[read], None)
            .unwrap();
        assert!(here.bytes() == there.bytes());
    }
}

#[test]
fn closing_ends_what_is_under_way_frees_the_ports_and_gives_the_memory_back() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    const LEN: usize = 64 << 20;
    let mut there = Memory::canaries(LEN);
    let mut here = Memory::new(pattern(LEN, 2));
    a.register(&[there.run()]).unwrap();
    b.register(&[here.run()]).unwrap();
    let write = request(here.address(), there.remote(), LEN as u64);
    let long = vec![write; 100];
    let port = b.rpc_port();
    std::thread::scope(|scope| {
        let (b, peer, long) = (&b, &peer, &long);
        let blocked: Vec<_> = (0..2)
            .map(|_| scope.spawn(move || b.transfer(peer, Opcode::Write, long, None)))
            .collect();
        let id = b.submit(peer, Opcode::Write, long).unwrap();
        let waiting = scope.spawn(move || b.wait(&[id]));
        let start = Instant::now();
        b.close();
        assert!(start.elapsed() < Duration::from_secs(5));
        for call in blocked {
            // Begun before the end, or refused after it.
            assert!(call.join().unwrap().is_err());
        }
        assert!(waiting.join().unwrap().is_err());
    });
    assert_eq!(b.counts().ended_late, 0);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(b.registry().counts().regions, 0);
    // The peer has noticed and takes its memory back at once.
    let start = Instant::now();
    a.unregister(&[there.address()]).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_last_clone_closes_the_engine() {
    let registry = Registry::default();
    let engine = Engine::new(registry.clone());
    engine.initialize(config()).unwrap();
    let port = engine.rpc_port();
    let mut memory = Memory::canaries(4096);
    engine.register(&[memory.run()]).unwrap();
    let clone = engine.clone();
    drop(engine);
    clone.probe(&clone.session_id()).unwrap();
    assert_eq!(registry.counts().regions, 1);
    drop(clone);
    assert_eq!(registry.counts().regions, 0);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn buffers_of_the_engine_are_registered_and_given_back() {
    let (a, b) = (engine(), engine());
    let buffer = a.allocate(10_000).unwrap();
    let mut here = Memory::new(pattern(10_000, 3));
    let write = request(here.address(), buffer as u64, 10_000);
    b.transfer(&a.session_id(), Opcode::Write, &[write], None)
        .unwrap();
    let mut seen = vec![0; 10_000];
    a.registry().read(buffer, &mut seen).unwrap();
    assert!(seen == here.bytes());
    a.free(buffer).unwrap();
    assert_eq!(a.free(buffer).unwrap_err().number(), -3);
    let late = b.transfer(&a.session_id(), Opcode::Write, &[write], None);
    assert_eq!(late.unwrap_err().number(), -1);
    assert!(a.allocate(u64::MAX).is_err());
    // What is not freed is given back with the engine.
    a.allocate(0).unwrap();
}
