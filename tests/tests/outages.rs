//! Frozen, dead and unreachable peers: deadlines, quiet buffers, what comes back (cases T15, T19, T24).
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_client::{Client, Presence};
use snowskin_tests::calls::{
    LATE, copies, exists, fresh, get, get_within, put, put_on, put_within,
};
use snowskin_tests::client::{connect, connect_hasty, connect_to};
use snowskin_tests::cluster::{Cluster, Master, Node, SHORT};
use snowskin_tests::proxy::Proxy;
use snowskin_tests::values::{Guarded, value};
use snowskin_tests::{load, wait};
use snowskin_types::call::NodeState;
use snowskin_types::{Code, Failure};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A master with SHORT times and a node behind a proxy of its data port.
fn behind_a_proxy(master: &Master, segment: &str) -> (Node, Proxy) {
    let proxy = Proxy::listen();
    let advertise = format!("--advertise={}", proxy.address);
    let node = Node::start(&master.address(), segment, &[&advertise]);
    proxy.set_target(node.data);
    (node, proxy)
}

/// The failure of a call that must end by its deadline.
#[track_caller]
fn fails_by<T>(limit: Duration, call: impl FnOnce() -> Result<T, Failure>) -> Failure {
    let start = Instant::now();
    let result = call();
    let took = start.elapsed();
    assert!(took < limit + LATE, "{took:?}, not {limit:?}");
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(failure) => failure,
    }
}

#[track_caller]
fn unreachable(failure: &Failure) {
    assert!(
        matches!(
            failure.code,
            Code::RpcFail | Code::RpcTimeout | Code::TransferFail | Code::ReplicaGone
        ),
        "{failure}"
    );
}

fn state_of(client: &Client, node: &Node) -> Option<NodeState> {
    let stat = client.stat(&Default::default()).ok()?;
    let id = snowskin_tests::calls::id(node);
    let node = stat.nodes.iter().find(|n| n.place.node == id);
    node.map(|n| n.state)
}

/// T15, one copy.
#[test]
fn the_death_of_the_only_owner_ends_a_read_under_way() {
    let master = Master::start(SHORT);
    let (mut node, proxy) = behind_a_proxy(&master, "128MiB");
    let client = connect_to(&master.address());
    let bytes = value(b"k", 64 * MIB);
    client.put("k", &bytes, &put()).unwrap();
    let before = proxy.passed();
    proxy.slow(16 * MIB as u64);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut room = Guarded::new(64 * MIB);
            let start = Instant::now();
            let result = client.get_into("k", room.room(), &get_within(seconds(15)));
            room.check();
            (result, start.elapsed())
        });
        wait::until("half of it is read", seconds(10), || {
            proxy.passed() - before > 32 * MIB as u64
        });
        node.process.kill();
        let (result, took) = read.join().unwrap();
        unreachable(&result.unwrap_err());
        assert!(took < seconds(15) + LATE, "{took:?}");
    });
    // A restarted process is another life; without one the master notices by itself.
    wait::until("the key is not offered", seconds(6), || {
        !client.exists("k", &exists()).unwrap()
    });
    load::assert_rests([&master.process]);
}

/// T15, two copies.
#[test]
fn the_death_of_one_of_two_owners_does_not_end_a_read_under_way() {
    let master = Master::start(SHORT);
    let (first, first_proxy) = behind_a_proxy(&master, "128MiB");
    let (second, second_proxy) = behind_a_proxy(&master, "128MiB");
    let (writer, reader) = (connect_to(&master.address()), connect_to(&master.address()));
    let bytes = value(b"k", 64 * MIB);
    writer.put("k", &bytes, &copies(2)).unwrap();
    let mut pairs = [(first, first_proxy), (second, second_proxy)];
    let before: Vec<u64> = pairs.iter().map(|(_, p)| p.passed()).collect();
    for (_, proxy) in &pairs {
        proxy.slow(32 * MIB as u64);
    }
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut room = Guarded::new(64 * MIB);
            let size = reader.get_into("k", room.room(), &get_within(seconds(20)));
            assert!(room.check() == bytes);
            size
        });
        // Whichever it reads from dies in the middle.
        let serving = wait::until_some("half of it is read", seconds(10), || {
            (0..2).find(|i| pairs[*i].1.passed() - before[*i] > 16 * MIB as u64)
        });
        pairs[serving].0.process.kill();
        assert_eq!(read.join().unwrap().unwrap(), 64 * MIB as u64);
    });
    for (_, proxy) in &pairs {
        proxy.slow(0);
    }
    assert!(writer.get("k", &fresh()).unwrap() == bytes);
    writer.put("one", b"bytes", &put()).unwrap();
    let nodes = pairs.iter().map(|(node, _)| &node.process);
    load::assert_rests(nodes.chain([&master.process]));
}

