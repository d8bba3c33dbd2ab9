//! Peers that die, come back, freeze, or are not what they seem: every call ends in time.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use snowskin_engine::{Opcode, Status};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use support::*;

const FAST: Duration = Duration::from_millis(900);

#[test]
fn engine_in_a_process_of_its_own() {
    serve_as_child();
}

#[test]
fn bytes_go_between_processes() {
    let remote = Remote::start(0, 3_000_000, 8);
    let b = engine();
    let mut here = Memory::canaries(3_000_000);
    let read = request(here.address(), remote.base, remote.len);
    b.transfer(&remote.session, Opcode::Read, &[read], None)
        .unwrap();
    assert!(here.bytes() == pattern(3_000_000, 8));
    b.probe(&remote.session).unwrap();
    assert_eq!(b.first_address(&remote.session).unwrap(), Some(remote.base));
}

#[test]
fn a_peer_that_was_killed_fails_fast_and_its_successor_is_found_by_the_first_call() {
    let b = engine();
    let mut here = Memory::canaries(500_000);
    let local = here.address();
    let mut first = Remote::start(0, 500_000, 1);
    let session = first.session.clone();
    let read = |remote: &Remote| request(local, remote.base, remote.len);
    b.transfer(&session, Opcode::Read, &[read(&first)], None)
        .unwrap();
    let port = first.port();
    first.kill();
    for _ in 0..2 {
        let (result, took) = timed(&b, &session, Opcode::Read, read(&first));
        assert_eq!(result.unwrap_err().number(), -102);
        assert!(took < FAST, "{took:?}");
    }
    assert_eq!(b.probe(&session).unwrap_err().number(), -102);
    for seed in 2..4 {
        let mut next = Remote::start(port, 500_000, seed);
        assert_eq!(next.session, session);
        let (result, took) = timed(&b, &session, Opcode::Read, read(&next));
        result.unwrap();
        assert!(took < FAST, "{took:?}");
        assert!(here.bytes() == pattern(500_000, seed), "{seed}");
        // The next life is met with what is known of this one.
        next.kill();
    }
    // Dead twice when it was asked again; alive twice.
    assert!(b.counts().descriptions_again >= 2, "{:?}", b.counts());
}

#[test]
fn a_peer_that_is_killed_amid_a_transfer_fails_it_at_once() {
    let b = engine();
    const LEN: usize = 64 << 20;
    let mut remote = Remote::start(0, LEN, 5);
    let mut here = Memory::canaries(LEN);
    let local = here.address();
    let read = request(local, remote.base, LEN as u64);
    let repeated = vec![read; 40];
    std::thread::scope(|scope| {
        let (session, b) = (remote.session.clone(), &b);
        let transfer = scope.spawn(move || {
            let result = b.transfer(&session, Opcode::Read, &repeated, None);
            (result, Instant::now())
        });
        // Until bytes move.
        let start = Instant::now();
        let mut probe = Memory::canaries(1);
        let one = request(probe.address(), remote.base, 1);
        while start.elapsed() < Duration::from_millis(200) {
            b.transfer(&remote.session, Opcode::Read, &[one], None)
                .unwrap();
        }
        remote.kill();
        let killed = Instant::now();
        let (result, ended) = transfer.join().unwrap();
        assert!(result.is_err());
        assert!(ended.saturating_duration_since(killed) < Duration::from_secs(2));
    });
}

