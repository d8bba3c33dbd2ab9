//! An engine that is initialised: its ports, its threads, and what its calls share.

use crate::batches::Batches;
use crate::config::Config;
use crate::counters::{Counters, count};
use crate::error::EngineError;
use crate::front::Front;
use crate::inbox::Inbox;
use crate::link::Dialler;
use crate::names;
use crate::peers::{Description, Peers};
use crate::table::Table;
use parking_lot::{Condvar, Mutex};
use rand::Rng;
use snowskin_device::Registry;
use snowskin_proto::hello::{FEATURE_ENGINE, Greeting, Role};
use snowskin_runtime::clock::SystemClock;
use snowskin_runtime::net::{self, ListenError};
use snowskin_runtime::rng;
use snowskin_runtime::spawn::TaskSet;
use snowskin_runtime::telemetry::Seldom;
use snowskin_transfer::tcp::client::{TcpOptions, TcpTransport};
use snowskin_transfer::tcp::region_endpoint::RegionEndpoint;
use snowskin_transfer::tcp::server::{Server, ServerOptions};
use snowskin_types::id::Epoch;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};

/// Longest wait for the address of the own host.
const OWN_NAME: Duration = Duration::from_secs(2);
/// Data connections of peers at once.
const DATA_CONNECTIONS_MAX: usize = 1024;
/// Connections to one peer, for all threads together.
const CONNECTIONS_PER_PEER: usize = 8;
/// Pieces under way on one of them. Small ones are many, and each waits for the peer's word.
const DEPTH: usize = 32;
/// A batch takes a further one for so many bytes that wait, so that it leaves some to others.
const BYTES_PER_CONNECTION: u64 = 16 << 20;
/// Closing an engine takes no longer.
const CLOSING: Duration = Duration::from_millis(4_500);
/// Of that, the time that calls of other threads have to notice.
const CALLS: Duration = Duration::from_secs(2);

/// What blocking calls, batches and the session port share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) registry: Registry,
    pub(crate) table: Arc<Table>,
    pub(crate) transport: TcpTransport,
    pub(crate) peers: Peers,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: SystemClock,
    pub(crate) config: Config,
    /// Host part of the name.
    host: String,
    pub(crate) session: String,
    pub(crate) port: u16,
    data_port: u16,
    closing: Arc<AtomicBool>,
    failures: Seldom,
}

impl Core {
    pub(crate) fn check_open(&self) -> Result<(), EngineError> {
        match self.closing.load(Ordering::Acquire) {
            true => Err(EngineError::NotOpen),
            false => Ok(()),
        }
    }

    /// What peers know of this engine.
    pub(crate) fn description(&self) -> Description {
        Description::new(&self.host, self.table.describe(self.data_port))
    }

    /// Says why a transfer failed, for callers that see only a number.
    pub(crate) fn tell_failure(&self, error: &EngineError) {
        if let Some(count) = self.failures.another() {
            tracing::warn!(count, last = %error, "transfers failed");
        }
    }
}

/// Calls under way.
#[derive(Debug, Default)]
struct Calls {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// One call under way.
#[derive(Debug)]
pub(crate) struct Call<'o> {
    open: &'o Open,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        *self.open.calls.count.lock() -= 1;
        self.open.calls.fewer.notify_all();
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) core: Arc<Core>,
    pub(crate) batches: Batches,
    pub(crate) runtime: Handle,
    owned: Mutex<Option<Owned>>,
    calls: Calls,
}

/// What ends when the engine is closed.
#[derive(Debug)]
struct Owned {
    runtime: Runtime,
    server: Server<RegionEndpoint>,
    sessions: TaskSet,
    /// The same sockets as those that are served.
    listeners: [TcpListener; 2],
}

impl Open {
    pub(crate) fn new(
        config: Config,
        registry: Registry,
        counters: Arc<Counters>,
    ) -> Result<Self, EngineError> {
        check_protocol(&config.protocol, &counters)?;
        let Some((host, _)) = names::split(&config.host) else {
            return Err(EngineError::Setting {
                setting: "host",
                value: config.host.clone(),
                reason: "is not HOST, HOST:PORT or [ADDRESS]:PORT".to_owned(),
            });
        };
        let host = host.to_owned();
        let (sessions, data) = listen(&config, &host)?;
        Self::serve(config, host, registry, counters, sessions, data).map_err(|error| {
            EngineError::System {
                step: "start the engine",
                reason: error.to_string(),
            }
        })
    }

