//! Objects by real processes: sizes, keys, batches, replaces, removes (cases T01-T03, T05, T06, T08, T11-T13).
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_client::{
    ExistsOptions, GetItem, GetOptions, Leases, Presence, PutOptions, RemoveManyOptions,
    RemoveOptions, Source, Stored, Target,
};
use snowskin_tests::client::{connect, connect_hasty};
use snowskin_tests::cluster::{Cluster, SHORT};
use snowskin_tests::values::{Guarded, value};
use snowskin_tests::wait;
use snowskin_types::Code;
use snowskin_types::call::{Filter, PutMode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn put() -> PutOptions {
    PutOptions::default()
}

fn replace() -> PutOptions {
    PutOptions {
        mode: PutMode::Replace,
        ..PutOptions::default()
    }
}

fn get() -> GetOptions {
    GetOptions::default()
}

fn force() -> RemoveOptions {
    RemoveOptions {
        leases: Leases::Override,
        ..RemoveOptions::default()
    }
}

/// T01.
#[test]
fn all_sizes_come_back_byte_for_byte_by_every_way_of_reading() {
    let cluster = Cluster::start(&[], 2, "256MiB");
    let (a, b) = (connect(&cluster), connect(&cluster));
    let sizes = [
        1,
        7,
        4095,
        4096,
        4097,
        MIB - 1,
        MIB,
        MIB + 1,
        4 * MIB - 1,
        4 * MIB,
        4 * MIB + 1,
        16 * MIB - 17,
        16 * MIB + 1,
        64 * MIB + 3,
    ];
    for size in sizes {
        let key = format!("size-{size}");
        let bytes = value(key.as_bytes(), size);
        let parts = size % 2 == 0;
        if parts {
            let (left, right) = bytes.split_at(size / 3);
            a.put_parts(&key, &[left, right], &put()).unwrap();
        } else {
            a.put(&key, &bytes, &put()).unwrap();
        }
        assert_eq!(
            b.size(&key, &ExistsOptions::default()).unwrap(),
            size as u64
        );
        assert!(b.get(&key, &get()).unwrap() == bytes, "get of {size}");
        let mut room = Guarded::new(size);
        assert_eq!(b.get_into(&key, room.room(), &get()).unwrap(), size as u64);
        assert!(room.check() == bytes, "get into of {size}");
        let mut larger = Guarded::new(size + 1);
        assert_eq!(
            b.get_into(&key, larger.room(), &get()).unwrap(),
            size as u64
        );
        assert!(larger.check()[..size] == bytes && larger.check()[size] == 0xa5);
        for (offset, len) in [
            (0, 1),
            (size - 1, 1),
            (size / 2, 1),
            (0, size),
            (size / 3, size / 2),
        ] {
            if len == 0 {
                continue;
            }
            let mut room = Guarded::new(len);
            let got = b
                .get_range_into(&key, offset as u64, room.room(), &get())
                .unwrap();
            assert_eq!(got, len as u64);
            assert!(
                room.check() == &bytes[offset..offset + len],
                "range of {size}"
            );
        }
    }
    let keys: Vec<String> = sizes.iter().map(|s| format!("size-{s}")).collect();
    for (size, result) in sizes.iter().zip(b.get_batch(&keys, &get())) {
        assert!(result.unwrap() == value(format!("size-{size}").as_bytes(), *size));
    }
}

/// T02.
#[test]
fn an_empty_value_is_refused_everywhere_and_leaves_no_key() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let client = connect(&cluster);
    assert_eq!(
        client.put("empty", b"", &put()).unwrap_err().code,
        Code::InvalidParams
    );
    assert!(!client.exists("empty", &ExistsOptions::default()).unwrap());
    assert_eq!(
        client.get("empty", &get()).unwrap_err().code,
        Code::ObjectNotFound
    );
    let full = [1u8; 10];
    let names = ["f0", "f1", "none", "f3", "f4", "f5"];
    let items: Vec<(&str, Source<'_>)> = names
        .iter()
        .map(|n| (*n, Source::Bytes(if *n == "none" { b"" } else { &full })))
        .collect();
    for (name, result) in names.iter().zip(client.put_batch(&items, &put())) {
        match *name {
            "none" => assert_eq!(result.unwrap_err().code, Code::InvalidParams),
            _ => assert!(matches!(result.unwrap(), Stored::Written { .. })),
        }
    }
    assert_eq!(
        client.put("", &full, &put()).unwrap_err().code,
        Code::InvalidParams
    );
}

/// T03.
#[test]
fn keys_up_to_the_limit_are_distinct_and_longer_ones_are_refused_at_once() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let client = connect(&cluster);
    for len in [255, 256, 1024, 4096, 65_535] {
        let key = vec![b'k'; len];
        let bytes = value(&key, 100);
        client.put(&key, &bytes, &put()).unwrap();
        assert_eq!(client.get(&key, &get()).unwrap(), bytes);
    }
    let (mut x, mut y) = (vec![b'z'; 4096], vec![b'z'; 4096]);
    x[4095] = b'x';
    y[4095] = b'y';
    client.put(&x, b"first", &put()).unwrap();
    client.put(&y, b"second", &put()).unwrap();
    assert_eq!(client.get(&x, &get()).unwrap(), b"first");
    assert_eq!(client.get(&y, &get()).unwrap(), b"second");
    for len in [65_536, MIB] {
        let key = vec![b'l'; len];
        assert_eq!(
            client.put(&key, b"v", &put()).unwrap_err().code,
            Code::InvalidKey
        );
        let exists = client.exists(&key, &ExistsOptions::default());
        assert_eq!(exists.unwrap_err().code, Code::InvalidKey);
    }
    for odd in [
        &b"a/../b"[..],
        b"\0",
        b"\xff\xfe",
        b" ",
        "n\u{e9}".as_bytes(),
        "ne\u{301}".as_bytes(),
    ] {
        client.put(odd, odd, &put()).unwrap();
        assert_eq!(client.get(odd, &get()).unwrap(), odd);
    }
}