#[test]
fn a_frozen_peer_ends_a_transfer_at_its_time_and_serves_again_when_it_thaws() {
    let mut config = config();
    config.timeout = Duration::from_millis(1_500);
    let b = engine_with(config);
    let remote = Remote::start(0, 40 << 20, 6);
    let mut here = Memory::canaries(40 << 20);
    let read = request(here.address(), remote.base, remote.len);
    b.transfer(&remote.session, Opcode::Read, &[read], None)
        .unwrap();
    remote.freeze();
    for opcode in [Opcode::Read, Opcode::Write] {
        let (result, took) = timed(&b, &remote.session, opcode, read);
        let error = result.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(took < Duration::from_millis(2_500), "{took:?}");
        assert!(took > Duration::from_millis(1_400), "{took:?}");
    }
    let id = b.submit(&remote.session, Opcode::Read, &[read]).unwrap();
    assert!(b.wait(&[id]).is_err());
    let id = b.submit(&remote.session, Opcode::Read, &[read]).unwrap();
    let start = Instant::now();
    let status = loop {
        match b.status(id).unwrap() {
            Status::Running => assert!(start.elapsed() < Duration::from_secs(4)),
            status => break status,
        }
        std::thread::yield_now();
    };
    assert_eq!(status, Status::TimedOut);
    // Told as often as it is asked for.
    assert_eq!(b.status(id), Ok(Status::TimedOut));
    remote.thaw();
    let mut again = Memory::canaries(40 << 20);
    let read = request(again.address(), remote.base, remote.len);
    let start = Instant::now();
    while let Err(error) = b.transfer(&remote.session, Opcode::Read, &[read], None) {
        // What it had of the writes that were given up is in its way for a moment.
        assert!(start.elapsed() < Duration::from_secs(10), "{error}");
    }
    assert_eq!(b.counts().transfers_timed_out, 4);
}

#[test]
fn batches_for_a_peer_that_does_not_answer_are_bounded_and_all_end() {
    let mut config = config();
    config.timeout = Duration::from_millis(1_000);
    let b = engine_with(config);
    let remote = Remote::start(0, 1 << 20, 7);
    let mut here = Memory::canaries(1 << 20);
    let read = request(here.address(), remote.base, remote.len);
    b.transfer(&remote.session, Opcode::Read, &[read], None)
        .unwrap();
    remote.freeze();
    let start = Instant::now();
    let mut ids = Vec::new();
    let full = loop {
        match b.submit(&remote.session, Opcode::Read, &[read]) {
            Ok(id) => ids.push(id),
            Err(error) => break error,
        }
    };
    assert_eq!((full.number(), ids.len()), (-2, 1024));
    // Their time runs from when they were given, also while they wait for a thread.
    assert!(b.wait(&ids).is_err());
    assert!(start.elapsed() < Duration::from_secs(4));
    remote.thaw();
    let id = b.submit(&remote.session, Opcode::Read, &[read]).unwrap();
    b.wait(&[id]).unwrap();
}

#[test]
fn whoever_accepts_and_says_nothing_is_left_after_the_session_time() {
    let mut config = config();
    config.session_timeout = Duration::from_millis(400);
    let b = engine_with(config);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = silent.local_addr().unwrap().to_string();
    let mut here = Memory::canaries(10);
    let (result, took) = timed(&b, &peer, Opcode::Read, request(here.address(), 16, 10));
    let error = result.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(took < FAST, "{took:?}");
    assert_eq!(b.probe(&peer).unwrap_err().number(), -102);
}

#[test]
fn every_way_to_be_no_peer_has_its_number() {
    let b = engine();
    let mut here = Memory::canaries(10);
    let local = here.address();
    let start = Instant::now();
    assert_eq!(b.probe(&dead_peer()).unwrap_err().number(), -102);
    for unknown in ["", "h:x", "no-such-host.invalid:1"] {
        assert_eq!(b.probe(unknown).unwrap_err().number(), -101, "{unknown}");
        let read = request(local, 16, 10);
        let (result, _) = timed(&b, unknown, Opcode::Read, read);
        assert_eq!(result.unwrap_err().number(), -101, "{unknown}");
    }
    // Somebody who speaks something else.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = stranger.local_addr().unwrap().to_string();
    let talk = std::thread::spawn(move || {
        let (mut stream, _) = stranger.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    assert_eq!(b.probe(&peer).unwrap_err().number(), -104);
    talk.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(20));
}
