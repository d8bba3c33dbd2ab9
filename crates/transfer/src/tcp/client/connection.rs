//! One connection to a peer: a state machine over a socket that never blocks.

use super::Shared;
use super::operation::{Receipt, Under};
use crate::tcp::PAYLOAD_BYTES_MAX;
use crate::tcp::counters::{Counters, add, count};
use crate::tcp::inlet::{Incoming, Inlet, Outlet};
use crate::tcp::runs::begin_run;
use crate::transport::{Completion, Movement, OperationId};
use snowskin_proto::error::{DecodeError, EncodeError, FrameError};
use snowskin_proto::frame::{self, Frame, Header, Kind};
use snowskin_proto::hello::{FEATURE_RANGES, Greeting, Hello, Welcome};
use snowskin_proto::message::{Closing, Message, ReadFailed};
use snowskin_proto::{RangeSums, ReadHead, WriteDone};
use snowskin_runtime::net::{self, DialError};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::PROGRESS_TIMEOUT;
use snowskin_types::time::{Millis, Now};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of requests that are put together into one write.
const REQUESTS_BYTES: usize = 64 * 1024;
/// Bytes moved in one direction before other connections and deadlines get their turn.
const CALL_BYTES: usize = 8 << 20;
/// An idle connection is pinged after this time.
const PING_AFTER: Millis = Millis(15_000);

