//! Restarts by real processes: a killed, frozen or slow master, nodes that return (case T18).
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_client::{Client, Source};
use snowskin_tests::calls::{LATE, copies, exists, force, fresh, get, put, put_on, put_within};
use snowskin_tests::client::{connect, connect_hasty};
use snowskin_tests::cluster::{Cluster, Master, SHORT};
use snowskin_tests::http;
use snowskin_tests::values::value;
use snowskin_tests::wait;
use snowskin_types::Code;
use snowskin_types::call::NodeState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Deadline of the metadata calls and of the data calls of a hasty client.
const METADATA: Duration = Duration::from_secs(2);
const DATA: Duration = Duration::from_secs(3);

fn store(client: &Client, names: &[String], size: usize) {
    for chunk in names.chunks(100) {
        let values: Vec<Vec<u8>> = chunk.iter().map(|n| value(n.as_bytes(), size)).collect();
        let items: Vec<(&String, Source<'_>)> = chunk
            .iter()
            .zip(&values)
            .map(|(n, v)| (n, Source::Bytes(v)))
            .collect();
        for result in client.put_batch(&items, &put()) {
            result.unwrap();
        }
    }
}

/// How many are read; a wrong byte ends the test.
fn readable(client: &Client, names: &[String], size: usize) -> usize {
    let mut count = 0;
    for chunk in names.chunks(250) {
        for (name, result) in chunk.iter().zip(client.get_batch(chunk, &fresh())) {
            if let Ok(bytes) = result {
                assert!(bytes == value(name.as_bytes(), size), "wrong bytes: {name}");
                count += 1;
            }
        }
    }
    count
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

/// Waits until the master has the inventories of all nodes and hears them.
fn all_alive(client: &Client, nodes: usize, limit: Duration) {
    wait::until("all nodes are alive", limit, || {
        client.stat(&Default::default()).is_ok_and(|stat| {
            let alive = stat.nodes.iter().filter(|n| n.state == NodeState::Alive);
            stat.ready && alive.count() == nodes
        })
    });
}

#[derive(Default)]
struct Load {
    gets: u64,
    puts: u64,
    missed: u64,
}

/// Gets and puts until told to stop. Failures are counted; late or wrong answers end the test.
fn work(client: &Client, names: &[String], size: usize, lane: usize, stop: &AtomicBool) -> Load {
    let mut load = Load::default();
    let mut round = lane;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let name = &names[round * 7919 % names.len()];
        let start = Instant::now();
        match client.get(name, &get()) {
            Ok(bytes) => {
                assert!(bytes == value(name.as_bytes(), size), "wrong bytes: {name}");
                load.gets += 1;
            }
            Err(_) => load.missed += 1,
        }
        assert!(start.elapsed() < DATA + LATE, "{:?}", start.elapsed());
        let name = format!("load-{lane}-{round}");
        let start = Instant::now();
        match client.put(&name, &value(name.as_bytes(), KIB), &put()) {
            Ok(_) => load.puts += 1,
            Err(_) => load.missed += 1,
        }
        assert!(start.elapsed() < DATA + LATE, "{:?}", start.elapsed());
        // A pace that leaves the two processes room on a small machine.
        wait::pass(Duration::from_millis(2));
    }
    load
}

/// T18.
#[test]
fn after_a_kill_of_the_master_under_load_all_objects_are_found_again() {
    let mut cluster = Cluster::start(SHORT, 2, "128MiB");
    let (a, b) = (
        connect_hasty(&cluster.address()),
        connect_hasty(&cluster.address()),
    );
    let size = 16 * KIB;
    let names = names("object-", 1000);
    store(&a, &names, size);
    assert_eq!(readable(&b, &names, size), 1000);
    let stop = AtomicBool::new(false);
    let sum = std::thread::scope(|scope| {
        let lanes = [&a, &a, &b, &b];
        let (names, stop) = (&names, &stop);
        let lanes: Vec<_> = lanes
            .into_iter()
            .enumerate()
            .map(|(lane, client)| scope.spawn(move || work(client, names, size, lane, stop)))
            .collect();
        wait::pass(Duration::from_millis(500));
        cluster.master.process.kill();
        let start = Instant::now();
        let silent = a.stat(&Default::default()).unwrap_err();
        assert!(
            matches!(silent.code, Code::RpcFail | Code::RpcTimeout),
            "{silent}"
        );
        assert!(start.elapsed() < METADATA + LATE);
        wait::pass(Duration::from_secs(3).saturating_sub(start.elapsed()));
        cluster.master.restart();
        let back = Instant::now();
        // The same two clients, none started anew.
        for client in [&a, &b] {
            wait::until("the objects are readable", Duration::from_secs(5), || {
                readable(client, names, size) >= 999
            });
        }
        assert!(back.elapsed() < Duration::from_secs(5));
        all_alive(&a, 2, Duration::from_secs(5));
        wait::pass(Duration::from_secs(1));
        stop.store(true, Ordering::SeqCst);
        let mut sum = Load::default();
        for lane in lanes {
            let load = lane.join().unwrap();
            sum.gets += load.gets;
            sum.puts += load.puts;
            sum.missed += load.missed;
        }
        sum
    });
    assert!(
        sum.gets > 100 && sum.puts > 100,
        "{} {}",
        sum.gets,
        sum.puts
    );
    // A client that joins afterwards reads from both nodes.
    let d = connect(&cluster);
    assert_eq!(readable(&d, &names, size), 1000);
    assert!(cluster.nodes.iter_mut().all(|n| n.process.running()));
    cluster.assert_rests();
}

#[test]
fn puts_succeed_within_two_seconds_of_a_masters_return_in_a_full_pool() {
    // The usual lease of 10 s, so that waiting for old leases would be seen.
    let mut cluster = Cluster::start(&[], 2, "64MiB");
    let client = connect_hasty(&cluster.address());
    for i in 0..256 {
        let name = format!("fill-{i}");
        client
            .put(&name, &value(name.as_bytes(), MIB), &put())
            .unwrap();
    }
    for i in 200..256 {
        client.get(format!("fill-{i}"), &get()).unwrap();
    }
    let stat = client.stat(&Default::default()).unwrap();
    assert!(stat.bytes > 96 * MIB as u64, "{}", stat.bytes);
    cluster.master.process.kill();
    wait::pass(Duration::from_secs(1));
    cluster.master.restart();
    let back = Instant::now();
    let (mut first, mut last_failure, mut round) = (None, None, 0);
    while back.elapsed() < Duration::from_secs(5) {
        let name = format!("after-{round}");
        round += 1;
        let begun = back.elapsed();
        match client.put(
            &name,
            &value(name.as_bytes(), MIB),
            &put_within(Duration::from_secs(1)),
        ) {
            Ok(_) => {
                first.get_or_insert(back.elapsed());
            }
            Err(failure) => last_failure = Some((begun, failure.to_string())),
        }
    }
    assert!(
        first.is_some_and(|f| f < Duration::from_secs(2)),
        "{first:?}, {last_failure:?}"
    );
    if let Some((begun, failure)) = last_failure {
        assert!(begun < Duration::from_secs(2), "{begun:?}: {failure}");
    }
    assert!(round > 130, "the pool was turned over: {round}");
    cluster.assert_rests();
}

/// What happens to the second node while the objects are removed and the master is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Away {
    Not,
    Killed,
    FrozenUntilAfterTheReturn,
    FrozenUntilTheMasterIsGone,
}

