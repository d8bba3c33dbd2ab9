//! Bytes that are not the protocol, peers that say nothing: processes live, memory stays bounded,
//! counters move, and real clients work meanwhile.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use bytes::BytesMut;
use snowskin_client::{GetOptions, Locations, PutOptions, RemoveOptions};
use snowskin_proto::frame::{self, HEADER_BYTES, Header, Kind};
use snowskin_proto::hello::{Greeting, Hello, Role};
use snowskin_tests::client::{connect, connect_to};
use snowskin_tests::cluster::Cluster;
use snowskin_tests::http;
use snowskin_tests::values::value;
use snowskin_tests::wait;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// A peer may make a process use this much more memory, all attacks of a case together.
const GROWTH_MAX: u64 = 96 * MIB;
/// Puts, gets and removes of each real client beside an attack.
const ROUNDS_MIN: u64 = 20;

fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Sends, though the other side may close at any byte.
fn send(stream: &mut TcpStream, bytes: &[u8]) {
    match stream.write_all(bytes) {
        Ok(()) => {}
        Err(e) => assert!(
            matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
            "{e}"
        ),
    }
}

/// Reads to the end; false when the other side keeps the connection open.
fn ends(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::ConnectionReset => true,
        Err(e) => {
            assert!(
                matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                "{e}"
            );
            false
        }
    }
}

fn hello(role: Role) -> BytesMut {
    let mut out = BytesMut::new();
    frame::put(&mut out, 0, &Hello(Greeting::new(role, 1))).unwrap();
    out
}

fn header(kind: Kind, len: u32) -> [u8; HEADER_BYTES] {
    Header::new(kind, len, 7).to_bytes()
}

/// What ends a connection at once, wherever it is sent.
fn nonsense() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..40u8)
        .map(|i| value(&[i], 16 + usize::from(i) * 997))
        .collect();
    all.push(vec![0xff; 4096]);
    all.push(vec![0; 4096]);
    for kind in [
        Kind::Hello,
        Kind::Request,
        Kind::FromNode,
        Kind::Write,
        Kind::Read,
        Kind::Payload,
    ] {
        for len in [u32::MAX, 1 << 31, 16 << 20, 5000] {
            all.push(header(kind, len).to_vec());
        }
    }
    // A greeting whose body is something else.
    let mut bad = header(Kind::Hello, 64).to_vec();
    bad.extend_from_slice(&value(b"hello", 64));
    all.push(bad);
    all
}

