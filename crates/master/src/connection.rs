//! One connection to the control port: the first frame, then requests of a client or messages of a node.
//!
//! Reader and writer are two halves of one task. What one read brings is handled in line, and what it is answered
//! with leaves in one write.

use crate::answer::{Origin, stage_of};
use crate::hub::Hub;
use crate::links::LinkEnd;
use crate::metrics::Tally;
use crate::outbox::{Ending, Outbox, Refusal, Sent};
use bytes::BytesMut;
use snowskin_directory::event::LinkId;
use snowskin_proto::error::FrameError;
use snowskin_proto::frame::{Decoder, Frame, HEADER_BYTES, Kind};
use snowskin_proto::hello::{Greeting, Hello, Role, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_runtime::spawn::Cancel;
use snowskin_types::call::{Reply, Request};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::{HELLO_BYTES_MAX, REQUESTS_PER_CONNECTION_MAX};
use snowskin_types::link::FromNode;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

/// A stranger has this long for its first frame.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// A frame that has begun, and a send that waits, must make progress within this time.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);
/// A node answers pings far more often than this.
const LINK_SILENCE_MAX: Duration = Duration::from_secs(60);
/// After a refusal the peer's unread bytes are taken for this long, so that the refusal arrives.
const LINGER: Duration = Duration::from_secs(1);
/// No more than this is taken then.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// A frame that has begun must be whole within this time.
const FRAME_TIMEOUT: Duration = Duration::from_secs(30);
/// A frame above this size is received only with a permit, and there are so many: strangers that were let in
/// cannot make the master buffer the largest frame on every connection.
const LARGE_FRAME_BYTES: usize = 256 << 10;
pub(crate) const LARGE_FRAMES_MAX: usize = 64;
/// Bytes read at once, at least and at most.
const READ_BYTES: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// The peer closed, or the network did.
    Gone,
    /// The peer was told a reason.
    Refused,
    /// The master stops.
    Stopped,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Gone
    }
}

struct Connection {
    stream: TcpStream,
    hub: Arc<Hub>,
    outbox: Arc<Outbox>,
    decoder: Decoder,
    input: BytesMut,
}

/// Serves one connection until it ends on either side.
pub(crate) async fn serve(
    stream: TcpStream,
    hub: Arc<Hub>,
    greeting: Arc<Greeting>,
    cancel: Cancel,
) {
    let mut connection = Connection {
        stream,
        hub,
        outbox: Arc::new(Outbox::default()),
        decoder: Decoder::new(),
        input: BytesMut::new(),
    };
    // An option that cannot be set makes a dead peer be noticed later, not wrongly.
    if let Err(error) = snowskin_runtime::net::tune(&connection.stream) {
        tracing::debug!(%error, "cannot set socket options");
    }
    let greeted = cancel
        .run(timeout(HELLO_TIMEOUT, connection.greet(&greeting)))
        .await;
    let end = match greeted {
        None => End::Stopped,
        Some(Ok(Ok(peer))) => connection.run(&peer, &cancel).await,
        Some(Ok(Err(end))) => end,
        Some(Err(_)) => {
            let text = format!("no first frame within {} s", HELLO_TIMEOUT.as_secs());
            connection.refuse(Failure::new(Code::RpcTimeout, Stage::Session, text));
            End::Refused
        }
    };
    connection.finish(end, &cancel).await;
}

impl Connection {
    /// Reads the peer's first frame and answers it.
    async fn greet(&mut self, greeting: &Greeting) -> Result<Greeting, End> {
        let frame = loop {
            match self.decoder.next(&mut self.input) {
                Ok(Some(frame)) => break frame,
                Ok(None) => self.read(HELLO_BYTES_MAX).await?,
                Err(error) => return Err(self.garbage(&error)),
            }
        };
        let peer = match Hello::from_frame(frame) {
            Ok(Hello(peer)) => peer,
            Err(error) => {
                self.refuse(error.failure(Stage::Session));
                return Err(End::Refused);
            }
        };
        let refused = match greeting.meet(&peer) {
            Ok(_) if peer.role == Role::Master => Some(Failure::new(
                Code::InvalidParams,
                Stage::Session,
                "a master does not connect to a master; allowed are clients and nodes",
            )),
            Ok(_) => None,
            Err(failure) => Some(failure),
        };
        if let Some(failure) = refused {
            self.refuse(failure);
            return Err(End::Refused);
        }
        self.decoder.open();
        self.outbox.send(0, &Welcome(greeting.clone()));
        self.outbox.flush(&self.stream)?;
        Ok(peer)
    }

