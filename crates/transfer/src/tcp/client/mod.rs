//! The client's side: a [`Transport`] that drives its sockets on the thread of its caller.
//!
//! A batch takes connections to its peers from a bounded pool, sends requests and payload, reads
//! straight into the callers' memory, verifies each piece while it is in the cache, and gives the
//! connections back. Nothing of it runs outside of the calls on the batch, so memory is quiet as soon
//! as such a call returns. The only thread is the keeper, which looks after idle connections of all peers.

mod batch;
mod connection;
mod operation;
mod peer;
mod pool;

use crate::tcp::counters::Counters;
use crate::transport::{Batch, Transport};
use pool::Pool;
use snowskin_proto::hello::{FEATURE_RANGES, Greeting};
use snowskin_runtime::clock::Clock;
use snowskin_types::limits::{CONNECT_TIMEOUT, DATA_CONNECTIONS_PER_PEER_MAX};
use snowskin_types::time::Millis;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;

/// Bounds of a transport. The defaults suit production.
#[derive(Debug, Clone)]
pub struct TcpOptions {
    /// Connections to one peer, at most [`DATA_CONNECTIONS_PER_PEER_MAX`].
    pub connections_per_peer: usize,
    /// Operations under way on one connection.
    pub depth: usize,
    /// A further connection to a peer is used for each so many bytes that wait for it.
    pub bytes_per_connection: u64,
    /// Longest wait for a connection to open and be greeted.
    pub connect_timeout: Millis,
    /// An idle connection is kept this long.
    pub idle: Millis,
    /// Time between two looks at the idle connections.
    pub keeper_interval: Millis,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions {
            connections_per_peer: 4,
            depth: 8,
            bytes_per_connection: 8 << 20,
            connect_timeout: CONNECT_TIMEOUT,
            idle: Millis(60_000),
            keeper_interval: Millis(5_000),
        }
    }
}

#[derive(Debug)]
struct Shared {
    options: TcpOptions,
    greeting: Greeting,
    clock: Arc<dyn Clock>,
    pool: Pool,
    counters: Arc<Counters>,
}

/// Moves bytes over TCP.
#[derive(Debug)]
pub struct TcpTransport {
    shared: Arc<Shared>,
    keeper: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl TcpTransport {
    /// A transport that greets peers with `greeting`. The clock must be one that runs.
    ///
    /// # Errors
    /// When the keeper's thread cannot be started.
    pub fn new(
        greeting: Greeting,
        mut options: TcpOptions,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let greeting = greeting.with_features(FEATURE_RANGES);
        options.connections_per_peer = options
            .connections_per_peer
            .clamp(1, DATA_CONNECTIONS_PER_PEER_MAX);
        options.depth = options.depth.max(1);
        let counters = Arc::<Counters>::default();
        let pool = Pool::new(options.connections_per_peer, Arc::clone(&counters));
        let shared = Arc::new(Shared {
            options,
            greeting,
            clock,
            pool,
            counters,
        });
        let (stop, stopped) = mpsc::sync_channel::<()>(1);
        let kept = Arc::clone(&shared);
        let keep = move || {
            let interval = kept.options.keeper_interval.duration();
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                kept.pool.look_after(kept.clock.now(), kept.options.idle);
            }
        };
        let thread = std::thread::Builder::new()
            .name("transfer-keeper".to_owned())
            .spawn(keep)?;
        Ok(TcpTransport {
            shared,
            keeper: Some((stop, thread)),
        })
    }

    /// What it counts.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }

    /// Closes all idle connections, to one peer or to all.
    pub fn forget(&self, address: Option<&str>) {
        self.shared.pool.forget(address);
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.keeper.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("the keeper of idle connections panicked");
            }
        }
        self.shared.pool.forget(None);
    }
}

impl Transport for TcpTransport {
    fn batch<'m>(&self) -> Box<dyn Batch<'m> + 'm> {
        Box::new(batch::TcpBatch::new(Arc::clone(&self.shared)))
    }
}
