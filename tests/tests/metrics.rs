//! T27: counters move by exactly what was done, and gauges say what is true.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use rustix::process::Signal;
use snowskin_client::{
    Client, ExistsOptions, GetOptions, Leases, Locations, PutOptions, RemoveManyOptions,
    RemoveOptions,
};
use snowskin_tests::client::connect;
use snowskin_tests::cluster::{Cluster, SHORT};
use snowskin_tests::http;
use snowskin_tests::values::value;
use snowskin_tests::wait;
use snowskin_types::Code;
use snowskin_types::call::Filter;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

const SIZE: usize = 5000;

/// Looks at /metrics again and again and knows what it was before.
struct Watch {
    address: SocketAddr,
    before: BTreeMap<String, f64>,
}

impl Watch {
    fn new(address: SocketAddr) -> Self {
        Watch {
            address,
            before: http::metrics(address),
        }
    }

    /// Every one of `moved` moved by exactly so much, and no other counter of an operation did.
    fn expect(&mut self, step: &str, moved: &[(&str, f64)]) {
        let now = http::metrics(self.address);
        for (name, value) in &now {
            assert!(*value >= 0.0, "{step}: {name} is {value}");
        }
        let moved: BTreeMap<&str, f64> = moved.iter().copied().collect();
        for (name, value) in &now {
            let is_counter = name.ends_with("_total")
                || name.ends_with("_nums_")
                || name.starts_with("master_value_size");
            // Time alone moves these.
            let goes_on = [
                "ping",
                "http",
                "connections",
                "stat_requests",
                "state_writes",
                "mem_cache_nums_",
            ]
            .iter()
            .any(|part| name.contains(part));
            if !is_counter || goes_on {
                continue;
            }
            let by = value - self.before.get(name).copied().unwrap_or_default();
            let wanted = match moved.get(name.as_str()) {
                Some(wanted) => *wanted,
                None if name.contains("_bucket") => continue,
                None => 0.0,
            };
            assert_eq!(by, wanted, "{step}: {name}");
        }
        for name in moved.keys() {
            assert!(now.contains_key(*name), "{step}: no {name}");
        }
        self.before = now;
    }

    /// These gauges come to have these values, and stay so long enough to be seen.
    fn settles(&mut self, step: &str, gauges: &[(&str, f64)]) {
        let limit = Duration::from_secs(10);
        let address = self.address;
        let mut last = Vec::new();
        let start = std::time::Instant::now();
        loop {
            let now = http::metrics(address);
            last.clear();
            last.extend(
                gauges
                    .iter()
                    .filter(|(name, value)| now.get(*name) != Some(value))
                    .map(|(name, value)| (*name, *value, now.get(*name).copied())),
            );
            if last.is_empty() {
                return;
            }
            assert!(
                start.elapsed() < limit,
                "{step}: (gauge, wanted, is) {last:?}"
            );
            wait::pass(Duration::from_millis(20));
        }
    }
}

fn names(metrics: &BTreeMap<String, f64>) -> BTreeSet<String> {
    metrics
        .keys()
        .map(|name| name.split('{').next().unwrap().to_owned())
        .collect()
}

fn put(client: &Client, range: std::ops::Range<usize>) {
    for i in range {
        let key = format!("k{i}");
        client
            .put(&key, &value(key.as_bytes(), SIZE), &PutOptions::default())
            .unwrap();
    }
}

