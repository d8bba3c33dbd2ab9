//! Starting and stopping: threads, sockets and the state directory in the right order.

use crate::config::{Config, StartError, read_token};
use crate::hub::Hub;
use crate::journal::Journal;
use crate::links::{LinkEnd, LinkSink};
use crate::state::{Identity, StateStore};
use crate::{http, server};
use snowskin_directory::directory::Directory;
use snowskin_directory::effect::Restored;
use snowskin_directory::event::LinkId;
use snowskin_proto::hello::{Greeting, Role};
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_runtime::net::{self, ListenError};
use snowskin_runtime::rng;
use snowskin_runtime::spawn::Cancel;
use snowskin_runtime::thread::{Thread, ThreadError};
use snowskin_types::call::{Reply, Request};
use snowskin_types::link::{FromNode, ToNode};
use snowskin_types::{ClusterId, Term};
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// Terms count from here in minutes, so that a directory that was wiped does not go back in terms.
const TERM_ZERO: Duration = Duration::from_secs(1_735_689_600);
/// All threads end within this time after they were asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Tasks get this part of it.
const TASKS_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A master in this process.
#[derive(Debug)]
pub struct Master;

impl Master {
    /// Starts a master with its ports. It is serving when this returns.
    ///
    /// # Errors
    /// When an option, a port or the state directory cannot be used; nothing is left running then.
    pub fn start(config: &Config) -> Result<Running, StartError> {
        if config.state_dir.is_none() {
            return Err(StartError::Option {
                option: "--state-dir",
                message: "a master with ports needs a state directory".into(),
            });
        }
        launch(config, Ports::Open)
    }

    /// Starts a master without ports, for the processes of one node, its clients and nobody else.
    /// Without a state directory nothing outlives the process.
    ///
    /// # Errors
    /// As [`Master::start`].
    pub fn embedded(config: &Config) -> Result<Running, StartError> {
        launch(config, Ports::None)
    }
}

/// A master at work. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    rpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    stop: Cancel,
    ended: Cancel,
    threads: Vec<Thread>,
}

/// Why a master did not stop well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct StopError(#[from] ThreadError);

impl Running {
    /// Where the control port listens; none for an embedded master.
    pub fn rpc(&self) -> Option<SocketAddr> {
        self.rpc
    }

    /// Where the HTTP port listens, if it does.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The leadership.
    pub fn term(&self) -> Term {
        self.handle.hub.term
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.handle.hub.cluster
    }

    /// The way in from the same process.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Cancelled when a thread of the master has ended: after [`Running::shutdown`] began, or by an
    /// internal error, after which the process should end.
    pub fn ended(&self) -> &Cancel {
        &self.ended
    }

    /// Stops taking requests, answers what waits, finishes durable writes and joins all threads.
    ///
    /// # Errors
    /// When a thread was late or had panicked.
    pub fn shutdown(mut self) -> Result<(), StopError> {
        self.stop_all()
    }

    fn stop_all(&mut self) -> Result<(), StopError> {
        // What waits is answered first, so that connections take the answers along when they end.
        self.handle.hub.close();
        self.stop.cancel();
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let end = thread.join(deadline);
            result = result.and(end.map_err(StopError));
        }
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop_all() {
            tracing::error!(%error, "the master did not stop well");
        }
    }
}

/// The way to a master of the same process: no sockets, no copies of messages. Clones are cheap.
#[derive(Clone)]
pub struct Handle {
    hub: Arc<Hub>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("term", &self.hub.term)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Asks and waits on the calling thread; `Reply::Failed` with `RPC_TIMEOUT` at the deadline.
    /// Most requests are answered without another thread having a part in it.
    pub fn call(&self, request: Request, deadline: Instant) -> Reply {
        self.hub.call(request, deadline)
    }

    /// Asks and waits as a task.
    ///
    /// # Cancellation
    /// Safe: the request goes on, its answer is dropped.
    pub async fn ask(&self, request: Request, timeout: Duration) -> Reply {
        self.hub.ask(request, timeout.into()).await
    }

    /// True once look-ups of unknown keys are answered at once.
    pub fn ready(&self) -> bool {
        self.hub.ready()
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.hub.cluster
    }