    fn serve(
        config: Config,
        host: String,
        registry: Registry,
        counters: Arc<Counters>,
        sessions: TcpListener,
        data: TcpListener,
    ) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("engine-io")
            .enable_all()
            .build()?;
        let (port, data_port) = (sessions.local_addr()?.port(), data.local_addr()?.port());
        let listeners = [sessions.try_clone()?, data.try_clone()?];
        let epoch = Epoch(rng::unique()?);
        let process = rng::unique()?;
        let table = Arc::new(Table::new(registry.clone(), epoch));
        let inbox = Arc::new(Inbox::new(Arc::clone(&counters)));
        let endpoint = RegionEndpoint::new(table.regions().clone()).map_err(io::Error::other)?;
        let options = ServerOptions {
            connections_max: DATA_CONNECTIONS_MAX,
            ..ServerOptions::default()
        };
        let served = Greeting::new(Role::Node, process);
        let server = Server::start(data, endpoint, served.clone(), options, runtime.handle())?;
        let front = Front {
            greeting: served.with_features(FEATURE_ENGINE),
            table: Arc::clone(&table),
            inbox: Arc::clone(&inbox),
            data_port,
            counters: Arc::clone(&counters),
            strangers: Seldom::default(),
        };
        let sessions = front.start(sessions, runtime.handle())?;
        let greeting = Greeting::new(Role::Client, process);
        let closing = Arc::new(AtomicBool::new(false));
        let clock = SystemClock;
        let options = TcpOptions {
            connections_per_peer: CONNECTIONS_PER_PEER,
            depth: DEPTH,
            bytes_per_connection: BYTES_PER_CONNECTION,
            ..TcpOptions::default()
        };
        let transport = TcpTransport::new(greeting.clone(), options, Arc::new(clock))?;
        let dialler = Dialler::new(greeting, config.session_timeout, Arc::clone(&closing));
        let core = Core {
            registry,
            table,
            transport,
            peers: Peers::new(dialler, Arc::clone(&counters)),
            inbox,
            counters: Arc::clone(&counters),
            clock,
            config,
            session: names::join(&host, port),
            host,
            port,
            data_port,
            closing,
            failures: Seldom::default(),
        };
        tracing::info!(session = %core.session, data_port, "transfer engine is open");
        Ok(Open {
            core: Arc::new(core),
            batches: Batches::new(counters)?,
            runtime: runtime.handle().clone(),
            owned: Mutex::new(Some(Owned {
                runtime,
                server,
                sessions,
                listeners,
            })),
            calls: Calls::default(),
        })
    }

    /// Begins a call.
    pub(crate) fn call(&self) -> Result<Call<'_>, EngineError> {
        let mut count = self.calls.count.lock();
        self.core.check_open()?;
        *count += 1;
        Ok(Call { open: self })
    }

    /// Ends everything: batches and calls fail, peers lose the regions, ports are free.
    pub(crate) fn close(&self) {
        let start = Instant::now();
        let deadline = start + CLOSING;
        {
            // Whoever begins a call from now on is told.
            let _count = self.calls.count.lock();
            self.core.closing.store(true, Ordering::Release);
        }
        let Some(owned) = self.owned.lock().take() else {
            return;
        };
        let mut late = !self.batches.close(start + CALLS);
        {
            let mut count = self.calls.count.lock();
            while *count > 0 {
                let waited = self.calls.fewer.wait_until(&mut count, start + CALLS);
                if waited.timed_out() {
                    late = true;
                    break;
                }
            }
        }
        let left = |most: u64| {
            let left = deadline.saturating_duration_since(Instant::now());
            left.min(Duration::from_millis(most))
        };
        let (server, sessions) = (&owned.server, &owned.sessions);
        let ended = owned.runtime.block_on(async {
            let data = server.shutdown(left(1_000)).await;
            data.and(sessions.shutdown(left(500)).await)
        });
        if let Err(error) = ended {
            tracing::error!(%error, "the engine's ports did not close well");
            late = true;
        }
        for listener in &owned.listeners {
            // A child that was forked off has the sockets as well; nobody can connect to them any more.
            let socket = socket2::SockRef::from(listener);
            socket.shutdown(Shutdown::Both).ok();
        }
        // No connection is left, so nothing of a peer is under way.
        if let Err(error) = self.core.table.forget(&self.runtime, deadline) {
            tracing::error!(%error, "a region is still in use after the engine was closed");
            late = true;
        }
        owned.runtime.shutdown_timeout(left(500));
        if late {
            count(&self.core.counters.ended_late);
        }
        tracing::info!(session = %self.core.session, "transfer engine is closed");
    }
}

