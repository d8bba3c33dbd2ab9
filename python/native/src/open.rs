//! An open store: the client and what belongs to it, shared by the calls under way, and the slot that it
//! stands in, which a forked child sees empty.

use crate::ending::released;
use crate::engine::InnerTransferEngine;
use crate::errors::{closed, invalid};
use crate::handle::Staging;
use crate::segments::Segments;
use crate::sessions::{GetSessions, PutSessions};
use crate::settings::Settings;
use crate::start;
use crate::watch::Watch;
use parking_lot::Mutex;
use pyo3::{Py, Python};
use snowskin_client::Client;
use snowskin_device::{Config as DeviceConfig, Registry};
use snowskin_types::{Failure, Key, Stage};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Open stores of this process, for the end of the interpreter.
static OPEN: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());
/// The list is held for moments only; in a child it may have been held by a thread that is not there.
const LIST_PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Open {
    pub(crate) client: Client,
    pub(crate) registry: Registry,
    pub(crate) staging: Arc<Staging>,
    /// Effective `host:port`; empty for a thin store.
    pub(crate) hostname: String,
    pub(crate) master: String,
    pub(crate) transfer_timeout: Option<Duration>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) segments: Segments,
    pub(crate) puts: PutSessions,
    pub(crate) gets: GetSessions,
    /// The process that opened it.
    owner: u32,
    /// Lives as long as the store, so that its memory stays registered.
    _engine: Option<Py<InnerTransferEngine>>,
    _port: Option<TcpListener>,
}

impl Open {
    /// Starts what the settings describe.
    ///
    /// # Errors
    /// Why that failed.
    pub(crate) fn start(settings: Settings) -> Result<Arc<Self>, Failure> {
        let registry = match &settings.engine {
            Some(engine) => engine.get().registry(),
            None => {
                let mut config = DeviceConfig::from_environment()?;
                config.strict |= settings.strict_buffers;
                Registry::new(config)
            }
        };
        let started = start::start(&settings)?;
        let open = Arc::new(Open {
            client: started.client,
            registry,
            staging: Staging::new(settings.local_buffer_size),
            hostname: started.hostname,
            master: settings.master,
            transfer_timeout: settings.transfer_timeout,
            watch: Arc::default(),
            segments: Segments::default(),
            puts: PutSessions::default(),
            gets: GetSessions::default(),
            owner: std::process::id(),
            _engine: settings.engine,
            _port: started.port,
        });
        if let Some(mut all) = OPEN.try_lock_for(LIST_PATIENCE) {
            all.retain(|open| open.strong_count() > 0);
            all.push(Arc::downgrade(&open));
        }
        Ok(open)
    }

    /// Ends it: calls under way fail soon.
    ///
    /// # Errors
    /// When a thread of a node of this process did not end well.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        let ended = self.client.close();
        self.watch.close();
        self.gets.close();
        self.puts.close();
        ended
    }
}

/// Ends every store that is still open.
pub(crate) fn close_all() {
    let Some(mut list) = OPEN.try_lock_for(LIST_PATIENCE) else {
        return;
    };
    let all = std::mem::take(&mut *list);
    drop(list);
    let mine = std::process::id();
    let open = all.iter().filter_map(Weak::upgrade);
    for open in open.filter(|open| open.owner == mine) {
        if let Err(error) = open.close() {
            tracing::warn!(%error, "a store did not end well");
        }
    }
}

/// The place of an open store in an object of Python, and the last failure of a call.
///
/// Its locks are taken with the interpreter held only, so that none of them is held across a fork by
/// `os.fork`.
#[derive(Default)]
pub(crate) struct Slot {
    /// The process that opened it; zero: none.
    owner: AtomicU32,
    open: Mutex<Option<Arc<Open>>>,
    last: Mutex<Option<Failure>>,
}

impl Slot {
    /// The open store of this process.
    pub(crate) fn get(&self) -> Option<Arc<Open>> {
        self.is_mine().then(|| self.open.lock().clone()).flatten()
    }

    /// As [`Slot::get`]; its absence is the last failure.
    pub(crate) fn need(&self) -> Result<Arc<Open>, Failure> {
        self.get().ok_or_else(|| {
            let failure = closed();
            self.note(&failure);
            failure
        })
    }

    fn is_mine(&self) -> bool {
        // The process id of a child differs; nothing else is ordered by it.
        self.owner.load(Ordering::Relaxed) == std::process::id()
    }

    /// Puts a store in and takes the one before out, to be closed without the interpreter.
    pub(crate) fn set(&self, open: Option<Arc<Open>>) -> Option<Arc<Open>> {
        let mine = self.is_mine();
        self.owner.store(std::process::id(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.open.lock(), open);
        if mine {
            return before;
        }
        leave(before);
        None
    }

    /// Remembers a failure.
    pub(crate) fn note(&self, failure: &Failure) {
        *self.last.lock() = Some(failure.clone());
    }

    /// Remembers a failure that Python found.
    pub(crate) fn note_refusal(&self, mut failure: Failure, key: Option<&[u8]>) {
        failure.key = key.and_then(|key| Key::new(key).ok());
        *self.last.lock() = Some(failure);
    }

    /// The last failure.
    pub(crate) fn last(&self) -> Option<Failure> {
        self.last.lock().clone()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let open = self.open.get_mut().take();
        if !self.is_mine() {
            leave(open);
        } else if let Some(open) = open {
            // Nobody can be in a call: it would hold the object. Other threads go on meanwhile.
            let ended = Python::try_attach(|py| released(py, || open.close()));
            if let Some(Err(error)) = ended {
                tracing::warn!(%error, "a store that was dropped did not end well");
            }
        }
    }
}

/// Leaves the parent's store alone in a child: its threads do not exist here, and its sockets are the
/// parent's.
fn leave(open: Option<Arc<Open>>) {
    if let Some(open) = open {
        Box::leak(Box::new(open));
    }
}

/// The failure for lists that do not belong to each other.
pub(crate) fn mismatch() -> Failure {
    invalid(
        Stage::Session,
        "the lists of this call have different lengths",
    )
}
