//! A node in memory behind a real data server, and short ways to use it.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use parking_lot::Mutex;
use snowskin_memory::segment::Segment;
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_proto::hello::{Greeting, Role};
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_runtime::net;
use snowskin_runtime::spawn::Cancel;
use snowskin_transfer::regions::Regions;
use snowskin_transfer::tcp::client::{TcpOptions, TcpTransport};
use snowskin_transfer::tcp::endpoint::{
    Endpoint, Filled, ReadGrant, ReadTicket, WriteStart, WriteTicket,
};
use snowskin_transfer::tcp::server::{Server, ServerOptions};
use snowskin_transfer::transport::{
    Completion, Done, Movement, Operation, ReadFrom, RegionId, RemoteRange, Transport, WriteTo,
};
use snowskin_types::access::{Extent, ReadRequest, WriteRequest};
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::id::{Epoch, NodeId, Term};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::object::{Attributes, Place, Shape};
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

pub const EPOCH: Epoch = Epoch(77);
pub const CANARY: u8 = 0xA5;

/// What the node does with the next writes and reads.
#[derive(Clone, Default)]
pub struct Behaviour {
    /// Writes are refused with this.
    pub refuse_writes: Option<Failure>,
    /// A write's answer takes so long.
    pub publish_takes: Option<Duration>,
    /// Writes get this token as their cut.
    pub cut_writes: Option<Cancel>,
    /// Reads get this token as their cut.
    pub cut_reads: Option<Cancel>,
}

#[derive(Clone)]
struct Stored {
    shape: Shape,
    extents: Arc<[Extent]>,
    sums: Arc<PieceSums>,
}

#[derive(Default)]
struct State {
    objects: HashMap<(ObjectName, Version), Stored>,
    next: u64,
    behaviour: Behaviour,
    ended: Vec<Filled>,
    reads_open: usize,
    damaged: usize,
}

pub struct Memory {
    pub segment: Segment,
    /// Bytes of an extent; objects are scattered over many.
    extent: u64,
    state: Arc<Mutex<State>>,
    pub regions: Regions,
    pub write_started: Arc<Semaphore>,
    pub write_ended: Arc<Semaphore>,
    pub read_ended: Arc<Semaphore>,
}

impl Memory {
    pub fn new(bytes: u64, extent: u64) -> Self {
        Memory {
            segment: Segment::anonymous(bytes).unwrap(),
            extent,
            state: Arc::default(),
            regions: Regions::new(EPOCH, 8),
            write_started: Arc::new(Semaphore::new(0)),
            write_ended: Arc::new(Semaphore::new(0)),
            read_ended: Arc::new(Semaphore::new(0)),
        }
    }

    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.state.lock().behaviour);
    }

    /// Takes the page faults before anything is measured.
    pub fn populate(&self) {
        self.segment
            .populate(64 << 20, |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
    }

    pub fn ended(&self) -> Vec<Filled> {
        self.state.lock().ended.clone()
    }

    pub fn damaged(&self) -> usize {
        self.state.lock().damaged
    }

    pub fn reads_open(&self) -> usize {
        self.state.lock().reads_open
    }

    /// Flips one byte of a stored object.
    pub fn damage(&self, name: &ObjectName, version: Version, at: u64) {
        let stored = self.state.lock().objects[&(name.clone(), version)].clone();
        let mut at = at;
        for extent in stored.extents.iter() {
            if at < extent.len {
                let mut byte = [0];
                self.segment.read_at(extent.offset + at, &mut byte).unwrap();
                self.segment
                    .write_at(extent.offset + at, &[!byte[0]])
                    .unwrap();
                return;
            }
            at -= extent.len;
        }
    }

    /// Scattered extents with gaps between them, every other one out of order.
    fn allocate(&self, state: &mut State, size: u64) -> Arc<[Extent]> {
        let mut left = size;
        let mut extents = Vec::new();
        while left > 0 {
            let len = left.min(self.extent);
            extents.push(Extent {
                offset: state.next,
                len,
            });
            state.next += len + 64;
            left -= len;
        }
        assert!(
            state.next <= self.segment.len(),
            "the test's segment is too small"
        );
        for pair in extents
            .chunks_exact_mut(2)
            .filter(|pair| pair[0].len == pair[1].len)
        {
            pair.swap(0, 1);
        }
        extents.into()
    }
}

pub struct Write {
    name: ObjectName,
    version: Version,
    stored: Stored,
    cut: Cancel,
    takes: Option<Duration>,
    state: Arc<Mutex<State>>,
    ended: Arc<Semaphore>,
    told: bool,
}

