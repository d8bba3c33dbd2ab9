//! The session with the master: start, refusals, reconnects, the serving lease, the end.

mod script;

use script::{
    Script, ScriptedMaster, bytes, config, read_request, soon, stamp_now, until, write_request,
};
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_node::{Config, Master, Node, StartError};
use snowskin_proto::hello::{Greeting, Role, Token};
use snowskin_types::link::{FromNode, NodeItem, ToNode};
use snowskin_types::{ClusterId, Code, Failure, Millis, NodeId, Stage};
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn a_node_registers_what_it_is_and_is_ready_then() {
    let master = ScriptedMaster::start(Script::default());
    let node = Node::start(Config {
        host_id: "rack7".into(),
        ..config(&master)
    })
    .unwrap();
    let register = master.register(1);
    assert_eq!(register.node, node.node_id());
    assert_eq!(register.node, NodeId::from_address(node.advertised()));
    assert_eq!(register.epoch, node.epoch());
    assert_eq!(&*register.address, node.advertised());
    assert_eq!(&*register.host, "rack7");
    assert_eq!(register.capacity, 16 << 20);
    assert_eq!(node.session().unwrap().term, script::TERM);
    assert_eq!(node.cluster(), Some(ClusterId(9)));
    assert_eq!(node.data_address().unwrap().to_string(), node.advertised());
    master.item(|item| *item == NodeItem::InventoryEnd);
    let metrics = node.metrics();
    assert!(metrics.is_serving && metrics.resident_bytes > 0);
    assert_eq!(metrics.capacity_bytes, 16 << 20);
    node.shutdown().unwrap();
}

#[test]
fn the_same_port_is_the_same_node_in_a_later_life() {
    let master = ScriptedMaster::start(Script::default());
    let first = Node::start(config(&master)).unwrap();
    let (id, epoch) = (first.node_id(), first.epoch());
    let address = first.data_address().unwrap().to_string();
    first.shutdown().unwrap();
    let again = Config {
        data_address: address,
        ..config(&master)
    };
    let second = Node::start(again).unwrap();
    assert_eq!(second.node_id(), id);
    assert!(second.epoch() > epoch);
}

#[test]
fn each_way_not_to_reach_a_master_has_its_own_error_within_the_limit() {
    let limit = Duration::from_millis(2_500);
    let start = |master: String| {
        let begun = Instant::now();
        let error = Node::start(Config {
            ready_timeout: limit,
            ..Config::new(Master::Remote(master), 1 << 20)
        })
        .unwrap_err();
        (error, begun.elapsed())
    };
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (error, took) = start(dead.to_string());
    assert!(matches!(
        error,
        StartError::Unreachable { attempts: 2.., .. }
    ));
    assert!(
        error.to_string().contains("refuses the connection"),
        "{error}"
    );
    assert!((limit..limit * 2).contains(&took), "{took:?}");

    let (error, took) = start("no-such-host.invalid:1".into());
    assert!(error.to_string().contains("resolve"), "{error}");
    assert!(took < limit * 2, "{took:?}");

    let mute = ScriptedMaster::start(Script {
        mute: true,
        ..Script::default()
    });
    let (error, _) = start(mute.address.to_string());
    assert!(matches!(error, StartError::NoMaster { .. }), "{error:?}");
    assert!(error.to_string().contains("is it a master?"), "{error}");

    let node = ScriptedMaster::start(Script {
        greeting: Greeting::new(Role::Node, 1),
        ..Script::default()
    });
    let (error, _) = start(node.address.to_string());
    assert!(
        error.to_string().contains("a node's data server"),
        "{error}"
    );

    let (error, took) = start("nonsense".into());
    assert!(error.to_string().contains("--master"), "{error}");
    assert!(took < limit, "{took:?}");
}

#[test]
fn a_master_that_comes_up_later_is_found() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let starting = std::thread::spawn(move || {
        Node::start(Config::new(Master::Remote(address.to_string()), 1 << 20))
    });
    let master = ScriptedMaster::on(TcpListener::bind(address).unwrap(), Script::default());
    let node = starting.join().unwrap().unwrap();
    assert_eq!(master.register(1).node, node.node_id());
}

