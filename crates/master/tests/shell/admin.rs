use crate::peer::*;
use crate::start;
use snowskin_types::call::{PutMode, Reply};
use std::collections::HashMap;

#[test]
fn every_metric_has_help_and_type_and_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let _node = Node::fresh(master.rpc().unwrap(), "127.0.0.1:7201");
    let (status, text) = http(master.http().unwrap(), "/metrics");
    assert_eq!(status, 200);
    let mut types = HashMap::new();
    let mut helped = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty(), "{name}");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(
                types.insert(name.to_owned(), kind).is_none(),
                "{name} twice"
            );
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            value.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
            let family = name.split('{').next().unwrap();
            let histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|s| family.strip_suffix(s));
            let known = |f: &str| types.contains_key(f);
            assert!(known(family) || histogram.is_some_and(known), "{line}");
        }
    }
    for name in [
        "master_allocated_bytes",
        "master_total_capacity_bytes",
        "segment_allocated_bytes",
        "segment_total_capacity_bytes",
        "master_key_count",
        "master_soft_pin_key_count",
        "master_active_clients",
        "master_value_size_bytes",
        "master_put_start_requests_total",
        "master_put_start_failures_total",
        "master_put_end_requests_total",
        "master_put_revoke_requests_total",
        "master_get_replica_list_requests_total",
        "master_exist_key_requests_total",
        "master_remove_requests_total",
        "master_remove_by_regex_requests_total",
        "master_remove_all_requests_total",
        "master_mount_segment_requests_total",
        "master_remount_segment_requests_total",
        "master_ping_requests_total",
        "master_batch_exist_key_items_total",
        "master_batch_put_start_partial_successes_total",
        "master_batch_get_replica_list_failed_items_total",
        "master_put_start_alloc_failures_total",
        "mem_cache_hit_nums_",
        "file_cache_hit_nums_",
        "mem_cache_hit_bytes_total",
        "valid_get_nums_",
        "total_get_nums_",
        "master_successful_evictions_total",
        "master_evicted_size_bytes",
        "master_put_start_discard_cnt",
        "snowskin_ghost_repaired_total",
        "snowskin_checksum_failures_total",
        "snowskin_publish_ambiguous_total",
        "snowskin_publish_retries_total",
        "mem_cache_nums_",
        "snowskin_deadline_missed_total",
        "snowskin_fenced_total",
        "snowskin_retract_refused_total",
        "snowskin_exists_cap_total",
        "snowskin_put_wait_total",
        "snowskin_session_lost_total",
        "snowskin_ssd_state",
        "snowskin_rss_bytes",
    ] {
        assert!(types.contains_key(name), "{name} is missing");
    }
    assert!(text.contains("segment_total_capacity_bytes{segment=\"127.0.0.1:7201\"} 1073741824"));
    assert!(metric(&text, "snowskin_rss_bytes") > 1 << 20);
    assert_eq!(metric(&text, "master_active_clients"), 1);
    master.shutdown().unwrap();
}

#[test]
fn counters_move_by_exactly_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let (rpc, web) = (master.rpc().unwrap(), master.http().unwrap());
    let mut node = Node::fresh(rpc, "127.0.0.1:7202");
    let mut client = Peer::client(rpc);
    let expect = |expected: &[(&str, u64)]| {
        let text = http(web, "/metrics").1;
        for (name, value) in expected {
            assert_eq!(metric(&text, name), *value, "{name}");
        }
    };
    let names: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    for key in &names {
        let version = placed(client.call(&reserve(&[key], 8_192, PutMode::IfAbsent)))[0];
        node.publish(key, version, 8_192);
    }
    expect(&[
        ("master_put_start_requests_total", 100),
        ("master_put_start_failures_total", 0),
        ("master_put_end_requests_total", 100),
        ("master_put_end_failures_total", 0),
        ("master_value_size_bytes_count", 100),
        ("master_value_size_bytes_sum", 819_200),
        ("master_key_count", 100),
        ("snowskin_object_bytes", 819_200),
        ("snowskin_unfinished_puts", 0),
    ]);
    for key in &names[..50] {
        client.call(&locate(&[key]));
    }
    for n in 0..50 {
        client.call(&locate(&[&format!("miss{n}")]));
    }
    expect(&[
        ("total_get_nums_", 100),
        ("valid_get_nums_", 50),
        ("mem_cache_hit_nums_", 50),
        ("mem_cache_hit_bytes_total", 50 * 8_192),
        ("master_get_replica_list_requests_total", 100),
        ("master_get_replica_list_failures_total", 50),
    ]);
    // Five puts that are refused: the key is taken.
    for key in &names[..5] {
        client.call(&reserve(&[key], 8_192, PutMode::IfAbsent));
    }
    // Ten removes, and one that a lease refuses.
    for key in &names[60..70] {
        let asked = client.ask(&remove(&[key], false));
        node.retire();
        assert_eq!(client.answer(), (asked, Reply::Removed(vec![Ok(())])));
    }
    client.call(&remove(&[&names[0]], false));
    expect(&[
        ("master_put_start_requests_total", 105),
        ("master_put_start_failures_total", 5),
        ("master_remove_requests_total", 11),
        ("master_remove_failures_total", 1),
        ("snowskin_removed_total", 10),
        ("master_key_count", 90),
        ("master_batch_put_start_requests_total", 0),
    ]);
    // A batch counts once, its items by number.
    client.call(&exists(&["k1", "k2", "nothing"]));
    expect(&[
        ("master_exist_key_requests_total", 0),
        ("master_batch_exist_key_requests_total", 1),
        ("master_batch_exist_key_items_total", 3),
        ("master_batch_exist_key_failed_items_total", 0),
    ]);
    // A node that leaves takes its labels along.
    drop(node);
    wait_for(|| {
        !http(web, "/metrics")
            .1
            .contains("segment=\"127.0.0.1:7202\"")
    });
    expect(&[
        ("master_total_capacity_bytes", 0),
        ("master_allocated_bytes", 0),
    ]);
    master.shutdown().unwrap();
}