impl WriteTicket for Write {
    fn extents(&self) -> Arc<[Extent]> {
        Arc::clone(&self.stored.extents)
    }

    fn cut(&self) -> Cancel {
        self.cut.clone()
    }

    async fn end(mut self, filled: Filled) -> Result<(), Failure> {
        self.told = true;
        self.state.lock().ended.push(filled);
        self.ended.add_permits(1);
        if let Some(takes) = self.takes {
            tokio::time::sleep(takes).await;
        }
        if filled == Filled::Sound {
            let key = (self.name.clone(), self.version);
            self.state.lock().objects.insert(key, self.stored.clone());
        }
        Ok(())
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if !self.told {
            self.state.lock().ended.push(Filled::Broken);
            self.ended.add_permits(1);
        }
    }
}

pub struct Read {
    grant: ReadGrant,
    cut: Cancel,
    state: Arc<Mutex<State>>,
    ended: Arc<Semaphore>,
}

impl ReadTicket for Read {
    fn grant(&self) -> &ReadGrant {
        &self.grant
    }

    fn cut(&self) -> Cancel {
        self.cut.clone()
    }

    fn progress(&self) {}
}

impl Drop for Read {
    fn drop(&mut self) {
        self.state.lock().reads_open -= 1;
        self.ended.add_permits(1);
    }
}

impl Endpoint for Memory {
    type Write = Write;
    type Read = Read;

    fn segment(&self) -> &Segment {
        &self.segment
    }

    fn regions(&self) -> Option<&Regions> {
        Some(&self.regions)
    }

    async fn write_start(&self, request: WriteRequest) -> WriteStart<Write> {
        let mut state = self.state.lock();
        self.write_started.add_permits(1);
        if request.epoch != EPOCH {
            let text = "another process life";
            let failure = Failure::new(Code::ReplicaGone, Stage::Write, text);
            return WriteStart::Answered(Err(failure));
        }
        if let Some(failure) = &state.behaviour.refuse_writes {
            return WriteStart::Answered(Err(failure.clone()));
        }
        if state
            .objects
            .contains_key(&(request.name.clone(), request.version))
        {
            return WriteStart::Answered(Ok(()));
        }
        let extents = self.allocate(&mut state, request.size);
        let shape = Shape {
            size: request.size,
            checksum: request.sums.whole(request.size),
        };
        WriteStart::Granted(Write {
            name: request.name,
            version: request.version,
            stored: Stored {
                shape,
                extents,
                sums: Arc::new(request.sums),
            },
            cut: state.behaviour.cut_writes.clone().unwrap_or_default(),
            takes: state.behaviour.publish_takes,
            state: Arc::clone(&self.state),
            ended: Arc::clone(&self.write_ended),
            told: false,
        })
    }

    async fn read_start(&self, request: ReadRequest) -> Result<Read, Failure> {
        let mut state = self.state.lock();
        let refuse = |code, text: &str| Err(Failure::new(code, Stage::Read, text));
        if request.epoch != EPOCH {
            return refuse(Code::ReplicaGone, "another process life");
        }
        let Some(stored) = state.objects.get(&(request.name, request.version)).cloned() else {
            return refuse(Code::ReplicaGone, "not here");
        };
        let size = stored.shape.size;
        if request.offset >= size {
            return refuse(Code::InvalidRead, "outside of the object");
        }
        state.reads_open += 1;
        Ok(Read {
            grant: ReadGrant {
                shape: stored.shape,
                offset: request.offset,
                len: request.len.min(size - request.offset),
                extents: stored.extents,
                sums: stored.sums,
            },
            cut: state.behaviour.cut_reads.clone().unwrap_or_default(),
            state: Arc::clone(&self.state),
            ended: Arc::clone(&self.read_ended),
        })
    }

    fn found_damaged(&self, _request: &ReadRequest) {
        self.state.lock().damaged += 1;
    }
}

pub struct Node {
    pub runtime: tokio::runtime::Runtime,
    pub server: Server<Memory>,
}

impl Node {
    pub fn new(memory: Memory) -> Self {
        Self::with(memory, ServerOptions::default(), "127.0.0.1:0")
    }

    pub fn with(memory: Memory, options: ServerOptions, address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = net::listen(address, "--data-address").unwrap();
        let greeting = Greeting::new(Role::Node, 1);
        let server = Server::start(listener, memory, greeting, options, runtime.handle()).unwrap();
        Node { runtime, server }
    }

