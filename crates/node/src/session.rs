//! Keeps a session with the master: connects, registers, and begins anew when the link ends.

use crate::config::{LinkSink, LocalMaster};
use crate::engine::Engine;
use crate::link::{self, LinkError, Way};
use crate::metrics::Tally;
use parking_lot::Mutex;
use rand::Rng;
use snowskin_proto::hello::{Greeting, Role, Token};
use snowskin_runtime::backoff::Backoff;
use snowskin_runtime::spawn::Cancel;
use snowskin_types::limits::CONNECT_TIMEOUT;
use snowskin_types::link::ToNode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Messages of a master of the same process that may wait.
const LOCAL_QUEUE: usize = 1024;
/// The same reason is logged at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// What is known of the attempts so far, for whoever waits for the first session.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failed: u32,
    last: Option<LinkError>,
    /// No further attempt is made before the first session.
    given_up: bool,
}

impl Attempts {
    pub(crate) fn given_up(&self) -> bool {
        self.state.lock().given_up
    }

    /// Number of failed attempts and why the last one failed.
    pub(crate) fn take(&self) -> (u32, Option<LinkError>) {
        let mut state = self.state.lock();
        (state.failed, state.last.take())
    }

    fn failed(&self, error: LinkError, given_up: bool) {
        let mut state = self.state.lock();
        state.failed = state.failed.saturating_add(1);
        state.last = Some(error);
        state.given_up = given_up;
    }
}

/// How the master is reached.
#[derive(Debug)]
pub(crate) enum Peer {
    Remote { address: String, token: Token },
    Local(Arc<dyn LocalMaster>),
}

/// Keeps a session until it is dropped, until the engine is closed, or until it is refused for good before there ever was one.
pub(crate) async fn keep(
    engine: Arc<Engine>,
    peer: Peer,
    attempts: Arc<Attempts>,
    mut random: impl Rng,
) {
    let mut backoff = Backoff::reconnect();
    let mut log = Log::default();
    loop {
        let before = engine.sessions_begun();
        let error = match &peer {
            Peer::Remote { address, token } => {
                let greeting = Greeting::new(Role::Node, engine.place().epoch.0)
                    .with_cluster(engine.cluster())
                    .with_token(token.clone());
                let way = Way {
                    address: address.clone(),
                    greeting,
                };
                match link::open(&way, CONNECT_TIMEOUT.duration()).await {
                    Ok(link) => link.run(&engine).await,
                    Err(error) => error,
                }
            }
            Peer::Local(master) => run_local(&engine, master.as_ref()).await,
        };
        let registered = engine.sessions_begun() > before;
        // A link that ended by a refusal tells the refusal.
        let error = match (error, engine.refusal()) {
            (LinkError::Lost(_), Some((failure, retry))) if !registered => {
                LinkError::Refused { failure, retry }
            }
            (error, _) => error,
        };
        if matches!(error, LinkError::Refused { .. }) {
            Tally::one(&engine.tally.registrations_refused);
        } else if !registered {
            Tally::one(&engine.tally.link_attempts_failed);
        }
        if registered {
            backoff.reset();
        }
        // The end that the node itself was told to bring about is no event.
        if engine.is_closed() {
            return;
        }
        log.tell(&error);
        let for_good = matches!(error, LinkError::Refused { retry: false, .. });
        // A node that holds bytes never gives up: its master may come back.
        let given_up = for_good && engine.sessions_begun() == 0;
        attempts.failed(error, given_up);
        engine.wake_waiting();
        if given_up {
            return;
        }
        tokio::time::sleep(backoff.pause(&mut random).duration()).await;
    }
}

/// Carries messages to and from a master of this process until the link ends.
async fn run_local(engine: &Engine, master: &dyn LocalMaster) -> LinkError {
    let (deliver, mut incoming) = mpsc::channel::<ToNode>(LOCAL_QUEUE);
    let mut deliver = Some(deliver);
    let sink: LinkSink = Box::new(move |message| match (message, &deliver) {
        (Some(message), Some(open)) => open.try_send(message).is_ok(),
        (None, _) => {
            deliver = None;
            false
        }
        (Some(_), None) => false,
    });
    let master_end = master.open(sink);
    let (queue, mut outgoing) = mpsc::channel(link::QUEUE);
    let end = Cancel::new();
    let id = engine.link_up(queue, end.clone());
    let why = loop {
        tokio::select! {
            // First what the master said: it may be its last word.
            biased;
            message = incoming.recv() => match message {
                Some(message) => engine.take(id, message),
                None => break "the master ended it",
            },
            Some(message) = outgoing.recv() => {
                if !master_end.send(message) && incoming.is_empty() {
                    break "the master has ended it";
                }
            }
            () = end.cancelled() => break "the node ended it",
        }
    };
    engine.link_lost(id);
    LinkError::Lost(why.to_owned())
}

/// Tells each new reason, and the same one now and then.
#[derive(Debug, Default)]
struct Log {
    last: Option<(String, Instant)>,
}

impl Log {
    fn tell(&mut self, error: &LinkError) {
        let text = error.to_string();
        let is_known = self
            .last
            .as_ref()
            .is_some_and(|(last, at)| *last == text && at.elapsed() < LOG_INTERVAL);
        if !is_known {
            tracing::warn!(reason = %text, "no session with the master");
            self.last = Some((text, Instant::now()));
        }
    }
}
