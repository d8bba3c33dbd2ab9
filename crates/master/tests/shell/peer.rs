//! A scripted peer: raw frames, a client, a node. Every wait ends at the socket's time-out.

use bytes::BytesMut;
use snowskin_proto::blocking::FrameReader;
use snowskin_proto::frame::{self, Frame, Kind};
use snowskin_proto::hello::{Greeting, Hello, Role, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_types::call::{Keys, PutMode, Reply, Request, Reserve, Reserved};
use snowskin_types::id::{ClientId, Epoch, NodeId, Seq, Session};
use snowskin_types::link::{FromNode, ItemResult, NodeItem, Register, Stamp, ToNode};
use snowskin_types::object::{Attributes, Shape, Tier};
use snowskin_types::{Failure, Key, ObjectName, Tenant, Version};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything the tests wait for.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Peer {
    pub stream: TcpStream,
    reader: FrameReader,
    next: u64,
}

impl Peer {
    /// Connects and says nothing.
    pub fn stranger(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer {
            stream,
            reader: FrameReader::new(),
            next: 1,
        }
    }

    pub fn send<M: Message>(&mut self, id: u64, message: &M) {
        let mut out = BytesMut::new();
        frame::put(&mut out, id, message).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    pub fn read(&mut self) -> Frame {
        self.reader.read(&mut self.stream).unwrap()
    }

    /// Reads until the other side closes; fails when it does not.
    pub fn ends(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
        }
    }

    /// Takes all kinds of frames from now on.
    pub fn let_in(&mut self) {
        self.reader.open();
    }

    /// Introduces itself; the reason when it is refused.
    pub fn meet(address: SocketAddr, greeting: Greeting) -> Result<Peer, Failure> {
        let mut peer = Peer::stranger(address);
        peer.send(0, &Hello(greeting));
        let frame = peer.read();
        if frame.kind == Kind::Closing {
            let failure = Closing::from_frame(frame).unwrap().0;
            peer.ends();
            return Err(failure);
        }
        let welcome = Welcome::from_frame(frame).unwrap();
        assert_eq!(welcome.0.role, Role::Master);
        assert!(welcome.0.cluster.is_some());
        peer.reader.open();
        Ok(peer)
    }

    pub fn client(address: SocketAddr) -> Peer {
        Peer::meet(address, Greeting::new(Role::Client, 11)).unwrap()
    }

    pub fn ask(&mut self, request: &Request) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(id, request);
        id
    }

    pub fn answer(&mut self) -> (u64, Reply) {
        let frame = self.read();
        (frame.id, Reply::from_frame(frame).unwrap())
    }

    pub fn call(&mut self, request: &Request) -> Reply {
        let asked = self.ask(request);
        let (id, reply) = self.answer();
        assert_eq!(id, asked);
        reply
    }
}

pub fn keys(list: &[&str]) -> Keys {
    let mut keys = Keys::new();
    for key in list {
        keys.push(key.as_bytes()).unwrap();
    }
    keys
}

pub fn reserve(list: &[&str], size: u64, mode: PutMode) -> Request {
    Request::Reserve {
        client: ClientId(1),
        tenant: Tenant::default(),
        keys: keys(list),
        items: list
            .iter()
            .map(|_| Reserve {
                size,
                mode,
                replicas: 1,
                ..Reserve::default()
            })
            .collect(),
    }
}

pub fn locate(list: &[&str]) -> Request {
    Request::Locate {
        tenant: Tenant::default(),
        keys: keys(list),
        lease: None,
    }
}

pub fn exists(list: &[&str]) -> Request {
    Request::Exists {
        tenant: Tenant::default(),
        keys: keys(list),
        lease: None,
    }
}

pub fn remove(list: &[&str], force: bool) -> Request {
    Request::Remove {
        tenant: Tenant::default(),
        keys: keys(list),
        force,
    }
}

pub fn name(key: &str) -> ObjectName {
    ObjectName::new(Tenant::default(), Key::new(key.as_bytes()).unwrap())
}

pub fn placed(reply: Reply) -> Vec<Version> {
    let Reply::Reserved { items, .. } = reply else {
        panic!("{reply:?}")
    };
    let version = |item| match item {
        Reserved::Placed { version, .. } => version,
        other => panic!("{other:?}"),
    };
    items.into_iter().map(version).collect()
}

