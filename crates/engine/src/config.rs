//! How an engine is set up.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Ports that engines listen at, unless said otherwise.
pub const PORTS: RangeInclusive<u16> = 15_000..=17_000;
/// Session port of a peer whose name has none.
pub const PEER_PORT: u16 = 12_001;
/// Longest transfer, not counting the time of its bytes.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest exchange at a session port.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// How an engine is set up. [`Config::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Under which name or address peers reach this host. A port behind it is ignored.
    pub host: String,
    /// Where to listen; else at the address that `host` has here, or at all addresses if it has none.
    pub bind: Option<IpAddr>,
    /// Ports to choose from, both for sessions and for data.
    pub ports: RangeInclusive<u16>,
    /// The session port itself, instead of a choice.
    pub port: Option<u16>,
    /// A transfer has this long, and a nanosecond for each byte.
    pub timeout: Duration,
    /// An exchange at a peer's session port has this long.
    pub session_timeout: Duration,
    /// Session port of a peer whose name has none.
    pub peer_port: u16,
    /// The fabric asked for. All but TCP fall back to TCP, which is told and counted.
    pub protocol: String,
}

impl Config {
    /// TCP, with the usual ports and patience.
    pub fn new(host: impl Into<String>) -> Self {
        Config {
            host: host.into(),
            bind: None,
            ports: PORTS,
            port: None,
            timeout: TIMEOUT,
            session_timeout: SESSION_TIMEOUT,
            peer_port: PEER_PORT,
            protocol: "tcp".to_owned(),
        }
    }
}
