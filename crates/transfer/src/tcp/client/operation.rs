//! One operation on its way.

use crate::tcp::counters::{Counters, add, count};
use crate::tcp::runs::Runs;
use crate::transport::{
    Completion, Done, Movement, Operation, OperationId, ReadFrom, RemoteRange, WriteTo,
};
use bytes::BytesMut;
use snowskin_proto::frame;
use snowskin_proto::{EncodeError, RangeRead, RangeRequest, RangeWrite, ReadHead};
use snowskin_types::checksum::{PieceHasher, PieceSums, piece_count};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::key::Key;
use snowskin_types::limits::OBJECT_BYTES_MAX;
use snowskin_types::time::Now;

/// The bytes of a read that have come, and what they should be.
#[derive(Debug)]
pub(super) enum Receipt {
    Object(ObjectReceipt),
    Range(Runs),
}

impl Receipt {
    /// Takes bytes while they are in the cache; each piece is compared as soon as it is complete.
    pub(super) fn see(&mut self, run: &[u8]) {
        match self {
            Receipt::Object(receipt) => receipt.see(run),
            Receipt::Range(runs) => runs.see(run),
        }
    }

    /// Bytes of payload that may come now.
    pub(super) fn room(&self) -> u64 {
        match self {
            Receipt::Object(_) => u64::MAX,
            Receipt::Range(runs) => runs.room(),
        }
    }

    /// Judges once all bytes have come.
    fn judge(self, counters: &Counters) -> Result<Done, Failure> {
        match self {
            Receipt::Object(receipt) => receipt.judge(counters),
            Receipt::Range(runs) => match runs.judge() {
                Ok(bytes) => Ok(Done { bytes, shape: None }),
                Err(wrong) => {
                    add(&counters.checksum_failures, wrong);
                    Err(runs.mismatch(wrong))
                }
            },
        }
    }
}

/// The receipt of an object, or of a part of it.
#[derive(Debug)]
pub(super) struct ObjectReceipt {
    head: ReadHead,
    hasher: PieceHasher,
    /// Pieces compared.
    verified: usize,
    /// Pieces that differ.
    wrong: u64,
}

impl ObjectReceipt {
    fn new(head: ReadHead) -> Self {
        let hasher = PieceHasher::starting_at(head.offset);
        ObjectReceipt {
            head,
            hasher,
            verified: 0,
            wrong: 0,
        }
    }

    fn see(&mut self, run: &[u8]) {
        self.hasher.update(run);
        let new = self
            .hasher
            .complete()
            .get(self.verified..)
            .unwrap_or_default();
        let wanted = self.head.sums.0.get(self.verified..).unwrap_or_default();
        let (mut verified, mut wrong) = (0, 0);
        for (got, wanted) in new.iter().zip(wanted) {
            verified += 1;
            wrong += u64::from(got != wanted);
        }
        self.verified += verified;
        self.wrong += wrong;
    }

    fn judge(self, counters: &Counters) -> Result<Done, Failure> {
        let ReadHead {
            shape, len, sums, ..
        } = self.head;
        let last = self.hasher.finish();
        let mut wrong = self.wrong;
        // The last piece is complete only now; a count that differs is wrong as well.
        let rest = last
            .0
            .iter()
            .skip(self.verified)
            .zip(sums.0.iter().skip(self.verified));
        wrong += rest.filter(|(got, wanted)| got != wanted).count() as u64;
        wrong += u64::from(last.0.len() != sums.0.len());
        if wrong == 0 && len == shape.size && sums.whole(len) != shape.checksum {
            // The pieces are what the owner says, but not those of this version.
            wrong = 1;
        }
        if wrong > 0 {
            add(&counters.checksum_failures, wrong);
            let text = format!(
                "{wrong} of {} pieces do not have their checksum",
                sums.0.len()
            );
            return Err(Failure::new(Code::ChecksumMismatch, Stage::Verify, text));
        }
        Ok(Done {
            bytes: len,
            shape: Some(shape),
        })
    }
}

#[derive(Debug)]
pub(super) struct Under<'m> {
    pub(super) id: OperationId,
    pub(super) operation: Operation<'m>,
    pub(super) started: Now,
    /// Bytes pending when it was submitted.
    pub(super) bytes: u64,
    /// Reads whose head has come.
    pub(super) receipt: Option<Receipt>,
    /// Writes that were answered before all bytes were sent.
    pub(super) verdict: Option<Result<(), Failure>>,
    /// It was given a second connection already.
    pub(super) resent: bool,
}

impl<'m> Under<'m> {
    pub(super) fn new(id: OperationId, operation: Operation<'m>, started: Now) -> Self {
        let bytes = operation.movement.remaining();
        Under {
            id,
            operation,
            started,
            bytes,
            receipt: None,
            verdict: None,
            resent: false,
        }
    }

    pub(super) fn stage(&self) -> Stage {
        match self.operation.movement {
            Movement::Write { .. } => Stage::Write,
            Movement::Read { .. } => Stage::Read,
        }
    }

    pub(super) fn key(&self) -> Option<&Key> {
        match &self.operation.movement {
            Movement::Write {
                to: WriteTo::Object(request),
                ..
            } => Some(&request.name.key),
            Movement::Read {
                from: ReadFrom::Object(request),
                ..
            } => Some(&request.name.key),
            _ => None,
        }
    }

