//! The client: one object, usable from many threads, each call on the thread that makes it.

use crate::buffer::{Source, Target};
use crate::config::Config;
use crate::context::Context;
use crate::counters::{Counters, Counts};
use crate::options::{GetOptions, PutOptions};
use crate::plan::get::Got;
use crate::plan::location::LocationCache;
use crate::plan::put::Stored;
use crate::port::MasterPort;
use crate::shape::Parts;
use parking_lot::{Condvar, Mutex};
use snowskin_runtime::clock::Clock;
use snowskin_runtime::rng;
use snowskin_transfer::transport::Transport;
use snowskin_types::call::PutMode;
use snowskin_types::object::Place;
use snowskin_types::{ClientId, Code, Failure, Key, Millis, NodeId, Stage, Tenant};
use std::sync::Arc;

/// A user's access to a pool.
///
/// Calls block the calling thread until they are answered or their deadline passes; no runtime is
/// involved. Clones share connections and everything else.
#[derive(Clone)]
pub struct Client {
    pub(crate) context: Arc<Context>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.context.id)
            .field("tenant", &self.context.tenant)
            .finish_non_exhaustive()
    }
}

/// What a client is put together from.
pub(crate) struct Wiring {
    pub(crate) id: ClientId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) master: Arc<dyn MasterPort>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) prefer: Option<NodeId>,
    pub(crate) parts: Parts,
}

impl Client {
    pub(crate) fn wire(config: &Config, wiring: Wiring) -> Client {
        Client {
            context: Arc::new(Context {
                id: wiring.id,
                tenant: config.tenant.clone(),
                clock: wiring.clock,
                counters: wiring.counters,
                master: wiring.master,
                transport: wiring.transport,
                metadata_timeout: Millis::from(config.metadata_timeout),
                data_timeout: config.data_timeout.map(Millis::from),
                prefer: wiring.prefer,
                locations: Mutex::new(LocationCache::new(config.locations_max)),
                parts: Mutex::new(Some(wiring.parts)),
                closed: Mutex::new(false),
                closing: Condvar::new(),
            }),
        }
    }

    /// Tells this client apart from others in logs of the master.
    pub fn id(&self) -> ClientId {
        self.context.id
    }

    /// Namespace of calls that name none.
    pub fn tenant(&self) -> &Tenant {
        &self.context.tenant
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.context.counters.counts()
    }

    /// The nodes of this process: none for a thin client.
    pub fn own_nodes(&self) -> Vec<Place> {
        let parts = self.context.parts.lock();
        parts.as_ref().map(Parts::places).unwrap_or_default()
    }

    /// What the nodes of this process count and measure.
    pub fn own_metrics(&self) -> Vec<snowskin_node::Metrics> {
        let parts = self.context.parts.lock();
        parts.as_ref().map(Parts::metrics).unwrap_or_default()
    }

    /// Ends connections and stops what runs in this process for this client (its objects are lost).
    /// Calls under way fail soon, later ones at once; closing again does nothing.
    ///
    /// # Errors
    /// When a thread of a node or master of this process did not end well.
    pub fn close(&self) -> Result<(), Failure> {
        *self.context.closed.lock() = true;
        self.context.closing.notify_all();
        self.context.master.close();
        self.context.locations.lock().clear();
        let parts = self.context.parts.lock().take();
        parts.map_or(Ok(()), Parts::stop)
    }

    /// Stores bytes under a key.
    ///
    /// # Errors
    /// `OBJECT_ALREADY_EXISTS` for a taken key (with [`PutMode::Replace`]: one that somebody else
    /// is just putting), else why it could not be stored.
    pub fn put(
        &self,
        key: impl AsRef<[u8]>,
        bytes: &[u8],
        options: &PutOptions,
    ) -> Result<Stored, Failure> {
        self.put_source(key.as_ref(), Source::Bytes(bytes), options)
    }