#[test]
fn a_wrong_token_ends_the_start_at_once_with_the_masters_words() {
    let token = Token::new(b"secret").unwrap();
    let master = ScriptedMaster::start(Script {
        greeting: Greeting::new(Role::Master, 1).with_token(token.clone()),
        ..Script::default()
    });
    let begun = Instant::now();
    let error = Node::start(config(&master)).unwrap_err();
    assert!(
        matches!(&error, StartError::Refused { failure, .. } if failure.code == Code::IllegalClient)
    );
    assert!(error.to_string().contains("token"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    Node::start(Config {
        token,
        ..config(&master)
    })
    .unwrap();
}

#[test]
fn a_refused_registration_is_tried_again_only_when_the_master_says_so() {
    let failure = |text: &str| Failure::new(Code::SegmentAlreadyExists, Stage::Session, text);
    let master = ScriptedMaster::start(Script {
        refuse: Some((failure("another cluster's node"), false)),
        ..Script::default()
    });
    let error = Node::start(config(&master)).unwrap_err();
    assert!(
        error.to_string().contains("another cluster's node"),
        "{error}"
    );
    master.change(|script| script.refuse = Some((failure("still there"), true)));
    let starting = std::thread::spawn({
        let config = config(&master);
        move || Node::start(config)
    });
    master.register(4);
    master.change(|script| script.refuse = None);
    starting.join().unwrap().unwrap();
}

#[test]
fn a_taken_data_port_and_a_segment_beyond_the_limits_are_named() {
    let master = ScriptedMaster::start(Script::default());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Node::start(Config {
        data_address: address.to_string(),
        ..config(&master)
    })
    .unwrap_err()
    .to_string();
    let port = address.port().to_string();
    assert!(
        error.contains("--data-address") && error.contains(&port),
        "{error}"
    );
    let error = Node::start(Config {
        segment_size: 1 << 43,
        ..config(&master)
    })
    .unwrap_err();
    assert!(matches!(error, StartError::Limit(_)), "{error:?}");
    assert!(error.to_string().contains("--segment-size"), "{error}");
    let error = Node::start(Config {
        segment_size: 0,
        ..config(&master)
    })
    .unwrap_err();
    assert!(matches!(error, StartError::Option { .. }), "{error:?}");
}

#[test]
fn a_lost_link_is_opened_anew_and_the_content_told_again() {
    let master = ScriptedMaster::start(Script::default());
    let node = Node::start(config(&master)).unwrap();
    let handle = node.handle();
    let data = bytes(300_000, 1);
    let request = write_request(node.epoch(), "k", 1, &data);
    handle
        .write(&request, &mut SourceSlices::of(&data), soon())
        .unwrap();
    assert!(master.hello(1).cluster.is_none());
    master.forget_messages();
    master.cut();
    let register = master.register(2);
    assert_eq!((register.epoch, register.holds), (node.epoch(), 1));
    assert_eq!(register.last_session.n, 1);
    assert_eq!(master.hello(2).cluster, Some(ClusterId(9)));
    let told = master.item(|item| matches!(item, NodeItem::Publish { .. }));
    assert!(matches!(
        told,
        NodeItem::Publish {
            acked: true,
            inventory: true,
            ..
        }
    ));
    until("a session again", || {
        node.session().is_some_and(|s| s.n == 2)
    });
}

#[test]
fn a_frozen_master_ends_the_service_with_the_serving_lease() {
    let master = ScriptedMaster::start(Script {
        serving: Millis(400),
        ..Script::default()
    });
    let node = Node::start(config(&master)).unwrap();
    let handle = node.handle();
    let data = bytes(5_000, 2);
    let read = || {
        let mut got = vec![0; data.len()];
        let request = read_request(node.epoch(), "k", 1);
        handle.read(&request, &mut TargetSlices::of(&mut got), soon())
    };
    let request = write_request(node.epoch(), "k", 1, &data);
    handle
        .write(&request, &mut SourceSlices::of(&data), soon())
        .unwrap();
    // The master says nothing more, but its connection stays open.
    until("the lease ends", || {
        read().is_err_and(|failure| failure.code == Code::UnavailableInStatus)
    });
    assert!(!node.metrics().is_serving && node.session().is_some());
    let stamp = stamp_now();
    master.send(|session| ToNode::Ping {
        session,
        nonce: 1,
        confirmed: stamp,
    });
    master.message(|message| matches!(message, FromNode::Pong { nonce: 1, .. }));
    read().unwrap();
}

#[test]
fn shutdown_joins_everything_while_others_wait() {
    let master = ScriptedMaster::start(Script {
        acks: false,
        ..Script::default()
    });
    let node = Node::start(config(&master)).unwrap();
    let (handle, epoch) = (node.handle(), node.epoch());
    let waiting = std::thread::spawn({
        let handle = handle.clone();
        move || {
            let data = bytes(100, 3);
            let request = write_request(epoch, "never-published", 1, &data);
            handle.write(&request, &mut SourceSlices::of(&data), soon())
        }
    });
    master.item(|item| matches!(item, NodeItem::Publish { .. }));
    let begun = Instant::now();
    node.shutdown().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    let failure = waiting.join().unwrap().unwrap_err();
    assert_eq!(failure.code, Code::UnavailableInStatus);
    let mut got = vec![0; 100];
    let request = read_request(epoch, "never-published", 1);
    let failure = handle
        .read(&request, &mut TargetSlices::of(&mut got), soon())
        .unwrap_err();
    assert_eq!(failure.code, Code::UnavailableInStatus);
}

#[test]
fn an_abandoned_start_ends_soon() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = port.local_addr().unwrap().to_string();
    drop(port);
    let config = Config {
        ready_timeout: Duration::from_secs(60),
        ..Config::new(Master::Remote(dead), 1 << 20)
    };
    let abandon = config.abandon.clone();
    let starting = std::thread::spawn(|| Node::start(config));
    abandon.cancel();
    let begun = Instant::now();
    let error = starting.join().unwrap().unwrap_err();
    assert!(matches!(error, StartError::Abandoned), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(4));
}
