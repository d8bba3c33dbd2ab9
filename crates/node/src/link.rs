//! One connection to the master: the greeting, then frames both ways until either side ends it.

use crate::engine::Engine;
use crate::metrics::Tally;
use bytes::BytesMut;
use snowskin_proto::frame::{Decoder, Frame, Kind, put, put_empty};
use snowskin_proto::hello::{Greeting, Hello, Role, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_runtime::net::{self, DialError};
use snowskin_runtime::spawn::Cancel;
use snowskin_store::event::LinkId;
use snowskin_types::error::{Code, Failure};
use snowskin_types::limits::SERVING_LEASE;
use snowskin_types::link::{FromNode, ToNode};
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Messages to the master that may wait. The store has at most eight numbered batches under way, and
/// answers two pings a second beside them.
pub(crate) const QUEUE: usize = 64;
/// The master answers the first frame within this time.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);
/// After so long without a word of the master it is asked for one.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// A master that is silent for this long is looked for anew: with its pings the serving lease ends.
const SILENCE_MAX: Duration = SERVING_LEASE.duration();
/// The master answers a registration, which it may have to write down first, within this time.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);
/// The socket takes bytes within this time.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are read at once, at least and at most.
const READ_BYTES: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// Bytes that one write gathers before it leaves.
const GATHER_BYTES: usize = 256 << 10;

/// Why there is no connection to the master, or no longer one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// No connection.
    #[error(transparent)]
    Dial(DialError),
    /// A connection, but no greeting.
    #[error("{0}")]
    NoMaster(String),
    /// The master says no.
    #[error("the master refuses this node: {failure}")]
    Refused { failure: Failure, retry: bool },
    /// It worked, then the connection ended.
    #[error("the link to the master ended: {0}")]
    Lost(String),
}

/// What a link needs to know.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) address: String,
    pub(crate) greeting: Greeting,
}

/// A greeted connection.
#[derive(Debug)]
pub(crate) struct Greeted {
    stream: TcpStream,
    decoder: Decoder,
    input: BytesMut,
}

/// Connects and greets.
pub(crate) async fn open(way: &Way, patience: Duration) -> Result<Greeted, LinkError> {
    let stream = net::dial_async(&way.address, patience)
        .await
        .map_err(LinkError::Dial)?;
    let mut link = Greeted {
        stream,
        decoder: Decoder::new(),
        input: BytesMut::new(),
    };
    let silent = "accepts connections but says nothing; is it a master?";
    let greeted = timeout(GREETING_TIMEOUT, link.greet(&way.greeting)).await;
    greeted.unwrap_or_else(|_| Err(LinkError::NoMaster(silent.to_owned())))?;
    Ok(link)
}

/// Whether a refusal is for good: the same node will be refused by the same master again.
fn may_retry(failure: &Failure) -> bool {
    !matches!(
        failure.code,
        Code::IllegalClient | Code::InvalidVersion | Code::InvalidParams
    )
}

impl Greeted {
    async fn greet(&mut self, own: &Greeting) -> Result<(), LinkError> {
        let refused = |failure: Failure| LinkError::Refused {
            retry: may_retry(&failure),
            failure,
        };
        let no_master = |what: String| LinkError::NoMaster(what);
        let closed = |error: io::Error| {
            LinkError::NoMaster(format!(
                "closes the connection before its greeting: {error}"
            ))
        };
        let mut out = BytesMut::new();
        put(&mut out, 0, &Hello(own.clone())).map_err(|e| no_master(e.to_string()))?;
        self.stream.write_all(&out).await.map_err(closed)?;
        let frame = loop {
            let garbage = "answers with something else than a greeting; is it a master?";
            match self.decoder.next(&mut self.input) {
                Ok(Some(frame)) => break frame,
                Ok(None) => {}
                Err(_) => return Err(no_master(garbage.to_owned())),
            }
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(closed)? == 0 {
                let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(closed(error));
            }
        };
        let bad = |e: snowskin_proto::DecodeError| no_master(format!("greets wrongly: {e}"));
        if frame.kind == Kind::Closing {
            let Closing(failure) = Closing::from_frame(frame).map_err(bad)?;
            return Err(refused(failure));
        }
        let Welcome(theirs) = Welcome::from_frame(frame).map_err(bad)?;
        own.meet(&theirs).map_err(refused)?;
        if theirs.role != Role::Master {
            let what = "is a node's data server; name the control port of a master";
            return Err(no_master(what.to_owned()));
        }
        self.decoder.open();
        Ok(())
    }