    /// Serves a peer that was let in.
    async fn run(&mut self, peer: &Greeting, cancel: &Cancel) -> End {
        let hub = self.hub.clone();
        hub.presence(peer.process, true);
        let outbox = self.outbox.clone();
        let link = (peer.role == Role::Node).then(|| hub.open_link(LinkEnd::Connection(outbox)));
        let end = {
            let Connection {
                stream,
                hub,
                outbox,
                decoder,
                input,
            } = self;
            let mut reader = Reader {
                stream,
                hub,
                outbox,
                decoder,
                input,
                link,
                begun: None,
                large_frames: &hub.large_frames,
                large: None,
            };
            // Both run until one ends; neither keeps anything that the other would need afterwards.
            tokio::select! {
                end = reader.run() => end,
                end = write(stream, outbox, &hub.tally) => end,
                () = cancel.cancelled() => End::Stopped,
            }
        };
        match link {
            Some(link) => hub.link_lost(link),
            None => hub.orphan(&self.outbox.orphans()),
        }
        hub.presence(peer.process, false);
        end
    }

    async fn read(&mut self, most: usize) -> Result<(), End> {
        read(&self.stream, &mut self.input, most).await
    }

    fn garbage(&self, error: &FrameError) -> End {
        Tally::one(&self.hub.tally.garbage);
        let failure = Failure::new(Code::InvalidParams, Stage::Session, error.to_string());
        tell_of(&self.stream, &self.hub, &failure);
        self.outbox.send(0, &Closing(failure));
        End::Refused
    }

    fn refuse(&self, failure: Failure) {
        Tally::one(&self.hub.tally.hello_refused);
        tell_of(&self.stream, &self.hub, &failure);
        self.outbox.send(0, &Closing(failure));
    }

    /// Sends what still waits and, after a refusal, takes what the peer has on the way: a socket that
    /// is closed with unread bytes takes the refusal back.
    async fn finish(self, end: End, cancel: &Cancel) {
        let Connection {
            stream,
            outbox,
            mut input,
            ..
        } = self;
        if matches!(end, End::Gone) || outbox.flush(&stream).is_err() || cancel.is_cancelled() {
            return;
        }
        let last = async {
            while outbox.flush(&stream)? == Sent::Blocked {
                stream.writable().await?;
            }
            socket2::SockRef::from(&stream).shutdown(std::net::Shutdown::Write)?;
            let mut taken = 0;
            while taken < LINGER_BYTES_MAX {
                input.clear();
                if read(&stream, &mut input, READ_BYTES).await.is_err() {
                    break;
                }
                taken += input.len();
            }
            Ok::<_, io::Error>(())
        };
        // The peer may be gone already; it has lost a reason, not an answer.
        if let Some(Ok(Err(error))) = cancel.run(timeout(LINGER, last)).await {
            tracing::debug!(%error, "the reason of a refusal was not taken");
        }
    }
}

struct Reader<'a> {
    stream: &'a TcpStream,
    hub: &'a Arc<Hub>,
    outbox: &'a Arc<Outbox>,
    decoder: &'a mut Decoder,
    input: &'a mut BytesMut,
    link: Option<LinkId>,
    /// When the first bytes of the frame that is not whole yet were seen.
    begun: Option<Instant>,
    large_frames: &'a Semaphore,
    large: Option<SemaphorePermit<'a>>,
}

