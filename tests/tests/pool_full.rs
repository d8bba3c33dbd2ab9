//! Pools at their limit: churn, and leases on everything (cases T16, T17).
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_client::Client;
use snowskin_tests::calls::{exists, fresh, get, put, put_on, put_within};
use snowskin_tests::client::{connect, connect_hasty};
use snowskin_tests::cluster::{Cluster, SHORT};
use snowskin_tests::process::run;
use snowskin_tests::values::value;
use snowskin_tests::{http, wait};
use snowskin_types::Code;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sizes of 64 KiB to 8 MiB, small ones more often.
fn size_of(round: usize) -> usize {
    let mixed = (round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let step = [64, 64, 128, 256, 512, 1024, 2048, 4096, 8192][mixed as usize % 9] * KIB;
    (step - (mixed as usize * 613) % (step / 4)).max(64 * KIB)
}

/// T16.
#[test]
fn a_pool_that_is_overwritten_eight_times_takes_every_put() {
    let cluster = Cluster::start(SHORT, 2, "128MiB");
    let client = connect(&cluster);
    let total = 2048 * MIB;
    let written = Mutex::new((0usize, 0usize));
    let recent = Mutex::new(VecDeque::<(String, usize)>::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut lowest, mut highest) = (f64::MAX, 0f64);
            while !stop.load(Ordering::SeqCst) {
                let stat = client.stat(&Default::default()).unwrap();
                let used: u64 = stat.nodes.iter().map(|n| n.dram_used).sum();
                let capacity: u64 = stat.nodes.iter().map(|n| n.dram_capacity).sum();
                let share = used as f64 / capacity as f64;
                highest = highest.max(share);
                // Once it has been full it stays above the low mark.
                if highest > 0.85 {
                    lowest = lowest.min(share);
                }
                wait::pass(Duration::from_millis(20));
            }
            (lowest, highest)
        });
        let writers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let (round, size) = {
                            let mut written = written.lock().unwrap();
                            if written.1 >= total {
                                break;
                            }
                            let size = size_of(written.0);
                            written.0 += 1;
                            written.1 += size;
                            (written.0, size)
                        };
                        let key = format!("churn-{round}");
                        client
                            .put(&key, &value(key.as_bytes(), size), &put())
                            .unwrap();
                        recent.lock().unwrap().push_back((key, size));
                    }
                })
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Ordering::SeqCst);
        let (lowest, highest) = watch.join().unwrap();
        for result in results {
            result.unwrap();
        }
        assert!(highest < 1.0 && lowest > 0.6, "{lowest} {highest}");
    });
    let recent = recent.into_inner().unwrap();
    let mut bytes = 0;
    for (key, size) in recent.iter().rev() {
        bytes += size;
        if bytes > 100 * MIB {
            break;
        }
        let got = client.get(key, &get()).unwrap();
        assert!(got == value(key.as_bytes(), *size), "{key}");
    }
    // What was put and is not there any more was evicted, to the object and to the byte.
    let put_bytes: usize = recent.iter().map(|(_, size)| size).sum();
    let figures = || {
        let samples = http::metrics(cluster.master.http);
        let stat = client.stat(&Default::default()).unwrap();
        (
            samples["master_evicted_key_count"] as usize + stat.objects as usize,
            samples["master_evicted_size_bytes"] as usize + stat.bytes as usize,
        )
    };
    wait::until("the figures add up", Duration::from_secs(5), || {
        figures() == (recent.len(), put_bytes)
    });
    let master = format!("--master={}", cluster.address());
    assert_eq!(run(&["audit", "--json", &master]).status.code(), Some(0));
}

/// T17.
#[test]
fn a_pool_that_is_leased_whole_refuses_puts_and_loses_nothing() {
    let cluster = Cluster::start(SHORT, 2, "64MiB");
    let (reader, writer) = (
        connect_hasty(&cluster.address()),
        connect_hasty(&cluster.address()),
    );
    // Each node holds 57 MiB of 64: just below its high mark of 0.9.
    let stop = AtomicBool::new(false);
    let mut keys = Vec::new();
    for i in 0..114 {
        let key = format!("held-{i}");
        let node = &cluster.nodes[i % 2];
        writer
            .put(&key, &value(key.as_bytes(), MIB), &put_on(&[node]))
            .unwrap();
        keys.push(key);
    }
    let read_all = |client: &Client| {
        for key in &keys {
            let bytes = client.get(key, &fresh()).unwrap();
            assert!(bytes == value(key.as_bytes(), MIB), "{key}");
        }
    };
    read_all(&reader);
    let (refused, accepted) = std::thread::scope(|scope| {
        let loops = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::SeqCst) {
                let start = Instant::now();
                // Every lease is renewed well within its 2 s.
                read_all(&reader);
                rounds += 1;
                assert!(start.elapsed() < Duration::from_millis(1800));
            }
            rounds
        });
        let (mut refused, mut accepted) = (Vec::new(), 0u64);
        let end = Instant::now() + Duration::from_secs(10);
        let mut round = 0;
        while Instant::now() < end {
            let key = format!("new-{round}");
            round += 1;
            // More than is free at either node.
            let bytes = value(key.as_bytes(), 8 * MIB);
            let start = Instant::now();
            match writer.put(&key, &bytes, &put_within(Duration::from_secs(2))) {
                Ok(_) => accepted += 1,
                Err(failure) => {
                    // At most the wait for space (500 ms) on each of the two nodes.
                    let took = start.elapsed();
                    assert!(took < Duration::from_millis(1500), "{took:?}: {failure}");
                    assert_eq!(failure.code, Code::NoSpace, "{failure}");
                    assert!(!writer.exists(&key, &exists()).unwrap());
                    refused.push(failure);
                }
            }
            wait::pass(Duration::from_millis(100));
        }
        stop.store(true, Ordering::SeqCst);
        assert!(loops.join().unwrap() > 4);
        (refused, accepted)
    });
    assert_eq!(accepted, 0);
    assert!(refused.len() > 5, "{}", refused.len());
    let detail = refused.last().unwrap().detail.unwrap();
    assert_eq!(detail.wanted, 8 * MIB as u64);
    assert!(detail.leased > 16 * MIB as u64, "{detail:?}");
    assert!(detail.free < 16 * MIB as u64, "{detail:?}");
    // No leased object was lost.
    read_all(&reader);
    let start = Instant::now();
    wait::until("puts succeed again", Duration::from_secs(3), || {
        let key = format!("after-{}", start.elapsed().as_micros());
        writer
            .put(&key, &value(key.as_bytes(), MIB), &put())
            .is_ok()
    });
    for i in 0..200 {
        let key = format!("more-{i}");
        writer
            .put(&key, &value(key.as_bytes(), MIB), &put())
            .unwrap();
    }
    wait::until("no put is unfinished", Duration::from_secs(6), || {
        writer.stat(&Default::default()).unwrap().unfinished == 0
    });
    let master = format!("--master={}", cluster.address());
    assert_eq!(run(&["audit", "--json", &master]).status.code(), Some(0));
}
