//! From settings to a client: thin, joined with a node of this process, or a whole pool in it.

use crate::errors::invalid;
use crate::settings::Settings;
use snowskin_client::{Client, Config, MasterConfig, NodeConfig, NodeMaster};
use snowskin_runtime::rng;
use snowskin_runtime::telemetry::{self, Format};
use snowskin_types::{Code, Failure, Stage};
use std::net::{Ipv6Addr, TcpListener};
use std::time::Duration;

/// No segment is smaller.
const SEGMENT_MIN: u64 = 16 << 20;
/// A node of this process is registered by then, or the set-up fails.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// What was started.
pub(crate) struct Started {
    pub(crate) client: Client,
    /// Effective `host:port`.
    pub(crate) hostname: String,
    /// Keeps the port of a store without a node.
    pub(crate) port: Option<TcpListener>,
}

/// A host and maybe a port.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    /// As it stands in an address: IPv6 in brackets.
    name: String,
    port: Option<u16>,
}

impl Host {
    fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |why: &str| {
            let text = format!("the host name {text:?} {why}; write HOST or HOST:PORT");
            invalid(Stage::Session, text)
        };
        if text.is_empty() {
            return Err(bad("is empty"));
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Ok(Host {
                name: format!("[{text}]"),
                port: None,
            });
        }
        match text.rsplit_once(':') {
            Some((name, port)) if !text.ends_with(']') => {
                let port = port.parse().map_err(|_| bad("has no port number"))?;
                if name.is_empty() {
                    return Err(bad("has no host"));
                }
                Ok(Host {
                    name: name.to_owned(),
                    // As with a system call, 0 is any.
                    port: Some(port).filter(|port| *port != 0),
                })
            }
            _ => Ok(Host {
                name: text.to_owned(),
                port: None,
            }),
        }
    }
}

/// Sends warnings to stderr from the first store on, unless the process has set up logging already.
fn start_logging(filter: &str) {
    telemetry::start(Some(filter), Format::Text).ok();
}

fn client_config(settings: &Settings) -> Config {
    let mut config = Config::new(settings.master.clone());
    config.tenant = settings.tenant.clone();
    config.token = settings.token.clone();
    config.data_timeout = settings.transfer_timeout;
    if let Some(timeout) = settings.timeout {
        config.metadata_timeout = timeout;
    }
    if let Some(timeout) = settings.connect_timeout {
        config.connect_timeout = timeout;
    }
    config
}

/// Starts what the settings describe.
///
/// # Errors
/// `INVALID_PARAMS` for settings that cannot work, else why the master or the node failed.
pub(crate) fn start(settings: &Settings) -> Result<Started, Failure> {
    start_logging(&settings.log);
    if (1..SEGMENT_MIN).contains(&settings.segment_size) {
        let text = format!(
            "a segment of {} bytes is too small; allowed are 0 and {SEGMENT_MIN} or more",
            settings.segment_size
        );
        return Err(invalid(Stage::Session, text));
    }
    if settings.master.is_empty() {
        return embed(settings);
    }
    let host = Host::parse(&settings.hostname)?;
    let config = client_config(settings);
    if settings.segment_size > 0 && !settings.thin {
        return join(settings, &config, host);
    }
    config.check()?;
    let (hostname, port) = name(settings, host)?;
    Ok(Started {
        client: Client::connect(&config)?,
        hostname,
        port,
    })
}

fn embed(settings: &Settings) -> Result<Started, Failure> {
    let mut config = client_config(settings);
    config.master = Config::in_process().master;
    if settings.segment_size == 0 {
        let text = "a pool in this process needs a segment_size";
        return Err(invalid(Stage::Session, text));
    }
    let master = MasterConfig::default();
    // Where the master is, is set by the client.
    let node = NodeConfig::new(
        NodeMaster::Remote(config.master.clone()),
        settings.segment_size,
    );
    Ok(Started {
        client: Client::embed(&config, &master, vec![node])?,
        hostname: settings.hostname.clone(),
        port: None,
    })
}

fn join(settings: &Settings, config: &Config, host: Host) -> Result<Started, Failure> {
    let mut node = NodeConfig::new(
        NodeMaster::Remote(config.master.clone()),
        settings.segment_size,
    );
    node.ready_timeout = READY_TIMEOUT;
    let bind = settings.bind.as_deref().unwrap_or(&host.name);
    // A host that is no address of this machine is still how others reach it, or only a label.
    let is_here = TcpListener::bind(format!("{bind}:0")).is_ok();
    let bind = if is_here { bind } else { "0.0.0.0" };
    if (settings.bind.is_some() || !is_here) && is_name(&host.name) {
        node.advertise = Some(host.name.clone());
    }
    for port in candidates(settings, host.port)? {
        node.data_address = format!("{bind}:{port}");
        node.host_id = host.name.clone();
        if let Some(named) = host.port
            && named != port
        {
            // The port belongs to somebody else, an engine of this process for example: the store
            // is still found by the name that it was given.
            node.host_id = format!("{}:{named}", host.name);
        }
        if port != 0 && TcpListener::bind(&node.data_address).is_err() {
            continue;
        }
        let client = Client::join(config, node)?;
        let address = client
            .own_nodes()
            .first()
            .map(|place| place.address.to_string());
        let hostname = match host.port {
            Some(port) => format!("{}:{port}", host.name),
            None => address.unwrap_or_else(|| host.name.clone()),
        };
        return Ok(Started {
            client,
            hostname,
            port: None,
        });
    }
    Err(no_port(settings))
}

/// A name that others may be told: it resolves.
fn is_name(host: &str) -> bool {
    use std::net::ToSocketAddrs;
    format!("{host}:1")
        .to_socket_addrs()
        .is_ok_and(|mut addresses| addresses.next().is_some_and(|a| !a.ip().is_unspecified()))
}

/// Ports to try, in order: the named one and then any, or so many of the range.
fn candidates(settings: &Settings, named: Option<u16>) -> Result<Vec<u16>, Failure> {
    if let Some(port) = named {
        return Ok(vec![port, 0]);
    }
    let (min, max) = settings.ports;
    if min < 1024 || min > max {
        let text = format!("no ports to choose from: {min} to {max}; allowed are 1024 to 65535");
        return Err(invalid(Stage::Session, text));
    }
    let count = settings.port_tries.clamp(1, 1000);
    (0..count).map(|_| draw(min, max)).collect()
}

/// A number of a range, both ends included.
fn draw(min: u16, max: u16) -> Result<u16, Failure> {
    let drawn = rng::unique().map_err(|error| {
        let text = format!("the system gives no randomness: {error}");
        Failure::new(Code::Internal, Stage::Session, text)
    })?;
    let span = u64::from(max - min) + 1;
    // Less than the span, which fits.
    Ok(min + (drawn % span) as u16)
}

fn no_port(settings: &Settings) -> Failure {
    let (min, max) = settings.ports;
    let text = format!(
        "none of {} ports tried between {min} and {max} is free",
        settings.port_tries
    );
    invalid(Stage::Session, text)
}

/// The name of a store without a node: unique on this machine, by a port that is kept.
fn name(settings: &Settings, host: Host) -> Result<(String, Option<TcpListener>), Failure> {
    if settings.thin {
        return Ok((String::new(), None));
    }
    if let Some(port) = host.port {
        return Ok((format!("{}:{port}", host.name), None));
    }
    for port in candidates(settings, None)? {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok((format!("{}:{port}", host.name), Some(listener)));
        }
    }
    Err(no_port(settings))
}
