//! The audit of real pools: clean, used, with a dead node, with damaged bytes.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use serde_json::Value;
use snowskin_client::{GetOptions, Leases, PutOptions, RemoveOptions};
use snowskin_tests::client::connect;
use snowskin_tests::cluster::{Cluster, SHORT};
use snowskin_tests::process::run;
use snowskin_tests::values::value;
use snowskin_tests::{http, wait};
use snowskin_types::Code;
use snowskin_types::call::{NodeState, PutMode};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Runs an audit; its exit code and its result.
fn audit(cluster: &Cluster, more: &[&str]) -> (i32, Value) {
    let master = format!("--master={}", cluster.address());
    let mut arguments = vec!["audit", "--json", &master];
    arguments.extend(more);
    let output = run(&arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    });
    (output.status.code().unwrap(), value)
}

fn number(audit: &Value, field: &str) -> u64 {
    audit[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no {field} in {audit}"))
}

/// What an audit counts as a difference.
const DIFFERENCES: [&str; 6] = [
    "ghosts",
    "orphan_files",
    "orphan_records",
    "unpublished",
    "checksum_bad",
    "leaked_pins",
];

#[track_caller]
fn assert_clean((code, audit): &(i32, Value)) {
    assert_eq!(audit["schema"], "snowskin.audit/1");
    for field in DIFFERENCES {
        assert_eq!(number(audit, field), 0, "{field} in {audit}");
    }
    assert_eq!(
        number(audit, "directory_bytes"),
        number(audit, "node_bytes")
    );
    assert_eq!(number(audit, "disk_bytes"), 0);
    assert_eq!(*code, 0, "{audit}");
}

fn replicas(count: u32) -> PutOptions {
    PutOptions {
        replicas: count,
        ..PutOptions::default()
    }
}

fn force() -> RemoveOptions {
    RemoveOptions {
        leases: Leases::Override,
        ..RemoveOptions::default()
    }
}

#[test]
fn a_clean_pool_has_no_differences_and_every_replica_was_read() {
    let cluster = Cluster::start(&[], 2, "256MiB");
    assert_clean(&audit(&cluster, &[]));
    let client = connect(&cluster);
    let mut bytes = 0;
    for (n, size) in [1, 4096, 300_000, 40 * MIB + 3].into_iter().enumerate() {
        let key = format!("twice-{n}");
        client
            .put(&key, &value(key.as_bytes(), size), &replicas(2))
            .unwrap();
        bytes += 2 * size as u64;
    }
    let keys: Vec<String> = (0..700).map(|n| format!("once/{n:04}")).collect();
    for key in &keys {
        client
            .put(key, &value(key.as_bytes(), 5000), &replicas(1))
            .unwrap();
        bytes += 5000;
    }
    let found = audit(&cluster, &[]);
    assert_clean(&found);
    assert_eq!(number(&found.1, "objects"), 704);
    assert_eq!(number(&found.1, "replicas"), 708);
    assert_eq!(number(&found.1, "node_bytes"), bytes);
    assert_eq!(number(&found.1, "nodes"), 2);
    assert_eq!(number(&found.1, "unlisted_objects"), 0);
    let other = audit(&cluster, &["--tenant=other"]);
    assert_clean(&other);
    assert_eq!(number(&other.1, "replicas"), 0);
    assert_eq!(number(&other.1, "unlisted_objects"), 704);
    let master = format!("--master={}", cluster.address());
    let output = run(&["audit", &master]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("read 708 replicas of 704 objects at 2 nodes"),
        "{text}"
    );
    assert!(text.ends_with("no differences\n"), "{text}");
}

#[test]
fn a_used_pool_has_no_differences() {
    let cluster = Cluster::start(SHORT, 2, "64MiB");
    let client = connect(&cluster);
    let replace = PutOptions {
        mode: PutMode::Replace,
        ..PutOptions::default()
    };
    for n in 0..300 {
        let key = format!("k{n}");
        // More than the pool can hold: old ones are evicted.
        client
            .put(&key, &value(key.as_bytes(), MIB), &replicas(1 + n % 2))
            .unwrap();
        match n % 5 {
            0 => client.remove(&key, &force()).unwrap(),
            1 => drop(
                client
                    .put(&key, &value(b"again", 10_000), &replace)
                    .unwrap(),
            ),
            2 => drop(client.get(&key, &GetOptions::default()).unwrap()),
            _ => {}
        }
    }
    let metrics = http::metrics(cluster.master.http);
    assert!(metrics["master_successful_evictions_total"] > 0.0);
    let found = audit(&cluster, &["--repair"]);
    assert_clean(&found);
    assert!(found.1["repaired"].is_null());
    assert!(number(&found.1, "replicas") > 10);
}

/// A silent node's replicas stay named until it counts as gone: they cannot be looked at, which is no
/// difference but not a whole audit either. Once it has died, its broken link tells that it is gone.
#[test]
fn replicas_of_a_silent_node_are_unreachable_until_it_is_gone() {
    const KEYS: u64 = 12;
    let options = ["--suspect-after=1s", "--client-ttl=120s"];
    let mut cluster = Cluster::start(&options, 2, "64MiB");
    let client = connect(&cluster);
    // Each replica of a frozen node is waited for.
    for n in 0..KEYS {
        let key = format!("k{n}");
        client
            .put(&key, &value(key.as_bytes(), 50_000), &replicas(1))
            .unwrap();
    }
    cluster.nodes[1].process.freeze();
    wait::until("the node is suspect", Duration::from_secs(10), || {
        let stat = client.stat(&Default::default()).unwrap();
        stat.nodes.iter().any(|n| n.state == NodeState::Suspect)
    });
    let (code, found) = audit(&cluster, &[]);
    assert_eq!(code, 4, "{found}");
    let lost = number(&found, "unreachable");
    assert!((1..KEYS).contains(&lost), "{found}");
    assert_eq!(number(&found, "silent_nodes"), 1);
    for field in DIFFERENCES {
        assert_eq!(number(&found, field), 0, "{field} in {found}");
    }
    cluster.nodes[1].process.kill();
    wait::until("the node counts as gone", Duration::from_secs(15), || {
        let stat = client.stat(&Default::default()).unwrap();
        stat.objects == KEYS - lost
    });
    let found = audit(&cluster, &[]);
    assert_clean(&found);
    assert_eq!(number(&found.1, "replicas"), KEYS - lost);
    cluster.nodes[1].restart();
    let found = audit(&cluster, &[]);
    assert_clean(&found);
    assert_eq!(number(&found.1, "nodes"), 2);
}

/// Flips a bit of these bytes in the memory of another process; false when that is not allowed.
fn damage(pid: u32, bytes: &[u8]) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    let Ok(memory) = memory else {
        return false;
    };
    for line in maps.lines().filter(|line| line.contains(" rw-s ")) {
        let range = line.split(' ').next().unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        let mut held = vec![0; usize::try_from(end - start).unwrap()];
        if memory.read_exact_at(&mut held, start).is_err() {
            continue;
        }
        // Extents begin at whole units.
        let found = held
            .chunks(4096)
            .position(|unit| unit.starts_with(&bytes[..4096]));
        if let Some(unit) = found {
            let at = start + unit as u64 * 4096 + 17;
            return memory.write_all_at(&[bytes[17] ^ 4], at).is_ok();
        }
    }
    panic!("the bytes are not in the memory of process {pid}:\n{maps}");
}