    /// Stores several runs of bytes, one after the other, as one object.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn put_parts(
        &self,
        key: impl AsRef<[u8]>,
        parts: &[&[u8]],
        options: &PutOptions,
    ) -> Result<Stored, Failure> {
        self.put_source(key.as_ref(), Source::Parts(parts.to_vec()), options)
    }

    /// Stores bytes of any source.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn put_source(
        &self,
        key: &[u8],
        source: Source<'_>,
        options: &PutOptions,
    ) -> Result<Stored, Failure> {
        let stored = one(self.put_batch(&[(key, source)], options))?;
        let Stored::Exists { unfinished, .. } = stored else {
            return Ok(stored);
        };
        let text = match (options.mode, unfinished) {
            (PutMode::IfAbsent, false) => "the key is taken",
            (_, true) => "somebody else is just putting this key",
            (PutMode::Replace, false) => "the key could not be replaced",
        };
        let mut failure = Failure::new(Code::ObjectAlreadyExists, Stage::Reserve, text);
        failure.key = Key::new(key).ok();
        Err(failure)
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// `OBJECT_NOT_FOUND` when there is none, else why it could not be read.
    pub fn get(&self, key: impl AsRef<[u8]>, options: &GetOptions) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.get_target(key.as_ref(), Target::Vec(&mut bytes), options)?;
        Ok(bytes)
    }

    /// Reads a whole object into the front of a buffer and returns its size.
    ///
    /// # Errors
    /// `BUFFER_OVERFLOW` when the buffer is too small: not a byte of it was written then.
    pub fn get_into(
        &self,
        key: impl AsRef<[u8]>,
        into: &mut [u8],
        options: &GetOptions,
    ) -> Result<u64, Failure> {
        let got = self.get_target(key.as_ref(), Target::Bytes(into), options)?;
        Ok(got.len)
    }

    /// Reads as many bytes as the buffer holds, from `offset` of the object on.
    ///
    /// # Errors
    /// `INVALID_READ` when the range lies outside the object.
    pub fn get_range_into(
        &self,
        key: impl AsRef<[u8]>,
        offset: u64,
        into: &mut [u8],
        options: &GetOptions,
    ) -> Result<u64, Failure> {
        let len = into.len() as u64;
        let mut items = [GetItem {
            key: key.as_ref(),
            offset,
            len,
            target: Target::Bytes(into),
        }];
        one(self.get_items(&mut items, options)).map(|got| got.len)
    }

    /// Reads a whole object into any target.
    ///
    /// # Errors
    /// As [`Client::get`] and [`Client::get_into`].
    pub fn get_target(
        &self,
        key: &[u8],
        mut target: Target<'_>,
        options: &GetOptions,
    ) -> Result<Got, Failure> {
        one(self.get_items(&mut [GetItem::whole(key, target.share())], options))
    }
}

/// One item of a batch of gets.
#[derive(Debug)]
pub struct GetItem<'a> {
    /// Whose bytes.
    pub key: &'a [u8],
    /// First byte.
    pub offset: u64,
    /// Bytes; `u64::MAX` means up to the end.
    pub len: u64,
    /// Where they go.
    pub target: Target<'a>,
}

impl<'a> GetItem<'a> {
    /// The whole object.
    pub fn whole(key: &'a [u8], target: Target<'a>) -> Self {
        GetItem {
            key,
            offset: 0,
            len: u64::MAX,
            target,
        }
    }
}

pub(crate) fn unique_id() -> Result<ClientId, Failure> {
    rng::unique().map(ClientId).map_err(|error| {
        Failure::new(
            Code::Internal,
            Stage::Session,
            format!("the system gives no randomness: {error}"),
        )
    })
}

/// The result of a batch of one.
pub(crate) fn one<T>(results: Vec<Result<T, Failure>>) -> Result<T, Failure> {
    results.into_iter().next().unwrap_or_else(|| {
        Err(Failure::new(
            Code::Internal,
            Stage::Session,
            "a call of one item ended without a result",
        ))
    })
}
