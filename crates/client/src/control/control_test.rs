use crate::fake::{FakeMaster, Mode, Served};
use crate::*;
use snowskin_proto::hello::{Greeting, Role, Token};
use snowskin_runtime::net::{dial_start, listen};
use snowskin_types::call::Request;
use snowskin_types::{Code, Failure};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn served() -> (Arc<FakeMaster>, Served, Client) {
    let master = Arc::new(FakeMaster::default());
    let served = Served::start(&master);
    let client = Client::connect(&served.config()).unwrap();
    (master, served, client)
}

fn call(millis: u64) -> CallOptions {
    CallOptions {
        timeout: Some(Duration::from_millis(millis)),
        ..CallOptions::default()
    }
}

fn exists(millis: u64) -> ExistsOptions {
    ExistsOptions {
        call: call(millis),
        ..ExistsOptions::default()
    }
}

/// Runs something that must end within a time and its slack.
fn within<T>(millis: u64, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(millis + 250), "{took:?}");
    result
}

fn connect(address: &str, millis: u64) -> Result<Client, Failure> {
    let mut config = Config::new(address);
    config.connect_timeout = Duration::from_millis(millis);
    within(millis, || Client::connect(&config))
}

#[test]
fn three_ways_not_to_reach_a_master_are_told_apart_and_set_up_works_later() {
    let free = listen("127.0.0.1:0", "test").unwrap();
    let address = free.local_addr().unwrap();
    let dead = address.to_string();
    drop(free);
    let start = Instant::now();
    let refused = connect(&dead, 700).unwrap_err();
    assert!(
        start.elapsed() >= Duration::from_millis(600),
        "it kept trying"
    );
    assert_eq!(refused.code, Code::RpcFail);
    assert!(refused.message.contains("refuses"), "{refused}");
    let unresolved = connect("no-such-host.invalid:1", 700).unwrap_err();
    assert!(unresolved.message.contains("resolve"), "{unresolved}");
    // A listener whose queue is full drops further attempts, as a black hole does.
    let full = socket_with_full_queue();
    let silent = connect(&full.1, 700).unwrap_err();
    assert_eq!(silent.code, Code::RpcTimeout);
    assert!(silent.message.contains("did not answer"), "{silent}");
    for failure in [&refused, &unresolved, &silent] {
        assert!(failure.peer.is_some(), "{failure}");
    }
    // The same address again, now with a master that comes up while the client is trying.
    let master = Arc::new(FakeMaster::default());
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let connecting = std::thread::spawn(move || {
        tell.send(()).unwrap();
        connect(&dead, 10_000)
    });
    told.recv().unwrap();
    let served = Served::start_at(&master, &address.to_string());
    let up = Instant::now();
    connecting.join().unwrap().unwrap();
    assert!(up.elapsed() < Duration::from_secs(2));
    drop(served);
}

/// A listener that accepts nobody, with its queue full; what is returned keeps it so.
fn socket_with_full_queue() -> (Vec<std::net::TcpStream>, String) {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&full, &any).unwrap();
    listen(&full, 0).unwrap();
    let listener = std::net::TcpListener::from(full);
    let address = listener.local_addr().unwrap();
    let mut streams: Vec<_> = (0..4).map(|_| dial_start(address).unwrap()).collect();
    // The listener has to live as long as the streams; as a stream it is never used.
    streams.push(std::net::TcpStream::from(std::os::fd::OwnedFd::from(
        listener,
    )));
    (streams, address.to_string())
}

#[test]
fn a_master_that_accepts_and_never_answers_is_left_at_the_deadline() {
    let listener = listen("127.0.0.1:0", "test").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let frozen = connect(&address, 500).unwrap_err();
    assert_eq!(frozen.code, Code::RpcTimeout);
    assert!(frozen.message.contains("does not answer"), "{frozen}");
}

#[test]
fn a_call_to_a_frozen_master_ends_at_its_deadline_and_the_next_works() {
    let (_master, served, client) = served();
    served.next(Mode::Frozen);
    let failure = within(200, || client.exists("k", &exists(200))).unwrap_err();
    assert_eq!(failure.code, Code::RpcTimeout);
    assert_eq!(failure.peer.as_deref(), Some(served.address.as_str()));
    assert_eq!(client.exists("k", &exists(5000)), Ok(false));
    let counts = client.counts();
    assert_eq!((counts.deadline_missed, counts.deadline_overrun), (1, 0));
    assert_eq!((counts.session_lost, counts.reconnects), (1, 1));
}