/// T05.
#[test]
fn of_duplicates_in_a_batch_the_first_wins() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let client = connect(&cluster);
    let values = [
        value(b"a1", 4096),
        value(b"b", 8192),
        value(b"a2", 4096),
        value(b"c", 8192),
        value(b"a3", 4096),
    ];
    let names = ["a", "b", "a", "c", "a"];
    let items: Vec<(&str, Source<'_>)> = names
        .iter()
        .zip(&values)
        .map(|(n, v)| (*n, Source::Bytes(v)))
        .collect();
    let results = client.put_batch(&items, &put());
    let written: Vec<bool> = results
        .iter()
        .map(|r| matches!(r.as_ref().unwrap(), Stored::Written { .. }))
        .collect();
    assert_eq!(written, [true, true, false, true, false]);
    assert_eq!(client.get("a", &get()).unwrap(), values[0]);
    let stat = client.stat(&Default::default()).unwrap();
    assert_eq!((stat.objects, stat.bytes), (3, 4096 + 2 * 8192));
}

/// T06.
#[test]
fn a_batch_with_misses_and_a_dead_peer_answers_each_key_in_order() {
    let mut cluster = Cluster::start(SHORT, 2, "64MiB");
    let client = connect_hasty(&cluster.address());
    let keys: Vec<String> = (0..20_000)
        .map(|i| format!("k{}", i * 7919 % 20_000))
        .collect();
    let there = |key: &str| key[1..].parse::<u32>().unwrap() % 3 != 0;
    let present: Vec<&String> = keys.iter().filter(|k| there(k)).collect();
    for chunk in present.chunks(2000) {
        let values: Vec<Vec<u8>> = chunk.iter().map(|k| value(k.as_bytes(), 512)).collect();
        let items: Vec<(&String, Source<'_>)> = chunk
            .iter()
            .zip(&values)
            .map(|(k, v)| (*k, Source::Bytes(v)))
            .collect();
        for result in client.put_batch(&items, &put()) {
            result.unwrap();
        }
    }
    let results = client.exists_batch(&keys, &ExistsOptions::default());
    for (key, result) in keys.iter().zip(results) {
        assert_eq!(
            matches!(result.unwrap(), Presence::Here { .. }),
            there(key),
            "{key}"
        );
    }
    cluster.nodes[1].process.kill();
    let start = Instant::now();
    let some = &keys[..500];
    let results = client.get_batch(some, &get());
    assert!(start.elapsed() < Duration::from_millis(3250));
    let (mut right, mut failed) = (0, 0);
    for (key, result) in some.iter().zip(results) {
        match result {
            Ok(bytes) => {
                assert!(there(key) && bytes == value(key.as_bytes(), 512), "{key}");
                right += 1;
            }
            Err(failure) if there(key) => {
                assert_ne!(failure.code, Code::Internal, "{failure}");
                failed += 1;
            }
            Err(failure) => assert_eq!(failure.code, Code::ObjectNotFound),
        }
    }
    assert!(right > 50 && failed > 50, "{right} {failed}");
}

/// T08.
#[test]
fn a_destination_that_is_too_small_is_not_touched() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let client = connect(&cluster);
    let bytes = value(b"k", 1_000_000);
    client.put("k", &bytes, &put()).unwrap();
    for len in [999_999, 1, 0] {
        let mut room = Guarded::new(len);
        let refused = client.get_into("k", room.room(), &get()).unwrap_err();
        assert!(
            matches!(refused.code, Code::BufferOverflow | Code::InvalidParams),
            "{refused}"
        );
        assert!(room.untouched());
    }
    let (mut first, mut second) = (Guarded::new(500_000), Guarded::new(499_999));
    let parts = Target::Parts(vec![first.room(), second.room()]);
    let mut items = [GetItem::whole(b"k", parts)];
    let refused = client
        .get_items(&mut items, &get())
        .pop()
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(refused.code, Code::BufferOverflow | Code::InvalidParams),
        "{refused}"
    );
    assert!(first.untouched() && second.untouched());
}

