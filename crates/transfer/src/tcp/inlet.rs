//! The receiving half of a connection: frames from a small staging buffer, payload straight from the
//! socket into its final memory.
//!
//! Sans-IO: reads are closures, so that the client's blocking-free sockets and the server's async
//! ones share it. Every read of payload also fills the staging buffer behind it, so that the next
//! frame's header usually costs no call of its own.

use bytes::{Buf, BytesMut};
use snowskin_memory::slices::{IO_SLICES_MAX, TargetSlices};
use snowskin_proto::error::FrameError;
use snowskin_proto::frame::{Frame, HEADER_BYTES, Header, Kind, Phase};
use std::io::{self, IoSliceMut};

/// Bytes of the staging buffer; what is copied once more at the start of each payload frame.
const STAGING_BYTES: usize = 8 * 1024;
/// Most bytes reserved ahead for a large control body; memory follows what really came.
const BODY_STEP_BYTES: usize = 256 * 1024;

/// What came.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A whole control frame.
    Frame(Frame),
    /// A payload frame begins; its bytes are taken by [`Inlet::payload`] or [`Inlet::skip`].
    Payload {
        /// Of which request.
        id: u64,
    },
}

/// Received bytes that have not been used, and the place in the stream of frames.
#[derive(Debug)]
pub(crate) struct Inlet {
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    phase: Phase,
    /// A control frame whose body is not complete.
    body: Option<(Header, BytesMut)>,
    /// Bytes of the current payload frame that have not been taken.
    payload_left: u64,
}

impl Inlet {
    pub(crate) fn new() -> Self {
        Inlet {
            staging: vec![0; STAGING_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            phase: Phase::Hello,
            body: None,
            payload_left: 0,
        }
    }

    /// Lets the peer in.
    pub(crate) fn open(&mut self) {
        self.phase = Phase::Open;
    }

    /// True between two frames with nothing staged.
    pub(crate) fn is_idle(&self) -> bool {
        self.start == self.end && self.body.is_none() && self.payload_left == 0
    }

    pub(crate) fn payload_left(&self) -> u64 {
        self.payload_left
    }

    fn staged(&self) -> &[u8] {
        &self.staging[self.start..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The next frame among the bytes that have come. Not to be called amid a payload frame.
    pub(crate) fn next(&mut self) -> Result<Option<Incoming>, FrameError> {
        debug_assert_eq!(self.payload_left, 0, "a payload frame has not been taken");
        if self.body.is_none() {
            let Some(bytes) = self.staged().first_chunk::<HEADER_BYTES>() else {
                return Ok(None);
            };
            let header = self.phase.parse(bytes)?;
            self.consume(HEADER_BYTES);
            if header.kind == Kind::Payload {
                self.payload_left = u64::from(header.len);
                return Ok(Some(Incoming::Payload { id: header.id }));
            }
            self.body = Some((header, BytesMut::new()));
        }
        let staged = self.end - self.start;
        let Some((header, body)) = &mut self.body else {
            return Ok(None);
        };
        let header = *header;
        let take = (header.len as usize - body.len()).min(staged);
        body.extend_from_slice(&self.staging[self.start..self.start + take]);
        let complete = body.len() == header.len as usize;
        let whole = if complete { self.body.take() } else { None };
        self.consume(take);
        Ok(whole.map(|(_, body)| {
            Incoming::Frame(Frame {
                kind: header.kind,
                flags: header.flags,
                id: header.id,
                body: body.freeze(),
            })
        }))
    }

    /// Does one read of control bytes; zero means the end of the stream.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.compact();
        let Some((header, body)) = &mut self.body else {
            let got = read(&mut [IoSliceMut::new(&mut self.staging[self.end..])])?;
            self.end += got;
            return Ok(got);
        };
        // `next` has moved all staged bytes into the body.
        let have = body.len();
        let want = (header.len as usize - have).min(BODY_STEP_BYTES);
        body.resize(have + want, 0);
        let mut slices = [
            IoSliceMut::new(&mut body[have..]),
            IoSliceMut::new(&mut self.staging[self.end..]),
        ];
        let got = read(&mut slices);
        let into_body = got.as_ref().map_or(0, |got| (*got).min(want));
        body.truncate(have + into_body);
        let got = got?;
        self.end += got - into_body;
        Ok(got)
    }

    /// Takes bytes of the current payload frame into `target`: staged ones, or else those of one read.
    /// Shows them to `see` while they are in the cache. Zero means the end of the stream.
    pub(crate) fn payload(
        &mut self,
        target: &mut TargetSlices<'_>,
        mut see: impl FnMut(&[u8]),
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let limit = self.payload_left.min(target.remaining());
        if self.start < self.end {
            let staged = &self.staging[self.start..self.end];
            let taken =
                usize::try_from(limit).map_or(staged.len(), |limit| limit.min(staged.len()));
            let taken = target.fill_from(&staged[..taken]);
            see(&staged[..taken]);
            self.consume(taken);
            self.payload_left -= taken as u64;
            return Ok(taken);
        }
        self.compact();
        let staging = &mut self.staging[self.end..];
        let (into_target, behind) = target.with_slices(limit, |slices| {
            let room: usize = slices.iter().map(|slice| slice.len()).sum();
            // The staging buffer stands behind the target only when the frame ends in this read.
            let whole = room as u64 == limit;
            let got = {
                let mut all: [IoSliceMut<'_>; IO_SLICES_MAX + 1] =
                    std::array::from_fn(|_| IoSliceMut::new(&mut []));
                let mut count = 0;
                for slice in slices.iter_mut() {
                    all[count] = IoSliceMut::new(slice);
                    count += 1;
                }
                if whole {
                    all[count] = IoSliceMut::new(staging);
                    count += 1;
                }
                read(&mut all[..count])?
            };
            let mut left = got.min(room);
            for slice in slices.iter() {
                let run = left.min(slice.len());
                see(&slice[..run]);
                left -= run;
            }
            Ok::<_, io::Error>((got.min(room), got.saturating_sub(room)))
        })?;
        target.advance(into_target as u64);
        self.payload_left -= into_target as u64;
        self.end += behind;
        Ok(into_target + behind)
    }

    /// Throws bytes of the current payload frame away: staged ones, or else those of one read. Zero
    /// means the end of the stream.
    pub(crate) fn skip(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.start == self.end {
            self.compact();
            let got = read(&mut [IoSliceMut::new(&mut self.staging[self.end..])])?;
            self.end += got;
            if got == 0 {
                return Ok(0);
            }
        }
        let staged = self.end - self.start;
        let taken = usize::try_from(self.payload_left).map_or(staged, |left| left.min(staged));
        self.consume(taken);
        self.payload_left -= taken as u64;
        Ok(taken)
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.staging.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
}

/// Bytes of control frames that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    pub(crate) bytes: BytesMut,
}

impl Outlet {
    /// Takes note that the socket took `written` bytes of these and of the payload behind them;
    /// returns how many were payload.
    pub(crate) fn sent(&mut self, written: usize) -> u64 {
        let control = written.min(self.bytes.len());
        self.bytes.advance(control);
        (written - control) as u64
    }
}

#[cfg(test)]
#[path = "inlet_test.rs"]
mod inlet_test;
