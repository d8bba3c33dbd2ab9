//! The engine as its users see it.

use crate::config::Config;
use crate::counters::{Counters, Counts};
use crate::error::EngineError;
use crate::managed::Managed;
use crate::mover::{self, Until};
use crate::names;
use crate::open::{Core, Open};
use crate::plan::Plan;
use crate::request::{BatchId, Notify, Opcode, Request, Status};
use parking_lot::Mutex;
use snowskin_device::{Registry, Run};
use snowskin_proto::{NOTIFY_MESSAGE_BYTES_MAX, NOTIFY_NAME_BYTES_MAX};
use snowskin_runtime::clock::Clock;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::time::Millis;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An engine of this process. Clones are the same engine; the last one closes it.
///
/// All calls may come from any thread, several at once. Each ends by its deadline: a transfer has the
/// configured time and a nanosecond for each byte. A child of the process that made the engine sees
/// it closed.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    /// The process that it belongs to.
    owner: u32,
    registry: Registry,
    counters: Arc<Counters>,
    open: Mutex<Option<Arc<Open>>>,
    /// Outlives what serves it.
    managed: Managed,
    /// Held while it is opened or closed.
    changing: Mutex<()>,
}

impl Inner {
    fn check_process(&self) -> Result<(), EngineError> {
        match self.owner == std::process::id() {
            true => Ok(()),
            false => Err(EngineError::Forked { owner: self.owner }),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let open = self.open.get_mut().take();
        if self.check_process().is_err() {
            // Its threads are not in this process, and waiting for them would take for ever. The
            // memory is the parent's, of which this is a copy.
            let managed = std::mem::take(&mut self.managed);
            let _kept = ManuallyDrop::new((open, self.registry.clone(), managed));
            return;
        }
        if let Some(open) = open {
            open.close();
        }
    }
}

impl Engine {
    /// An engine over a table of memory, which it may share with others. It does nothing before
    /// [`Engine::initialize`].
    pub fn new(registry: Registry) -> Self {
        Engine {
            inner: Arc::new(Inner {
                owner: std::process::id(),
                registry,
                counters: Arc::default(),
                open: Mutex::default(),
                managed: Managed::default(),
                changing: Mutex::default(),
            }),
        }
    }

    /// Opens the ports and starts serving. After [`Engine::close`] or a failure it may be called again.
    ///
    /// # Errors
    /// When it is open already, a setting is not usable, no port is free, or the system refuses.
    pub fn initialize(&self, config: Config) -> Result<(), EngineError> {
        self.inner.check_process()?;
        let _changing = self.inner.changing.lock();
        if let Some(open) = self.inner.open.lock().as_ref() {
            let session = open.core.session.clone();
            return Err(EngineError::AlreadyOpen { session });
        }
        let (registry, counters) = (
            self.inner.registry.clone(),
            Arc::clone(&self.inner.counters),
        );
        let open = Open::new(config, registry, counters)?;
        *self.inner.open.lock() = Some(Arc::new(open));
        Ok(())
    }

    fn open(&self) -> Result<Arc<Open>, EngineError> {
        self.inner.check_process()?;
        self.inner.open.lock().clone().ok_or(EngineError::NotOpen)
    }

    /// Whether it can be used.
    pub fn is_open(&self) -> bool {
        self.open().is_ok()
    }

    /// The session port, 0 when it is not open.
    pub fn rpc_port(&self) -> u16 {
        self.open().map_or(0, |open| open.core.port)
    }

    /// The name under which peers reach it, `host:port`; empty when it is not open.
    pub fn session_id(&self) -> String {
        self.open()
            .map_or_else(|_| String::new(), |open| open.core.session.clone())
    }

    /// The table of memory that it uses.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// What it counted.
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }

    /// Registers memory for peers to read and write (to read only, where it is read-only): all of the list
    /// or nothing.
    ///
    /// # Errors
    /// When a region is null, empty, overlaps another one, or is not memory of this process or a device.
    pub fn register(&self, runs: &[Run]) -> Result<(), EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        open.core.table.register(runs)
    }

    /// Takes memory back, each region by its base. When it returns without an error no peer reads or
    /// writes it any more, and no operation of this process does.
    ///
    /// # Errors
    /// The first one, after trying all: the region is not registered with this engine, or still in use
    /// after some seconds; it stays registered then.
    pub fn unregister(&self, bases: &[usize]) -> Result<(), EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        let mut first = Ok(());
        for &base in bases {
            // One at a time, since each may take some seconds and the engine may be closed meanwhile.
            let still_open = open.core.check_open();
            let result = still_open.and_then(|()| open.core.table.unregister(base, &open.runtime));
            first = first.and(result);
        }
        first
    }

    /// Moves the bytes of all requests between this process and the peer, on the calling thread, then
    /// leaves a word at the peer if one is given. No request at all is a success.
    ///
    /// # Errors
    /// When the peer cannot be reached, has not registered the bytes, or the time is over. Any byte of
    /// the targets may have changed then.
    pub fn transfer(
        &self,
        peer: &str,
        opcode: Opcode,
        requests: &[Request],
        notify: Option<&Notify>,
    ) -> Result<(), EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        let moved = self.transfer_in(&open, peer, opcode, requests, notify);
        if let Err(error) = &moved {
            open.core.tell_failure(error);
        }
        moved
    }

    fn transfer_in(
        &self,
        open: &Open,
        peer: &str,
        opcode: Opcode,
        requests: &[Request],
        notify: Option<&Notify>,
    ) -> Result<(), EngineError> {
        let core = &open.core;
        let plan = Plan::new(requests)?;
        if requests.is_empty() && notify.is_none() {
            return Ok(());
        }
        let peer = names::peer(peer, core.config.peer_port)?;
        let until = until(core, plan.bytes);
        mover::carry_out(core, &peer, opcode, &plan, until)?;
        match notify {
            Some(notify) => leave(core, &peer, notify, until.instant),
            None => Ok(()),
        }
    }

    /// As [`Engine::transfer`], beside the caller, on a thread of the engine. The peer is asked for its
    /// regions before this returns, unless they are known. The memory is in use until the batch has ended.
    ///
    /// # Errors
    /// When the peer cannot be reached, or too many batches are under way.
    pub fn submit(
        &self,
        peer: &str,
        opcode: Opcode,
        requests: &[Request],
    ) -> Result<BatchId, EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        let submitted = self.submit_in(&open, peer, opcode, requests);
        if let Err(error) = &submitted {
            open.core.tell_failure(error);
        }
        submitted
    }

    fn submit_in(
        &self,
        open: &Open,
        peer: &str,
        opcode: Opcode,
        requests: &[Request],
    ) -> Result<BatchId, EngineError> {
        let core = &open.core;
        let plan = Plan::new(requests)?;
        let peer = names::peer(peer, core.config.peer_port)?;
        let until = until(core, plan.bytes);
        if peer != core.session {
            core.peers.get(&peer, until.instant)?;
        }
        open.batches.submit(core, peer, opcode, plan, until)
    }

    /// How far a batch is, as a whole; does not wait. Once it has told that a batch is done or has
    /// failed, the batch is not known any more.
    ///
    /// # Errors
    /// When there is no such batch.
    pub fn status(&self, id: BatchId) -> Result<Status, EngineError> {
        self.open()?.batches.status(id)
    }

    /// Waits until all batches have ended. They are not known any more after this.
    ///
    /// # Errors
    /// The first one that did not succeed, or is not known.
    pub fn wait(&self, ids: &[BatchId]) -> Result<(), EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        open.batches.wait(ids)
    }

    /// Asks a peer for a sign of life.
    ///
    /// # Errors
    /// When its name is not known (-101), nothing answers (-102), or what answers is not an engine (-104).
    pub fn probe(&self, peer: &str) -> Result<(), EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        let core = &open.core;
        let peer = names::peer(peer, core.config.peer_port)?;
        let until = Instant::now() + core.config.session_timeout;
        core.peers.link(&peer, until)?.ping()
    }

    /// Leaves a word for the user of a peer.
    ///
    /// # Errors
    /// When the peer cannot be reached or has no room, or the word is too long.
    pub fn notify(&self, peer: &str, notify: &Notify) -> Result<(), EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        let core = &open.core;
        let peer = names::peer(peer, core.config.peer_port)?;
        let until = Instant::now() + core.config.session_timeout;
        leave(core, &peer, notify, until)
    }

    /// Takes the words that peers have left, in the order of their coming.
    pub fn notifies(&self) -> Vec<Notify> {
        self.open()
            .map_or_else(|_| Vec::new(), |open| open.core.inbox.take())
    }

    /// Address of the region that a peer has registered first, if it has any. Asks the peer.
    ///
    /// # Errors
    /// When the peer cannot be reached.
    pub fn first_address(&self, peer: &str) -> Result<Option<u64>, EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        let core = &open.core;
        let peer = names::peer(peer, core.config.peer_port)?;
        if peer == core.session {
            return Ok(core.description().first());
        }
        let until = Instant::now() + core.config.session_timeout;
        Ok(core.peers.ask(&peer, until)?.description.first())
    }

    /// Makes a buffer of the engine's own, zeroed and registered, and tells its address.
    ///
    /// # Errors
    /// When there is no memory, or it cannot be registered.
    pub fn allocate(&self, len: u64) -> Result<usize, EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        let (address, len) = self.inner.managed.make(len)?;
        let registered = open.core.table.register(&[Run { address, len }]);
        if let Err(error) = registered {
            self.inner.managed.drop_one(address);
            return Err(error);
        }
        Ok(address)
    }

    /// Gives a buffer of [`Engine::allocate`] back.
    ///
    /// # Errors
    /// When it is none, or still in use.
    pub fn free(&self, address: usize) -> Result<(), EngineError> {
        let open = self.open()?;
        let _call = open.call()?;
        if !self.inner.managed.has(address) {
            return Err(EngineError::NotRegistered { address });
        }
        match open.core.table.unregister(address, &open.runtime) {
            // Its user may have taken it back from peers already.
            Ok(()) | Err(EngineError::NotRegistered { .. }) => {
                self.inner.managed.drop_one(address);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Ends transfers, takes all regions back, frees the ports and ends the threads, within 5 s. Safe to
    /// call again.
    pub fn close(&self) {
        if self.inner.check_process().is_err() {
            return;
        }
        let _changing = self.inner.changing.lock();
        let open = self.inner.open.lock().take();
        if let Some(open) = open {
            open.close();
        }
    }
}

/// Until when a transfer of so many bytes may take.
fn until(core: &Core, bytes: u64) -> Until {
    let granted = core.config.timeout + Duration::from_nanos(bytes);
    Until {
        now: core.clock.now() + Millis::from(granted),
        instant: Instant::now() + granted,
        granted,
    }
}

fn leave(core: &Core, peer: &str, notify: &Notify, until: Instant) -> Result<(), EngineError> {
    let (name, message) = (notify.name.len(), notify.message.len());
    if name > NOTIFY_NAME_BYTES_MAX || message > NOTIFY_MESSAGE_BYTES_MAX {
        let text = format!(
            "a notification has at most {NOTIFY_NAME_BYTES_MAX} bytes of name and {NOTIFY_MESSAGE_BYTES_MAX} of text; these are {name} and {message}"
        );
        return Err(EngineError::Transfer {
            peer: peer.to_owned(),
            failure: Box::new(Failure::new(Code::InvalidParams, Stage::Session, text)),
        });
    }
    core.peers.link(peer, until)?.notify(notify)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("session", &self.session_id())
            .finish_non_exhaustive()
    }
}