#[test]
fn the_routes_answer_in_the_shapes_that_scripts_know() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let (rpc, web) = (master.rpc().unwrap(), master.http().unwrap());
    let mut node = Node::fresh(rpc, "127.0.0.1:7203");
    let mut client = Peer::client(rpc);
    for key in ["plain", "odd/+ \n\u{7f}"] {
        let version = placed(client.call(&reserve(&[key], 100, PutMode::IfAbsent)))[0];
        node.publish(key, version, 100);
    }
    assert_eq!(
        http(web, "/get_all_segments"),
        (200, "127.0.0.1:7203\n".into())
    );
    let (status, body) = http(web, "/query_segment?segment=127.0.0.1:7203");
    assert_eq!((status, body.lines().count()), (200, 3));
    assert!(body.ends_with("\n1073741824\n"), "{body}");
    let unknown = http(web, "/query_segment?segment=nobody");
    assert_eq!(unknown, (500, "Failed to query segment".into()));
    let (status, body) = http(web, "/get_all_keys");
    let mut lines: Vec<_> = body.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        (status, &lines[..]),
        (200, &["odd/+ \\n\\u{7f}", "plain"][..])
    );

    let (status, body) = http(web, "/batch_query_keys?keys=plain,absent");
    assert_eq!(status, 200);
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["data"]["plain"]["ok"], true);
    assert_eq!(json["data"]["plain"]["values"][0]["size_"], 100);
    assert_eq!(json["data"]["absent"]["error"], "OBJECT_NOT_FOUND");
    // Reading grants no lease, asking for the key does.
    let asked = client.ask(&remove(&["plain"], false));
    node.retire();
    assert_eq!(client.answer(), (asked, Reply::Removed(vec![Ok(())])));
    let (status, body) = http(web, "/query_key?key=odd%2F+%20%0A%7F");
    assert_eq!(status, 200, "{body}");
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["data"][0]["transport_endpoint_"], "127.0.0.1:7203");
    let Reply::Removed(items) = client.call(&remove(&["odd/+ \n\u{7f}"], false)) else {
        panic!()
    };
    assert_eq!(items[0].as_ref().unwrap_err().code.number(), -706);

    let (status, body) = http(web, "/query_key?key=absent");
    assert_eq!(status, 404);
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["success"], false);
    assert_eq!(json["error_code"], -704);
    assert_eq!(json["error_message"], "OBJECT_NOT_FOUND");
    assert_eq!(json["error"]["retry"], "never");
    assert_eq!(json["error"]["key"], "absent");
    for bad in [
        "/query_key",
        "/query_key?key=",
        "/query_key?key=%zz",
        "/batch_query_keys?keys=",
    ] {
        let (status, body) = http(web, bad);
        assert_eq!(status, 400, "{bad}");
        assert!(body.contains("-600"), "{body}");
    }
    assert_eq!(http(web, "/nothing"), (404, "404 Not Found".into()));
    master.shutdown().unwrap();
}

#[test]
fn a_long_listing_is_streamed_whole_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let (rpc, web) = (master.rpc().unwrap(), master.http().unwrap());
    let mut node = Node::fresh(rpc, "127.0.0.1:7204");
    let mut client = Peer::client(rpc);
    let names: Vec<String> = (0..3_500).map(|n| format!("key{n:06}")).collect();
    for chunk in names.chunks(500) {
        let list: Vec<&str> = chunk.iter().map(String::as_str).collect();
        let versions = placed(client.call(&reserve(&list, 10, PutMode::IfAbsent)));
        let items = list
            .iter()
            .zip(versions)
            .map(|(key, v)| publish(key, v, 10, false))
            .collect();
        node.batch(items);
    }
    let (status, body) = http(web, "/get_all_keys");
    assert_eq!(status, 200);
    let listed: Vec<&str> = body.lines().collect();
    assert_eq!(listed, names);
    master.shutdown().unwrap();
}
