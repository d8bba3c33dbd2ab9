//! Set-up: masters that are not there, ports that are taken (cases T20, T21, and T24's dead and wrong addresses).
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_client::{Client, Config};
use snowskin_tests::calls::{get, put};
use snowskin_tests::client::connect_to;
use snowskin_tests::cluster::{Master, Node, SHORT};
use snowskin_tests::process::run;
use snowskin_tests::values::value;
use snowskin_tests::wait;
use snowskin_types::{Code, Failure};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

fn within(master: &str, timeout: Duration) -> Config {
    let mut config = Config::new(master);
    config.connect_timeout = timeout;
    config.metadata_timeout = timeout;
    config
}

/// An address at which nothing listens.
fn dead() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[track_caller]
fn fails_at_three_seconds(master: &str) -> Failure {
    let start = Instant::now();
    let Err(failure) = Client::connect(&within(master, Duration::from_secs(3))) else {
        panic!("connected to {master}");
    };
    let took = start.elapsed().as_secs_f64();
    assert!((2.5..3.5).contains(&took), "{took}: {failure}");
    assert!(
        matches!(failure.code, Code::RpcFail | Code::RpcTimeout),
        "{failure}"
    );
    assert!(failure.to_string().contains(master), "{failure}");
    failure
}

/// T20, T24.
#[test]
fn dead_silent_and_unknown_masters_are_told_apart_at_the_deadline() {
    let dead = dead().to_string();
    // Accepted by the system, answered by nobody.
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let hole = (hole.local_addr().unwrap().to_string(), hole);
    let unknown = "no-such-host.invalid:50051";
    let mut told = BTreeSet::new();
    for (address, word) in [
        (dead.as_str(), "refuse"),
        (hole.0.as_str(), "answer"),
        (unknown, "resolve"),
    ] {
        // Set-up can be called again after a failure.
        for _ in 0..2 {
            let failure = fails_at_three_seconds(address);
            assert!(failure.message.contains(word), "{failure}");
        }
        told.insert(word);
        let master = format!("--master={address}");
        for arguments in [
            &["exists", "k", &master, "--timeout=3s"][..],
            &["node", &master, "--segment-size=64MiB", "--timeout=3s"],
        ] {
            let start = Instant::now();
            let output = run(arguments);
            let took = start.elapsed().as_secs_f64();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(4), "{text}");
            assert!((2.5..3.75).contains(&took), "{took}: {text}");
            let last = text.lines().last().unwrap();
            assert!(last.contains(address), "{text}");
            // A node says of a silent master that it says nothing.
            assert!(
                last.contains(word) || (word == "answer" && last.contains("says nothing")),
                "{text}"
            );
        }
    }
    assert_eq!(told.len(), 3);
}

/// T20.
#[test]
fn a_client_waits_for_a_master_that_starts_later() {
    let mut master = Master::start(SHORT);
    let address = master.address();
    master.process.kill();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let config = within(&address, Duration::from_secs(20));
            Client::connect(&config).map(|client| (client, Instant::now()))
        });
        wait::pass(Duration::from_secs(8));
        assert!(!client.is_finished());
        master.restart();
        let up = Instant::now();
        let (client, connected) = client.join().unwrap().unwrap();
        let late = connected.saturating_duration_since(up);
        assert!(late < Duration::from_secs(2), "{late:?}");
        assert!(client.stat(&Default::default()).is_ok());
    });
}

