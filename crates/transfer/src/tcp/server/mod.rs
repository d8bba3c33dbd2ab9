//! The data server of a node: accepts connections and moves bytes for its [`Endpoint`].
//!
//! Each connection is one task with two halves: `intake` reads requests and the payload of writes,
//! `outlet` serves reads and sends all answers. What a peer can make the server hold is bounded:
//! connections, requests per connection, bytes of a frame, time without progress.

mod intake;
mod outlet;
mod ranges;

use crate::tcp::counters::{Counters, count, lower};
use crate::tcp::endpoint::Endpoint;
use parking_lot::RwLock;
use snowskin_proto::hello::Greeting;
use snowskin_runtime::net;
use snowskin_runtime::spawn::{TaskSet, TasksError};
use snowskin_runtime::telemetry::Seldom;
use snowskin_types::limits::{
    HELLO_TIMEOUT, NODE_CONNECTIONS_MAX, PIN_DEADLINE, PROGRESS_TIMEOUT,
    REQUESTS_PER_CONNECTION_MAX,
};
use snowskin_types::time::Millis;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Pause after a failed accept, for example when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of a data server. The defaults suit production.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Connections at once.
    pub connections_max: usize,
    /// A stranger says hello within this time.
    pub hello_timeout: Millis,
    /// A peer that owes bytes, or takes none, is left after this time.
    pub stall: Millis,
    /// A connection on which nothing happens is closed after this time.
    pub idle: Millis,
    /// Time between two signs of life for a request that waits.
    pub waiting_interval: Millis,
    /// Bytes of refused writes that are thrown away before the connection is closed instead.
    pub drain_bytes_max: u64,
    /// Writes of one connection whose answers are outstanding.
    pub writes_max: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            connections_max: NODE_CONNECTIONS_MAX,
            hello_timeout: HELLO_TIMEOUT,
            stall: PIN_DEADLINE,
            idle: Millis(120_000),
            waiting_interval: Millis(PROGRESS_TIMEOUT.0 / 4),
            drain_bytes_max: 16 << 20,
            writes_max: REQUESTS_PER_CONNECTION_MAX,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared<E> {
    endpoint: E,
    options: ServerOptions,
    greeting: RwLock<Greeting>,
    counters: Arc<Counters>,
    /// Tells of connections that ended by the peer's fault.
    strangers: Seldom,
}

/// A running data server. Dropping it stops it at once; [`Server::shutdown`] waits.
#[derive(Debug)]
pub struct Server<E: Endpoint> {
    shared: Arc<Shared<E>>,
    tasks: TaskSet,
    address: SocketAddr,
}

