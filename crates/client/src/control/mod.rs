//! Questions to a master over TCP, on the thread of whoever asks.

mod link;
mod pool;

use crate::config::Config;
use crate::counters::Counters;
use crate::port::{Answer, MasterPort, may_repeat};
use link::Broken;
use pool::Pool;
use snowskin_proto::hello::{Greeting, Role};
use snowskin_runtime::clock::Clock;
use snowskin_types::call::{Reply, Request};
use snowskin_types::{ClientId, Code, Failure, Now, Retry, Stage};
use std::sync::Arc;

/// A master behind pooled connections.
pub(crate) struct TcpMaster {
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    pool: Pool,
}

impl TcpMaster {
    /// Opens the first connection, trying again until `deadline`.
    pub(crate) fn connect(
        config: &Config,
        id: ClientId,
        clock: Arc<dyn Clock>,
        counters: Arc<Counters>,
        deadline: Now,
    ) -> Result<Self, Failure> {
        let greeting = Greeting::new(Role::Client, id.0)
            .with_cluster(config.cluster)
            .with_token(config.token.clone());
        let pool = Pool::new(
            config.master.clone(),
            greeting,
            config.control_connections_max,
            Arc::clone(&clock),
            Arc::clone(&counters),
        )?;
        let link = pool.take(deadline)?;
        pool.give_back(link);
        Ok(TcpMaster {
            clock,
            counters,
            pool,
        })
    }
}

impl MasterPort for TcpMaster {
    fn call(&self, request: Request, deadline: Now) -> Result<Answer, Failure> {
        let mut repeated = false;
        loop {
            let mut link = self.pool.take(deadline)?;
            let sent = self.clock.now();
            let broken = match link.call(&request, self.clock.as_ref(), deadline) {
                Ok(reply) => {
                    self.pool.give_back(link);
                    return match reply {
                        Reply::Failed(failure) => Err(failure),
                        reply => Ok(Answer {
                            reply,
                            sent,
                            repeated,
                        }),
                    };
                }
                Err(broken) => broken,
            };
            match broken {
                Broken::TooLarge(failure) => {
                    self.pool.give_back(link);
                    return Err(failure);
                }
                Broken::Unsent(failure) => self.pool.lost(link, failure),
                Broken::Lost(failure) => {
                    self.pool.lost(link, failure.clone());
                    if !may_repeat(&request) || failure.code.retry() == Retry::Never {
                        return Err(failure);
                    }
                    repeated = true;
                    self.counters.requests_repeated.add(1);
                }
                Broken::Late(failure) => {
                    // Its answer may still come; it must not be taken for another's.
                    self.pool.lost(link, failure.clone());
                    return Err(failure);
                }
            }
            if self.clock.now() >= deadline {
                return Err(self.pool.too_late());
            }
        }
    }

    fn close(&self) {
        self.pool.close();
    }
}

impl Drop for TcpMaster {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// The failure of a call whose connection broke.
fn broke(peer: &str, what: &str, error: &std::io::Error) -> Failure {
    Failure::new(
        Code::RpcFail,
        Stage::Session,
        format!("the connection to the master broke {what}: {error}"),
    )
    .with_peer(peer)
}

#[cfg(test)]
mod control_test;
