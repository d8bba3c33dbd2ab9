//! Sessions: objects that are written or read in many small parts, layer by layer.
//!
//! A put session keeps the bytes in memory of ours, within the local buffer, and stores the object at
//! its end. A get session knows version and size of its objects from one look-up; each read goes to the
//! owner and must find that version. Between the reads a thread renews the leases, so that the objects
//! stay readable until the session ends or the cluster's cap of existence checks is reached.

use crate::errors::invalid;
use crate::handle::{Claim, Staging};
use parking_lot::{Condvar, Mutex};
use snowskin_client::{Client, ExistsOptions, PutOptions};
use snowskin_runtime::thread::Thread;
use snowskin_types::{Code, Failure, Stage, Version};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sessions of one kind in one store.
const SESSIONS_MAX: usize = 1 << 20;
/// The renewing thread ends within this.
const JOIN: Duration = Duration::from_secs(6);
/// Without sessions the thread looks after itself this often.
const IDLE: Duration = Duration::from_secs(600);
/// Leases are not renewed more often.
const RENEW_MIN: Duration = Duration::from_millis(100);

/// An object that is being put together.
pub(crate) struct Draft {
    pub(crate) bytes: Vec<u8>,
    pub(crate) options: PutOptions,
    _claim: Claim,
}

/// A draft, which writes of several threads may go to.
pub(crate) type SharedDraft = Arc<Mutex<Draft>>;

/// Put sessions by key.
#[derive(Default)]
pub(crate) struct PutSessions(Mutex<HashMap<Vec<u8>, SharedDraft>>);

fn none(key: &[u8], what: &str) -> Failure {
    let mut failure = invalid(
        Stage::Session,
        format!("there is no {what} session of this key"),
    );
    failure.key = snowskin_types::Key::new(key).ok();
    failure
}

fn too_many() -> Failure {
    let text = format!("there are {SESSIONS_MAX} sessions already, the most that are allowed");
    Failure::new(Code::UnavailableInStatus, Stage::Session, text)
}

impl PutSessions {
    /// True when the key is in a session.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Begins one.
    ///
    /// # Errors
    /// When the key is in one already, or the local buffer has no room.
    pub(crate) fn start(
        &self,
        key: &[u8],
        size: u64,
        options: PutOptions,
        staging: &Arc<Staging>,
    ) -> Result<(), Failure> {
        if size == 0 {
            return Err(invalid(
                Stage::Reserve,
                "an object of zero bytes cannot be stored",
            ));
        }
        let full = || {
            let text = format!(
                "{size} bytes are not free in the local buffer of {} bytes, which put sessions use",
                staging.size()
            );
            Failure::new(Code::NoSpace, Stage::Reserve, text)
        };
        let claim = staging.claim(size).ok_or_else(full)?;
        let len = usize::try_from(size).map_err(|_| full())?;
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| full())?;
        drop(bytes);
        let draft = Draft {
            // Zeroed by the system, page by page on use.
            bytes: vec![0; len],
            options,
            _claim: claim,
        };
        let mut all = self.0.lock();
        if all.contains_key(key) {
            return Err(invalid(
                Stage::Reserve,
                "the key is in a put session already",
            ));
        }
        if all.len() >= SESSIONS_MAX {
            return Err(too_many());
        }
        all.insert(key.to_vec(), Arc::new(Mutex::new(draft)));
        Ok(())
    }

    /// The object of a key.
    ///
    /// # Errors
    /// When there is no session.
    pub(crate) fn draft(&self, key: &[u8]) -> Result<SharedDraft, Failure> {
        let all = self.0.lock();
        all.get(key).cloned().ok_or_else(|| none(key, "put"))
    }

    /// Ends the session of a key: nobody writes to its object any more once it was locked.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn take(&self, key: &[u8]) -> Result<SharedDraft, Failure> {
        let ended = self.0.lock().remove(key);
        ended.ok_or_else(|| none(key, "put"))
    }

    /// Takes a session up again whose object could not be stored.
    pub(crate) fn put_back(&self, key: &[u8], draft: SharedDraft) {
        self.0.lock().entry(key.to_vec()).or_insert(draft);
    }

    pub(crate) fn close(&self) {
        self.0.lock().clear();
    }
}

