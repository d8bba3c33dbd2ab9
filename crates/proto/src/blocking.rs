//! Frames over a blocking stream, for callers that work on their own thread.
//!
//! Deadlines are the stream's: its read and write time-outs end a call with `WouldBlock` or
//! `TimedOut`. Both halves keep their place, so the call can be made again.

use crate::error::FrameError;
use crate::frame::{Decoder, Frame};
use bytes::{Buf, BytesMut};
use std::io::{self, Read, Write};

/// Bytes asked for in one read at least.
const READ_BYTES: usize = 16 * 1024;
/// Most bytes asked for in one read; memory grows with what has really come.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// Reads frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    decoder: Decoder,
    input: BytesMut,
}

impl FrameReader {
    /// For a connection on which nothing has been read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the peer in: larger frames and all kinds are taken from now on.
    pub fn open(&mut self) {
        self.decoder.open();
    }

    /// Takes a frame that has already come, without reading.
    ///
    /// # Errors
    /// `InvalidData` with a [`FrameError`] inside when the bytes are not a frame.
    pub fn buffered(&mut self) -> io::Result<Option<Frame>> {
        self.decoder.next(&mut self.input).map_err(invalid)
    }

    /// Reads until a whole frame has come.
    ///
    /// # Errors
    /// The stream's, `UnexpectedEof` when it ends, `InvalidData` as [`FrameReader::buffered`].
    pub fn read(&mut self, stream: &mut impl Read) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            let want = self
                .decoder
                .missing(&self.input)
                .clamp(READ_BYTES, READ_BYTES_MAX);
            let start = self.input.len();
            self.input.resize(start + want, 0);
            let got = match stream.read(&mut self.input[start..]) {
                Ok(got) => got,
                Err(error) => {
                    self.input.truncate(start);
                    if error.kind() == io::ErrorKind::Interrupted {
                        continue;
                    }
                    return Err(error);
                }
            };
            self.input.truncate(start + got);
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn invalid(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Writes frames that were put into it, keeping what the stream has not taken yet.
#[derive(Debug, Default)]
pub struct FrameWriter {
    output: BytesMut,
}

impl FrameWriter {
    /// Nothing to write.
    pub fn new() -> Self {
        Self::default()
    }

    /// The buffer that [`crate::frame::put`] appends to.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// True when everything has been written.
    pub fn is_flushed(&self) -> bool {
        self.output.is_empty()
    }

    /// Writes everything.
    ///
    /// # Errors
    /// The stream's; `WriteZero` when it takes nothing.
    pub fn flush(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while !self.output.is_empty() {
            match stream.write(&self.output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.output.advance(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