/// T19.
#[test]
fn a_node_frozen_beyond_the_limit_returns_with_what_it_holds() {
    let cluster = Cluster::start(SHORT, 2, "64MiB");
    let client = connect_hasty(&cluster.address());
    let [kept, frozen] = &cluster.nodes[..] else {
        unreachable!()
    };
    let size = 100_000;
    let name = |i: u32| {
        format!(
            "{}-{i}",
            if i.is_multiple_of(2) {
                "kept"
            } else {
                "frozen"
            }
        )
    };
    for i in 0..40 {
        let bytes = value(name(i).as_bytes(), size);
        let node = if i % 2 == 0 { kept } else { frozen };
        client.put(name(i), &bytes, &put_on(&[node])).unwrap();
    }
    let stat = client.stat(&Default::default()).unwrap();
    let held: Vec<u64> = stat.nodes.iter().map(|n| n.replicas).collect();
    assert_eq!(held, [20, 20], "every put went where it was wished");
    frozen.process.freeze();
    let start = Instant::now();
    let (mut round, mut stored) = (0, Vec::new());
    while start.elapsed() < seconds(8) {
        let odd = name(round * 2 % 40 + 1);
        let begun = Instant::now();
        unreachable_or_absent(&client.get(&odd, &get_within(seconds(1))));
        assert!(begun.elapsed() < seconds(1) + LATE);
        let even = name(round * 2 % 40);
        let bytes = client.get(&even, &get_within(seconds(1))).unwrap();
        assert!(bytes == value(even.as_bytes(), size));
        let new = format!("new-{round}");
        let begun = Instant::now();
        let put = client.put(&new, &value(new.as_bytes(), size), &put_within(seconds(3)));
        assert!(begun.elapsed() < seconds(3) + LATE);
        if put.is_ok() {
            stored.push(new);
        }
        if start.elapsed() > Duration::from_millis(6500) {
            assert!(!client.exists(&odd, &exists()).unwrap(), "{odd} is offered");
            assert_eq!(state_of(&client, frozen), Some(NodeState::Gone));
        }
        round += 1;
        // A pace at which nothing needs to be evicted.
        wait::pass(Duration::from_millis(50));
    }
    assert!(stored.len() > 3, "{}", stored.len());
    frozen.process.thaw();
    wait::until("it is back", seconds(3), || {
        state_of(&client, frozen) == Some(NodeState::Alive)
    });
    wait::until("its objects are listed again", seconds(3), || {
        (0..40).all(|i| client.exists(name(i), &exists()).unwrap_or(false))
    });
    for key in (0..40).map(name).chain(stored) {
        let bytes = client.get(&key, &fresh()).unwrap();
        assert!(bytes == value(key.as_bytes(), size), "{key}");
    }
    client.put("at-last", b"bytes", &put_on(&[frozen])).unwrap();
    assert_eq!(client.get("at-last", &get()).unwrap(), b"bytes");
    cluster.assert_rests();
}

#[track_caller]
fn unreachable_or_absent(result: &Result<Vec<u8>, Failure>) {
    match result {
        Ok(_) => panic!("a frozen node was read"),
        Err(failure) if failure.code == Code::ObjectNotFound => {}
        Err(failure) => unreachable(failure),
    }
}

/// How a node stops answering.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Silence {
    Frozen,
    Killed,
    Swallowed,
}