    /// The leadership.
    pub fn term(&self) -> Term {
        self.hub.term
    }

    /// Opens a link for a node of this process; the master's messages wait in a queue of `bound`. A
    /// full queue ends the link, as does dropping either end; the receiver then gets `None`.
    pub fn node_link(&self, bound: usize) -> (NodeLink, mpsc::Receiver<ToNode>) {
        let (queue, messages) = mpsc::channel(bound);
        let mut queue = Some(queue);
        let sink: LinkSink = Box::new(move |message| match (message, &queue) {
            (Some(message), Some(open)) => open.try_send(message).is_ok(),
            (None, _) => {
                queue = None;
                false
            }
            (Some(_), None) => false,
        });
        (self.node_link_into(sink), messages)
    }

    /// As [`Handle::node_link`], into a queue of the caller's own.
    pub fn node_link_into(&self, sink: LinkSink) -> NodeLink {
        let link = self.hub.open_link(LinkEnd::Local(sink));
        NodeLink {
            hub: self.hub.clone(),
            link,
        }
    }
}

/// A node's end of a link within the process. Dropping it is a lost connection.
pub struct NodeLink {
    hub: Arc<Hub>,
    link: LinkId,
}

/// The link has ended: the master refused, fenced or stopped, or the queue to the node was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link to the master has ended")]
pub struct LinkEnded;

impl NodeLink {
    /// Hands a message to the master; what it answers may be in the queue before this returns.
    ///
    /// # Errors
    /// When the link has ended.
    pub fn send(&self, message: FromNode) -> Result<(), LinkEnded> {
        if self.hub.take_message(self.link, message) {
            Ok(())
        } else {
            Err(LinkEnded)
        }
    }
}

impl Drop for NodeLink {
    fn drop(&mut self) {
        self.hub.link_lost(self.link);
    }
}

impl std::fmt::Debug for NodeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeLink")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    Open,
    None,
}

fn launch(config: &Config, ports: Ports) -> Result<Running, StartError> {
    config.check()?;
    let token = read_token(config.token_file.as_ref())?;
    let random = |verb| move |cause| StartError::System { verb, cause };
    let unique = || rng::unique().map_err(random("get randomness"));
    // Ports first: a master that cannot serve must not raise the term.
    let (rpc, web) = match ports {
        Ports::None => (None, None),
        Ports::Open => (
            Some(listen(
                (&config.rpc_address, config.rpc_port),
                "--rpc-address",
                "--rpc-port",
            )?),
            match config.metrics_port {
                Some(port) => Some(listen(
                    (&config.metrics_host, port),
                    "--metrics-host",
                    "--metrics-port",
                )?),
                None => None,
            },
        ),
    };
    let identity = Identity {
        wanted: config.cluster_id,
        fresh: ClusterId(unique()?),
        term_floor: term_floor(SystemTime::now()),
    };
    let (store, restored) = match &config.state_dir {
        Some(dir) => {
            let (store, restored) = StateStore::open(dir, identity)?;
            (Some(store), restored)
        }
        None => (None, in_memory(identity)),
    };
    let (cluster, term) = (restored.cluster, restored.term);
    let settings = snowskin_directory::config::Config {
        lease_ttl: config.policy.lease_ttl,
        suspect_after: config.suspect_after,
        client_ttl: config.client_ttl,
        put_start_discard_timeout: config.policy.put_start_discard_timeout,
        placement: config.placement,
        policy: config.policy,
        rng_seed: unique()?,
        hash_seed: unique()?,
        ..Default::default()
    };
    let (core, first) = Directory::new(SystemClock.now(), settings, restored);
    let hub = Hub::new(cluster, term, core, first);
    let greeting = Greeting::new(Role::Master, unique()?)
        .with_cluster(Some(cluster))
        .with_token(token);

    let mut running = Running {
        rpc: address(rpc.as_ref())?,
        http: address(web.as_ref())?,
        handle: Handle { hub: hub.clone() },
        stop: Cancel::new(),
        ended: Cancel::new(),
        threads: Vec::new(),
    };
    // From here on an error drops `running`, which stops what has been started.
    let journal = match store {
        Some(store) => {
            let done = {
                let hub = hub.clone();
                Box::new(move |ids: &[_], ok| hub.persisted(ids, ok))
            };
            let (journal, body) = Journal::new(store, done);
            let ended = running.ended.clone();
            let body = move || {
                // However it ends: without its writer the master cannot go on.
                let _ended = OnDrop(ended);
                body();
            };
            running.threads.push(start("snowskin-state", body)?);
            Some(journal)
        }
        None => None,
    };
    hub.begin(journal);
    let (stop, ended) = (running.stop.clone(), running.ended.clone());
    let serve = control(rpc, hub.clone(), Arc::new(greeting), stop.clone());
    running
        .threads
        .push(run("snowskin-master", serve, ended.clone())?);
    if let Some(web) = web {
        let serve = http::serve(web, hub, stop);
        running.threads.push(run("snowskin-http", serve, ended)?);
    }
    Ok(running)
}

