use crate::*;
use snowskin_types::call::{Filter, PutMode};
use snowskin_types::{Code, Millis};
use std::path::Path;

fn node(bytes: u64) -> NodeConfig {
    // Where the master is, is set by the shape.
    let mut config = NodeConfig::new(NodeMaster::Remote("127.0.0.1:1".to_owned()), bytes);
    config.data_threads = 2;
    config
}

fn master() -> MasterConfig {
    MasterConfig {
        metrics_port: None,
        rpc_port: 0,
        ..MasterConfig::default()
    }
}

fn embedded(nodes: Vec<NodeConfig>) -> Client {
    Client::embed(&Config::in_process(), &master(), nodes).unwrap()
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + seed * 7 + i / 251) as u8)
        .collect()
}

#[test]
fn an_embedded_pool_serves_without_a_port() {
    let client = embedded(vec![node(64 << 20)]);
    let put = PutOptions::default();
    let get = GetOptions::default();
    for (seed, len) in [1, 4097, 262_144, 3_000_001].into_iter().enumerate() {
        let key = format!("k{len}");
        let data = bytes(len, seed);
        client.put(&key, &data, &put).unwrap();
        assert_eq!(client.get(&key, &get).unwrap(), data);
        let mut part = vec![0; len.div_ceil(2)];
        client
            .get_range_into(&key, (len / 2) as u64, &mut part, &get)
            .unwrap();
        assert_eq!(part, data[len / 2..]);
    }
    assert_eq!(client.exists("none", &ExistsOptions::default()), Ok(false));
    let metrics = client.own_metrics();
    assert_eq!(metrics.len(), 1);
    client.close().unwrap();
    assert_eq!(
        client.get("k1", &get).map_err(|f| f.code),
        Err(Code::UnavailableInStatus)
    );
}

#[test]
fn an_embedded_pool_replaces_removes_and_lists() {
    let mut config = master();
    config.policy.lease_ttl = Millis(1);
    let client = Client::embed(&Config::in_process(), &config, vec![node(32 << 20)]).unwrap();
    let replace = PutOptions {
        mode: PutMode::Replace,
        ..PutOptions::default()
    };
    client.put("k", b"one", &PutOptions::default()).unwrap();
    client.put("k", b"two!", &replace).unwrap();
    assert_eq!(client.get("k", &GetOptions::default()).unwrap(), b"two!");
    let page = client
        .list(&Filter::All, None, 10, &CallOptions::default())
        .unwrap();
    assert_eq!(page.keys.iter().collect::<Vec<_>>(), [b"k"]);
    let force = RemoveOptions {
        leases: Leases::Override,
        ..RemoveOptions::default()
    };
    client.remove("k", &force).unwrap();
    assert_eq!(client.exists("k", &ExistsOptions::default()), Ok(false));
    assert_eq!(client.stat(&CallOptions::default()).unwrap().objects, 0);
}

#[test]
fn an_embedded_pool_keeps_copies_on_several_nodes() {
    let client = embedded(vec![node(32 << 20), node(32 << 20)]);
    assert_eq!(client.own_nodes().len(), 2);
    let two = PutOptions {
        replicas: 2,
        ..PutOptions::default()
    };
    let stored = client.put("k", &bytes(100_000, 1), &two).unwrap();
    assert!(matches!(stored, Stored::Written { replicas: 2, .. }));
    let stat = client
        .stat_object("k", &CallOptions::default())
        .unwrap()
        .unwrap();
    assert_eq!(stat.replicas.len(), 2);
}

#[test]
fn several_embedded_pools_live_in_one_process() {
    let pools: Vec<Client> = (0..3).map(|_| embedded(vec![node(16 << 20)])).collect();
    for (i, pool) in pools.iter().enumerate() {
        pool.put("k", &bytes(1000, i), &PutOptions::default())
            .unwrap();
    }
    for (i, pool) in pools.iter().enumerate() {
        assert_eq!(
            pool.get("k", &GetOptions::default()).unwrap(),
            bytes(1000, i)
        );
    }
}