#[test]
fn damaged_bytes_are_found_and_their_owner_lets_them_go() {
    let cluster = Cluster::start(SHORT, 1, "64MiB");
    let client = connect(&cluster);
    for key in ["a", "b", "c"] {
        client
            .put(key, &value(key.as_bytes(), 600_000), &replicas(1))
            .unwrap();
    }
    if !damage(cluster.nodes[0].process.pid(), &value(b"b", 600_000)) {
        eprintln!("SKIPPED: this user may not write the memory of another process");
        return;
    }
    let (code, found) = audit(&cluster, &[]);
    assert_eq!((code, number(&found, "checksum_bad")), (5, 1), "{found}");
    assert_eq!(found["faulty"][0]["key"], "b");
    assert_eq!(found["faulty"][0]["fault"], "checksum_bad");
    let found = audit(&cluster, &["--repair"]);
    assert_clean(&found);
    assert_eq!(found.1["repaired"]["checksum_bad"], 1, "{}", found.1);
    assert_eq!(number(&found.1, "objects"), 2);
    assert_clean(&audit(&cluster, &[]));
    let missing = client.get("b", &GetOptions::default()).unwrap_err();
    assert_eq!(missing.code, Code::ObjectNotFound);
    let metrics = http::metrics(cluster.master.http);
    assert!(metrics["snowskin_node_checksum_failures_total"] >= 1.0);
}

#[test]
fn a_pool_that_does_not_come_to_rest_is_not_compared() {
    let cluster = Cluster::start(SHORT, 1, "64MiB");
    let client = connect(&cluster);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                client
                    .put(format!("k{n}"), &value(b"x", 1000), &replicas(1))
                    .unwrap();
                n += 1;
            }
        });
        let (code, found) = audit(&cluster, &["--timeout=2s"]);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(code, 4, "{found}");
        assert_eq!(found["name"], "RPC_TIMEOUT");
        let message = found["message"].as_str().unwrap();
        assert!(message.contains("not quiet within 2.0 s"), "{message}");
    });
}

#[test]
fn waits_for_space_are_told_by_the_master() {
    let cluster = Cluster::start(&["--put-wait=100ms"], 1, "16MiB");
    let client = connect(&cluster);
    let mut pinned = replicas(1);
    pinned.attributes.hard_pin = true;
    let mut full = None;
    for n in 0..32 {
        let key = format!("k{n}");
        // Pinned, so that nothing can be evicted for the last one.
        let stored = client.put(&key, &value(key.as_bytes(), MIB), &pinned);
        if let Err(failure) = stored {
            full = Some(failure.code);
            break;
        }
    }
    assert_eq!(full, Some(Code::NoSpace));
    wait::until("the waits are told", Duration::from_secs(5), || {
        let metrics = http::metrics(cluster.master.http);
        metrics["snowskin_put_wait_total"] > 0.0 && metrics["snowskin_put_wait_failed_total"] > 0.0
    });
    let metrics = http::metrics(cluster.master.http);
    let held = format!(
        "snowskin_replicas_held{{segment=\"{}\"}}",
        cluster.nodes[0].data
    );
    assert!(metrics[&held] >= 8.0);
}