fn deadlines_are_kept(silence: Silence) {
    // Long limits, so that the master goes on naming the silent node.
    let master = Master::start(&["--suspect-after=30s", "--client-ttl=60s"]);
    let (mut node, proxy) = behind_a_proxy(&master, "128MiB");
    let client = connect_to(&master.address());
    let size = 8 * MIB;
    let keys: Vec<String> = (0..4).map(|i| format!("k{i}")).collect();
    for key in &keys {
        let bytes = value(key.as_bytes(), size);
        client.put(key, &bytes, &put()).unwrap();
    }
    // An idle connection is in the pool, and the location is remembered.
    assert!(client.get("k0", &get()).unwrap() == value(b"k0", size));
    match silence {
        Silence::Frozen => node.process.freeze(),
        Silence::Killed => node.process.kill(),
        Silence::Swallowed => proxy.swallow(),
    }
    let silent = |failure: &Failure| match failure.code {
        // A dead process breaks its link, and is not named any more soon after.
        Code::ObjectNotFound if silence == Silence::Killed => {}
        _ => unreachable(failure),
    };
    for limit in [Duration::from_millis(300), seconds(1), seconds(4)] {
        let mut room = Guarded::new(size);
        silent(&fails_by(limit, || {
            client.get_into("k0", room.room(), &get_within(limit))
        }));
        silent(&fails_by(limit, || client.get("k1", &get_within(limit))));
        let mut part = Guarded::new(1000);
        silent(&fails_by(limit, || {
            client.get_range_into("k1", 17, part.room(), &get_within(limit))
        }));
        let start = Instant::now();
        for result in client.get_batch(&keys, &get_within(limit)) {
            unreachable_or_absent(&result);
        }
        assert!(start.elapsed() < limit + LATE, "{:?}", start.elapsed());
        let key = format!("new-{}", limit.as_millis());
        let start = Instant::now();
        let stored = client.put(&key, &value(key.as_bytes(), size), &put_within(limit));
        assert!(start.elapsed() < limit + LATE, "{:?}", start.elapsed());
        assert!(stored.is_err());
    }
    // The master is well, so its answers are quick.
    let start = Instant::now();
    client.exists("k0", &exists()).unwrap();
    assert!(start.elapsed() < seconds(1));
    match silence {
        Silence::Frozen => node.process.thaw(),
        Silence::Killed => node.restart(),
        Silence::Swallowed => proxy.heal(),
    }
    proxy.set_target(node.data);
    if silence == Silence::Killed {
        assert!(client.get("k0", &fresh()).is_err());
    } else {
        wait::until("reads succeed again", seconds(10), || {
            client
                .get("k0", &get_within(seconds(2)))
                .is_ok_and(|bytes| bytes == value(b"k0", size))
        });
    }
    wait::until("puts succeed again", seconds(10), || {
        client
            .put("at-last", &value(b"at-last", size), &put_within(seconds(2)))
            .is_ok()
    });
    assert!(client.get("at-last", &get()).unwrap() == value(b"at-last", size));
    // What was cut short leaves nothing behind.
    wait::until("no put is unfinished", seconds(40), || {
        client.stat(&Default::default()).unwrap().unfinished == 0
    });
    load::assert_rests([&master.process, &node.process]);
}

#[test]
fn calls_keep_their_deadlines_when_a_node_is_frozen() {
    deadlines_are_kept(Silence::Frozen);
}

#[test]
fn calls_keep_their_deadlines_when_a_node_is_killed() {
    deadlines_are_kept(Silence::Killed);
}

#[test]
fn calls_keep_their_deadlines_when_a_node_is_a_black_hole() {
    deadlines_are_kept(Silence::Swallowed);
}

/// The second copy is read when the first does not answer.
#[test]
fn a_silent_replica_is_left_for_the_next() {
    let master = Master::start(&["--suspect-after=30s", "--client-ttl=60s"]);
    let (first, first_proxy) = behind_a_proxy(&master, "64MiB");
    let (second, second_proxy) = behind_a_proxy(&master, "64MiB");
    let client = connect_to(&master.address());
    let bytes = value(b"k", 4 * MIB);
    client
        .put("k", &bytes, &put_on(&[&first, &second]))
        .unwrap();
    for proxy in [&first_proxy, &second_proxy] {
        proxy.swallow();
        for _ in 0..4 {
            let start = Instant::now();
            assert!(client.get("k", &get_within(seconds(10))).unwrap() == bytes);
            // Without progress for 2 s it is left.
            assert!(start.elapsed() < seconds(4), "{:?}", start.elapsed());
        }
        proxy.heal();
        wait::pass(Duration::from_millis(100));
    }
    load::assert_rests([&master.process, &first.process, &second.process]);
}

