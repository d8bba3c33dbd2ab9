use crate::peer::*;
use crate::{config, start};
use snowskin_master::Master;
use snowskin_proto::frame::{self, Kind};
use snowskin_proto::hello::{Greeting, Hello, Role, Token};
use snowskin_proto::message::{Closing, Message};
use snowskin_types::call::{Existing, Filter, Located, PutMode, Reply, Request};
use snowskin_types::id::{ClusterId, Session};
use snowskin_types::limits::REQUESTS_PER_CONNECTION_MAX;
use snowskin_types::link::{FromNode, NodeItem};
use snowskin_types::{Code, Seq};
use std::io::Write;

#[test]
fn strangers_that_do_not_belong_here_are_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "open sesame\n").unwrap();
    let mut with_token = config(&dir.path().join("state"));
    with_token.token_file = Some(file);
    let master = Master::start(&with_token).unwrap();
    let rpc = master.rpc().unwrap();
    let hello = |role| Greeting::new(role, 1);
    let token = |text: &str| Token::new(text.as_bytes()).unwrap();
    let refused = |greeting| Peer::meet(rpc, greeting).err().unwrap().code;

    assert_eq!(refused(hello(Role::Client)), Code::IllegalClient);
    assert_eq!(
        refused(hello(Role::Client).with_token(token("open sesamE"))),
        Code::IllegalClient
    );
    let good = hello(Role::Client).with_token(token("open sesame"));
    let other = good.clone().with_cluster(Some(ClusterId(1)));
    assert_eq!(refused(other), Code::InvalidVersion);
    let future = Greeting {
        version: 99,
        version_min: 99,
        ..good.clone()
    };
    assert_eq!(refused(future), Code::InvalidVersion);
    let master_role = Greeting {
        role: Role::Master,
        ..good.clone()
    };
    assert_eq!(refused(master_role), Code::InvalidParams);
    assert!(Peer::meet(rpc, good).is_ok());
    let text = http(master.http().unwrap(), "/metrics").1;
    assert_eq!(metric(&text, "snowskin_hello_refused_total"), 5);
    master.shutdown().unwrap();
}

#[test]
fn garbage_is_refused_and_counted_and_the_master_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut told = 0;
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 64],
        // A hello frame that announces more than a stranger may send.
        &[0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let mut peer = Peer::stranger(rpc);
        peer.stream.write_all(bytes).unwrap();
        assert_eq!(peer.read().kind, Kind::Closing);
        peer.ends();
        told += 1;
    }
    // A request before the hello.
    let mut peer = Peer::stranger(rpc);
    peer.send(1, &Request::Stat);
    assert_eq!(peer.read().kind, Kind::Closing);
    peer.ends();
    told += 1;
    // A frame that a client does not send ends its connection, a body that is no request only the call.
    let mut client = Peer::client(rpc);
    let mut out = bytes::BytesMut::new();
    out.extend_from_slice(&frame::Header::new(Kind::Request, 3, 5).to_bytes());
    out.extend_from_slice(&[0xff; 3]);
    client.stream.write_all(&out).unwrap();
    let (id, reply) = client.answer();
    assert_eq!(id, 5);
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::InvalidParams));
    let batch = FromNode::Batch {
        session: Session::default(),
        seq: Seq(1),
        items: vec![NodeItem::InventoryEnd],
    };
    client.send(0, &batch);
    let closing = Closing::from_frame(client.read()).unwrap();
    assert!(closing.0.message.contains("a client"), "{}", closing.0);
    client.ends();
    told += 2;

    assert!(matches!(
        Peer::client(rpc).call(&Request::Stat),
        Reply::Cluster(_)
    ));
    let text = http(master.http().unwrap(), "/metrics").1;
    assert_eq!(metric(&text, "snowskin_garbage_total"), told);
    master.shutdown().unwrap();
}

#[test]
fn requests_pipelined_behind_the_hello_are_answered_in_one_go() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let mut peer = Peer::stranger(master.rpc().unwrap());
    let mut out = bytes::BytesMut::new();
    frame::put(&mut out, 0, &Hello(Greeting::new(Role::Client, 3))).unwrap();
    for id in 1..=50 {
        frame::put(&mut out, id, &exists(&["k"])).unwrap();
    }
    frame::put_empty(&mut out, 51, Kind::Ping);
    peer.stream.write_all(&out).unwrap();
    assert_eq!(peer.read().kind, Kind::Welcome);
    peer.let_in();
    for id in 1..=50 {
        let frame = peer.read();
        assert_eq!((frame.id, frame.kind), (id, Kind::Reply));
        assert_eq!(
            Reply::from_frame(frame).unwrap(),
            Reply::Exists(vec![Existing::No])
        );
    }
    let pong = peer.read();
    assert_eq!((pong.id, pong.kind), (51, Kind::Pong));
    master.shutdown().unwrap();
}

