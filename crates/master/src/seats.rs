//! Connections of the HTTP port: a bounded number of seats, and who gives one up.
//!
//! A stranger that sends no request holds a seat for a few seconds at most, and not even that long when
//! somebody else wants it: on a full house the one goes that has owed a request for the longest.

use crate::hub::Hub;
use crate::metrics::Tally;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use snowskin_runtime::telemetry::Seldom;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, timeout};

/// Connections open at once.
const SEATS: usize = 256;
/// A connection whose first request is not whole by then is closed, however its bytes trickle.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(5);
/// A connection without progress for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Who was asked to give a seat up has done so long before.
const GIVE_UP_MAX: Duration = Duration::from_secs(1);
/// After the system refused a connection, the next is tried after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener with a bounded number of seats.
pub(crate) struct Seats {
    listener: TcpListener,
    free: Arc<Semaphore>,
    owing: Arc<Owing>,
    hub: Arc<Hub>,
    failures: Seldom,
}

/// Seats whose next request is not whole yet, longest first, and the way to take each away.
#[derive(Debug, Default)]
struct Owing(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    seats: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Owing {
    /// Stands last in the queue from now on; the receiver hears when the seat is taken away.
    fn queue(&self) -> (u64, oneshot::Receiver<()>) {
        let (take, taken) = oneshot::channel();
        let mut queue = self.0.lock();
        let turn = queue.next;
        queue.next += 1;
        queue.seats.insert(turn, take);
        (turn, taken)
    }

    fn leave(&self, turn: u64) {
        self.0.lock().seats.remove(&turn);
    }

    /// Takes the seat of the first in the queue away; false when nobody stands in it.
    fn take_first(&self) -> bool {
        let first = self.0.lock().seats.pop_first();
        // A receiver that is gone has given its seat up by itself.
        first.map(|(_, take)| take.send(())).is_some()
    }
}

impl Seats {
    /// Over an open port.
    pub(crate) fn new(listener: TcpListener, hub: Arc<Hub>) -> Self {
        Seats {
            listener,
            free: Arc::new(Semaphore::new(SEATS)),
            owing: Arc::default(),
            hub,
            failures: Seldom::default(),
        }
    }

    /// A free seat, or one that somebody gives up.
    async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(seat) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(seat);
        }
        Tally::one(&self.hub.tally.http_crowded);
        if !self.owing.take_first() {
            return None;
        }
        let freed = Arc::clone(&self.free).acquire_owned();
        timeout(GIVE_UP_MAX, freed).await.ok()?.ok()
    }
}

impl Listener for Seats {
    type Io = Seated;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Seated, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    if let Some(seat) = self.seat().await {
                        // Figures come late without it, not wrong.
                        stream.set_nodelay(true).ok();
                        return (Seated::new(stream, &self.owing, seat), address);
                    }
                }
                Err(error) => {
                    Tally::one(&self.hub.tally.http_crowded);
                    if let Some(count) = self.failures.another() {
                        tracing::warn!(count, %error, "cannot accept HTTP connections");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// What a connection and its requests know of each other.
#[derive(Debug)]
struct Turn {
    owing: Arc<Owing>,
    at: Mutex<At>,
}

#[derive(Debug)]
enum At {
    /// The first request is not whole yet.
    First(u64, oneshot::Receiver<()>),
    /// A request is being answered.
    Answering,
    /// The next request is not whole yet.
    Between(u64, oneshot::Receiver<()>),
    /// Somebody else gets the seat.
    Taken,
}

/// Names the connection of a request.
#[derive(Debug, Clone)]
pub(crate) struct Visitor(Arc<Turn>);

impl Visitor {
    /// A request is whole: its seat is safe until it is answered.
    pub(crate) fn asks(&self) {
        self.0.set(At::Answering);
    }

    /// The answer is ready: another request is due.
    pub(crate) fn is_answered(&self) {
        let (turn, taken) = self.0.owing.queue();
        self.0.set(At::Between(turn, taken));
    }
}

impl Connected<IncomingStream<'_, Seats>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, Seats>) -> Self {
        Visitor(Arc::clone(&stream.io().turn))
    }
}

impl Turn {
    fn set(&self, at: At) {
        let before = std::mem::replace(&mut *self.at.lock(), at);
        if let At::First(turn, _) | At::Between(turn, _) = before {
            self.owing.leave(turn);
        }
    }
}

/// A connection that ends when nothing moves on it, or when its seat is taken away.
pub(crate) struct Seated {
    stream: TcpStream,
    /// Ends the connection; up to the first request it is not put off by single bytes.
    end: Pin<Box<Sleep>>,
    has_asked: bool,
    turn: Arc<Turn>,
    _seat: OwnedSemaphorePermit,
}

impl Seated {
    fn new(stream: TcpStream, owing: &Arc<Owing>, seat: OwnedSemaphorePermit) -> Self {
        let (turn, taken) = owing.queue();
        Seated {
            stream,
            end: Box::pin(tokio::time::sleep(FIRST_REQUEST_MAX)),
            has_asked: false,
            turn: Arc::new(Turn {
                owing: Arc::clone(owing),
                at: Mutex::new(At::First(turn, taken)),
            }),
            _seat: seat,
        }
    }

    /// Whether somebody else gets the seat; else the task is woken when that comes. Notices that the
    /// first request is whole.
    fn is_taken(&mut self, context: &mut Context<'_>) -> bool {
        let mut at = self.turn.at.lock();
        let (taken, has_asked) = match &mut *at {
            At::First(_, taken) => (Pin::new(taken).poll(context).is_ready(), false),
            At::Answering => (false, true),
            At::Between(_, taken) => (Pin::new(taken).poll(context).is_ready(), true),
            At::Taken => (true, self.has_asked),
        };
        if taken {
            *at = At::Taken;
        }
        if has_asked && !self.has_asked {
            self.has_asked = true;
            self.end.as_mut().reset(Instant::now() + IDLE_MAX);
        }
        taken
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        step: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.is_taken(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if step.is_ready() {
            if self.has_asked {
                self.end.as_mut().reset(Instant::now() + IDLE_MAX);
            }
            return step;
        }
        std::task::ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.turn.set(At::Answering);
    }
}

impl AsyncRead for Seated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watch(context, step)
    }
}

impl AsyncWrite for Seated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let step = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, step)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
