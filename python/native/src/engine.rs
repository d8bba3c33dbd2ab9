//! The classes of the transfer engine: codes instead of exceptions, in the compatible interface's order of
//! arguments. Anything that may wait runs without the interpreter.

mod environment;

use crate::args::{Size, SizeList, each, number};
use crate::ending::released;
use crate::enums::TransferOpcode;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use snowskin_device::{Registry, Run};
use snowskin_engine::{BatchId, Config, Engine, EngineError, Notify, Opcode, Request, Status};

/// What is answered for whatever went wrong, where there is no finer code.
const FAILED: i32 = -1;
/// The only way in which peers are found.
const PEER_TO_PEER: &str = "P2PHANDSHAKE";

/// What a store shares with a transfer engine.
#[pyclass(frozen, weakref, module = "snowskin._native")]
pub(crate) struct InnerTransferEngine {
    engine: Engine,
}

impl InnerTransferEngine {
    /// The table of registered memory.
    pub(crate) fn registry(&self) -> Registry {
        self.engine.registry().clone()
    }
}

/// A word that is left at a peer, or was left by one.
#[pyclass(get_all, set_all, module = "snowskin._native")]
#[derive(Clone)]
pub(crate) struct TransferNotify {
    name: String,
    msg: String,
}

#[pymethods]
impl TransferNotify {
    #[new]
    #[pyo3(signature = (name=None, msg=None))]
    fn new(name: Option<String>, msg: Option<String>) -> PyResult<Self> {
        match (name, msg) {
            (None, None) => Ok(TransferNotify {
                name: String::new(),
                msg: String::new(),
            }),
            (Some(name), Some(msg)) => Ok(TransferNotify { name, msg }),
            _ => Err(PyTypeError::new_err(
                "TransferNotify() takes a name and a msg, or neither",
            )),
        }
    }

    fn __repr__(&self) -> String {
        format!("TransferNotify(name={:?}, msg={:?})", self.name, self.msg)
    }
}

impl From<&TransferNotify> for Notify {
    fn from(notify: &TransferNotify) -> Self {
        Notify {
            name: notify.name.clone(),
            message: notify.msg.clone(),
        }
    }
}

fn opcode(code: &TransferOpcode) -> Opcode {
    match code.0 {
        0 => Opcode::Read,
        _ => Opcode::Write,
    }
}

/// 0, or the engine's own number of an error.
fn code(result: Result<(), EngineError>) -> i32 {
    result.map_or_else(|error| error.number(), |()| 0)
}

/// 0 or -1.
fn done(result: Result<(), EngineError>) -> i32 {
    result.map_or(FAILED, |()| 0)
}

