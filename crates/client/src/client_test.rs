use crate::fake::{FakeMaster, ServedNode, Whim, client_of, config};
use crate::*;
use snowskin_types::call::{Fault, Filter, PutMode, Request};
use snowskin_types::{Code, Failure, Stage};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct World {
    master: Arc<FakeMaster>,
    node: ServedNode,
    client: Client,
}

fn world() -> World {
    let master = Arc::new(FakeMaster::default());
    let node = ServedNode::start(1, &master);
    let client = client_of(&config(), Arc::clone(&master) as _);
    World {
        master,
        node,
        client,
    }
}

fn two_nodes() -> (World, ServedNode) {
    let world = world();
    let second = ServedNode::start(2, &world.master);
    (world, second)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + seed * 7 + i / 251) as u8)
        .collect()
}

fn code<T>(result: Result<T, Failure>) -> Option<Code> {
    result.err().map(|failure| failure.code)
}

fn quick() -> GetOptions {
    GetOptions {
        timeout: Some(Duration::from_millis(150)),
        ..GetOptions::default()
    }
}

#[test]
fn what_was_put_is_read_back_in_every_way() {
    let world = world();
    let client = &world.client;
    let put = PutOptions::default();
    let get = GetOptions::default();
    for (seed, len) in [1, 4096, 262_144, 262_145, 1_500_001]
        .into_iter()
        .enumerate()
    {
        let key = format!("k{len}");
        let data = bytes(len, seed);
        let (head, tail) = data.split_at(len / 3);
        client.put_parts(&key, &[head, tail], &put).unwrap();
        assert_eq!(client.get(&key, &get).unwrap(), data);
        let mut into = vec![0xAA; len + 64];
        assert_eq!(client.get_into(&key, &mut into, &get), Ok(len as u64));
        assert_eq!(into[..len], data);
        assert!(into[len..].iter().all(|b| *b == 0xAA), "canaries");
        let (from, part) = (len / 4, len - len / 2);
        let mut into = vec![0; part];
        client
            .get_range_into(&key, from as u64, &mut into, &get)
            .unwrap();
        assert_eq!(into, data[from..from + part]);
        let mut halves = vec![0; len];
        let (one, two) = halves.split_at_mut(len / 2);
        client
            .get_target(key.as_bytes(), Target::Parts(vec![one, two]), &get)
            .unwrap();
        assert_eq!(halves, data);
        assert_eq!(client.size(&key, &ExistsOptions::default()), Ok(len as u64));
    }
}

#[test]
fn a_buffer_that_is_too_small_is_not_touched() {
    let world = world();
    let client = &world.client;
    client
        .put("k", &bytes(1000, 1), &PutOptions::default())
        .unwrap();
    let mut into = [0xAAu8; 999];
    let result = client.get_into("k", &mut into, &GetOptions::default());
    assert_eq!(code(result), Some(Code::BufferOverflow));
    assert!(into.iter().all(|b| *b == 0xAA));
}

#[test]
fn a_taken_key_is_refused_and_keeps_its_bytes_unless_replaced() {
    let world = world();
    let client = &world.client;
    client.put("k", b"one", &PutOptions::default()).unwrap();
    let again = client.put("k", b"two", &PutOptions::default());
    assert_eq!(code(again), Some(Code::ObjectAlreadyExists));
    assert_eq!(client.get("k", &GetOptions::default()).unwrap(), b"one");
    let replace = PutOptions {
        mode: PutMode::Replace,
        ..PutOptions::default()
    };
    client.put("k", b"three", &replace).unwrap();
    let fresh = GetOptions {
        locations: Locations::Fresh,
        ..GetOptions::default()
    };
    assert_eq!(client.get("k", &fresh).unwrap(), b"three");
}

