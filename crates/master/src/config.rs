//! What a master is started with, and why it may not start.

use crate::state::StateError;
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
    #[error("cannot listen on {address}:{port} ({option}): {cause}")]
    Listen {
        /// Options that named it.
        option: &'static str,
        /// Host as given.
        address: String,
        /// Port as given.
        port: u16,
        /// What the system says.
        cause: std::io::Error,
    },
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

/// What every peer must present, or nothing.
#[derive(Clone, Default)]
pub(crate) struct Token(Option<Vec<u8>>);

/// Longest token: it has to fit into the first frame of a connection with room to spare.
const TOKEN_BYTES_MAX: usize = 1_024;

impl Token {
    /// Reads the file; white space at the end is not part of the token.
    pub(crate) fn read(file: Option<&PathBuf>) -> Result<Self, StartError> {
        let Some(file) = file else {
            return Ok(Token(None));
        };
        let bad = |cause: String| StartError::Token {
            file: file.clone(),
            cause,
        };
        let bytes = std::fs::read(file).map_err(|e| bad(e.to_string()))?;
        let token = bytes.trim_ascii_end();
        match token.len() {
            0 => Err(bad("the file is empty".into())),
            len if len > TOKEN_BYTES_MAX => Err(bad(format!(
                "the token has {len} bytes; allowed are 1 to {TOKEN_BYTES_MAX}"
            ))),
            _ => Ok(Token(Some(token.to_vec()))),
        }
    }

    /// True when no token is asked for or `given` is it. Takes the same time wherever they differ.
    pub(crate) fn admits(&self, given: &[u8]) -> bool {
        let Some(token) = &self.0 else { return true };
        let mut differs = usize::from(token.len() != given.len());
        for (i, byte) in token.iter().enumerate() {
            differs |= usize::from(byte ^ given.get(i).unwrap_or(&!byte));
        }
        std::hint::black_box(differs) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "Token(set)"
        } else {
            "Token(none)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_is_admitted() {
        let token = Token(Some(b"secret".to_vec()));
        assert!(token.admits(b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret"] {
            assert!(!token.admits(wrong), "{wrong:?}");
        }
        assert!(Token(None).admits(b"anything"));
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
