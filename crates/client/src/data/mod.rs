//! How bytes move: TCP to other processes, memory copies within this one.

pub(crate) mod local;
pub(crate) mod routed;

use crate::config::Config;
use snowskin_proto::hello::{Greeting, Role};
use snowskin_runtime::clock::Clock;
use snowskin_transfer::tcp::client::{TcpOptions, TcpTransport};
use snowskin_transfer::transport::Transport;
use snowskin_types::{ClientId, Code, Failure, Stage};
use std::sync::Arc;

/// Transfers over TCP.
pub(crate) fn tcp(
    config: &Config,
    id: ClientId,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Transport>, Failure> {
    let greeting = Greeting::new(Role::Client, id.0)
        .with_cluster(config.cluster)
        .with_token(config.token.clone());
    let transport = TcpTransport::new(greeting, TcpOptions::default(), Arc::clone(clock));
    match transport {
        Ok(transport) => Ok(Arc::new(transport)),
        Err(error) => Err(Failure::new(
            Code::Internal,
            Stage::Session,
            format!("a thread could not be started: {error}"),
        )),
    }
}