#[test]
fn a_put_becomes_readable_and_a_forced_remove_waits_for_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::fresh(rpc, "127.0.0.1:7001");
    let mut client = Peer::client(rpc);
    let version = placed(client.call(&reserve(&["a"], 4096, PutMode::IfAbsent)))[0];
    assert!(
        matches!(&client.call(&locate(&["a"])), Reply::Located { items, .. } if items[0] == Located::Missing)
    );
    node.publish("a", version, 4096);
    let Reply::Located { places, items } = client.call(&locate(&["a"])) else {
        panic!()
    };
    assert_eq!(&*places[0].address, "127.0.0.1:7001");
    assert!(matches!(&items[0], Located::Found { version: v, .. } if *v == version));
    // Plain removes are refused under the lease just granted.
    let Reply::Removed(items) = client.call(&remove(&["a"], false)) else {
        panic!()
    };
    assert_eq!(items[0].as_ref().unwrap_err().code, Code::ObjectHasLease);
    // The answer to a forced one waits for the owner; other requests of the connection do not.
    let removing = client.ask(&remove(&["a"], true));
    assert_eq!(
        client.call(&exists(&["a"])),
        Reply::Exists(vec![Existing::No])
    );
    node.retire();
    let (id, reply) = client.answer();
    assert_eq!((id, reply), (removing, Reply::Removed(vec![Ok(())])));
    master.shutdown().unwrap();
}

#[test]
fn requests_over_the_bound_of_a_connection_are_refused_and_pings_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::fresh(rpc, "127.0.0.1:7002");
    let mut client = Peer::client(rpc);
    let version = placed(client.call(&reserve(&["a"], 64, PutMode::IfAbsent)))[0];
    node.publish("a", version, 64);
    // The first remove waits for the owner, and all later ones of the key wait behind it or fail at once; the
    // bound counts only what waits.
    let first = client.ask(&remove(&["a"], true));
    let mut refused = 0;
    for _ in 0..2 * REQUESTS_PER_CONNECTION_MAX {
        client.ask(&remove(&["a"], true));
    }
    let mut out = bytes::BytesMut::new();
    frame::put_empty(&mut out, 1, Kind::Ping);
    client.stream.write_all(&out).unwrap();
    let mut answered = 0;
    loop {
        let frame = client.read();
        if frame.kind == Kind::Pong {
            break;
        }
        answered += 1;
        match Reply::from_frame(frame).unwrap() {
            Reply::Failed(f) if f.code == Code::UnavailableInStatus => refused += 1,
            Reply::Removed(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let under_way = 2 * REQUESTS_PER_CONNECTION_MAX + 1 - answered;
    assert!(under_way <= REQUESTS_PER_CONNECTION_MAX, "{under_way}");
    let text = http(master.http().unwrap(), "/metrics").1;
    assert_eq!(metric(&text, "snowskin_excess_requests_total"), refused);
    assert_eq!(
        metric(&text, "snowskin_requests_under_way"),
        under_way as u64
    );
    node.retire();
    let mut ids: Vec<u64> = (0..under_way).map(|_| client.answer().0).collect();
    ids.sort_unstable();
    assert_eq!(ids[0], first);
    master.shutdown().unwrap();
}

#[test]
fn a_client_that_leaves_takes_its_waiting_requests_along() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::fresh(rpc, "127.0.0.1:7003");
    let mut client = Peer::client(rpc);
    let version = placed(client.call(&reserve(&["a"], 64, PutMode::IfAbsent)))[0];
    node.publish("a", version, 64);
    client.ask(&remove(&["a"], true));
    drop(client);
    // The remove goes on: the owner is told, and afterwards nothing waits any more.
    node.retire();
    let web = master.http().unwrap();
    let gone = || metric(&http(web, "/metrics").1, "snowskin_abandoned_total");
    wait_for(|| gone() == 1);
    let text = http(web, "/metrics").1;
    assert_eq!(metric(&text, "snowskin_requests_under_way"), 0);
    assert_eq!(metric(&text, "master_key_count"), 0);
    master.shutdown().unwrap();
}

#[test]
fn a_second_process_on_a_nodes_address_is_refused_while_the_first_answers() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::fresh(rpc, "127.0.0.1:7004");
    let mut second = Peer::meet(rpc, Greeting::new(Role::Node, 5)).unwrap();
    second.send(
        0,
        &FromNode::Register(register("127.0.0.1:7004", 8, Session::default())),
    );
    let refusal = snowskin_types::link::ToNode::from_frame(second.read()).unwrap();
    assert!(
        matches!(refusal, snowskin_types::link::ToNode::Refused { .. }),
        "{refusal:?}"
    );
    second.ends();
    assert_eq!(node.batch(vec![NodeItem::InventoryEnd]).len(), 1);
    let text = http(master.http().unwrap(), "/metrics").1;
    assert_eq!(metric(&text, "master_mount_segment_requests_total"), 2);
    assert_eq!(metric(&text, "master_mount_segment_failures_total"), 1);
    master.shutdown().unwrap();
}