/// An address of this process; what is larger is none.
fn address(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The lists of a batch; none when their lengths differ.
struct Requests(Option<Vec<Request>>);

impl Requests {
    fn read(
        buffers: &Bound<'_, PyAny>,
        peer_buffer_addresses: SizeList,
        lengths: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let remotes = peer_buffer_addresses.0;
        let mut requests = Vec::with_capacity(remotes.len());
        let mut locals = 0;
        each(buffers, |local| {
            let local = address(number(local)?);
            if let Some(&remote) = remotes.get(locals) {
                requests.push(Request {
                    local,
                    remote,
                    len: 0,
                });
            }
            locals += 1;
            Ok(())
        })?;
        let mut lens = 0;
        each(lengths, |len| {
            let len = number(len)?;
            if let Some(request) = requests.get_mut(lens) {
                request.len = len;
            }
            lens += 1;
            Ok(())
        })?;
        let same = locals == remotes.len() && lens == locals;
        Ok(Requests(same.then_some(requests)))
    }

    fn one(buffer: Size, peer_buffer_address: Size, length: Size) -> Self {
        Requests(Some(vec![Request {
            local: address(buffer.0),
            remote: peer_buffer_address.0,
            len: length.0,
        }]))
    }
}

/// Moves bytes between the registered memory of engines that name each other `host:port`.
#[pyclass(subclass, dict, weakref, frozen, module = "snowskin._native")]
pub(crate) struct TransferEngine {
    engine: Engine,
}

impl TransferEngine {
    fn transfer(
        &self,
        py: Python<'_>,
        target: &str,
        opcode: Opcode,
        requests: &Requests,
        notify: Option<PyRef<'_, TransferNotify>>,
    ) -> i32 {
        let notify = notify.map(|notify| Notify::from(&*notify));
        let Requests(Some(requests)) = requests else {
            return FAILED;
        };
        released(py, || {
            let moved = self
                .engine
                .transfer(target, opcode, requests, notify.as_ref());
            done(moved)
        })
    }

    /// The number of the batch, or 0.
    fn submit(&self, py: Python<'_>, target: &str, opcode: Opcode, requests: &Requests) -> u64 {
        let Requests(Some(requests)) = requests else {
            return 0;
        };
        released(py, || {
            let submitted = self.engine.submit(target, opcode, requests);
            submitted.map_or(0, |id| id.0)
        })
    }

    fn open(
        &self,
        py: Python<'_>,
        local_hostname: &str,
        metadata_server: &str,
        protocol: &str,
    ) -> i32 {
        environment::start_logging();
        if metadata_server != PEER_TO_PEER {
            environment::tell_metadata(metadata_server);
            return FAILED;
        }
        let mut config = Config::new(local_hostname);
        config.protocol = protocol.to_owned();
        environment::apply(&mut config);
        released(py, || match self.engine.initialize(config) {
            Ok(()) => 0,
            Err(error) => {
                environment::tell_failure(&error);
                FAILED
            }
        })
    }
}

impl Drop for TransferEngine {
    fn drop(&mut self) {
        // The last share of an engine closes it, which waits for threads: not with the interpreter.
        let engine = std::mem::replace(&mut self.engine, Engine::new(Registry::default()));
        Python::attach(|py| released(py, move || drop(engine)));
    }
}

#[pymethods]
impl TransferEngine {
    #[classattr]
    #[pyo3(name = "TransferOpcode")]
    fn transfer_opcode(py: Python<'_>) -> Bound<'_, pyo3::types::PyType> {
        py.get_type::<TransferOpcode>()
    }

    /// An engine that is not initialised.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        _args: &Bound<'_, pyo3::types::PyTuple>,
        _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Self> {
        let config = snowskin_device::Config::from_environment()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(TransferEngine {
            engine: Engine::new(Registry::new(config)),
        })
    }

    /// Opens the engine's ports; 0 or -1. The only metadata server is P2PHANDSHAKE; the protocol is a
    /// preference, and everything goes over TCP.
    #[pyo3(signature = (local_hostname, metadata_server, protocol, device_name, /))]
    fn initialize(
        &self,
        py: Python<'_>,
        local_hostname: &str,
        metadata_server: &str,
        protocol: &str,
        device_name: &str,
    ) -> i32 {
        // Devices are those of fabrics.
        let _ = device_name;
        self.open(py, local_hostname, metadata_server, protocol)
    }

    /// As `initialize`, with the kind of the metadata server apart.
    #[pyo3(signature = (local_hostname, metadata_server, protocol, device_name, metadata_type, /))]
    fn initialize_ext(
        &self,
        py: Python<'_>,
        local_hostname: &str,
        metadata_server: &str,
        protocol: &str,
        device_name: &str,
        metadata_type: &str,
    ) -> i32 {
        let _ = (device_name, metadata_type);
        self.open(py, local_hostname, metadata_server, protocol)
    }

    /// The port in the name under which peers reach this engine; 0 when it is not initialised.
    fn get_rpc_port(&self) -> u16 {
        self.engine.rpc_port()
    }

    /// What `setup(engine=...)` of a store takes, to share registered memory.
    fn get_engine(&self) -> InnerTransferEngine {
        InnerTransferEngine {
            engine: self.engine.clone(),
        }
    }

    /// A number that tells engines of this process apart. It is no pointer to anything usable.
    fn get_engine_ptr(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().expose_provenance()
    }

    /// Registers memory for peers; 0, -7 when it overlaps registered memory, -1 otherwise.
    #[pyo3(signature = (buffer_addr, capacity, location="*"))]
    fn register_memory(
        &self,
        py: Python<'_>,
        buffer_addr: Size,
        capacity: Size,
        location: &str,
    ) -> i32 {
        let _ = location;
        let run = Run {
            address: address(buffer_addr.0),
            len: capacity.0,
        };
        released(py, || code(self.engine.register(&[run])))
    }

    /// Takes memory back; 0, -3 when it is not registered.
    #[pyo3(signature = (buffer_addr, /))]
    fn unregister_memory(&self, py: Python<'_>, buffer_addr: Size) -> i32 {
        released(py, || {
            code(self.engine.unregister(&[address(buffer_addr.0)]))
        })
    }

    /// Registers all of the list or nothing; codes as `register_memory`.
    #[pyo3(signature = (buffer_addresses, capacities, location="*"))]
    fn batch_register_memory(
        &self,
        py: Python<'_>,
        buffer_addresses: SizeList,
        capacities: SizeList,
        location: &str,
    ) -> i32 {
        let _ = location;
        if buffer_addresses.0.len() != capacities.0.len() {
            return FAILED;
        }
        let pairs = buffer_addresses.0.iter().zip(&capacities.0);
        let run = |(&base, &len)| Run {
            address: address(base),
            len,
        };
        let runs: Vec<Run> = pairs.map(run).collect();
        released(py, || code(self.engine.register(&runs)))
    }

    /// Takes back what it can of the list; 0, or the first error.
    #[pyo3(signature = (buffer_addresses, /))]
    fn batch_unregister_memory(&self, py: Python<'_>, buffer_addresses: SizeList) -> i32 {
        let bases: Vec<usize> = buffer_addresses.0.into_iter().map(address).collect();
        released(py, || code(self.engine.unregister(&bases)))
    }

    /// Writes local `buffer` to the peer's address; 0 or -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint=""))]
    fn transfer_sync_write(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffer: Size,
        peer_buffer_address: Size,
        length: Size,
        transport_hint: &str,
    ) -> i32 {
        let _ = transport_hint;
        let requests = Requests::one(buffer, peer_buffer_address, length);
        self.transfer(py, target_hostname, Opcode::Write, &requests, None)
    }

    /// Reads the peer's address into local `buffer`; 0 or -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint=""))]
    fn transfer_sync_read(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffer: Size,
        peer_buffer_address: Size,
        length: Size,
        transport_hint: &str,
    ) -> i32 {
        let _ = transport_hint;
        let requests = Requests::one(buffer, peer_buffer_address, length);
        self.transfer(py, target_hostname, Opcode::Read, &requests, None)
    }

    /// Reads or writes, then leaves the notification at the peer; 0 or -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, opcode, notify=None, transport_hint=""))]
    #[expect(
        clippy::too_many_arguments,
        reason = "as the compatible interface has them"
    )]
    fn transfer_sync(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffer: Size,
        peer_buffer_address: Size,
        length: Size,
        opcode: PyRef<'_, TransferOpcode>,
        notify: Option<PyRef<'_, TransferNotify>>,
        transport_hint: &str,
    ) -> i32 {
        let _ = transport_hint;
        let requests = Requests::one(buffer, peer_buffer_address, length);
        let opcode = self::opcode(&opcode);
        self.transfer(py, target_hostname, opcode, &requests, notify)
    }

    /// Writes all of the lists; 0 or -1, also when their lengths differ.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""))]
    fn batch_transfer_sync_write(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffers: &Bound<'_, PyAny>,
        peer_buffer_addresses: SizeList,
        lengths: &Bound<'_, PyAny>,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        let requests = Requests::read(buffers, peer_buffer_addresses, lengths)?;
        Ok(self.transfer(py, target_hostname, Opcode::Write, &requests, None))
    }

    /// Reads all of the lists; 0 or -1, also when their lengths differ.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""))]
    fn batch_transfer_sync_read(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffers: &Bound<'_, PyAny>,
        peer_buffer_addresses: SizeList,
        lengths: &Bound<'_, PyAny>,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        let requests = Requests::read(buffers, peer_buffer_addresses, lengths)?;
        Ok(self.transfer(py, target_hostname, Opcode::Read, &requests, None))
    }

    /// Reads or writes all of the lists, then leaves the notification at the peer; 0 or -1.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None, transport_hint=""))]
    #[expect(
        clippy::too_many_arguments,
        reason = "as the compatible interface has them"
    )]
    fn batch_transfer_sync(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffers: &Bound<'_, PyAny>,
        peer_buffer_addresses: SizeList,
        lengths: &Bound<'_, PyAny>,
        opcode: PyRef<'_, TransferOpcode>,
        notify: Option<PyRef<'_, TransferNotify>>,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        let requests = Requests::read(buffers, peer_buffer_addresses, lengths)?;
        let opcode = self::opcode(&opcode);
        Ok(self.transfer(py, target_hostname, opcode, &requests, notify))
    }

    /// Begins to write all of the lists; the number of the batch, or 0.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""))]
    fn batch_transfer_async_write(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffers: &Bound<'_, PyAny>,
        peer_buffer_addresses: SizeList,
        lengths: &Bound<'_, PyAny>,
        transport_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let requests = Requests::read(buffers, peer_buffer_addresses, lengths)?;
        Ok(self.submit(py, target_hostname, Opcode::Write, &requests))
    }

    /// Begins to read all of the lists; the number of the batch, or 0.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""))]
    fn batch_transfer_async_read(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffers: &Bound<'_, PyAny>,
        peer_buffer_addresses: SizeList,
        lengths: &Bound<'_, PyAny>,
        transport_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let requests = Requests::read(buffers, peer_buffer_addresses, lengths)?;
        Ok(self.submit(py, target_hostname, Opcode::Read, &requests))
    }

    /// Begins to read or write all of the lists; the number of the batch, or 0.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint=""))]
    #[expect(
        clippy::too_many_arguments,
        reason = "as the compatible interface has them"
    )]
    fn batch_transfer_async(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffers: &Bound<'_, PyAny>,
        peer_buffer_addresses: SizeList,
        lengths: &Bound<'_, PyAny>,
        opcode: PyRef<'_, TransferOpcode>,
        transport_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let requests = Requests::read(buffers, peer_buffer_addresses, lengths)?;
        Ok(self.submit(py, target_hostname, self::opcode(&opcode), &requests))
    }

    /// Begins to write local `buffer`; the number of the batch, or 0.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint=""))]
    fn transfer_submit_write(
        &self,
        py: Python<'_>,
        target_hostname: &str,
        buffer: Size,
        peer_buffer_address: Size,
        length: Size,
        transport_hint: &str,
    ) -> u64 {
        let _ = transport_hint;
        let requests = Requests::one(buffer, peer_buffer_address, length);
        self.submit(py, target_hostname, Opcode::Write, &requests)
    }

    /// Whether a batch, as a whole, is done (1), under way (0), failed or not known (-1), or out of
    /// time (-2). Its number is not known any more after 1 and -1.
    #[pyo3(signature = (batch_id, /))]
    fn transfer_check_status(&self, batch_id: Size) -> i32 {
        match self.engine.status(BatchId(batch_id.0)) {
            Ok(Status::Done) => 1,
            Ok(Status::Running) => 0,
            Ok(Status::TimedOut) => -2,
            Ok(Status::Failed) | Err(_) => FAILED,
        }
    }

    /// Waits for all of the batches; 0, or -1 when one failed. Their numbers are not known any more.
    #[pyo3(signature = (batch_ids, /))]
    fn get_batch_transfer_status(&self, py: Python<'_>, batch_ids: SizeList) -> i32 {
        let ids: Vec<BatchId> = batch_ids.0.into_iter().map(BatchId).collect();
        released(py, || done(self.engine.wait(&ids)))
    }

    /// The notifications that have come since the last call.
    fn get_notifies(&self) -> Vec<TransferNotify> {
        let notifies = self.engine.notifies().into_iter();
        let word = |Notify { name, message }| TransferNotify { name, msg: message };
        notifies.map(word).collect()
    }

    /// Whether a peer is alive: 0, -101 when its name is not known, -102 when nothing answers.
    fn send_probe(&self, py: Python<'_>, peer_server_name: &str) -> i32 {
        released(py, || code(self.engine.probe(peer_server_name)))
    }

    /// Address of the memory that a peer registered first; 0 when there is none.
    #[pyo3(signature = (segment_name, /))]
    fn get_first_buffer_address(&self, py: Python<'_>, segment_name: &str) -> u64 {
        released(py, || {
            let first = self.engine.first_address(segment_name);
            first.ok().flatten().unwrap_or(0)
        })
    }

    /// A registered buffer of the engine's own; its address, or 0.
    #[pyo3(signature = (length, /))]
    fn allocate_managed_buffer(&self, py: Python<'_>, length: Size) -> usize {
        released(py, || self.engine.allocate(length.0).unwrap_or(0))
    }

    /// Gives a buffer of `allocate_managed_buffer` back; 0 or an error.
    #[pyo3(signature = (buffer_addr, length, /))]
    fn free_managed_buffer(&self, py: Python<'_>, buffer_addr: Size, length: Size) -> i32 {
        let _ = length;
        released(py, || code(self.engine.free(address(buffer_addr.0))))
    }

    /// Copies the first `length` bytes of `data` to an address of this process; 0 or -1.
    #[pyo3(signature = (dest_address, data, length, /))]
    fn write_bytes_to_buffer(
        &self,
        py: Python<'_>,
        dest_address: Size,
        data: &Bound<'_, PyBytes>,
        length: Size,
    ) -> i32 {
        let data = data.as_bytes();
        let Some(data) = usize::try_from(length.0)
            .ok()
            .and_then(|len| data.get(..len))
        else {
            return FAILED;
        };
        released(py, || {
            let to = address(dest_address.0);
            match data.is_empty() || self.engine.registry().write(to, data).is_ok() {
                true => 0,
                false => FAILED,
            }
        })
    }

    /// The bytes at an address of this process; none when they are not there.
    #[pyo3(signature = (source_address, length, /))]
    fn read_bytes_from_buffer<'py>(
        &self,
        py: Python<'py>,
        source_address: Size,
        length: Size,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = released(py, || {
            let mut bytes = Vec::new();
            let len = usize::try_from(length.0).ok()?;
            bytes.try_reserve_exact(len).ok()?;
            bytes.resize(len, 0);
            if !bytes.is_empty() {
                let from = address(source_address.0);
                self.engine.registry().read(from, &mut bytes).ok()?;
            }
            Some(bytes)
        });
        Ok(PyBytes::new(py, &bytes.unwrap_or_default()))
    }

    /// The fabrics of this host as JSON: none.
    #[pyo3(signature = (device_name=None))]
    fn get_local_topology(&self, device_name: Option<&str>) -> &'static str {
        let _ = device_name;
        "{\n\t\"cpu:0\" : \n\t[\n\t\t[],\n\t\t[]\n\t]\n}\n"
    }

    /// Nothing to be done; 0.
    fn warmup_efa_segment(&self, segment_name: &str) -> i32 {
        let _ = segment_name;
        0
    }

    /// Ends transfers, takes all memory back from peers and frees the ports.
    fn close(&self, py: Python<'_>) {
        released(py, || self.engine.close());
    }

    /// The name under which peers reach this engine; empty when it is not initialised.
    #[getter]
    fn session_id(&self) -> String {
        self.engine.session_id()
    }

    /// What the engine counted, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.engine.counts().named()
    }
}

/// Adds the classes.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    TransferOpcode::add(module)?;
    module.add_class::<TransferNotify>()?;
    module.add_class::<InnerTransferEngine>()?;
    module.add_class::<TransferEngine>()
}
