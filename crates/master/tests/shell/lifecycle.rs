use crate::peer::*;
use crate::{config, start};
use snowskin_master::{Master, StartError};
use snowskin_types::call::{Existing, Located, PutMode, Reply};
use snowskin_types::id::ClusterId;
use snowskin_types::link::ItemResult;
use std::net::TcpListener;
use std::time::Instant;

#[test]
fn a_restart_keeps_the_cluster_raises_the_term_and_waits_for_known_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let (rpc, cluster, term) = (master.rpc().unwrap(), master.cluster(), master.term());
    assert_eq!(http(master.http().unwrap(), "/readyz").0, 200);
    let mut node = Node::fresh(rpc, "127.0.0.1:7101");
    let mut client = Peer::client(rpc);
    let versions = placed(client.call(&reserve(&["kept", "gone"], 64, PutMode::IfAbsent)));
    node.publish("kept", versions[0], 64);
    node.publish("gone", versions[1], 64);
    let last = node.session;
    drop((node, client));
    master.shutdown().unwrap();

    let master = start(dir.path());
    let (rpc, web) = (master.rpc().unwrap(), master.http().unwrap());
    assert_eq!(master.cluster(), cluster);
    assert!(master.term() > term);
    assert_eq!(http(web, "/readyz").0, 503);
    assert_eq!(http(web, "/livez").0, 200);
    assert!(http(web, "/health").1.contains("\"service_ready\":false"));
    // A look-up of an unknown key waits for the inventory instead of answering 'no'.
    let mut client = Peer::client(rpc);
    let asked = client.ask(&exists(&["kept"]));
    let inventory = vec![publish("kept", versions[0], 64, true)];
    let _node = Node::join(rpc, register("127.0.0.1:7101", 7, last), inventory);
    let (id, reply) = client.answer();
    assert_eq!(id, asked);
    assert!(matches!(reply, Reply::Exists(i) if matches!(i[0], Existing::Yes { .. })));
    assert_eq!(
        client.call(&exists(&["gone"])),
        Reply::Exists(vec![Existing::No])
    );
    assert_eq!(http(web, "/readyz").0, 200);
    let text = http(web, "/metrics").1;
    assert_eq!(metric(&text, "master_remount_segment_requests_total"), 1);
    assert_eq!(metric(&text, "snowskin_term"), u64::from(master.term().0));
    master.shutdown().unwrap();
}

#[test]
fn readyz_turns_without_a_known_node_that_stays_away() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    drop(Node::fresh(master.rpc().unwrap(), "127.0.0.1:7102"));
    master.shutdown().unwrap();
    let master = start(dir.path());
    let begun = Instant::now();
    assert_eq!(http(master.http().unwrap(), "/readyz").0, 503);
    let mut client = Peer::client(master.rpc().unwrap());
    assert_eq!(
        client.call(&exists(&["k"])),
        Reply::Exists(vec![Existing::No])
    );
    assert_eq!(http(master.http().unwrap(), "/readyz").0, 200);
    assert!(begun.elapsed().as_secs() < 3, "{:?}", begun.elapsed());
    master.shutdown().unwrap();
}

/// An object removed while its owner is away does not come back, neither in the same leadership nor
/// in the next one: the mark of the owner is durable.
#[test]
fn what_was_removed_while_its_owner_was_away_stays_removed_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::fresh(rpc, "127.0.0.1:7103");
    let mut client = Peer::client(rpc);
    let version = placed(client.call(&reserve(&["a"], 64, PutMode::IfAbsent)))[0];
    node.publish("a", version, 64);
    let last = node.session;
    drop(node);
    // Answered when the serving lease of the absent owner has run out and its mark is on disk.
    let reply = client.call(&remove(&["a"], true));
    assert_eq!(reply, Reply::Removed(vec![Ok(())]));
    drop(client);
    master.shutdown().unwrap();

    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::join(rpc, register("127.0.0.1:7103", 7, last), vec![]);
    let seq = node.tell(vec![publish("a", version, 64, true)]);
    let refused = loop {
        match node.next() {
            snowskin_types::link::ToNode::Ack {
                seq: s, results, ..
            } if s.0 == seq => break results[0].1,
            _ => {}
        }
    };
    assert_eq!(refused, ItemResult::Refused);
    let mut client = Peer::client(rpc);
    let Reply::Located { items, .. } = client.call(&locate(&["a"])) else {
        panic!()
    };
    assert_eq!(items, [Located::Missing]);
    master.shutdown().unwrap();
}

#[test]
fn a_taken_port_is_named_with_its_option_and_the_term_is_not_raised() {
    let dir = tempfile::tempdir().unwrap();
    let term = {
        let master = start(dir.path());
        let term = master.term();
        master.shutdown().unwrap();
        term
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut rpc_taken = config(dir.path());
    rpc_taken.rpc_port = port;
    let mut web_taken = config(dir.path());
    web_taken.metrics_port = Some(port);
    for (config, option) in [(rpc_taken, "--rpc-port"), (web_taken, "--metrics-port")] {
        let text = Master::start(&config).unwrap_err().to_string();
        assert!(
            text.contains(option) && text.contains(&port.to_string()),
            "{text}"
        );
    }
    let mut elsewhere = config(dir.path());
    elsewhere.rpc_address = "192.0.2.1".into();
    let text = Master::start(&elsewhere).unwrap_err().to_string();
    assert!(text.contains("--rpc-address 192.0.2.1"), "{text}");
    let master = start(dir.path());
    assert_eq!(master.term().0, term.0 + 1);
    master.shutdown().unwrap();
}

#[test]
fn a_second_master_on_the_same_directory_and_a_wrong_cluster_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let error = Master::start(&config(dir.path())).unwrap_err();
    assert!(error.to_string().contains("--state-dir"), "{error}");
    master.shutdown().unwrap();
    let mut other = config(dir.path());
    other.cluster_id = Some(ClusterId(12));
    let error = Master::start(&other).unwrap_err();
    assert!(error.to_string().contains("--cluster-id"), "{error}");
    let mut none = config(dir.path());
    none.state_dir = None;
    assert!(matches!(
        Master::start(&none),
        Err(StartError::Option { .. })
    ));
}

#[test]
fn stopping_answers_what_waits_and_ends_every_thread_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let master = start(dir.path());
    let rpc = master.rpc().unwrap();
    let mut node = Node::fresh(rpc, "127.0.0.1:7104");
    let mut client = Peer::client(rpc);
    let version = placed(client.call(&reserve(&["a"], 64, PutMode::IfAbsent)))[0];
    node.publish("a", version, 64);
    client.ask(&remove(&["a"], true));
    // The order to retire shows that the remove waits.
    assert!(matches!(
        node.next(),
        snowskin_types::link::ToNode::Retire { .. }
    ));
    // A connection that does nothing and one that holds HTTP open.
    let _idle = Peer::stranger(rpc);
    let _web = std::net::TcpStream::connect(master.http().unwrap()).unwrap();
    let begun = Instant::now();
    master.shutdown().unwrap();
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    let reply = client.answer().1;
    assert!(matches!(reply, Reply::Failed(f) if f.message.contains("shutting down")));
    node.peer.ends();
    assert!(std::net::TcpStream::connect(rpc).is_err());
}
