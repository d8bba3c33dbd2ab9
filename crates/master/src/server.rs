//! The control port: accepts connections and owns their tasks.

use crate::connection;
use crate::hub::Hub;
use crate::metrics::Tally;
use snowskin_proto::hello::Greeting;
use snowskin_runtime::spawn::TaskSet;
use snowskin_runtime::telemetry::Seldom;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;

/// Connections open at once.
const CONNECTIONS_MAX: usize = 16_384;
/// After the system refused a connection (no descriptors left), the next is tried after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The set that owns the tasks of the control port.
pub(crate) fn tasks() -> TaskSet {
    // The acceptor and the driver are tasks of the set too.
    TaskSet::new(CONNECTIONS_MAX + 2)
}

/// Accepts until the task is dropped.
pub(crate) async fn accept(
    listener: TcpListener,
    hub: Arc<Hub>,
    greeting: Arc<Greeting>,
    tasks: TaskSet,
) {
    let failures = Seldom::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                Tally::one(&hub.tally.crowded);
                if let Some(count) = failures.another() {
                    tracing::warn!(count, %error, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        Tally::one(&hub.tally.accepted);
        let open = Open::new(hub.clone());
        let (greeting, cancel) = (greeting.clone(), tasks.cancel_token().clone());
        let task = async move {
            connection::serve(stream, open.0.clone(), greeting, cancel).await;
        };
        if tasks.spawn("connection", task).is_err() {
            // The stream was dropped with its task: the peer sees a closed connection.
            Tally::one(&hub.tally.crowded);
        }
    }
}

/// Counts a connection as open while it lives.
struct Open(Arc<Hub>);

impl Open {
    fn new(hub: Arc<Hub>) -> Self {
        hub.tally.connections.fetch_add(1, Ordering::Relaxed);
        Open(hub)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.tally.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
