//! Bytes that go between engines: all of them, to the right place, and nothing else.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use snowskin_device::Run;
use snowskin_engine::{Notify, Opcode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::*;

const FAST: Duration = Duration::from_millis(900);

#[test]
fn every_size_is_written_and_read_and_no_byte_around_it_is_touched() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    const ROOM: usize = 20 << 20;
    let mut there = Memory::canaries(ROOM);
    a.register(&[there.run()]).unwrap();
    for len in [1, 4096, 256 * 1024 + 1, 8 << 20, (17 << 20) + 5] {
        let mut here = Memory::new(pattern(len, len as u64));
        let mut back = Memory::canaries(len);
        b.register(&[here.run(), back.run()]).unwrap();
        let remote = there.remote() + 1000;
        let write = request(here.address(), remote, len as u64);
        b.transfer(&peer, Opcode::Write, &[write], None).unwrap();
        assert!(there.bytes()[1000..1000 + len] == *here.bytes(), "{len}");
        assert!(there.bytes()[..1000].iter().all(|byte| *byte == CANARY));
        let read = request(back.address(), remote, len as u64);
        b.transfer(&peer, Opcode::Read, &[read], None).unwrap();
        assert!(back.bytes() == here.bytes(), "{len}");
        b.unregister(&[here.address(), back.address()]).unwrap();
    }
    assert!(
        there.bytes()[(17 << 20) + 1005..]
            .iter()
            .all(|byte| *byte == CANARY)
    );
    let counts = b.counts();
    assert_eq!((counts.transfers, counts.descriptions), (10, 1));
}

#[test]
fn scattered_requests_of_a_batch_all_arrive() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    const COUNT: usize = 4000;
    const STEP: usize = 1536;
    let source = pattern(COUNT * STEP, 9);
    let mut here = Memory::new(source.clone());
    let mut there = Memory::canaries(COUNT * STEP);
    a.register(&[there.run()]).unwrap();
    b.register(&[here.run()]).unwrap();
    // Every second is apart from its neighbours at the peer, in reverse order.
    let (local, remote) = (here.address(), there.remote());
    let request = |index: usize| {
        let to = (COUNT - 1 - index) * STEP;
        request(local + index * STEP, remote + to as u64, 1024)
    };
    let requests: Vec<_> = (0..COUNT).map(request).collect();
    b.transfer(&peer, Opcode::Write, &requests, None).unwrap();
    for (index, chunk) in there.bytes().chunks(STEP).rev().enumerate() {
        assert!(chunk[..1024] == source[index * STEP..][..1024], "{index}");
        assert!(chunk[1024..].iter().all(|byte| *byte == CANARY), "{index}");
    }
    let mut back = Memory::canaries(COUNT * STEP);
    let offset = here.address();
    let here_to_back = back.address().wrapping_sub(offset);
    let reads: Vec<_> = requests
        .iter()
        .map(|r| support::request(r.local.wrapping_add(here_to_back), r.remote, r.len))
        .collect();
    // Into memory that is not registered.
    b.transfer(&peer, Opcode::Read, &reads, None).unwrap();
    for (chunk, wanted) in back.bytes().chunks(STEP).zip(source.chunks(STEP)) {
        assert!(chunk[..1024] == wanted[..1024]);
        assert!(chunk[1024..].iter().all(|byte| *byte == CANARY));
    }
}

#[test]
fn a_request_may_cross_regions_that_touch_and_no_others() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    let mut there = Memory::new(pattern(9000, 1));
    let base = there.address();
    let part = |from: usize, len: u64| Run {
        address: base + from,
        len,
    };
    a.register(&[part(0, 3000), part(3000, 3000), part(6001, 2999)])
        .unwrap();
    let mut here = Memory::canaries(9000);
    let read = |from: usize, len: u64| request(0, (base + from) as u64, len);
    let local = here.address();
    let go = |mut read: snowskin_engine::Request| {
        read.local = local;
        timed(&b, &peer, Opcode::Read, read)
    };
    go(read(100, 5900)).0.unwrap();
    assert!(here.bytes()[..5900] == there.bytes()[100..6000]);
    let mut untouched = Memory::canaries(9000);
    let local = untouched.address();
    for (from, len) in [(100, 5901), (5999, 2), (6000, 1), (8999, 2), (20_000, 5)] {
        let mut bad = read(from, len);
        bad.local = local;
        let (result, took) = timed(&b, &peer, Opcode::Read, bad);
        assert_eq!(result.unwrap_err().number(), -1, "{from}+{len}");
        assert!(took < FAST, "{took:?}");
    }
    assert!(untouched.bytes().iter().all(|byte| *byte == CANARY));
}