/// T11.
#[test]
fn a_taken_key_keeps_its_value_and_a_replace_switches_without_a_gap() {
    let cluster = Cluster::start(SHORT, 2, "64MiB");
    let (a, b, c) = (connect(&cluster), connect(&cluster), connect(&cluster));
    let values: Vec<Vec<u8>> = [(1, 1000), (2, 1000), (3, 5000), (4, 70_000)]
        .map(|(i, len)| value(&[i], len))
        .to_vec();
    a.put("k", &values[0], &put()).unwrap();
    assert_eq!(c.get("k", &get()).unwrap(), values[0]);
    for v in &values[1..3] {
        assert_eq!(
            a.put("k", v, &put()).unwrap_err().code,
            Code::ObjectAlreadyExists
        );
        assert_eq!(b.get("k", &get()).unwrap(), values[0]);
    }
    a.remove("k", &force()).unwrap();
    a.put("k", &values[3], &put()).unwrap();
    for client in [&a, &b, &c] {
        assert_eq!(client.get("k", &get()).unwrap(), values[3]);
    }
    let stat = a.stat(&Default::default()).unwrap();
    assert_eq!((stat.objects, stat.bytes), (1, 70_000));

    let stop = AtomicBool::new(false);
    let new = value(b"new", 70_000);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut old_seen, mut new_seen) = (0u64, 0u64);
            while !stop.load(Ordering::SeqCst) {
                let got = c.get("k", &get()).unwrap();
                if got == new {
                    new_seen += 1;
                } else {
                    assert!(
                        got == values[3] && new_seen == 0,
                        "a mix, or an old value after a new"
                    );
                    old_seen += 1;
                }
            }
            (old_seen, new_seen)
        });
        a.put("k", &new, &replace()).unwrap();
        assert_eq!(b.get("k", &get()).unwrap(), new);
        for _ in 0..20 {
            assert_eq!(b.get("k", &get()).unwrap(), new);
        }
        stop.store(true, Ordering::SeqCst);
        reader.join().unwrap();
    });
}