#[test]
fn bad_values_have_their_codes_and_cost_the_other_items_nothing() {
    let world = world();
    let client = &world.client;
    let long = vec![b'k'; 65_536];
    let keys: [&[u8]; 4] = [b"a", b"", &long, b"b"];
    let sources: Vec<(&[u8], Source<'_>)> = keys
        .iter()
        .map(|key| (*key, Source::Bytes(b"value".as_slice())))
        .collect();
    let stored = client.put_batch(&sources, &PutOptions::default());
    let codes: Vec<_> = stored.into_iter().map(code).collect();
    let expected = [
        None,
        Some(Code::InvalidParams),
        Some(Code::InvalidKey),
        None,
    ];
    assert_eq!(codes, expected);
    let got = client.get_batch(&keys, &GetOptions::default());
    assert_eq!(got.into_iter().map(code).collect::<Vec<_>>(), expected);
    let there = client.exists_batch(&keys, &ExistsOptions::default());
    assert_eq!(there.into_iter().map(code).collect::<Vec<_>>(), expected);
    let gone = client.remove_batch(&keys, &RemoveOptions::default());
    assert_eq!(gone.into_iter().map(code).collect::<Vec<_>>(), expected);
    let empty = client.put("e", b"", &PutOptions::default());
    assert_eq!(code(empty), Some(Code::InvalidParams));
    let none = client.get_range_into("a", 0, &mut [], &GetOptions::default());
    assert_eq!(code(none), Some(Code::InvalidParams));
    let page = client.list(&Filter::All, None, 0, &CallOptions::default());
    assert_eq!(code(page), Some(Code::InvalidParams));
}

#[test]
fn batches_answer_in_the_order_of_their_items() {
    let world = world();
    let client = &world.client;
    let values: Vec<Vec<u8>> = (0..200).map(|i| bytes(100 + i, i)).collect();
    let keys: Vec<String> = (0..200).map(|i| format!("key-{i}")).collect();
    let items: Vec<(&str, Source<'_>)> = keys
        .iter()
        .zip(&values)
        .filter(|(key, _)| !key.ends_with('7'))
        .map(|(key, value)| (key.as_str(), Source::Bytes(value)))
        .collect();
    for stored in client.put_batch(&items, &PutOptions::default()) {
        assert!(matches!(stored, Ok(Stored::Written { replicas: 1, .. })));
    }
    let got = client.get_batch(&keys, &GetOptions::default());
    for ((key, value), result) in keys.iter().zip(&values).zip(got) {
        if key.ends_with('7') {
            assert_eq!(code(result), Some(Code::ObjectNotFound));
        } else {
            assert_eq!(result.as_ref(), Ok(value));
        }
    }
    let there = client.exists_batch(&keys, &ExistsOptions::default());
    for (key, result) in keys.iter().zip(there) {
        let absent = result == Ok(Presence::Absent);
        assert_eq!(absent, key.ends_with('7'), "{key}");
    }
}

#[test]
fn large_batches_are_cut_into_requests_that_fit() {
    let world = world();
    let (client, master) = (&world.client, &world.master);
    let keys: Vec<Vec<u8>> = (0u32..40_000)
        .map(|i| format!("{i:0>300}").into_bytes())
        .collect();
    let there = client.exists_batch(&keys, &ExistsOptions::default());
    assert!(there.iter().all(|r| *r == Ok(Presence::Absent)));
    assert!(master.count(|r| matches!(r, Request::Exists { .. })) >= 3);
    let got = client.get_batch(&keys, &GetOptions::default());
    assert_eq!(got.len(), keys.len());
    assert!(master.count(|r| matches!(r, Request::Locate { .. })) >= 3);
}

#[test]
fn repeated_gets_rest_on_the_lease_and_ask_once() {
    let world = world();
    let (client, master) = (&world.client, &world.master);
    client.put("k", b"value", &PutOptions::default()).unwrap();
    for _ in 0..10 {
        client.get("k", &GetOptions::default()).unwrap();
    }
    assert_eq!(master.count(|r| matches!(r, Request::Locate { .. })), 1);
    assert_eq!(client.counts().locations_used, 9);
    client.remove("k", &RemoveOptions::default()).unwrap();
    assert_eq!(
        code(client.get("k", &GetOptions::default())),
        Some(Code::ObjectNotFound)
    );
}

#[test]
fn a_replica_that_is_gone_is_reported_and_the_get_is_a_miss() {
    let world = world();
    let (client, master, node) = (&world.client, &world.master, &world.node);
    client.put("k", b"value", &PutOptions::default()).unwrap();
    node.drop_all();
    let result = client.get("k", &GetOptions::default());
    assert_eq!(code(result), Some(Code::ObjectNotFound));
    assert_eq!(master.reports(), [Fault::Gone]);
}

#[test]
fn damaged_bytes_are_reported_counted_and_never_returned() {
    let world = world();
    let (client, master, node) = (&world.client, &world.master, &world.node);
    client
        .put("k", &bytes(600_000, 3), &PutOptions::default())
        .unwrap();
    node.damage();
    let mut into = vec![0xAA; 600_000];
    let result = client.get_into("k", &mut into, &GetOptions::default());
    assert_eq!(code(result), Some(Code::ChecksumMismatch));
    assert_eq!(master.reports(), [Fault::Bad]);
    assert_eq!(client.counts().checksum_failures, 1);
}

#[test]
fn the_next_replica_serves_when_the_first_is_damaged() {
    let (world, second) = two_nodes();
    let options = PutOptions {
        replicas: 2,
        ..PutOptions::default()
    };
    let data = bytes(300_000, 5);
    let stored = world.client.put("k", &data, &options).unwrap();
    assert!(matches!(stored, Stored::Written { replicas: 2, .. }));
    let first = world.master.first_replica("k");
    let (damaged, sound) = if first == world.node.place() {
        (&world.node, &second)
    } else {
        (&second, &world.node)
    };
    damaged.damage();
    assert_eq!(world.client.get("k", &GetOptions::default()), Ok(data));
    assert_eq!(world.master.reports(), [Fault::Bad]);
    sound.drop_all();
    let lost = world.client.get("k", &GetOptions::default());
    assert!(lost.is_err());
}

#[test]
fn a_write_whose_answer_was_lost_is_a_success_when_it_was_published() {
    let world = world();
    let (client, node) = (&world.client, &world.node);
    node.on_write(Whim::LieAbout(Code::TransferFail));
    let stored = client.put("k", b"value", &PutOptions::default());
    assert!(matches!(stored, Ok(Stored::Written { .. })), "{stored:?}");
    assert_eq!(client.get("k", &GetOptions::default()).unwrap(), b"value");
}

#[test]
fn a_refused_write_is_placed_on_another_node() {
    let (world, _second) = two_nodes();
    world.node.on_write(Whim::Fail(Code::NoSpace));
    world
        .client
        .put("k", b"value", &PutOptions::default())
        .unwrap();
    assert_eq!(
        world.client.get("k", &GetOptions::default()).unwrap(),
        b"value"
    );
}

#[test]
fn a_put_to_a_node_that_never_publishes_ends_by_its_deadline() {
    let world = world();
    let (client, master, node) = (&world.client, &world.master, &world.node);
    node.on_write(Whim::Hang);
    let options = PutOptions {
        timeout: Some(Duration::from_millis(150)),
        ..PutOptions::default()
    };
    let start = Instant::now();
    let result = client.put("k", b"value", &options);
    let took = start.elapsed();
    assert_eq!(code(result), Some(Code::RpcTimeout));
    assert!((140..400).contains(&took.as_millis()), "{took:?}");
    assert_eq!(master.count(|r| matches!(r, Request::Cancel { .. })), 1);
    assert_eq!(client.counts().deadline_missed, 1);
    assert_eq!(client.counts().deadline_overrun, 0);
}

#[test]
fn a_get_from_a_node_that_never_answers_ends_by_its_deadline_with_a_quiet_buffer() {
    let world = world();
    let (client, node) = (&world.client, &world.node);
    client.put("k", b"value", &PutOptions::default()).unwrap();
    node.on_read(Whim::Hang);
    let mut into = [0xAAu8; 16];
    let start = Instant::now();
    let result = client.get_into("k", &mut into, &quick());
    let took = start.elapsed();
    assert_eq!(code(result), Some(Code::RpcTimeout));
    assert!((140..400).contains(&took.as_millis()), "{took:?}");
    assert_eq!(into, [0xAA; 16]);
}

#[test]
fn bytes_that_change_while_they_are_put_are_not_stored() {
    let world = world();
    let (client, node) = (&world.client, &world.node);
    node.on_write(Whim::Fail(Code::ChecksumMismatch));
    // The only node refused the bytes; it is asked again when there is no other.
    client.put("k", b"value", &PutOptions::default()).unwrap();
    assert_eq!(client.counts().put_stored, 1);
}

#[test]
fn sweeping_calls_and_figures_are_passed_on() {
    let world = world();
    let client = &world.client;
    for i in 0..5 {
        client
            .put(format!("k{i}"), b"v", &PutOptions::default())
            .unwrap();
    }
    let call = CallOptions::default();
    let page = client.list(&Filter::All, None, 3, &call).unwrap();
    assert_eq!((page.keys.len(), page.more), (3, true));
    assert_eq!(client.stat(&call).unwrap().objects, 5);
    assert_eq!(client.stat_object("k1", &call), Ok(None));
    let swept = client
        .remove_many(&Filter::All, &RemoveManyOptions::default())
        .unwrap();
    assert_eq!(swept.removed, 5);
}

#[test]
fn failures_name_the_key() {
    let world = world();
    let (client, master) = (&world.client, &world.master);
    let refused = Failure::new(Code::UnavailableInStatus, Stage::Session, "starting");
    master.failures.lock().push_back(refused.clone());
    let failure = client.get("k", &GetOptions::default()).unwrap_err();
    assert_eq!(failure.key.map(|k| k.to_string()).as_deref(), Some("k"));
    master.failures.lock().push_back(refused);
    let failure = client.remove("k", &RemoveOptions::default()).unwrap_err();
    assert_eq!(failure.key.map(|k| k.to_string()).as_deref(), Some("k"));
}

#[test]
fn a_closed_client_answers_at_once() {
    let world = world();
    let client = &world.client;
    client.close().unwrap();
    client.close().unwrap();
    let put = client.put("k", b"v", &PutOptions::default());
    assert_eq!(code(put), Some(Code::UnavailableInStatus));
    let get = client.get("k", &GetOptions::default());
    assert_eq!(code(get), Some(Code::UnavailableInStatus));
    let stat = client.stat(&CallOptions::default());
    assert_eq!(code(stat), Some(Code::UnavailableInStatus));
}

#[test]
fn many_threads_share_a_client() {
    let world = world();
    let client = &world.client;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for i in 0..50 {
                    let key = format!("{thread}-{i}");
                    let data = bytes(2000 + i, thread);
                    client.put(&key, &data, &PutOptions::default()).unwrap();
                    assert_eq!(client.get(&key, &GetOptions::default()), Ok(data));
                }
            });
        }
    });
    assert_eq!(client.counts().put_stored, 400);
    assert_eq!(client.counts().get_hits, 400);
}