    /// Finds what is wrong with an operation before anything is sent.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |code, text: String| Err(Failure::new(code, self.stage(), text));
        match &self.operation.movement {
            Movement::Write {
                to: WriteTo::Range(range),
                ..
            }
            | Movement::Read {
                from: ReadFrom::Range(range),
                ..
            } => {
                if self.bytes == 0 || range.offset.checked_add(self.bytes).is_none() {
                    let text = format!(
                        "the range {}+{} does not have at least one byte and an end in 64 bits",
                        range.offset, self.bytes
                    );
                    return refuse(Code::InvalidParams, text);
                }
                Ok(())
            }
            Movement::Write {
                to: WriteTo::Object(request),
                ..
            } => {
                let size = request.size;
                if size == 0 || size > OBJECT_BYTES_MAX {
                    let text = format!("an object has 1 to {OBJECT_BYTES_MAX} bytes, not {size}");
                    return refuse(Code::InvalidParams, text);
                }
                if self.bytes != size {
                    let text = format!("the source has {} bytes, the object {size}", self.bytes);
                    return refuse(Code::InvalidParams, text);
                }
                if request.sums.0.len() as u64 != piece_count(size) {
                    let text = "the checksums do not fit the size of the object".to_owned();
                    return refuse(Code::InvalidParams, text);
                }
                Ok(())
            }
            Movement::Read {
                from: ReadFrom::Object(request),
                ..
            } => {
                if request.len == 0 {
                    return refuse(Code::InvalidParams, "a read of no bytes".to_owned());
                }
                if request.len != u64::MAX && request.len > self.bytes {
                    let text = format!("{} bytes do not fit into {}", request.len, self.bytes);
                    return refuse(Code::BufferOverflow, text);
                }
                Ok(())
            }
        }
    }

    /// Whether it reads or writes a range of a region.
    pub(super) fn is_ranged(&self) -> bool {
        matches!(
            self.operation.movement,
            Movement::Write {
                to: WriteTo::Range(_),
                ..
            } | Movement::Read {
                from: ReadFrom::Range(_),
                ..
            }
        )
    }

    /// Appends the frame that asks for it.
    pub(super) fn put_request(&self, out: &mut BytesMut, id: u64) -> Result<(), EncodeError> {
        let request = |range: &RemoteRange| RangeRequest {
            epoch: range.epoch,
            region: range.region.0,
            offset: range.offset,
            len: self.bytes,
        };
        match &self.operation.movement {
            Movement::Write { to, .. } => match to {
                WriteTo::Object(object) => frame::put(out, id, object),
                WriteTo::Range(range) => frame::put(out, id, &RangeWrite(request(range))),
            },
            Movement::Read { from, .. } => match from {
                ReadFrom::Object(object) => frame::put(out, id, object),
                ReadFrom::Range(range) => frame::put(out, id, &RangeRead(request(range))),
            },
        }
    }

    /// Takes the sums of the bytes of a range that come next.
    pub(super) fn announce_run(&mut self, sums: PieceSums) -> Result<(), &'static str> {
        let new = || Receipt::Range(Runs::new(self.bytes));
        match self.receipt.get_or_insert_with(new) {
            Receipt::Range(runs) => runs.announce(sums),
            Receipt::Object(_) => Err("sums of a range amid an object"),
        }
    }

    /// Takes the announcement of a read's bytes.
    pub(super) fn announce(&mut self, head: ReadHead) -> Result<(), Failure> {
        let Movement::Read {
            from: ReadFrom::Object(request),
            target,
        } = &self.operation.movement
        else {
            return Err(self.failure(Code::RpcFail, "the peer answered a write as a read"));
        };
        if head.offset != request.offset || head.len > request.len {
            return Err(self.failure(Code::RpcFail, "the peer announced another range"));
        }
        if head.len > target.remaining() {
            let text = format!("{} bytes do not fit into {}", head.len, target.remaining());
            return Err(self.failure(Code::BufferOverflow, text));
        }
        self.receipt = Some(Receipt::Object(ObjectReceipt::new(head)));
        Ok(())
    }

    pub(super) fn failure(&self, code: Code, text: impl Into<String>) -> Failure {
        Failure::new(code, self.stage(), text)
    }

    /// Goes back to the start, to be sent on another connection.
    pub(super) fn begin_again(&mut self) {
        let bytes = self.bytes;
        match &mut self.operation.movement {
            Movement::Write { source, .. } => source.rewind(bytes - source.remaining()),
            Movement::Read { target, .. } => target.rewind(bytes - target.remaining()),
        }
        self.receipt = None;
        self.verdict = None;
    }

    /// Ends the operation, its memory back where it was.
    pub(super) fn end(mut self, result: Result<Done, Failure>) -> Completion<'m> {
        self.begin_again();
        let result = result.map_err(|mut failure| {
            if failure.key.is_none() {
                failure.key = self.key().cloned();
            }
            if failure.peer.is_none() {
                failure.peer = Some(self.operation.peer.address.as_ref().to_owned());
            }
            failure
        });
        Completion {
            id: self.id,
            operation: self.operation,
            result,
        }
    }

    /// Ends a read all of whose bytes have come.
    pub(super) fn end_read(mut self, counters: &Counters) -> Completion<'m> {
        let result = match self.receipt.take() {
            Some(receipt) => receipt.judge(counters),
            None => Err(self.failure(Code::Internal, "a read ended without its head")),
        };
        self.end(result)
    }

    /// Ends an answered write.
    pub(super) fn end_write(
        self,
        result: Result<(), Failure>,
        counters: &Counters,
    ) -> Completion<'m> {
        if result.is_err() {
            count(&counters.writes_refused);
        }
        let bytes = self.bytes;
        self.end(result.map(|()| Done { bytes, shape: None }))
    }
}