/// What a node says of itself.
pub fn register(address: &str, epoch: u64, last: Session) -> Register {
    Register {
        node: NodeId::from_address(address),
        epoch: Epoch(epoch),
        address: address.into(),
        host: "test".into(),
        capacity: 1 << 30,
        largest: 1 << 30,
        cluster: None,
        last_session: last,
        holds: 0,
        stamp: Stamp(1),
    }
}

/// A scripted node with a registered session.
pub struct Node {
    pub peer: Peer,
    pub session: Session,
    seq: u64,
    used: u64,
}

impl Node {
    /// Registers and tells an inventory.
    pub fn join(master: SocketAddr, register: Register, inventory: Vec<NodeItem>) -> Node {
        let peer = Peer::meet(master, Greeting::new(Role::Node, 22)).unwrap();
        let mut node = Node {
            peer,
            session: Session::default(),
            seq: 0,
            used: 0,
        };
        node.peer.send(0, &FromNode::Register(register));
        match node.next() {
            ToNode::Registered { session, .. } => node.session = session,
            other => panic!("{other:?}"),
        }
        if !inventory.is_empty() {
            node.batch(inventory);
        }
        node.batch(vec![NodeItem::InventoryEnd]);
        node
    }

    pub fn fresh(master: SocketAddr, address: &str) -> Node {
        Node::join(master, register(address, 7, Session::default()), vec![])
    }

    /// The next message that is not a ping; pings are answered.
    pub fn next(&mut self) -> ToNode {
        loop {
            match ToNode::from_frame(self.peer.read()).unwrap() {
                ToNode::Ping { session, nonce, .. } => self.pong(session, nonce),
                other => return other,
            }
        }
    }

    fn pong(&mut self, session: Session, nonce: u64) {
        let pong = FromNode::Pong {
            session,
            nonce,
            stamp: Stamp(2),
            used: self.used,
            largest_free: 1 << 29,
            policy: None,
            figures: None,
        };
        self.peer.send(0, &pong);
    }

    pub fn tell(&mut self, items: Vec<NodeItem>) -> u64 {
        self.seq += 1;
        let batch = FromNode::Batch {
            session: self.session,
            seq: Seq(self.seq),
            items,
        };
        self.peer.send(0, &batch);
        self.seq
    }

    /// Tells and waits until every item has its last answer.
    pub fn batch(&mut self, items: Vec<NodeItem>) -> Vec<ItemResult> {
        let mut results = vec![ItemResult::Pending; items.len()];
        let seq = self.tell(items);
        while results.contains(&ItemResult::Pending) {
            match self.next() {
                ToNode::Ack {
                    seq: acked,
                    results: some,
                    ..
                } if acked == Seq(seq) => {
                    for (index, result) in some {
                        results[index as usize] = result;
                    }
                }
                ToNode::Ack { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        results
    }

    pub fn publish(&mut self, key: &str, version: Version, size: u64) {
        self.used += size;
        let results = self.batch(vec![publish(key, version, size, false)]);
        assert_eq!(results, [ItemResult::Ok]);
    }

    /// Obeys the next order to retire.
    pub fn retire(&mut self) {
        let items = loop {
            match self.next() {
                ToNode::Retire { items, .. } => break items,
                ToNode::Ack { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        let absent = |(name, version)| NodeItem::Absent { name, version };
        self.tell(items.into_iter().map(absent).collect());
    }
}

pub fn publish(key: &str, version: Version, size: u64, inventory: bool) -> NodeItem {
    NodeItem::Publish {
        name: name(key),
        version,
        shape: Shape { size, checksum: 5 },
        tier: Tier::Dram,
        attributes: Attributes::default(),
        acked: inventory,
        inventory,
    }
}

/// One HTTP request: status and body.
pub fn http(address: SocketAddr, target: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {target} HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Value of a metric without labels.
pub fn metric(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no metric {name}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Looks again and again until it holds; each look is a request of its own, so nothing spins.
pub fn wait_for(mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            std::time::Instant::now() < deadline,
            "it does not come to hold"
        );
    }
}