fn removed_stays_removed(away: Away) {
    let mut cluster = Cluster::start(SHORT, 2, "64MiB");
    let client = connect_hasty(&cluster.address());
    let names = names("removed-", 20);
    for name in &names {
        let bytes = value(name.as_bytes(), 10_000);
        client.put(name, &bytes, &copies(2)).unwrap();
        assert!(client.get(name, &get()).unwrap() == bytes);
    }
    let kept = value(b"kept", 10_000);
    client
        .put("kept", &kept, &put_on(&[&cluster.nodes[0]]))
        .unwrap();
    match away {
        Away::Not => {}
        Away::Killed => cluster.nodes[1].process.kill(),
        _ => cluster.nodes[1].process.freeze(),
    }
    for result in client.remove_batch(&names, &force(Duration::from_secs(15))) {
        result.unwrap();
    }
    cluster.master.process.kill();
    if away == Away::FrozenUntilTheMasterIsGone {
        cluster.nodes[1].process.thaw();
    }
    wait::pass(Duration::from_millis(200));
    cluster.master.restart();
    let gone = |when: &str| {
        for name in &names {
            let read = client.get(name, &get());
            assert!(read.is_err(), "{when}: {name} was read, {away:?}");
            if let Ok(true) = client.exists(name, &exists()) {
                panic!("{when}: {name} exists, {away:?}");
            }
        }
    };
    gone("right after the return");
    match away {
        Away::Killed => cluster.nodes[1].restart(),
        Away::FrozenUntilAfterTheReturn => cluster.nodes[1].process.thaw(),
        _ => {}
    }
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        gone("while the nodes return");
    }
    all_alive(&client, 2, Duration::from_secs(5));
    gone("at last");
    for name in &names {
        let absent = client.exists(name, &exists());
        assert!(!absent.unwrap());
        let read = client.get(name, &fresh()).unwrap_err();
        assert_eq!(read.code, Code::ObjectNotFound, "{read}");
    }
    assert!(client.get("kept", &get()).unwrap() == kept);
    // The names are free, and so is the space at both nodes.
    for name in &names {
        let bytes = value(name.as_bytes(), 20_000);
        client.put(name, &bytes, &copies(2)).unwrap();
        assert!(client.get(name, &fresh()).unwrap() == bytes);
    }
    wait::until("nothing is owed", Duration::from_secs(10), || {
        let stat = client.stat(&Default::default()).unwrap();
        stat.nodes.iter().all(|n| n.owed == 0)
    });
    let stat = client.stat(&Default::default()).unwrap();
    let held: u64 = stat.nodes.iter().map(|n| n.replica_bytes).sum();
    assert_eq!((stat.objects, held), (21, 10_000 + 20 * 2 * 20_000));
    cluster.assert_rests();
}