#[test]
fn an_engine_is_its_own_peer() {
    let a = engine();
    let peer = a.session_id();
    let mut memory = Memory::new(pattern(30_000_000, 2));
    let base = memory.address();
    let registered = Run {
        address: base,
        len: 25_000_000,
    };
    a.register(&[registered]).unwrap();
    let write = request(base, base as u64 + 12_000_000, 10_000_000);
    a.transfer(&peer, Opcode::Write, &[write], None).unwrap();
    assert!(memory.bytes()[..10_000_000] == memory.bytes()[12_000_000..22_000_000]);
    let read = request(base + 25_000_000, base as u64, 1_000_000);
    a.transfer(&peer, Opcode::Read, &[read], None).unwrap();
    assert!(memory.bytes()[..1_000_000] == memory.bytes()[25_000_000..26_000_000]);
    let outside = request(base, base as u64 + 24_999_999, 2);
    assert!(a.transfer(&peer, Opcode::Write, &[outside], None).is_err());
    a.probe(&peer).unwrap();
    assert_eq!(a.first_address(&peer).unwrap(), Some(base as u64));
    // Under another name it is a peer as others are.
    let alias = format!("localhost:{}", a.rpc_port());
    let read = request(base + 25_000_000, base as u64 + 500, 1_000);
    a.transfer(&alias, Opcode::Read, &[read], None).unwrap();
    assert!(memory.bytes()[500..1_500] == memory.bytes()[25_000_000..25_001_000]);
}

#[test]
fn memory_that_was_taken_back_is_out_of_reach_until_it_is_registered_again() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    let mut there = Memory::canaries(10_000);
    let mut here = Memory::new(pattern(10_000, 3));
    a.register(&[there.run()]).unwrap();
    let write = request(here.address(), there.remote(), 10_000);
    b.transfer(&peer, Opcode::Write, &[write], None).unwrap();
    assert!(there.bytes() == here.bytes());
    a.unregister(&[there.address()]).unwrap();
    assert_eq!(a.registry().capacity_at(there.address()), None);
    let mut other = Memory::new(pattern(10_000, 4));
    for opcode in [Opcode::Write, Opcode::Read] {
        let late = request(other.address(), there.remote(), 10_000);
        let (result, took) = timed(&b, &peer, opcode, late);
        assert_eq!(result.unwrap_err().number(), -1);
        assert!(took < FAST, "{took:?}");
    }
    assert!(there.bytes() == here.bytes() && other.bytes() == pattern(10_000, 4));
    a.register(&[there.run()]).unwrap();
    let again = request(other.address(), there.remote(), 10_000);
    b.transfer(&peer, Opcode::Write, &[again], None).unwrap();
    assert!(there.bytes() == other.bytes());
}

#[test]
fn what_is_registered_later_is_found_by_asking_once_more() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    let (mut first, mut second) = (Memory::canaries(100), Memory::new(pattern(100, 5)));
    a.register(&[first.run()]).unwrap();
    let mut here = Memory::canaries(100);
    let read = |remote, local| request(local, remote, 100);
    let local = here.address();
    b.transfer(&peer, Opcode::Read, &[read(first.remote(), local)], None)
        .unwrap();
    a.register(&[second.run()]).unwrap();
    b.transfer(&peer, Opcode::Read, &[read(second.remote(), local)], None)
        .unwrap();
    assert!(here.bytes() == second.bytes());
    assert_eq!(b.counts().descriptions_again, 1);
    // The oldest region counts as the first, wherever it lies.
    assert_eq!(b.first_address(&peer).unwrap(), Some(first.remote()));
}