/// T24.
#[test]
fn wrong_addresses_are_refused_at_once_or_named_at_the_deadline() {
    for wrong in [
        "",
        "nowhere",
        "host:",
        "host:0",
        "host:99999",
        "http://h:1/x:y",
    ] {
        let start = Instant::now();
        let Err(failure) = Client::connect(&within(wrong, Duration::from_secs(3))) else {
            panic!("connected to {wrong:?}");
        };
        assert_eq!(failure.code, Code::InvalidParams, "{wrong:?}: {failure}");
        assert!(start.elapsed() < Duration::from_millis(500));
        let output = run(&["exists", "k", &format!("--master={wrong}"), "--timeout=3s"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {text}");
    }
    // A port that speaks something else: the master's HTTP server, and a node.
    let master = Master::start(SHORT);
    let node = Node::start(&master.address(), "64MiB", &[]);
    for other in [master.http, node.data] {
        let start = Instant::now();
        let Err(failure) = Client::connect(&within(&other.to_string(), Duration::from_secs(3)))
        else {
            panic!("connected to {other}");
        };
        assert!(start.elapsed() < Duration::from_millis(3500), "{failure}");
        assert!(
            failure.to_string().contains(&other.to_string()),
            "{failure}"
        );
    }
    // They took no harm.
    let client = connect_to(&master.address());
    client.put("k", b"bytes", &put()).unwrap();
    assert_eq!(client.get("k", &get()).unwrap(), b"bytes");
}

/// T21.
#[test]
fn a_taken_port_is_named_with_its_option() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let master = Master::start(SHORT);
    let state = tempfile::tempdir().unwrap();
    let state = format!("--state-dir={}", state.path().display());
    let local = ["--rpc-address=127.0.0.1", "--metrics-host=127.0.0.1"];
    let cases = [
        (
            vec![
                "master".into(),
                local[0].into(),
                local[1].into(),
                format!("--rpc-port={}", master.rpc.port()),
                "--metrics-port=0".into(),
                state.clone(),
            ],
            "--rpc-port",
            master.rpc.port(),
        ),
        (
            vec![
                "master".into(),
                local[0].into(),
                local[1].into(),
                "--rpc-port=0".into(),
                format!("--metrics-port={port}"),
                state,
            ],
            "--metrics-port",
            port,
        ),
        (
            vec![
                "node".into(),
                format!("--master={}", master.address()),
                "--segment-size=64MiB".into(),
                format!("--data-address=127.0.0.1:{port}"),
            ],
            "--data-address",
            port,
        ),
    ];
    for (arguments, option, port) in cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let start = Instant::now();
        let output = run(&arguments);
        assert!(start.elapsed() < Duration::from_secs(3));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap();
        assert!(
            last.contains(option) && last.contains(&port.to_string()),
            "{text}"
        );
        assert!(output.stdout.is_empty(), "no ready line");
    }
}

/// T21.
#[test]
fn thirty_two_nodes_at_once_find_ports_of_their_own() {
    let master = Master::start(SHORT);
    let address = master.address();
    let nodes: Vec<Node> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..32)
            .map(|_| scope.spawn(|| Node::start(&address, "16MiB", &[])))
            .collect();
        starts.into_iter().map(|s| s.join().unwrap()).collect()
    });
    let client = connect_to(&address);
    let stat = client.stat(&Default::default()).unwrap();
    let listed: BTreeSet<String> = stat
        .nodes
        .iter()
        .map(|n| n.place.address.to_string())
        .collect();
    assert_eq!(listed.len(), 32);
    for node in &nodes {
        assert!(listed.contains(&node.data.to_string()));
        assert!(
            listening(node.process.pid()).contains(&node.data.port()),
            "{} does not listen",
            node.data
        );
    }
    for i in 0..320 {
        let key = format!("k{i}");
        let bytes = value(key.as_bytes(), 10_000);
        client.put(&key, &bytes, &put()).unwrap();
        assert!(client.get(&key, &get()).unwrap() == bytes);
    }
    let stat = client.stat(&Default::default()).unwrap();
    assert!(stat.nodes.iter().filter(|n| n.replicas > 0).count() > 24);
}

/// Ports on which a process listens (IPv4).
fn listening(pid: u32) -> BTreeSet<u16> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let sockets: BTreeSet<String> = folder
        .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
        .filter_map(|link| {
            let link = link.to_string_lossy().into_owned();
            let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let lines = table.lines().skip(1);
    lines
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (_, port) = fields[1].split_once(':')?;
            // State 0A is 'listening'.
            let mine = fields[3] == "0A" && sockets.contains(fields[9]);
            mine.then(|| u16::from_str_radix(port, 16).unwrap())
        })
        .collect()
}