/// A sweep over many keys takes many slices; what comes meanwhile is answered between two of them.
#[test]
fn a_ping_does_not_wait_for_a_sweep_over_all_keys() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::fresh(rpc, "127.0.0.1:7005");
    let mut sweeper = Peer::client(rpc);
    for batch in 0..60 {
        let names: Vec<String> = (0..1_000).map(|n| format!("key-{batch}-{n}")).collect();
        let list: Vec<&str> = names.iter().map(String::as_str).collect();
        let versions = placed(sweeper.call(&reserve(&list, 10, PutMode::IfAbsent)));
        let items = list.iter().zip(versions);
        node.batch(items.map(|(key, v)| publish(key, v, 10, false)).collect());
    }
    let mut other = Peer::client(rpc);
    let sweep = Request::RemoveMany {
        tenant: None,
        filter: Filter::Regex("(x|y)+nothing$".into()),
        force: true,
    };
    let asked = sweeper.ask(&sweep);
    let mut ping = bytes::BytesMut::new();
    frame::put_empty(&mut ping, 9, Kind::Ping);
    other.stream.write_all(&ping).unwrap();
    assert_eq!(other.read().kind, Kind::Pong);
    sweeper.stream.set_nonblocking(true).unwrap();
    let early = std::io::Read::read(&mut sweeper.stream, &mut [0]);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    sweeper.stream.set_nonblocking(false).unwrap();
    let nothing = Reply::RemovedMany {
        removed: 0,
        leased: 0,
    };
    assert_eq!(sweeper.answer(), (asked, nothing));
    master.shutdown().unwrap();
}

#[test]
fn a_publish_sent_again_and_one_told_in_an_inventory_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut old = Node::fresh(rpc, "127.0.0.1:7006");
    let mut new = Node::fresh(rpc, "127.0.0.1:7007");
    let mut client = Peer::client(rpc);
    let first = placed(client.call(&reserve(&["a"], 10, PutMode::IfAbsent)));
    let owner = |client: &mut Peer, version| {
        // Placement is random: whoever was chosen publishes, and the replacing one may be the same.
        let Reply::Object(Some(object)) = client.call(&Request::StatObject {
            tenant: Default::default(),
            key: name("a").key,
        }) else {
            panic!()
        };
        let replica = object
            .replicas
            .iter()
            .find(|r| r.version == version)
            .unwrap();
        replica.place.address.ends_with("7006")
    };
    let first_on_old = owner(&mut client, first[0]);
    if first_on_old { &mut old } else { &mut new }.publish("a", first[0], 10);
    let second = placed(client.call(&reserve(&["a"], 10, PutMode::Replace)));
    let second_on_old = owner(&mut client, second[0]);
    // The answer waits until the owner of the first version has retired it; meanwhile it is sent again.
    let node = if second_on_old { &mut old } else { &mut new };
    node.tell(vec![publish("a", second[0], 10, false)]);
    node.tell(vec![publish("a", second[0], 10, false)]);
    let web = master.http().unwrap();
    wait_for(|| metric(&http(web, "/metrics").1, "snowskin_publish_retries_total") == 1);
    if first_on_old { &mut old } else { &mut new }.retire();
    let text = http(web, "/metrics").1;
    assert_eq!(metric(&text, "snowskin_publish_ambiguous_total"), 0);
    master.shutdown().unwrap();
}
