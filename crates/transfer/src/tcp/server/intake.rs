//! The receiving half of a served connection: requests, and the bytes of writes.

use super::{ConnectionError, Shared};
use crate::tcp::counters::{add, count};
use crate::tcp::endpoint::{Endpoint, Filled, WriteStart, WriteTicket};
use crate::tcp::inlet::{Incoming, Inlet};
use crate::tcp::runs::Runs;
use bytes::{Bytes, BytesMut};
use snowskin_memory::slices::TargetSlices;
use snowskin_proto::frame::{self, Frame, Kind};
use snowskin_proto::hello::{FEATURE_RANGES, Greeting, Hello, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_proto::{DecodeError, RangeRead, RangeRequest, RangeSums, RangeWrite, WriteDone};
use snowskin_runtime::spawn::Cancel;
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::checksum::PieceHasher;
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::time::Millis;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Bytes after which a receiving task lets others run.
const YIELD_BYTES: u64 = 4 << 20;

/// Bytes that a refused peer may still send.
const FAREWELL_BYTES_MAX: usize = 1 << 20;
/// Time that a refused peer has to hang up.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// A read that was asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) id: u64,
    pub(super) bytes: WantedBytes,
}

/// Of what.
#[derive(Debug)]
pub(super) enum WantedBytes {
    Object(ReadRequest),
    Range(RangeRequest),
}

/// How the bytes of a write are verified.
#[derive(Debug)]
pub(super) enum Check {
    /// Not at all.
    None,
    /// At their end, against the sums of the request.
    Object(PieceHasher),
    /// Run by run, against the sums that come between them.
    Range(Runs),
}

impl Check {
    fn see(&mut self, run: &[u8]) {
        match self {
            Check::None => {}
            Check::Object(hasher) => hasher.update(run),
            Check::Range(runs) => runs.see(run),
        }
    }

    /// Bytes of payload that may come now; `remaining` are left of the object. Of a range, whose
    /// target may be a part of it, the sums that came decide.
    fn room(&self, remaining: u64) -> u64 {
        match self {
            Check::None | Check::Object(_) => remaining,
            Check::Range(runs) => runs.room(),
        }
    }

    fn announce(&mut self, sums: RangeSums) -> Result<(), ConnectionError> {
        match self {
            Check::Range(runs) => runs.announce(sums.0).map_err(garbage),
            Check::None | Check::Object(_) => Err(garbage("sums of a range came amid an object")),
        }
    }
}

pub(super) struct Intake<'c, E> {
    pub(super) stream: &'c TcpStream,
    pub(super) shared: &'c Arc<Shared<E>>,
    inlet: Inlet,
    pub(super) answers: mpsc::Sender<Bytes>,
    reads: mpsc::Sender<Wanted>,
    /// Writes whose bytes are in and whose answer is awaited from the node. Dropped with the
    /// connection, which tells the node that the writer has gone.
    ending: JoinSet<()>,
    /// The write that was answered before all its bytes came, and how many of them may still come.
    pub(super) discarding: Option<(u64, u64)>,
}

/// The encoded frame of a message that is always small enough.
pub(super) fn encoded<M: Message>(id: u64, message: &M) -> Bytes {
    let mut out = BytesMut::new();
    // Answers are bounded far below a frame; a failure here would only leave the peer waiting for
    // its own deadline.
    if let Err(error) = frame::put(&mut out, id, message) {
        tracing::error!(%error, "an answer does not fit into a frame");
    }
    out.freeze()
}

impl<'c, E: Endpoint> Intake<'c, E> {
    pub(super) fn new(
        stream: &'c TcpStream,
        shared: &'c Arc<Shared<E>>,
        answers: mpsc::Sender<Bytes>,
        reads: mpsc::Sender<Wanted>,
    ) -> Self {
        let ending = JoinSet::new();
        Intake {
            stream,
            shared,
            inlet: Inlet::new(),
            answers,
            reads,
            ending,
            discarding: None,
        }
    }

