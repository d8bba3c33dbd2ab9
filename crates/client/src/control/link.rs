//! One connection to a master, used by one call at a time.

use super::broke;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use snowskin_proto::blocking::{FrameReader, FrameWriter};
use snowskin_proto::frame::{self, Frame, Kind};
use snowskin_proto::hello::{Greeting, Hello, Role, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_runtime::clock::Clock;
use snowskin_runtime::net;
use snowskin_types::call::{Reply, Request};
use snowskin_types::{Code, Failure, Now, Stage};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How a call over a connection went wrong; the connection is not usable any more, except after
/// `TooLarge`.
#[derive(Debug)]
pub(super) enum Broken {
    /// The request was not sent.
    TooLarge(Failure),
    /// The request cannot have arrived whole.
    Unsent(Failure),
    /// The request may have been carried out.
    Lost(Failure),
    /// The deadline came first.
    Late(Failure),
}

/// An open connection.
pub(super) struct Link {
    stream: Arc<TcpStream>,
    peer: Arc<str>,
    reader: FrameReader,
    writer: FrameWriter,
    next: u64,
}

/// Ends a connection from another thread.
pub(super) struct Cutter(Arc<TcpStream>);

impl Cutter {
    pub(super) fn cut(&self) {
        // A connection that is already gone is what was wanted.
        self.0.shutdown(Shutdown::Both).ok();
    }

    pub(super) fn is_of(&self, link: &Link) -> bool {
        Arc::ptr_eq(&self.0, &link.stream)
    }
}

impl Link {
    /// Connects and greets.
    pub(super) fn open(
        peer: &Arc<str>,
        greeting: &Greeting,
        clock: &dyn Clock,
        patience: Duration,
        deadline: Now,
    ) -> Result<Self, Failure> {
        let stream = net::dial(peer, patience).map_err(|e| e.failure(Stage::Session))?;
        let mut link = Link {
            stream: Arc::new(stream),
            peer: Arc::clone(peer),
            reader: FrameReader::new(),
            writer: FrameWriter::new(),
            next: 1,
        };
        link.greet(greeting, clock, deadline).map_err(|error| {
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::new(
                    Code::RpcTimeout,
                    Stage::Session,
                    format!("{peer} accepts connections but does not answer"),
                ),
                _ => match error.downcast::<Failure>() {
                    Ok(failure) => failure,
                    Err(error) => Failure::new(
                        Code::RpcFail,
                        Stage::Session,
                        format!("{peer} does not speak the protocol of a master: {error}"),
                    ),
                },
            }
            .with_peer(peer.as_ref())
        })?;
        Ok(link)
    }

    fn greet(&mut self, greeting: &Greeting, clock: &dyn Clock, until: Now) -> io::Result<()> {
        frame::put(self.writer.buffer(), 0, &Hello(greeting.clone())).map_err(invalid)?;
        self.flush(clock, until)?;
        let frame = self.read(clock, until)?;
        if frame.kind == Kind::Closing {
            let Closing(failure) = Closing::from_frame(frame).map_err(invalid)?;
            return Err(io::Error::other(failure));
        }
        let Welcome(theirs) = Welcome::from_frame(frame).map_err(invalid)?;
        greeting.meet(&theirs).map_err(io::Error::other)?;
        if theirs.role != Role::Master {
            let text = format!(
                "{} is a node's data server; name the control port of a master",
                self.peer
            );
            return Err(io::Error::other(Failure::new(
                Code::RpcFail,
                Stage::Session,
                text,
            )));
        }
        self.reader.open();
        Ok(())
    }

    pub(super) fn cutter(&self) -> Cutter {
        Cutter(Arc::clone(&self.stream))
    }

    /// Whether a connection that was idle can be used: answers pings that came meanwhile, and sees
    /// that the master has closed it.
    pub(super) fn is_usable(&mut self, clock: &dyn Clock) -> bool {
        let mut fds = [PollFd::new(&*self.stream, PollFlags::IN | PollFlags::RDHUP)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&at_once)) {
            Ok(0) => true,
            Ok(_) => {
                let now = clock.now();
                // Whatever else came, nobody has asked for it.
                matches!(self.read(clock, now), Err(e) if is_late(&e))
            }
            Err(_) => false,
        }
    }

    /// Sends a request and waits for its answer.
    pub(super) fn call(
        &mut self,
        request: &Request,
        clock: &dyn Clock,
        deadline: Now,
    ) -> Result<Reply, Broken> {
        let id = self.next;
        self.next += 1;
        if let Err(error) = frame::put(self.writer.buffer(), id, request) {
            return Err(Broken::TooLarge(Failure::new(
                Code::InvalidParams,
                Stage::Session,
                format!("the request is too large: {error}"),
            )));
        }
        if let Err(error) = self.flush(clock, deadline) {
            // The master acts on whole frames only.
            let failure = self.failure("while a request was sent", &error);
            return Err(if is_late(&error) {
                Broken::Late(failure)
            } else {
                Broken::Unsent(failure)
            });
        }
        let frame = match self.read(clock, deadline) {
            Ok(frame) => frame,
            Err(error) => {
                let failure = self.failure("before the answer came", &error);
                return Err(if is_late(&error) {
                    Broken::Late(failure)
                } else {
                    Broken::Lost(failure)
                });
            }
        };
        match frame.kind {
            Kind::Reply if frame.id == id => Reply::from_frame(frame).map_err(|error| {
                let error = invalid(error);
                Broken::Lost(self.failure("with an answer that cannot be read", &error))
            }),
            Kind::Closing => Err(Broken::Lost(match Closing::from_frame(frame) {
                Ok(Closing(failure)) => failure.with_peer(self.peer.as_ref()),
                Err(error) => self.failure("with words that cannot be read", &invalid(error)),
            })),
            _ => {
                let error = io::Error::from(io::ErrorKind::InvalidData);
                let failure = self.failure("with a frame nobody asked for", &error);
                Err(Broken::Lost(failure))
            }
        }
    }

    fn failure(&self, what: &str, error: &io::Error) -> Failure {
        if is_late(error) {
            return Failure::new(
                Code::RpcTimeout,
                Stage::Session,
                "the master did not answer by the deadline",
            )
            .with_peer(self.peer.as_ref());
        }
        broke(&self.peer, what, error)
    }

    fn flush(&mut self, clock: &dyn Clock, until: Now) -> io::Result<()> {
        let mut timed = Timed {
            stream: &self.stream,
            clock,
            until,
        };
        self.writer.flush(&mut timed)
    }

    /// The next frame that is not a ping; pings are answered.
    fn read(&mut self, clock: &dyn Clock, until: Now) -> io::Result<Frame> {
        loop {
            let mut timed = Timed {
                stream: &self.stream,
                clock,
                until,
            };
            let frame = self.reader.read(&mut timed)?;
            match frame.kind {
                Kind::Ping => {
                    frame::put_empty(self.writer.buffer(), frame.id, Kind::Pong);
                    self.writer.flush(&mut timed)?;
                }
                Kind::Pong => {}
                _ => return Ok(frame),
            }
        }
    }
}

/// Least time-out that the system can be asked for.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// A stream whose every read and write ends by a moment.
struct Timed<'a> {
    stream: &'a TcpStream,
    clock: &'a dyn Clock,
    until: Now,
}

impl Timed<'_> {
    fn left(&self) -> Option<Duration> {
        Some(self.clock.left(self.until).max(TIMEOUT_MIN))
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left())?;
        (&mut &*self.stream).read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left())?;
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
