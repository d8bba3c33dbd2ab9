//! One connection to the session port of a peer, on the thread of whoever asks.

use crate::error::EngineError;
use crate::request::Notify;
use snowskin_proto::blocking::{FrameReader, FrameWriter};
use snowskin_proto::frame::{self, Frame, Kind};
use snowskin_proto::hello::{FEATURE_ENGINE, Greeting, Hello, Welcome};
use snowskin_proto::message::{Closing, Message};
use snowskin_proto::{EngineDescription, EngineNotified, EngineNotify};
use snowskin_runtime::net::{self, DialError};
use snowskin_types::error::Stage;
use snowskin_types::limits::CONNECT_TIMEOUT;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at whether the engine is being closed.
const LOOK: Duration = Duration::from_millis(50);

/// Opens connections to session ports.
#[derive(Debug)]
pub(crate) struct Dialler {
    greeting: Greeting,
    patience: Duration,
    /// Ends what is under way.
    closing: Arc<AtomicBool>,
}

impl Dialler {
    pub(crate) fn new(greeting: Greeting, patience: Duration, closing: Arc<AtomicBool>) -> Self {
        Dialler {
            greeting: greeting.with_features(FEATURE_ENGINE),
            patience,
            closing,
        }
    }

    /// Connects and greets. The whole exchange ends by `until`, or when its patience is over.
    pub(crate) fn open(&self, peer: &str, until: Instant) -> Result<Link<'_>, EngineError> {
        let start = Instant::now();
        let until = until.min(start + self.patience);
        let left = until.saturating_duration_since(start);
        let stream = net::dial(peer, left.min(CONNECT_TIMEOUT.duration()))
            .map_err(|error| undialled(peer, &error))?;
        let timed = Timed {
            stream,
            until,
            closing: &self.closing,
        };
        let mut link = Link {
            peer: peer.to_owned(),
            start,
            timed,
            reader: FrameReader::new(),
        };
        let mut writer = FrameWriter::new();
        let hello = Hello(self.greeting.clone());
        link.put(&mut writer, 0, &hello)?;
        let welcome = link.exchange(writer, Kind::Welcome)?;
        let welcome = Welcome::from_frame(welcome).map_err(|error| link.refused(error))?;
        let agreed = self
            .greeting
            .meet(&welcome.0)
            .map_err(|failure| link.refused(failure))?;
        if agreed.features & FEATURE_ENGINE == 0 {
            return Err(link.refused("what listens there is not a transfer engine"));
        }
        link.reader.open();
        Ok(link)
    }
}

fn undialled(peer: &str, error: &DialError) -> EngineError {
    let (peer, reason) = (peer.to_owned(), error.to_string());
    match error {
        DialError::Unresolved { .. } | DialError::SlowName { .. } => {
            EngineError::Unresolved { peer, reason }
        }
        _ => EngineError::Unreachable { peer, reason },
    }
}

/// A socket whose calls end by a moment, or when the engine is being closed.
#[derive(Debug)]
struct Timed<'d> {
    stream: TcpStream,
    until: Instant,
    closing: &'d AtomicBool,
}

impl Timed<'_> {
    fn wait<R>(&self, mut call: impl FnMut(&TcpStream) -> io::Result<R>) -> io::Result<R> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.closing.load(Ordering::Acquire) {
                return Err(io::Error::other("the engine is being closed"));
            }
            let slice = left.min(LOOK).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(slice))?;
            self.stream.set_write_timeout(Some(slice))?;
            match call(&self.stream) {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock
                            | io::ErrorKind::TimedOut
                            | io::ErrorKind::Interrupted
                    ) => {}
                result => return result,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(|mut stream| stream.read(into))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.wait(|mut stream| stream.write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An open connection to a session port.
#[derive(Debug)]
pub(crate) struct Link<'d> {
    peer: String,
    start: Instant,
    timed: Timed<'d>,
    reader: FrameReader,
}

impl Link<'_> {
    /// Asks for the peer's regions.
    pub(crate) fn describe(mut self) -> Result<EngineDescription, EngineError> {
        let mut writer = FrameWriter::new();
        frame::put_empty(writer.buffer(), 1, Kind::EngineDescribe);
        let frame = self.exchange(writer, Kind::EngineDescription)?;
        EngineDescription::from_frame(frame).map_err(|error| self.refused(error))
    }

    /// Leaves a word for the peer's user.
    pub(crate) fn notify(mut self, notify: &Notify) -> Result<(), EngineError> {
        let mut writer = FrameWriter::new();
        let message = EngineNotify {
            name: notify.name.clone(),
            message: notify.message.clone(),
        };
        self.put(&mut writer, 1, &message)?;
        let frame = self.exchange(writer, Kind::EngineNotified)?;
        let answer = EngineNotified::from_frame(frame).map_err(|error| self.refused(error))?;
        answer.0.map_err(|failure| EngineError::Transfer {
            peer: self.peer.clone(),
            failure: Box::new(failure),
        })
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(mut self) -> Result<(), EngineError> {
        let mut writer = FrameWriter::new();
        frame::put_empty(writer.buffer(), 1, Kind::Ping);
        self.exchange(writer, Kind::Pong).map(drop)
    }

    fn put<M: Message>(
        &self,
        writer: &mut FrameWriter,
        id: u64,
        message: &M,
    ) -> Result<(), EngineError> {
        frame::put(writer.buffer(), id, message).map_err(|error| EngineError::Transfer {
            peer: self.peer.clone(),
            failure: Box::new(error.failure(Stage::Session)),
        })
    }

    /// Sends, and reads the answer.
    fn exchange(&mut self, mut writer: FrameWriter, wanted: Kind) -> Result<Frame, EngineError> {
        let sent = writer.flush(&mut self.timed);
        // A peer that refuses may have hung up before it took everything, with its words sent.
        loop {
            let frame = match (self.reader.read(&mut self.timed), &sent) {
                (Ok(frame), _) => frame,
                (Err(_), Err(error)) => return Err(self.broken(error)),
                (Err(error), Ok(())) => return Err(self.broken(&error)),
            };
            match frame.kind {
                kind if kind == wanted => return Ok(frame),
                Kind::Closing => {
                    let words = Closing::from_frame(frame);
                    return Err(match words {
                        Ok(Closing(failure)) => self.refused(failure),
                        Err(error) => self.refused(error),
                    });
                }
                // A sign of life of ours that it asks for; the answer to the question counts.
                Kind::Ping => {}
                other => return Err(self.refused(format!("it answers with a {other:?}"))),
            }
        }
    }

    fn broken(&self, error: &io::Error) -> EngineError {
        let peer = self.peer.clone();
        match error.kind() {
            io::ErrorKind::TimedOut => EngineError::TimedOut {
                peer,
                waited: self.start.elapsed(),
            },
            io::ErrorKind::InvalidData => self.refused(error),
            _ => EngineError::Unreachable {
                peer,
                reason: format!("the session broke: {error}"),
            },
        }
    }

    fn refused(&self, reason: impl ToString) -> EngineError {
        EngineError::Refused {
            peer: self.peer.clone(),
            reason: reason.to_string(),
        }
    }
}
