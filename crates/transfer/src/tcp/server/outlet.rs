//! The sending half of a served connection: answers, and the bytes of reads.

use super::intake::{Wanted, WantedBytes, encoded};
use super::{ConnectionError, Shared};
use crate::tcp::PAYLOAD_BYTES_MAX;
use crate::tcp::counters::{add, count};
use crate::tcp::endpoint::{Endpoint, ReadGrant, ReadTicket};
use crate::tcp::inlet::Outlet;
use bytes::Bytes;
use snowskin_memory::segment::Segment;
use snowskin_memory::slices::SourceSlices;
use snowskin_proto::ReadHead;
use snowskin_proto::frame::{Header, Kind};
use snowskin_proto::message::ReadFailed;
use snowskin_runtime::spawn::Cancel;
use snowskin_types::access::{Extent, ReadRequest};
use snowskin_types::checksum::{PieceHasher, PieceSums, crc64, piece_count, piece_len};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::PIECE_BYTES;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Time between two reports of progress of a read.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Outgoing<'c, E> {
    stream: &'c TcpStream,
    pub(super) shared: &'c Arc<Shared<E>>,
    answered: mpsc::Receiver<Bytes>,
    wanted: mpsc::Receiver<Wanted>,
    pub(super) out: Outlet,
}

impl<'c, E: Endpoint> Outgoing<'c, E> {
    pub(super) fn new(
        stream: &'c TcpStream,
        shared: &'c Arc<Shared<E>>,
        answered: mpsc::Receiver<Bytes>,
        wanted: mpsc::Receiver<Wanted>,
    ) -> Self {
        Outgoing {
            stream,
            shared,
            answered,
            wanted,
            out: Outlet::default(),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), ConnectionError> {
        loop {
            tokio::select! {
                // Answers first: they free what a peer waits for and are small.
                biased;
                Some(frame) = self.answered.recv() => {
                    self.out.bytes.extend_from_slice(&frame);
                    self.take_answers();
                    self.flush().await?;
                }
                Some(Wanted { id, bytes }) = self.wanted.recv() => match bytes {
                    WantedBytes::Object(request) => self.read(id, request).await?,
                    WantedBytes::Range(request) => self.read_range(id, request).await?,
                },
                else => return Err(ConnectionError::Closed),
            }
        }
    }

    /// Moves waiting answers into the buffer that is sent next.
    pub(super) fn take_answers(&mut self) {
        while let Ok(frame) = self.answered.try_recv() {
            self.out.bytes.extend_from_slice(&frame);
        }
    }

    pub(super) async fn flush(&mut self) -> Result<(), ConnectionError> {
        while !self.out.bytes.is_empty() {
            match self.stream.try_write(&self.out.bytes) {
                Ok(written) => {
                    self.out.sent(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn writable(&self) -> Result<(), ConnectionError> {
        let stall = self.shared.options.stall.duration();
        match tokio::time::timeout(stall, self.stream.writable()).await {
            Ok(ready) => Ok(ready?),
            Err(_) => Err(ConnectionError::Silent(stall)),
        }
    }

    pub(super) async fn fail(&mut self, id: u64, failure: Failure) -> Result<(), ConnectionError> {
        count(&self.shared.counters.reads_refused);
        self.out
            .bytes
            .extend_from_slice(&encoded(id, &ReadFailed(failure)));
        self.flush().await
    }

    async fn read(&mut self, id: u64, request: ReadRequest) -> Result<(), ConnectionError> {
        count(&self.shared.counters.reads);
        let ticket = match self.shared.endpoint.read_start(request.clone()).await {
            Ok(ticket) => ticket,
            Err(failure) => return self.fail(id, failure).await,
        };
        let segment = self.shared.endpoint.segment();
        let prepared = prepare(segment, ticket.grant());
        let (head, source) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                // Nothing of the segment is touched any more.
                drop(ticket);
                if failure.code == Code::ChecksumMismatch {
                    count(&self.shared.counters.checksum_failures);
                    self.shared.endpoint.found_damaged(&request);
                }
                return self.fail(id, failure).await;
            }
        };
        self.out.bytes.extend_from_slice(&encoded(id, &head));
        // `source` ends with the call, and only then the ticket.
        let sent = self.send(id, source, &ticket).await;
        if sent.is_err() {
            count(&self.shared.counters.broken);
        }
        drop(ticket);
        sent
    }

    /// Sends payload frames straight from the segment, with answers of other requests in between.
    async fn send(
        &mut self,
        id: u64,
        mut source: SourceSlices<'static>,
        ticket: &E::Read,
    ) -> Result<(), ConnectionError> {
        let cut: Cancel = ticket.cut();
        let mut reported = Instant::now();
        while source.remaining() > 0 {
            self.take_answers();
            // At most a frame's worth, so it fits.
            let len = source.remaining().min(PAYLOAD_BYTES_MAX);
            let header = Header::new(Kind::Payload, len as u32, id);
            self.out.bytes.extend_from_slice(&header.to_bytes());
            self.payload(&mut source, len, &cut).await?;
            if cut.is_cancelled() {
                return Err(ConnectionError::Cut);
            }
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                ticket.progress();
            }
            tokio::task::yield_now().await;
        }
        self.flush().await
    }

    /// Sends what waits, a payload header last, and the payload of that frame.
    pub(super) async fn payload(
        &mut self,
        source: &mut SourceSlices<'_>,
        len: u64,
        cut: &Cancel,
    ) -> Result<(), ConnectionError> {
        let mut left = len;
        while left > 0 {
            let stream = self.stream;
            let wrote = source.with_slices_after(&self.out.bytes, left, |slices| {
                stream.try_write_vectored(slices)
            });
            match wrote {
                Ok(written) => {
                    let payload = self.out.sent(written);
                    source.advance(payload);
                    left -= payload;
                    add(&self.shared.counters.bytes_out, payload);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match cut.run(self.writable()).await {
                        // Amid a frame nothing else can be said, so the connection is closed.
                        None => return Err(ConnectionError::Cut),
                        Some(ready) => ready?,
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Checks a grant and makes what is sent of it.
fn prepare(
    segment: &Segment,
    grant: &ReadGrant,
) -> Result<(ReadHead, SourceSlices<'static>), Failure> {
    let internal = |text: &str| Failure::new(Code::Internal, Stage::Read, text);
    let size = grant.shape.size;
    let inside = grant
        .offset
        .checked_add(grant.len)
        .is_some_and(|end| end <= size);
    let held: u64 = grant.extents.iter().map(|extent| extent.len).sum();
    let fits = grant.sums.0.len() as u64 == piece_count(size);
    if grant.len == 0 || !inside || held < size || !fits {
        return Err(internal("the grant of the read does not fit the object"));
    }
    let runs = |offset, len| runs(&grant.extents, offset, len);
    let list = |offset, len| {
        segment
            .source(runs(offset, len))
            .map_err(|error| internal(&error.to_string()))
    };
    let sums = range_sums(
        size,
        &grant.sums,
        grant.offset,
        grant.len,
        |offset, len, see| list(offset, len).map(|source| source.visit(see)),
    )?;
    let head = ReadHead {
        shape: grant.shape,
        offset: grant.offset,
        len: grant.len,
        sums,
    };
    Ok((head, list(grant.offset, grant.len)?))
}

/// Sums of the pieces that a range touches, each over its part in the range. A piece that is only
/// partly in the range is verified as a whole first, so that damage is never given a fresh sum.
fn range_sums(
    size: u64,
    stored: &PieceSums,
    offset: u64,
    len: u64,
    visit: impl Fn(u64, u64, &mut dyn FnMut(&[u8])) -> Result<(), Failure>,
) -> Result<PieceSums, Failure> {
    let end = offset + len;
    let pieces = offset / PIECE_BYTES..(end - 1) / PIECE_BYTES + 1;
    let mut sums = Vec::with_capacity(usize::try_from(pieces.end - pieces.start).unwrap_or(0));
    for piece in pieces {
        let start = piece * PIECE_BYTES;
        let whole = piece_len(size, piece);
        // Pieces of the range are pieces of the object.
        let expected = usize::try_from(piece)
            .ok()
            .and_then(|piece| stored.0.get(piece))
            .copied();
        let (from, to) = (start.max(offset), (start + whole).min(end));
        if (from, to) == (start, start + whole) {
            sums.extend(expected);
            continue;
        }
        let sum = |offset, len| {
            let mut hasher = PieceHasher::default();
            visit(offset, len, &mut |run| hasher.update(run))?;
            Ok::<_, Failure>(
                hasher
                    .finish()
                    .0
                    .first()
                    .copied()
                    .unwrap_or_else(|| crc64(&[])),
            )
        };
        if Some(sum(start, whole)?) != expected {
            let text = format!("the stored bytes {start}+{whole} do not have their checksum");
            return Err(Failure::new(Code::ChecksumMismatch, Stage::Verify, text));
        }
        sums.push(sum(from, to - from)?);
    }
    Ok(PieceSums(sums.into_boxed_slice()))
}

/// The runs of the segment that hold a range of the object.
fn runs(extents: &[Extent], offset: u64, len: u64) -> Vec<(u64, u64)> {
    let (mut skip, mut left) = (offset, len);
    let mut runs = Vec::new();
    for extent in extents {
        if left == 0 {
            break;
        }
        if skip >= extent.len {
            skip -= extent.len;
            continue;
        }
        let run = (extent.len - skip).min(left);
        runs.push((extent.offset + skip, run));
        left -= run;
        skip = 0;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowskin_memory::segment::Segment;

    #[test]
    fn a_range_is_found_in_scattered_extents() {
        let extents = [(100, 10), (0, 5), (50, 20)].map(|(offset, len)| Extent { offset, len });
        assert_eq!(runs(&extents, 0, 35), [(100, 10), (0, 5), (50, 20)]);
        assert_eq!(runs(&extents, 8, 4), [(108, 2), (0, 2)]);
        assert_eq!(runs(&extents, 15, 3), [(50, 3)]);
        assert_eq!(runs(&extents, 34, 1), [(69, 1)]);
    }

    #[test]
    fn damage_in_an_edge_piece_is_found_before_a_part_of_it_is_sent() {
        let size = PIECE_BYTES * 2 + 100;
        let segment = Segment::anonymous(size).unwrap();
        let bytes: Vec<u8> = (0..size).map(|i| (i % 253) as u8).collect();
        segment.write_at(0, &bytes).unwrap();
        let sums = Arc::new(PieceSums::of(&bytes));
        let grant = |offset, len| ReadGrant {
            shape: snowskin_types::object::Shape {
                size,
                checksum: sums.whole(size),
            },
            offset,
            len,
            extents: Arc::new([Extent {
                offset: 0,
                len: size,
            }]),
            sums: Arc::clone(&sums),
        };
        let (head, source) = prepare(&segment, &grant(10, PIECE_BYTES)).unwrap();
        let p = PIECE_BYTES as usize;
        assert_eq!(
            head.sums.0[..],
            [crc64(&bytes[10..p]), crc64(&bytes[p..p + 10])]
        );
        assert_eq!(source.remaining(), PIECE_BYTES);
        drop(source);
        segment
            .write_at(PIECE_BYTES + 5000, &[!bytes[p + 5000]])
            .unwrap();
        let failure = prepare(&segment, &grant(10, PIECE_BYTES)).unwrap_err();
        assert_eq!(failure.code, Code::ChecksumMismatch);
        // Whole pieces are verified by the reader.
        assert!(prepare(&segment, &grant(PIECE_BYTES, PIECE_BYTES)).is_ok());
    }
}