/// A fabric is a preference; what is not there is replaced.
fn check_protocol(protocol: &str, counters: &Counters) -> Result<(), EngineError> {
    match protocol.to_ascii_lowercase().as_str() {
        "" | "tcp" => Ok(()),
        "xgmi" => Err(EngineError::Setting {
            setting: "protocol",
            value: protocol.to_owned(),
            reason: "is not a protocol of transfer engines".to_owned(),
        }),
        _ => {
            count(&counters.fabric_fallbacks);
            tracing::warn!(
                protocol,
                "this build has no such fabric; the transfer engine uses TCP instead"
            );
            Ok(())
        }
    }
}

/// Opens the session port and the data port.
fn listen(config: &Config, host: &str) -> Result<(TcpListener, TcpListener), EngineError> {
    let address = config.bind.map_or_else(|| own_address(host), Ok);
    let address = address.unwrap_or_else(|reason| {
        tracing::warn!(
            host,
            reason,
            "the name of this host is not known here; listening at all addresses"
        );
        everywhere(host)
    });
    match listen_at(config, address) {
        Err(EngineError::NoPort { reason, .. })
            if config.bind.is_none() && !address.is_unspecified() =>
        {
            tracing::info!(
                host,
                reason,
                "the host's address is not one of this machine; listening at all addresses"
            );
            listen_at(config, everywhere(host))
        }
        result => result,
    }
}

fn listen_at(config: &Config, address: IpAddr) -> Result<(TcpListener, TcpListener), EngineError> {
    let (first, last) = (*config.ports.start(), *config.ports.end());
    if first == 0 || first >= last {
        return Err(EngineError::Setting {
            setting: "ports",
            value: format!("{first}..={last}"),
            reason: "is not a range of at least two ports".to_owned(),
        });
    }
    let mut random = rng::system().map_err(|error| EngineError::System {
        step: "draw a port",
        reason: error.to_string(),
    })?;
    // Another start each time, so that engines that begin together do not meet at every port.
    let start = random.random_range(first..=last);
    let mut candidates = (start..=last).chain(first..start);
    let mut next = |fixed: Option<u16>| {
        let mut refusal = "all are taken".to_owned();
        loop {
            let candidate = fixed.or_else(|| candidates.next());
            let Some(port) = candidate else {
                return Err(EngineError::NoPort {
                    first,
                    last,
                    reason: refusal,
                });
            };
            let error = match net::listen(&names::join(&address.to_string(), port), "host") {
                Ok(listener) => return Ok(listener),
                Err(error) => error,
            };
            refusal = error.to_string();
            if fixed.is_some() || !matches!(error, ListenError::InUse { .. }) {
                return Err(EngineError::NoPort {
                    first: port,
                    last: port,
                    reason: refusal,
                });
            }
        }
    };
    Ok((next(config.port)?, next(None)?))
}

fn everywhere(host: &str) -> IpAddr {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Where peers will find the host, as far as this machine can tell.
fn own_address(host: &str) -> Result<IpAddr, String> {
    if let Ok(literal) = host.parse::<IpAddr>() {
        return Ok(literal);
    }
    let found = net::resolve(&names::join(host, 1), OWN_NAME).map_err(|error| error.to_string())?;
    let mut addresses = found.iter().map(|address| address.ip());
    let first = addresses.next().ok_or("it has no address")?;
    // Many machines know their own name as a loopback address, which is not what peers know.
    let loops = first.is_loopback() && addresses.all(|address| address.is_loopback());
    match loops && !host.eq_ignore_ascii_case("localhost") {
        true => Ok(everywhere(host)),
        false => Ok(first),
    }
}