/// Real work in the background of every attack.
fn with_real_clients(cluster: &Cluster, attack: impl FnOnce()) {
    let (stop, address) = (AtomicBool::new(false), cluster.address());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|t| {
                let (stop, address) = (&stop, &address);
                scope.spawn(move || {
                    let client = connect_to(address);
                    let fresh = GetOptions {
                        locations: Locations::Fresh,
                        ..GetOptions::default()
                    };
                    let mut rounds = 0u64;
                    // A short attack is followed by as much work as shows that all is well.
                    while rounds < ROUNDS_MIN || !stop.load(Ordering::SeqCst) {
                        let key = format!("real-{t}-{rounds}");
                        let bytes = value(key.as_bytes(), 20_000);
                        client.put(&key, &bytes, &PutOptions::default()).unwrap();
                        assert!(client.get(&key, &fresh).unwrap() == bytes);
                        let gone = RemoveOptions {
                            leases: snowskin_client::Leases::Override,
                            ..RemoveOptions::default()
                        };
                        client.remove(&key, &gone).unwrap();
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        attack();
        stop.store(true, Ordering::SeqCst);
        for worker in workers {
            println!("{} rounds of real work", worker.join().unwrap());
        }
    });
}

/// Master and nodes as they were before, apart from what memory an allocator keeps.
fn unharmed(cluster: &mut Cluster, before: &[(u64, usize)], attack: impl FnOnce(&Cluster)) {
    with_real_clients(cluster, || attack(cluster));
    let sizes = |c: &Cluster| -> Vec<(u64, usize)> {
        std::iter::once(&c.master.process)
            .chain(c.nodes.iter().map(|n| &n.process))
            .map(|p| (p.rss(), p.files()))
            .collect()
    };
    wait::until("files are as before", Duration::from_secs(20), || {
        sizes(cluster)
            .iter()
            .zip(before)
            .all(|(now, then)| now.1 <= then.1 + 20)
    });
    for (now, then) in sizes(cluster).iter().zip(before) {
        println!(
            "resident {} MiB, before {} MiB; {} files, before {}",
            now.0 / MIB,
            then.0 / MIB,
            now.1,
            then.1
        );
        assert!(now.0 <= then.0 + GROWTH_MAX, "{now:?} {then:?}");
    }
    assert!(cluster.master.process.running());
    assert!(cluster.nodes.iter_mut().all(|n| n.process.running()));
    let logs =
        std::iter::once(&cluster.master.process).chain(cluster.nodes.iter().map(|n| &n.process));
    for log in logs.map(|p| p.stderr()) {
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    }
    let stat = connect(cluster).stat(&Default::default()).unwrap();
    assert_eq!((stat.objects, stat.unfinished), (0, 0));
    assert!(
        stat.nodes
            .iter()
            .all(|n| n.state == snowskin_types::call::NodeState::Alive)
    );
    cluster.assert_rests();
}

/// A small segment, populated, so that memory of objects does not look like growth.
fn cluster() -> (Cluster, Vec<(u64, usize)>) {
    let cluster = Cluster::start(&[], 1, "32MiB");
    let process = &cluster.nodes[0].process;
    wait::until("the segment is populated", Duration::from_secs(10), || {
        process.rss() > 32 * MIB
    });
    let client = connect(&cluster);
    client.put("warm", b"up", &PutOptions::default()).unwrap();
    client.remove("warm", &RemoveOptions::default()).unwrap();
    drop(client);
    let before = std::iter::once(&cluster.master.process)
        .chain(cluster.nodes.iter().map(|n| &n.process))
        .map(|p| (p.rss(), p.files()))
        .collect();
    (cluster, before)
}

#[test]
fn random_bytes_and_huge_lengths_end_the_connection_and_nothing_else() {
    let (mut cluster, before) = cluster();
    let web = cluster.master.http;
    let counted = http::metrics(web)["snowskin_garbage_total"];
    let (rpc, data) = (cluster.master.rpc, cluster.nodes[0].data);
    unharmed(&mut cluster, &before, |_| {
        for port in [rpc, data] {
            for bytes in nonsense() {
                let mut stream = dial(port);
                send(&mut stream, &bytes);
                // A body that never comes is as good as nonsense.
                stream.shutdown(Shutdown::Write).ok();
                assert!(ends(&mut stream), "{:?} keeps {:?}...", port, &bytes[..16]);
            }
            // The same behind a good greeting: the larger bounds of a known peer hold now.
            for role in [Role::Client, Role::Node] {
                for bytes in nonsense() {
                    let mut stream = dial(port);
                    let mut all = hello(role);
                    all.extend_from_slice(&bytes);
                    send(&mut stream, &all);
                    stream.shutdown(Shutdown::Write).ok();
                    assert!(ends(&mut stream), "{:?} keeps {:?}...", port, &bytes[..16]);
                }
            }
        }
    });
    let moved = http::metrics(web)["snowskin_garbage_total"] - counted;
    println!("{moved} times garbage at the master");
    assert!(moved >= 60.0, "{moved}");
}

#[test]
fn a_flood_behind_a_greeting_is_not_buffered() {
    let (mut cluster, before) = cluster();
    let (rpc, data) = (cluster.master.rpc, cluster.nodes[0].data);
    unharmed(&mut cluster, &before, |cluster| {
        // Thirty peers announce the largest frame there is and send all but its last byte, slowly enough
        // to be held: what was announced is not what is reserved.
        let announced: Vec<TcpStream> = [rpc, data]
            .iter()
            .flat_map(|port| {
                (0..30)
                    .map(|_| {
                        let mut stream = dial(*port);
                        send(&mut stream, &hello(Role::Client));
                        send(&mut stream, &header(Kind::Request, 16 << 20));
                        send(&mut stream, &[1; 1000]);
                        stream
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let grown = cluster.master.process.rss().saturating_sub(before[0].0);
        assert!(
            grown < GROWTH_MAX,
            "{} MiB for {} announcements",
            grown / MIB,
            announced.len()
        );
        drop(announced);
        // One that asks without reading the answers.
        let mut deaf = dial(rpc);
        send(&mut deaf, &hello(Role::Client));
        let mut asks = BytesMut::new();
        for id in 1..=20_000 {
            frame::put(&mut asks, id, &snowskin_types::call::Request::Stat).unwrap();
        }
        deaf.set_write_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        // It may be cut off, or stopped by the other side's flow control.
        deaf.write_all(&asks).ok();
        let grown = cluster.master.process.rss().saturating_sub(before[0].0);
        assert!(grown < GROWTH_MAX, "{} MiB for a deaf peer", grown / MIB);
    });
}

#[test]
fn half_open_and_idle_connections_cost_little_and_strangers_are_sent_away() {
    let (mut cluster, before) = cluster();
    let web = cluster.master.http;
    let counted = http::metrics(web)["snowskin_hello_refused_total"];
    let ports = [cluster.master.rpc, cluster.nodes[0].data];
    unharmed(&mut cluster, &before, |cluster| {
        let mut strangers = Vec::new();
        for port in ports {
            for i in 0..500usize {
                let mut stream = dial(port);
                // Nothing, a part of a header, a header without its body.
                let part = header(Kind::Hello, 100);
                send(&mut stream, &part[..(i % 3 * 8).min(HEADER_BYTES)]);
                strangers.push(stream);
            }
        }
        let mut web_strangers: Vec<TcpStream> = (0..500).map(|_| dial(web)).collect();
        for stream in &mut web_strangers {
            send(stream, b"GET /met");
        }
        for (process, then) in [
            (&cluster.master.process, before[0].0),
            (&cluster.nodes[0].process, before[1].0),
        ] {
            let grown = process.rss().saturating_sub(then);
            println!(
                "{} KiB more with 500 to 1000 silent connections, {} threads",
                grown / 1024,
                process.threads()
            );
            assert!(grown < GROWTH_MAX);
            assert!(process.threads() < 64);
        }
        // All of them are closed from the other side.
        for stream in &mut strangers {
            assert!(ends(stream), "a stranger is kept for more than 20 s");
        }
        let mut client = dial(web);
        send(
            &mut client,
            b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        );
        drop(web_strangers);
    });
    let moved = http::metrics(web)["snowskin_hello_refused_total"] - counted;
    assert!(moved >= 490.0, "{moved}");
    assert_eq!(http::get(web, "/livez").unwrap().0, 200);
}

#[test]
fn a_flood_of_strangers_is_counted_and_told_in_a_line_a_second() {
    let (mut cluster, before) = cluster();
    let (web, ports) = (
        cluster.master.http,
        [cluster.master.rpc, cluster.nodes[0].data],
    );
    let counted = http::metrics(web)["snowskin_garbage_total"];
    let start = Instant::now();
    unharmed(&mut cluster, &before, |_| {
        for port in ports {
            for _ in 0..500 {
                let mut stream = dial(port);
                send(&mut stream, &[0xff; 64]);
                assert!(ends(&mut stream));
            }
        }
    });
    let moved = http::metrics(web)["snowskin_garbage_total"] - counted;
    assert!(moved >= 500.0, "{moved}");
    for process in [&cluster.master.process, &cluster.nodes[0].process] {
        let log = process.stderr();
        let told = log.lines().filter(|line| line.contains("WARN")).count();
        assert!(told >= 1, "{log}");
        assert!(told as u64 <= start.elapsed().as_secs() + 1, "{log}");
        assert!(log.lines().count() < told + 10, "{log}");
    }
}

#[test]
fn five_hundred_greeted_connections_are_served_beside_real_clients() {
    let (mut cluster, before) = cluster();
    let ports = [cluster.master.rpc, cluster.nodes[0].data];
    unharmed(&mut cluster, &before, |_| {
        let mut idle = Vec::new();
        for port in ports {
            for _ in 0..500 {
                let mut stream = dial(port);
                send(&mut stream, &hello(Role::Client));
                idle.push(stream);
            }
        }
        for stream in &mut idle {
            let mut welcome = [0; HEADER_BYTES];
            stream.read_exact(&mut welcome).unwrap();
            let welcome = Header::parse(&welcome, 4096).unwrap();
            assert_eq!(welcome.kind, Kind::Welcome);
        }
    });
}

#[test]
fn bad_http_is_answered_or_closed() {
    let (mut cluster, before) = cluster();
    let web = cluster.master.http;
    unharmed(&mut cluster, &before, |_| {
        let mut requests: Vec<Vec<u8>> = (0..20u8)
            .map(|i| value(&[i], 100 + usize::from(i) * 997))
            .collect();
        requests.push(b"GET / HTTP/1.1\r\n\r\n".to_vec());
        requests.push(
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
        );
        requests.push(
            b"GET /query_key?key=%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
        );
        requests.push(
            [
                b"GET /".to_vec(),
                vec![b'a'; 1 << 20],
                b" HTTP/1.1\r\n\r\n".to_vec(),
            ]
            .concat(),
        );
        requests.push(
            [
                b"GET / HTTP/1.1\r\nX: ".to_vec(),
                vec![b'a'; 4 << 20],
                b"\r\n\r\n".to_vec(),
            ]
            .concat(),
        );
        for request in requests {
            let mut stream = dial(web);
            send(&mut stream, &request);
            stream.shutdown(Shutdown::Write).ok();
            assert!(
                ends(&mut stream),
                "{:?} is kept",
                String::from_utf8_lossy(&request[..20.min(request.len())])
            );
        }
        let (status, _) = http::get(web, "/no-such-page").unwrap();
        assert_eq!(status, 404);
    });
}