#[test]
fn a_killed_node_fails_its_reads_soon_and_the_other_replica_serves() {
    let (mut world, mut second) = two_nodes();
    let options = PutOptions {
        replicas: 2,
        ..PutOptions::default()
    };
    let data = bytes(100_000, 1);
    world.client.put("two", &data, &options).unwrap();
    let first = world.master.first_replica("two");
    let killed = if first == world.node.place() {
        &mut world.node
    } else {
        &mut second
    };
    killed.kill();
    assert_eq!(world.client.get("two", &GetOptions::default()), Ok(data));
    assert!(world.master.reports().is_empty(), "the master finds out");
    world.node.kill_if_alive();
    second.kill_if_alive();
    let start = Instant::now();
    let result = world.client.get("two", &GetOptions::default());
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(
        code(result),
        Some(Code::TransferFail | Code::RpcFail)
    ));
}

#[test]
fn a_silent_replica_is_left_after_two_seconds_for_the_next() {
    let (world, second) = two_nodes();
    let options = PutOptions {
        replicas: 2,
        ..PutOptions::default()
    };
    world.client.put("k", b"value", &options).unwrap();
    // A listener that takes connections into its queue and never reads from them.
    let silent = snowskin_runtime::net::listen("127.0.0.1:0", "test").unwrap();
    let mut place = second.place();
    place.node = snowskin_types::NodeId(99);
    place.address = silent.local_addr().unwrap().to_string().into();
    world.master.mirror(&place);
    let start = Instant::now();
    let got = world.client.get("k", &GetOptions::default()).unwrap();
    let took = start.elapsed();
    assert_eq!(got, b"value");
    assert!((1_900..3_000).contains(&took.as_millis()), "{took:?}");
}