/// What a get session knows of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) version: Version,
    pub(crate) size: u64,
}

#[derive(Debug, Default)]
struct GetState {
    known: HashMap<Vec<u8>, Known>,
    /// Time from one renewal to the next, by the shortest lease that was granted.
    pause: Option<Duration>,
    closing: bool,
    thread: Option<Thread>,
}

/// Get sessions by key.
#[derive(Debug, Default, Clone)]
pub(crate) struct GetSessions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<GetState>,
    wake: Condvar,
}

impl GetSessions {
    /// Begins the session of a key, or begins it anew.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn start(&self, key: &[u8], known: Known, lease: Duration) -> Result<(), Failure> {
        let mut state = self.0.state.lock();
        if state.known.len() >= SESSIONS_MAX {
            return Err(too_many());
        }
        let pause = (lease / 3).max(RENEW_MIN);
        state.pause = Some(state.pause.map_or(pause, |before| before.min(pause)));
        state.known.insert(key.to_vec(), known);
        self.0.wake.notify_all();
        Ok(())
    }

    /// Sees to it that leases are renewed while there are sessions.
    pub(crate) fn keep(&self, client: &Client) {
        let mut state = self.0.state.lock();
        if state.thread.is_some() || state.closing || state.known.is_empty() {
            return;
        }
        let (inner, client) = (Arc::clone(&self.0), client.clone());
        match Thread::start("snowskin-leases", move || inner.renew(&client)) {
            Ok(thread) => state.thread = Some(thread),
            Err(error) => {
                // The leases that were granted still hold for their time.
                tracing::warn!(%error, "no thread can renew the leases of get sessions");
            }
        }
    }

    /// What is known of a key.
    ///
    /// # Errors
    /// When there is no session.
    pub(crate) fn known(&self, key: &[u8]) -> Result<Known, Failure> {
        let state = self.0.state.lock();
        state
            .known
            .get(key)
            .copied()
            .ok_or_else(|| none(key, "get"))
    }

    /// Ends the session of a key, if there is one.
    pub(crate) fn end(&self, key: &[u8]) {
        self.0.state.lock().known.remove(key);
    }

    pub(crate) fn close(&self) {
        let thread = {
            let mut state = self.0.state.lock();
            state.closing = true;
            state.known.clear();
            state.thread.take()
        };
        self.0.wake.notify_all();
        if let Some(thread) = thread {
            // The client was closed before: a renewal under way has failed.
            thread.join(Instant::now() + JOIN).ok();
        }
    }
}

impl Inner {
    /// Goes on until the store is closed; without sessions it only waits for some.
    fn renew(&self, client: &Client) {
        while let Some(keys) = self.next_keys() {
            // A lease that could not be renewed shows when its object is read.
            let renewed = client.exists_batch(&keys, &ExistsOptions::default());
            let failed = renewed.iter().filter(|result| result.is_err()).count();
            if failed > 0 {
                tracing::debug!(failed, "leases of get sessions could not be renewed");
            }
        }
    }

    /// Waits until leases have to be renewed; `None` at the end.
    fn next_keys(&self) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state.lock();
        while !state.closing {
            if state.known.is_empty() {
                state.pause = None;
                let idle = |state: &mut GetState| !state.closing && state.known.is_empty();
                self.wake.wait_while_for(&mut state, idle, IDLE);
                continue;
            }
            let pause = state.pause.unwrap_or(RENEW_MIN);
            let open = |state: &mut GetState| !state.closing;
            let waited = self.wake.wait_while_for(&mut state, open, pause);
            if waited.timed_out() && !state.known.is_empty() {
                return Some(state.known.keys().cloned().collect());
            }
        }
        None
    }
}
