//! The session port: tells peers what is registered and takes their notifications.

use crate::counters::{Counters, count};
use crate::inbox::Inbox;
use crate::request::Notify;
use crate::table::Table;
use bytes::BytesMut;
use snowskin_proto::frame::{self, Decoder, Frame, Kind};
use snowskin_proto::hello::{FEATURE_ENGINE, Greeting, Hello, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_proto::{EngineNotified, EngineNotify};
use snowskin_runtime::net;
use snowskin_runtime::spawn::TaskSet;
use snowskin_runtime::telemetry::Seldom;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::HELLO_TIMEOUT;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// Connections at once.
const CONNECTIONS_MAX: usize = 512;
/// A connection on which nothing is asked is closed after this time.
const IDLE: Duration = Duration::from_secs(60);
/// Most bytes of one question; a notification is the longest.
const QUESTION_BYTES_MAX: usize = 2 << 20;
/// A peer takes an answer within this time.
const ANSWER: Duration = Duration::from_secs(10);
/// Pause after a failed accept, for example when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a peer can learn and leave here.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) greeting: Greeting,
    pub(crate) table: Arc<Table>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) data_port: u16,
    pub(crate) counters: Arc<Counters>,
    pub(crate) strangers: Seldom,
}

impl Front {
    /// Serves on the listener until the tasks are asked to stop.
    pub(crate) fn start(self, listener: TcpListener, runtime: &Handle) -> io::Result<TaskSet> {
        listener.set_nonblocking(true)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        // One more for the task that accepts.
        let tasks = TaskSet::new(CONNECTIONS_MAX + 1);
        let accept = accept(listener, Arc::new(self), tasks.clone(), runtime.clone());
        tasks
            .spawn_on(runtime, "session-accept", accept)
            .map_err(io::Error::other)?;
        Ok(tasks)
    }

    fn refused(&self, peer: &dyn std::fmt::Display, reason: &dyn std::fmt::Display) {
        count(&self.counters.sessions_refused);
        if let Some(count) = self.strangers.another() {
            tracing::warn!(count, last = %peer, %reason, "sessions of peers were refused");
        }
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    front: Arc<Front>,
    tasks: TaskSet,
    runtime: Handle,
) {
    let cancel = tasks.cancel_token().clone();
    while let Some(accepted) = cancel.run(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                let (front, cancel) = (Arc::clone(&front), cancel.clone());
                let full = Arc::clone(&front);
                let task = async move {
                    let mut session = Session::new(stream);
                    if let Some(Err(reason)) = cancel.run(serve(&mut session, &front)).await {
                        front.refused(&peer, &reason);
                    }
                    // Counted before the peer can notice.
                    drop(session);
                };
                if let Err(error) = tasks.spawn_on(&runtime, "session", task) {
                    full.refused(&peer, &error);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a session");
                cancel.run(tokio::time::sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
}

/// Why a peer is left.
#[derive(Debug, thiserror::Error)]
enum Left {
    #[error("it was refused: {0}")]
    Refused(Failure),
    #[error("it does not speak the protocol: {0}")]
    Garbage(String),
    #[error("it was silent for too long")]
    Silent,
    /// It hung up, which is how sessions end.
    #[error("the connection ended")]
    Ended,
}

impl From<io::Error> for Left {
    fn from(_: io::Error) -> Self {
        Left::Ended
    }
}

/// Frames of a peer.
struct Session {
    stream: TcpStream,
    decoder: Decoder,
    input: BytesMut,
}

impl Session {
    fn new(stream: TcpStream) -> Self {
        Session {
            stream,
            decoder: Decoder::new(),
            input: BytesMut::new(),
        }
    }

    async fn next(&mut self, patience: Duration) -> Result<Frame, Left> {
        let reading = async {
            loop {
                let frame = self.decoder.next(&mut self.input);
                if let Some(frame) = frame.map_err(|error| Left::Garbage(error.to_string()))? {
                    return Ok(frame);
                }
                if self.input.len() + self.decoder.missing(&self.input) > QUESTION_BYTES_MAX {
                    return Err(Left::Garbage("a question is too long".to_owned()));
                }
                if self.stream.read_buf(&mut self.input).await? == 0 {
                    return Err(Left::Ended);
                }
            }
        };
        let read = tokio::time::timeout(patience, reading).await;
        read.unwrap_or(Err(Left::Silent))
    }

    async fn say(&mut self, out: &[u8]) -> Result<(), Left> {
        let said = tokio::time::timeout(ANSWER, self.stream.write_all(out)).await;
        Ok(said.map_err(|_| Left::Silent)??)
    }

    async fn refuse(&mut self, failure: Failure) -> Left {
        let mut out = BytesMut::new();
        // A failure is cut to far less than a frame.
        if frame::put(&mut out, 0, &Closing(failure.clone())).is_ok() {
            self.say(&out).await.ok();
        }
        Left::Refused(failure)
    }
}

async fn serve(session: &mut Session, front: &Front) -> Result<(), Left> {
    match converse(session, front).await {
        Err(Left::Ended) => Ok(()),
        other => other,
    }
}

async fn converse(session: &mut Session, front: &Front) -> Result<(), Left> {
    net::tune(&session.stream)?;
    let hello = session.next(HELLO_TIMEOUT.duration()).await?;
    let hello = Hello::from_frame(hello).map_err(|error| Left::Garbage(error.to_string()))?;
    let agreed = match front.greeting.meet(&hello.0) {
        Ok(agreed) => agreed,
        Err(failure) => return Err(session.refuse(failure).await),
    };
    if agreed.features & FEATURE_ENGINE == 0 {
        let text = "this is the session port of a transfer engine, and the caller is none";
        let failure = Failure::new(Code::NotSupported, Stage::Session, text);
        return Err(session.refuse(failure).await);
    }
    let mut out = BytesMut::new();
    put(&mut out, 0, &Welcome(front.greeting.clone()))?;
    session.say(&out).await?;
    session.decoder.open();
    loop {
        let frame = match session.next(IDLE).await {
            // Between two questions a peer may stay silent and be left without a word.
            Err(Left::Silent) => return Ok(()),
            other => other?,
        };
        let id = frame.id;
        out.clear();
        match frame.kind {
            Kind::Ping => frame::put_empty(&mut out, id, Kind::Pong),
            Kind::Pong => {}
            Kind::EngineDescribe => put(&mut out, id, &front.table.describe(front.data_port))?,
            Kind::EngineNotify => {
                let taken = match EngineNotify::decode_body(frame.body) {
                    Ok(EngineNotify { name, message }) => front.inbox.put(Notify { name, message }),
                    Err(error) => Err(error.failure(Stage::Session)),
                };
                put(&mut out, id, &EngineNotified(taken))?;
            }
            other => {
                let text = format!("a frame of kind {other:?} is not asked here");
                let failure = Failure::new(Code::NotSupported, Stage::Session, text);
                return Err(session.refuse(failure).await);
            }
        }
        session.say(&out).await?;
    }
}

fn put<M: Message>(out: &mut BytesMut, id: u64, message: &M) -> Result<(), Left> {
    frame::put(out, id, message).map_err(|error| Left::Garbage(error.to_string()))
}