#[test]
fn a_batch_into_an_embedded_pool_keeps_its_order() {
    let client = embedded(vec![node(64 << 20)]);
    let keys: Vec<String> = (0..500).map(|i| format!("key-{i}")).collect();
    let values: Vec<Vec<u8>> = (0..500).map(|i| bytes(1000 + i, i)).collect();
    let items: Vec<(&String, Source<'_>)> = keys
        .iter()
        .zip(&values)
        .map(|(key, value)| (key, Source::Bytes(value)))
        .collect();
    for stored in client.put_batch(&items, &PutOptions::default()) {
        assert!(matches!(stored, Ok(Stored::Written { .. })), "{stored:?}");
    }
    let got = client.get_batch(&keys, &GetOptions::default());
    for (value, result) in values.iter().zip(got) {
        assert_eq!(result.as_ref(), Ok(value));
    }
}

#[test]
fn a_full_embedded_pool_evicts_for_new_objects() {
    let mut config = master();
    config.policy.lease_ttl = Millis(50);
    let client = Client::embed(&Config::in_process(), &config, vec![node(16 << 20)]).unwrap();
    for i in 0..64 {
        let data = bytes(1 << 20, i);
        client
            .put(format!("k{i}"), &data, &PutOptions::default())
            .unwrap();
    }
    let last = client.get("k63", &GetOptions::default()).unwrap();
    assert_eq!(last, bytes(1 << 20, 63));
}

#[test]
fn an_embedded_pool_without_a_node_or_with_too_much_memory_is_refused() {
    let none = Client::embed(&Config::in_process(), &master(), Vec::new());
    assert_eq!(none.map_err(|f| f.code).err(), Some(Code::InvalidParams));
    let huge = Client::embed(&Config::in_process(), &master(), vec![node(1 << 50)]);
    let failure = huge.err().unwrap();
    assert_eq!(failure.code, Code::InvalidParams);
    assert!(failure.message.contains("segment"), "{failure}");
}

fn master_with_ports(state: &Path) -> snowskin_master::Running {
    let config = MasterConfig {
        state_dir: Some(state.to_owned()),
        ..master()
    };
    snowskin_master::Master::start(&config).unwrap()
}

#[test]
fn joined_nodes_share_one_pool_and_copy_in_memory_at_home() {
    let state = tempfile::tempdir().unwrap();
    let master = master_with_ports(state.path());
    let address = master.rpc().unwrap().to_string();
    let config = Config::new(&address);
    let one = Client::join(&config, node(32 << 20)).unwrap();
    let two = Client::join(&config, node(32 << 20)).unwrap();
    let thin = Client::connect(&config).unwrap();
    for i in 0..20 {
        let data = bytes(50_000 + i, i);
        one.put(format!("k{i}"), &data, &PutOptions::default())
            .unwrap();
    }
    for client in [&one, &two, &thin] {
        for i in 0..20 {
            let got = client.get(format!("k{i}"), &GetOptions::default()).unwrap();
            assert_eq!(got, bytes(50_000 + i, i));
        }
    }
    // Wished to the own node, a put moves no byte over a socket.
    let home = PutOptions {
        preferred: vec![one.own_nodes()[0].node],
        ..PutOptions::default()
    };
    let before = one.own_metrics()[0].counter("local_bytes_in").unwrap();
    one.put("home", &bytes(70_000, 3), &home).unwrap();
    assert_eq!(
        one.own_metrics()[0].counter("local_bytes_in"),
        Some(before + 70_000)
    );
    assert_eq!(
        two.get("home", &GetOptions::default()).unwrap(),
        bytes(70_000, 3)
    );
    one.close().unwrap();
    let gone = thin.get("home", &GetOptions::default());
    assert!(gone.is_err(), "its only owner has left");
    two.close().unwrap();
    master.shutdown().unwrap();
}

#[test]
fn objects_are_found_without_being_read_and_protected_as_by_a_get() {
    let client = embedded(vec![node(32 << 20)]);
    let stored = client.put("k", b"value", &PutOptions::default()).unwrap();
    let Stored::Written { version, .. } = stored else {
        panic!("{stored:?}");
    };
    let found = client.find_batch(&["k", "none"], &ExistsOptions::default());
    let [Ok(found), Err(missing)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((found.version, found.shape.size), (version, 5));
    assert_eq!(found.replicas.len(), 1);
    assert_eq!(found.replicas[0].0, client.own_nodes()[0]);
    assert!(found.lease > Millis(0));
    assert_eq!(missing.code, Code::ObjectNotFound);
    let refused = client.remove("k", &RemoveOptions::default());
    assert_eq!(refused.map_err(|f| f.code), Err(Code::ObjectHasLease));
}

#[test]
fn each_object_of_a_batch_may_be_in_a_group_of_its_own() {
    let client = embedded(vec![node(32 << 20)]);
    let items = ["a", "b", "", "d"].map(|key| (key, Source::Bytes(b"x")));
    let options = PutOptions {
        groups: vec![Some("one".into()), None, Some("lost".into())],
        ..PutOptions::default()
    };
    let stored = client.put_batch(&items, &options);
    assert!(stored[2].is_err(), "an empty key");
    let group_of = |key: &str| {
        let stat = client.stat_object(key, &CallOptions::default()).unwrap();
        stat.unwrap().attributes.group
    };
    assert_eq!(group_of("a").as_deref(), Some("one"));
    assert_eq!((group_of("b"), group_of("d")), (None, None));
}
