//! What the directory costs: resident bytes per entry at a million keys.
//!
//! The master is a real process. The entries come over a real node link, from a scripted node that tells
//! an inventory: what is measured is the directory, not the bytes of objects.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use bytes::BytesMut;
use snowskin_client::ExistsOptions;
use snowskin_proto::blocking::FrameReader;
use snowskin_proto::frame;
use snowskin_proto::hello::{Greeting, Hello, Role, Welcome};
use snowskin_proto::message::Message;
use snowskin_tests::client::connect_to;
use snowskin_tests::cluster::Master;
use snowskin_tests::http;
use snowskin_types::id::{Epoch, NodeId, Seq, Session, Term};
use snowskin_types::limits::{NODE_BATCH_ITEMS_MAX, NODE_BATCHES_IN_FLIGHT_MAX};
use snowskin_types::link::{FromNode, ItemResult, NodeItem, Register, Stamp, ToNode};
use snowskin_types::object::{Attributes, Shape, Tier};
use snowskin_types::{Key, ObjectName, Tenant, Version};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const KEYS: usize = 1_000_000;
const KEY_BYTES: usize = 160;
const BYTES_PER_ENTRY_MAX: u64 = 250;
const SIZE: u64 = 4096;

fn key(i: usize) -> Vec<u8> {
    let mut key = format!("model-a/layer-17/{i:032x}/").into_bytes();
    key.resize(KEY_BYTES, b'x');
    key
}

/// A node that is nothing but its link.
struct Scripted {
    stream: TcpStream,
    reader: FrameReader,
    session: Session,
    seq: u64,
    /// Items that have not had their last answer.
    open: usize,
}

impl Scripted {
    fn send<M: Message>(&mut self, message: &M) {
        let mut out = BytesMut::new();
        frame::put(&mut out, 0, message).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    fn join(master: SocketAddr) -> Self {
        let stream = TcpStream::connect(master).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        let mut node = Scripted {
            stream,
            reader: FrameReader::new(),
            session: Session::default(),
            seq: 0,
            open: 0,
        };
        node.send(&Hello(Greeting::new(Role::Node, 5)));
        let frame = node.reader.read(&mut node.stream).unwrap();
        Welcome::from_frame(frame).unwrap();
        node.reader.open();
        let address = "127.0.0.1:9";
        node.send(&FromNode::Register(Register {
            node: NodeId::from_address(address),
            epoch: Epoch(1),
            address: address.into(),
            host: "scripted".into(),
            capacity: 1 << 40,
            largest: 1 << 40,
            cluster: None,
            last_session: Session::default(),
            holds: KEYS as u64,
            stamp: Stamp(1),
        }));
        while node.session == Session::default() {
            node.take();
        }
        node
    }

    /// Takes one message.
    fn take(&mut self) {
        let frame = self.reader.read(&mut self.stream).unwrap();
        match ToNode::from_frame(frame).unwrap() {
            ToNode::Registered { session, .. } => self.session = session,
            ToNode::Ping { session, nonce, .. } => self.send(&FromNode::Pong {
                session,
                nonce,
                stamp: Stamp(2),
                used: 0,
                largest_free: 1 << 39,
                policy: None,
                figures: None,
            }),
            ToNode::Ack { results, .. } => {
                for (_, result) in results {
                    match result {
                        ItemResult::Pending => {}
                        ItemResult::Ok => self.open -= 1,
                        other => panic!("{other:?}"),
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn tell(&mut self, items: Vec<NodeItem>) {
        while self.open > NODE_BATCH_ITEMS_MAX * (NODE_BATCHES_IN_FLIGHT_MAX - 1) {
            self.take();
        }
        self.seq += 1;
        self.open += items.len();
        let (session, seq) = (self.session, Seq(self.seq));
        self.send(&FromNode::Batch {
            session,
            seq,
            items,
        });
    }

    fn settle(&mut self) {
        while self.open > 0 {
            self.take();
        }
    }
}

fn item(i: usize) -> NodeItem {
    NodeItem::Publish {
        name: ObjectName::new(Tenant::default(), Key::new(&key(i)).unwrap()),
        version: Version::new(Term(1), i as u64 + 1).unwrap(),
        shape: Shape {
            size: SIZE,
            checksum: i as u64,
        },
        tier: Tier::Dram,
        attributes: Attributes::default(),
        acked: true,
        inventory: true,
    }
}

#[test]
fn an_entry_of_the_directory_costs_little_beyond_its_key() {
    let master = Master::start(&[]);
    let mut node = Scripted::join(master.rpc);
    let empty = master.process.rss();
    let start = Instant::now();
    for first in (0..KEYS).step_by(NODE_BATCH_ITEMS_MAX) {
        let last = (first + NODE_BATCH_ITEMS_MAX).min(KEYS);
        node.tell((first..last).map(item).collect());
    }
    node.tell(vec![NodeItem::InventoryEnd]);
    node.settle();
    let took = start.elapsed();

    let client = connect_to(&master.address());
    let stat = client.stat(&Default::default()).unwrap();
    assert_eq!(
        (stat.objects, stat.bytes),
        (KEYS as u64, KEYS as u64 * SIZE)
    );
    let some: Vec<Vec<u8>> = (0..KEYS).step_by(KEYS / 100).map(key).collect();
    for result in client.exists_batch(&some, &ExistsOptions::default()) {
        assert!(matches!(
            result.unwrap(),
            snowskin_client::Presence::Here { size: SIZE, .. }
        ));
    }
    let full = master.process.rss();
    let per_entry = (full - empty) / KEYS as u64;
    println!(
        "{per_entry} bytes per entry with keys of {KEY_BYTES} bytes: {} MiB, empty {} MiB; told in {took:.1?}",
        full >> 20,
        empty >> 20
    );
    assert!(
        per_entry <= BYTES_PER_ENTRY_MAX,
        "{per_entry} bytes per entry"
    );
    // The metric says the same as the system does.
    let told = http::metrics(master.http)["snowskin_rss_bytes"];
    assert!((told - full as f64).abs() < 32e6, "{told} {full}");
}
