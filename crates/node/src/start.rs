//! Starting and stopping: limits, segment, listener, session, in this order.

use crate::address;
use crate::config::{Config, Listening, Master, Population, StartError};
use crate::endpoint::NodeEndpoint;
use crate::engine::Engine;
use crate::link::LinkError;
use crate::local::Handle;
use crate::memory::{CONTROL_BYTES, NodeMemory, unlockable};
use crate::metrics::Metrics;
use crate::scrub::Scrubber;
use crate::session::{self, Attempts, Peer};
use snowskin_memory::limits::{self as machine, LimitPaths, Locking};
use snowskin_memory::segment::Segment;
use snowskin_proto::hello::{Greeting, Role};
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_runtime::net::DialError;
use snowskin_runtime::spawn::Cancel;
use snowskin_runtime::thread::{Thread, ThreadError};
use snowskin_runtime::{net, rng};
use snowskin_store::{Store, arena};
use snowskin_transfer::tcp::server::{Server, ServerOptions};
use snowskin_types::id::{ClusterId, Epoch, NodeId, Session};
use snowskin_types::limits::{CONNECT_TIMEOUT, LEAVE_WAIT, NODE_CONNECTIONS_MAX};
use snowskin_types::object::Place;
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Files that a node opens beside its connections.
const FILES_MIN: u64 = 64;
/// All threads end within this time after they were asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The data server gets this part of it.
const SERVER_STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that are populated at once.
const POPULATE_BYTES: u64 = 64 << 20;
/// Pause between two look-ups of a name that does not resolve.
const RESOLVE_PAUSE: Duration = Duration::from_millis(200);

/// A node in this process.
#[derive(Debug)]
pub struct Node;

impl Node {
    /// Starts a node. It is registered and serving when this returns. Blocks the calling thread, which
    /// must not be one that drives a runtime's tasks, for no longer than the ready time.
    ///
    /// # Errors
    /// When a limit, an option or a port does not allow it, or no master registered the node in time.
    /// Nothing is left running then.
    pub fn start(config: Config) -> Result<Running, StartError> {
        let start = Instant::now();
        let deadline = start + config.ready_timeout;
        if let Master::Remote(address) = &config.master {
            check_master(address)?;
        }
        let data_bytes = segment_bytes(config.segment_size)?;
        // The most that one connection needs is its socket; the limit is raised before it is checked.
        if let Err(error) = machine::raise_open_files() {
            tracing::debug!(%error, "cannot raise the limit of open files");
        }
        let limits = machine::check_segment(
            &LimitPaths::default(),
            data_bytes.saturating_add(CONTROL_BYTES),
            Locking::Pageable,
            FILES_MIN,
        )?;
        if let Some(error) = unlockable(&limits, data_bytes.saturating_add(CONTROL_BYTES)) {
            tracing::info!(%error, "the segment is served unlocked, which needs no such limit; a fabric could not register it");
        }
        let epoch = new_epoch().map_err(system("get randomness"))?;
        let memory = NodeMemory::new(data_bytes, epoch)?;
        let listener = match config.listening {
            Listening::Open => Some(net::listen(&config.data_address, "--data-address")?),
            Listening::None => None,
        };
        let place = place(&config, listener.as_ref(), epoch, deadline)?;
        let store = Store::new(SystemClock.now(), store_config(&config, &place, data_bytes))?;
        let (scrubber, checks) = Scrubber::new();
        let engine = Engine::new(
            store,
            place.clone(),
            memory.clone(),
            scrubber,
            Arc::new(SystemClock),
        );
        let mut running = Running {
            handle: Handle {
                engine: Arc::clone(&engine),
                verify: config.verify,
            },
            server: None,
            data: None,
            listening: None,
            stop: Cancel::new(),
            threads: Vec::new(),
        };
        // From here on an error drops `running`, which stops what has been started.
        let (weak, segment) = (Arc::downgrade(&engine), memory.segment().clone());
        running.start("snowskin-scrub", move || checks.run(weak, segment))?;
        if config.population == Population::Ahead {
            let (segment, stop) = (memory.segment().clone(), running.stop.clone());
            running.start("snowskin-pages", move || populate(&segment, &stop))?;
        }
        if let Some(listener) = listener {
            let files = limits.files.soft.unwrap_or(u64::MAX);
            let left = files.saturating_sub(limits.files_used + FILES_MIN);
            let connections = usize::try_from(left).unwrap_or(usize::MAX);
            running.serve(
                listener,
                &config,
                connections.clamp(1, NODE_CONNECTIONS_MAX),
            )?;
        }
        let attempts = Arc::new(Attempts::default());
        let peer = match &config.master {
            Master::Remote(address) => Peer::Remote {
                address: address.clone(),
                token: config.token.clone(),
            },
            Master::InProcess(master) => Peer::Local(Arc::clone(master)),
        };
        running.keep_session(peer, Arc::clone(&attempts))?;
        let abandon = &config.abandon;
        let registered =
            engine.wait_registered(deadline, || attempts.given_up() || abandon.is_cancelled());
        if !registered {
            if abandon.is_cancelled() {
                return Err(StartError::Abandoned);
            }
            return Err(not_registered(&config.master, &attempts, start.elapsed()));
        }
        if let Some(server) = &running.server {
            server.greet_with(running.greeting(&config));
        }
        tracing::info!(
            node = %place.node,
            epoch = %place.epoch,
            address = %place.address,
            "the node serves"
        );
        Ok(running)
    }
}