    pub(super) async fn run(mut self, greeting: Greeting) -> Result<(), ConnectionError> {
        self.greet(greeting).await?;
        loop {
            let patience = if self.inlet.is_idle() {
                self.shared.options.idle
            } else {
                self.shared.options.stall
            };
            match self.incoming(patience).await? {
                Incoming::Frame(frame) => self.request(frame).await?,
                Incoming::Payload { id } => {
                    self.discard(id).await?;
                    // Lets the answer go out that makes the peer stop.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn greet(&mut self, own: Greeting) -> Result<(), ConnectionError> {
        let patience = self.shared.options.hello_timeout;
        let incoming = tokio::time::timeout(patience.duration(), self.incoming(patience));
        let frame = match incoming.await {
            Ok(Ok(Incoming::Frame(frame))) => frame,
            Ok(Ok(Incoming::Payload { .. })) => return Err(garbage("payload before a hello")),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(ConnectionError::Refused("no hello came in time".to_owned())),
        };
        let hello = Hello::from_frame(frame).map_err(|error| garbage(&error.to_string()))?;
        let own = own.with_features(FEATURE_RANGES);
        match own.meet(&hello.0) {
            Ok(_) => {
                self.inlet.open();
                self.answer(encoded(0, &Welcome(own))).await
            }
            Err(failure) => {
                let refused = ConnectionError::Refused(failure.to_string());
                self.farewell(failure).await;
                Err(refused)
            }
        }
    }

    /// Tells a refused peer why. What it has already sent is read until it hangs up, within bounds: a
    /// socket that is closed with unread bytes takes its last words back.
    async fn farewell(&mut self, failure: Failure) {
        // Sent here, since the other half ends with the connection.
        let words = encoded(0, &Closing(failure));
        if self.stream.try_write(&words).is_err() {
            return;
        }
        let listen = async {
            let mut heard = 0;
            let mut scratch = vec![0; 16 * 1024];
            while heard < FAREWELL_BYTES_MAX && self.stream.readable().await.is_ok() {
                match self.stream.try_read(&mut scratch) {
                    Ok(0) => return,
                    Ok(bytes) => heard += bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        // Silence is as good as a farewell.
        tokio::time::timeout(FAREWELL_TIME_MAX, listen).await.ok();
    }

    pub(super) async fn answer(&self, frame: Bytes) -> Result<(), ConnectionError> {
        self.answers
            .send(frame)
            .await
            .map_err(|_| ConnectionError::Closed)
    }

    pub(super) async fn refuse(&self, id: u64, failure: Failure) -> Result<(), ConnectionError> {
        count(&self.shared.counters.writes_refused);
        self.answer(encoded(id, &WriteDone(Err(failure)))).await
    }

    /// Waits for readable bytes, no longer than `patience`.
    async fn readable(&self, patience: Millis) -> Result<(), ConnectionError> {
        match tokio::time::timeout(patience.duration(), self.stream.readable()).await {
            Ok(ready) => Ok(ready?),
            Err(_) => Err(ConnectionError::Silent(patience.duration())),
        }
    }

    async fn incoming(&mut self, patience: Millis) -> Result<Incoming, ConnectionError> {
        loop {
            if let Some(incoming) = self.inlet.next()? {
                return Ok(incoming);
            }
            let stream = self.stream;
            match self.inlet.fill(|slices| stream.try_read_vectored(slices)) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable(patience).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn request(&mut self, frame: Frame) -> Result<(), ConnectionError> {
        let id = frame.id;
        match frame.kind {
            Kind::Ping => {
                let mut out = BytesMut::new();
                frame::put_empty(&mut out, id, Kind::Pong);
                self.answer(out.freeze()).await
            }
            Kind::Read => {
                let request = ReadRequest::decode_body(frame.body);
                self.want(id, request.map(WantedBytes::Object)).await
            }
            Kind::RangeRead => {
                let request = RangeRead::decode_body(frame.body);
                self.want(id, request.map(|read| WantedBytes::Range(read.0)))
                    .await
            }
            Kind::Write => match WriteRequest::decode_body(frame.body) {
                Ok(request) => self.write(id, request).await,
                Err(error) => self.refuse_unread(id, &error).await,
            },
            Kind::RangeWrite => match RangeWrite::decode_body(frame.body) {
                Ok(RangeWrite(request)) => self.write_range(id, request).await,
                Err(error) => self.refuse_unread(id, &error).await,
            },
            // Of a write that was answered early, as its payload.
            Kind::RangeSums
                if self
                    .discarding
                    .is_some_and(|(discarded, _)| discarded == id) =>
            {
                Ok(())
            }
            Kind::PayloadEnd
                if self
                    .discarding
                    .is_some_and(|(discarded, _)| discarded == id) =>
            {
                self.discarding = None;
                Ok(())
            }
            // A pong, or what a later version may say.
            Kind::Pong => Ok(()),
            other => Err(garbage(&format!("a frame of kind {other:?} came"))),
        }
    }

    /// Hands a read to the other half.
    async fn want(
        &self,
        id: u64,
        bytes: Result<WantedBytes, DecodeError>,
    ) -> Result<(), ConnectionError> {
        match bytes {
            Ok(bytes) => {
                let wanted = self.reads.send(Wanted { id, bytes }).await;
                wanted.map_err(|_| ConnectionError::Closed)
            }
            Err(error) => {
                count(&self.shared.counters.reads_refused);
                let failed = snowskin_proto::message::ReadFailed(error.failure(Stage::Read));
                self.answer(encoded(id, &failed)).await
            }
        }
    }

    /// Refuses a write that cannot be understood.
    async fn refuse_unread(&mut self, id: u64, error: &DecodeError) -> Result<(), ConnectionError> {
        self.discarding = Some((id, self.shared.options.drain_bytes_max));
        self.refuse(id, error.failure(Stage::Write)).await
    }

    /// Throws the rest of the current payload frame away, which belongs to an answered write.
    pub(super) async fn discard(&mut self, id: u64) -> Result<(), ConnectionError> {
        let Some((discarded, budget)) = self.discarding else {
            return Err(garbage("payload came that belongs to no write"));
        };
        let bytes = self.inlet.payload_left();
        if id != discarded || bytes > budget {
            return Err(garbage("too much payload of a refused write came"));
        }
        self.discarding = Some((id, budget - bytes));
        add(&self.shared.counters.bytes_dropped, bytes);
        while self.inlet.payload_left() > 0 {
            let stream = self.stream;
            match self.inlet.skip(|slices| stream.try_read_vectored(slices)) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable(self.shared.options.stall).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn write(&mut self, id: u64, request: WriteRequest) -> Result<(), ConnectionError> {
        count(&self.shared.counters.writes);
        while self.ending.len() >= self.shared.options.writes_max {
            self.ending.join_next().await;
        }
        while self.ending.try_join_next().is_some() {}
        let (size, sums) = (request.size, request.sums.clone());
        self.discarding = Some((id, self.shared.options.drain_bytes_max.min(size)));
        let start = self.shared.endpoint.write_start(request);
        let ticket = match alive(
            id,
            &self.answers,
            self.shared.options.waiting_interval,
            start,
        )
        .await
        {
            WriteStart::Granted(ticket) => ticket,
            WriteStart::Answered(Ok(())) => {
                return self.answer(encoded(id, &WriteDone(Ok(())))).await;
            }
            WriteStart::Answered(Err(failure)) => return self.refuse(id, failure).await,
        };
        let extents = ticket.extents();
        let target = self
            .shared
            .endpoint
            .segment()
            .target(extents.iter().map(|e| (e.offset, e.len)));
        let mut target = match target {
            Ok(target) if target.remaining() == size => target,
            // A bug of the node; nothing was touched.
            Ok(_) | Err(_) => {
                drop(ticket);
                let text = "the extents of the grant do not fit the object";
                return self
                    .refuse(id, Failure::new(Code::Internal, Stage::Write, text))
                    .await;
            }
        };
        let mut check = match self.shared.endpoint.verifies_writes() {
            true => Check::Object(PieceHasher::default()),
            false => Check::None,
        };
        let received = self
            .receive(id, &ticket.cut(), &mut target, &mut check)
            .await;
        let sound = match check {
            Check::Object(hasher) => hasher.finish() == sums,
            Check::None | Check::Range(_) => true,
        };
        let filled = match &received {
            Ok(Received::All) if sound => Filled::Sound,
            Ok(Received::All) => {
                count(&self.shared.counters.checksum_failures);
                Filled::Corrupt
            }
            Ok(Received::GivenUp | Received::Cut) | Err(_) => {
                count(&self.shared.counters.broken);
                Filled::Broken
            }
        };
        // Nothing may touch the extents when the ticket ends.
        drop(target);
        if let Ok(Received::All | Received::GivenUp) = received {
            self.discarding = None;
        }
        // The answer may take its time (the publish is awaited); further requests go on meanwhile.
        let answers = self.answers.clone();
        let interval = self.shared.options.waiting_interval;
        let counters = Arc::clone(&self.shared.counters);
        let answer = async move {
            let result = alive(id, &answers, interval, ticket.end(filled)).await;
            let result = match filled {
                Filled::Sound => result,
                Filled::Corrupt => result.and(Err(Failure::new(
                    Code::ChecksumMismatch,
                    Stage::Write,
                    "the bytes that arrived do not have the checksums that were announced",
                ))),
                Filled::Broken => result.and(Err(Failure::new(
                    Code::InvalidWrite,
                    Stage::Write,
                    "the write was given up before all bytes came",
                ))),
            };
            if result.is_err() {
                count(&counters.writes_refused);
            }
            // A closed queue means that the connection has ended.
            answers.send(encoded(id, &WriteDone(result))).await.ok();
        };
        if let Ok(Received::Cut | Received::GivenUp) = received {
            // No publish is awaited; payload that may still come waits until the peer can know.
            answer.await;
            if let Ok(Received::Cut) = received {
                self.discard(id).await?;
            }
        } else {
            self.ending.spawn(answer);
        }
        received.map(|_| ())
    }

    /// Receives the payload of a granted write straight to where it belongs.
    pub(super) async fn receive(
        &mut self,
        id: u64,
        cut: &Cancel,
        target: &mut TargetSlices<'_>,
        check: &mut Check,
    ) -> Result<Received, ConnectionError> {
        let (stall, stream) = (self.shared.options.stall, self.stream);
        let mut since_yield = 0;
        while target.remaining() > 0 {
            if self.inlet.payload_left() == 0 {
                let Some(incoming) = cut.run(self.incoming(stall)).await else {
                    return Ok(Received::Cut);
                };
                match incoming? {
                    Incoming::Payload { id: of } if of == id => {
                        if self.inlet.payload_left() > check.room(target.remaining()) {
                            return Err(garbage("more payload came than was announced"));
                        }
                    }
                    Incoming::Frame(frame) if frame.kind == Kind::RangeSums && frame.id == id => {
                        let sums = RangeSums::decode_body(frame.body);
                        check.announce(sums.map_err(|error| garbage(&error.to_string()))?)?;
                    }
                    Incoming::Frame(frame) if frame.kind == Kind::PayloadEnd && frame.id == id => {
                        return Ok(Received::GivenUp);
                    }
                    Incoming::Frame(_) | Incoming::Payload { .. } => {
                        return Err(garbage("another frame came amid the payload of a write"));
                    }
                }
                continue;
            }
            let before = self.inlet.payload_left();
            let took = self.inlet.payload(
                target,
                |run| check.see(run),
                |slices| stream.try_read_vectored(slices),
            );
            match took {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(_) => {
                    // What was read behind the payload is not payload.
                    let bytes = before - self.inlet.payload_left();
                    add(&self.shared.counters.bytes_in, bytes);
                    since_yield += bytes;
                    if since_yield >= YIELD_BYTES {
                        since_yield = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match cut.run(self.readable(stall)).await {
                        // The rest of the frame is thrown away once the memory has been let go.
                        None => return Ok(Received::Cut),
                        Some(ready) => ready?,
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Received::All)
    }
}

/// How the payload of a write ended, with the connection still good.
pub(super) enum Received {
    All,
    GivenUp,
    Cut,
}

fn garbage(text: &str) -> ConnectionError {
    ConnectionError::Garbage(text.to_owned())
}

/// Awaits the node, telling the peer every now and then that its request is alive.
pub(super) async fn alive<F: Future>(
    id: u64,
    answers: &mpsc::Sender<Bytes>,
    interval: Millis,
    node: F,
) -> F::Output {
    let mut node = std::pin::pin!(node);
    loop {
        match tokio::time::timeout(interval.duration(), &mut node).await {
            Ok(output) => return output,
            Err(_) => {
                let mut out = BytesMut::new();
                frame::put_empty(&mut out, id, Kind::Waiting);
                // A full queue means that the peer is being talked to anyway.
                answers.try_send(out.freeze()).ok();
            }
        }
    }
}