impl<E: Endpoint> Server<E> {
    /// Serves on a listener (see [`net::listen`]) until shutdown. Its tasks run on `runtime`; one with
    /// two workers or more lets connections move bytes at the same time.
    ///
    /// # Errors
    /// When the listener cannot be taken over.
    pub fn start(
        listener: TcpListener,
        endpoint: E,
        greeting: Greeting,
        options: ServerOptions,
        runtime: &Handle,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // One more for the task that accepts.
        let tasks = TaskSet::new(options.connections_max.saturating_add(1));
        let shared = Arc::new(Shared {
            endpoint,
            options,
            greeting: RwLock::new(greeting),
            counters: Arc::default(),
            strangers: Seldom::default(),
        });
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let accept = accept(
            listener,
            Arc::clone(&shared),
            tasks.clone(),
            runtime.clone(),
        );
        tasks
            .spawn_on(runtime, "data-accept", accept)
            .map_err(io::Error::other)?;
        Ok(Server {
            shared,
            tasks,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counts.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }

    /// The node behind it.
    pub fn endpoint(&self) -> &E {
        &self.shared.endpoint
    }

    /// Changes what new connections are greeted with, once the cluster is known.
    pub fn greet_with(&self, greeting: Greeting) {
        *self.shared.greeting.write() = greeting;
    }

    /// The name of a task that panicked, if one did; the server has stopped then.
    pub fn panicked(&self) -> Option<&'static str> {
        self.tasks.panicked()
    }

    /// Breaks all connections and waits until no task of the server runs.
    ///
    /// # Errors
    /// When a task panicked or did not end in time.
    ///
    /// # Cancellation
    /// The server stops all the same.
    pub async fn shutdown(&self, patience: Duration) -> Result<(), TasksError> {
        self.tasks.shutdown(patience).await
    }
}

impl<E: Endpoint> Drop for Server<E> {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

async fn accept<E: Endpoint>(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared<E>>,
    tasks: TaskSet,
    runtime: Handle,
) {
    let cancel = tasks.cancel_token().clone();
    let failures = Seldom::default();
    while let Some(accepted) = cancel.run(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                let counters = &shared.counters;
                // This task is one of the set. Counted before the peer can notice.
                if tasks.running() > shared.options.connections_max {
                    count(&counters.connections_over_limit);
                    continue;
                }
                let task = connection(stream, peer, Arc::clone(&shared), tasks.clone());
                if tasks.spawn_on(&runtime, "data-connection", task).is_err() {
                    count(&counters.connections_over_limit);
                }
            }
            Err(error) => {
                if let Some(count) = failures.another() {
                    tracing::warn!(count, %error, "cannot accept data connections");
                }
                cancel.run(tokio::time::sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer made no progress for {0:?}")]
    Silent(Duration),
    #[error("the peer does not speak the protocol: {0}")]
    Garbage(String),
    #[error("the peer was refused: {0}")]
    Refused(String),
    #[error("the transfer was cut by the node")]
    Cut,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("memory of the node cannot be used: {0}")]
    Memory(#[from] snowskin_memory::error::MemoryError),
}

impl From<snowskin_proto::error::FrameError> for ConnectionError {
    fn from(error: snowskin_proto::error::FrameError) -> Self {
        ConnectionError::Garbage(error.to_string())
    }
}

/// Lowers the gauge of open connections, whatever ends the task.
struct Gauge(Arc<Counters>);

impl Drop for Gauge {
    fn drop(&mut self) {
        lower(&self.0.connections);
    }
}

async fn connection<E: Endpoint>(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared<E>>,
    tasks: TaskSet,
) {
    let counters = Arc::clone(&shared.counters);
    count(&counters.connections);
    count(&counters.connections_opened);
    let _gauge = Gauge(Arc::clone(&counters));
    let cancel = tasks.cancel_token().clone();
    let Some(Err(error)) = cancel.run(serve(&stream, &shared)).await else {
        return;
    };
    let counter = match &error {
        ConnectionError::Closed | ConnectionError::Broken(_) => None,
        ConnectionError::Silent(_) => Some(&counters.silent_peers),
        ConnectionError::Garbage(_) => Some(&counters.garbage),
        ConnectionError::Refused(_) => Some(&counters.hellos_refused),
        ConnectionError::Cut => Some(&counters.cut),
        ConnectionError::Memory(_) => Some(&counters.broken),
    };
    if let Some(counter) = counter {
        count(counter);
    }
    match error {
        ConnectionError::Closed | ConnectionError::Broken(_) => {
            tracing::debug!(%peer, %error, "data connection ended");
        }
        ConnectionError::Memory(_) => tracing::error!(%peer, %error, "data connection ended"),
        // Strangers come as often as they like; the log must not grow with them.
        _ => {
            tracing::debug!(%peer, %error, "data connection ended");
            if let Some(count) = shared.strangers.another() {
                tracing::warn!(count, last = %peer, %error, "data connections were closed");
            }
        }
    }
}

async fn serve<E: Endpoint>(
    stream: &TcpStream,
    shared: &Arc<Shared<E>>,
) -> Result<(), ConnectionError> {
    net::tune(stream)?;
    // Answers that wait for the other half; the halves run side by side, so a full queue only holds
    // the intake of further requests back.
    let (answers, answered) = mpsc::channel(REQUESTS_PER_CONNECTION_MAX);
    let (reads, wanted) = mpsc::channel(REQUESTS_PER_CONNECTION_MAX);
    let greeting = shared.greeting.read().clone();
    let intake = intake::Intake::new(stream, shared, answers, reads);
    let outlet = outlet::Outgoing::new(stream, shared, answered, wanted);
    tokio::select! {
        ended = intake.run(greeting) => ended,
        ended = outlet.run() => ended,
    }
}
