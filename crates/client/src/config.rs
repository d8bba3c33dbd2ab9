//! What a client is started with. Reading files and the environment is its caller's.

use snowskin_proto::hello::Token;
use snowskin_types::limits;
use snowskin_types::{ClusterId, Code, Failure, Stage, Tenant};
use std::time::Duration;

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct Config {
    /// `host:port` of the master.
    pub master: String,
    /// Namespace of calls that name none.
    pub tenant: Tenant,
    /// Secret of the cluster.
    pub token: Token,
    /// Cluster to insist on.
    pub cluster: Option<ClusterId>,
    /// Deadline of the set-up.
    pub connect_timeout: Duration,
    /// Deadline of metadata calls, and of each question to the master within a data call.
    pub metadata_timeout: Duration,
    /// Deadline of data calls; `None` gives each the time that its bytes need.
    pub data_timeout: Option<Duration>,
    /// Locations remembered while their lease lasts; zero asks the master at every get.
    pub locations_max: usize,
    /// Connections to the master.
    pub control_connections_max: usize,
}

impl Config {
    /// The usual settings for a master.
    pub fn new(master: impl Into<String>) -> Self {
        Config {
            master: master.into(),
            tenant: Tenant::default(),
            token: Token::default(),
            cluster: None,
            connect_timeout: limits::METADATA_TIMEOUT.duration(),
            metadata_timeout: limits::METADATA_TIMEOUT.duration(),
            data_timeout: None,
            locations_max: LOCATIONS_DEFAULT,
            control_connections_max: limits::CONTROL_CONNECTIONS_MAX,
        }
    }

    /// The usual settings for a pool that is embedded in this process.
    pub fn in_process() -> Self {
        Config::new("in-process")
    }

    /// Refuses settings that cannot work.
    ///
    /// # Errors
    /// `INVALID_PARAMS` naming the setting and what is allowed.
    pub fn check(&self) -> Result<(), Failure> {
        let refuse =
            |message: String| Err(Failure::new(Code::InvalidParams, Stage::Session, message));
        let port = self.master.rsplit_once(':').map(|(_, port)| port);
        if !matches!(port.map(str::parse::<u16>), Some(Ok(1..))) {
            return refuse(format!(
                "the master's address {:?} is not host:port",
                self.master
            ));
        }
        self.check_bounds()
    }

    /// As [`Config::check`], without the address.
    pub(crate) fn check_bounds(&self) -> Result<(), Failure> {
        for (name, time) in [
            ("connect_timeout", Some(self.connect_timeout)),
            ("metadata_timeout", Some(self.metadata_timeout)),
            ("data_timeout", self.data_timeout),
        ] {
            if time.is_some_and(|t| t < Duration::from_millis(1) || t > TIMEOUT_MAX) {
                return refuse(format!(
                    "{name} is {:?}; allowed are 1 ms to {TIMEOUT_MAX:?}",
                    time.unwrap_or_default()
                ));
            }
        }
        if self.locations_max > LOCATIONS_MAX {
            return refuse(format!(
                "locations_max is {}; allowed are at most {LOCATIONS_MAX}",
                self.locations_max
            ));
        }
        if !(1..=limits::CONTROL_CONNECTIONS_MAX).contains(&self.control_connections_max) {
            return refuse(format!(
                "control_connections_max is {}; allowed are 1 to {}",
                self.control_connections_max,
                limits::CONTROL_CONNECTIONS_MAX
            ));
        }
        Ok(())
    }
}

fn refuse(message: String) -> Result<(), Failure> {
    Err(Failure::new(Code::InvalidParams, Stage::Session, message))
}

/// Locations remembered by default: at 200 bytes each, about 3 MiB.
pub const LOCATIONS_DEFAULT: usize = 16_384;
/// Most locations that may be remembered.
pub const LOCATIONS_MAX: usize = 1 << 22;
/// Longest deadline that can be set.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
