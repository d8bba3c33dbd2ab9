//! Batches beside their callers: one status for all of their requests, numbers that cannot be confused.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use snowskin_engine::{BatchId, Engine, EngineError, Opcode, Status};
use std::time::{Duration, Instant};
use support::*;

/// Polls as consumers do, within a bound.
fn end_of(engine: &Engine, id: BatchId) -> Status {
    let start = Instant::now();
    loop {
        match engine.status(id).unwrap() {
            Status::Running if start.elapsed() < Duration::from_secs(30) => {
                std::thread::yield_now();
            }
            status => return status,
        }
    }
}

#[test]
fn a_batch_is_done_when_its_last_request_is() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    const LEN: usize = 96 << 20;
    let mut there = Memory::new(pattern(LEN, 1));
    let mut here = Memory::canaries(LEN);
    a.register(&[there.run()]).unwrap();
    b.register(&[here.run()]).unwrap();
    let (local, remote) = (here.address(), there.remote());
    // The small one first: its end is not the batch's.
    let requests = [
        request(local, remote, 4096),
        request(local + 8192, remote + 8192, LEN as u64 - 8192),
    ];
    let id = b.submit(&peer, Opcode::Read, &requests).unwrap();
    assert!(id.0 > 0 && id.0 < 1 << 63);
    assert_eq!(end_of(&b, id), Status::Done);
    assert!(here.bytes()[..4096] == there.bytes()[..4096]);
    assert!(here.bytes()[8192..] == there.bytes()[8192..]);
    // It is not known any more.
    let unknown = b.status(id);
    assert_eq!(unknown, Err(EngineError::UnknownBatch { id: id.0 }));
    assert!(b.wait(&[id]).is_err());
}

#[test]
fn one_bad_request_fails_the_batch() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    let mut there = Memory::canaries(1000);
    a.register(&[there.run()]).unwrap();
    let mut here = Memory::canaries(1000);
    let (local, remote) = (here.address(), there.remote());
    let requests = [request(local, remote, 10), request(local, remote + 995, 10)];
    let id = b.submit(&peer, Opcode::Write, &requests).unwrap();
    assert_eq!(end_of(&b, id), Status::Failed);
    assert!(b.status(id).is_err());
    let good = b.submit(&peer, Opcode::Write, &requests[..1]).unwrap();
    let bad = b.submit(&peer, Opcode::Write, &requests[1..]).unwrap();
    let after = b.submit(&peer, Opcode::Write, &requests[..1]).unwrap();
    let failed = b.wait(&[good, bad, after]);
    assert_eq!(failed, Err(EngineError::Batch { id: bad.0 }));
    assert!([good, bad, after].iter().all(|id| b.status(*id).is_err()));
    b.wait(&[]).unwrap();
    assert!(b.wait(&[BatchId(1)]).is_err());
    assert!(b.status(BatchId(u64::MAX)).is_err());
}

#[test]
fn numbers_of_one_engine_are_unknown_to_another() {
    let (a, b) = (engine(), engine());
    let mut there = Memory::canaries(100);
    let mut here = Memory::canaries(100);
    a.register(&[there.run()]).unwrap();
    let read = request(here.address(), there.remote(), 100);
    let id = b.submit(&a.session_id(), Opcode::Read, &[read]).unwrap();
    assert!(a.status(id).is_err());
    b.wait(&[id]).unwrap();
}

#[test]
fn many_batches_share_few_threads() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    let mut there = Memory::canaries(4 << 20);
    let mut here = Memory::new(pattern(4 << 20, 7));
    a.register(&[there.run()]).unwrap();
    b.register(&[here.run()]).unwrap();
    let (local, remote) = (here.address(), there.remote());
    let mut ids = Vec::new();
    for index in 0..512usize {
        let at = index * 8192;
        let write = request(local + at, remote + at as u64, 8192);
        ids.push(b.submit(&peer, Opcode::Write, &[write]).unwrap());
    }
    b.wait(&ids).unwrap();
    assert!(there.bytes() == here.bytes());
}

#[test]
fn a_peer_that_is_not_there_is_told_at_once() {
    let b = engine();
    let mut here = Memory::canaries(100);
    let start = Instant::now();
    let write = request(here.address(), 16, 100);
    let error = b.submit(&dead_peer(), Opcode::Write, &[write]).unwrap_err();
    assert_eq!(error.number(), -102);
    assert!(start.elapsed() < Duration::from_millis(900));
}