/// T12.
#[test]
fn of_two_writers_of_one_key_one_wins_and_readers_see_one_whole_value() {
    let cluster = Cluster::start(&[], 2, "512MiB");
    let (a, b, c) = (connect(&cluster), connect(&cluster), connect(&cluster));
    let rounds = 2000;
    let mut total = 0;
    for round in 0..rounds {
        let key = format!("race-{round}");
        // Mostly small, now and then up to 8 MiB.
        let size = if round % 100 == 99 {
            8 * MIB
        } else {
            1024 << (round % 5)
        };
        let other = if round % 2 == 0 { size } else { size / 2 + 1 };
        let (va, vb) = (value(b"a", size), value(b"b", other));
        let (ra, rb) = std::thread::scope(|scope| {
            let first = scope.spawn(|| a.put(&key, &va, &put()));
            let second = scope.spawn(|| b.put(&key, &vb, &put()));
            (first.join().unwrap(), second.join().unwrap())
        });
        let winner = match (&ra, &rb) {
            (Ok(_), Err(lost)) => {
                assert_eq!(lost.code, Code::ObjectAlreadyExists);
                &va
            }
            (Err(lost), Ok(_)) => {
                assert_eq!(lost.code, Code::ObjectAlreadyExists);
                &vb
            }
            other => panic!("round {round}: {other:?}"),
        };
        assert!(c.get(&key, &get()).unwrap() == *winner, "round {round}");
        total += winner.len() as u64;
        if round % 100 == 99 {
            let stat = c.stat(&Default::default()).unwrap();
            assert_eq!((stat.bytes, stat.unfinished), (total, 0));
            let options = RemoveManyOptions {
                leases: Leases::Override,
                ..RemoveManyOptions::default()
            };
            assert_eq!(c.remove_many(&Filter::All, &options).unwrap().removed, 100);
            total = 0;
        }
    }
}

/// T13.
#[test]
fn leased_objects_are_kept_from_plain_removes_only() {
    let cluster = Cluster::start(SHORT, 2, "64MiB");
    let client = connect(&cluster);
    client.put("k", b"bytes", &put()).unwrap();
    client.get("k", &get()).unwrap();
    let plain = RemoveOptions::default();
    let start = Instant::now();
    assert_eq!(
        client.remove("k", &plain).unwrap_err().code,
        Code::ObjectHasLease
    );
    assert!(start.elapsed() < Duration::from_millis(500));
    client.remove("k", &force()).unwrap();
    assert_eq!(
        client.remove("k", &plain).unwrap_err().code,
        Code::ObjectNotFound
    );
    assert_eq!(
        client.get("k", &get()).unwrap_err().code,
        Code::ObjectNotFound
    );
    client.put("e", b"bytes", &put()).unwrap();
    assert!(client.exists("e", &ExistsOptions::default()).unwrap());
    assert_eq!(
        client.remove("e", &plain).unwrap_err().code,
        Code::ObjectHasLease
    );
    for i in 0..100 {
        client.put(format!("all-{i}"), b"bytes", &put()).unwrap();
    }
    for i in 0..50 {
        client.get(format!("all-{i}"), &get()).unwrap();
    }
    let swept = client
        .remove_many(&Filter::Prefix(b"all-".to_vec()), &Default::default())
        .unwrap();
    assert_eq!((swept.removed, swept.leased), (50, 50));
    wait::until("the leases end", Duration::from_secs(4), || {
        let swept = client.remove_many(&Filter::Regex("^all-[0-9]+$".into()), &Default::default());
        swept.unwrap().leased == 0
    });
    let left = client
        .list(
            &Filter::Prefix(b"all-".to_vec()),
            None,
            10,
            &Default::default(),
        )
        .unwrap();
    assert!(left.keys.is_empty());
    let bad = client.remove_many(&Filter::Regex("(?=x)".into()), &Default::default());
    assert_eq!(bad.unwrap_err().code, Code::InvalidParams);
}
