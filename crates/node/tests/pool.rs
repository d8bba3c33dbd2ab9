//! Nodes with the real master: over loopback, and in the same process.

mod script;

use script::{bytes, soon, until};
use snowskin_master as master;
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_node::{
    Config, Handle, LinkSink, Listening, LocalLink, LocalMaster, Master, Node, Population,
};
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::call::{Keys, Located, Reply, Request, Reserve, Reserved};
use snowskin_types::checksum::PieceSums;
use snowskin_types::link::FromNode;
use snowskin_types::object::{Attributes, Place, Shape};
use snowskin_types::{ClientId, Code, Failure, Key, Millis, ObjectName, Tenant, Version};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
struct Local(master::Handle);

struct Link(master::NodeLink);

impl LocalMaster for Local {
    fn open(&self, sink: LinkSink) -> Box<dyn LocalLink> {
        Box::new(Link(self.0.node_link_into(sink)))
    }
}

impl LocalLink for Link {
    fn send(&self, message: FromNode) -> bool {
        self.0.send(message).is_ok()
    }
}

fn node_config(master: Master) -> Config {
    Config {
        population: Population::OnUse,
        ..Config::new(master, 32 << 20)
    }
}

fn call(master: &master::Handle, request: Request) -> Reply {
    master.call(request, Instant::now() + Duration::from_secs(10))
}

fn keys(key: &str) -> Keys {
    let mut keys = Keys::new();
    keys.push(key.as_bytes()).expect("a good key");
    keys
}

fn reserve(master: &master::Handle, key: &str, size: u64) -> Option<(Place, Version)> {
    let request = Request::Reserve {
        client: ClientId(1),
        tenant: Tenant::default(),
        keys: keys(key),
        items: vec![Reserve {
            size,
            replicas: 1,
            ..Reserve::default()
        }],
    };
    match call(master, request) {
        Reply::Reserved { places, items } => match items.first()? {
            Reserved::Placed {
                version,
                places: at,
            } => Some((places.get(usize::from(*at.first()?))?.clone(), *version)),
            _ => None,
        },
        other => panic!("{other:?}"),
    }
}

fn locate(master: &master::Handle, key: &str) -> Option<(Place, Version, Shape)> {
    let request = Request::Locate {
        tenant: Tenant::default(),
        keys: keys(key),
        lease: Some(Millis(1)),
    };
    match call(master, request) {
        Reply::Located { places, items } => match items.first()? {
            Located::Found {
                version,
                shape,
                replicas,
                ..
            } => {
                let place = places.get(usize::from(replicas.first()?.place))?;
                Some((place.clone(), *version, *shape))
            }
            _ => None,
        },
        other => panic!("{other:?}"),
    }
}

fn remove(master: &master::Handle, key: &str) {
    let request = Request::Remove {
        tenant: Tenant::default(),
        keys: keys(key),
        force: true,
    };
    assert_eq!(call(master, request), Reply::Removed(vec![Ok(())]));
}

fn name(key: &str) -> ObjectName {
    ObjectName::new(
        Tenant::default(),
        Key::new(key.as_bytes()).expect("a good key"),
    )
}

fn put(master: &master::Handle, node: &Handle, key: &str, data: &[u8]) -> Result<(), Failure> {
    let (place, version) = reserve(master, key, data.len() as u64).expect("a placement");
    assert!(node.is(&place));
    let request = WriteRequest {
        epoch: place.epoch,
        name: name(key),
        version,
        size: data.len() as u64,
        sums: PieceSums::of(data),
        attributes: Attributes::default(),
        patience: Millis(5_000),
    };
    node.write(&request, &mut SourceSlices::of(data), soon())
}

fn get(
    node: &Handle,
    key: &str,
    (place, version, shape): &(Place, Version, Shape),
) -> Result<Vec<u8>, Failure> {
    let mut got = vec![0; usize::try_from(shape.size).expect("it fits")];
    let request = ReadRequest {
        epoch: place.epoch,
        name: name(key),
        version: *version,
        offset: 0,
        len: u64::MAX,
    };
    let done = node.read(&request, &mut TargetSlices::of(&mut got), soon())?;
    assert_eq!(done.shape, Some(*shape));
    Ok(got)
}

