//! Pools at their limit: churn, and leases on everything (cases T16, T17).
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_client::Client;
use snowskin_tests::calls::{exists, fresh, get, put, put_on};
use snowskin_tests::client::{connect, connect_hasty};
use snowskin_tests::cluster::{Cluster, SHORT};
use snowskin_tests::process::run;
use snowskin_tests::values::value;
use snowskin_tests::{http, wait};
use snowskin_types::Code;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
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
    cluster.assert_rests();
}

/// What the keeper of leases holds, and how it learns of more.
struct Keeper<'a> {
    reader: &'a Client,
    keys: Vec<String>,
    added: Receiver<String>,
    read: SyncSender<()>,
}

impl Keeper<'_> {
    /// Reads one key through the master, which puts it under a lease.
    fn lease(&self, key: &str) {
        let bytes = self.reader.get(key, &fresh()).unwrap();
        assert!(bytes == value(key.as_bytes(), MIB), "{key}");
    }

    /// Reads everything within a second, again and again, until the writer hangs up; what the
    /// writer names is read at once. Ends with one more round; returns the rounds.
    fn run(mut self) -> u32 {
        let mut rounds = 0;
        loop {
            let start = Instant::now();
            for at in 0..self.keys.len() {
                self.lease(&self.keys[at]);
                if let Ok(key) = self.added.try_recv() {
                    self.take(key);
                }
            }
            rounds += 1;
            // Every lease is renewed well within its 2 s.
            let took = start.elapsed();
            assert!(took < Duration::from_secs(1), "{took:?}");
            loop {
                let rest = Duration::from_millis(500).saturating_sub(start.elapsed());
                match self.added.recv_timeout(rest) {
                    Ok(key) => self.take(key),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        // No leased object was lost.
                        self.keys.iter().for_each(|key| self.lease(key));
                        return rounds;
                    }
                }
            }
        }
    }

    fn take(&mut self, key: String) {
        self.lease(&key);
        self.keys.push(key);
        self.read.send(()).unwrap();
    }
}

/// T17.
#[test]
fn a_pool_that_is_leased_whole_refuses_puts_and_loses_nothing() {
    // A put waits 100 ms for space once, at one node of the two. As much again is there for the
    // calls to the master and the nodes while two cores serve the reads of the whole pool as well.
    const FAST: Duration = Duration::from_millis(200);
    // Beside 57 MiB of 64 at each node.
    const ROOM: usize = 14;
    let options: Vec<&str> = SHORT.iter().copied().chain(["--put-wait=100ms"]).collect();
    let cluster = Cluster::start(&options, 2, "64MiB");
    let (reader, writer) = (
        connect_hasty(&cluster.address()),
        connect_hasty(&cluster.address()),
    );
    // Each node holds 57 MiB of 64: just below its high mark of 0.9.
    let mut keys = Vec::new();
    for i in 0..114 {
        let key = format!("held-{i}");
        let node = &cluster.nodes[i % 2];
        writer
            .put(&key, &value(key.as_bytes(), MIB), &put_on(&[node]))
            .unwrap();
        keys.push(key);
    }
    let (tell, added) = sync_channel(1);
    let (read, was_read) = sync_channel(1);
    let keeper = Keeper {
        reader: &reader,
        keys,
        added,
        read,
    };
    for key in &keeper.keys {
        keeper.lease(key);
    }
    let (refused, accepted) = std::thread::scope(|scope| {
        let keeping = scope.spawn(|| keeper.run());
        let (mut refused, mut accepted) = (Vec::new(), 0usize);
        let end = Instant::now() + Duration::from_secs(10);
        for round in 0.. {
            if Instant::now() >= end {
                break;
            }
            let key = format!("new-{round}");
            let bytes = value(key.as_bytes(), MIB);
            let start = Instant::now();
            match writer.put(&key, &bytes, &put()) {
                Ok(_) => {
                    accepted += 1;
                    tell.send(key).unwrap();
                    was_read.recv_timeout(Duration::from_secs(5)).unwrap();
                }
                Err(failure) => {
                    refused.push((key, start.elapsed(), failure));
                }
            }
            wait::pass(Duration::from_millis(100));
        }
        drop(tell);
        let rounds = keeping.join().unwrap();
        assert!(rounds >= 10, "{rounds}");
        (refused, accepted)
    });
    // All that is accepted is kept under a lease too, so the room above the mark is taken once.
    assert!(accepted <= ROOM, "{accepted}");
    assert!(refused.len() > 2 * ROOM, "{}", refused.len());
    let mut told_leased = 0;
    for (key, took, failure) in &refused {
        assert_eq!(failure.code, Code::NoSpace, "{failure}");
        assert!(*took < FAST, "{key} {took:?}: {failure}");
        let detail = failure.detail.unwrap();
        assert_eq!(detail.wanted, MIB as u64);
        assert!(detail.free < MIB as u64, "{detail:?}");
        let held = detail.leased + detail.pinned + detail.unfinished;
        assert!(detail.free + held <= 64 * MIB as u64, "{detail:?}");
        // Not so in the moment in which a lease is asked after again.
        told_leased += usize::from(detail.leased > 48 * MIB as u64);
    }
    assert!(2 * told_leased > refused.len(), "{told_leased}");
    // A lease and a second after the last read, without a restart.
    let stopped = Instant::now();
    let mut tries = 0;
    wait::until("puts succeed again", Duration::from_secs(3), || {
        tries += 1;
        let key = format!("after-{tries}");
        let bytes = value(key.as_bytes(), MIB);
        writer.put(&key, &bytes, &put()).is_ok()
    });
    assert!(stopped.elapsed() < Duration::from_secs(3));
    for i in 0..200 {
        let key = format!("more-{i}");
        writer
            .put(&key, &value(key.as_bytes(), MIB), &put())
            .unwrap();
    }
    // Failed puts left nothing behind.
    for (key, ..) in &refused {
        assert!(!writer.exists(key, &exists()).unwrap(), "{key}");
    }
    wait::until("no put is unfinished", Duration::from_secs(6), || {
        writer.stat(&Default::default()).unwrap().unfinished == 0
    });
    let master = format!("--master={}", cluster.address());
    assert_eq!(run(&["audit", "--json", &master]).status.code(), Some(0));
    cluster.assert_rests();
}