#[test]
fn counters_and_gauges_add_up_through_a_whole_life() {
    let mut cluster = Cluster::start(SHORT, 2, "64MiB");
    let client = connect(&cluster);
    let web = cluster.master.http;
    wait::until("both nodes are there", Duration::from_secs(5), || {
        client.stat(&Default::default()).unwrap().ready
    });
    let mut watch = Watch::new(web);
    let capacity = f64::from(128 << 20);
    watch.settles(
        "empty",
        &[
            ("master_key_count", 0.0),
            ("master_allocated_bytes", 0.0),
            ("master_total_capacity_bytes", capacity),
            ("snowskin_nodes{state=\"alive\"}", 2.0),
        ],
    );

    put(&client, 0..100);
    let bytes = (100 * SIZE) as f64;
    watch.expect(
        "100 puts",
        &[
            ("master_put_start_requests_total", 100.0),
            ("snowskin_reserved_total", 100.0),
            ("snowskin_published_total", 100.0),
            ("master_put_end_requests_total", 100.0),
            ("master_value_size_bytes_count", 100.0),
            ("master_value_size_bytes_sum", bytes),
        ],
    );
    watch.settles(
        "100 puts",
        &[
            ("master_key_count", 100.0),
            ("mem_cache_nums_", 100.0),
            ("snowskin_object_bytes", bytes),
            ("snowskin_unfinished_puts", 0.0),
            ("snowskin_leased_bytes", 0.0),
            ("snowskin_obligations", 0.0),
            ("snowskin_requests_under_way", 0.0),
        ],
    );

    let fresh = GetOptions {
        locations: Locations::Fresh,
        ..GetOptions::default()
    };
    for i in 0..50 {
        let key = format!("k{i}");
        assert!(client.get(&key, &fresh).unwrap() == value(key.as_bytes(), SIZE));
    }
    watch.expect(
        "50 hits",
        &[
            ("master_get_replica_list_requests_total", 50.0),
            ("total_get_nums_", 50.0),
            ("valid_get_nums_", 50.0),
            ("mem_cache_hit_nums_", 50.0),
            ("mem_cache_hit_bytes_total", (50 * SIZE) as f64),
        ],
    );
    watch.settles("the leases end", &[("snowskin_leased_bytes", 0.0)]);

    for i in 0..50 {
        let missing = client.get(format!("none{i}"), &fresh).unwrap_err();
        assert_eq!(missing.code, Code::ObjectNotFound);
    }
    watch.expect(
        "50 misses",
        &[
            ("master_get_replica_list_requests_total", 50.0),
            ("master_get_replica_list_failures_total", 50.0),
            ("total_get_nums_", 50.0),
        ],
    );

    for i in 90..100 {
        client
            .remove(format!("k{i}"), &RemoveOptions::default())
            .unwrap();
    }
    watch.expect(
        "10 removes",
        &[
            ("master_remove_requests_total", 10.0),
            ("snowskin_removed_total", 10.0),
        ],
    );
    let bytes = (90 * SIZE) as f64;
    watch.settles(
        "10 removes",
        &[
            ("master_key_count", 90.0),
            ("mem_cache_nums_", 90.0),
            ("snowskin_object_bytes", bytes),
            ("snowskin_obligations", 0.0),
        ],
    );

    for i in 0..5 {
        let taken = client
            .put(format!("k{i}"), b"other", &PutOptions::default())
            .unwrap_err();
        assert_eq!(taken.code, Code::ObjectAlreadyExists);
    }
    watch.expect(
        "5 puts of taken keys",
        &[
            ("master_put_start_requests_total", 5.0),
            ("master_put_start_failures_total", 5.0),
            ("snowskin_reserve_exists_total", 5.0),
        ],
    );
    let too_large = vec![1; 65 << 20];
    for i in 0..5 {
        let never = client
            .put(format!("large{i}"), &too_large, &PutOptions::default())
            .unwrap_err();
        assert_eq!(never.code, Code::InvalidParams, "{never}");
    }
    watch.expect(
        "5 puts that never fit",
        &[
            ("master_put_start_requests_total", 5.0),
            ("master_put_start_failures_total", 5.0),
            ("snowskin_reserve_failed_total", 5.0),
        ],
    );
    for i in 0..4 {
        assert_eq!(
            client
                .exists(format!("k{}", 88 + i), &ExistsOptions::default())
                .unwrap(),
            i < 2
        );
    }
    watch.expect(
        "4 existence checks",
        &[
            ("master_exist_key_requests_total", 4.0),
            ("snowskin_exists_items_total", 4.0),
        ],
    );

    // A node goes, with what only it held.
    let stat = client.stat(&Default::default()).unwrap();
    let place = cluster.nodes[1].data.to_string();
    let held: u64 = stat
        .nodes
        .iter()
        .filter(|n| *n.place.address != *place)
        .map(|n| n.replicas)
        .sum();
    assert!(held > 0 && held < 90);
    cluster.nodes[1].process.signal(Signal::TERM);
    assert_eq!(
        cluster.nodes[1].process.wait(Duration::from_secs(5)).code(),
        Some(143)
    );
    let left = [
        ("snowskin_nodes{state=\"alive\"}", 1.0),
        ("master_total_capacity_bytes", capacity / 2.0),
        ("master_key_count", held as f64),
        ("mem_cache_nums_", held as f64),
        ("snowskin_object_bytes", held as f64 * SIZE as f64),
    ];
    watch.settles("a node went", &left);
    watch.expect(
        "a node went",
        &[
            ("snowskin_session_lost_total", 1.0),
            ("snowskin_nodes_left_total", 1.0),
            ("master_unmount_segment_requests_total", 1.0),
        ],
    );
    let gone = format!("segment=\"{place}\"");
    assert!(
        !watch.before.keys().any(|name| name.contains(&gone)),
        "a label of {place}"
    );

    let options = RemoveManyOptions {
        leases: Leases::Override,
        ..RemoveManyOptions::default()
    };
    let swept = client.remove_many(&Filter::All, &options).unwrap();
    assert!(swept.removed >= held, "{swept:?}");
    watch.expect(
        "remove all",
        &[
            ("master_remove_all_requests_total", 1.0),
            ("snowskin_removed_total", swept.removed as f64),
        ],
    );
    let none = [
        ("master_key_count", 0.0),
        ("mem_cache_nums_", 0.0),
        ("snowskin_object_bytes", 0.0),
        ("snowskin_leased_bytes", 0.0),
        ("snowskin_unfinished_puts", 0.0),
        ("snowskin_requests_under_way", 0.0),
        ("snowskin_answers_waiting", 0.0),
        ("master_allocated_bytes", 0.0),
    ];
    watch.settles("remove all", &none);

    // A master that restarts begins to count anew; what is, it learns from the nodes.
    put(&client, 0..10);
    let known = names(&watch.before);
    cluster.master.process.kill();
    cluster.master.restart();
    let mut watch = Watch::new(web);
    let ten = [
        ("master_key_count", 10.0),
        ("mem_cache_nums_", 10.0),
        ("snowskin_object_bytes", (10 * SIZE) as f64),
        ("snowskin_ready", 1.0),
        ("snowskin_unfinished_puts", 0.0),
        ("master_total_capacity_bytes", capacity / 2.0),
    ];
    watch.settles("a restart", &ten);
    assert_eq!(
        names(&http::metrics(web)),
        known,
        "the same metrics as before"
    );
    assert_eq!(http::metrics(web)["total_get_nums_"], 0.0);
    for i in 0..10 {
        let key = format!("k{i}");
        assert!(client.get(&key, &fresh).unwrap() == value(key.as_bytes(), SIZE));
    }
    assert_eq!(http::metrics(web)["valid_get_nums_"], 10.0);
    assert_eq!(
        client.remove_many(&Filter::All, &options).unwrap().removed,
        10
    );
    watch.settles("the end", &none);
    for (name, value) in http::metrics(web) {
        assert!(value >= 0.0, "{name} is {value}");
    }
}

