//! A scripted master on loopback, raw data connections, and small helpers.
#![allow(dead_code, reason = "each test file uses its part")]

use bytes::BytesMut;
use snowskin_node::{Config, Master, Population};
use snowskin_proto::blocking::{FrameReader, FrameWriter};
use snowskin_proto::frame::{Frame, Header, Kind, put};
use snowskin_proto::hello::{Greeting, Hello, Role, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::checksum::PieceSums;
use snowskin_types::link::{FromNode, ItemResult, NodeItem, Register, Stamp, ToNode};
use snowskin_types::object::Attributes;
use snowskin_types::policy::ClusterPolicy;
use snowskin_types::{
    ClusterId, Epoch, Failure, Key, Millis, Now, ObjectName, Session, Tenant, Term, Version,
};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);
pub const TERM: Term = Term(7);

/// How the master behaves.
#[derive(Clone)]
pub struct Script {
    pub greeting: Greeting,
    pub serving: Millis,
    /// Refuses registrations: (failure, retry).
    pub refuse: Option<(Failure, bool)>,
    /// Answers batches.
    pub acks: bool,
    /// Says nothing at all after the connection.
    pub mute: bool,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            greeting: Greeting::new(Role::Master, 1).with_cluster(Some(ClusterId(9))),
            serving: Millis(60_000),
            refuse: None,
            acks: true,
            mute: false,
        }
    }
}

#[derive(Default)]
struct Log {
    hellos: Vec<Greeting>,
    registers: Vec<Register>,
    messages: Vec<FromNode>,
    live: Option<(TcpStream, Session)>,
    sockets: Vec<TcpStream>,
    sessions: u64,
    stopped: bool,
}

struct Shared {
    script: Mutex<Script>,
    log: Mutex<Log>,
    changed: Condvar,
}

pub struct ScriptedMaster {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ScriptedMaster {
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        Self::on(listener, script)
    }

    pub fn on(listener: TcpListener, script: Script) -> Self {
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            log: Mutex::new(Log::default()),
            changed: Condvar::new(),
        });
        let own = shared.clone();
        let acceptor = std::thread::spawn(move || {
            let mut connections = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                let mut log = own.log.lock().expect("the log");
                if log.stopped {
                    break;
                }
                log.sockets.push(stream.try_clone().expect("a clone"));
                drop(log);
                let own = own.clone();
                connections.push(std::thread::spawn(move || {
                    // A connection ends as it likes.
                    own.connection(&stream).ok();
                    stream.shutdown(Shutdown::Both).ok();
                }));
            }
            for connection in connections {
                connection.join().expect("no panic");
            }
        });
        ScriptedMaster {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    pub fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.shared.script.lock().expect("the script"));
    }

    /// Sends to the node that registered last.
    pub fn send(&self, make: impl FnOnce(Session) -> ToNode) {
        let log = self.shared.log.lock().expect("the log");
        let (stream, session) = log.live.as_ref().expect("a session");
        let mut out = BytesMut::new();
        put(&mut out, 0, &make(*session)).expect("a small message");
        let mut stream = stream;
        stream.write_all(&out).expect("sent");
    }

    /// Breaks all connections.
    pub fn cut(&self) {
        let log = self.shared.log.lock().expect("the log");
        for socket in &log.sockets {
            socket.shutdown(Shutdown::Both).ok();
        }
    }

    fn wait<T>(&self, mut look: impl FnMut(&Log) -> Option<T>) -> T {
        let mut log = self.shared.log.lock().expect("the log");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(&log) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it did not come: {:?}", log.messages);
            log = self
                .shared
                .changed
                .wait_timeout(log, left)
                .expect("the log")
                .0;
        }
    }

    /// Waits for the n-th registration, counted from 1.
    pub fn register(&self, n: usize) -> Register {
        self.wait(|log| log.registers.get(n - 1).cloned())
    }

    pub fn hello(&self, n: usize) -> Greeting {
        self.wait(|log| log.hellos.get(n - 1).cloned())
    }

    /// Waits for an item of any batch.
    pub fn item(&self, mut wanted: impl FnMut(&NodeItem) -> bool) -> NodeItem {
        self.wait(|log| {
            log.messages.iter().find_map(|message| match message {
                FromNode::Batch { items, .. } => items.iter().find(|i| wanted(i)).cloned(),
                _ => None,
            })
        })
    }

    pub fn message(&self, mut wanted: impl FnMut(&FromNode) -> bool) -> FromNode {
        self.wait(|log| log.messages.iter().find(|m| wanted(m)).cloned())
    }

    pub fn forget_messages(&self) {
        self.shared.log.lock().expect("the log").messages.clear();
    }
}

impl Drop for ScriptedMaster {
    fn drop(&mut self) {
        self.shared.log.lock().expect("the log").stopped = true;
        self.cut();
        TcpStream::connect(self.address).ok();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().expect("no panic");
        }
    }
}

