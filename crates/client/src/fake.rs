//! A pool in memory for tests: a master that is asked by function call or over loopback, and a node
//! behind the seams of the data server.

use crate::client::{Client, Wiring};
use crate::config::Config;
use crate::counters::Counters;
use crate::port::{Answer, MasterPort};
use crate::shape::Parts;
use parking_lot::{Condvar, Mutex};
use snowskin_memory::segment::Segment;
use snowskin_proto::blocking::{FrameReader, FrameWriter};
use snowskin_proto::frame::{self, Kind};
use snowskin_proto::hello::{Greeting, Hello, Role, Welcome};
use snowskin_proto::message::Message;
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_runtime::net::listen;
use snowskin_runtime::spawn::Cancel;
use snowskin_transfer::tcp::endpoint::{
    Endpoint, Filled, ReadGrant, ReadTicket, WriteStart, WriteTicket,
};
use snowskin_transfer::tcp::server::{Server, ServerOptions};
use snowskin_types::access::{Extent, ReadRequest, WriteRequest};
use snowskin_types::call::*;
use snowskin_types::checksum::PieceSums;
use snowskin_types::id::Term;
use snowskin_types::object::{Place, Shape, Tier};
use snowskin_types::{
    ClientId, Code, Epoch, Failure, Millis, NodeId, Now, ObjectName, Stage, Tenant, Version,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

pub(crate) const LEASE: Millis = Millis(10_000);

struct Entry {
    version: Version,
    shape: Shape,
    replicas: Vec<Place>,
}

#[derive(Default)]
struct Directory {
    objects: BTreeMap<ObjectName, Entry>,
    placed: HashMap<Version, ObjectName>,
    nodes: Vec<Place>,
    counter: u64,
}

/// What a fake master does with the next requests, instead of answering.
type Script = VecDeque<Failure>;

/// A master that knows what its fake nodes have published.
#[derive(Default)]
pub(crate) struct FakeMaster {
    directory: Mutex<Directory>,
    pub(crate) failures: Mutex<Script>,
    pub(crate) asked: Mutex<Vec<Request>>,
}

impl FakeMaster {
    pub(crate) fn add(&self, node: Place) {
        self.directory.lock().nodes.push(node);
    }

    /// Names a further replica of everything, wherever that is.
    pub(crate) fn mirror(&self, place: &Place) {
        for entry in self.directory.lock().objects.values_mut() {
            entry.replicas.insert(0, place.clone());
        }
    }

    pub(crate) fn first_replica(&self, key: &str) -> Place {
        let key = snowskin_types::Key::new(key.as_bytes()).unwrap();
        let name = ObjectName::new(Tenant::default(), key);
        self.directory.lock().objects[&name].replicas[0].clone()
    }

    fn publish(&self, name: ObjectName, version: Version, shape: Shape, place: Place) {
        let mut directory = self.directory.lock();
        directory.placed.remove(&version);
        let entry = directory.objects.entry(name).or_insert(Entry {
            version,
            shape,
            replicas: Vec::new(),
        });
        if entry.version != version {
            entry.replicas.clear();
        }
        entry.version = version;
        entry.shape = shape;
        entry.replicas.push(place);
    }

    pub(crate) fn reports(&self) -> Vec<Fault> {
        let asked = self.asked.lock();
        let faults = asked.iter().filter_map(|request| match request {
            Request::Report { fault, .. } => Some(*fault),
            _ => None,
        });
        faults.collect()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.asked.lock().iter().filter(|r| wanted(r)).count()
    }

    pub(crate) fn answer(&self, request: &Request) -> Reply {
        self.asked.lock().push(request.clone());
        if let Some(failure) = self.failures.lock().pop_front() {
            return Reply::Failed(failure);
        }
        let mut directory = self.directory.lock();
        let named = |tenant: &Tenant, key: &[u8]| {
            ObjectName::new(tenant.clone(), snowskin_types::Key::new(key).unwrap())
        };
        match request {
            Request::Reserve {
                tenant,
                keys,
                items,
                ..
            } => {
                let places = directory.nodes.clone();
                let reserved = keys.iter().zip(items).map(|(key, item)| {
                    let name = named(tenant, key);
                    if let Some(entry) = directory.objects.get(&name)
                        && item.mode == PutMode::IfAbsent
                    {
                        return Reserved::Exists {
                            version: entry.version,
                            unfinished: false,
                        };
                    }
                    directory.counter += 1;
                    let version = Version::new(Term(1), directory.counter).unwrap();
                    directory.placed.insert(version, name);
                    let chosen: Vec<u16> = (0u16..)
                        .zip(&places)
                        .filter(|(_, place)| !item.avoid.contains(&place.node))
                        .map(|(index, _)| index)
                        .take(item.replicas as usize)
                        .collect();
                    if chosen.is_empty() {
                        let text = "no node is left";
                        let none = Failure::new(Code::SegmentNotFound, Stage::Reserve, text);
                        return Reserved::Failed(none);
                    }
                    Reserved::Placed {
                        version,
                        places: chosen,
                    }
                });
                let items = reserved.collect();
                Reply::Reserved { places, items }
            }
            Request::Cancel { versions, .. } => Reply::Cancelled(
                versions
                    .iter()
                    .map(|version| match directory.placed.remove(version) {
                        Some(_) => Cancelled::Ended,
                        None => Cancelled::Published,
                    })
                    .collect(),
            ),
            Request::Locate { tenant, keys, .. } => {
                let mut places: Vec<Place> = Vec::new();
                let items = keys
                    .iter()
                    .map(|key| match directory.objects.get(&named(tenant, key)) {
                        None => Located::Missing,
                        Some(entry) => Located::Found {
                            version: entry.version,
                            shape: entry.shape,
                            lease: LEASE,
                            replicas: entry
                                .replicas
                                .iter()
                                .map(|place| {
                                    places.push(place.clone());
                                    Replica {
                                        place: places.len() as u16 - 1,
                                        tier: Tier::Dram,
                                    }
                                })
                                .collect(),
                        },
                    })
                    .collect();
                Reply::Located { places, items }
            }
            Request::Exists { tenant, keys, .. } => Reply::Exists(
                keys.iter()
                    .map(|key| match directory.objects.get(&named(tenant, key)) {
                        Some(entry) => Existing::Yes {
                            lease: LEASE,
                            size: entry.shape.size,
                        },
                        None => Existing::No,
                    })
                    .collect(),
            ),
            Request::Remove { tenant, keys, .. } => Reply::Removed(
                keys.iter()
                    .map(|key| match directory.objects.remove(&named(tenant, key)) {
                        Some(_) => Ok(()),
                        None => Err(Failure::new(Code::ObjectNotFound, Stage::Publish, "none")),
                    })
                    .collect(),
            ),
            Request::RemoveMany { .. } => {
                let removed = directory.objects.len() as u64;
                directory.objects.clear();
                Reply::RemovedMany { removed, leased: 0 }
            }
            Request::Report {
                tenant, key, node, ..
            } => {
                let name = ObjectName::new(tenant.clone(), key.clone());
                if let Some(entry) = directory.objects.get_mut(&name) {
                    entry.replicas.retain(|place| place.node != *node);
                    if entry.replicas.is_empty() {
                        directory.objects.remove(&name);
                    }
                }
                Reply::Noted
            }
            Request::List { limit, .. } => {
                let keys = directory.objects.keys().map(|name| &name.key);
                Reply::Listed {
                    keys: keys.take(*limit as usize).collect(),
                    more: directory.objects.len() > *limit as usize,
                }
            }
            Request::StatObject { .. } => Reply::Object(None),
            Request::Stat => Reply::Cluster(ClusterStat {
                objects: directory.objects.len() as u64,
                ready: true,
                ..ClusterStat::default()
            }),
        }
    }
}

impl MasterPort for FakeMaster {
    fn call(&self, request: Request, _deadline: Now) -> Result<Answer, Failure> {
        let sent = SystemClock.now();
        match self.answer(&request) {
            Reply::Failed(failure) => Err(failure),
            reply => Ok(Answer {
                reply,
                sent,
                repeated: false,
            }),
        }
    }

    fn close(&self) {}
}

struct Stored {
    extents: Arc<[Extent]>,
    shape: Shape,
    sums: Arc<PieceSums>,
}

/// What a fake node does with the next writes or reads, instead of carrying them out.
#[derive(Debug, Clone)]
pub(crate) enum Whim {
    /// Answers so.
    Fail(Code),
    /// Publishes, and then says that it failed.
    LieAbout(Code),
    /// Never answers.
    Hang,
}

/// First free byte, and what is stored.
type Objects = (u64, HashMap<(ObjectName, Version), Stored>);

struct Inner {
    place: Place,
    master: Arc<FakeMaster>,
    segment: Segment,
    objects: Mutex<Objects>,
    writes: Mutex<VecDeque<Whim>>,
    reads: Mutex<VecDeque<Whim>>,
}

/// A node's side of the data server that keeps what it is given.
#[derive(Clone)]
pub(crate) struct FakeNode(Arc<Inner>);

/// A fake node behind a data server on loopback.
pub(crate) struct ServedNode {
    pub(crate) fake: FakeNode,
    server: Option<Server<FakeNode>>,
    runtime: tokio::runtime::Runtime,
}

impl std::ops::Deref for ServedNode {
    type Target = FakeNode;

    fn deref(&self) -> &FakeNode {
        &self.fake
    }
}

impl ServedNode {
    pub(crate) fn start(number: u64, master: &Arc<FakeMaster>) -> Self {
        let listener = listen("127.0.0.1:0", "test").unwrap();
        let place = Place {
            node: NodeId(number),
            epoch: Epoch(number * 10),
            address: listener.local_addr().unwrap().to_string().into(),
        };
        master.add(place.clone());
        let fake = FakeNode(Arc::new(Inner {
            place,
            master: Arc::clone(master),
            segment: Segment::anonymous(64 << 20).unwrap(),
            objects: Mutex::default(),
            writes: Mutex::default(),
            reads: Mutex::default(),
        }));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = Server::start(
            listener,
            fake.clone(),
            Greeting::new(Role::Node, number),
            ServerOptions::default(),
            runtime.handle(),
        )
        .unwrap();
        ServedNode {
            fake,
            server: Some(server),
            runtime,
        }
    }

    pub(crate) fn kill_if_alive(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
    }

    /// Ends like a killed process: connections break, nothing listens any more.
    pub(crate) fn kill(&mut self) {
        let server = self.server.take().unwrap();
        let patience = std::time::Duration::from_secs(2);
        self.runtime.block_on(server.shutdown(patience)).unwrap();
    }
}

impl FakeNode {
    pub(crate) fn place(&self) -> Place {
        self.0.place.clone()
    }

    pub(crate) fn on_write(&self, whim: Whim) {
        self.0.writes.lock().push_back(whim);
    }

    pub(crate) fn on_read(&self, whim: Whim) {
        self.0.reads.lock().push_back(whim);
    }

    /// Forgets everything, as a node that evicted what nobody may read.
    pub(crate) fn drop_all(&self) {
        self.0.objects.lock().1.clear();
    }

    /// Damages all stored bytes.
    pub(crate) fn damage(&self) {
        for stored in self.0.objects.lock().1.values() {
            let at = stored.extents[0].offset;
            let mut byte = [0];
            self.0.segment.read_at(at, &mut byte).unwrap();
            byte[0] ^= 1;
            self.0.segment.write_at(at, &byte).unwrap();
        }
    }
}

pub(crate) struct FakeWrite {
    node: FakeNode,
    request: WriteRequest,
    extents: Arc<[Extent]>,
    whim: Option<Whim>,
}

impl WriteTicket for FakeWrite {
    fn extents(&self) -> Arc<[Extent]> {
        Arc::clone(&self.extents)
    }

    fn cut(&self) -> Cancel {
        Cancel::new()
    }

    async fn end(self, filled: Filled) -> Result<(), Failure> {
        if filled != Filled::Sound {
            let text = "the bytes do not have their checksum";
            return Err(Failure::new(Code::ChecksumMismatch, Stage::Write, text));
        }
        if matches!(self.whim, Some(Whim::Hang)) {
            return std::future::pending().await;
        }
        let shape = Shape {
            size: self.request.size,
            checksum: self.request.sums.whole(self.request.size),
        };
        let stored = Stored {
            extents: self.extents,
            shape,
            sums: Arc::new(self.request.sums),
        };
        let inner = &self.node.0;
        let name = self.request.name;
        let version = self.request.version;
        inner
            .objects
            .lock()
            .1
            .insert((name.clone(), version), stored);
        inner
            .master
            .publish(name, version, shape, inner.place.clone());
        match self.whim {
            Some(Whim::LieAbout(code)) => {
                Err(Failure::new(code, Stage::Publish, "the answer was lost"))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) struct FakeRead(ReadGrant);

impl ReadTicket for FakeRead {
    fn grant(&self) -> &ReadGrant {
        &self.0
    }

    fn cut(&self) -> Cancel {
        Cancel::new()
    }

    fn progress(&self) {}
}

impl Endpoint for FakeNode {
    type Write = FakeWrite;
    type Read = FakeRead;

    fn segment(&self) -> &Segment {
        &self.0.segment
    }

    fn write_start(
        &self,
        request: WriteRequest,
    ) -> impl Future<Output = WriteStart<FakeWrite>> + Send {
        let node = self.clone();
        async move {
            let whim = node.0.writes.lock().pop_front();
            if let Some(Whim::Fail(code)) = whim {
                return WriteStart::Answered(Err(Failure::new(code, Stage::Write, "a whim")));
            }
            // Two extents with a gap, so that copies cross extents.
            let (first, second) = (request.size / 2, request.size - request.size / 2);
            let mut objects = node.0.objects.lock();
            let start = objects.0;
            objects.0 += request.size + 8;
            drop(objects);
            let extents = [(start, first), (start + first + 8, second)]
                .map(|(offset, len)| Extent { offset, len })
                .into_iter()
                .filter(|extent| extent.len > 0)
                .collect();
            WriteStart::Granted(FakeWrite {
                node,
                request,
                extents,
                whim,
            })
        }
    }

    fn read_start(
        &self,
        request: ReadRequest,
    ) -> impl Future<Output = Result<FakeRead, Failure>> + Send {
        let node = self.clone();
        async move {
            let whim = node.0.reads.lock().pop_front();
            match whim {
                Some(Whim::Fail(code) | Whim::LieAbout(code)) => {
                    return Err(Failure::new(code, Stage::Read, "a whim"));
                }
                Some(Whim::Hang) => return std::future::pending().await,
                None => {}
            }
            let objects = node.0.objects.lock();
            let stored = objects
                .1
                .get(&(request.name, request.version))
                .ok_or_else(|| Failure::new(Code::ReplicaGone, Stage::Read, "not here"))?;
            Ok(FakeRead(ReadGrant {
                shape: stored.shape,
                offset: request.offset,
                len: request.len.min(stored.shape.size - request.offset),
                extents: Arc::clone(&stored.extents),
                sums: Arc::clone(&stored.sums),
            }))
        }
    }

    fn found_damaged(&self, _request: &ReadRequest) {}
}

pub(crate) fn config() -> Config {
    Config::new("127.0.0.1:1")
}

/// A client that asks this master and reaches nodes over TCP.
pub(crate) fn client_of(config: &Config, master: Arc<dyn MasterPort>) -> Client {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let id = ClientId(1);
    let wiring = Wiring {
        id,
        transport: crate::data::tcp(config, id, &clock).unwrap(),
        clock,
        counters: Arc::new(Counters::default()),
        master,
        prefer: None,
        parts: Parts::default(),
    };
    Client::wire(config, wiring)
}

/// What a served master does with a connection or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Answers.
    Serve,
    /// Takes the hello and never answers it.
    FrozenHello,
    /// Takes requests and never answers them.
    Frozen,
    /// Carries a request out and closes instead of answering.
    CloseAfterRequest,
    /// Answers with bytes that are no frame.
    Garbage,
}

struct Shared {
    master: Arc<FakeMaster>,
    /// Consumed front to back by connections and requests; `Serve` when empty.
    modes: Mutex<VecDeque<Mode>>,
    greeting: Mutex<Greeting>,
    open: Mutex<Vec<TcpStream>>,
    requests: Mutex<usize>,
    requested: Condvar,
    stopped: Mutex<bool>,
}

/// A fake master that listens on loopback.
pub(crate) struct Served {
    pub(crate) address: String,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start(master: &Arc<FakeMaster>) -> Self {
        Served::start_at(master, "127.0.0.1:0")
    }

    pub(crate) fn start_at(master: &Arc<FakeMaster>, address: &str) -> Self {
        let listener = listen(address, "test").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            master: Arc::clone(master),
            modes: Mutex::default(),
            greeting: Mutex::new(Greeting::new(Role::Master, 1)),
            open: Mutex::default(),
            requests: Mutex::default(),
            requested: Condvar::new(),
            stopped: Mutex::new(false),
        });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::spawn(move || accept(&listener, &accepting));
        Served {
            address,
            shared,
            threads: vec![thread],
        }
    }

    pub(crate) fn next(&self, mode: Mode) {
        self.shared.modes.lock().push_back(mode);
    }

    pub(crate) fn greet_with(&self, greeting: Greeting) {
        *self.shared.greeting.lock() = greeting;
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(self.address.clone())
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.open.lock().len()
    }

    /// Waits until so many requests have come.
    pub(crate) fn wait_for_requests(&self, wanted: usize) {
        let mut requests = self.shared.requests.lock();
        while *requests < wanted {
            self.shared.requested.wait(&mut requests);
        }
    }

    /// Ends all connections, as a killed process does.
    fn cut(&self) {
        for stream in self.shared.open.lock().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        *self.shared.stopped.lock() = true;
        self.cut();
        drop(TcpStream::connect(&self.address));
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for stream in listener.incoming() {
        if *shared.stopped.lock() {
            break;
        }
        let stream = stream.unwrap();
        shared.open.lock().push(stream.try_clone().unwrap());
        let shared = Arc::clone(shared);
        threads.push(std::thread::spawn(move || {
            // A connection that breaks is what many tests are about.
            serve(&stream, &shared).ok();
            stream.shutdown(Shutdown::Both).ok();
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

fn serve(mut stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = FrameReader::new();
    let mut writer = FrameWriter::new();
    let mode = || shared.modes.lock().pop_front().unwrap_or(Mode::Serve);
    let hello = Hello::from_frame(reader.read(&mut stream)?).unwrap();
    let welcome = shared.greeting.lock().clone();
    let first = shared.modes.lock().front().copied();
    if first == Some(Mode::FrozenHello) {
        mode();
        return hang(stream);
    }
    match welcome.meet(&hello.0) {
        Ok(_) => frame::put(writer.buffer(), 0, &Welcome(welcome)).unwrap(),
        Err(failure) => {
            let closing = snowskin_proto::message::Closing(failure);
            frame::put(writer.buffer(), 0, &closing).unwrap();
            return writer.flush(&mut stream);
        }
    }
    writer.flush(&mut stream)?;
    reader.open();
    loop {
        let frame = reader.read(&mut stream)?;
        if frame.kind == Kind::Pong {
            continue;
        }
        let id = frame.id;
        let request = Request::from_frame(frame).unwrap();
        *shared.requests.lock() += 1;
        shared.requested.notify_all();
        match mode() {
            Mode::Serve | Mode::FrozenHello => {
                // Pings may come at any time.
                frame::put_empty(writer.buffer(), 7, Kind::Ping);
                let reply = shared.master.answer(&request);
                frame::put(writer.buffer(), id, &reply).unwrap();
            }
            Mode::Frozen => return hang(stream),
            Mode::CloseAfterRequest => {
                shared.master.answer(&request);
                return Ok(());
            }
            Mode::Garbage => writer.buffer().extend_from_slice(&[0xff; 64]),
        }
        writer.flush(&mut stream)?;
    }
}

/// Reads until the other side or the test ends the connection, and says nothing.
fn hang(mut stream: &TcpStream) -> io::Result<()> {
    io::copy(&mut stream, &mut io::sink()).map(|_| ())
}