/// A master and a node of this process, without ports.
#[expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]
fn embedded() -> (master::Running, snowskin_node::Running) {
    let master = master::Master::embedded(&master::Config::default()).unwrap();
    let local = Master::InProcess(Arc::new(Local(master.handle())));
    let node = Node::start(Config {
        listening: Listening::None,
        ..node_config(local)
    })
    .unwrap();
    (master, node)
}

#[test]
fn a_pool_in_one_process_needs_no_port() {
    let (master, node) = embedded();
    assert_eq!(node.data_address(), None);
    let (directory, handle) = (master.handle(), node.handle());
    for n in 0..200 {
        let key = format!("k{n}");
        let data = bytes(1 + n * 700, n as u64);
        put(&directory, &handle, &key, &data).unwrap();
        let found = locate(&directory, &key).unwrap();
        assert_eq!(get(&handle, &key, &found).unwrap(), data);
    }
    let found = locate(&directory, "k7").unwrap();
    remove(&directory, "k7");
    assert_eq!(locate(&directory, "k7"), None);
    assert_eq!(
        get(&handle, "k7", &found).unwrap_err().code,
        Code::ReplicaGone
    );
    assert_eq!(node.metrics().replicas, 199);
    // A master that stops ends the session, not the node.
    master.shutdown().unwrap();
    until("the session ends", || node.session().is_none());
    node.shutdown().unwrap();
}

#[test]
fn objects_outlive_a_restart_of_the_master_on_its_port() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = master::Config {
        rpc_port: port,
        metrics_port: None,
        state_dir: Some(dir.path().to_owned()),
        ..master::Config::default()
    };
    let first = master::Master::start(&config).unwrap();
    let node = Node::start(node_config(Master::Remote(format!("127.0.0.1:{port}")))).unwrap();
    let handle = node.handle();
    let term = node.session().unwrap().term;
    let data = bytes(1_000_000, 1);
    put(&first.handle(), &handle, "kept", &data).unwrap();
    put(&first.handle(), &handle, "removed", &data).unwrap();
    remove(&first.handle(), "removed");
    let found = locate(&first.handle(), "kept").unwrap();
    first.shutdown().unwrap();
    until("the session ends", || node.session().is_none());
    // The serving lease runs on, so do reads.
    assert_eq!(get(&handle, "kept", &found).unwrap(), data);
    let second = master::Master::start(&config).unwrap();
    until("a session of a later term", || {
        node.session().is_some_and(|s| s.term > term)
    });
    let again = locate(&second.handle(), "kept").unwrap();
    assert_eq!((&again.0, again.1), (&found.0, found.1));
    assert_eq!(get(&handle, "kept", &again).unwrap(), data);
    assert_eq!(locate(&second.handle(), "removed"), None);
    put(&second.handle(), &handle, "new", &data).unwrap();
    assert_eq!(node.metrics().replicas, 2);
}

#[test]
fn two_processes_may_not_advertise_one_address() {
    let dir = tempfile::tempdir().unwrap();
    let master = master::Master::start(&master::Config {
        rpc_port: 0,
        metrics_port: None,
        state_dir: Some(dir.path().to_owned()),
        ..master::Config::default()
    })
    .unwrap();
    let address = master.rpc().unwrap().to_string();
    let config = |_| Config {
        advertise: Some("localhost:7777".into()),
        ready_timeout: Duration::from_millis(700),
        ..node_config(Master::Remote(address.clone()))
    };
    let _first = Node::start(config(1)).unwrap();
    let error = Node::start(config(2)).unwrap_err().to_string();
    assert!(
        error.contains("another live process") && error.contains("localhost:7777"),
        "{error}"
    );
}

#[test]
#[ignore = "a measurement: run it with --ignored --nocapture"]
fn measure_puts_and_gets_in_one_process() {
    let (master, node) = embedded();
    let (directory, handle) = (master.handle(), node.handle());
    let data = bytes(16 << 10, 1);
    let rounds = 1000u32;
    let begun = Instant::now();
    for n in 0..rounds {
        put(&directory, &handle, &format!("k{n}"), &data).unwrap();
    }
    let puts = begun.elapsed() / rounds;
    let begun = Instant::now();
    for n in 0..rounds {
        let key = format!("k{n}");
        let found = locate(&directory, &key).unwrap();
        get(&handle, &key, &found).unwrap();
    }
    println!("put {puts:?}, get {:?}", begun.elapsed() / rounds);
}