fn system(verb: &'static str) -> impl FnOnce(std::io::Error) -> StartError {
    move |source| StartError::System { verb, source }
}

fn check_master(address: &str) -> Result<(), StartError> {
    let wanted = address::Wanted::parse(address, "--master")?;
    if matches!(wanted.port, None | Some(0)) {
        return Err(StartError::Option {
            option: "--master",
            message: format!("{address:?} has no port; write HOST:PORT"),
        });
    }
    Ok(())
}

/// Whole units of the arena, as many as were asked for at least.
fn segment_bytes(wanted: u64) -> Result<u64, StartError> {
    let least = arena::UNIT_BYTES;
    let whole = wanted.checked_next_multiple_of(least);
    match whole.filter(|bytes| (least..=arena::CAPACITY_BYTES_MAX).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => Err(StartError::Option {
            option: "--segment-size",
            message: format!(
                "{wanted} bytes; allowed are 1 to {} bytes",
                arena::CAPACITY_BYTES_MAX
            ),
        }),
    }
}

/// Larger than those of earlier lives as long as the machine's clock does not go back, and in any
/// case one that no other process has.
fn new_epoch() -> std::io::Result<Epoch> {
    /// Microseconds fit into the upper 54 bits until the year 2540; ten bits tell apart what starts
    /// within the same one.
    const RANDOM_BITS: u32 = 10;
    let random = rng::unique()?;
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(0);
    let epoch = micros << RANDOM_BITS | random >> (u64::BITS - RANDOM_BITS);
    // A clock before 1970 gives no order, but still a number of its own.
    Ok(Epoch(if micros == 0 { random } else { epoch }))
}

/// Who the node is.
fn place(
    config: &Config,
    listener: Option<&TcpListener>,
    epoch: Epoch,
    deadline: Instant,
) -> Result<Place, StartError> {
    let address = match listener {
        Some(listener) => {
            let listening = listener
                .local_addr()
                .map_err(system("read a port's address"))?;
            advertised(config, listening, deadline)?
        }
        // Nobody connects to it; the epoch makes it one of its kind.
        None => match &config.advertise {
            Some(name) => name.clone(),
            None => format!("in-process:{epoch}"),
        },
    };
    Ok(Place {
        node: NodeId::from_address(&address),
        epoch,
        address: address.into(),
    })
}

/// As [`address::advertised`], trying again until the deadline when the master's name does not
/// resolve: in a starting cluster names come up late.
fn advertised(
    config: &Config,
    listening: SocketAddr,
    deadline: Instant,
) -> Result<String, StartError> {
    let (start, mut tries) = (Instant::now(), 0);
    let master = match &config.master {
        Master::Remote(address) => Some(address.as_str()),
        Master::InProcess(_) => None,
    };
    // Never sent to: only its time-out is used.
    let (_keep, pause) = sync_channel::<()>(0);
    let mut told: Option<DialError> = None;
    loop {
        tries += 1;
        let left = deadline.saturating_duration_since(Instant::now());
        if config.abandon.is_cancelled() {
            return Err(StartError::Abandoned);
        }
        let found = address::advertised(
            config.advertise.as_deref(),
            &config.data_address,
            listening,
            master,
            left.min(CONNECT_TIMEOUT.duration()),
        );
        match found {
            Err(StartError::Unreachable { last, .. }) => {
                // A look-up that was cut short by the deadline says less than one that was answered.
                let last = match (last, told.take()) {
                    (DialError::SlowName { .. }, Some(answered)) => answered,
                    (last, _) => last,
                };
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(StartError::Unreachable {
                        last,
                        attempts: tries,
                        waited: start.elapsed(),
                    });
                }
                told = Some(last);
                pause.recv_timeout(RESOLVE_PAUSE.min(left)).ok();
            }
            other => return other,
        }
    }
}