#[test]
fn what_was_removed_before_a_kill_of_the_master_stays_removed() {
    removed_stays_removed(Away::Not);
}

#[test]
fn what_was_removed_while_a_node_was_dead_stays_removed() {
    removed_stays_removed(Away::Killed);
}

#[test]
fn what_was_removed_while_a_node_was_frozen_stays_removed_when_it_thaws() {
    removed_stays_removed(Away::FrozenUntilAfterTheReturn);
}

#[test]
fn what_was_removed_while_a_node_was_frozen_stays_removed_when_it_comes_first() {
    removed_stays_removed(Away::FrozenUntilTheMasterIsGone);
}

#[test]
fn a_node_restarted_on_its_old_port_is_never_read_as_the_old_one() {
    let mut cluster = Cluster::start(SHORT, 1, "64MiB");
    let (reader, writer) = (
        connect_hasty(&cluster.address()),
        connect_hasty(&cluster.address()),
    );
    let size = 100_000;
    for round in 0..3 {
        let names = names(&format!("life-{round}-"), 50);
        for name in &names {
            let bytes = value(name.as_bytes(), size);
            writer.put(name, &bytes, &put()).unwrap();
            // The reader remembers where it is.
            assert!(reader.get(name, &get()).unwrap() == bytes);
        }
        let old = cluster.nodes[0].ready["epoch"].clone();
        cluster.nodes[0].process.kill();
        cluster.nodes[0].restart();
        assert_ne!(old, cluster.nodes[0].ready["epoch"]);
        // The new process puts other bytes where the old ones were.
        let others: Vec<Vec<u8>> = (0..50u8).map(|i| value(&[round, i], size)).collect();
        wait::until("the new process takes bytes", METADATA, || {
            let name = format!("other-{round}-0");
            writer.put(&name, &others[0], &put()).is_ok()
                || writer.exists(&name, &exists()).unwrap_or(false)
        });
        for (i, bytes) in others.iter().enumerate().skip(1) {
            let name = format!("other-{round}-{i}");
            writer.put(&name, bytes, &put()).unwrap();
        }
        for name in &names {
            let start = Instant::now();
            let lost = match reader.get(name, &get()) {
                Ok(bytes) => panic!(
                    "{name} was read after the death of its owner, right: {}",
                    bytes == value(name.as_bytes(), size)
                ),
                Err(failure) => failure,
            };
            assert!(
                matches!(lost.code, Code::ObjectNotFound | Code::ReplicaGone),
                "{lost}"
            );
            assert!(start.elapsed() < METADATA);
            assert!(!reader.exists(name, &exists()).unwrap());
            // The name is free at once.
            let bytes = value(name.as_bytes(), size / 2);
            writer.put(name, &bytes, &put()).unwrap();
            assert!(reader.get(name, &get()).unwrap() == bytes);
        }
        for (i, bytes) in others.iter().enumerate() {
            assert!(reader.get(format!("other-{round}-{i}"), &get()).unwrap() == *bytes);
        }
    }
    cluster.assert_rests();
}

fn count(master: &Master, name: &str) -> f64 {
    http::metrics(master.http)[name]
}

#[test]
fn a_master_that_was_frozen_for_twelve_seconds_expires_nobody() {
    let cluster = Cluster::start(SHORT, 2, "64MiB");
    let client = connect_hasty(&cluster.address());
    let names = names("object-", 200);
    store(&client, &names, 16 * KIB);
    assert_eq!(readable(&client, &names, 16 * KIB), 200);
    let begun = count(&cluster.master, "snowskin_sessions_begun_total");
    cluster.master.process.freeze();
    let start = Instant::now();
    let silent = client.exists(&names[0], &exists()).unwrap_err();
    assert_eq!(silent.code, Code::RpcTimeout, "{silent}");
    assert!(start.elapsed() < METADATA + LATE);
    wait::pass(Duration::from_secs(12).saturating_sub(start.elapsed()));
    cluster.master.process.thaw();
    let thawed = Instant::now();
    wait::until("all is readable", Duration::from_secs(3), || {
        readable(&client, &names, 16 * KIB) == 200
    });
    while thawed.elapsed() < Duration::from_secs(7) {
        let samples = http::metrics(cluster.master.http);
        assert_eq!(samples[r#"snowskin_nodes{state="gone"}"#], 0.0);
        if thawed.elapsed() > Duration::from_secs(2) {
            assert_eq!(samples[r#"snowskin_nodes{state="alive"}"#], 2.0);
        }
        assert_eq!(samples["master_key_count"], 200.0);
        wait::pass(Duration::from_millis(50));
    }
    assert_eq!(readable(&client, &names, 16 * KIB), 200);
    // A session is kept, or followed by one other.
    let after = count(&cluster.master, "snowskin_sessions_begun_total");
    assert!(after - begun <= 2.0, "{begun} {after}");
    cluster.assert_rests();
}
