//! Nodes that end, in good order or not: what they held is not offered for long.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use rustix::process::Signal;
use snowskin_client::{Client, ExistsOptions, GetOptions, PutOptions};
use snowskin_tests::client::connect;
use snowskin_tests::cluster::Cluster;
use snowskin_tests::values::value;
use snowskin_tests::{http, wait};
use snowskin_types::NodeId;
use std::time::Duration;

const SIZE: usize = 64 << 10;

fn node_id(cluster: &Cluster, index: usize) -> NodeId {
    let text = cluster.nodes[index].ready["node_id"].as_str().unwrap();
    NodeId(u64::from_str_radix(text, 16).unwrap())
}

fn put_at(client: &Client, node: NodeId, key: &str) {
    let options = PutOptions {
        preferred: vec![node],
        ..PutOptions::default()
    };
    let bytes = value(key.as_bytes(), SIZE);
    client.put(key, &bytes, &options).unwrap();
}

fn exists(client: &Client, key: &str) -> bool {
    client.exists(key, &ExistsOptions::default()).unwrap()
}

/// With the usual, long times: only the broken link and the last word can be the reason.
fn two_nodes() -> (Cluster, Client) {
    let cluster = Cluster::start(&[], 2, "64MiB");
    let client = connect(&cluster);
    for i in 0..8 {
        put_at(&client, node_id(&cluster, 0), &format!("leaves-{i}"));
        put_at(&client, node_id(&cluster, 1), &format!("stays-{i}"));
    }
    (cluster, client)
}

fn assert_only_the_stayer_is_left(client: &Client) {
    for i in 0..8 {
        assert!(!exists(client, &format!("leaves-{i}")));
        let key = format!("stays-{i}");
        assert!(exists(client, &key));
        let got = client.get(&key, &GetOptions::default()).unwrap();
        assert_eq!(got, value(key.as_bytes(), SIZE));
    }
}

#[test]
fn what_a_node_held_is_gone_when_it_has_ended_in_good_order() {
    let (mut cluster, client) = two_nodes();
    cluster.nodes[0].process.signal(Signal::TERM);
    cluster.nodes[0].process.wait(Duration::from_secs(5));
    // No time passes: the process ended after the master had taken notice.
    assert_only_the_stayer_is_left(&client);
    let metrics = http::metrics(cluster.master.http);
    assert_eq!(metrics["snowskin_nodes_left_total"], 1.0);
    // Its place is free for the next process at once.
    cluster.nodes[0].restart();
    put_at(&client, node_id(&cluster, 0), "again");
    assert!(exists(&client, "again"));
}

#[test]
fn what_a_killed_node_held_is_hidden_within_two_seconds() {
    let (mut cluster, client) = two_nodes();
    assert!(exists(&client, "leaves-0"));
    cluster.nodes[0].process.kill();
    wait::until("hidden", Duration::from_secs(2), || {
        !exists(&client, "leaves-0")
    });
    assert_only_the_stayer_is_left(&client);
}
