//! Ranges on the wire: runs of payload, each behind the sums of its pieces.
//!
//! Both sides send and receive them alike; see the wire page of the design.

use crate::tcp::PAYLOAD_BYTES_MAX;
use bytes::BytesMut;
use snowskin_memory::slices::SourceSlices;
use snowskin_proto::frame::{self, Header, Kind};
use snowskin_proto::{EncodeError, RangeSums};
use snowskin_types::checksum::{PieceHasher, PieceSums, piece_count};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::PIECE_BYTES;

/// Appends the sums of the next run and the header of its only payload frame; returns the bytes of
/// the run. The sums are computed here, right before the bytes are sent.
pub(crate) fn begin_run(
    out: &mut BytesMut,
    id: u64,
    source: &SourceSlices<'_>,
) -> Result<u64, EncodeError> {
    let len = source.remaining().min(PAYLOAD_BYTES_MAX);
    let mut hasher = PieceHasher::default();
    source.visit_first(len, |run| hasher.update(run));
    frame::put(out, id, &RangeSums(hasher.finish()))?;
    // At most a frame's worth, so it fits.
    let header = Header::new(Kind::Payload, len as u32, id);
    out.extend_from_slice(&header.to_bytes());
    Ok(len)
}

/// The receiving side of one range.
#[derive(Debug)]
pub(crate) struct Runs {
    len: u64,
    /// Bytes whose sums have not come.
    unannounced: u64,
    /// Bytes of the current run that have not come.
    room: u64,
    sums: PieceSums,
    hasher: PieceHasher,
    /// Pieces that differ.
    wrong: u64,
}

impl Runs {
    pub(crate) fn new(len: u64) -> Self {
        Runs {
            len,
            unannounced: len,
            room: 0,
            sums: PieceSums::default(),
            hasher: PieceHasher::default(),
            wrong: 0,
        }
    }

    /// Begins the next run.
    pub(crate) fn announce(&mut self, sums: PieceSums) -> Result<(), &'static str> {
        if self.room > 0 {
            return Err("sums amid a run");
        }
        let count = sums.0.len() as u64;
        if count == 0 || count > piece_count(self.unannounced) {
            return Err("sums of more pieces than the range has");
        }
        // Few enough for a frame.
        self.room = self.unannounced.min(count * PIECE_BYTES);
        self.unannounced -= self.room;
        self.sums = sums;
        self.hasher = PieceHasher::default();
        Ok(())
    }

    /// Bytes that may come before the next sums.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// Takes bytes while they are in the cache; no more than there is room for.
    pub(crate) fn see(&mut self, run: &[u8]) {
        debug_assert!(run.len() as u64 <= self.room, "bytes without sums");
        self.hasher.update(run);
        self.room = self.room.saturating_sub(run.len() as u64);
        if self.room == 0 {
            let got = std::mem::take(&mut self.hasher).finish();
            let pairs = got.0.iter().zip(self.sums.0.iter());
            self.wrong += pairs.filter(|(got, wanted)| got != wanted).count() as u64;
        }
    }

    /// Judges once all bytes have come; returns how many, or how many pieces are wrong.
    pub(crate) fn judge(&self) -> Result<u64, u64> {
        match self.wrong {
            0 if self.unannounced == 0 && self.room == 0 => Ok(self.len),
            wrong => Err(wrong.max(1)),
        }
    }

    /// As the failure of a transfer.
    pub(crate) fn mismatch(&self, wrong: u64) -> Failure {
        let pieces = piece_count(self.len);
        let text = format!("{wrong} of {pieces} pieces of the range do not have their checksum");
        Failure::new(Code::ChecksumMismatch, Stage::Verify, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowskin_proto::frame::{Decoder, HEADER_BYTES};
    use snowskin_proto::message::Message;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251) as u8).collect()
    }

    /// Carries a range over in frames; `spoil` may change what is on the way.
    fn carried(bytes: &[u8], spoil: impl Fn(&mut [u8])) -> Result<u64, u64> {
        let mut source = SourceSlices::of_all(bytes.chunks(1009));
        let mut runs = Runs::new(bytes.len() as u64);
        let mut at = 0;
        while source.remaining() > 0 {
            let mut out = BytesMut::new();
            let len = begin_run(&mut out, 7, &source).unwrap();
            source.advance(len);
            let mut decoder = Decoder::new();
            decoder.open();
            let mut frames = out.split_to(out.len() - HEADER_BYTES);
            let sums = decoder.next(&mut frames).unwrap().unwrap();
            runs.announce(RangeSums::from_frame(sums).unwrap().0)
                .unwrap();
            assert_eq!(runs.room(), len);
            let mut payload = bytes[at..at + len as usize].to_vec();
            spoil(&mut payload);
            payload.chunks(4001).for_each(|run| runs.see(run));
            at += len as usize;
        }
        runs.judge()
    }

    #[test]
    fn runs_are_verified_piece_by_piece_at_any_length() {
        let piece = PIECE_BYTES as usize;
        for len in [
            1,
            4096,
            piece,
            piece + 1,
            4 * piece,
            4 * piece + 1,
            2_500_000,
        ] {
            let bytes = bytes(len);
            assert_eq!(carried(&bytes, |_| ()), Ok(len as u64));
            // The last byte of each run.
            let spoilt = carried(&bytes, |run| *run.last_mut().unwrap() ^= 1);
            assert_eq!(spoilt, Err(len.div_ceil(4 * piece) as u64), "{len}");
        }
    }

    #[test]
    fn sums_that_do_not_fit_the_range_are_refused() {
        let sums = |count| PieceSums(vec![0; count].into());
        let mut runs = Runs::new(PIECE_BYTES + 1);
        assert!(runs.announce(sums(0)).is_err());
        assert!(runs.announce(sums(3)).is_err());
        runs.announce(sums(1)).unwrap();
        assert_eq!(runs.room(), PIECE_BYTES);
        assert!(runs.announce(sums(1)).is_err(), "amid a run");
        runs.see(&vec![1; PIECE_BYTES as usize]);
        assert!(runs.judge().is_err(), "a byte is missing");
        runs.announce(sums(1)).unwrap();
        runs.see(&[1]);
        assert!(runs.announce(sums(1)).is_err(), "nothing is left");
        assert_eq!(runs.judge(), Err(2));
    }
}