    pub fn place(&self) -> Place {
        place(&self.server.address().to_string())
    }

    pub fn memory(&self) -> &Memory {
        self.server.endpoint()
    }

    pub fn stop(self) {
        self.runtime
            .block_on(self.server.shutdown(Duration::from_secs(5)))
            .unwrap();
    }

    /// Waits until a semaphore of the node has been raised `permits` times.
    pub fn await_raised(&self, semaphore: &Semaphore, permits: u32) {
        self.runtime.block_on(async {
            let raised = semaphore.acquire_many(permits);
            let raised = tokio::time::timeout(Duration::from_secs(10), raised).await;
            raised.unwrap().unwrap().forget();
        });
    }
}

pub fn place(address: &str) -> Place {
    Place {
        node: NodeId::from_address(address),
        epoch: EPOCH,
        address: address.into(),
    }
}

pub fn transport() -> TcpTransport {
    transport_with(TcpOptions::default())
}

pub fn transport_with(options: TcpOptions) -> TcpTransport {
    TcpTransport::new(
        Greeting::new(Role::Client, 2),
        options,
        Arc::new(SystemClock),
    )
    .unwrap()
}

pub fn name(key: &str) -> ObjectName {
    ObjectName::new(Tenant::default(), Key::new(key.as_bytes()).unwrap())
}

pub fn version(counter: u64) -> Version {
    Version::new(Term(1), counter).unwrap()
}

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut value = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn soon(ms: u64) -> Now {
    SystemClock.now() + Millis(ms)
}

pub fn write_request(key: &str, bytes: &[u8]) -> WriteRequest {
    WriteRequest {
        epoch: EPOCH,
        name: name(key),
        version: version(1),
        size: bytes.len() as u64,
        sums: PieceSums::of(bytes),
        attributes: Attributes::default(),
        patience: Millis(500),
    }
}

pub fn write<'m>(place: &Place, key: &str, bytes: &'m [u8]) -> Operation<'m> {
    let to = WriteTo::Object(write_request(key, bytes));
    let movement = Movement::Write {
        to,
        source: SourceSlices::of(bytes),
    };
    Operation::new(place.clone(), movement, soon(30_000))
}

pub fn read<'m>(
    place: &Place,
    key: &str,
    range: (u64, u64),
    target: &'m mut [u8],
) -> Operation<'m> {
    let request = ReadRequest {
        epoch: EPOCH,
        name: name(key),
        version: version(1),
        offset: range.0,
        len: range.1,
    };
    let target = TargetSlices::of(target);
    let movement = Movement::Read {
        from: ReadFrom::Object(request),
        target,
    };
    Operation::new(place.clone(), movement, soon(30_000))
}

/// Carries operations out and returns their completions in the order of submission.
pub fn run<'m>(
    transport: &dyn Transport,
    operations: impl IntoIterator<Item = Operation<'m>>,
) -> Vec<Completion<'m>> {
    let mut batch = transport.batch();
    for operation in operations {
        batch.submit(operation);
    }
    let mut completions = Vec::new();
    while batch.under_way() > 0 {
        batch.wait(soon(60_000), &mut completions);
    }
    completions.sort_by_key(|completion| completion.id);
    completions
}

pub fn run_one(transport: &dyn Transport, operation: Operation<'_>) -> Result<Done, Failure> {
    run(transport, [operation]).remove(0).result
}

pub fn put(transport: &dyn Transport, place: &Place, key: &str, bytes: &[u8]) {
    run_one(transport, write(place, key, bytes)).unwrap();
}

pub fn counter(value: &std::sync::atomic::AtomicU64) -> u64 {
    value.load(std::sync::atomic::Ordering::SeqCst)
}

pub fn at(region: RegionId, offset: u64) -> RemoteRange {
    RemoteRange {
        epoch: EPOCH,
        region,
        offset,
    }
}

pub fn range_write<'m>(
    place: &Place,
    range: RemoteRange,
    source: SourceSlices<'m>,
) -> Operation<'m> {
    let to = WriteTo::Range(range);
    Operation::new(place.clone(), Movement::Write { to, source }, soon(30_000))
}

pub fn range_read<'m>(
    place: &Place,
    range: RemoteRange,
    target: TargetSlices<'m>,
) -> Operation<'m> {
    let from = ReadFrom::Range(range);
    Operation::new(place.clone(), Movement::Read { from, target }, soon(30_000))
}
