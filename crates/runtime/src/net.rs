//! Sockets: listening with clear errors, dialling with deadlines, and the options of every link.
//!
//! Names are resolved anew at each attempt, so that a peer that moved is found again. The three ways in which a
//! peer cannot be reached are told apart: its name does not resolve, it refuses, it does not answer.

use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::TCP_USER_TIMEOUT;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Name look-ups under way in this process.
const LOOKUPS_MAX: usize = 16;
/// An idle connection is probed after this time.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Probes that may stay without an answer.
const KEEPALIVE_PROBES: u32 = 3;

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process listens there.
    #[error("{option} {address}: port {port} is already in use by another process")]
    InUse {
        /// The option that named it.
        option: String,
        /// The address as given.
        address: String,
        /// The port.
        port: u16,
    },
    /// The address does not belong to this host, or cannot be understood.
    #[error("{option} {address}: {reason}")]
    Address {
        /// The option that named it.
        option: String,
        /// The address as given.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// The system refused.
    #[error("{option} {address}: cannot listen: {source}")]
    System {
        /// The option that named it.
        option: String,
        /// The address as given.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// Listens on `host:port` (port 0: any free one). `option` is what the user set it with, for errors.
///
/// A port whose last owner has died can be taken at once; one on which somebody listens cannot.
///
/// # Errors
/// When the address is not usable or taken.
pub fn listen(address: &str, option: &str) -> Result<TcpListener, ListenError> {
    let (option, given) = (option.to_owned(), address.to_owned());
    let resolved = address
        .to_socket_addrs()
        .map(|mut addresses| addresses.next());
    let address = match resolved {
        Ok(Some(address)) => address,
        Ok(None) | Err(_) => {
            let reason = "is not a host and a port; write HOST:PORT".to_owned();
            return Err(ListenError::Address {
                option,
                address: given,
                reason,
            });
        }
    };
    open(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse {
            option,
            address: given,
            port: address.port(),
        },
        io::ErrorKind::AddrNotAvailable => {
            let reason = "is not an address of this host".to_owned();
            ListenError::Address {
                option,
                address: given,
                reason,
            }
        }
        _ => ListenError::System {
            option,
            address: given,
            source,
        },
    })
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // On Linux this lets a port be taken over from connections that linger, never from a listener.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // The wildcard address of IPv6 serves IPv4 as well.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Sets the options of every link: no delay, dead peers noticed while sending and while idle.
///
/// # Errors
/// The system's.
pub fn tune(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT.duration()))?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

/// Why a peer could not be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// Its name has no address.
    #[error("the name in {address} does not resolve: {reason}")]
    Unresolved {
        /// The address as given.
        address: String,
        /// The resolver's words.
        reason: String,
    },
    /// Nobody listens there.
    #[error("{address} refuses the connection: nothing listens there")]
    Refused {
        /// The address as given.
        address: String,
    },
    /// No answer at all.
    #[error("{address} did not answer within {waited:?}")]
    Silent {
        /// The address as given.
        address: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The name service gave no answer in time.
    #[error("the name in {address} was not resolved within {waited:?}")]
    SlowName {
        /// The address as given.
        address: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Some other reason.
    #[error("{address} cannot be reached: {source}")]
    System {
        /// The address as given.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl DialError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            DialError::Silent { .. } | DialError::SlowName { .. } => Code::RpcTimeout,
            DialError::Unresolved { .. } | DialError::Refused { .. } | DialError::System { .. } => {
                Code::RpcFail
            }
        }
    }

    /// As the result of a call.
    pub fn failure(&self, stage: Stage) -> Failure {
        let (DialError::Unresolved { address, .. }
        | DialError::Refused { address }
        | DialError::Silent { address, .. }
        | DialError::SlowName { address, .. }
        | DialError::System { address, .. }) = self;
        Failure::new(self.code(), stage, self.to_string()).with_peer(address.as_str())
    }
}

/// Sorts the system's error of a connection attempt.
pub fn dial_error(address: &str, source: io::Error, waited: Duration) -> DialError {
    let address = address.to_owned();
    match source.kind() {
        io::ErrorKind::ConnectionRefused => DialError::Refused { address },
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            DialError::Silent { address, waited }
        }
        _ => DialError::System { address, source },
    }
}

/// A look-up of `host:port` that runs beside the caller.
#[derive(Debug)]
pub struct Lookup {
    address: String,
    since: Instant,
    resolved: mpsc::Receiver<io::Result<Vec<SocketAddr>>>,
}