/// After an answer nothing touches the caller's buffer.
#[test]
fn a_buffer_is_left_alone_after_a_time_out() {
    for silence in [Silence::Frozen, Silence::Swallowed] {
        let master = Master::start(&["--suspect-after=30s", "--client-ttl=60s"]);
        let (node, proxy) = behind_a_proxy(&master, "128MiB");
        let client = connect_to(&master.address());
        let size = 48 * MIB;
        let bytes = value(b"k", size);
        client.put("k", &bytes, &put()).unwrap();
        let before = proxy.passed();
        proxy.slow(16 * MIB as u64);
        let mut room = vec![0u8; size];
        let limit = seconds(3);
        let failure = std::thread::scope(|scope| {
            let read = scope.spawn(|| {
                fails_by(limit, || {
                    client.get_into("k", &mut room, &get_within(limit))
                })
            });
            wait::until("some of it came", limit, || {
                proxy.passed() - before > 8 * MIB as u64
            });
            match silence {
                Silence::Swallowed => proxy.swallow(),
                _ => node.process.freeze(),
            }
            read.join().unwrap()
        });
        unreachable(&failure);
        // The caller uses its memory for something else, while the peer goes on.
        room.fill(0x5a);
        proxy.slow(0);
        match silence {
            Silence::Swallowed => proxy.heal(),
            _ => node.process.thaw(),
        }
        let end = Instant::now() + seconds(3);
        while Instant::now() < end {
            assert!(room.iter().all(|b| *b == 0x5a), "written after the answer");
            wait::pass(Duration::from_millis(20));
        }
        // Nor what a put reads: the object is whole or absent, whatever the caller does next.
        proxy.slow(16 * MIB as u64);
        let mut source = value(b"late", size);
        fails_by(seconds(1), || {
            client.put("late", &source, &put_within(seconds(1)))
        });
        source.fill(0x5a);
        proxy.slow(0);
        wait::until("the put has ended", seconds(12), || {
            client.stat(&Default::default()).unwrap().unfinished == 0
        });
        assert!(!client.exists("late", &exists()).unwrap());
        let mut room = Guarded::new(size);
        wait::until("the key is read", seconds(10), || {
            let got = client.get_into("k", room.room(), &get_within(seconds(5)));
            got.is_ok()
        });
        assert!(room.check() == bytes);
        load::assert_rests([&master.process, &node.process]);
    }
}

/// T24.
#[test]
fn reads_under_a_lease_go_on_while_the_master_is_away() {
    let mut cluster = Cluster::start(&[], 2, "64MiB");
    let client = connect(&cluster);
    let names: Vec<String> = (0..50).map(|i| format!("k{i}")).collect();
    for name in &names {
        let bytes = value(name.as_bytes(), 50_000);
        client.put(name, &bytes, &put()).unwrap();
    }
    let read = |client: &Client, name: &String| {
        let bytes = client.get(name, &get_within(seconds(1)));
        bytes.map(|b| assert!(b == value(name.as_bytes(), 50_000)))
    };
    for name in &names {
        read(&client, name).unwrap();
    }
    cluster.master.process.kill();
    let start = Instant::now();
    // A node serves for 5 s from the last ping that it confirmed.
    let mut rounds = 0;
    while start.elapsed() < seconds(3) {
        for name in &names {
            read(&client, name).unwrap();
        }
        rounds += 1;
    }
    assert!(rounds > 2);
    // What needs the master says so by its deadline.
    let mut options = exists();
    options.call.timeout = Some(seconds(1));
    for result in client.exists_batch(&names, &options) {
        match result.unwrap_err() {
            failure if matches!(failure.code, Code::RpcFail | Code::RpcTimeout) => {
                assert_eq!(failure.code.retry(), snowskin_types::error::Retry::Same);
            }
            failure => panic!("{failure}"),
        }
    }
    let failure = fails_by(seconds(1), || {
        client.put("new", b"bytes", &put_within(seconds(1)))
    });
    unreachable(&failure);
    wait::pass(seconds(7).saturating_sub(start.elapsed()));
    // Past the serving lease nothing is served, since removes may have been answered meanwhile.
    assert!(names.iter().take(5).all(|n| read(&client, n).is_err()));
    cluster.master.restart();
    let back = Instant::now();
    wait::until("all is known again", seconds(5), || {
        let results = client.exists_batch(&names, &exists());
        results
            .iter()
            .all(|r| matches!(r, Ok(Presence::Here { .. })))
    });
    let newcomer = connect(&cluster);
    for name in &names {
        read(&newcomer, name).unwrap();
        read(&client, name).unwrap();
    }
    assert!(back.elapsed() < seconds(5), "{:?}", back.elapsed());
    cluster.assert_rests();
}