fn store_config(config: &Config, place: &Place, capacity: u64) -> snowskin_store::Config {
    let advertised_host = place.address.rsplit_once(':').map_or("", |(host, _)| host);
    let host = match config.host_id.as_str() {
        "" => advertised_host,
        given => given,
    };
    snowskin_store::Config {
        host: host.into(),
        put_wait: config.put_wait,
        eviction: config.eviction,
        eviction_high: config.eviction_high,
        eviction_ratio: config.eviction_ratio,
        pin_deadline: config.pin_deadline,
        ..snowskin_store::Config::new(&place.address, place.epoch, capacity)
    }
}

/// Makes the pages present, slice by slice, beside normal use.
fn populate(segment: &Segment, stop: &Cancel) {
    let populated = segment.populate(POPULATE_BYTES, |_| {
        if stop.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    match populated {
        Ok(bytes) => tracing::debug!(bytes, "the segment is populated"),
        Err(error) => tracing::error!(%error, "the segment's memory is not there"),
    }
}

/// Why there is no session.
fn not_registered(master: &Master, attempts: &Attempts, waited: Duration) -> StartError {
    let address = match master {
        Master::Remote(address) => address.clone(),
        Master::InProcess(_) => "this process".to_owned(),
    };
    let (attempts, last) = attempts.take();
    match last {
        Some(LinkError::Dial(last)) => StartError::Unreachable {
            last,
            attempts,
            waited,
        },
        Some(LinkError::NoMaster(reason) | LinkError::Lost(reason)) => StartError::NoMaster {
            address,
            reason,
            attempts,
            waited,
        },
        Some(LinkError::Refused { failure, .. }) => StartError::Refused {
            address,
            failure: Box::new(failure),
        },
        None => StartError::Late {
            doing: format!("{address} neither accepts nor refuses the connection"),
            waited,
        },
    }
}

/// Why a node did not stop well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// A thread was late or had panicked.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The data server did not end well.
    #[error("the data server: {0}")]
    Server(#[from] snowskin_runtime::spawn::TasksError),
}

/// A node at work. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    server: Option<Server<NodeEndpoint>>,
    data: Option<Runtime>,
    listening: Option<SocketAddr>,
    stop: Cancel,
    threads: Vec<Thread>,
}

impl Running {
    /// Lasting identity.
    pub fn node_id(&self) -> NodeId {
        self.handle.place().node
    }

    /// Process life.
    pub fn epoch(&self) -> Epoch {
        self.handle.place().epoch
    }

    /// Where the data server listens; none without one.
    pub fn data_address(&self) -> Option<SocketAddr> {
        self.listening
    }

    /// What others are told to connect to.
    pub fn advertised(&self) -> &str {
        &self.handle.place().address
    }

    /// The session with the master, if there is one now. Its term is the master's.
    pub fn session(&self) -> Option<Session> {
        self.handle.engine.session()
    }

    /// The cluster that registered the node.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.handle.engine.cluster()
    }

    /// The way in from the same process.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Cancelled when the node has ended by itself, which it does only after an internal error.
    pub fn ended(&self) -> &Cancel {
        self.handle.engine.failed()
    }

    /// What it counts and measures.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        self.handle.engine.measure(&mut metrics);
        if let Some(server) = &self.server {
            metrics.transfer = server.counters().snapshot();
        }
        // A system without the file has other worries.
        metrics.resident_bytes = machine::resident_bytes(&LimitPaths::default()).unwrap_or(0);
        metrics
    }

    /// Breaks connections, answers who waits, and joins all threads, within 5 s.
    ///
    /// # Errors
    /// When a thread was late or had panicked.
    pub fn shutdown(mut self) -> Result<(), StopError> {
        self.stop_all()
    }

    fn start(
        &mut self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let thread = Thread::start(name, body).map_err(system("start a thread"))?;
        self.threads.push(thread);
        Ok(())
    }

    fn serve(
        &mut self,
        listener: TcpListener,
        config: &Config,
        connections_max: usize,
    ) -> Result<(), StartError> {
        let threads = match config.data_threads {
            0 => std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)),
            given => given,
        };
        let data = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("snowskin-data")
            .enable_all()
            .build()
            .map_err(system("make an event loop"))?;
        let greeting = self.greeting(config);
        let endpoint = NodeEndpoint {
            engine: Arc::clone(&self.handle.engine),
            verify: config.verify,
        };
        let options = ServerOptions {
            connections_max,
            stall: config.pin_deadline,
            ..ServerOptions::default()
        };
        let server = Server::start(listener, endpoint, greeting, options, data.handle())
            .map_err(system("serve the data port"))?;
        self.listening = Some(server.address());
        self.server = Some(server);
        self.data = Some(data);
        Ok(())
    }

    /// What clients are greeted with; names the cluster once it is known.
    fn greeting(&self, config: &Config) -> Greeting {
        Greeting::new(Role::Node, self.epoch().0)
            .with_cluster(self.cluster())
            .with_token(config.token.clone())
    }

    /// The control thread: the clock and the session. Bulk data never delays them.
    fn keep_session(&mut self, peer: Peer, attempts: Arc<Attempts>) -> Result<(), StartError> {
        let control = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("make an event loop"))?;
        let random = rng::system().map_err(system("get randomness"))?;
        let engine = Arc::clone(&self.handle.engine);
        let stop = self.stop.clone();
        self.start("snowskin-node", move || {
            let _ended = EndOnPanic(Arc::clone(&engine));
            control.block_on(async {
                let session = session::keep(Arc::clone(&engine), peer, attempts, random);
                let mut session = std::pin::pin!(session);
                let mut ended = false;
                let mut clock = std::pin::pin!(engine.drive());
                loop {
                    tokio::select! {
                        () = stop.cancelled() => break,
                        // Refused for good: the clock goes on until the start has told so.
                        () = &mut session, if !ended => ended = true,
                        () = &mut clock => break,
                    }
                }
                // The master is told of the end, and closes the link when it has taken notice.
                if !ended
                    && engine.is_leaving()
                    && timeout(LEAVE_WAIT.duration(), session).await.is_err()
                {
                    tracing::debug!("the master did not take notice of the end in time");
                }
            });
            // A name look-up may still be under way; nothing waits for it.
            control.shutdown_background();
        })
    }

    fn stop_all(&mut self) -> Result<(), StopError> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        self.handle.engine.close();
        self.stop.cancel();
        let mut result = Ok(());
        if let (Some(server), Some(data)) = (self.server.take(), self.data.take()) {
            result = stop_server(server, data);
        }
        for thread in self.threads.drain(..) {
            let end = thread.join(deadline);
            result = result.and(end.map_err(StopError::from));
        }
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop_all() {
            tracing::error!(%error, "the node did not stop well");
        }
    }
}

/// Waits on a thread of its own, since the caller's may belong to a runtime.
fn stop_server(server: Server<NodeEndpoint>, data: Runtime) -> Result<(), StopError> {
    let name = "snowskin-data-stop";
    let (tell, told) = sync_channel(1);
    let stopping = Thread::start(name, move || {
        let result = data.block_on(server.shutdown(SERVER_STOP_TIMEOUT));
        data.shutdown_timeout(SERVER_STOP_TIMEOUT);
        tell.send(result).ok();
    });
    // Without a thread everything was dropped, which stops it too, but nobody waited for it.
    let Ok(stopping) = stopping else {
        let waited = Duration::ZERO;
        return Err(ThreadError::Late { name, waited }.into());
    };
    stopping.join(Instant::now() + SERVER_STOP_TIMEOUT * 2)?;
    match told.try_recv() {
        Ok(result) => Ok(result?),
        Err(_) => Err(ThreadError::Panicked { name }.into()),
    }
}

/// A node without its clock and session serves nothing for long.
struct EndOnPanic(Arc<Engine>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
            self.0.failed().cancel();
        }
    }
}