impl Reader<'_> {
    async fn run(&mut self) -> End {
        match self.read_all().await {
            Ok(end) | Err(end) => end,
        }
    }

    async fn read_all(&mut self) -> Result<End, End> {
        loop {
            self.outbox.cork();
            let refused = self.take_frames();
            self.outbox.flush(self.stream)?;
            if let Some(failure) = refused {
                Tally::one(&self.hub.tally.garbage);
                tell_of(self.stream, self.hub, &failure);
                self.outbox.send(0, &Closing(failure));
                return Ok(End::Refused);
            }
            self.outbox.room().await;
            let missing = self.decoder.missing(self.input);
            let begun = (missing != HEADER_BYTES || !self.input.is_empty())
                .then(|| *self.begun.get_or_insert_with(Instant::now));
            if missing <= LARGE_FRAME_BYTES {
                self.large = None;
            }
            let most = missing.clamp(READ_BYTES, READ_BYTES_MAX);
            let patience = match (begun, self.link) {
                (Some(begun), _) => {
                    PROGRESS_TIMEOUT.min(FRAME_TIMEOUT.saturating_sub(begun.elapsed()))
                }
                (None, Some(_)) => LINK_SILENCE_MAX,
                // A client may be silent as long as it likes; TCP itself finds out whether it is there.
                (None, None) => {
                    read(self.stream, self.input, most).await?;
                    continue;
                }
            };
            let step = async {
                if missing > LARGE_FRAME_BYTES && self.large.is_none() {
                    self.large = self.large_frames.acquire().await.ok();
                }
                read(self.stream, self.input, most).await
            };
            match timeout(patience, step).await {
                Ok(read) => read?,
                Err(_) => {
                    Tally::one(&self.hub.tally.silent);
                    return Ok(End::Gone);
                }
            }
        }
    }

    /// Handles every whole frame that has come; the failure to end the connection with, if any.
    fn take_frames(&mut self) -> Option<Failure> {
        loop {
            let frame = match self.decoder.next(self.input) {
                Ok(Some(frame)) => frame,
                Ok(None) => return None,
                Err(error) => return Some(bad(error.to_string())),
            };
            self.begun = None;
            let refused = match (frame.kind, self.link) {
                (Kind::Ping, _) => {
                    self.outbox.send_empty(frame.id, Kind::Pong);
                    None
                }
                (Kind::Pong, _) => None,
                (Kind::Request, None) => self.take_request(frame),
                (Kind::FromNode, Some(link)) => self.take_message(link, frame),
                (kind, link) => {
                    let who = if link.is_some() { "a node" } else { "a client" };
                    Some(bad(format!("{who} does not send frames of kind {kind:?}")))
                }
            };
            if refused.is_some() {
                return refused;
            }
        }
    }

    fn take_request(&self, frame: Frame) -> Option<Failure> {
        let wire = frame.id;
        let request = match Request::from_frame(frame) {
            Ok(request) => request,
            Err(error) => {
                Tally::one(&self.hub.tally.garbage);
                self.outbox
                    .send(wire, &Reply::Failed(error.failure(Stage::Session)));
                return None;
            }
        };
        let stage = stage_of(&request);
        match self
            .hub
            .request(Origin::Connection(self.outbox.clone(), wire), request)
        {
            Ok(_) => None,
            Err(Refusal::TooMany) => {
                Tally::one(&self.hub.tally.excess);
                let text = format!(
                    "{REQUESTS_PER_CONNECTION_MAX} requests of this connection are under way"
                );
                let failure = Failure::new(Code::UnavailableInStatus, stage, text);
                self.outbox.send(wire, &Reply::Failed(failure));
                None
            }
            Err(Refusal::Duplicate) => Some(bad(format!(
                "a request of number {wire} is under way already"
            ))),
        }
    }

    fn take_message(&self, link: LinkId, frame: Frame) -> Option<Failure> {
        match FromNode::from_frame(frame) {
            Ok(message) => {
                // A link that the directory has closed ends by its outbox.
                self.hub.take_message(link, message);
                None
            }
            Err(error) => Some(error.failure(Stage::Session)),
        }
    }
}

/// Strangers come as often as they like; the log must not grow with them.
fn tell_of(stream: &TcpStream, hub: &Hub, failure: &Failure) {
    let peer = stream.peer_addr().ok();
    tracing::debug!(?peer, %failure, "a connection is refused");
    if let Some(count) = hub.strangers.another() {
        tracing::warn!(count, last = ?peer, %failure, "connections to the control port were refused");
    }
}

fn bad(text: String) -> Failure {
    Failure::new(Code::InvalidParams, Stage::Session, text)
}

async fn read(stream: &TcpStream, input: &mut BytesMut, most: usize) -> Result<(), End> {
    loop {
        stream.readable().await?;
        // The buffer grows with what has come, never with what was announced.
        input.reserve(most);
        match stream.try_read_buf(input) {
            Ok(0) => return Err(End::Gone),
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
}

async fn write(stream: &TcpStream, outbox: &Outbox, tally: &Tally) -> End {
    loop {
        outbox.ready().await;
        loop {
            if outbox.ending() == Some(Ending::Slow) {
                Tally::one(&tally.slow);
                return End::Gone;
            }
            match outbox.flush(stream) {
                Ok(Sent::All) => break,
                Ok(Sent::Blocked) => {}
                Err(_) => return End::Gone,
            }
            match timeout(PROGRESS_TIMEOUT, stream.writable()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return End::Gone,
                Err(_) => {
                    Tally::one(&tally.slow);
                    return End::Gone;
                }
            }
        }
        if outbox.ending().is_some() {
            return End::Refused;
        }
    }
}