/// Operations of a batch by their number.
pub(super) type Operations<'m> = HashMap<OperationId, Under<'m>>;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the peer closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the peer ended the connection: {0}")]
    Ended(Failure),
    #[error("the peer does not speak the protocol: {0}")]
    Frame(#[from] FrameError),
    #[error("the peer sent what cannot be understood: {0}")]
    Decode(#[from] DecodeError),
    #[error("the peer sent {0}, which was not asked for")]
    Unasked(&'static str),
    #[error("the peer made no progress for {0:?}")]
    Stalled(Duration),
    #[error("the connection was idle for too long")]
    Idle,
}

impl LinkError {
    /// As the result of an operation in `stage`.
    pub(super) fn failure(&self, stage: Stage) -> Failure {
        match self {
            LinkError::Dial(error) => error.failure(stage),
            LinkError::Ended(failure) => Failure {
                stage,
                message: self.to_string(),
                ..failure.clone()
            },
            _ => Failure::new(Code::TransferFail, stage, self.to_string()),
        }
    }

    /// True when the peer may just have closed a connection that was idle.
    pub(super) fn may_be_stale(&self) -> bool {
        matches!(self, LinkError::Closed | LinkError::Broken(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The connection is being opened.
    Opening,
    /// The own hello is on its way; the peer's welcome has not come.
    Greeting,
    /// Both have greeted.
    Open,
}

/// A request that has not been answered.
#[derive(Debug)]
struct Flight {
    id: u64,
    /// The operation; none when nobody wants the answer any more.
    operation: Option<OperationId>,
    /// Bytes that still come.
    left: Option<u64>,
    /// Bytes of a read of a range, known before they are announced.
    ranged: Option<u64>,
}

/// The write whose payload is being sent.
#[derive(Debug)]
struct Sending {
    operation: OperationId,
    id: u64,
    /// It goes to a range, so that sums precede its payload.
    ranged: bool,
    /// Bytes left of the payload frame that has begun.
    frame_left: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    address: Arc<str>,
    state: State,
    since: Now,
    inlet: Inlet,
    outlet: Outlet,
    queue: VecDeque<OperationId>,
    sending: Option<Sending>,
    flights: Vec<Flight>,
    /// The request whose payload frame is being received.
    receiving: u64,
    next_id: u64,
    /// What both sides can do, once both have greeted.
    features: Option<u64>,
    /// The queue waits for the peer's features.
    held: bool,
    last_progress: Now,
    /// Shortest patience of its operations.
    stall: Millis,
    /// It was idle in the pool and the peer has said nothing since.
    unproven: bool,
    pinged: Option<Now>,
    /// More bytes may be there to read than one call has taken.
    has_more: bool,
}

impl Connection {
    /// Begins to open a connection.
    pub(super) fn open(
        address: &Arc<str>,
        candidate: SocketAddr,
        greeting: &Greeting,
        now: Now,
    ) -> Result<Self, LinkError> {
        let stream = net::dial_start(candidate)
            .map_err(|error| net::dial_error(address, error, Duration::ZERO))?;
        let mut outlet = Outlet::default();
        // A greeting is far smaller than a frame.
        let fits = frame::put(&mut outlet.bytes, 0, &Hello(greeting.clone()));
        fits.map_err(|error: EncodeError| LinkError::Broken(io::Error::other(error)))?;
        Ok(Connection {
            stream,
            address: Arc::clone(address),
            state: State::Opening,
            since: now,
            inlet: Inlet::new(),
            outlet,
            queue: VecDeque::new(),
            sending: None,
            flights: Vec::new(),
            receiving: 0,
            next_id: 1,
            features: None,
            held: false,
            last_progress: now,
            stall: PROGRESS_TIMEOUT,
            unproven: false,
            pinged: None,
            has_more: false,
        })
    }

    pub(super) fn address(&self) -> &Arc<str> {
        &self.address
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The operation that was answered while its payload is still being sent.
    fn answered(&self) -> Option<OperationId> {
        let sending = self.sending.as_ref()?.operation;
        let awaited = self
            .flights
            .iter()
            .any(|flight| flight.operation == Some(sending));
        (!awaited).then_some(sending)
    }

    fn given(&self) -> impl Iterator<Item = OperationId> + '_ {
        let flights = self.flights.iter().filter_map(|flight| flight.operation);
        flights
            .chain(self.answered())
            .chain(self.queue.iter().copied())
    }

    /// Operations given to it that have not ended.
    pub(super) fn operations(&self) -> usize {
        self.given().count()
    }

    /// Bytes of the operations given to it.
    pub(super) fn load(&self, operations: &Operations<'_>) -> u64 {
        self.given()
            .filter_map(|id| operations.get(&id))
            .map(|under| under.bytes)
            .sum()
    }

    /// True when bytes may be there that no poll of the socket tells of.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether both sides have greeted.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn is_unproven(&self) -> bool {
        self.unproven
    }

    /// True when nothing is under way, so that the next batch can use it.
    pub(super) fn is_clean(&self) -> bool {
        self.state == State::Open
            && self.flights.is_empty()
            && self.queue.is_empty()
            && self.sending.is_none()
            && self.outlet.bytes.is_empty()
            && self.inlet.is_idle()
    }

    pub(super) fn wants_write(&self) -> bool {
        self.state == State::Opening
            || !self.outlet.bytes.is_empty()
            || self.sending.is_some()
            || !self.queue.is_empty() && !self.held
    }

    /// When it fails if nothing happens.
    pub(super) fn patience_ends(&self, connect_timeout: Millis) -> Now {
        match self.state {
            State::Opening | State::Greeting => self.since + connect_timeout,
            State::Open => self.last_progress + self.stall,
        }
    }

    /// Gives it an operation to carry out.
    pub(super) fn assign(&mut self, under: &Under<'_>, now: Now) {
        if self.operations() == 0 {
            self.last_progress = now;
            self.stall = under.operation.stall;
        }
        self.stall = self.stall.min(under.operation.stall);
        self.queue.push_back(under.id);
    }

    /// Marks it as taken from the pool.
    pub(super) fn taken(&mut self, now: Now) {
        self.unproven = true;
        self.last_progress = now;
    }

    /// Marks it as given to the pool.
    pub(super) fn rests(&mut self, now: Now) {
        self.since = now;
        self.pinged = None;
    }

    /// All operations given to it, as the connection ends.
    pub(super) fn abandon(self) -> Vec<OperationId> {
        if self.state != State::Opening {
            // Given up in the middle; there is nobody to wait for.
            net::close_abruptly(&self.stream).ok();
        }
        self.given().collect()
    }

    /// Stops caring for an operation. Fails when the connection cannot go on without it.
    pub(super) fn drop_operation(&mut self, operation: OperationId) -> Result<(), Amid> {
        self.queue.retain(|queued| *queued != operation);
        if let Some(sending) = self
            .sending
            .take_if(|sending| sending.operation == operation)
        {
            if sending.frame_left > 0 {
                return Err(Amid);
            }
            frame::put_empty(&mut self.outlet.bytes, sending.id, Kind::PayloadEnd);
        }
        for flight in &mut self.flights {
            if flight.operation == Some(operation) {
                flight.operation = None;
            }
        }
        // Answers that nobody wants are read only as long as others are awaited.
        if self.operations() == 0 && !self.is_clean() {
            Err(Amid)
        } else {
            Ok(())
        }
    }

    /// Moves what can be moved without blocking.
    pub(super) fn drive<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) -> Result<(), LinkError> {
        if self.state == State::Opening && !self.check_open()? {
            return self.check_patience(shared, now);
        }
        self.send(operations, finished, shared, now)?;
        self.receive(operations, finished, shared, now)?;
        if self.wants_write() {
            // An answer may have made room for more.
            self.send(operations, finished, shared, now)?;
        }
        self.check_patience(shared, now)
    }

    fn check_patience(&self, shared: &Shared, now: Now) -> Result<(), LinkError> {
        if now < self.patience_ends(shared.options.connect_timeout) || self.operations() == 0 {
            return Ok(());
        }
        let address = self.address.as_ref().to_owned();
        let waited = now.since(self.since).duration();
        match self.state {
            State::Opening => Err(DialError::Silent { address, waited }.into()),
            State::Greeting => Err(LinkError::Stalled(waited)),
            State::Open => Err(LinkError::Stalled(now.since(self.last_progress).duration())),
        }
    }

    /// Whether the connection has opened by now.
    fn check_open(&mut self) -> Result<bool, LinkError> {
        let dialled = |error| net::dial_error(&self.address, error, Duration::ZERO);
        net::pending_error(&self.stream).map_err(dialled)?;
        match self.stream.peer_addr() {
            Ok(_) => {
                self.state = State::Greeting;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(dialled(error).into()),
        }
    }

    /// Makes frames of queued operations until enough is there to send.
    fn fill_outlet<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        counters: &Counters,
    ) {
        while self.sending.is_none() && self.outlet.bytes.len() < REQUESTS_BYTES {
            let Some(&operation) = self.queue.front() else {
                break;
            };
            let Some(under) = operations.get(&operation) else {
                self.queue.pop_front();
                continue;
            };
            let ranged = under.is_ranged();
            self.held = ranged && self.features.is_none();
            if self.held {
                break;
            }
            self.queue.pop_front();
            if ranged && self.features.is_none_or(|both| both & FEATURE_RANGES == 0) {
                let text = "the peer is of a version that does not serve ranges of regions";
                let failure = under.failure(Code::NotSupported, text);
                finished.extend(operations.remove(&operation).map(|u| u.end(Err(failure))));
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            let writes = matches!(under.operation.movement, Movement::Write { .. });
            match writes {
                true => count(&counters.writes),
                false => count(&counters.reads),
            }
            match (writes, ranged) {
                (true, true) => count(&counters.range_writes),
                (false, true) => count(&counters.range_reads),
                (_, false) => {}
            }
            match under.put_request(&mut self.outlet.bytes, id) {
                Ok(()) => {
                    self.flights.push(Flight {
                        id,
                        operation: Some(operation),
                        left: None,
                        ranged: (ranged && !writes).then_some(under.bytes),
                    });
                    self.sending = writes.then_some(Sending {
                        operation,
                        id,
                        ranged,
                        frame_left: 0,
                    });
                }
                Err(error) => {
                    let failure = error.failure(under.stage());
                    finished.extend(operations.remove(&operation).map(|u| u.end(Err(failure))));
                }
            }
        }
    }

    /// Begins the next payload frame of the write that is being sent, or ends it.
    fn next_payload<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        counters: &Counters,
    ) -> Result<(), LinkError> {
        let Some(sending) = &mut self.sending else {
            return Ok(());
        };
        if sending.frame_left > 0 {
            return Ok(());
        }
        let under = operations.get_mut(&sending.operation);
        let left = under
            .as_ref()
            .map_or(0, |under| under.operation.movement.remaining());
        let (operation, id) = (sending.operation, sending.id);
        let (verdict, source) = match under {
            Some(under) => match (under.verdict.take(), &under.operation.movement) {
                (None, Movement::Write { source, .. }) => (None, Some(source)),
                (verdict, _) => (verdict, None),
            },
            None => (None, None),
        };
        if left == 0 || verdict.is_some() {
            self.sending = None;
            if left > 0 {
                frame::put_empty(&mut self.outlet.bytes, id, Kind::PayloadEnd);
            }
            if let Some(result) = verdict {
                let under = operations.remove(&operation);
                finished.extend(under.map(|under| under.end_write(result, counters)));
            }
            return Ok(());
        }
        if let Some(source) = source.filter(|_| sending.ranged) {
            sending.frame_left = begin_run(&mut self.outlet.bytes, id, source)
                .map_err(|error| LinkError::Broken(io::Error::other(error)))?;
            return Ok(());
        }
        sending.frame_left = left.min(PAYLOAD_BYTES_MAX);
        // At most a frame's worth, so it fits.
        let header = Header::new(Kind::Payload, sending.frame_left as u32, id);
        self.outlet.bytes.extend_from_slice(&header.to_bytes());
        Ok(())
    }

    fn send<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) -> Result<(), LinkError> {
        let counters = &*shared.counters;
        let mut sent = 0;
        // A call has its end even if the peer takes all that is sent; a poll tells that there is room.
        while sent < CALL_BYTES {
            self.fill_outlet(operations, finished, counters);
            self.next_payload(operations, finished, counters)?;
            let under = self
                .sending
                .as_ref()
                .and_then(|s| operations.get_mut(&s.operation));
            let source = match under.map(|under| &mut under.operation.movement) {
                Some(Movement::Write { source, .. }) => Some(source),
                _ => None,
            };
            let stream = &mut &self.stream;
            let wrote = match (&source, &self.sending) {
                (Some(source), Some(sending)) => {
                    source.with_slices_after(&self.outlet.bytes, sending.frame_left, |slices| {
                        stream.write_vectored(slices)
                    })
                }
                _ if self.outlet.bytes.is_empty() => return Ok(()),
                _ => stream.write(&self.outlet.bytes),
            };
            match wrote {
                Ok(written) => {
                    self.last_progress = now;
                    sent += written;
                    let payload = self.outlet.sent(written);
                    if let (Some(source), Some(sending)) = (source, &mut self.sending) {
                        source.advance(payload);
                        sending.frame_left -= payload;
                        add(&counters.bytes_out, payload);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The peer's last words may still be there to read: a refusal, say.
                Err(error) => {
                    self.receive(operations, finished, shared, now)?;
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn receive<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) -> Result<(), LinkError> {
        let mut received = 0;
        self.has_more = false;
        while !self.flights.is_empty() || self.state != State::Open {
            if received >= CALL_BYTES {
                self.has_more = true;
                break;
            }
            let got = if self.inlet.payload_left() > 0 {
                self.receive_payload(operations, finished, shared)
            } else {
                match self.inlet.next()? {
                    Some(Incoming::Frame(frame)) => {
                        self.last_progress = now;
                        self.frame(frame, operations, finished, shared)?;
                        continue;
                    }
                    Some(Incoming::Payload { id }) => {
                        self.begin_payload(id, operations)?;
                        continue;
                    }
                    None => {
                        let mut stream = &self.stream;
                        self.inlet.fill(|slices| stream.read_vectored(slices))
                    }
                }
            };
            match got {
                Ok(0) => return Err(LinkError::Closed),
                Ok(bytes) => {
                    received += bytes;
                    self.last_progress = now;
                    self.unproven = false;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn flight(&mut self, id: u64) -> Result<&mut Flight, LinkError> {
        let found = self.flights.iter_mut().find(|flight| flight.id == id);
        found.ok_or(LinkError::Unasked("an answer"))
    }

    fn begin_payload(&mut self, id: u64, operations: &Operations<'_>) -> Result<(), LinkError> {
        let bytes = self.inlet.payload_left();
        let flight = self.flight(id)?;
        let under = flight.operation.and_then(|id| operations.get(&id));
        let receipt = under.and_then(|under| under.receipt.as_ref());
        let room = receipt.map_or(u64::MAX, Receipt::room);
        match flight.left {
            Some(left) if bytes <= left.min(room) => {
                self.receiving = id;
                Ok(())
            }
            _ => Err(LinkError::Unasked("payload")),
        }
    }

    fn receive_payload<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
    ) -> io::Result<usize> {
        let id = self.receiving;
        let before = self.inlet.payload_left();
        let mut stream = &self.stream;
        let read = |slices: &mut [io::IoSliceMut<'_>]| stream.read_vectored(slices);
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) else {
            return self.inlet.skip(read);
        };
        let under = flight
            .operation
            .and_then(|operation| operations.get_mut(&operation));
        let got = match under.map(|under| (&mut under.operation.movement, &mut under.receipt)) {
            Some((Movement::Read { target, .. }, Some(receipt))) => {
                self.inlet
                    .payload(target, |run| Receipt::see(receipt, run), read)?
            }
            _ => self.inlet.skip(read)?,
        };
        let took = before - self.inlet.payload_left();
        add(&shared.counters.bytes_in, took);
        let left = flight.left.unwrap_or(0).saturating_sub(took);
        flight.left = Some(left);
        if left == 0 {
            let operation = flight.operation;
            self.flights.retain(|flight| flight.id != id);
            let under = operation.and_then(|operation| operations.remove(&operation));
            finished.extend(under.map(|under| under.end_read(&shared.counters)));
        }
        Ok(got)
    }

    fn frame<'m>(
        &mut self,
        frame: Frame,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
    ) -> Result<(), LinkError> {
        let id = frame.id;
        match frame.kind {
            Kind::Welcome if self.state == State::Greeting => {
                let Welcome(theirs) = Welcome::decode_body(frame.body)?;
                let agreed = shared.greeting.meet(&theirs).map_err(LinkError::Ended)?;
                (self.features, self.held) = (Some(agreed.features), false);
                self.state = State::Open;
                self.inlet.open();
            }
            Kind::Closing => return Err(LinkError::Ended(Closing::decode_body(frame.body)?.0)),
            Kind::Pong | Kind::Waiting => {}
            Kind::WriteDone => {
                let WriteDone(result) = WriteDone::decode_body(frame.body)?;
                let operation = self.flight(id)?.operation;
                self.flights.retain(|flight| flight.id != id);
                let Some(operation) = operation else {
                    return Ok(());
                };
                let sending = self
                    .sending
                    .as_ref()
                    .is_some_and(|s| s.operation == operation);
                if let Some(under) = operations.get_mut(&operation).filter(|_| sending) {
                    // The payload frame that has begun is finished first.
                    under.verdict = Some(result);
                    return Ok(());
                }
                let under = operations.remove(&operation);
                finished.extend(under.map(|under| under.end_write(result, &shared.counters)));
            }
            Kind::ReadHead => {
                let head = ReadHead::decode_body(frame.body)?;
                let flight = self.flight(id)?;
                if flight.ranged.is_some() || flight.left.replace(head.len).is_some() {
                    return Err(LinkError::Unasked("a head"));
                }
                let Some(operation) = flight.operation else {
                    return Ok(());
                };
                let Some(under) = operations.get_mut(&operation) else {
                    return Ok(());
                };
                if let Err(failure) = under.announce(head) {
                    // Its bytes come all the same and are thrown away.
                    flight.operation = None;
                    let under = operations.remove(&operation);
                    finished.extend(under.map(|under| under.end(Err(failure))));
                }
            }
            Kind::RangeSums => {
                let RangeSums(sums) = RangeSums::decode_body(frame.body)?;
                let flight = self.flight(id)?;
                let Some(len) = flight.ranged else {
                    return Err(LinkError::Unasked("sums of a range"));
                };
                flight.left.get_or_insert(len);
                let under = flight.operation.and_then(|id| operations.get_mut(&id));
                if let Some(under) = under {
                    under.announce_run(sums).map_err(LinkError::Unasked)?;
                }
            }
            Kind::ReadFailed => {
                let ReadFailed(failure) = ReadFailed::decode_body(frame.body)?;
                count(&shared.counters.reads_refused);
                let operation = self.flight(id)?.operation;
                self.flights.retain(|flight| flight.id != id);
                let under = operation.and_then(|operation| operations.remove(&operation));
                finished.extend(under.map(|under| under.end(Err(failure))));
            }
            _ => return Err(LinkError::Unasked("a frame of another kind")),
        }
        Ok(())
    }

    /// Reads what an idle peer has said: pongs, or that it has gone.
    pub(super) fn look(&mut self) -> Result<(), LinkError> {
        loop {
            match self.inlet.next()? {
                Some(Incoming::Frame(frame)) if frame.kind == Kind::Pong => self.pinged = None,
                Some(Incoming::Frame(frame)) if frame.kind == Kind::Closing => {
                    return Err(LinkError::Ended(Closing::decode_body(frame.body)?.0));
                }
                Some(_) => return Err(LinkError::Unasked("a frame")),
                None => {}
            }
            let mut stream = &self.stream;
            match self.inlet.fill(|slices| stream.read_vectored(slices)) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Pings an idle connection now and then; fails when it is to be closed.
    pub(super) fn look_after(&mut self, now: Now, idle: Millis) -> Result<(), LinkError> {
        self.look()?;
        if now.since(self.since) >= idle {
            return Err(LinkError::Idle);
        }
        match self.pinged {
            Some(pinged) if now.since(pinged) >= PROGRESS_TIMEOUT => {
                Err(LinkError::Stalled(now.since(pinged).duration()))
            }
            Some(_) => Ok(()),
            None if now.since(self.last_progress) < PING_AFTER => Ok(()),
            None => {
                let ping = Header::new(Kind::Ping, 0, 0).to_bytes();
                let written = (&self.stream).write(&ping)?;
                if written < ping.len() {
                    // Sixteen bytes that do not fit: the peer has not read for a long time.
                    return Err(LinkError::Stalled(now.since(self.last_progress).duration()));
                }
                (self.pinged, self.last_progress) = (Some(now), now);
                Ok(())
            }
        }
    }
}

/// The connection stands amid something that only the operation could end.
#[derive(Debug)]
pub(super) struct Amid;