impl Shared {
    fn connection(&self, stream: &TcpStream) -> io::Result<()> {
        let mut read = stream.try_clone()?;
        let mut write = stream.try_clone()?;
        let mut reader = FrameReader::new();
        let mut writer = FrameWriter::new();
        let script = self.script.lock().expect("the script").clone();
        if script.mute {
            loop {
                reader.read(&mut read)?;
            }
        }
        let Hello(hello) = Hello::from_frame(reader.read(&mut read)?).map_err(io::Error::other)?;
        let refused = script.greeting.meet(&hello).err();
        self.note(|log| log.hellos.push(hello));
        if let Some(failure) = refused {
            put(writer.buffer(), 0, &Closing(failure)).map_err(io::Error::other)?;
            return writer.flush(&mut write);
        }
        reader.open();
        put(writer.buffer(), 0, &Welcome(script.greeting.clone())).map_err(io::Error::other)?;
        writer.flush(&mut write)?;
        loop {
            let frame = reader.read(&mut read)?;
            if frame.kind != Kind::FromNode {
                continue;
            }
            let message = FromNode::from_frame(frame).map_err(io::Error::other)?;
            let script = self.script.lock().expect("the script").clone();
            let answer = match &message {
                FromNode::Register(register) => Some(self.registered(&script, register, stream)?),
                FromNode::Batch {
                    session,
                    seq,
                    items,
                } if script.acks => Some(ToNode::Ack {
                    session: *session,
                    seq: *seq,
                    results: (0..).zip(items).map(|(i, _)| (i, ItemResult::Ok)).collect(),
                }),
                _ => None,
            };
            self.note(|log| {
                if let FromNode::Register(register) = &message {
                    log.registers.push(register.clone());
                }
                log.messages.push(message);
            });
            if let Some(answer) = answer {
                put(writer.buffer(), 0, &answer).map_err(io::Error::other)?;
                writer.flush(&mut write)?;
            }
        }
    }

    fn registered(
        &self,
        script: &Script,
        register: &Register,
        stream: &TcpStream,
    ) -> io::Result<ToNode> {
        if let Some((failure, retry)) = script.refuse.clone() {
            return Ok(ToNode::Refused { failure, retry });
        }
        let mut log = self.log.lock().expect("the log");
        log.sessions += 1;
        let session = Session {
            term: TERM,
            n: log.sessions,
        };
        log.live = Some((stream.try_clone()?, session));
        Ok(ToNode::Registered {
            session,
            cluster: ClusterId(9),
            stamp: register.stamp,
            serving: script.serving,
            policy: ClusterPolicy::default(),
        })
    }

    fn note(&self, note: impl FnOnce(&mut Log)) {
        note(&mut self.log.lock().expect("the log"));
        self.changed.notify_all();
    }
}

/// A node's options for tests.
pub fn config(master: &ScriptedMaster) -> Config {
    Config {
        population: Population::OnUse,
        ready_timeout: Duration::from_secs(10),
        ..Config::new(Master::Remote(master.address.to_string()), 16 << 20)
    }
}

pub fn name(key: &str) -> ObjectName {
    ObjectName::new(
        Tenant::default(),
        Key::new(key.as_bytes()).expect("a good key"),
    )
}

pub fn version(counter: u64) -> Version {
    Version::new(TERM, counter).expect("it fits")
}

pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

pub fn write_request(epoch: Epoch, key: &str, counter: u64, data: &[u8]) -> WriteRequest {
    WriteRequest {
        epoch,
        name: name(key),
        version: version(counter),
        size: data.len() as u64,
        sums: PieceSums::of(data),
        attributes: Attributes::default(),
        patience: Millis(5_000),
    }
}

pub fn read_request(epoch: Epoch, key: &str, counter: u64) -> ReadRequest {
    ReadRequest {
        epoch,
        name: name(key),
        version: version(counter),
        offset: 0,
        len: u64::MAX,
    }
}

pub fn soon() -> Now {
    SystemClock.now() + Millis(10_000)
}

/// Looks again and again until it is so; no time is waited for.
pub fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

pub fn stamp_now() -> Stamp {
    Stamp(SystemClock.now().0)
}

/// A greeted connection to a data server.
pub struct Data {
    stream: TcpStream,
    reader: FrameReader,
}

impl Data {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the data port");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let mut data = Data {
            stream,
            reader: FrameReader::new(),
        };
        data.send(0, &Hello(Greeting::new(Role::Client, 5)));
        let frame = data.frame();
        Welcome::from_frame(frame).expect("a welcome");
        data.reader.open();
        data
    }

    pub fn send<M: Message>(&mut self, id: u64, message: &M) {
        let mut out = BytesMut::new();
        put(&mut out, id, message).expect("it fits");
        self.stream.write_all(&out).expect("sent");
    }

    pub fn payload(&mut self, id: u64, data: &[u8]) {
        let len = u32::try_from(data.len()).expect("a small frame");
        let header = Header::new(Kind::Payload, len, id).to_bytes();
        self.stream.write_all(&header).expect("sent");
        self.stream.write_all(data).expect("sent");
    }

    /// The next frame that is not only a sign of life.
    pub fn frame(&mut self) -> Frame {
        loop {
            let frame = self.reader.read(&mut self.stream).expect("a frame");
            if frame.kind != Kind::Waiting {
                return frame;
            }
        }
    }

    pub fn message<M: Message>(&mut self) -> M {
        M::from_frame(self.frame()).expect("the expected message")
    }
}