#[test]
fn a_question_whose_answer_was_lost_is_asked_again() {
    let (master, served, client) = served();
    served.next(Mode::CloseAfterRequest);
    assert_eq!(client.exists("k", &exists(5000)), Ok(false));
    assert_eq!(master.count(|r| matches!(r, Request::Exists { .. })), 2);
    assert_eq!(client.counts().requests_repeated, 1);
}

#[test]
fn a_remove_that_was_carried_out_twice_is_a_success() {
    let (master, served, client) = served();
    let node = fake::ServedNode::start(1, &master);
    client.put("k", b"value", &PutOptions::default()).unwrap();
    served.next(Mode::CloseAfterRequest);
    client.remove("k", &RemoveOptions::default()).unwrap();
    let again = client.remove("k", &RemoveOptions::default());
    assert_eq!(again.map_err(|f| f.code), Err(Code::ObjectNotFound));
    drop(node);
}

#[test]
fn a_reservation_is_never_sent_twice_over_one_call_but_the_put_succeeds() {
    let (master, served, client) = served();
    let node = fake::ServedNode::start(1, &master);
    served.next(Mode::CloseAfterRequest);
    let stored = client.put("k", b"value", &PutOptions::default());
    assert!(matches!(stored, Ok(Stored::Written { .. })), "{stored:?}");
    assert_eq!(client.counts().requests_repeated, 0);
    drop(node);
}

#[test]
fn answers_that_are_no_frames_are_not_believed() {
    let (_master, served, client) = served();
    served.next(Mode::Garbage);
    assert_eq!(client.exists("k", &exists(5000)), Ok(false));
    assert_eq!(client.counts().session_lost, 1);
}

#[test]
fn a_killed_master_that_returns_on_its_port_is_found_again_by_calls_under_way() {
    let (master, served, client) = served();
    let address = served.address.clone();
    assert_eq!(client.exists("k", &exists(5000)), Ok(false));
    drop(served);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let asking = std::thread::spawn({
        let client = client.clone();
        move || {
            tell.send(()).unwrap();
            client.exists("k", &exists(5000))
        }
    });
    told.recv().unwrap();
    let _again = Served::start_at(&master, &address);
    assert_eq!(asking.join().unwrap(), Ok(false));
    assert!(client.counts().reconnects >= 1);
}

#[test]
fn calls_without_a_master_fail_by_their_deadline() {
    let (_master, served, client) = served();
    drop(served);
    let failure = within(300, || client.stat(&call(300))).unwrap_err();
    assert_eq!(failure.code, Code::RpcFail);
    let get = GetOptions {
        timeout: Some(Duration::from_millis(300)),
        ..GetOptions::default()
    };
    within(300, || client.get("k", &get)).unwrap_err();
    within(450, || {
        let put = PutOptions {
            timeout: Some(Duration::from_millis(300)),
            ..PutOptions::default()
        };
        client.put("k", b"v", &put)
    })
    .unwrap_err();
}

#[test]
fn connections_are_shared_and_bounded() {
    let (_master, served, client) = served();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(client.exists("k", &exists(5000)), Ok(false));
                }
            });
        }
    });
    assert!(served.connections() <= 8, "{}", served.connections());
    assert_eq!(client.counts().session_lost, 0);
}

#[test]
fn another_cluster_or_token_is_refused_at_once() {
    let (_master, served, _client) = served();
    let token = Token::new(b"secret").unwrap();
    served.greet_with(Greeting::new(Role::Master, 1).with_token(token.clone()));
    let refused = within(500, || Client::connect(&served.config())).unwrap_err();
    assert_eq!(refused.code, Code::IllegalClient);
    let mut config = served.config();
    config.token = token;
    Client::connect(&config).unwrap();
}

#[test]
fn closing_ends_calls_under_way() {
    let (_master, served, client) = served();
    served.next(Mode::Frozen);
    let asking = std::thread::spawn({
        let client = client.clone();
        move || client.exists("k", &exists(20_000))
    });
    served.wait_for_requests(1);
    within(1000, || {
        client.close().unwrap();
        asking.join().unwrap().unwrap_err();
    });
}

#[test]
fn settings_that_cannot_work_are_named() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::new("127.0.0.1:1");
        change(&mut config);
        let failure = config.check().unwrap_err();
        assert_eq!(failure.code, Code::InvalidParams);
        failure.message
    };
    assert!(refused(&|c| c.master = "nowhere".into()).contains("nowhere"));
    assert!(refused(&|c| c.master = "host:0".into()).contains("host:0"));
    assert!(refused(&|c| c.connect_timeout = Duration::ZERO).contains("connect_timeout"));
    assert!(refused(&|c| c.control_connections_max = 9).contains("control_connections_max"));
    assert!(refused(&|c| c.locations_max = usize::MAX).contains("locations_max"));
    Config::new("[::1]:50051").check().unwrap();
}
