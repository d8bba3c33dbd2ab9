//! What the environment says to transfer engines.

use snowskin_engine::{Config, EngineError};
use snowskin_runtime::telemetry::{self, Format};
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// Least time of a transfer that can be asked for.
const TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// Sends warnings to stderr from the first engine on, unless the process has set up logging already.
pub(super) fn start_logging() {
    let filter = text("SNOWSKIN_LOG").unwrap_or_else(|| "warn".to_owned());
    telemetry::start(Some(&filter), Format::Text).ok();
}

pub(super) fn tell_metadata(given: &str) {
    tracing::error!(
        given,
        "the transfer engine finds its peers by P2PHANDSHAKE only; metadata servers are not supported"
    );
}

pub(super) fn tell_failure(error: &EngineError) {
    tracing::error!(%error, "the transfer engine could not be initialised");
}

/// Takes the settings that are in the environment; one that cannot be read has no effect and is told.
pub(super) fn apply(config: &mut Config) {
    if let Some(seconds) = value::<u64>("MC_TRANSFER_TIMEOUT") {
        config.timeout = Duration::from_secs(seconds).max(TIMEOUT_MIN);
    }
    if let Some(seconds) = value::<u64>("MC_HANDSHAKE_CONNECT_TIMEOUT") {
        config.session_timeout = Duration::from_secs(seconds.clamp(1, 60));
    }
    if let Some(port) = value("MC_HANDSHAKE_PORT") {
        config.peer_port = port;
    }
    // The misspelt names are in use.
    let port = |name, misspelt| value::<u16>(name).or_else(|| value(misspelt));
    let first = port("MC_MIN_RPC_PORT", "MC_MIN_PRC_PORT").unwrap_or(*config.ports.start());
    let last = port("MC_MAX_RPC_PORT", "MC_MAX_PRC_PORT").unwrap_or(*config.ports.end());
    config.ports = first..=last;
    config.bind = value::<IpAddr>("MC_TCP_BIND_ADDRESS");
    if text("MC_LEGACY_RPC_PORT_BINDING").is_some() {
        let port = config.host.rsplit_once(':');
        config.port = port.and_then(|(_, port)| port.parse().ok());
    }
    if text("MC_FORCE_TCP").is_some() {
        config.protocol = "tcp".to_owned();
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn value<T: FromStr>(name: &str) -> Option<T> {
    let text = text(name)?;
    let value = text.parse().ok();
    if value.is_none() {
        tracing::warn!(name, text, "the value cannot be read and has no effect");
    }
    value
}