#[test]
fn read_only_memory_is_served_for_reading() {
    static CONSTANT: [u8; 100_000] = [7; 100_000];
    let (a, b) = (engine(), engine());
    let base = CONSTANT.as_ptr().expose_provenance();
    let constant = Run {
        address: base,
        len: 100_000,
    };
    a.register(&[constant]).unwrap();
    let alias = format!("localhost:{}", a.rpc_port());
    let mut here = Memory::canaries(1000);
    // From another engine, from itself, and from itself as a peer.
    for (user, peer) in [(&b, a.session_id()), (&a, a.session_id()), (&a, alias)] {
        here.fill(CANARY);
        let request = request(here.address(), base as u64 + 50, 1000);
        user.transfer(&peer, Opcode::Read, &[request], None)
            .unwrap();
        assert_eq!(here.bytes(), [7; 1000]);
        here.fill(CANARY);
        let (refused, took) = timed(user, &peer, Opcode::Write, request);
        assert_eq!(refused.unwrap_err().number(), -1);
        assert!(took < FAST, "{took:?}");
    }
    assert!(
        std::hint::black_box(&CONSTANT)
            .iter()
            .all(|byte| *byte == 7)
    );
    // As the local side.
    let mut there = Memory::canaries(1000);
    b.register(&[there.run()]).unwrap();
    let peer = b.session_id();
    let request = request(base, there.remote(), 1000);
    a.transfer(&peer, Opcode::Write, &[request], None).unwrap();
    assert_eq!(there.bytes(), [7; 1000]);
    let (refused, _) = timed(&a, &peer, Opcode::Read, request);
    assert_eq!(refused.unwrap_err().number(), -1);
    a.unregister(&[base]).unwrap();
}

#[test]
fn registering_is_all_or_nothing_and_every_refusal_has_its_number() {
    let a = engine();
    let mut memory = Memory::canaries(20_000);
    let base = memory.address();
    let run = |from: usize, len: u64| Run {
        address: base + from,
        len,
    };
    let number = |runs: &[Run]| a.register(runs).map_or_else(|error| error.number(), |()| 0);
    assert_eq!(number(&[run(0, 1000)]), 0);
    assert_eq!(number(&[run(0, 1000)]), -7);
    assert_eq!(number(&[run(999, 1)]), -7);
    assert_eq!(number(&[run(1000, 0)]), -1);
    assert_eq!(number(&[Run { address: 0, len: 5 }]), -1);
    let unmapped = Run {
        address: 0x1000,
        len: 4096,
    };
    assert_eq!(number(&[unmapped]), -1);
    for bad in [run(500, 10), run(5000, 0), run(2500, 1000), unmapped] {
        let refused = number(&[run(2000, 1000), bad]);
        assert!(refused == -7 || refused == -1);
        assert_eq!(a.registry().capacity_at(base + 2000), None, "{bad:?}");
    }
    assert_eq!(number(&[run(2000, 1000), run(3000, 1000)]), 0);
    let unregister = |bases: &[usize]| {
        a.unregister(bases)
            .map_or_else(|error| error.number(), |()| 0)
    };
    assert_eq!(unregister(&[12_345]), -3);
    assert_eq!(unregister(&[base + 1]), -3);
    // All that can be is taken back.
    assert_eq!(unregister(&[base, 12_345, base + 2000]), -3);
    assert_eq!(unregister(&[base]), -3);
    assert_eq!(unregister(&[base + 3000]), 0);
    assert_eq!(number(&[run(0, 20_000)]), 0);
}