#[test]
fn every_metric_says_what_it_is() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let (status, text) = http::get(cluster.master.http, "/metrics").unwrap();
    assert_eq!(status, 200);
    let described = |word: &str| -> BTreeMap<&str, &str> {
        let lines = text.lines().filter_map(|l| l.strip_prefix(word));
        lines
            .filter_map(|l| l.trim_start().split_once(' '))
            .collect()
    };
    let (help, kinds) = (described("# HELP"), described("# TYPE"));
    let mut seen = 0;
    for line in text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|end| name.strip_suffix(end))
            .find(|f| kinds.get(f) == Some(&"histogram"))
            .unwrap_or(name);
        assert!(
            help.get(family).is_some_and(|h| h.len() > 5),
            "{name}: no help"
        );
        assert!(
            ["counter", "gauge", "histogram"].contains(kinds.get(family).unwrap()),
            "{name}"
        );
        seen += 1;
    }
    assert!(seen > 50);
    for name in [
        "ghost_repaired",
        "checksum_failures",
        "publish_retries",
        "publish_ambiguous",
        "deadline_missed",
        "fenced",
        "retract_refused",
        "put_wait",
        "exists_cap",
        "ssd_torn_records",
        "device_refused",
        "session_lost",
    ] {
        assert!(
            kinds.contains_key(format!("snowskin_{name}_total").as_str()),
            "{name}"
        );
    }
    assert!(kinds.contains_key("snowskin_ssd_state") && kinds.contains_key("snowskin_rss_bytes"));
}