    /// Registers and carries messages until the link ends. Returns why.
    pub(crate) async fn run(self, engine: &Engine) -> LinkError {
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let (small, small_out) = mpsc::channel(4);
        let end = Cancel::new();
        let (reader, writer) = self.stream.into_split();
        let link = engine.link_up(queue, end.clone());
        let mut incoming = Incoming {
            engine,
            link,
            reader,
            decoder: self.decoder,
            input: self.input,
            small,
            heard: Instant::now(),
            waiting_since: Some(Instant::now()),
        };
        let why = tokio::select! {
            // First what the master said last: it may be a refusal.
            biased;
            why = incoming.run() => why,
            why = write(writer, outgoing, small_out) => why,
            () = end.cancelled() => "the node closed it".to_owned(),
        };
        engine.link_lost(link);
        LinkError::Lost(why)
    }
}

struct Incoming<'e> {
    engine: &'e Engine,
    link: LinkId,
    reader: OwnedReadHalf,
    decoder: Decoder,
    input: BytesMut,
    /// Frames without a body to send.
    small: mpsc::Sender<(u64, Kind)>,
    heard: Instant,
    /// When the registration was sent, until it is answered.
    waiting_since: Option<Instant>,
}

impl Incoming<'_> {
    async fn run(&mut self) -> String {
        loop {
            loop {
                match self.decoder.next(&mut self.input) {
                    Ok(Some(frame)) => {
                        if let Err(why) = self.frame(frame) {
                            return why;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        Tally::one(&self.engine.tally.link_garbage);
                        return error.to_string();
                    }
                }
            }
            if let Some(since) = self.waiting_since {
                if self.engine.session().is_some() {
                    self.waiting_since = None;
                } else if since.elapsed() >= REGISTRATION_TIMEOUT {
                    return format!("no answer to the registration for {REGISTRATION_TIMEOUT:?}");
                }
            }
            let missing = self.decoder.missing(&self.input);
            // The buffer grows with what has come, never with what was announced.
            self.input
                .reserve(missing.clamp(READ_BYTES, READ_BYTES_MAX));
            match timeout(ASK_AFTER, self.reader.read_buf(&mut self.input)).await {
                Ok(Ok(0)) => return "the master closed it".to_owned(),
                Ok(Ok(_)) => self.heard = Instant::now(),
                Ok(Err(error)) => return error.to_string(),
                Err(_) if self.heard.elapsed() >= SILENCE_MAX => {
                    Tally::one(&self.engine.tally.link_silences);
                    return format!("no word of the master for {SILENCE_MAX:?}");
                }
                // A full queue means that one is on its way.
                Err(_) => drop(self.small.try_send((0, Kind::Ping))),
            }
        }
    }

    fn frame(&mut self, frame: Frame) -> Result<(), String> {
        match frame.kind {
            Kind::ToNode => match ToNode::from_frame(frame) {
                Ok(message) => {
                    self.engine.take(self.link, message);
                    Ok(())
                }
                Err(error) => {
                    Tally::one(&self.engine.tally.link_garbage);
                    Err(error.to_string())
                }
            },
            Kind::Ping => {
                self.small.try_send((frame.id, Kind::Pong)).ok();
                Ok(())
            }
            Kind::Closing => Err(match Closing::from_frame(frame) {
                Ok(Closing(failure)) => failure.to_string(),
                Err(error) => error.to_string(),
            }),
            // A pong, or what a later version may say.
            _ => Ok(()),
        }
    }
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut outgoing: mpsc::Receiver<FromNode>,
    mut small: mpsc::Receiver<(u64, Kind)>,
) -> String {
    let mut out = BytesMut::new();
    loop {
        tokio::select! {
            Some(message) = outgoing.recv() => {
                let mut next = Some(message);
                while let Some(message) = next {
                    if let Err(error) = put(&mut out, 0, &message) {
                        return error.to_string();
                    }
                    next = (out.len() < GATHER_BYTES).then(|| outgoing.try_recv().ok()).flatten();
                }
            }
            Some((id, kind)) = small.recv() => put_empty(&mut out, id, kind),
            else => return "the node closed it".to_owned(),
        }
        match timeout(SEND_TIMEOUT, writer.write_all(&out)).await {
            Ok(Ok(())) => out.clear(),
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("the master takes no bytes for {SEND_TIMEOUT:?}"),
        }
    }
}