#[test]
fn words_are_left_after_the_bytes() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    let mut there = Memory::canaries(100);
    a.register(&[there.run()]).unwrap();
    let mut here = Memory::new(pattern(100, 6));
    let word = |name: &str| Notify {
        name: name.to_owned(),
        message: "text".to_owned(),
    };
    let write = request(here.address(), there.remote(), 100);
    b.transfer(&peer, Opcode::Write, &[write], Some(&word("one")))
        .unwrap();
    assert!(there.bytes() == here.bytes());
    b.notify(&peer, &word("two")).unwrap();
    let outside = request(here.address(), 16, 100);
    assert!(
        b.transfer(&peer, Opcode::Write, &[outside], Some(&word("never")))
            .is_err()
    );
    b.transfer(&peer, Opcode::Write, &[], Some(&word("three")))
        .unwrap();
    assert_eq!(a.notifies(), [word("one"), word("two"), word("three")]);
    assert!(a.notifies().is_empty());
    let long = Notify {
        name: String::new(),
        message: "x".repeat((1 << 20) + 1),
    };
    assert_eq!(b.notify(&peer, &long).unwrap_err().number(), -1);
}

#[test]
fn ten_threads_share_an_engine() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    const LEN: usize = 300_000;
    let mut there = Memory::canaries(10 * LEN);
    a.register(&[there.run()]).unwrap();
    let base = there.remote();
    std::thread::scope(|scope| {
        for thread in 0..10u64 {
            let (b, peer) = (&b, &peer);
            scope.spawn(move || {
                let mut here = Memory::new(pattern(LEN, thread));
                let mut back = Memory::canaries(LEN);
                b.register(&[here.run()]).unwrap();
                let remote = base + thread * LEN as u64;
                for _ in 0..20 {
                    let write = request(here.address(), remote, LEN as u64);
                    b.transfer(peer, Opcode::Write, &[write], None).unwrap();
                    let read = request(back.address(), remote, LEN as u64);
                    b.transfer(peer, Opcode::Read, &[read], None).unwrap();
                    assert!(back.bytes() == here.bytes());
                }
                b.unregister(&[here.address()]).unwrap();
            });
        }
    });
    for (thread, bytes) in there.bytes().chunks(LEN).enumerate() {
        assert!(bytes == pattern(LEN, thread as u64));
    }
    assert_eq!(b.counts().transfers, 400);
}

#[test]
fn writers_of_the_same_bytes_take_turns() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    const LEN: usize = 4 << 20;
    let mut there = Memory::canaries(LEN);
    a.register(&[there.run()]).unwrap();
    let remote = there.remote();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (b, peer) = (&b, &peer);
            scope.spawn(move || {
                let mut here = Memory::new(pattern(LEN, thread));
                let write = request(here.address(), remote, LEN as u64);
                for _ in 0..5 {
                    b.transfer(peer, Opcode::Write, &[write], None).unwrap();
                }
            });
        }
    });
    assert!((0..4).any(|seed| there.bytes() == pattern(LEN, seed)));
}

/// Ends the writers, also when the test fails.
struct Over<'t>(&'t AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_writes_memory_that_was_taken_back_amid_writes() {
    let (a, b) = (engine(), engine());
    let peer = a.session_id();
    const LEN: usize = 2 << 20;
    let mut there = Memory::canaries(LEN);
    let remote = there.remote();
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (b, peer, written, over) = (&b, &peer, &written, &over);
            scope.spawn(move || {
                let mut here = Memory::new(pattern(LEN, seed));
                let write = request(here.address(), remote, LEN as u64);
                while !over.load(Ordering::Relaxed) {
                    if b.transfer(peer, Opcode::Write, &[write], None).is_ok() {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _over = Over(&over);
        for _ in 0..15 {
            a.register(&[there.run()]).unwrap();
            let (before, start) = (written.load(Ordering::Relaxed), Instant::now());
            while written.load(Ordering::Relaxed) < before + 2 {
                assert!(
                    start.elapsed() < Duration::from_secs(20),
                    "no write arrives"
                );
                std::thread::yield_now();
            }
            a.unregister(&[there.address()]).unwrap();
            there.fill(CANARY);
            for _ in 0..5 {
                // Some time for what may still be on its way.
                a.probe(&peer).unwrap();
                assert!(there.bytes().iter().all(|byte| *byte == CANARY));
            }
        }
    });
}
