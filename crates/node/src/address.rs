//! Which address a node tells others.

use crate::config::StartError;
use snowskin_runtime::net;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Most bytes of an advertised address; the directory takes no longer ones.
const ADDRESS_BYTES_MAX: usize = 512;

/// A host and maybe a port, as a user writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// IPv6 addresses in brackets.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

impl Wanted {
    /// Takes `HOST`, `HOST:PORT`, `[V6]`, `[V6]:PORT` and a bare IPv6 address.
    pub(crate) fn parse(text: &str, option: &'static str) -> Result<Self, StartError> {
        let bad = |why: &str| StartError::Option {
            option,
            message: format!("{text:?} {why}; write HOST or HOST:PORT"),
        };
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(bad("is too long"));
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            let host = format!("[{text}]");
            return Ok(Wanted { host, port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => {
                let port = port
                    .parse()
                    .map_err(|_| bad("has no port number after the colon"))?;
                (host, Some(port))
            }
            _ => (text, None),
        };
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let is_good = match inner {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && !host.contains([':', '/', '@', ' ', '[', ']']),
        };
        if !is_good {
            return Err(bad("is not a host"));
        }
        let host = host.to_ascii_lowercase();
        Ok(Wanted { host, port })
    }

    /// True when the host means 'all addresses of this machine', which nobody can connect to.
    fn is_wildcard(&self) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }
}

/// The address that clients are told: from `--advertise`, else from the data address, else, for a
/// wildcard, the local end of the way to the master.
pub(crate) fn advertised(
    advertise: Option<&str>,
    data_address: &str,
    listening: SocketAddr,
    master: Option<&str>,
    patience: Duration,
) -> Result<String, StartError> {
    if let Some(text) = advertise {
        let wanted = Wanted::parse(text, "--advertise")?;
        if wanted.is_wildcard() || wanted.port == Some(0) {
            let message =
                format!("{text:?} cannot be connected to; name a host and port of this node");
            return Err(StartError::Option {
                option: "--advertise",
                message,
            });
        }
        let port = wanted.port.unwrap_or(listening.port());
        return Ok(format!("{}:{port}", wanted.host));
    }
    let port = listening.port();
    let given = Wanted::parse(data_address, "--data-address")?;
    if !given.is_wildcard() {
        return Ok(format!("{}:{port}", given.host));
    }
    let host = match master {
        Some(master) => local_end(master, patience)?,
        // A master of this process is for this machine.
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    Ok(SocketAddr::new(host, port).to_string())
}

/// The address of this machine from which it reaches the master. The kernel chooses it by its
/// routes; nothing is sent, so the master need not be there yet, but its name must resolve.
fn local_end(master: &str, patience: Duration) -> Result<IpAddr, StartError> {
    let start = Instant::now();
    let addresses = net::resolve(master, patience).map_err(|last| StartError::Unreachable {
        last,
        attempts: 1,
        waited: start.elapsed(),
    })?;
    let mut reason = None;
    for address in addresses {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        match local {
            Ok(local) => return Ok(local.ip()),
            Err(error) => reason = Some(error),
        }
    }
    let source = reason.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into());
    let last = net::dial_error(master, source, start.elapsed());
    Err(StartError::Unreachable {
        last,
        attempts: 1,
        waited: start.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(advertise: Option<&str>, data: &str, master: Option<&str>) -> Result<String, String> {
        let listening: SocketAddr = "0.0.0.0:7001".parse().unwrap();
        advertised(advertise, data, listening, master, Duration::from_secs(2))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_advertised_address_is_one_that_others_can_connect_to() {
        let loopback = Some("127.0.0.1:50051");
        for (advertise, data, told) in [
            (Some("gpu7"), "0.0.0.0:0", "gpu7:7001"),
            (Some("GPU7:9"), "0.0.0.0:0", "gpu7:9"),
            (Some("::1"), "[::]:0", "[::1]:7001"),
            (Some("[::1]:80"), "[::]:0", "[::1]:80"),
            (None, "10.0.0.5:0", "10.0.0.5:7001"),
            (None, "localhost:7001", "localhost:7001"),
            (None, "0.0.0.0:0", "127.0.0.1:7001"),
            (None, "[::]:7001", "127.0.0.1:7001"),
        ] {
            assert_eq!(of(advertise, data, loopback), Ok(told.to_owned()));
        }
        assert_eq!(of(None, "0.0.0.0:0", None), Ok("127.0.0.1:7001".to_owned()));
    }

    #[test]
    fn addresses_that_cannot_be_told_name_their_option() {
        for bad in [
            "",
            "a b",
            "h:port",
            "[1.2.3.4]:1",
            "http://h:1",
            "0.0.0.0",
            "h:0",
            ":7",
        ] {
            let error = of(Some(bad), "0.0.0.0:0", None).unwrap_err();
            assert!(error.contains("--advertise"), "{bad}: {error}");
        }
    }
}