/// The control thread: the clock, the acceptor and all connections.
async fn control(rpc: Option<TcpListener>, hub: Arc<Hub>, greeting: Arc<Greeting>, stop: Cancel) {
    let tasks = server::tasks();
    let cancel = tasks.cancel_token().clone();
    let driver = {
        let (hub, cancel) = (hub.clone(), cancel.clone());
        async move {
            cancel.run(hub.drive()).await;
        }
    };
    let mut started = tasks.spawn("clock", driver).is_ok();
    if let Some(listener) = rpc {
        match listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener))
        {
            Ok(listener) => {
                let (cancel, owner) = (cancel.clone(), tasks.clone());
                let accept = async move {
                    cancel
                        .run(server::accept(listener, hub, greeting, owner))
                        .await;
                };
                started &= tasks.spawn("acceptor", accept).is_ok();
            }
            Err(error) => {
                tracing::error!(%error, "cannot serve the control port");
                started = false;
            }
        }
    }
    if started {
        tokio::select! {
            () = stop.cancelled() => {}
            // A task panicked, and what it shared with the others may be half-changed.
            () = cancel.cancelled() => {}
        }
    }
    if let Err(error) = tasks.shutdown(TASKS_STOP_TIMEOUT).await {
        tracing::error!(%error, "the control port did not stop well");
    }
}

/// Runs a future to its end on a thread and a runtime of its own; tells `ended` when it is over.
fn run(
    name: &'static str,
    future: impl Future<Output = ()> + Send + 'static,
    ended: Cancel,
) -> Result<Thread, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| StartError::System {
            verb: "make an event loop",
            cause,
        })?;
    start(name, move || {
        let _ended = OnDrop(ended);
        runtime.block_on(future);
        runtime.shutdown_timeout(TASKS_STOP_TIMEOUT);
    })
}

struct OnDrop(Cancel);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn start(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<Thread, StartError> {
    Thread::start(name, body).map_err(|cause| StartError::System {
        verb: "start a thread",
        cause,
    })
}

/// `host` and `port` are the options that named them.
fn listen(at: (&str, u16), host: &str, port: &str) -> Result<TcpListener, StartError> {
    let bare_v6 = at.0.contains(':') && !at.0.starts_with('[');
    let address = if bare_v6 {
        format!("[{}]:{}", at.0, at.1)
    } else {
        format!("{}:{}", at.0, at.1)
    };
    net::listen(&address, port).map_err(|error| match error {
        ListenError::Address {
            address, reason, ..
        } => ListenError::Address {
            option: host.to_owned(),
            address,
            reason,
        }
        .into(),
        other => other.into(),
    })
}

fn address(listener: Option<&TcpListener>) -> Result<Option<SocketAddr>, StartError> {
    listener
        .map(TcpListener::local_addr)
        .transpose()
        .map_err(|cause| StartError::System {
            verb: "read a port's address",
            cause,
        })
}

fn term_floor(now: SystemTime) -> Term {
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH + TERM_ZERO)
        .unwrap_or_default();
    // A clock that stands before the year 2025 gives no floor; term 0 means 'none'.
    Term(
        u32::try_from(since.as_secs() / 60)
            .unwrap_or(u32::MAX)
            .max(1),
    )
}

fn in_memory(identity: Identity) -> Restored {
    Restored {
        cluster: identity.wanted.unwrap_or(identity.fresh),
        term: identity.term_floor,
        nodes: Vec::new(),
    }
}
