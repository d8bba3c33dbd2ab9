//! What a master is started with, and why it may not start.

use crate::state::StateError;
use snowskin_proto::hello::Token;
use snowskin_runtime::net::ListenError;
use snowskin_types::policy::{ClusterPolicy, PlacementPolicy};
use snowskin_types::{ClusterId, Millis, limits};
use std::path::PathBuf;

/// Options of one master. The command line fills them; nothing here reads the environment.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address of the control server (`--rpc-address`).
    pub rpc_address: String,
    /// Its port (`--rpc-port`); 0 takes a free one.
    pub rpc_port: u16,
    /// Address of the HTTP server (`--metrics-host`).
    pub metrics_host: String,
    /// Its port (`--metrics-port`); 0 takes a free one, `None` serves no HTTP.
    pub metrics_port: Option<u16>,
    /// State directory (`--state-dir`); `None` keeps everything in memory, which only the embedded
    /// shape may do.
    pub state_dir: Option<PathBuf>,
    /// Cluster that the directory must belong to (`--cluster-id`).
    pub cluster_id: Option<ClusterId>,
    /// File whose content every peer must present (`--token-file`).
    pub token_file: Option<PathBuf>,
    /// Pushed to the nodes.
    pub policy: ClusterPolicy,
    /// How nodes are chosen for a new replica.
    pub placement: PlacementPolicy,
    /// Silence after which a node is suspect (`--suspect-after`).
    pub suspect_after: Millis,
    /// Silence after which a node is gone (`--client-ttl`).
    pub client_ttl: Millis,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            rpc_address: "127.0.0.1".into(),
            rpc_port: 50_051,
            metrics_host: "127.0.0.1".into(),
            metrics_port: Some(9_003),
            state_dir: None,
            cluster_id: None,
            token_file: None,
            policy: ClusterPolicy::default(),
            placement: PlacementPolicy::default(),
            suspect_after: limits::SUSPECT_AFTER,
            client_ttl: limits::CLIENT_TTL,
        }
    }
}

/// Why a master did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A port is taken or an address is not of this host.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The token file cannot be used.
    #[error("--token-file {}: {cause}", file.display())]
    Token {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// An option has a value that is not allowed.
    #[error("{option}: {message}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A thread or the event loop could not be made.
    #[error("cannot {verb}: {cause}")]
    System {
        /// What was tried.
        verb: &'static str,
        /// What the system says.
        cause: std::io::Error,
    },
}

impl Config {
    /// Refuses values with which no cluster could work.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let bad = |option, message: String| Err(StartError::Option { option, message });
        let p = &self.policy;
        if !(p.eviction_high > 0.0 && p.eviction_high <= 1.0) {
            return bad(
                "--eviction-high-watermark-ratio",
                format!("{} is not above 0 and at most 1", p.eviction_high),
            );
        }
        if !(p.eviction_ratio >= 0.0 && p.eviction_ratio <= 1.0) {
            return bad(
                "--eviction-ratio",
                format!("{} is not between 0 and 1", p.eviction_ratio),
            );
        }
        if self.suspect_after.0 == 0 || self.suspect_after >= self.client_ttl {
            return bad(
                "--suspect-after",
                format!(
                    "{} ms is not above 0 and below --client-ttl ({} ms)",
                    self.suspect_after.0, self.client_ttl.0
                ),
            );
        }
        Ok(())
    }
}

/// Reads what every peer must present; white space at the end is not part of it.
pub(crate) fn read_token(file: Option<&PathBuf>) -> Result<Token, StartError> {
    let Some(file) = file else {
        return Ok(Token::default());
    };
    let bad = |cause: String| StartError::Token {
        file: file.clone(),
        cause,
    };
    let bytes = std::fs::read(file).map_err(|e| bad(e.to_string()))?;
    let token = bytes.trim_ascii_end();
    if token.is_empty() {
        return Err(bad("the file is empty".into()));
    }
    Token::new(token).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let read = || read_token(Some(&file)).unwrap_err().to_string();
        assert!(read().contains(&*file.to_string_lossy()));
        std::fs::write(&file, " \n").unwrap();
        assert!(read().contains("empty"));
        std::fs::write(&file, "x".repeat(2_000)).unwrap();
        assert!(read().contains("1024"));
        std::fs::write(&file, "secret\n").unwrap();
        let token = read_token(Some(&file)).unwrap();
        assert_eq!(token, Token::new(b"secret").unwrap());
        assert!(read_token(None).unwrap().is_empty());
    }

    #[test]
    fn watermarks_and_times_that_cannot_work_name_their_option() {
        let mut config = Config::default();
        assert!(config.check().is_ok());
        config.policy.eviction_high = 1.5;
        let text = config.check().unwrap_err().to_string();
        assert!(text.contains("--eviction-high-watermark-ratio"), "{text}");
        let config = Config {
            suspect_after: Millis(10_000),
            ..Config::default()
        };
        let text = config.check().unwrap_err().to_string();
        assert!(text.contains("--suspect-after"), "{text}");
    }
}