/// Look-ups under way in this process.
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Ends the count of one look-up.
struct Looking;

impl Looking {
    fn begin() -> Option<Self> {
        let begun = LOOKUPS.fetch_add(1, Ordering::AcqRel) < LOOKUPS_MAX;
        let looking = Looking;
        begun.then_some(looking)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Lookup {
    /// Begins. An address that is not a name is answered at once.
    ///
    /// # Errors
    /// When too many look-ups are under way, or no thread can be started.
    pub fn start(address: &str) -> Result<Self, DialError> {
        let (answer, resolved) = mpsc::sync_channel(1);
        let lookup = Lookup {
            address: address.to_owned(),
            since: Instant::now(),
            resolved,
        };
        if let Ok(literal) = address.parse::<SocketAddr>() {
            answer.send(Ok(vec![literal])).ok();
            return Ok(lookup);
        }
        let Some(looking) = Looking::begin() else {
            return Err(lookup.unresolved("too many look-ups wait for the name service"));
        };
        // The system's resolver knows no deadline. The thread that waits for it is not waited for:
        // it ends with the look-up, touches nothing else, and there are at most so many.
        let name = address.to_owned();
        let look_up = move || {
            let _looking = looking;
            answer.send(name.to_socket_addrs().map(Vec::from_iter)).ok();
        };
        match std::thread::Builder::new()
            .name("name-look-up".to_owned())
            .spawn(look_up)
        {
            Ok(_) => Ok(lookup),
            Err(source) => Err(DialError::System {
                address: address.to_owned(),
                source,
            }),
        }
    }

    fn unresolved(&self, reason: impl ToString) -> DialError {
        DialError::Unresolved {
            address: self.address.clone(),
            reason: reason.to_string(),
        }
    }

    fn sort(&self, result: io::Result<Vec<SocketAddr>>) -> Result<Vec<SocketAddr>, DialError> {
        match result {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            Ok(_) => Err(self.unresolved("it has no address")),
            Err(error) => Err(self.unresolved(error)),
        }
    }

    /// The answer, if it has come; `None` before. Not to be called after an answer.
    pub fn poll(&self) -> Option<Result<Vec<SocketAddr>, DialError>> {
        self.resolved
            .try_recv()
            .ok()
            .map(|result| self.sort(result))
    }

    /// Gives up waiting.
    pub fn too_slow(&self) -> DialError {
        DialError::SlowName {
            address: self.address.clone(),
            waited: self.since.elapsed(),
        }
    }
}

/// Finds the addresses of `host:port`, waiting at most `patience`.
///
/// # Errors
/// When the name does not resolve, or not in time.
pub fn resolve(address: &str, patience: Duration) -> Result<Vec<SocketAddr>, DialError> {
    let lookup = Lookup::start(address)?;
    match lookup.resolved.recv_timeout(patience) {
        Ok(result) => lookup.sort(result),
        Err(_) => Err(lookup.too_slow()),
    }
}

/// Connects to `host:port` on the calling thread, trying each of its addresses, within `patience`.
///
/// # Errors
/// The reason of the last attempt.
pub fn dial(address: &str, patience: Duration) -> Result<TcpStream, DialError> {
    let start = Instant::now();
    let left = || patience.saturating_sub(start.elapsed());
    let addresses = resolve(address, patience)?;
    let mut last = None;
    for (index, candidate) in addresses.iter().enumerate() {
        // Later addresses get their share of the time when the first ones are silent.
        let share = left() / u32::try_from(addresses.len() - index).unwrap_or(1);
        let result = if share.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            TcpStream::connect_timeout(candidate, share)
        };
        match result.and_then(|stream| tune(&stream).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(dial_error(address, error, start.elapsed())),
        }
    }
    Err(last.unwrap_or_else(|| DialError::Silent {
        address: address.to_owned(),
        waited: patience,
    }))
}

/// Begins a connection without waiting: the socket is writable once it is open, and its pending
/// error ([`pending_error`]) then says whether it is.
///
/// # Errors
/// The system's, when it fails at once.
pub fn dial_start(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    tune(&socket)?;
    Ok(socket.into())
}

/// The error that a socket has met since the last call.
///
/// # Errors
/// That error.
pub fn pending_error(socket: &impl AsFd) -> io::Result<()> {
    match SockRef::from(socket).take_error()? {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Makes closing a connection drop what is unsent and leave no waiting state behind, for
/// connections that were given up in the middle.
///
/// # Errors
/// The system's.
pub fn close_abruptly(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))
}

/// As [`dial`], inside a runtime.
///
/// # Errors
/// As [`dial`].
///
/// # Cancellation
/// Safe: nothing stays open.
pub async fn dial_async(
    address: &str,
    patience: Duration,
) -> Result<tokio::net::TcpStream, DialError> {
    let start = Instant::now();
    let addresses = match address.parse::<SocketAddr>() {
        Ok(literal) => vec![literal],
        Err(_) => {
            let looked_up = tokio::time::timeout(patience, tokio::net::lookup_host(address)).await;
            let unresolved = |reason: String| DialError::Unresolved {
                address: address.to_owned(),
                reason,
            };
            let addresses: Vec<SocketAddr> = looked_up
                .map_err(|_| DialError::SlowName {
                    address: address.to_owned(),
                    waited: patience,
                })?
                .map_err(|error| unresolved(error.to_string()))?
                .collect();
            if addresses.is_empty() {
                return Err(unresolved("it has no address".to_owned()));
            }
            addresses
        }
    };
    let mut last = None;
    for (index, candidate) in addresses.iter().enumerate() {
        let left = patience.saturating_sub(start.elapsed());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(1);
        let result = tokio::time::timeout(share, tokio::net::TcpStream::connect(*candidate)).await;
        let result = result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match result.and_then(|stream| tune(&stream).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(dial_error(address, error, start.elapsed())),
        }
    }
    Err(last.unwrap_or_else(|| DialError::Silent {
        address: address.to_owned(),
        waited: patience,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(300);

    #[test]
    fn a_taken_port_is_told_with_option_and_port() {
        let first = listen("127.0.0.1:0", "--rpc-port").unwrap();
        let address = first.local_addr().unwrap().to_string();
        let error = listen(&address, "--metrics-port").unwrap_err().to_string();
        let port = first.local_addr().unwrap().port().to_string();
        assert!(
            error.contains("--metrics-port") && error.contains(&port),
            "{error}"
        );
        let wildcard = listen(&format!("0.0.0.0:{port}"), "--rpc-port");
        assert!(matches!(wildcard, Err(ListenError::InUse { .. })));
    }

    #[test]
    fn a_port_with_lingering_connections_can_be_taken_again() {
        let first = listen("127.0.0.1:0", "--rpc-port").unwrap();
        let address = first.local_addr().unwrap().to_string();
        let client = dial(&address, PATIENCE).unwrap();
        let (served, _) = first.accept().unwrap();
        // The listener's side closes first, so its port is left in the waiting state.
        drop(served);
        drop(client);
        drop(first);
        listen(&address, "--rpc-port").unwrap();
    }

    #[test]
    fn bad_listen_addresses_are_told() {
        for bad in ["nonsense", "127.0.0.1", "192.0.2.1:0"] {
            let error = listen(bad, "--data-address").unwrap_err();
            assert!(matches!(error, ListenError::Address { .. }), "{error}");
        }
    }

    #[test]
    fn the_three_ways_to_be_unreachable_are_told_apart() {
        let closed = listen("127.0.0.1:0", "x")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        let refused = dial(&closed, PATIENCE).unwrap_err();
        assert!(matches!(refused, DialError::Refused { .. }), "{refused}");
        let unresolved = dial("no-such-host.invalid:1", Duration::from_secs(5)).unwrap_err();
        let by_name = matches!(
            unresolved,
            DialError::Unresolved { .. } | DialError::SlowName { .. }
        );
        assert!(by_name, "{unresolved}");
        // A listener whose queue is full drops further attempts, as a black hole does.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        full.bind(&any.into()).unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap().as_socket().unwrap();
        let _fill: Vec<_> = (0..4).map(|_| dial_start(address).unwrap()).collect();
        let silent = dial(&address.to_string(), PATIENCE).unwrap_err();
        assert!(matches!(silent, DialError::Silent { .. }), "{silent}");
        let codes = [refused.code(), silent.code()];
        assert_eq!(codes, [Code::RpcFail, Code::RpcTimeout]);
    }

    #[test]
    fn a_runtime_dials_alike() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = listen("127.0.0.1:0", "x").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            dial_async(&address, PATIENCE).await.unwrap();
            drop(listener);
            let refused = dial_async(&address, PATIENCE).await.unwrap_err();
            assert!(matches!(refused, DialError::Refused { .. }), "{refused}");
        });
    }
}
